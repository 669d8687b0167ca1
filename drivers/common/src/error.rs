//! What can go wrong with system calls and interfaces, whatever the driver.

use std::io;
use thiserror::Error;

/// Why an interface can't be used, or the kernel refused.
#[derive(Debug, Error)]
pub enum SystemError {
    /// There is no interface of that name in this network namespace.
    #[error(
        "there is no interface {name:?} in this network namespace; there is {existing}: choose one, or create it with `ip link add`"
    )]
    NoSuchInterface {
        /// What was asked for.
        name: String,
        /// The names that do exist, separated by commas.
        existing: String,
    },
    /// Interface names have at most 15 bytes (`IFNAMSIZ` is 16, with the terminating zero).
    #[error("interface name {name:?} has {length} bytes, Linux allows 1 to 15: choose a shorter one")]
    NameLength {
        /// What was asked for.
        name: String,
        /// Its length in bytes.
        length: usize,
    },
    /// The kernel does not allow slashes, colons, white space, `.` or `..` as interface names.
    #[error(
        "interface name {name:?} is not allowed: use letters, digits and hyphens (no slash, colon, space; not . or ..)"
    )]
    NameCharacters {
        /// What was asked for.
        name: String,
    },
    /// The interface carries no Ethernet frames.
    #[error(
        "interface {name:?} carries no Ethernet frames (hardware type {hardware}, Ethernet is 1): this driver needs an Ethernet-like interface such as veth, bridge, tap or a NIC"
    )]
    NotEthernet {
        /// The interface.
        name: String,
        /// Its `ARPHRD_` number.
        hardware: u16,
    },
    /// This process may not do that.
    #[error(
        "no permission to {action}: that needs {capabilities}; run as root, or give the program the capabilities with `setcap {setcap}+ep PROGRAM`"
    )]
    Permission {
        /// What was tried.
        action: String,
        /// The capabilities that allow it.
        capabilities: &'static str,
        /// All that the driver needs, as `setcap` spells them.
        setcap: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A system call failed for a reason that there is no advice about.
    #[error("cannot {action}: {source}")]
    Failed {
        /// What was tried.
        action: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl SystemError {
    /// What the kernel said about `action`, which needs these capabilities. `setcap` lists all that the driver needs.
    pub fn of(action: String, source: io::Error, capabilities: &'static str, setcap: &'static str) -> Self {
        if source.kind() == io::ErrorKind::PermissionDenied {
            Self::Permission { action, capabilities, setcap, source }
        } else {
            Self::Failed { action, source }
        }
    }
}

/// The sentence for an interface that existed when its port was opened.
pub fn interface_gone(name: &str) -> String {
    format!(
        "interface {name} went away: it was deleted or moved to another network namespace; bring it back and open the port again"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_permission_names_capability_and_remedy() {
        let denied = io::Error::from_raw_os_error(libc::EPERM);
        let error = SystemError::of("open a packet socket".to_owned(), denied, "CAP_NET_RAW", "cap_net_raw");
        let text = error.to_string();
        assert!(
            text.contains("CAP_NET_RAW") && text.contains("setcap cap_net_raw+ep") && text.contains("root"),
            "{text}"
        );
    }
}
