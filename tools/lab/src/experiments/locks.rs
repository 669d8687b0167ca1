//! Throughput and fairness of the locks, from one thread to more than there are CPUs.

use crate::alongside::Alongside;
use crate::disturbance;
use crate::error::LabError;
use crate::experiment::Experiment;
use crate::locked::LockedCount;
use crate::plot::{Axis, Figure, Marks, Series};
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting, doubt};
use crate::statistics::median;
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Prediction};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use warmlane_sync::extra::mcs::McsLock;
use warmlane_sync::extra::phase_fair::PhaseFairLock;
use warmlane_sync::extra::ticket::TicketLock;
use warmlane_sync::padded::CachePadded;
use warmlane_sync::spin::SpinLock;
use warmlane_sys::{affinity, clock};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "locks",
    question: "What do locks cost and how evenly do they serve, from one thread to more than there are CPUs?",
    claim: Claim {
        source: super::sources::ARM,
        says: "a ticket lock serves first come, first served, which avoids starvation and the traffic of all waiters grabbing at once, and is more \
               predictable than a spin lock; an MCS lock is as fair and scales, since each waiter watches a variable of its own; no figures",
        predictions: &PREDICTIONS,
    },
    method: "Threads, in turns on the two CPUs, lock, count one up and unlock, over and over. Cost is time over the locks of \
             all threads; fairness is the most locks of a thread over the fewest, in the median round. A round is at least \
             20 ms, so that each of eight threads on two CPUs has time to run. All locks take turns. The claim is judged where each thread has a \
             CPU: with more threads than CPUs, the scheduler decides who waits, which the claim does not speak of.",
    steps: None,
    run,
};

const PREDICTIONS: [Prediction; 3] = [
    Prediction::at_least(
        "unfairness of spin against ticket, two threads",
        "times",
        1.05,
        "a spin lock that serves as evenly",
    ),
    Prediction::at_most(
        "most over fewest of MCS, two threads",
        "times",
        EVEN,
        "an MCS lock that is not fair",
    ),
    Prediction::at_most(
        "cost of MCS against spin, two threads",
        "times",
        1.0,
        "an MCS lock that costs more than one that all waiters watch",
    ),
];

/// So many threads.
const THREADS: [usize; 4] = [1, 2, 4, 8];
/// The most locks of a thread over the fewest that still count as even.
const EVEN: f64 = 1.1;
/// One in so many of a round may be lost to other programs.
const TOLERATED_WAIT: u32 = 50;
/// Shorter, a thread may not get a CPU at all.
const SHORTEST: Duration = Duration::from_millis(20);

/// A round with so many threads on these CPUs.
type Round = fn(usize, &[usize], Duration) -> Result<Counted, LabError>;

/// What came of it.
struct Counted {
    /// For each lock.
    cycles: f64,
    /// The most locks of a thread over the fewest.
    fairness: f64,
    /// How long threads were ready and had no CPU, all together.
    waited: Duration,
}

const LOCKS: [(&str, Round); 4] = [
    ("spin", round::<SpinLock<u64>>),
    ("ticket", round::<TicketLock<u64>>),
    ("MCS", round::<McsLock<u64>>),
    ("phase-fair, writing", round::<Writing>),
];

#[derive(Default)]
struct Writing(PhaseFairLock<u64>);

impl LockedCount for Writing {
    #[inline]
    fn count(&self) -> u64 {
        let mut count = self.0.write();
        *count += 1;
        *count
    }
}

fn round<L: LockedCount>(threads: usize, cpus: &[usize], length: Duration) -> Result<Counted, LabError> {
    let lock = CachePadded::new(L::default());
    let (stop, start) = (CachePadded::new(AtomicBool::new(false)), Barrier::new(threads + 1));
    let (counts, cycles) = thread::scope(|scope| {
        let workers: Vec<_> = cpus
            .iter()
            .cycle()
            .take(threads)
            .map(|&cpu| {
                let (lock, stop, start) = (&lock, &stop, &start);
                scope.spawn(move || {
                    let pinned = affinity::pin_current_thread(cpu);
                    start.wait();
                    let before = disturbance::waited_by_this_thread();
                    let mut count = 0_u64;
                    while pinned.is_ok() && !stop.load(Ordering::Relaxed) {
                        lock.count();
                        count += 1;
                    }
                    let waited = disturbance::waited_by_this_thread().saturating_sub(before);
                    pinned.map(|()| (count, waited)).map_err(LabError::setup)
                })
            })
            .collect();
        start.wait();
        let begin = clock::cycles_ordered();
        thread::sleep(length);
        stop.store(true, Ordering::Relaxed);
        let counts: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        (counts, clock::cycles_ordered().saturating_sub(begin))
    });
    let mut done = Vec::with_capacity(threads);
    let mut waited = Duration::ZERO;
    for thread in counts {
        let (count, wait) = thread.map_err(|_| LabError::setup("a thread failed"))??;
        done.push(count);
        waited += wait;
    }
    let (most, least) = (done.iter().max().copied(), done.iter().min().copied());
    // One that got nothing stands for one that got a single lock.
    let fairness = most.unwrap_or(0).max(1) as f64 / least.unwrap_or(0).max(1) as f64;
    Ok(Counted { cycles: cycles as f64 / done.iter().sum::<u64>().max(1) as f64, fairness, waited })
}

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let cpus = [setting.cpu, setting.second_cpu()?];
    let setting = Setting { length: setting.length.max(SHORTEST), ..setting.clone() };
    let mut rows = Vec::new();
    let mut costs = vec![Vec::new(); LOCKS.len()];
    let mut fairest = vec![Vec::new(); LOCKS.len()];
    for threads in THREADS {
        progress(&format!("{threads} threads"));
        let mut evenness = Alongside::new(LOCKS.len());
        let taken = setting.turns(Lanes::Two, LOCKS.len(), |lock| {
            let mut waited = Duration::ZERO;
            let mut turn = setting.watch(Lanes::Two, std::process::id(), || {
                let counted = LOCKS[lock].1(threads, &cpus, setting.length)?;
                evenness.note(lock, counted.cycles, counted.fairness);
                waited = counted.waited;
                Ok(counted.cycles)
            })?;
            // With more threads than CPUs they wait for each other.
            if threads <= cpus.len() && waited > setting.length / TOLERATED_WAIT {
                turn.disturbed.get_or_insert_with(|| "other programs had the CPU in a round".to_owned());
            }
            Ok(turn)
        })?;
        for (lock, (name, _)) in LOCKS.iter().enumerate() {
            let counts = doubt(&taken, lock).is_none();
            let cycles = if counts { median(&taken.variants[lock]) } else { f64::NAN };
            let fairness =
                if counts { evenness.median(&taken, lock, |fairness| *fairness) } else { f64::NAN };
            rows.push(vec![threads.into(), (*name).into(), cycles.into(), Cell::from(fairness)]);
            costs[lock].push((threads as f64, cycles));
            fairest[lock].push(fairness);
        }
    }
    let (answers, conclusion) = (answers(&costs, &fairest).to_vec(), conclusion(&costs, &fairest));
    let series =
        LOCKS.iter().zip(costs).map(|((name, _), points)| Series { name: (*name).to_owned(), points });
    let figures = vec![Figure {
        title: "Cost of a lock".to_owned(),
        x: Axis::logarithmic("threads on two CPUs"),
        y: Axis::logarithmic("cycles/lock"),
        marks: Marks::Lines(series.collect()),
    }];
    let columns = Column::list("threads | lock | cost [cycles/lock] | most over fewest [times]");
    Ok(Findings { columns, rows, figures, answers, conclusion })
}

/// Where [`THREADS`] has two.
const TWO: usize = 1;
/// Where [`LOCKS`] has them.
const SPIN: usize = 0;
const TICKET: usize = 1;
const MCS: usize = 2;

/// What two threads, each with a CPU, say about the claim.
fn answers(costs: &[Vec<(f64, f64)>], fairest: &[Vec<f64>]) -> [Answer; 3] {
    [
        (fairest[SPIN][TWO] / fairest[TICKET][TWO]).into(),
        fairest[MCS][TWO].into(),
        (costs[MCS][TWO].1 / costs[SPIN][TWO].1).into(),
    ]
}

/// What the figures for two threads and for the most come to.
fn conclusion(costs: &[Vec<(f64, f64)>], fairest: &[Vec<f64>]) -> String {
    let last = THREADS.len() - 1;
    let lines: Vec<_> = LOCKS
        .iter()
        .zip(costs.iter().zip(fairest))
        .map(|((name, _), (costs, fairness))| {
            format!(
                "{name}: {:.0} cycles and {:.2} between two threads, {:.0} and {:.2} among {}",
                costs[TWO].1, fairness[TWO], costs[last].1, fairness[last], THREADS[last]
            )
        })
        .collect();
    let even = LOCKS.iter().zip(fairest).filter(|(_, fairness)| fairness[TWO] <= EVEN);
    let even: Vec<_> = even.map(|((name, _), _)| *name).collect();
    format!(
        "{}. Between two threads, the most locks of one are within {EVEN} of the fewest of the other with: {}. A lock that keeps an order \
         moves a line from CPU to CPU for each lock, and, with more threads than CPUs, waits for the next in line to get its CPU; one that keeps \
         none can stay where it is. What an MCS lock saves, all waiters looking at one line, grows with their number: two CPUs \
         have one waiter.",
        lines.join("; "),
        even.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn turned_figures_refute_the_claim() {
        let of = |[spin, ticket, mcs]: [f64; 3], [least, most]: [f64; 2]| {
            let costs: Vec<_> = [spin, ticket, mcs].map(|cost| vec![(1.0, 9.0), (2.0, cost)]).into();
            answers(&costs, &[least, most, most].map(|fairness| vec![1.0, fairness]))
        };
        assert_judged(
            &PREDICTIONS,
            &of([200.0, 150.0, 120.0], [1.5, 1.02]),
            &of([60.0, 90.0, 150.0], [1.02, 1.5]),
        );
    }

    #[test]
    fn every_lock_is_tried_with_every_number_of_threads() {
        let Some(setting) = Setting::tiny_on_two_cpus() else { return };
        let findings = setting.try_out(run);
        findings.assert_rows(LOCKS.len() * THREADS.len());
        assert!(findings.conclusion.starts_with("spin: "), "{}", findings.conclusion);
    }
}
