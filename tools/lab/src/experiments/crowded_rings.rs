//! Rings among more threads than cores.

use crate::alongside::Alongside;
use crate::error::LabError;
use crate::experiment::Experiment;
use crate::plot::{Axis, Figure, Marks};
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting, doubt};
use crate::statistics::median;
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Prediction};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use warmlane_gen::datapath::Histogram;
use warmlane_sync::extra::{HeadTail, RelaxedTail};
use warmlane_sync::mpmc::AnyRing;
use warmlane_sync::side::{Concurrent, Queued};
use warmlane_sys::{affinity, clock};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "crowded-rings",
    question: "What does a thread that has lost its CPU in the middle of a push or pop cost the others?",
    claim: Claim {
        source: "DPDK Programmer's Guide, Ring Library: 'Producer/consumer synchronization modes'",
        says: "in over-committed setups the default mode suffers from lock-waiter preemption, and RTS and HTS avoid it; no \
               figure is given",
        predictions: &PREDICTIONS,
    },
    method: "Half of the threads push and half pop bursts of 8 elements through a ring of 1,024, all bound to the same \
             CPUs; each push or pop is timed with the time-stamp counter, whether it moved something or not, and goes into a \
             histogram with eight steps to a factor of two. A thread whose burst moved nothing yields. The rings take turns with both crowds; \
             quantiles are the middle ones of their rounds. `peers/rings --crowd N` measures rte_ring the same way.",
    steps: None,
    run,
};

const PREDICTIONS: [Prediction; 1] = [Prediction::at_least(
    "p99.9 of the default mode (queued) against the better of HTS and RTS, four threads for each CPU",
    "times",
    2.0,
    "a default mode whose slowest pushes and pops are no slower",
)];

const CAPACITY: usize = 1024;
/// Shorter, not every thread would get a CPU.
const SHORTEST: Duration = Duration::from_millis(20);
const BURST: usize = 8;

/// Bits of a duration that count: a quantile is known to within an eighth.
const BITS: u32 = 3;

struct Crowd {
    durations: Histogram,
    elements: u64,
    cycles: u64,
}

fn crowd<S: Concurrent>(threads: usize, cpus: &[usize], length: Duration) -> Result<Crowd, LabError> {
    let ring = AnyRing::<u64, S>::new(CAPACITY).map_err(LabError::setup)?;
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

/// A round of so many threads.
type Kind = fn(usize, &[usize], Duration) -> Result<Crowd, LabError>;

const KINDS: [(&str, Kind); 3] =
    [("queued", crowd::<Queued>), ("HTS", crowd::<HeadTail>), ("RTS", crowd::<RelaxedTail>)];
/// Threads for each CPU.
const CROWDS: [usize; 2] = [2, 4];

/// What a ring's operations took in a crowd, in cycles.
#[derive(Clone, Copy, Debug)]
struct Times {
    element: f64,
    median: f64,
    tail: f64,
}

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let cpus = setting.all_cpus();
    let lanes = if cpus.len() > 1 { Lanes::Two } else { Lanes::One };
    let setting = Setting { length: setting.length.max(SHORTEST), ..setting.clone() };
    let mut times = Vec::new();
    for of_cpu in CROWDS {
        let threads = of_cpu * cpus.len();
        progress(&format!("{threads} threads on {} CPUs", cpus.len()));
        let mut quantiles = Alongside::new(KINDS.len());
        let taken = setting.turns(lanes, KINDS.len(), |kind| {
            setting.watch(lanes, std::process::id(), || {
                let crowd = KINDS[kind].1(threads, &cpus, setting.length)?;
                let cost = crowd.cycles as f64 / crowd.elements.max(1) as f64;
                let quantile = |part| crowd.durations.quantile(part).map_or(f64::NAN, |cycles| cycles as f64);
                quantiles.note(kind, cost, [0.5, 0.999].map(quantile));
                Ok(cost)
            })
        })?;
        times.extend((0..KINDS.len()).map(|kind| {
            let counts = doubt(&taken, kind).is_none();
            let middle = |figure: fn(&[f64; 2]) -> f64| {
                if counts { quantiles.median(&taken, kind, figure) } else { f64::NAN }
            };
            Times {
                element: if counts { median(&taken.variants[kind]) } else { f64::NAN },
                median: middle(|both| both[0]),
                tail: middle(|both| both[1]),
            }
        }));
    }
    Ok(findings(&times, cpus.len()))
}

/// `times` has all kinds of the first crowd, then those of the next.
fn findings(times: &[Times], cpus: usize) -> Findings {
    let cases = || CROWDS.into_iter().flat_map(|crowd| KINDS.map(|(name, _)| (name, crowd * cpus)));
    let rows = cases().zip(times).map(|((name, threads), times)| {
        vec![Cell::from(name), threads.into(), times.element.into(), times.median.into(), times.tail.into()]
    });
    let figure = Figure {
        title: "The slowest pushes and pops".to_owned(),
        x: Axis::linear("ring and threads"),
        y: Axis::linear("p99.9, cycles"),
        marks: Marks::Bars {
            groups: cases().map(|(name, threads)| format!("{name} / {threads}")).collect(),
            series: vec![("p99.9".to_owned(), times.iter().map(|times| times.tail).collect())],
        },
    };
    Findings {
        columns: Column::list(
            "ring | threads | cost [cycles/element] | median push or pop [cycles] | p99.9 [cycles]",
        ),
        rows: rows.collect(),
        figures: vec![figure],
        answers: answers(times).to_vec(),
        conclusion: conclusion(times, cpus),
    }
}

/// The default mode's slowest, and those of the better other one, in the largest crowd.
fn tails(times: &[Times]) -> (f64, f64) {
    let Some([default, others @ ..]) = times.last_chunk::<{ KINDS.len() }>() else {
        return (f64::NAN, f64::NAN);
    };
    (default.tail, others.iter().map(|times| times.tail).fold(f64::NAN, f64::min))
}

fn answers(times: &[Times]) -> [Answer; 1] {
    let (default, other) = tails(times);
    [(default / other).into()]
}

fn conclusion(times: &[Times], cpus: usize) -> String {
    let (default, other) = tails(times);
    format!(
        "Among {} threads on {cpus} CPUs, one operation in a thousand takes {default:.0} cycles or more in the default mode, and {other:.0} in the better of \
         HTS and RTS. A scheduler's turn is millions of cycles: where threads spin for one that is not running, a tail of that \
         order shows it. Ours yield after some microseconds, so that who is waited for gets to run; rte_ring's default mode does not. The guide \
         gives no figure to compare with.",
        CROWDS[CROWDS.len() - 1] * cpus,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn turned_figures_refute_the_claim() {
        let of = |tails: [f64; 3]| {
            let times = tails.map(|tail| Times { element: 9.0, median: 90.0, tail });
            answers(&[[Times { tail: 1.0, ..times[0] }; 3], times].concat())
        };
        assert_judged(&PREDICTIONS, &of([9e6, 2e3, 3e3]), &of([2e3, 9e6, 3e3]));
    }

    #[test]
    fn there_is_a_row_for_each_ring_and_crowd() {
        let findings = Setting::tiny().try_out(run);
        findings.assert_rows(KINDS.len() * CROWDS.len());
    }
}
