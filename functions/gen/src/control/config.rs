//! The description of traffic as text: what `warmlane gen` reads from a TOML file.
//!
//! Text is read in two steps, as the forwarder's: `raw` says which keys there are, `resolve` makes typed values.

mod raw;
mod resolve;

use std::fmt;
use std::ops::Range;

use thiserror::Error;

use super::profile::Profile;
use super::rate::Rate;

/// Traffic: what to send and how fast.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The streams.
    pub profile: Profile,
    /// How fast, if the text says so.
    pub rate: Option<Rate>,
    /// When packets leave, if the text says so.
    pub pattern: Option<PatternName>,
}

/// A pattern of departures by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternName {
    /// Evenly spaced.
    Constant,
    /// Exponential gaps.
    Poisson,
    /// This many at once.
    Bursts(u32),
}

/// A place in the text; lines and columns (in characters) count from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A text that describes no traffic.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{place}: {problem}")]
pub struct ConfigError {
    /// Where.
    pub place: Place,
    /// What is wrong, and what was expected.
    pub problem: String,
}

/// A problem and the bytes it is about.
struct Fault {
    span: Range<usize>,
    problem: String,
}

impl ConfigError {
    fn at(text: &str, offset: usize, problem: String) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let place =
            Place { line: before.matches('\n').count() + 1, column: before[start..].chars().count() + 1 };
        Self { place, problem }
    }
}

impl Config {
    /// Reads a description; the frames it describes were built once, so it can be sent.
    ///
    /// # Errors
    /// [`ConfigError`]: the first thing that is wrong, with its place.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let raw = toml::from_str(text).map_err(|error: toml::de::Error| {
            let offset = error.span().map_or(0, |span| span.start);
            ConfigError::at(text, offset, error.message().trim().replace('\n', ", "))
        })?;
        resolve::resolve(raw).map_err(|fault| ConfigError::at(text, fault.span.start, fault.problem))
    }
}

impl std::str::FromStr for PatternName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bursts = |text: &str| text.parse().ok().filter(|bursts| (1..=65_536).contains(bursts));
        match text {
            "constant" => Ok(Self::Constant),
            "poisson" => Ok(Self::Poisson),
            _ => text.strip_prefix("bursts:").and_then(bursts).map(Self::Bursts).ok_or_else(|| {
                format!(
                    "\"{text}\" is no pattern: expected constant, poisson, or bursts:N with N from 1 to 65536"
                )
            }),
        }
    }
}
