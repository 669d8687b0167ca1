//! What a DOCSIS downstream costs with each kind of pool.

mod instance;

use crate::error::LabError;
use crate::experiment::Experiment;
use crate::measure::Measure;
use crate::plot::{Axis, Figure, Marks};
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting};
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Prediction};
use instance::Instance;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use warmlane_mem::PoolKind;
use warmlane_sys::clock::Clock;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "docsis",
    question: "A DOCSIS downstream on two lanes, cable mix to 300 modems: which kind of pool takes fewest cycles, and which rate is without loss?",
    claim: Claim {
        source: super::sources::INTEL_POOLS,
        says: "both kinds of pool reach the same rate without loss (6.3 Gbit/s an instance, 5.5 with CRCs), a stack without lane cache with 76 % less memory \
               traffic than a ring with a cache of 256; we promise that a depot is first, or within 5 % of who is",
        predictions: &PREDICTIONS,
    },
    method: "One instance with 300 modems and six channels that never fill: the upper MAC on one lane, the lower MAC on the other, threads of one core if \
             --cpu and --second-cpu name some. Frames of 68 (3 %), 932 (1 %) and 1,520 bytes (96 %) are copied into buffers and go to all modems; up to 750 are \
             under way, as in the source. The kinds take turns; figures are medians. Then, in turns again, the rate without loss: packets are due by the clock, in \
             front of the upper lane is space for 4,096 of them as in a card's ring, and what finds that full is lost. Half the remaining range goes with each trial, \
             which is made again once if it loses something.",
    steps: Some(|| ROWS.iter().map(|row| row.label().to_owned()).collect()),
    run,
};

const PREDICTIONS: [Prediction; 2] = [
    Prediction::at_most(
        "cycles of a depot against the best other kind, where that is most",
        "times",
        1.05,
        "another kind that is more than 5 % faster in a row",
    ),
    Prediction::at_least(
        "rate without loss of a depot against the best other kind, where that is least",
        "times",
        0.95,
        "another kind that loses nothing at a rate more than 5 % higher in a row",
    ),
];

/// What is done to frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) crc: bool,
    pub(super) encryption: bool,
}

const ROWS: [Row; 4] = [
    Row { crc: true, encryption: true },
    Row { crc: false, encryption: true },
    Row { crc: true, encryption: false },
    Row { crc: false, encryption: false },
];

impl Row {
    const fn label(self) -> &'static str {
        match (self.crc, self.encryption) {
            (true, true) => "CRC and encryption",
            (false, true) => "encryption",
            (true, false) => "CRC",
            (false, false) => "neither",
        }
    }
}

/// Name, kind, and magazine of the lane caches, 0 for none: a ring and a stack as the source has them, and the depot.
const KINDS: [(&str, PoolKind, u32); 3] =
    [("ring, cache", PoolKind::Ring, 256), ("stack", PoolKind::Stack, 0), ("depot", PoolKind::Depot, 256)];
const DEPOT: usize = KINDS.len() - 1;

/// Trials by which a rate is found.
const TRIALS: usize = 8;

/// An instance that takes turns, and is tried at rates after that.
struct Shared(Rc<RefCell<Instance>>);

impl Measure for Shared {
    fn work(&mut self) -> u64 {
        self.0.borrow_mut().work()
    }

    fn begin(&mut self) {
        self.0.borrow_mut().begin(None);
    }

    fn end(&mut self) {
        self.0.borrow_mut().end();
    }
}

/// What a row came to.
#[derive(Clone, Debug)]
struct Outcome {
    label: &'static str,
    /// Of each kind, cycles of a packet.
    cycles: Vec<f64>,
    /// Of each kind, packets a second without loss.
    rates: Vec<f64>,
    line_transfer: Option<f64>,
}

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let second_cpu = setting.second_cpu()?;
    let mut outcomes = Vec::new();
    for row in ROWS.into_iter().filter(|row| setting.wants(row.label())) {
        progress(row.label());
        let mut instances = Vec::new();
        for (name, kind, magazine) in KINDS {
            let instance = Instance::start(name, kind, magazine, row, second_cpu).map_err(LabError::setup)?;
            instances.push(Rc::new(RefCell::new(instance)));
        }
        let mut variants: Vec<Box<dyn Measure>> = instances
            .iter()
            .map(|instance| Box::new(Shared(Rc::clone(instance))) as Box<dyn Measure>)
            .collect();
        // One turn that does not count: the depot looks for its bound meanwhile.
        for variant in &mut variants {
            crate::measure::measure_once(&mut **variant, setting.length * 4);
        }
        let turns = setting.take_turns(Lanes::Two, &mut variants)?;
        progress(&format!("{}: rates without loss", row.label()));
        let rates = rates(setting.length, &instances, &turns.medians);
        outcomes.push(Outcome {
            label: row.label(),
            cycles: turns.medians,
            rates,
            line_transfer: turns.line_transfer,
        });
    }
    Ok(findings(&outcomes))
}

/// The highest rates in packets a second at which the instances lost nothing, which they find in turns: by halving what is left of a range, as
/// RFC 2544 section 26.1 allows.
fn rates(length: Duration, instances: &[Rc<RefCell<Instance>>], cycles: &[f64]) -> Vec<f64> {
    let second = Clock::calibrated().cycles_per_second() as f64;
    // A little more than what was reached without a rate.
    let mut ranges: Vec<_> = cycles.iter().map(|cycles| (0.0, 1.25 * second / cycles)).collect();
    for _ in 0..TRIALS {
        for (instance, (low, high)) in instances.iter().zip(&mut ranges) {
            let rate = f64::midpoint(*low, *high);
            let is_lossless = || instance.borrow_mut().trial(rate, length) == 0;
            if rate.is_finite() && (is_lossless() || is_lossless()) {
                *low = rate;
            } else {
                *high = rate;
            }
        }
    }
    ranges.into_iter().map(|(low, _)| low).collect()
}

/// The depot's figure against the best other one's.
fn against_best(figures: &[f64], best: fn(f64, f64) -> f64) -> f64 {
    figures[DEPOT] / figures[..DEPOT].iter().copied().fold(f64::NAN, best)
}

fn findings(outcomes: &[Outcome]) -> Findings {
    let cycles = |outcome: &Outcome| against_best(&outcome.cycles, f64::min);
    let rate = |outcome: &Outcome| against_best(&outcome.rates, f64::max);
    let mut columns = vec![Column::plain("row")];
    columns.extend(KINDS.map(|(name, ..)| Column::figures(name, "cycles/packet")));
    columns.push(Column::figures("depot to best other", "x"));
    columns.extend(KINDS.map(|(name, ..)| Column::figures(&format!("{name} without loss"), "Mpps")));
    columns.push(Column::figures("depot's rate to best other", "x"));
    columns.push(Column::figures("line transfer", "cycles"));
    let rows = outcomes.iter().map(|outcome| -> Vec<Cell> {
        let mut cells = vec![outcome.label.into()];
        cells.extend(outcome.cycles.iter().map(|&cycles| Cell::from(cycles)));
        cells.push(cycles(outcome).into());
        cells.extend(outcome.rates.iter().map(|&rate| Cell::from(rate / 1e6)));
        cells.extend([rate(outcome).into(), outcome.line_transfer.into()]);
        cells
    });
    let series = |kind: usize| outcomes.iter().map(|outcome| outcome.cycles[kind]).collect::<Vec<_>>();
    let figures = vec![Figure {
        title: "A packet through both lanes".to_owned(),
        x: Axis::linear(""),
        y: Axis::linear("cycles/packet"),
        marks: Marks::Bars {
            groups: outcomes.iter().map(|outcome| outcome.label.to_owned()).collect(),
            series: KINDS
                .iter()
                .enumerate()
                .map(|(kind, (name, ..))| ((*name).to_owned(), series(kind)))
                .collect(),
        },
    }];
    // A row that is missing or doesn't count leaves no answer.
    let is_whole = outcomes.len() == ROWS.len();
    let worst = |figures: Vec<f64>, worse: fn(f64, f64) -> f64| {
        let all = is_whole && figures.iter().all(|figure| figure.is_finite());
        if all { figures.into_iter().fold(f64::NAN, worse) } else { f64::NAN }
    };
    let worst_cycles = worst(outcomes.iter().map(cycles).collect(), f64::max);
    let worst_rate = worst(outcomes.iter().map(rate).collect(), f64::min);
    let answers: Vec<Answer> = vec![worst_cycles.into(), worst_rate.into()];
    let conclusion = format!(
        "A depot takes {worst_cycles:.2} times the cycles of the best other kind where that is most, and reaches {worst_rate:.2} times its rate without loss where \
         that is least. Memory traffic, which the source is about, is not counted here: see pool-order."
    );
    Findings { columns, rows: rows.collect(), figures, answers, conclusion }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Verdict;

    fn outcomes(depot: f64, rate: f64) -> Vec<Outcome> {
        let outcome = |row: Row| Outcome {
            label: row.label(),
            cycles: vec![130.0, 100.0, depot],
            rates: vec![1e6, 2e6, rate],
            line_transfer: Some(200.0),
        };
        ROWS.map(outcome).to_vec()
    }

    #[test]
    fn turned_figures_refute_the_claim() {
        let verdicts = |outcomes: &[Outcome]| {
            let findings = findings(outcomes);
            findings.assert_rows(outcomes.len());
            let judged = PREDICTIONS.iter().zip(&findings.answers);
            judged.map(|(prediction, answer)| prediction.judge(answer)).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(&outcomes(104.0, 1.95e6)), [Verdict::Reproduced, Verdict::Reproduced]);
        let refuted = verdicts(&outcomes(106.0, 1.85e6));
        assert!(refuted.iter().all(|verdict| matches!(verdict, Verdict::NotReproduced(_))), "{refuted:?}");
        let partly = verdicts(&outcomes(90.0, 2e6)[..3]);
        assert!(partly.iter().all(|verdict| matches!(verdict, Verdict::CannotTell(_))), "{partly:?}");
    }

    #[test]
    fn an_instance_moves_packets_and_loses_what_comes_too_fast() {
        let setting = Setting::tiny();
        let Some(second_cpu) = setting.second_cpu else { return };
        let mut instance = Instance::start("docsis", PoolKind::Depot, 256, ROWS[0], second_cpu).unwrap();
        instance.begin(None);
        // Many times what may be under way.
        let mut moved = 0;
        while moved < 10_000 {
            moved += instance.work();
        }
        instance.end();
        assert_eq!(instance.trial(100.0, Duration::from_millis(20)), 0);
        assert!(instance.trial(1e12, Duration::from_millis(20)) > 0);
    }
}
