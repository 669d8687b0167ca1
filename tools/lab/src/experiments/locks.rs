//! Throughput and fairness of the locks, from one thread to more than there are CPUs.

use crate::error::LabError;
use crate::experiment::Experiment;
use crate::locked::LockedCount;
use crate::plot::{Axis, Figure, Marks, Series};
use crate::record::{Claim, Findings};
use crate::setting::Setting;
use crate::statistics::median;
use crate::table::{Cell, Column};
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
    claim: Some(Claim {
        source: "Joyce Kong and the DPDK team at Arm, article on the principles of DPDK optimisation on Arm",
        says: "a ticket lock serves first come, first served and is more predictable than a spin lock; an MCS lock is as fair \
               and scales, since each waiter watches a variable of its own; no figures",
    }),
    method: "Threads, in turns on the two CPUs, lock, count one up and unlock, over and over. Cost is time over the locks of \
             all threads; fairness is the most locks of a thread over the fewest, in the median round. A round is at least \
             20 ms, so that each of eight threads on two CPUs has time to run. All locks take turns.",
    steps: None,
    run,
};

/// So many threads.
const THREADS: [usize; 4] = [1, 2, 4, 8];
/// The most locks of a thread over the fewest that still count as even.
const EVEN: f64 = 1.1;
/// Shorter, a thread may not get a CPU at all.
const SHORTEST: Duration = Duration::from_millis(20);

/// A round with so many threads on these CPUs.
type Round = fn(usize, &[usize], Duration) -> Result<(f64, f64), LabError>;

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

/// Cycles for each lock, and the most locks of a thread over the fewest.
fn round<L: LockedCount>(threads: usize, cpus: &[usize], length: Duration) -> Result<(f64, f64), LabError> {
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
                    let mut count = 0_u64;
                    while pinned.is_ok() && !stop.load(Ordering::Relaxed) {
                        lock.count();
                        count += 1;
                    }
                    pinned.map(|()| count).map_err(LabError::setup)
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
    for count in counts {
        done.push(count.map_err(|_| LabError::setup("a thread failed"))??);
    }
    let (most, least) = (done.iter().max().copied(), done.iter().min().copied());
    // One that got nothing stands for one that got a single lock.
    let fairness = most.unwrap_or(0).max(1) as f64 / least.unwrap_or(0).max(1) as f64;
    Ok((cycles as f64 / done.iter().sum::<u64>().max(1) as f64, fairness))
}

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let cpus = [setting.cpu, setting.second_cpu()?];
    let length = setting.length.max(SHORTEST);
    let mut rows = Vec::new();
    let mut costs = vec![Vec::new(); LOCKS.len()];
    let mut fairest = vec![Vec::new(); LOCKS.len()];
    for threads in THREADS {
        progress(&format!("{threads} threads"));
        let mut rounds = vec![(Vec::new(), Vec::new()); LOCKS.len()];
        for _ in 0..setting.rounds.max(1) {
            for ((_, round), (cycles, fairness)) in LOCKS.iter().zip(&mut rounds) {
                let (one, even) = round(threads, &cpus, length)?;
                cycles.push(one);
                fairness.push(even);
            }
        }
        for (lock, (cycles, fairness)) in rounds.iter().enumerate() {
            let (cycles, fairness) = (median(cycles), median(fairness));
            rows.push(vec![threads.into(), LOCKS[lock].0.into(), cycles.into(), Cell::from(fairness)]);
            costs[lock].push((threads as f64, cycles));
            fairest[lock].push(fairness);
        }
    }
    let verdict = verdict(&costs, &fairest);
    let series =
        LOCKS.iter().zip(costs).map(|((name, _), points)| Series { name: (*name).to_owned(), points });
    let figures = vec![Figure {
        title: "Cost of a lock".to_owned(),
        x: Axis::logarithmic("threads on two CPUs"),
        y: Axis::logarithmic("cycles/lock"),
        marks: Marks::Lines(series.collect()),
    }];
    let columns = Column::list("threads | lock | cost [cycles/lock] | most over fewest [times]");
    Ok(Findings { columns, rows, figures, verdict })
}

/// What the figures for two threads and for the most come to.
fn verdict(costs: &[Vec<(f64, f64)>], fairest: &[Vec<f64>]) -> String {
    let two = THREADS.iter().position(|&threads| threads == 2).unwrap_or(0);
    let last = THREADS.len() - 1;
    let lines: Vec<_> = LOCKS
        .iter()
        .zip(costs.iter().zip(fairest))
        .map(|((name, _), (costs, fairness))| {
            format!(
                "{name}: {:.0} cycles and {:.2} between two threads, {:.0} and {:.2} among {}",
                costs[two].1, fairness[two], costs[last].1, fairness[last], THREADS[last]
            )
        })
        .collect();
    let even = LOCKS.iter().zip(fairest).filter(|(_, fairness)| fairness[two] <= EVEN);
    let even: Vec<_> = even.map(|((name, _), _)| *name).collect();
    format!(
        "{}. Between two threads, the most locks of one are within {EVEN} of the fewest of the other with: {}. The claim has no \
         figures to stand beside these. A fair lock pays for its order with a line from CPU to CPU for \
         each lock, and, with more threads than CPUs, with a wait for the next in line to get its CPU; an unfair one is \
         cheaper because it mostly stays where it is.",
        lines.join("; "),
        even.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lock_is_tried_with_every_number_of_threads() {
        let findings = Setting::tiny_on_one_cpu().try_out(run);
        findings.assert_rows(LOCKS.len() * THREADS.len());
        assert!(findings.verdict.starts_with("spin: "), "{}", findings.verdict);
    }
}
