//! What of a router can be set, and changed while it runs.

use std::collections::BTreeMap;

use thiserror::Error;
use warmlane_forward::control::config::IcmpLimits;
use warmlane_forward::control::{SourceCheck, SourceCheckError};

/// What can be changed while packets flow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouterSettings {
    /// ICMP errors that each lane may send.
    pub icmp: IcmpLimits,
    /// How packets' sources are checked.
    pub source_checks: SourceChecks,
    /// Forward also what would pass netfilter, IPsec or tc in the kernel.
    pub bypass_netfilter: bool,
}

/// How packets' sources are checked on which interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceChecks {
    others: SourceCheck,
    named: BTreeMap<String, SourceCheck>,
}

/// Why a list of checks can't be understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SourceChecksError {
    /// A word is no mode.
    #[error(transparent)]
    Mode(#[from] SourceCheckError),
    /// The same twice.
    #[error("urpf is said twice for {whom}: once is enough")]
    Twice {
        /// For which interface.
        whom: String,
    },
}

impl SourceChecks {
    /// Reads words like `strict`, for all interfaces, or `eth1=loose`, for one, which counts more.
    ///
    /// # Errors
    /// [`SourceChecksError`].
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, SourceChecksError> {
        let mut checks = Self::default();
        let mut others = None;
        for word in words {
            let (name, mode) = word.rsplit_once('=').unwrap_or(("", word));
            let before = if name.is_empty() {
                others.replace(mode.parse()?)
            } else {
                checks.named.insert(name.to_owned(), mode.parse()?)
            };
            if before.is_some() {
                let whom =
                    if name.is_empty() { "all interfaces".to_owned() } else { format!("interface '{name}'") };
                return Err(SourceChecksError::Twice { whom });
            }
        }
        checks.others = others.unwrap_or_default();
        Ok(checks)
    }

    /// How it is on the interface of this name.
    pub fn of(&self, name: &str) -> SourceCheck {
        self.named.get(name).copied().unwrap_or(self.others)
    }

    /// The interfaces that are named.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }
}

impl std::fmt::Display for SourceChecks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.others)?;
        self.named.iter().try_for_each(|(name, mode)| write!(f, " {name}={mode}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_for_all_or_for_one() {
        let checks = SourceChecks::parse(["eth1=off", "strict", "a=b=loose"]).unwrap();
        assert_eq!(checks.of("eth0"), SourceCheck::Strict);
        assert_eq!(checks.of("eth1"), SourceCheck::Off);
        assert_eq!(checks.of("a=b"), SourceCheck::Loose);
        assert_eq!(checks.to_string(), "strict a=b=loose eth1=off");
        assert_eq!(SourceChecks::parse([]).unwrap().of("eth0"), SourceCheck::Off);
        assert!(matches!(SourceChecks::parse(["strict", "loose"]), Err(SourceChecksError::Twice { .. })));
        let error = SourceChecks::parse(["eth0=on"]).unwrap_err().to_string();
        assert!(error.contains("\"on\""), "{error}");
    }
}
