//! Which path packets take that come in by an interface.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Where packets of an interface are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// In user space, by lanes.
    User,
    /// In the driver, by a program at the XDP hook.
    Xdp,
    /// In the kernel's stack, by a program at the tc hook.
    Tc,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::User => "user",
            Self::Xdp => "xdp",
            Self::Tc => "tc",
        })
    }
}

/// What an operator says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathChoice {
    /// What the interface does best.
    #[default]
    Best,
    /// This one or none.
    Only(Path),
}

impl fmt::Display for PathChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Best => f.write_str("best"),
            Self::Only(path) => path.fmt(f),
        }
    }
}

impl FromStr for PathChoice {
    type Err = PathChoiceError;

    fn from_str(word: &str) -> Result<Self, PathChoiceError> {
        match word {
            "best" => Ok(Self::Best),
            "user" => Ok(Self::Only(Path::User)),
            "xdp" => Ok(Self::Only(Path::Xdp)),
            "tc" => Ok(Self::Only(Path::Tc)),
            _ => Err(PathChoiceError::Word { word: word.to_owned() }),
        }
    }
}

/// Why a list of choices can't be understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PathChoiceError {
    /// A word is no path.
    #[error("{word:?} is no path: say best, user, xdp or tc, or INTERFACE=PATH")]
    Word {
        /// Which.
        word: String,
    },
    /// The same twice.
    #[error("path is said twice for {whom}: once is enough")]
    Twice {
        /// For which interface.
        whom: String,
    },
}

/// What an operator says of all interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    others: PathChoice,
    named: BTreeMap<String, PathChoice>,
}

impl Paths {
    /// Reads words like `tc`, for all interfaces, or `eth1=xdp`, for one, which counts more.
    ///
    /// # Errors
    /// [`PathChoiceError`].
    pub fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, PathChoiceError> {
        let (mut others, mut named) = (None, BTreeMap::new());
        for word in words {
            let (name, choice) = word.rsplit_once('=').unwrap_or(("", word));
            let before = if name.is_empty() {
                others.replace(choice.parse()?)
            } else {
                named.insert(name.to_owned(), choice.parse()?)
            };
            if before.is_some() {
                let whom =
                    if name.is_empty() { "all interfaces".to_owned() } else { format!("interface '{name}'") };
                return Err(PathChoiceError::Twice { whom });
            }
        }
        Ok(Self { others: others.unwrap_or_default(), named })
    }

    /// How it is for the interface of this name.
    pub fn of(&self, name: &str) -> PathChoice {
        self.named.get(name).copied().unwrap_or(self.others)
    }

    /// The interfaces that are named.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }
}

impl fmt::Display for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.others)?;
        self.named.iter().try_for_each(|(name, choice)| write!(f, " {name}={choice}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_for_all_or_for_one() {
        let paths = Paths::parse(["eth1=tc", "user", "a=b=xdp"]).unwrap();
        assert_eq!(paths.of("eth0"), PathChoice::Only(Path::User));
        assert_eq!(paths.of("eth1"), PathChoice::Only(Path::Tc));
        assert_eq!(paths.of("a=b"), PathChoice::Only(Path::Xdp));
        assert_eq!(paths.to_string(), "user a=b=xdp eth1=tc");
        assert_eq!(Paths::parse([]).unwrap().of("eth0"), PathChoice::Best);
        assert!(matches!(Paths::parse(["tc", "xdp"]), Err(PathChoiceError::Twice { .. })));
        let error = Paths::parse(["eth0=fast"]).unwrap_err().to_string();
        assert!(error.contains("\"fast\""), "{error}");
    }
}
