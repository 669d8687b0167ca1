//! What a check has to say.

use serde::Serialize;

/// How well a thing is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// As it should be, or of no consequence here.
    Good,
    /// Everything works, slower or less steadily than it might.
    CouldBeBetter,
    /// Something can't be used until it is changed.
    Problem,
    /// The machine doesn't tell.
    NotKnown,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check; stable, so that scripts can look for it.
    pub name: &'static str,
    /// What it was made of, where one check is made of several things: the interface's name.
    pub subject: Option<String>,
    /// How well it is set up.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What to do: a command or a boot parameter in backquotes, and when it applies.
    pub remedy: Option<String>,
    /// What doing it is worth.
    pub worth: Option<String>,
    /// Nothing at all runs before this is changed.
    pub prevents_running: bool,
}

impl Finding {
    fn new(name: &'static str, status: Status, found: impl Into<String>) -> Self {
        Self {
            name,
            subject: None,
            status,
            found: found.into(),
            remedy: None,
            worth: None,
            prevents_running: false,
        }
    }

    pub(crate) fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Status::Good, found)
    }

    pub(crate) fn not_known(name: &'static str, found: impl Into<String>) -> Self {
        Self::new(name, Status::NotKnown, found)
    }

    pub(crate) fn better(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..Self::new(name, Status::CouldBeBetter, found) }
    }

    pub(crate) fn problem(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..Self::new(name, Status::Problem, found) }
    }

    pub(crate) fn worth(self, worth: impl Into<String>) -> Self {
        Self { worth: Some(worth.into()), ..self }
    }

    pub(crate) fn of(self, subject: &str) -> Self {
        Self { subject: Some(subject.to_owned()), ..self }
    }

    pub(crate) fn preventing(self) -> Self {
        Self { prevents_running: true, ..self }
    }
}
