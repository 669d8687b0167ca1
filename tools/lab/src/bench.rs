//! Benches: one piece of the data path each, for one figure.

use crate::benches;
use crate::counters;
use crate::error::LabError;
use crate::machine::Machine;
use crate::measure::{Measure, measure_once, measure_round};
use crate::record::Findings;
use crate::setting::{Lanes, Setting};
use crate::statistics::Spread;
use crate::subject::{self, Subject};
use crate::table::{Cell, Column};
use serde::Serialize;
use std::io::{BufRead, Write};
use std::time::Duration;
use warmlane_sys::callgrind;
use warmlane_sys::clock::Clock;

/// One thing to measure, alone.
pub struct Bench {
    /// Its name on the command line.
    pub name: &'static str,
    /// What is counted: results are in cycles per unit.
    pub unit: &'static str,
    /// One sentence for people.
    pub sentence: &'static str,
    /// How many lanes it keeps busy.
    pub lanes: Lanes,
    /// Makes it ready to run.
    pub prepare: Prepare,
}

/// Sets a bench up.
pub type Prepare = fn(&Setting) -> Result<Box<dyn Measure>, LabError>;

/// All rounds that count, together: time-stamp-counter cycles per unit.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The bench's name.
    pub name: &'static str,
    /// What the figures are, in words: "cycles per packet".
    pub unit: String,
    /// How many rounds count; of a void result, how many there were.
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
    /// Why they don't count, if so.
    pub void: Option<String>,
    /// What the hardware counted for each unit, and what it could not.
    pub counters: counters::Report,
    /// Where this was measured.
    pub machine: Machine,
}

/// All benches.
pub fn list() -> impl Iterator<Item = &'static Bench> + Clone {
    benches::GROUPS.iter().copied().flatten()
}

/// The bench called `name`.
///
/// # Errors
/// [`LabError::Unknown`], which lists those there are.
pub fn find(name: &str) -> Result<&'static Bench, LabError> {
    subject::find(list(), name)
}

impl Subject for Bench {
    const KIND: &'static str = "bench";

    fn name(&self) -> &'static str {
        self.name
    }

    fn question(&self) -> &'static str {
        self.sentence
    }

    fn method(&self) -> &'static str {
        "One round to warm up, then as many as asked for that count."
    }

    fn measure(&self, setting: &Setting, _: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
        let mut measure = (self.prepare)(setting)?;
        counters::uncounted(|| measure_once(&mut *measure, setting.length));
        let process = std::process::id();
        let taken = setting.turns(self.lanes, 1, |_| {
            setting.watch(self.lanes, process, || Ok(measure_once(&mut *measure, setting.length)))
        })?;
        let Some(spread) = Spread::of(&taken.variants[0]).filter(|spread| spread.max.is_finite()) else {
            return Err(LabError::Nothing { milliseconds: setting.length.as_millis() });
        };
        let unit = self.cycles_per_unit();
        let figure = |name| Column::figures(name, &unit);
        Ok(Findings {
            columns: vec![Column::plain("rounds"), figure("min"), figure("median"), figure("max")],
            rows: vec![vec![
                taken.variants[0].len().into(),
                spread.min.into(),
                spread.median.into(),
                spread.max.into(),
            ]],
            figures: Vec::new(),
            answers: Vec::new(),
            conclusion: String::new(),
        })
    }
}

impl Bench {
    fn cycles_per_unit(&self) -> String {
        format!("cycles per {}", self.unit)
    }

    /// Measures it, as [`subject::run`] does, and gives its figure.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn run(&self, setting: &Setting) -> Result<Summary, LabError> {
        let record = subject::run(self, setting, &mut |_| ())?;
        let [[Cell::Count(rounds), Cell::Figure(minimum), Cell::Figure(median), Cell::Figure(maximum)]] =
            record.rows.iter().map(Vec::as_slice).collect::<Vec<_>>()[..]
        else {
            return Err(LabError::setup("it gave no figure"));
        };
        Ok(Summary {
            name: self.name,
            unit: self.cycles_per_unit(),
            rounds: *rounds as usize,
            minimum: *minimum,
            median: *median,
            maximum: *maximum,
            per_second: Clock::calibrated().cycles_per_second() as f64 / median,
            void: record.void,
            counters: record.counters,
            machine: record.machine,
        })
    }

    /// Does so many pieces of work, without looking at a clock, and says how many units they were: for tools that
    /// count instructions. Callgrind observes only as many pieces before them, which fill its caches, and counts them alone.
    ///
    /// # Errors
    /// [`LabError::Setup`].
    pub fn count(&self, setting: &Setting, pieces: u64) -> Result<u64, LabError> {
        let mut measure = (self.prepare)(setting)?;
        measure.begin();
        callgrind::observe();
        for _ in 0..pieces {
            measure.work();
        }
        callgrind::forget();
        let units = (0..pieces).map(|_| measure.work()).sum();
        measure.end();
        Ok(units)
    }

    /// Runs rounds on request: prints `ready`, then for each input line `go SECONDS` one round as a JSON line,
    /// until the input ends.
    ///
    /// # Errors
    /// [`LabError`], if the bench can't be set up, or the input is something else.
    pub fn serve(
        &self,
        setting: &Setting,
        input: impl BufRead,
        mut output: impl Write,
    ) -> Result<(), LabError> {
        let mut measure = (self.prepare)(setting)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_moved_nothing_are_no_result() {
        static IDLE: Bench = Bench {
            name: "idle",
            unit: "wish",
            sentence: "",
            lanes: Lanes::One,
            prepare: |_| Ok(Box::new(|| 0)),
        };
        let error = IDLE.run(&Setting::tiny()).err().unwrap().to_string();
        assert_eq!(error, "it moved nothing in a round of 1 ms: take longer ones");
        let mut output = Vec::new();
        IDLE.serve(&Setting::default(), &b"go 0.001\n"[..], &mut output).unwrap();
        assert!(String::from_utf8(output).unwrap().contains("\"packets\":0"));
    }
}
