//! What it costs to move one cache line from one CPU to another.
//!
//! The unit in which everything between two lanes is paid. On virtual machines it can change several fold within
//! seconds, when the host moves a virtual CPU to another core, and nothing inside tells but this cost itself; so figures
//! over two lanes mean something only beside the cost that was measured with them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use warmlane_sync::padded::CachePadded;
use warmlane_sys::affinity::{self, AffinityError};
use warmlane_sys::clock;

/// Round trips in a batch: together some tenths of a millisecond.
const ROUND_TRIPS: u64 = 500;
/// The middle of so many batches is the result.
const BATCHES: usize = 5;

/// Cycles of the time-stamp counter for one line from CPU `first` to CPU `second`, half of a round trip.
///
/// Two threads count one number up in turns. Takes about a millisecond, during which both CPUs should have nothing else
/// to do.
///
/// # Errors
/// [`AffinityError`], if this process may not use one of the CPUs.
pub fn measure(first: usize, second: usize) -> Result<f64, AffinityError> {
    let turn = CachePadded::new(AtomicU64::new(0));
    let last = 2 * ROUND_TRIPS * BATCHES as u64;
    thread::scope(|scope| {
        // Pinned before the other one starts, so that a refusal leaves nobody waiting for its turn.
        let (ready, pinned) = std::sync::mpsc::channel();
        let turn = &turn;
        scope.spawn(move || {
            let result = affinity::pin_current_thread(second);
            let refused = result.is_err();
            if ready.send(result).is_err() || refused {
                return;
            }
            for count in (1..last).step_by(2) {
                wait_for(turn, count);
                turn.store(count + 1, Ordering::Release);
            }
        });
        if let Ok(result) = pinned.recv() {
            result?;
        }
        let caller = scope.spawn(move || {
            let pinned = affinity::pin_current_thread(first);
            let mut batches = [0.0; BATCHES];
            let mut count = 0;
            for batch in &mut batches {
                let begin = clock::cycles_ordered();
                for _ in 0..ROUND_TRIPS {
                    turn.store(count + 1, Ordering::Release);
                    count += 2;
                    wait_for(turn, count);
                }
                *batch = clock::cycles_ordered().saturating_sub(begin) as f64 / (2 * ROUND_TRIPS) as f64;
            }
            batches.sort_by(f64::total_cmp);
            pinned.map(|()| batches[BATCHES / 2])
        });
        caller.join().unwrap_or(Ok(f64::NAN))
    })
}

pub(crate) fn wait_for(turn: &AtomicU64, count: u64) {
    let mut looks: u32 = 0;
    while turn.load(Ordering::Acquire) != count {
        std::hint::spin_loop();
        looks = looks.wrapping_add(1);
        // On one CPU for both, the other one needs it.
        if looks.is_multiple_of(1 << 14) {
            thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_costs_more_than_a_hit_in_the_own_cache() {
        let cpus = affinity::allowed_cpus().unwrap();
        if let [first, .., second] = cpus[..] {
            let line_transfer = measure(first, second).unwrap();
            assert!(line_transfer > 10.0, "{line_transfer}");
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_told() {
        let own = affinity::allowed_cpus().unwrap()[0];
        assert!(measure(own, 100_000).is_err());
        assert!(measure(100_000, own).is_err());
    }
}
