//! What an operator says of all interfaces, and of some of them by name.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Display};
use std::str::FromStr;

use thiserror::Error;

/// Something that can be chosen for each interface, by a word.
pub trait InterfaceChoice: Copy + Default + Display + FromStr<Err: std::error::Error> {
    /// The setting's name.
    const SETTING: &'static str;
}

/// A choice for all interfaces, and others for those that are named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ByInterface<T> {
    others: T,
    named: BTreeMap<String, T>,
}

/// Why a list of words can't be understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ByInterfaceError<E> {
    /// A word is no choice.
    #[error(transparent)]
    Word(#[from] E),
    /// The same twice.
    #[error("{setting} is said twice for {whom}: once is enough")]
    Twice {
        /// The setting's name.
        setting: &'static str,
        /// For which interface.
        whom: String,
    },
}

impl<T: InterfaceChoice> ByInterface<T> {
    /// Reads words like `strict`, for all interfaces, or `eth1=loose`, for one, which counts more.
    ///
    /// # Errors
    /// [`ByInterfaceError`].
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, ByInterfaceError<T::Err>> {
        let (mut others, mut named) = (None, BTreeMap::new());
        for word in words {
            let (name, choice) = word.rsplit_once('=').unwrap_or(("", word));
            let choice = choice.parse::<T>()?;
            let before =
                if name.is_empty() { others.replace(choice) } else { named.insert(name.to_owned(), choice) };
            if before.is_some() {
                let whom =
                    if name.is_empty() { "all interfaces".to_owned() } else { format!("interface '{name}'") };
                return Err(ByInterfaceError::Twice { setting: T::SETTING, whom });
            }
        }
        Ok(Self { others: others.unwrap_or_default(), named })
    }

    /// How it is on the interface of this name.
    pub fn of(&self, name: &str) -> T {
        self.named.get(name).copied().unwrap_or(self.others)
    }

    /// The interfaces that are named.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }
}

impl<T: Display> Display for ByInterface<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.others)?;
        self.named.iter().try_for_each(|(name, choice)| write!(f, " {name}={choice}"))
    }
}

#[cfg(test)]
mod tests {
    use crate::control::SourceChecks;
    use crate::paths::{Path, PathChoice, Paths};
    use warmlane_forward::control::SourceCheck;

    #[test]
    fn words_are_for_all_or_for_one() {
        let checks = SourceChecks::parse(["eth1=off", "strict", "a=b=loose"]).unwrap();
        assert_eq!(checks.of("eth0"), SourceCheck::Strict);
        assert_eq!(checks.of("eth1"), SourceCheck::Off);
        assert_eq!(checks.of("a=b"), SourceCheck::Loose);
        assert_eq!(checks.to_string(), "strict a=b=loose eth1=off");
        assert_eq!(SourceChecks::parse([]).unwrap().of("eth0"), SourceCheck::Off);
        let error = SourceChecks::parse(["strict", "loose"]).unwrap_err().to_string();
        assert_eq!(error, "urpf is said twice for all interfaces: once is enough");
        let error = SourceChecks::parse(["eth0=on"]).unwrap_err().to_string();
        assert!(error.contains("\"on\""), "{error}");
    }

    #[test]
    fn each_interface_has_its_path() {
        let paths = Paths::parse(["eth1=tc", "user"]).unwrap();
        assert_eq!([paths.of("eth0"), paths.of("eth1")], [Path::User, Path::Tc].map(PathChoice::Only));
        assert_eq!(Paths::parse([]).unwrap().of("eth0"), PathChoice::Best);
        let error = Paths::parse(["eth7=tc", "eth7=xdp"]).unwrap_err().to_string();
        assert_eq!(error, "path is said twice for interface 'eth7': once is enough");
        let error = Paths::parse(["eth0=fast"]).unwrap_err().to_string();
        assert!(error.contains("\"fast\""), "{error}");
    }
}
