//! What a reader pays for quiescent-state RCU, with and without updates, and what it would pay for locks.

use crate::error::LabError;
use crate::experiment::Experiment;
use crate::measure::Measure;
use crate::partner::{Partner, beside};
use crate::plot::{Axis, Figure, Marks};
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting};
use crate::statistics::median;
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Prediction};
use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use warmlane_sync::extra::phase_fair::PhaseFairLock;
use warmlane_sync::extra::sequence::SequenceLock;
use warmlane_sync::padded::CachePadded;
use warmlane_sync::rcu::{Domain, Protected, Retired};
use warmlane_sys::clock::{self, Clock};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "rcu",
    question: "What does a reader pay for data that a writer replaces, with RCU and with locks?",
    claim: Claim {
        source: super::sources::ARM,
        says: "quiescent-state RCU is for data that is read far more often than updated, like the routing table; no figures",
        predictions: &PREDICTIONS,
    },
    method: "A reader reads a value of four words, once a burst. RCU: it looks the value up and reports a quiescent state; a \
             phase-fair lock: it locks to read; a sequence lock: it copies the value out. Each without a writer, with one on the second CPU that \
             replaces the value 100,000 times a second, and with one that does so as fast as it can. How often it did is said: as fast as it can is not \
             equally fast, since with RCU it waits for the reader each time. So the claim is judged at equal rates. All take turns.",
    steps: None,
    run,
};

const PREDICTIONS: [Prediction; 2] = [
    Prediction::at_least(
        "a read under the phase-fair lock against RCU, 100,000 updates a second",
        "times",
        1.1,
        "a lock that is as cheap to read under",
    ),
    Prediction::at_least(
        "a read under the sequence lock against RCU, 100,000 updates a second",
        "times",
        1.0,
        "a sequence lock that is cheaper to read under",
    ),
];

type Value = [u64; 4];

/// Reads in a piece of work.
const READS: u64 = 1_024;

/// Updates a second of a writer with a pace.
const PACE: u64 = 100_000;

/// How a value is updated while it is read.
#[derive(Clone, Copy, PartialEq)]
enum Writer {
    None,
    Paced,
    Restless,
}

const WRITERS: [Writer; 3] = [Writer::None, Writer::Paced, Writer::Restless];

/// Updates of a round, and the cycles that it took.
#[derive(Default)]
struct Updates {
    made: Arc<CachePadded<AtomicU64>>,
    begin: (u64, u64),
    /// Updates a second, of each round.
    rates: Rc<RefCell<Vec<f64>>>,
}

/// Reads over and over, beside a writer if there is one.
struct Reading {
    reading: Box<dyn Measure>,
    updates: Updates,
}

impl Measure for Reading {
    fn work(&mut self) -> u64 {
        self.reading.work()
    }

    fn begin(&mut self) {
        self.reading.begin();
        self.updates.begin = (clock::cycles_ordered(), self.updates.made.load(Ordering::Relaxed));
    }

    fn end(&mut self) {
        let (begin, before) = self.updates.begin;
        // Read before the clock: what is made after that is not taken for a higher rate, should this thread be held up here.
        let made = self.updates.made.load(Ordering::Acquire) - before;
        let seconds = clock::cycles_ordered().saturating_sub(begin) as f64
            / Clock::calibrated().cycles_per_second() as f64;
        self.updates.rates.borrow_mut().push(made as f64 / seconds);
        self.reading.end();
    }
}

/// A reader and, if there is one, a writer on that CPU, whose `update` says whether it made one.
fn reading(
    cpu: usize,
    writer: Writer,
    mut update: impl FnMut() -> bool + Send + 'static,
    mut read: impl FnMut() + 'static,
) -> Result<Reading, LabError> {
    let updates = Updates::default();
    let made = Arc::clone(&updates.made);
    let period = Clock::calibrated().cycles_per_second() / PACE;
    let mut due = 0;
    let step = move || {
        if writer == Writer::Paced {
            let now = clock::cycles();
            if now < due {
                std::hint::spin_loop();
                return;
            }
            // After a pause it does not make up for what it missed.
            due = due.max(now.saturating_sub(period)) + period;
        }
        if update() {
            // The only one who counts.
            made.store(made.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    };
    let partner = (writer != Writer::None)
        .then(|| Partner::start(cpu, move || Ok(step)).map_err(LabError::setup))
        .transpose()?;
    let reading = beside(partner, move || {
        for _ in 0..READS {
            read();
        }
        READS
    });
    Ok(Reading { reading, updates })
}

fn rcu(cpu: usize, writer: Writer) -> Result<Reading, LabError> {
    let domain = Domain::new(1).map_err(LabError::setup)?;
    let mut reader = domain.reader("reader").map_err(LabError::setup)?;
    let value = Arc::new(Protected::new(&domain, Value::default()));
    let mut replaced = Retired::new(&domain, 1).map_err(LabError::setup)?;
    let theirs = Arc::clone(&value);
    let update = move || {
        // While the reader has not reported, the queue is full and nothing happens.
        let done = theirs.replace(Value::default(), &mut replaced).is_ok();
        replaced.reclaim().for_each(drop);
        done
    };
    let read = move || {
        black_box(value.read(&reader).copied()).ok();
        reader.quiescent();
    };
    reading(cpu, writer, update, read)
}

fn phase_fair(cpu: usize, writer: Writer) -> Result<Reading, LabError> {
    let lock = Arc::new(PhaseFairLock::new(Value::default()));
    let theirs = Arc::clone(&lock);
    let update = move || {
        theirs.write()[0] += 1;
        true
    };
    let read = move || {
        black_box(*lock.read());
    };
    reading(cpu, writer, update, read)
}

fn sequence(cpu: usize, writer: Writer) -> Result<Reading, LabError> {
    let lock = Arc::new(SequenceLock::<Value>::new(Value::default()));
    let theirs = Arc::clone(&lock);
    let update = move || {
        theirs.lock()[0] += 1;
        true
    };
    let read = move || {
        black_box(lock.read());
    };
    reading(cpu, writer, update, read)
}

/// Makes a way to read, with a writer on that CPU if there is one.
type Make = fn(usize, Writer) -> Result<Reading, LabError>;

const VARIANTS: [(&str, Make); 3] =
    [("RCU, read and report", rcu), ("phase-fair lock", phase_fair), ("sequence lock", sequence)];
const RCU: usize = 0;
const LOCK: usize = 1;
const SEQUENCE: usize = 2;
/// Where [`WRITERS`] has them.
const ALONE: usize = 0;
const PACED: usize = 1;
const RESTLESS: usize = 2;

/// Of each way, the cycles of a read and the writer's updates a second, by writer.
type Costs = [[(f64, f64); WRITERS.len()]; VARIANTS.len()];

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let cpu = setting.second_cpu()?;
    progress("three ways to read, without a writer, with a paced and with a restless one, in turns");
    let (mut measures, mut rates) = (Vec::<Box<dyn Measure>>::new(), Vec::new());
    for (_, make) in VARIANTS {
        for writer in WRITERS {
            let reading = make(cpu, writer)?;
            rates.push(Rc::clone(&reading.updates.rates));
            measures.push(Box::new(reading));
        }
    }
    let turns = setting.take_turns(Lanes::Two, &mut measures)?;
    let mut costs = Costs::default();
    let cells = costs.iter_mut().flatten().zip(turns.medians.iter().zip(&rates));
    cells.for_each(|(cell, (&cycles, rates))| *cell = (cycles, median(&rates.borrow())));
    Ok(findings(&costs, turns.line_transfer))
}

fn findings(costs: &Costs, line_transfer: Option<f64>) -> Findings {
    let rows = VARIANTS.iter().zip(costs).map(|((name, _), costs)| -> Vec<Cell> {
        vec![
            (*name).into(),
            costs[ALONE].0.into(),
            costs[PACED].0.into(),
            (costs[PACED].1 / 1e6).into(),
            costs[RESTLESS].0.into(),
            (costs[RESTLESS].1 / 1e6).into(),
            line_transfer.into(),
        ]
    });
    let columns = Column::list(
        "variant | no writer [cycles/read] | a paced writer [cycles/read] | its updates [M/s] | a restless writer [cycles/read] | \
         its updates [M/s] | line transfer [cycles]",
    );
    let series = |name: &str, writer: usize| {
        (name.to_owned(), costs.iter().map(|costs| costs[writer].0).collect::<Vec<_>>())
    };
    let figures = vec![Figure {
        title: "Cost of a read".to_owned(),
        x: Axis::linear(""),
        y: Axis::linear("cycles/read"),
        marks: Marks::Bars {
            groups: VARIANTS.iter().map(|(name, _)| (*name).to_owned()).collect(),
            series: vec![
                series("no writer", ALONE),
                series("100,000 updates a second", PACED),
                series("updates all the time", RESTLESS),
            ],
        },
    }];
    let (answers, conclusion) = (answers(costs).to_vec(), conclusion(costs));
    Findings { columns, rows: rows.collect(), figures, answers, conclusion }
}

fn answers(costs: &Costs) -> [Answer; 2] {
    [LOCK, SEQUENCE].map(|other| (costs[other][PACED].0 / costs[RCU][PACED].0).into())
}

fn conclusion(costs: &Costs) -> String {
    let told = VARIANTS.iter().zip(costs).map(|((name, _), costs)| {
        format!(
            "{name} {:.1} cycles without a writer, {:.1} with {:.2} million updates a second, {:.1} with {:.2} million",
            costs[ALONE].0,
            costs[PACED].0,
            costs[PACED].1 / 1e6,
            costs[RESTLESS].0,
            costs[RESTLESS].1 / 1e6
        )
    });
    let told = told.collect::<Vec<_>>().join("; ");
    let (rcu, sequence) = (costs[RCU][PACED].0, costs[SEQUENCE][PACED].0);
    let cheaper = if sequence < rcu {
        format!(
            "At equal rates the sequence lock is cheaper to read under than RCU, {sequence:.1} cycles against {rcu:.1}: its reader only loads, where \
             RCU's also reports. That holds for a few words which can be copied out; what is larger, or is pointed to, needs RCU."
        )
    } else {
        "At equal rates RCU is the cheapest to read under.".to_owned()
    };
    format!(
        "A read costs with {told}. {cheaper} An RCU reader writes to no line that others write to, and only when a writer has asked; a \
         lock's reader writes a shared line on each read. A restless RCU writer waits for the reader's report each time, \
         so it makes fewer updates than the others, and figures beside restless writers can't be set against each other."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn turned_figures_refute_the_claim() {
        let of = |reads: [f64; 3]| answers(&reads.map(|cycles| [(1.0, 0.0), (cycles, 1e5), (9.0, 1e7)]));
        assert_judged(&PREDICTIONS, &of([4.0, 28.0, 5.0]), &of([28.0, 4.0, 5.0]));
    }

    #[test]
    fn a_sequence_lock_that_is_cheaper_is_said_to_be() {
        let costs = [4.0, 28.0, 2.0].map(|cycles| [(cycles, 0.0), (cycles, 1e5), (cycles, 1e7)]);
        let text = conclusion(&costs);
        assert!(
            text.contains("the sequence lock is cheaper to read under than RCU, 2.0 cycles against 4.0"),
            "{text}"
        );
        assert!(text.contains("4.0 with 10.00 million"), "{text}");
    }

    #[test]
    fn a_paced_writer_keeps_its_pace_and_a_missing_one_writes_nothing() {
        let Some(setting) = Setting::tiny_on_two_cpus() else { return };
        let rate = |writer| {
            let mut reading = sequence(setting.second_cpu.unwrap(), writer).unwrap();
            reading.begin();
            let begin = std::time::Instant::now();
            // However long the writer waits for its CPU.
            let waits = |reading: &Reading| {
                let Updates { made, begin: (_, before), .. } = &reading.updates;
                writer != Writer::None && made.load(Ordering::Relaxed) == *before
            };
            while begin.elapsed() < std::time::Duration::from_millis(5) || waits(&reading) {
                reading.work();
            }
            reading.end();
            reading.updates.rates.borrow()[0]
        };
        assert!(rate(Writer::None).abs() < 1e-9);
        // It may lose its CPU, but is never ahead.
        assert!((0.0..1.02 * PACE as f64).contains(&rate(Writer::Paced)));
        assert!(rate(Writer::Restless) > 0.0);
    }

    #[test]
    fn every_way_is_measured_with_and_without_a_writer() {
        let Some(setting) = Setting::tiny_on_two_cpus() else { return };
        let findings = setting.try_out(run);
        findings.assert_rows(VARIANTS.len());
    }
}
