//! What was measured, with all that is needed to judge it: the one form of every result.

use crate::counters;
use crate::machine::Machine;
use crate::modelled;
use crate::plot::{Figure, PlotError, figures};
use crate::setting::Steadiness;
use crate::table::{self, Cell, Column};
use crate::verdict::{self, Answer, Prediction, Tested, Verdict};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// What somebody says, and what would be measured if it is so.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Claim {
    /// Who says it: an article or talk, by author and title.
    #[serde(deserialize_with = "kept")]
    pub source: Words,
    /// What they say, with the figure.
    #[serde(deserialize_with = "kept")]
    pub says: Words,
    /// What should be measured; a record has them with what became of them.
    #[serde(skip)]
    pub predictions: &'static [Prediction],
}

/// Words that stay until the program ends. (By this name serde does not take them for a part of what it reads.)
pub type Words = &'static str;

/// Words that a program was built with, or that it has read and keeps until it ends: records are read once.
pub(crate) fn kept<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Words, D::Error> {
    String::deserialize(deserializer).map(|words| &*words.leak())
}

/// What an experiment came to.
#[derive(Debug)]
pub struct Findings {
    /// What each column holds.
    pub columns: Vec<Column>,
    /// The rows, each with a cell for every column.
    pub rows: Vec<Vec<Cell>>,
    /// The same as pictures.
    pub figures: Vec<Figure>,
    /// The figures to hold against the claim's predictions, in their order.
    pub answers: Vec<Answer>,
    /// What was found, in sentences: this machine's figures beside the claim, and why they may differ.
    pub conclusion: String,
}

#[cfg(test)]
impl Findings {
    /// There are so many rows, each with a cell for every column.
    #[track_caller]
    pub(crate) fn assert_rows(&self, count: usize) {
        assert_eq!(self.rows.len(), count);
        assert!(self.rows.iter().all(|row| row.len() == self.columns.len()), "{:?}", self.rows);
    }
}

/// A finished experiment, with all that is needed to judge it.
#[derive(Debug, Deserialize, Serialize)]
pub struct Record {
    /// The experiment's name.
    #[serde(deserialize_with = "kept")]
    pub name: Words,
    /// What it finds out.
    #[serde(deserialize_with = "kept")]
    pub question: Words,
    /// What was claimed before.
    pub claim: Option<Claim>,
    /// How it was measured.
    #[serde(deserialize_with = "kept")]
    pub method: Words,
    /// The columns of the table.
    pub columns: Vec<Column>,
    /// Its rows.
    pub rows: Vec<Vec<Cell>>,
    /// The claim's predictions, and what became of each; records of before 24 November 2026 have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tested: Vec<Tested>,
    /// What they come to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Verdict>,
    /// What was found, in sentences. Records had it before they had an outcome, by this name.
    #[serde(rename = "verdict")]
    pub conclusion: String,
    /// How steady each measurement was.
    #[serde(default)]
    pub steadiness: Vec<Steadiness>,
    /// Why the result doesn't count, if so.
    #[serde(default)]
    pub void: Option<String>,
    /// What the hardware counted for each unit, and what it could not.
    #[serde(default)]
    pub counters: counters::Report,
    /// Where it was measured.
    pub machine: Machine,
    /// The pictures' content; the table has the same figures.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// When and how, if `cargo xtask record` has kept it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
}

/// What `cargo xtask record` adds to a result.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Measured {
    /// The command.
    pub command: String,
    /// The day, of several runs that of the last one.
    pub date: String,
    /// How many runs count, of which each figure is the middle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<usize>,
    /// How many more there were that don't count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void_runs: Option<usize>,
    /// What else is to be known about the runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whether the sources have changed since, where that was looked at.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub older_code: bool,
}

impl fmt::Display for Measured {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.date)?;
        if let Some(runs) = self.runs {
            write!(formatter, ", {runs} runs that count")?;
        }
        if let Some(void) = self.void_runs.filter(|&void| void > 0) {
            write!(formatter, ", {void} that don't")?;
        }
        if let Some(note) = &self.note {
            write!(formatter, " ({note})")?;
        }
        formatter.write_str(if self.older_code { ", older code" } else { "" })
    }
}

impl Record {
    /// Whether a column holds names, which are read from the left; figures are read from the right.
    pub fn is_text(&self, column: usize) -> bool {
        self.rows.iter().any(|row| matches!(row.get(column), Some(Cell::Text(_))))
    }

    /// The table as text.
    fn table(&self) -> String {
        let mut lines = vec![self.columns.iter().map(Column::head).collect::<Vec<_>>()];
        lines.extend(self.rows.iter().map(|row| row.iter().map(Cell::to_string).collect()));
        table::aligned(&lines, |column| self.is_text(column))
    }

    /// Its pictures, below each other.
    ///
    /// # Errors
    /// [`PlotError`].
    pub fn plot(&self) -> Result<String, PlotError> {
        figures(&self.figures, self.caption().as_deref())
    }

    /// What stands above the pictures: whether the claim was reproduced.
    fn caption(&self) -> Option<String> {
        self.outcome.as_ref().map(|outcome| format!("{}: {outcome}", self.name))
    }
}

/// For people at a terminal.
impl fmt::Display for Record {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}: {}", self.name, self.question)?;
        if let Some(claim) = &self.claim {
            writeln!(formatter, "claimed: {} ({})", claim.says, claim.source)?;
        }
        writeln!(formatter, "method: {}\n\n{}", self.method, self.table())?;
        if !self.counters.modelled.is_empty() {
            let rows = counters::table(&self.counters.modelled, &modelled::EVENTS);
            let table = table::aligned(&rows, |column| column == 0);
            writeln!(formatter, "modelled, for each unit; variants in the order of the table:\n\n{table}")?;
        }
        if let Some(agreement) = &self.counters.agreement {
            writeln!(formatter, "{agreement}")?;
        }
        if let Some(reason) = &self.void {
            writeln!(formatter, "void: {reason}")?;
        }
        writeln!(formatter, "{}{}", verdict::text(&self.tested), self.conclusion)
    }
}
