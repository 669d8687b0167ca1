//! Experiments: a question, the method, a table, a picture, and what follows from them.
//!
//! Each experiment measures again what one of the documents that Warmlane started from claims, or what a
//! promise of ours rests on, on the machine that it is run on.

use crate::bench::{self, Machine, Measure};
use crate::experiments;
use crate::hop;
use crate::plot::{Figure, PlotError, figures};
use serde::Serialize;
use std::time::Duration;

/// An experiment that can be asked for by name.
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it finds out, as a question.
    pub question: &'static str,
    /// What was claimed before.
    pub claim: Option<Claim>,
    /// How it is measured, in some sentences.
    pub method: &'static str,
    /// Does it. The function is told what to say about progress.
    pub run: Run,
}

/// Runs an experiment, telling the listener about each step.
pub type Run = fn(&Setting, &mut dyn FnMut(&str)) -> Result<Findings, ExperimentError>;

/// A figure that somebody gave, and who.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Claim {
    /// Who says it: an article or talk, by author and title.
    pub source: &'static str,
    /// What they say, with the figure.
    pub says: &'static str,
}

/// What can be chosen about an experiment.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The first lane's CPU; the caller's thread is bound to it.
    pub cpu: usize,
    /// The second lane's, if there is one.
    pub second_cpu: Option<usize>,
    /// How long one round takes.
    pub length: Duration,
    /// Rounds for each figure.
    pub rounds: usize,
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
    /// What follows: this machine's figure beside the claim, and why they differ.
    pub verdict: String,
}

/// A column of a table.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// What it holds.
    pub name: String,
    /// In which unit; empty for names.
    pub unit: &'static str,
}

impl Column {
    /// A column of names or plain counts.
    pub fn plain(name: &str) -> Self {
        Self { name: name.to_owned(), unit: "" }
    }

    /// A column of figures.
    pub fn figures(name: &str, unit: &'static str) -> Self {
        Self { name: name.to_owned(), unit }
    }
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Cell {
    /// A name.
    Text(String),
    /// A whole number, such as a size.
    Count(u64),
    /// A figure.
    Figure(f64),
    /// Not measured here; the verdict says why.
    Missing,
}

impl std::fmt::Display for Cell {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => formatter.pad(text),
            Self::Count(count) => formatter.pad(&count.to_string()),
            Self::Figure(figure) => formatter.pad(&three_digits(*figure)),
            Self::Missing => formatter.pad("-"),
        }
    }
}

/// A figure with about three digits: more would be noise.
pub fn three_digits(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<usize> for Cell {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<f64> for Cell {
    fn from(figure: f64) -> Self {
        Self::Figure(figure)
    }
}

impl From<Option<f64>> for Cell {
    fn from(figure: Option<f64>) -> Self {
        figure.map_or(Self::Missing, Self::Figure)
    }
}

/// A finished experiment, with all that is needed to judge it.
#[derive(Debug, Serialize)]
pub struct Record {
    /// The experiment's name.
    pub name: &'static str,
    /// What it finds out.
    pub question: &'static str,
    /// What was claimed before.
    pub claim: Option<Claim>,
    /// How it was measured.
    pub method: &'static str,
    /// The columns of the table.
    pub columns: Vec<Column>,
    /// Its rows.
    pub rows: Vec<Vec<Cell>>,
    /// What follows.
    pub verdict: String,
    /// Where it was measured.
    pub machine: Machine,
    /// The pictures' content; the table has the same figures.
    #[serde(skip)]
    pub figures: Vec<Figure>,
}

/// Why an experiment can't be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// No experiment of that name.
    #[error("there is no experiment '{name}': known are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// Something that it needs can't be had.
    #[error("the experiment cannot be set up: {0}")]
    Setup(String),
    /// It needs two lanes.
    #[error("the experiment needs a second CPU, and this process may use only one")]
    OneCpu,
}

impl ExperimentError {
    /// It can't be set up, for this reason.
    pub fn setup(reason: impl std::fmt::Display) -> Self {
        Self::Setup(reason.to_string())
    }
}

/// All experiments.
pub fn list() -> impl Iterator<Item = &'static Experiment> {
    experiments::ALL.iter().copied()
}

/// The experiment called `name`.
///
/// # Errors
/// [`ExperimentError::Unknown`], which lists those there are.
pub fn find(name: &str) -> Result<&'static Experiment, ExperimentError> {
    list().find(|experiment| experiment.name == name).ok_or_else(|| ExperimentError::Unknown {
        name: name.to_owned(),
        known: list().map(|experiment| experiment.name).collect::<Vec<_>>().join(", "),
    })
}

impl Experiment {
    /// Does it; `progress` is told about each step.
    ///
    /// # Errors
    /// [`ExperimentError`].
    pub fn run(&self, setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Record, ExperimentError> {
        let Findings { columns, rows, figures, verdict } = (self.run)(setting, progress)?;
        Ok(Record {
            name: self.name,
            question: self.question,
            claim: self.claim,
            method: self.method,
            columns,
            rows,
            verdict,
            machine: Machine::this(),
            figures,
        })
    }
}

impl Column {
    /// Its name and unit.
    pub fn head(&self) -> String {
        if self.unit.is_empty() { self.name.clone() } else { format!("{} [{}]", self.name, self.unit) }
    }
}

impl Record {
    /// Whether a column holds names, which are read from the left; figures are read from the right.
    pub fn is_text(&self, column: usize) -> bool {
        self.rows.iter().any(|row| matches!(row.get(column), Some(Cell::Text(_))))
    }

    /// Its pictures, below each other.
    ///
    /// # Errors
    /// [`PlotError`].
    pub fn plot(&self) -> Result<String, PlotError> {
        figures(&self.figures)
    }
}

impl Setting {
    /// The second lane's CPU.
    ///
    /// # Errors
    /// [`ExperimentError::OneCpu`].
    pub fn second_cpu(&self) -> Result<usize, ExperimentError> {
        self.second_cpu.ok_or(ExperimentError::OneCpu)
    }

    /// Measures several ways to do a thing in turns, [`rounds`](Self::rounds) of each, and gives the medians.
    ///
    /// # Errors
    /// [`ExperimentError::Setup`], if a CPU can't be used.
    pub fn take_turns(&self, ways: &mut [Box<dyn Measure>]) -> Result<Turns, ExperimentError> {
        let second = self.second_cpu;
        let look = || {
            second.map(|second| hop::measure(self.cpu, second)).transpose().map_err(ExperimentError::setup)
        };
        let mut turns: Vec<(Vec<f64>, Option<f64>)> = Vec::with_capacity(self.rounds);
        for _ in 0..self.rounds.max(1) {
            let before = look()?;
            let cycles =
                ways.iter_mut().map(|way| bench::measure_once(&mut **way, self.length)).collect::<Vec<_>>();
            let after = look()?;
            let steady = before
                .zip(after)
                .is_none_or(|(before, after)| before.max(after) <= before.min(after) * STEADY);
            // A turn in which the regime changed is worth nothing if there are others.
            let hop = before.zip(after).map(|(before, after)| f64::midpoint(before, after));
            turns.push((cycles, hop.map(|hop| if steady { hop } else { f64::INFINITY })));
        }
        Ok(Turns::of(turns))
    }
}

/// The cost of a line may change so much within a turn.
const STEADY: f64 = 1.5;
/// A cost so many times the lowest of the run belongs to a slower regime.
const SLOWER: f64 = 2.0;

/// What ways to do a thing cost that took turns.
#[derive(Clone, Debug, PartialEq)]
pub struct Turns {
    /// The median of each way, in cycles per unit, over turns of one regime.
    pub medians: Vec<f64>,
    /// What a line cost from CPU to CPU in these turns, in cycles ([`hop`]); `None` with one CPU.
    pub hop: Option<f64>,
    /// How many turns these are; the others were of another regime.
    pub counted: usize,
}

impl Turns {
    fn of(turns: Vec<(Vec<f64>, Option<f64>)>) -> Self {
        let all = turns.len();
        let lowest = turns.iter().filter_map(|(_, hop)| *hop).fold(f64::INFINITY, f64::min);
        let (slow, fast): (Vec<_>, Vec<_>) =
            turns.into_iter().partition(|(_, hop)| hop.is_some_and(|hop| hop >= lowest * SLOWER));
        let (steady, torn): (Vec<_>, Vec<_>) =
            slow.into_iter().partition(|(_, hop)| hop.is_none_or(f64::is_finite));
        // Not enough of one kind: the larger group tells more.
        let chosen = [fast, steady, torn].into_iter().max_by_key(Vec::len).unwrap_or_default();
        let ways = chosen.first().map_or(0, |(cycles, _)| cycles.len());
        let hops: Vec<f64> = chosen.iter().filter_map(|(_, hop)| *hop).collect();
        debug_assert!(chosen.len() <= all);
        Self {
            medians: (0..ways)
                .map(|way| median(chosen.iter().map(|(cycles, _)| cycles[way]).collect()))
                .collect(),
            hop: (!hops.is_empty()).then(|| median(hops)),
            counted: chosen.len(),
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_of_one_regime_make_the_medians() {
        let fast = |cycles: f64| (vec![cycles, 2.0 * cycles], Some(170.0));
        let slow = (vec![90.0, 90.0], Some(700.0));
        let torn = (vec![50.0, 50.0], Some(f64::INFINITY));
        let turns = Turns::of(vec![fast(1.0), slow.clone(), fast(3.0), torn, fast(2.0), slow]);
        assert_eq!(turns, Turns { medians: vec![2.0, 4.0], hop: Some(170.0), counted: 3 });
        let alone = Turns::of(vec![(vec![5.0], None), (vec![7.0], None), (vec![6.0], None)]);
        assert_eq!(alone, Turns { medians: vec![6.0], hop: None, counted: 3 });
    }

    #[test]
    fn names_are_unique_and_unknown_ones_told() {
        let mut names: Vec<_> = list().map(|experiment| experiment.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        let error = find("alchemy").err().unwrap().to_string();
        assert!(error.starts_with("there is no experiment 'alchemy': known are "), "{error}");
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!([0.756, 8.25, 44.04, 590.4].map(three_digits), ["0.76", "8.25", "44.0", "590"]);
        assert_eq!(format!("{:>6}|{:<4}|", Cell::Figure(1.5), Cell::Missing), "  1.50|-   |");
    }

    #[test]
    fn cells_are_plain_json() {
        let cells: Vec<Cell> = vec!["ring".into(), 256_usize.into(), 1.5.into(), None.into()];
        assert_eq!(serde_json::to_string(&cells).unwrap(), r#"["ring",256,1.5,null]"#);
    }
}
