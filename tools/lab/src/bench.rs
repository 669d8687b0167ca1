//! Rounds of measurement.

use crate::benches;
use serde::Serialize;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;
use warmlane_sys::clock::{self, Clock};
use warmlane_sys::machine::MachineFacts;

/// What can be chosen about a measurement.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Frames to use instead of generated ones; for benches that move frames.
    pub pcap: Option<PathBuf>,
    /// Frames that the caller has loaded from `pcap`.
    pub frames: Option<std::sync::Arc<warmlane_memory::replay::Frames>>,
    /// Packets per burst; `None` is the bench's own choice.
    pub burst: Option<usize>,
    /// The CPU of the second lane, for benches that have one. The first lane runs where the caller does.
    pub second_cpu: Option<usize>,
}

/// One measurement that is ready to run.
pub trait Measure {
    /// Does some work, at least a burst, at most about a millisecond, and says how many units it was.
    fn work(&mut self) -> u64;

    /// Comes before a round, outside the time that counts: a second lane starts here.
    fn begin(&mut self) {}

    /// Comes after a round, outside the time that counts. From here to `begin`, nothing of this may run: a peer is
    /// measured in between.
    fn end(&mut self) {}
}

impl<F: FnMut() -> u64> Measure for F {
    fn work(&mut self) -> u64 {
        self()
    }
}

/// A measurement that can be asked for by name.
pub struct Bench {
    /// Its name on the command line.
    pub name: &'static str,
    /// What is counted: results are in cycles per unit.
    pub unit: &'static str,
    /// One sentence for people.
    pub sentence: &'static str,
    /// Makes it ready to run.
    pub prepare: Prepare,
}

/// Sets a bench up.
pub type Prepare = fn(&Options) -> Result<Box<dyn Measure>, BenchError>;

/// Why a bench can't run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// No bench of that name.
    #[error("there is no bench '{name}': known are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The bench could not be set up.
    #[error("bench '{name}' cannot be set up: {reason}")]
    Setup {
        /// The bench.
        name: &'static str,
        /// What is missing.
        reason: String,
    },
    /// The side that asks for rounds is gone or does not keep to the protocol.
    #[error("serving rounds: {0}")]
    Serve(#[from] std::io::Error),
}

impl BenchError {
    /// The bench `name` can't be set up.
    pub fn setup(name: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Setup { name, reason: reason.to_string() }
    }

    /// The second lane's CPU, or an error that says that one is needed.
    ///
    /// # Errors
    /// [`BenchError::Setup`], if there is no second CPU.
    pub fn second_cpu(name: &'static str, options: &Options) -> Result<usize, Self> {
        options
            .second_cpu
            .ok_or_else(|| Self::setup(name, "it needs a second CPU, and this process may use only one"))
    }
}

/// One round.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Round {
    /// Its number, from 0.
    pub round: u64,
    /// Units done.
    pub packets: u64,
    /// Time-stamp-counter cycles that they took.
    pub cycles: u64,
    /// The same in seconds.
    pub seconds: f64,
}

/// All rounds together: time-stamp-counter cycles per unit.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The bench's name.
    pub name: &'static str,
    /// What the figures are, in words: "cycles per packet".
    pub unit: String,
    /// How many rounds there were.
    pub rounds: usize,
    /// The fastest round.
    #[serde(rename = "min")]
    pub minimum: f64,
    /// Half the rounds were faster.
    pub median: f64,
    /// The slowest round.
    #[serde(rename = "max")]
    pub maximum: f64,
    /// Units per second at the median.
    pub per_second: f64,
    /// Where this was measured.
    pub machine: Machine,
}

/// The machine in short, for results.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: Option<String>,
    /// Its microcode's revision.
    pub microcode: Option<String>,
    /// How many CPUs there are.
    pub cpus: Option<usize>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The hypervisor's name, if this is a virtual machine.
    pub hypervisor: Option<String>,
    /// The frequency governor.
    pub governor: Option<String>,
    /// Time-stamp-counter cycles per second.
    pub cycles_per_second: u64,
}

impl Machine {
    /// This machine.
    pub fn this() -> Self {
        let facts = MachineFacts::read();
        Self {
            cpu: facts.cpu_model,
            microcode: facts.microcode,
            cpus: facts.cpus,
            kernel: facts.kernel,
            hypervisor: facts.hypervisor,
            governor: facts.governor,
            cycles_per_second: facts.cycles_per_second,
        }
    }
}

/// One line for people.
impl std::fmt::Display for Machine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known =
            |text: &Option<String>, name: &str| text.clone().unwrap_or_else(|| format!("unknown {name}"));
        write!(
            formatter,
            "{}, {:.2} GHz counter, Linux {}, {}",
            known(&self.cpu, "processor"),
            self.cycles_per_second as f64 / 1e9,
            known(&self.kernel, "release"),
            self.hypervisor
                .as_ref()
                .map_or_else(|| "no hypervisor".to_owned(), |name| format!("under {name}")),
        )
    }
}

/// All benches.
pub fn list() -> impl Iterator<Item = &'static Bench> {
    benches::GROUPS.iter().copied().flatten()
}

/// The bench called `name`.
///
/// # Errors
/// [`BenchError::Unknown`], which lists those there are.
pub fn find(name: &str) -> Result<&'static Bench, BenchError> {
    list().find(|bench| bench.name == name).ok_or_else(|| BenchError::Unknown {
        name: name.to_owned(),
        known: list().map(|bench| bench.name).collect::<Vec<_>>().join(", "),
    })
}

impl Bench {
    /// Runs `rounds` rounds of `length` each, after one that is not counted.
    ///
    /// # Errors
    /// [`BenchError::Setup`].
    pub fn run(&self, options: &Options, rounds: usize, length: Duration) -> Result<Summary, BenchError> {
        let mut measure = (self.prepare)(options)?;
        measure_round(&mut *measure, 0, length);
        let mut cycles: Vec<f64> = (0..rounds.max(1) as u64)
            .map(|number| measure_round(&mut *measure, number, length))
            .map(|round| round.cycles as f64 / round.packets as f64)
            .collect();
        cycles.sort_by(f64::total_cmp);
        let median = cycles[cycles.len() / 2];
        Ok(Summary {
            name: self.name,
            unit: format!("cycles per {}", self.unit),
            rounds: cycles.len(),
            minimum: cycles[0],
            median,
            maximum: cycles[cycles.len() - 1],
            per_second: Clock::calibrated().cycles_per_second() as f64 / median,
            machine: Machine::this(),
        })
    }

    /// Does so many pieces of work, without looking at a clock, and says how many units they were: for tools that
    /// count instructions.
    ///
    /// # Errors
    /// [`BenchError::Setup`].
    pub fn count(&self, options: &Options, pieces: u64) -> Result<u64, BenchError> {
        let mut measure = (self.prepare)(options)?;
        measure.begin();
        let units = (0..pieces).map(|_| measure.work()).sum();
        measure.end();
        Ok(units)
    }

    /// Runs rounds on request: prints `ready`, then for each input line `go SECONDS` one round as a JSON line,
    /// until the input ends.
    ///
    /// # Errors
    /// [`BenchError`], if the bench can't be set up, or the input is something else.
    pub fn serve(
        &self,
        options: &Options,
        input: impl BufRead,
        mut output: impl Write,
    ) -> Result<(), BenchError> {
        let mut measure = (self.prepare)(options)?;
        measure_round(&mut *measure, 0, Duration::from_millis(200));
        writeln!(output, "ready")?;
        output.flush()?;
        for (number, line) in input.lines().enumerate() {
            let line = line?;
            let seconds = line.strip_prefix("go ").and_then(|text| text.trim().parse::<f64>().ok());
            let length =
                seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or_else(|| {
                    std::io::Error::other(format!("'go SECONDS' was expected, and '{line}' came"))
                })?;
            let round = measure_round(&mut *measure, number as u64, length);
            let json = serde_json::to_string(&round).map_err(std::io::Error::other)?;
            writeln!(output, "{json}")?;
            output.flush()?;
        }
        Ok(())
    }
}

/// One round of `length`: the cycles per unit.
pub(crate) fn measure_once(measure: &mut dyn Measure, length: Duration) -> f64 {
    let round = measure_round(measure, 0, length);
    round.cycles as f64 / round.packets as f64
}

fn measure_round(measure: &mut dyn Measure, round: u64, length: Duration) -> Round {
    let clock = Clock::calibrated();
    measure.begin();
    let wanted = clock.cycles_for(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX));
    let begin = clock::cycles_ordered();
    let mut packets = 0;
    loop {
        packets += measure.work();
        let cycles = clock::cycles_ordered().saturating_sub(begin);
        if cycles >= wanted {
            measure.end();
            let seconds = cycles as f64 / clock.cycles_per_second() as f64;
            return Round { round, packets: packets.max(1), cycles: cycles.max(1), seconds };
        }
    }
}
