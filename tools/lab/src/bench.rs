//! Rounds of measurement.

use crate::benches;
use crate::counters;
use crate::statistics::Spread;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use warmlane_sys::affinity;
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

    /// The cycles since `begin` that count, for work that keeps its own account of them; else all do.
    fn counted_cycles(&self) -> Option<u64> {
        None
    }

    /// How many units since `begin` went all the way, for work that can lose some on it: all must, or the cycles are those
    /// of something else.
    fn forwarded(&self) -> Option<u64> {
        None
    }
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
    /// A round of it did no work.
    #[error("bench '{name}' moved nothing in a round of {milliseconds} ms: take longer ones")]
    Nothing {
        /// The bench.
        name: &'static str,
        /// The round's length.
        milliseconds: u128,
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
    /// How many of the units went all the way, where the bench knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarded: Option<u64>,
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
    /// What the hardware counted for each unit, and what it could not.
    pub counters: counters::Report,
    /// Where this was measured.
    pub machine: Machine,
}

/// The machine and the sources, for results.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: Option<String>,
    /// Its microcode's revision.
    pub microcode: Option<String>,
    /// How many CPUs there are.
    pub cpus: Option<usize>,
    /// Whether cores run two threads.
    #[serde(default)]
    pub simultaneous_threads: Option<bool>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The hypervisor's name, if this is a virtual machine.
    pub hypervisor: Option<String>,
    /// Maker and model of the computer.
    #[serde(default)]
    pub product: Option<String>,
    /// The frequency governor.
    pub governor: Option<String>,
    /// Whether the frequency may rise above the nominal one.
    #[serde(default)]
    pub boost: Option<bool>,
    /// Bytes of memory.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Huge pages that are set aside.
    #[serde(default)]
    pub huge_pages: Vec<HugePages>,
    /// When the kernel uses huge pages by itself: `always`, `madvise` or `never`.
    #[serde(default)]
    pub transparent_huge_pages: Option<String>,
    /// Time-stamp-counter cycles per second.
    pub cycles_per_second: u64,
    /// The CPUs that were measured on.
    #[serde(default)]
    pub measured_on_cpus: Vec<usize>,
    /// The sources' commit, where they were built in a repository that is still there.
    #[serde(default)]
    pub commit: Option<String>,
    /// Whether they had changed since.
    #[serde(default)]
    pub changed_since_commit: Option<bool>,
}

/// Huge pages of one size.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct HugePages {
    /// Bytes of one.
    pub page_bytes: u64,
    /// How many are set aside.
    pub total: u64,
}

impl Machine {
    /// This machine.
    pub fn this() -> Self {
        let facts = MachineFacts::read();
        Self {
            cpu: facts.cpu_model,
            microcode: facts.microcode,
            cpus: facts.cpus,
            simultaneous_threads: facts.simultaneous_threads,
            kernel: facts.kernel,
            hypervisor: facts.hypervisor,
            product: facts.product,
            governor: facts.governor,
            boost: facts.boost,
            memory_bytes: facts.memory,
            huge_pages: facts
                .huge_pages
                .iter()
                .map(|pool| HugePages { page_bytes: pool.page_bytes, total: pool.total })
                .collect(),
            transparent_huge_pages: facts.transparent.private,
            cycles_per_second: facts.cycles_per_second,
            ..Self::default()
        }
    }

    /// This machine, with these of its CPUs and the sources that this was built from, for a record.
    pub fn measuring(cpus: &[usize]) -> Self {
        let mut machine = Self { measured_on_cpus: cpus.to_vec(), ..Self::this() };
        machine.add_sources(Path::new(env!("CARGO_MANIFEST_DIR")));
        machine
    }

    fn add_sources(&mut self, folder: &Path) {
        let git = |arguments: &[&str]| {
            let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        self.commit = git(&["rev-parse", "HEAD"]);
        // Records are no sources: the one before this would make all others look like changed sources.
        let changed =
            git(&["status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude,top)perf/figures"]);
        self.changed_since_commit = changed.map(|files| !files.is_empty());
    }

    /// The sources, shortened, and whether they had changed since that commit.
    pub fn sources(&self) -> Option<String> {
        let commit = self.commit.as_ref()?;
        let short = commit.get(..12).unwrap_or(commit);
        Some(if self.changed_since_commit == Some(true) {
            format!("{short} and changes")
        } else {
            short.to_owned()
        })
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
        let cpus: Vec<usize> = affinity::current_cpu().into_iter().chain(options.second_cpu).collect();
        let machine = Machine::measuring(&cpus);
        let mut measure = (self.prepare)(options)?;
        measure_round(&mut *measure, 0, length);
        let (cycles, counters) = counters::gather(|| {
            (0..rounds.max(1) as u64)
                .map(|number| measure_round(&mut *measure, number, length))
                .map(|round| round.cycles_per_unit())
                .collect::<Vec<_>>()
        });
        let Some(spread) = Spread::of(&cycles).filter(|spread| spread.max.is_finite()) else {
            return Err(BenchError::Nothing { name: self.name, milliseconds: length.as_millis() });
        };
        let median = spread.median;
        Ok(Summary {
            name: self.name,
            unit: format!("cycles per {}", self.unit),
            rounds: cycles.len(),
            minimum: spread.min,
            median,
            maximum: spread.max,
            per_second: Clock::calibrated().cycles_per_second() as f64 / median,
            counters,
            machine,
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

impl Round {
    /// Infinite, if nothing was done.
    fn cycles_per_unit(&self) -> f64 {
        self.cycles as f64 / self.packets as f64
    }
}

/// One round of `length`: the cycles per unit.
pub(crate) fn measure_once(measure: &mut dyn Measure, length: Duration) -> f64 {
    measure_round(measure, 0, length).cycles_per_unit()
}

fn measure_round(measure: &mut dyn Measure, round: u64, length: Duration) -> Round {
    let clock = Clock::calibrated();
    let wanted = clock.cycles_for(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX));
    measure.begin();
    counters::start();
    let begin = clock::cycles_ordered();
    let mut packets = 0;
    loop {
        packets += measure.work();
        let cycles = clock::cycles_ordered().saturating_sub(begin);
        if cycles >= wanted {
            counters::stop(packets);
            measure.end();
            let seconds = cycles as f64 / clock.cycles_per_second() as f64;
            let cycles = measure.counted_cycles().unwrap_or(cycles);
            return Round { round, packets, cycles: cycles.max(1), seconds, forwarded: measure.forwarded() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_s_machine_has_all_that_a_figure_depends_on() {
        let machine = Machine::measuring(&[0]);
        assert!(machine.cpu.is_some() && machine.kernel.is_some() && machine.cycles_per_second > 0);
        assert_eq!(
            (machine.measured_on_cpus.as_slice(), machine.commit.is_some()),
            (&[0][..], machine.changed_since_commit.is_some())
        );
        let mut elsewhere = Machine::default();
        elsewhere.add_sources(tempfile::tempdir().unwrap().path());
        assert_eq!(elsewhere.sources(), None);
        let changed = Some(true);
        let machine = Machine {
            commit: Some("0123456789abcdef".to_owned()),
            changed_since_commit: changed,
            ..elsewhere
        };
        assert_eq!(machine.sources().unwrap(), "0123456789ab and changes");
    }

    #[test]
    fn rounds_that_moved_nothing_are_no_result() {
        static IDLE: Bench =
            Bench { name: "idle", unit: "wish", sentence: "", prepare: |_| Ok(Box::new(|| 0)) };
        let length = Duration::from_millis(1);
        let error = IDLE.run(&Options::default(), 3, length).err().unwrap().to_string();
        assert_eq!(error, "bench 'idle' moved nothing in a round of 1 ms: take longer ones");
        let mut output = Vec::new();
        IDLE.serve(&Options::default(), &b"go 0.001\n"[..], &mut output).unwrap();
        assert!(String::from_utf8(output).unwrap().contains("\"packets\":0"));
    }
}
