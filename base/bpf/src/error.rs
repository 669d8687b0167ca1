//! Why a BPF program is not at work.

use std::error::Error;
use std::io;

use thiserror::Error as ThisError;

/// Lines of the verifier's log that are shown: it ends with the reason.
const LOG_LINES: usize = 30;

/// Why a BPF program is not at work.
#[derive(Debug, ThisError)]
pub enum BpfError {
    /// A capability is missing.
    #[error("{action} needs CAP_BPF and CAP_NET_ADMIN: run as root, or give them to the program ({source})")]
    Permission {
        /// What was tried.
        action: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The object can't be read, or its maps can't be made.
    #[error("the BPF object can't be loaded: {reason}")]
    Object {
        /// Why not.
        reason: String,
    },
    /// The kernel's verifier refuses a program.
    #[error(
        "the kernel refuses the BPF program {program:?} ({source}): Linux 6.1 or later accepts it. Its reasons:\n{log}"
    )]
    Refused {
        /// The program's name.
        program: String,
        /// The end of what the verifier said.
        log: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Another program is at the hook.
    #[error(
        "another {hook} program is attached to interface {interface:?}{which}: take it away, as by `{remedy}`"
    )]
    Occupied {
        /// The interface.
        interface: String,
        /// XDP or tc.
        hook: &'static str,
        /// Which it is, as far as the kernel tells.
        which: String,
        /// A command that takes it away.
        remedy: String,
    },
    /// The kernel or the driver can't attach it.
    #[error("interface {interface:?} can't run a {hook} program: {reason}")]
    Attach {
        /// The interface.
        interface: String,
        /// XDP or tc.
        hook: &'static str,
        /// What the kernel said.
        reason: String,
        /// Its number, if it gave one.
        source: Option<io::Error>,
    },
    /// A map can't be read or changed.
    #[error("the BPF map {map:?} can't be {action}: {reason}")]
    Map {
        /// Its name.
        map: String,
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        reason: String,
    },
}

impl BpfError {
    /// The interface that a program can't be attached to, if that is all that is wrong: another program is there, or it can't run one.
    pub fn refusing_interface(&self) -> Option<&str> {
        match self {
            Self::Occupied { interface, .. } | Self::Attach { interface, .. } => Some(interface),
            Self::Permission { .. } | Self::Object { .. } | Self::Refused { .. } | Self::Map { .. } => None,
        }
    }
}

/// The system's error that another came from.
pub(crate) fn system_error(error: &(dyn Error + 'static)) -> Option<io::Error> {
    let mut current = Some(error);
    while let Some(this) = current {
        if let Some(number) = this.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(io::Error::from_raw_os_error(number));
        }
        current = this.source();
    }
    None
}

/// An error and what it came from, in one line.
pub(crate) fn sentence(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut current = error.source();
    while let Some(cause) = current {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        current = cause.source();
    }
    text
}

/// The end of a verifier's log.
pub(crate) fn end_of(log: &str) -> String {
    let lines: Vec<&str> = log.trim_end().lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_log_is_kept() {
        let lines: Vec<String> = (0..100).map(|line| line.to_string()).collect();
        let end = end_of(&lines.join("\n"));
        assert!(end.starts_with("70\n") && end.ends_with("\n99"), "{end}");
        assert_eq!(end_of(""), "");
    }
}
