//! Which path packets take that come in by an interface.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::by_interface::{ByInterface, InterfaceChoice};

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
    /// What the interface does best without lanes, as its driver has refused what makes them best. It is no value of `--path`.
    BestInKernel,
    /// This one or none.
    Only(Path),
}

impl fmt::Display for PathChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Best | Self::BestInKernel => f.write_str("best"),
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
            _ => Err(PathChoiceError { word: word.to_owned() }),
        }
    }
}

/// A word that is no path.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{word:?} is no path: say best, user, xdp or tc, or INTERFACE=PATH")]
pub struct PathChoiceError {
    /// Which.
    word: String,
}

impl InterfaceChoice for PathChoice {
    const SETTING: &'static str = "path";
}

/// What an operator says of all interfaces.
pub type Paths = ByInterface<PathChoice>;
