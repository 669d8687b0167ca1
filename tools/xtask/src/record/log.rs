//! The log beside a record: every run, in the order in which they were made.
//!
//! It is only ever appended to. Nothing in it vouches for that, for whoever can change a line can change what vouches for it; what does is
//! the repository's history, which `cargo xtask figures` looks through for lines that a commit has removed or changed.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The suffix of logs.
pub(crate) const SUFFIX: &str = "log";

/// What a row is made of, and the version of each: a path and git's name of its content.
pub(crate) type Sources = BTreeMap<String, String>;

/// A line of the log.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Series(Series),
    Run(Run),
}

/// What was said before the first run of some.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Series {
    /// How many runs shall count.
    pub(crate) runs: usize,
    /// How many are made at most, if some don't count.
    pub(crate) at_most: usize,
    pub(crate) date: String,
    /// What makes one run.
    pub(crate) command: String,
    /// What else is to be known about them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

/// One run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Run {
    /// From 1, throughout the log.
    pub(crate) number: usize,
    pub(crate) date: String,
    /// How long it took, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) took: Option<f64>,
    /// Of what it was built; nothing, if that is not known.
    pub(crate) sources: Sources,
    /// Why it does not count, if so.
    pub(crate) void: Option<String>,
    /// What the command printed, with machine, commit and settings; nothing, if it failed.
    pub(crate) result: Option<Value>,
}

/// All lines of a log that is in order.
#[derive(Debug, Default)]
pub(crate) struct Log {
    series: Vec<Series>,
    runs: Vec<Run>,
    /// How many runs there were before the last series.
    before: usize,
}

impl Log {
    /// Reads a log; one that isn't there is empty.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let text = if file.exists() { fs::read_to_string(file)? } else { String::new() };
        let mut log = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = serde_json::from_str(line).context("that is neither a series nor a run");
            line.and_then(|line| log.add(line)).with_context(|| format!("line {}", number + 1))?;
        }
        Ok(log)
    }

    fn add(&mut self, line: Line) -> anyhow::Result<()> {
        match line {
            Line::Series(series) => {
                self.before = self.runs.len();
                self.series.push(series);
            }
            Line::Run(run) => {
                let number = self.runs.len() + 1;
                if run.number != number {
                    bail!("run {} stands where run {number} should", run.number);
                }
                if self.left().0 == 0 {
                    bail!("run {number} was not announced: the series before it had all its runs");
                }
                self.runs.push(run);
            }
        }
        Ok(())
    }

    /// Says beforehand how many runs are to come.
    pub(crate) fn announce(&mut self, file: &Path, series: Series) -> anyhow::Result<()> {
        self.append(file, Line::Series(series))
    }

    /// Adds a run.
    pub(crate) fn append_run(&mut self, file: &Path, run: Run) -> anyhow::Result<()> {
        self.append(file, Line::Run(run))
    }

    fn append(&mut self, file: &Path, line: Line) -> anyhow::Result<()> {
        let text = serde_json::to_string(&line)? + "\n";
        self.add(line)?;
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let open = OpenOptions::new().append(true).create(true).open(file);
        open.and_then(|mut log| log.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write {}", file.display()))
    }

    /// All runs.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// All series.
    pub(crate) fn series(&self) -> &[Series] {
        &self.series
    }

    /// How many runs the last series may still have, and how many of them have to count; none if it is finished.
    pub(crate) fn left(&self) -> (usize, usize) {
        let Some(series) = self.series.last() else { return (0, 0) };
        let made = &self.runs[self.before..];
        let counted = made.iter().filter(|run| run.void.is_none()).count();
        let wanted = series.runs.saturating_sub(counted);
        if wanted == 0 { (0, 0) } else { (series.at_most.saturating_sub(made.len()), wanted) }
    }

    /// The runs of the same code as the last one, in whatever series.
    pub(crate) fn of_the_last_code(&self) -> Vec<&Run> {
        let Some(last) = self.runs.last() else { return Vec::new() };
        self.runs.iter().filter(|run| run.sources == last.sources).collect()
    }
}
