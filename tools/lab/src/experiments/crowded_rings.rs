//! Rings among more threads than cores.

use crate::error::LabError;
use crate::experiment::Experiment;
use crate::plot::{Axis, Figure, Marks};
use crate::record::{Claim, Findings};
use crate::setting::Setting;
use crate::table::{Cell, Column};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;
use warmlane_gen::datapath::Histogram;
use warmlane_sync::extra::{HeadTail, RelaxedTail};
use warmlane_sync::mpmc::AnyRing;
use warmlane_sync::side::{Concurrent, Queued};
use warmlane_sys::{affinity, clock};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "crowded-rings",
    question: "What does a thread that has lost its CPU in the middle of a push or pop cost the others?",
    claim: Some(Claim {
        source: "DPDK Programmer's Guide, Ring Library: 'Producer/consumer synchronization modes'",
        says: "in over-committed setups the default mode suffers from lock-waiter preemption, and RTS and HTS avoid it; no \
               figure is given",
    }),
    method: "Half of the threads push and half pop bursts of 8 elements through a ring of 1,024, all bound to the same \
             CPUs; each push or pop is timed with the time-stamp counter, whether it moved something or not, and goes into a \
             histogram with eight steps to a factor of two. A thread whose burst moved nothing yields. `peers/rings --crowd N` \
             measures rte_ring the same way.",
    steps: None,
    run,
};

const CAPACITY: usize = 1024;
const BURST: usize = 8;

/// Bits of a duration that count: a quantile is known to within an eighth.
const BITS: u32 = 3;

struct Crowd {
    durations: Histogram,
    elements: u64,
    cycles: u64,
}

fn crowd<S: Concurrent>(threads: usize, cpus: &[usize], setting: &Setting) -> Result<Crowd, LabError> {
    let ring = AnyRing::<u64, S>::new(CAPACITY).map_err(LabError::setup)?;
    let length = setting.length * setting.rounds.max(1) as u32;
    let (stop, elements) = (AtomicBool::new(false), AtomicU64::new(0));
    let begin = clock::cycles_ordered();
    let durations = thread::scope(|scope| {
        let (ring, stop, elements) = (&ring, &stop, &elements);
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                let cpu = cpus[number / 2 % cpus.len()];
                scope.spawn(move || {
                    // A thread that can't be bound runs anyway, and the crowd is the same.
                    let _ = affinity::pin_current_thread(cpu);
                    let mut durations = Histogram::new(BITS);
                    let (mut values, mut moved) = ([0; BURST], 0);
                    while !stop.load(Ordering::Relaxed) {
                        let start = clock::cycles_ordered();
                        let done = if number % 2 == 0 {
                            ring.push_bulk(&values)
                        } else {
                            ring.pop_bulk(&mut values)
                        };
                        durations.record(clock::cycles_ordered().saturating_sub(start));
                        if done {
                            moved += BURST as u64 * (number % 2) as u64;
                        } else {
                            thread::yield_now();
                        }
                    }
                    elements.fetch_add(moved, Ordering::Relaxed);
                    durations
                })
            })
            .collect();
        let start = Instant::now();
        while start.elapsed() < length {
            thread::sleep(length / 10);
        }
        stop.store(true, Ordering::Relaxed);
        let mut sum = Histogram::new(BITS);
        for worker in workers {
            if let Ok(durations) = worker.join() {
                sum.add(&durations);
            }
        }
        sum
    });
    let cycles = clock::cycles_ordered().saturating_sub(begin);
    Ok(Crowd { durations, elements: elements.into_inner(), cycles })
}

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    type Kind = fn(usize, &[usize], &Setting) -> Result<Crowd, LabError>;
    const KINDS: [(&str, Kind); 3] =
        [("queued", crowd::<Queued>), ("HTS", crowd::<HeadTail>), ("RTS", crowd::<RelaxedTail>)];
    let cpus: Vec<_> = std::iter::once(setting.cpu).chain(setting.second_cpu).collect();
    let mut rows = Vec::new();
    let (mut groups, mut tails) = (Vec::new(), Vec::new());
    for threads in [2 * cpus.len(), 4 * cpus.len()] {
        for (name, crowd) in KINDS {
            progress(&format!("{name}, {threads} threads on {} CPUs", cpus.len()));
            let crowd = crowd(threads, &cpus, setting)?;
            let quantiles = [0.5, 0.999]
                .map(|part| crowd.durations.quantile(part).map_or(f64::NAN, |cycles| cycles as f64));
            rows.push(vec![
                Cell::from(name),
                threads.into(),
                (crowd.cycles as f64 / crowd.elements as f64).into(),
                quantiles[0].into(),
                quantiles[1].into(),
            ]);
            groups.push(format!("{name} / {threads}"));
            tails.push(quantiles[1]);
        }
    }
    let columns =
        Column::list("ring | threads | cost [cycles/element] | median push or pop [cycles] | p99.9 [cycles]");
    let worst = tails.iter().copied().fold(0.0, f64::max);
    let figure = Figure {
        title: "The slowest pushes and pops".to_owned(),
        x: Axis::linear("ring and threads"),
        y: Axis::linear("p99.9, cycles"),
        marks: Marks::Bars { groups, series: vec![("p99.9".to_owned(), tails)] },
    };
    let verdict = format!(
        "One operation in a thousand takes up to {worst:.0} cycles. A scheduler's turn is millions of cycles: a ring whose \
         threads spin for one that is not running would show that here. These yield after some microseconds, so that who \
         is waited for gets to run. The guide gives no figure to compare with."
    );
    Ok(Findings { columns, rows, figures: vec![figure], verdict })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn there_is_a_row_for_each_ring_and_crowd() {
        let setting = Setting { length: Duration::from_millis(5), ..Setting::tiny() };
        let findings = setting.try_out(run);
        findings.assert_rows(6);
    }
}
