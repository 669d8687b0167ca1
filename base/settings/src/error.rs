//! Mistakes in settings, and where they are.

use std::error::Error;
use std::fmt;

use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::located::Origin;

/// A place in a text; lines and columns (in characters) count from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

impl Position {
    /// The place of a byte of a text.
    fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A problem and the origin of the value that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault<P> {
    /// Where the value was written.
    pub origin: Origin,
    /// What is wrong with it.
    pub problem: P,
}

impl<P> Fault<P> {
    /// Something is wrong with a value from `origin`.
    pub fn new(origin: Origin, problem: impl Into<P>) -> Self {
        Self { origin, problem: problem.into() }
    }

    /// The same problem as another type.
    pub fn cast<Q: From<P>>(self) -> Fault<Q> {
        Fault { origin: self.origin, problem: self.problem.into() }
    }

    /// The error, for values that came from this file's text, from flags or from code.
    pub fn in_text(self, text: &str) -> SettingsError<P> {
        let place = match self.origin {
            Origin::Code => Place::Nowhere,
            Origin::Text(bytes) => Place::Text(Position::of(text, bytes.start)),
            Origin::Flag(flag) => Place::Flag(flag),
        };
        SettingsError { place, problem: self.problem }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Nowhere,
    Text(Position),
    Flag(String),
}

/// Settings that can't be used: what is wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError<P> {
    place: Place,
    /// What is wrong, and what to do about it.
    pub problem: P,
}

impl<P> SettingsError<P> {
    /// Where in the file, if it is there.
    pub const fn position(&self) -> Option<Position> {
        match self.place {
            Place::Text(position) => Some(position),
            Place::Nowhere | Place::Flag(_) => None,
        }
    }

    /// The same problem as another type.
    pub fn cast<Q: From<P>>(self) -> SettingsError<Q> {
        SettingsError { place: self.place, problem: self.problem.into() }
    }
}

impl<P: fmt::Display> fmt::Display for SettingsError<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Nowhere => self.problem.fmt(f),
            Place::Text(position) => write!(f, "{position}: {}", self.problem),
            Place::Flag(flag) => write!(f, "{flag}: {}", self.problem),
        }
    }
}

impl<P: fmt::Debug + fmt::Display> Error for SettingsError<P> {}

/// Reads a TOML file's text.
///
/// # Errors
/// What isn't TOML, a key that isn't known, or a value of the wrong type, in a sentence.
pub fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, SettingsError<String>> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let offset = error.span().map_or(0, |span| span.start);
        let problem = error.message().trim().replace('\n', ", ");
        SettingsError { place: Place::Text(Position::of(text, offset)), problem }
    })
}

/// A number outside its range.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what} is {value}: use {minimum} to {maximum}")]
pub struct OutOfRange {
    /// Which number.
    pub what: String,
    /// What was given.
    pub value: i64,
    /// The least it may be.
    pub minimum: i64,
    /// The most it may be.
    pub maximum: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Located;

    #[derive(Debug, Default, serde::Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
    struct Settings {
        lane_count: Option<Located<i64>>,
        names: Vec<Located<String>>,
    }

    fn check(settings: &Settings, text: &str) -> Result<u32, String> {
        let count = settings.lane_count.as_ref().map_or(Ok(1), |count| count.within("`lane-count`", 1..=8));
        count.map_err(|fault| fault.in_text(text).to_string())
    }

    #[test]
    fn mistakes_are_named_where_they_were_written() {
        let text = "names = [\"ä\", \"b\"]\nlane-count = 9\n";
        let mut settings: Settings = from_toml(text).unwrap();
        assert_eq!(check(&settings, text).unwrap_err(), "line 2, column 14: `lane-count` is 9: use 1 to 8");
        let fault: Fault<String> = settings.names[1].fault("no such name");
        assert_eq!(fault.clone().in_text(text).position(), Some(Position { line: 1, column: 15 }));
        // What a flag says goes before the file, and is named as it was given.
        settings.lane_count = Some(Located::flag("--lanes", "-1", -1));
        assert_eq!(check(&settings, text).unwrap_err(), "--lanes -1: `lane-count` is -1: use 1 to 8");
        settings.lane_count = Some(0.into());
        assert_eq!(check(&settings, text).unwrap_err(), "`lane-count` is 0: use 1 to 8");
        let unknown = from_toml::<Settings>("\nlanes = 1").unwrap_err().to_string();
        assert!(unknown.starts_with("line 2, column 1: unknown field `lanes`"), "{unknown}");
    }
}
