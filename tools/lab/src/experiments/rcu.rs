//! What a reader pays for quiescent-state RCU, with and without updates, and what it would pay for locks.

use crate::error::LabError;
use crate::experiment::Experiment;
use crate::measure::Measure;
use crate::partner::{Partner, beside};
use crate::plot::{Axis, Figure, Marks};
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting};
use crate::table::Column;
use std::hint::black_box;
use std::sync::Arc;
use warmlane_sync::extra::phase_fair::PhaseFairLock;
use warmlane_sync::extra::sequence::SequenceLock;
use warmlane_sync::rcu::{Domain, Protected, Retired};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "rcu",
    question: "What does a reader pay for data that a writer replaces, with RCU and with locks?",
    claim: Some(Claim {
        source: "Joyce Kong and the DPDK team at Arm, article on the principles of DPDK optimisation on Arm",
        says: "quiescent-state RCU is for data that is read far more often than updated, like the routing table; no figures",
    }),
    method: "A reader reads a value of four words, once a burst. RCU: it looks the value up and reports a quiescent state; a \
             phase-fair lock: it locks to read; a sequence lock: it copies the value out. Each without a writer, and with one \
             on the second CPU that replaces the value as fast as it can (RCU: it waits for the reader each time). All take \
             turns.",
    steps: None,
    run,
};

type Value = [u64; 4];

/// Reads in a piece of work.
const READS: u64 = 1_024;

/// Reads over and over, beside a writer if there is one.
fn reading(writer: Option<Partner>, mut read: impl FnMut() + 'static) -> Box<dyn Measure> {
    beside(writer, move || {
        for _ in 0..READS {
            read();
        }
        READS
    })
}

fn writer(cpu: Option<usize>, step: impl FnMut() + Send + 'static) -> Result<Option<Partner>, LabError> {
    cpu.map(|cpu| Partner::start(cpu, move || Ok(step)).map_err(LabError::setup)).transpose()
}

fn rcu(cpu: Option<usize>) -> Result<Box<dyn Measure>, LabError> {
    let domain = Domain::new(1).map_err(LabError::setup)?;
    let mut reader = domain.reader("reader").map_err(LabError::setup)?;
    let value = Arc::new(Protected::new(&domain, Value::default()));
    let mut replaced = Retired::new(&domain, 1).map_err(LabError::setup)?;
    let theirs = Arc::clone(&value);
    let writer = writer(cpu, move || {
        // While the reader has not reported, the queue is full and nothing happens.
        let _ = theirs.replace(Value::default(), &mut replaced);
        replaced.reclaim().for_each(drop);
    })?;
    let read = move || {
        black_box(value.read(&reader).copied()).ok();
        reader.quiescent();
    };
    Ok(reading(writer, read))
}

fn phase_fair(cpu: Option<usize>) -> Result<Box<dyn Measure>, LabError> {
    let lock = Arc::new(PhaseFairLock::new(Value::default()));
    let theirs = Arc::clone(&lock);
    let writer = writer(cpu, move || theirs.write()[0] += 1)?;
    let read = move || {
        black_box(*lock.read());
    };
    Ok(reading(writer, read))
}

fn sequence(cpu: Option<usize>) -> Result<Box<dyn Measure>, LabError> {
    let lock = Arc::new(SequenceLock::<Value>::new(Value::default()));
    let theirs = Arc::clone(&lock);
    let writer = writer(cpu, move || theirs.lock()[0] += 1)?;
    let read = move || {
        black_box(lock.read());
    };
    Ok(reading(writer, read))
}

/// Makes a way to read, with a writer on that CPU if there is one.
type Make = fn(Option<usize>) -> Result<Box<dyn Measure>, LabError>;

const WAYS: [(&str, Make); 3] =
    [("RCU, read and report", rcu), ("phase-fair lock", phase_fair), ("sequence lock", sequence)];

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let cpu = setting.second_cpu()?;
    progress("three ways to read, without and with a writer, in turns");
    let mut measures = Vec::new();
    for (_, make) in WAYS {
        measures.push(make(None)?);
        measures.push(make(Some(cpu))?);
    }
    let turns = setting.take_turns(Lanes::Two, &mut measures)?;
    let cost = |way: usize| (turns.medians[2 * way], turns.medians[2 * way + 1]);
    let rows = WAYS.iter().enumerate().map(|(way, (name, _))| {
        let (alone, updated) = cost(way);
        vec![(*name).into(), alone.into(), updated.into(), turns.hop.into()]
    });
    let columns =
        Column::list("way | no writer [cycles/read] | a writer all the time [cycles/read] | hop [cycles]");
    let figures = vec![Figure {
        title: "Cost of a read".to_owned(),
        x: Axis::linear(""),
        y: Axis::linear("cycles/read"),
        marks: Marks::Bars {
            groups: WAYS.iter().map(|(name, _)| (*name).to_owned()).collect(),
            series: vec![
                ("no writer".to_owned(), (0..WAYS.len()).map(|way| cost(way).0).collect()),
                ("a writer all the time".to_owned(), (0..WAYS.len()).map(|way| cost(way).1).collect()),
            ],
        },
    }];
    let (rcu, lock, sequence) = (cost(0), cost(1), cost(2));
    let verdict = format!(
        "A read with RCU and its report cost {:.1} cycles without a writer and {:.1} with one that never rests; a phase-fair \
         lock {:.1} and {:.1}; a sequence lock {:.1} and {:.1}. The claim has no figures to stand beside these. An RCU reader \
         writes to no line that others write to, and only when a writer has asked; a lock's reader writes a shared line on \
         each read.",
        rcu.0, rcu.1, lock.0, lock.1, sequence.0, sequence.1
    );
    Ok(Findings { columns, rows: rows.collect(), figures, verdict })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_measured_with_and_without_a_writer() {
        let findings = Setting::tiny_on_one_cpu().try_out(run);
        findings.assert_rows(WAYS.len());
    }
}
