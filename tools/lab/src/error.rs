//! Why something can't be measured.

use warmlane_sys::affinity::AffinityError;

/// Why a bench or an experiment can't be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// Nothing of that name.
    #[error("there is no {kind} '{name}': known are {known}")]
    Unknown {
        /// What kind of thing was asked for.
        kind: &'static str,
        /// Its name.
        name: String,
        /// What there is.
        known: String,
    },
    /// Something that it needs can't be had.
    #[error("it cannot be set up: {0}")]
    Setup(String),
    /// A round of it did no work.
    #[error("it moved nothing in a round of {milliseconds} ms: take longer ones")]
    Nothing {
        /// The round's length.
        milliseconds: u128,
    },
    /// It has no such step.
    #[error("no step has '{only}' in its name: {known}")]
    NoStep {
        /// What was asked for.
        only: String,
        /// What there is.
        known: String,
    },
    /// It needs two lanes.
    #[error("it needs a second CPU, and this process may use only one")]
    OneCpu,
    /// The side that asks for rounds is gone or does not keep to the protocol.
    #[error("serving rounds: {0}")]
    Serve(#[from] std::io::Error),
}

impl From<AffinityError> for LabError {
    fn from(error: AffinityError) -> Self {
        Self::setup(error)
    }
}

impl LabError {
    /// It can't be set up, for this reason.
    pub fn setup(reason: impl std::fmt::Display) -> Self {
        Self::Setup(reason.to_string())
    }
}
