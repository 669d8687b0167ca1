//! Real threads at full speed, every element stamped: what goes in comes out, once, and in the order promised.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use warmlane_sync::index_stack::IndexStack;
use warmlane_sync::spin::{SpinLock, relax};

/// How long each test keeps its threads busy.
const DURATION: Duration = Duration::from_millis(700);

#[test]
fn index_stack_numbers_and_their_memory_belong_to_one_at_a_time() {
    const BOUND: u32 = 4;
    let stack = IndexStack::new(BOUND);
    (0..BOUND).for_each(|index| stack.push(index).unwrap());
    // Plain load and store: two owners at a time would lose touches.
    let touches: Vec<_> = (0..BOUND).map(|_| AtomicU64::new(0)).collect();
    let total: u64 = thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let (start, mut count) = (Instant::now(), 0);
                    while start.elapsed() < DURATION {
                        // Two at a time, put back in the order in which they came: the pattern of ABA.
                        let taken = [stack.pop(), stack.pop()];
                        for index in taken.into_iter().flatten() {
                            let touched = &touches[index as usize];
                            touched.store(touched.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                            count += 1;
                            stack.push(index).unwrap();
                        }
                    }
                    count
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
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
    let total: u64 = thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let (start, mut count) = (Instant::now(), 0);
                    while start.elapsed() < DURATION {
                        let mut pair = lock.lock();
                        assert_eq!(pair.0, pair.1);
                        pair.0 += 1;
                        relax();
                        pair.1 += 1;
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert_eq!(*lock.lock(), (total, total));
}
