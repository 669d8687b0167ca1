//! Experiments: a question, the method, a table, a picture, and what follows from them.
//!
//! Each experiment measures again what one of the documents that Warmlane started from claims, or what a
//! promise of ours rests on, on the machine that it is run on.

use crate::bench::{self, Machine, Measure};
use crate::counters;
use crate::disturbance::{self, Snapshot};
use crate::experiments;
use crate::plot::{Figure, PlotError, figures};
use crate::statistics::{self, Spread, median};
use crate::turns::{self, Round, Taken};
use serde::{Deserialize, Deserializer, Serialize};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use warmlane_sys::affinity::AffinityError;

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
    /// The steps that can be done alone, if any can: see [`Setting::only`].
    pub steps: Option<fn() -> Vec<String>>,
    /// Does it. The function is told what to say about progress.
    pub run: Run,
}

/// Runs an experiment, telling the listener about each step.
pub type Run = fn(&Setting, &mut dyn FnMut(&str)) -> Result<Findings, ExperimentError>;

/// A figure that somebody gave, and who.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Claim {
    /// Who says it: an article or talk, by author and title.
    #[serde(deserialize_with = "kept")]
    pub source: Words,
    /// What they say, with the figure.
    #[serde(deserialize_with = "kept")]
    pub says: Words,
}

/// Words that stay until the program ends. (By this name serde does not take them for a part of what it reads.)
pub type Words = &'static str;

/// Words that a program was built with, or that it has read and keeps until it ends: records are read once.
fn kept<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Words, D::Error> {
    String::deserialize(deserializer).map(|words| &*words.leak())
}

/// How many CPUs what takes turns keeps busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    /// The first lane's.
    One,
    /// Both lanes', with lines that move between them.
    Two,
}

/// What can be chosen about an experiment.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// The first lane's CPU; the caller's thread is bound to it.
    pub cpu: usize,
    /// The second lane's, if there is one.
    pub second_cpu: Option<usize>,
    /// How long one round takes.
    pub length: Duration,
    /// Rounds for each figure.
    pub rounds: usize,
    /// Only steps with this in their name; for experiments that have [`steps`](Experiment::steps).
    pub only: Option<String>,
    /// Where it is kept how steady each measurement was.
    pub journal: Journal,
}

/// How steady the measurements of an experiment were.
#[derive(Clone, Debug, Default)]
pub struct Journal(Rc<RefCell<Vec<Steadiness>>>);

/// How steady one measurement was: some ways that took turns.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Steadiness {
    /// The step of the experiment, in its own words.
    pub step: String,
    /// How many ways took turns.
    pub ways: usize,
    /// How many turns there were.
    pub turns: usize,
    /// How many of them count.
    pub counted: usize,
    /// How many times longer than its fastest round the slowest one of a way took, where that is most.
    pub spread: Option<f64>,
    /// Why figures of it don't count, if so: those of the ways in question are missing in the table.
    pub void: Vec<String>,
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
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Column {
    /// What it holds.
    pub name: String,
    /// In which unit; empty for names.
    #[serde(deserialize_with = "kept")]
    pub unit: Words,
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
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
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

/// What is not finite was not measured.
impl From<f64> for Cell {
    fn from(figure: f64) -> Self {
        if figure.is_finite() { Self::Figure(figure) } else { Self::Missing }
    }
}

impl From<Option<f64>> for Cell {
    fn from(figure: Option<f64>) -> Self {
        figure.map_or(Self::Missing, Self::from)
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
    /// What follows.
    pub verdict: String,
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
    /// The day.
    pub date: String,
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
    /// It has no such step.
    #[error("no step has '{only}' in its name: {known}")]
    NoStep {
        /// What was asked for.
        only: String,
        /// What there is.
        known: String,
    },
    /// It needs two lanes.
    #[error("the experiment needs a second CPU, and this process may use only one")]
    OneCpu,
}

impl From<AffinityError> for ExperimentError {
    fn from(error: AffinityError) -> Self {
        Self::setup(error)
    }
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
        self.check_only(setting)?;
        let setting = Setting { journal: Journal::default(), ..setting.clone() };
        // Before the experiment adds huge pages or work.
        let machine = Machine::measuring(&setting.all_cpus());
        let mut step = |name: &str| {
            counters::step(name);
            progress(name);
        };
        let (findings, counters) = counters::gather(|| (self.run)(&setting, &mut step));
        let Findings { columns, rows, figures, verdict } = findings?;
        let steadiness = setting.journal.0.take();
        Ok(Record {
            name: self.name,
            question: self.question,
            claim: self.claim,
            method: self.method,
            columns,
            rows,
            // What doesn't count is a dash, as in the table.
            verdict: verdict.replace("NaN", "–"),
            void: void(&steadiness),
            steadiness,
            counters,
            machine,
            figures,
            measured: None,
        })
    }

    /// Whether there is what only should be done.
    fn check_only(&self, setting: &Setting) -> Result<(), ExperimentError> {
        let Some(only) = &setting.only else { return Ok(()) };
        let steps = self.steps.map(|steps| steps());
        if !only.is_empty() && steps.iter().flatten().any(|step| setting.wants(step)) {
            return Ok(());
        }
        let known = steps.map_or_else(
            || "this experiment is done as a whole".to_owned(),
            |steps| format!("there are {}", steps.join("; ")),
        );
        Err(ExperimentError::NoStep { only: only.clone(), known })
    }
}

/// Why an experiment doesn't count as a whole, if so. Of many figures a few may be missing.
fn void(steadiness: &[Steadiness]) -> Option<String> {
    let all: usize = steadiness.iter().map(|measurement| measurement.ways).sum();
    let reasons: Vec<&String> = steadiness.iter().flat_map(|measurement| &measurement.void).collect();
    let first = reasons.first().filter(|_| reasons.len() * MOST_MISSING > all)?;
    Some(format!("{} of {all} figures do not count; of the first, {first}", reasons.len()))
}

/// One in so many figures of an experiment may be missing.
const MOST_MISSING: usize = 10;

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

    /// Whether a step of this name is to be done.
    pub(crate) fn wants(&self, step: &str) -> bool {
        self.only.as_ref().is_none_or(|only| step.contains(only))
    }

    fn all_cpus(&self) -> Vec<usize> {
        [self.cpu].into_iter().chain(self.second_cpu).collect()
    }

    /// Measures several ways to do a thing in turns until there are [`rounds`](Self::rounds) of each that count, and gives
    /// the medians.
    ///
    /// # Errors
    /// [`ExperimentError::Setup`], if a CPU can't be used; [`ExperimentError::OneCpu`], if there is none for a second lane.
    pub fn take_turns(&self, lanes: Lanes, ways: &mut [Box<dyn Measure>]) -> Result<Turns, ExperimentError> {
        counters::uncounted(|| {
            for way in &mut *ways {
                bench::measure_once(&mut **way, self.length);
            }
        });
        let process = std::process::id();
        let taken = self.turns(lanes, ways.len(), |way| {
            self.watch(lanes, process, || Ok(bench::measure_once(&mut *ways[way], self.length)))
        })?;
        Ok(Turns::of(&taken))
    }

    /// The same for what is measured otherwise, by [`watch`](Self::watch); also notes how steady it was.
    pub(crate) fn turns(
        &self,
        lanes: Lanes,
        ways: usize,
        mut measure: impl FnMut(usize) -> Result<Round, ExperimentError>,
    ) -> Result<Taken, ExperimentError> {
        let taken = turns::take(&self.cpus(lanes)?, ways, self.rounds.max(1), |way| {
            counters::way(way);
            measure(way)
        })?;
        self.journal.0.borrow_mut().push(Steadiness::of(&taken));
        Ok(taken)
    }

    /// One round of a process's, with what the machine did to it.
    pub(crate) fn watch(
        &self,
        lanes: Lanes,
        process: u32,
        work: impl FnOnce() -> Result<f64, ExperimentError>,
    ) -> Result<Round, ExperimentError> {
        let cpus = self.cpus(lanes)?;
        let before = Snapshot::take(&cpus, process);
        let cycles_per_unit = work()?;
        let after = Snapshot::take(&cpus, process);
        Ok(Round { cycles_per_unit, disturbed: disturbance::between(&before, &after, self.length) })
    }

    fn cpus(&self, lanes: Lanes) -> Result<Vec<usize>, ExperimentError> {
        match lanes {
            Lanes::One => Ok(vec![self.cpu]),
            Lanes::Two => Ok(vec![self.cpu, self.second_cpu()?]),
        }
    }
}

#[cfg(test)]
impl Setting {
    /// One short round on the first two CPUs, or the first: enough to see that all parts work, and nothing to believe.
    pub(crate) fn tiny() -> Self {
        let cpus = warmlane_sys::affinity::allowed_cpus().unwrap();
        Self {
            cpu: cpus[0],
            second_cpu: cpus.get(1).copied(),
            length: Duration::from_millis(1),
            rounds: 1,
            ..Self::default()
        }
    }
}

/// What ways to do a thing cost that took turns.
#[derive(Clone, Debug, PartialEq)]
pub struct Turns {
    /// The median of each way, in cycles per unit, over turns of one regime; `NaN` where it doesn't count.
    pub medians: Vec<f64>,
    /// What a line cost from CPU to CPU in these turns, in cycles ([`crate::hop`]); `None` with one lane.
    pub hop: Option<f64>,
    /// Which turns count, from 0.
    pub counted: Vec<usize>,
}

impl Turns {
    fn of(taken: &Taken) -> Self {
        let medians = taken
            .ways
            .iter()
            .enumerate()
            .map(|(number, way)| if doubt(taken, number).is_none() { median(way) } else { f64::NAN });
        Self { medians: medians.collect(), hop: taken.hop, counted: taken.counted.clone() }
    }
}

/// Why the figure of a way doesn't count, if so.
pub(crate) fn doubt(taken: &Taken, way: usize) -> Option<String> {
    let unsteady = || statistics::unsteady(&format!("way {}", way + 1), &taken.ways[way]);
    taken.void.clone().or_else(unsteady)
}

impl Steadiness {
    fn of(taken: &Taken) -> Self {
        let spreads = taken.ways.iter().filter_map(|way| Spread::of(way));
        Self {
            step: counters::current_step(),
            ways: taken.ways.len(),
            turns: taken.turns,
            counted: if taken.void.is_some() { 0 } else { taken.counted.len() },
            spread: spreads.map(|spread| spread.max / spread.min).reduce(f64::max),
            void: (0..taken.ways.len()).filter_map(|way| doubt(taken, way)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_do_not_count_are_missing() {
        let steady = vec![5.0, 7.0, 6.0];
        let mut taken = Taken {
            ways: vec![steady, vec![5.0, 6.0, 20.0]],
            counted: vec![0, 2, 3],
            turns: 5,
            ..Taken::default()
        };
        let turns = Turns::of(&taken);
        assert!((turns.medians[0] - 6.0).abs() < 1e-9 && turns.medians[1].is_nan(), "{turns:?}");
        assert_eq!(Cell::from(turns.medians[1]), Cell::Missing);
        let steadiness = Steadiness::of(&taken);
        assert_eq!((steadiness.turns, steadiness.counted, steadiness.spread), (5, 3, Some(4.0)));
        assert!(
            matches!(&steadiness.void[..], [reason] if reason.starts_with("way 2 varies from 5.0 to 20.0"))
        );
        taken.void = Some("9 turns of 12 were disturbed".to_owned());
        assert!(Turns::of(&taken).medians.iter().all(|median| median.is_nan()));
        assert_eq!((Steadiness::of(&taken).void.len(), Steadiness::of(&taken).counted), (2, 0));
    }

    #[test]
    fn an_experiment_of_which_too_much_is_missing_is_void() {
        let measurement = |ways, void: &[&str]| Steadiness {
            step: String::new(),
            ways,
            turns: 9,
            counted: 9,
            spread: None,
            void: void.iter().map(|&reason| reason.to_owned()).collect(),
        };
        assert_eq!(void(&[]), None);
        assert_eq!(void(&[measurement(9, &[]), measurement(11, &["a storm", "a flood"])]), None);
        assert_eq!(
            void(&[measurement(9, &["a storm"])]).unwrap(),
            "1 of 9 figures do not count; of the first, a storm"
        );
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
    fn steps_that_are_not_there_are_told() {
        let only = |text: &str| Setting { only: Some(text.to_owned()), ..Setting::tiny() };
        let refused = |name, text| find(name).unwrap().check_only(&only(text)).unwrap_err().to_string();
        let error = refused("pool-order", "4095");
        assert!(
            error.starts_with("no step has '4095' in its name: there are 1024, mix, whole, 256; "),
            "{error}"
        );
        assert!(refused("locks", "MCS").ends_with("in its name: this experiment is done as a whole"));
        assert!(find("pool-order").unwrap().check_only(&only("64, whole, 20000")).is_ok());
        assert!(refused("pool-order", "").starts_with("no step has ''"));
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
