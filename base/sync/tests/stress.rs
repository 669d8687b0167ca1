//! Real threads at full speed, every element stamped: what goes in comes out, once, and in the order promised.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use warmlane_sync::index_stack::IndexStack;
use warmlane_sync::mpmc;
use warmlane_sync::spin::{SpinLock, relax};
use warmlane_sync::spsc;

/// How long each test keeps its threads busy.
const DURATION: Duration = Duration::from_millis(700);

/// Lengths of bursts, so that they wrap at every place: xorshift (Marsaglia, Journal of Statistical Software 8(14),
/// 2003).
struct Lengths(u32);

impl Lengths {
    fn next(&mut self, maximum: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 as usize % maximum + 1
    }
}

/// An element whose two halves must come from the same push; 12 bytes, so that copies end at odd places.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Stamp {
    number: u32,
    inverse: u32,
    producer: u32,
}

impl Stamp {
    fn new(producer: u32, number: u32) -> Self {
        Self { number, inverse: !number ^ producer, producer }
    }

    fn is_whole(self) -> bool {
        self.inverse == !self.number ^ self.producer
    }
}

fn spsc_in_order(capacity: usize, longest: usize) {
    let (mut producer, mut consumer) = spsc::ring::<Stamp>(capacity).unwrap();
    let sender = thread::spawn(move || {
        let (start, mut lengths, mut next) = (Instant::now(), Lengths(1), 0_u32);
        while start.elapsed() < DURATION / 4 {
            for _ in 0..64 {
                let values: Vec<_> = (0..lengths.next(longest) as u32)
                    .map(|offset| Stamp::new(0, next.wrapping_add(offset)))
                    .collect();
                let sent = if values.len() % 2 == 0 {
                    if producer.push_bulk(&values) { values.len() } else { 0 }
                } else {
                    producer.push_burst(&values)
                };
                next = next.wrapping_add(sent as u32);
                if sent == 0 {
                    thread::yield_now();
                }
            }
        }
        next
    });
    let (mut lengths, mut expected) = (Lengths(2), 0_u32);
    loop {
        let last_look = consumer.is_disconnected();
        let mut values = vec![Stamp::default(); lengths.next(longest)];
        let count = if values.len() % 2 == 0 && !last_look {
            if consumer.pop_bulk(&mut values) { values.len() } else { 0 }
        } else {
            consumer.pop_burst(&mut values)
        };
        for value in &values[..count] {
            assert!(value.is_whole() && value.number == expected, "{value:?}, expected {expected}");
            expected = expected.wrapping_add(1);
        }
        if count == 0 {
            if last_look {
                break;
            }
            thread::yield_now();
        }
    }
    assert_eq!(sender.join().unwrap(), expected);
    assert!(expected > 0);
}

#[test]
fn spsc_elements_arrive_in_order_and_once() {
    for (capacity, longest) in [(1, 2), (8, 9), (64, 40), (1024, 256)] {
        spsc_in_order(capacity, longest);
    }
}

#[test]
fn mpmc_elements_arrive_once_and_each_producers_in_order() {
    const PRODUCERS: u32 = 3;
    const CONSUMERS: u32 = 2;
    const LONGEST: usize = 24;
    let ring = mpmc::Ring::<Stamp>::new(32).unwrap();
    let (pushed, sum_in) = (AtomicU64::new(0), AtomicU64::new(0));
    let (popped, sum_out) = (AtomicU64::new(0), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let (ring, pushed, sum_in) = (&ring, &pushed, &sum_in);
                scope.spawn(move || {
                    let (start, mut lengths, mut next) = (Instant::now(), Lengths(producer + 1), 0_u32);
                    while start.elapsed() < DURATION {
                        let values: Vec<_> = (0..lengths.next(LONGEST) as u32)
                            .map(|offset| Stamp::new(producer, next + offset))
                            .collect();
                        let sent = if values.len() % 2 == 0 {
                            if ring.push_bulk(&values) { values.len() } else { 0 }
                        } else {
                            ring.push_burst(&values)
                        };
                        sum_in.fetch_add(
                            values[..sent].iter().map(|value| u64::from(value.number)).sum(),
                            Ordering::Relaxed,
                        );
                        next += sent as u32;
                        if sent == 0 {
                            relax();
                        }
                    }
                    pushed.fetch_add(u64::from(next), Ordering::Relaxed);
                })
            })
            .collect();
        for consumer in 0..CONSUMERS {
            let (ring, done, popped, sum_out) = (&ring, &done, &popped, &sum_out);
            scope.spawn(move || {
                let (mut lengths, mut next) = (Lengths(100 + consumer), [0_u32; PRODUCERS as usize]);
                loop {
                    let last_look = done.load(Ordering::Acquire);
                    let mut values = vec![Stamp::default(); lengths.next(LONGEST)];
                    let count = if values.len() % 2 == 0 && !last_look {
                        if ring.pop_bulk(&mut values) { values.len() } else { 0 }
                    } else {
                        ring.pop_burst(&mut values)
                    };
                    for value in &values[..count] {
                        assert!(value.is_whole(), "{value:?}");
                        // Another consumer may have taken some, but none comes late or twice.
                        let expected = &mut next[value.producer as usize];
                        assert!(value.number >= *expected, "{value:?}, expected {expected} or later");
                        *expected = value.number + 1;
                    }
                    popped.fetch_add(count as u64, Ordering::Relaxed);
                    sum_out.fetch_add(
                        values[..count].iter().map(|value| u64::from(value.number)).sum(),
                        Ordering::Relaxed,
                    );
                    if count == 0 {
                        if last_look {
                            break;
                        }
                        relax();
                    }
                }
            });
        }
        for producer in producers {
            producer.join().unwrap();
        }
        done.store(true, Ordering::Release);
    });
    assert_eq!(popped.into_inner(), pushed.into_inner());
    assert_eq!(sum_out.into_inner(), sum_in.into_inner());
    assert!(ring.is_empty());
}

/// A pool's use: elements circulate, and there is always room for what was taken out.
#[test]
fn mpmc_what_came_out_always_fits_in_again() {
    const ELEMENTS: u32 = 16;
    let ring = mpmc::Ring::<u32>::new(ELEMENTS as usize).unwrap();
    assert!(ring.push_bulk(&(0..ELEMENTS).collect::<Vec<_>>()));
    let holders: Vec<_> = (0..ELEMENTS).map(|_| AtomicBool::new(false)).collect();
    thread::scope(|scope| {
        for seed in 1..=4 {
            let (ring, holders) = (&ring, &holders);
            scope.spawn(move || {
                let (start, mut lengths) = (Instant::now(), Lengths(seed));
                while start.elapsed() < DURATION {
                    let mut values = [0; 6];
                    let wanted = lengths.next(6);
                    let count = ring.pop_burst(&mut values[..wanted]);
                    for &value in &values[..count] {
                        assert!(!holders[value as usize].swap(true, Ordering::Relaxed), "two have {value}");
                    }
                    for &value in &values[..count] {
                        holders[value as usize].store(false, Ordering::Relaxed);
                    }
                    assert!(ring.push_bulk(&values[..count]), "no room for {count}");
                }
            });
        }
    });
    let mut values = [0; ELEMENTS as usize];
    assert!(ring.pop_bulk(&mut values));
    values.sort_unstable();
    assert_eq!(values.to_vec(), (0..ELEMENTS).collect::<Vec<_>>());
}

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
