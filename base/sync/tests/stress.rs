//! Real threads at full speed, every element stamped: what goes in comes out, once, and in the order promised.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use warmlane_sync::index_stack::IndexStack;
use warmlane_sync::spin::{SpinLock, relax};

/// How long each test keeps its threads busy.
const DURATION: Duration = Duration::from_millis(700);

/// Runs `step` on four threads until the time is over, and adds up what it returns.
fn count_on_four_threads(step: impl Fn() -> u64 + Sync) -> u64 {
    thread::scope(|scope| {
        let workers = [(); 4].map(|()| {
            scope.spawn(|| {
                let (start, mut count) = (Instant::now(), 0);
                while start.elapsed() < DURATION {
                    count += step();
                }
                count
            })
        });
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    })
}

#[test]
fn index_stack_numbers_and_their_memory_belong_to_one_at_a_time() {
    const BOUND: u32 = 4;
    let stack = IndexStack::new(BOUND);
    (0..BOUND).for_each(|index| stack.push(index).unwrap());
    // Plain load and store: two owners at a time would lose touches.
    let touches: Vec<_> = (0..BOUND).map(|_| AtomicU64::new(0)).collect();
    let total = count_on_four_threads(|| {
        // Two at a time, put back in the order in which they came: the pattern of ABA.
        let taken = [stack.pop(), stack.pop()];
        let mut count = 0;
        for index in taken.into_iter().flatten() {
            let touched = &touches[index as usize];
            touched.store(touched.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            count += 1;
            stack.push(index).unwrap();
        }
        count
    });
    assert_eq!(stack.len_estimate(), BOUND);
    let mut left: Vec<_> = std::iter::from_fn(|| stack.pop()).collect();
    left.sort_unstable();
    assert_eq!(left, (0..BOUND).collect::<Vec<_>>());
    assert_eq!(touches.into_iter().map(AtomicU64::into_inner).sum::<u64>(), total);
}

#[test]
fn spin_lock_loses_no_update() {
    let lock = SpinLock::new((0_u64, 0_u64));
    let total = count_on_four_threads(|| {
        let mut pair = lock.lock();
        assert_eq!(pair.0, pair.1);
        pair.0 += 1;
        relax();
        pair.1 += 1;
        1
    });
    assert_eq!(*lock.lock(), (total, total));
}
