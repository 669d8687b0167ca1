//! Results as commands have printed them, read again.

use crate::machine::Machine;
use crate::record::{Measured, Record};
use crate::statistics::{Interval, Spread};
use serde::{Deserialize, Serialize};

/// A line of `cargo xtask compare --json`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Comparison {
    /// What was compared.
    pub name: String,
    /// In which unit; fewer are better.
    pub unit: String,
    /// Our rounds.
    pub ours: Spread,
    /// The best peer.
    pub peer_name: String,
    /// Its rounds.
    pub peer: Option<Spread>,
    /// How many times better ours is.
    pub ratio: Option<f64>,
    /// The same turn by turn; records of before November 2026 have it not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratios: Option<Spread>,
    /// Where the ratio lies, by the turns of the run or, in a record, by the runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// The ratio that was promised.
    pub promise: f64,
    /// What physics allows.
    pub bound: String,
    /// Rounds that count.
    pub rounds: usize,
    /// Why the result doesn't count.
    pub void: Option<String>,
    /// Where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// When and how, if `cargo xtask record` has kept it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

/// Text that holds something else than results.
#[derive(Debug, thiserror::Error)]
#[error("{what} was expected: {source}")]
pub struct NoResult {
    what: &'static str,
    source: serde_json::Error,
}

fn read_all<T: serde::de::DeserializeOwned>(text: &str, what: &'static str) -> Result<Vec<T>, NoResult> {
    serde_json::Deserializer::from_str(text)
        .into_iter()
        .collect::<Result<_, _>>()
        .map_err(|source| NoResult { what, source })
}

/// The experiments in a text: lines of `warmlane lab --json`, or records of `cargo xtask record`.
///
/// # Errors
/// [`NoResult`], with the line and column of the first that is none.
pub fn read_records(text: &str) -> Result<Vec<Record>, NoResult> {
    read_all(text, "an experiment's record, as `warmlane lab --json` prints it,")
}

impl Comparison {
    /// The comparisons in a text: lines of `cargo xtask compare --json`, or records of `cargo xtask record`.
    ///
    /// # Errors
    /// [`NoResult`], with the line and column of the first that is none.
    pub fn read(text: &str) -> Result<Vec<Self>, NoResult> {
        read_all(text, "a comparison, as `cargo xtask compare --json` prints it,")
    }

    /// The verdict in a word, and as a class of the page's style.
    pub(super) fn verdict(&self) -> (&'static str, &'static str) {
        match (&self.void, self.interval) {
            (Some(_), _) => ("void", "void"),
            (None, Some(interval)) if interval.low >= self.promise => ("kept", "kept"),
            (None, Some(_)) => ("not kept", "not-kept"),
            // Of fewer than five runs there is no interval.
            (None, None) => ("not known", "void"),
        }
    }
}
