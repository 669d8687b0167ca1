//! Rings between real threads at full speed, and more threads than cores, every element stamped: what goes in comes out,
//! once, and in the order promised.
#![cfg(not(loom))]

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use warmlane_sync::extra::{HeadTail, HtsRing, RelaxedTail, mpsc};
use warmlane_sync::mpmc::AnyRing;
use warmlane_sync::side::{Concurrent, Queued};
use warmlane_sync::spin::relax;
use warmlane_sync::spsc;

/// How long each test keeps its threads busy.
const DURATION: Duration = Duration::from_millis(300);

/// Lengths of bursts, so that they wrap at every index: xorshift (Marsaglia, Journal of Statistical Software 8(14),
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

/// An element whose two halves must come from the same push; 12 bytes, so that copies end between words.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Stamp {
    number: u32,
    inverse: u32,
    producer: u32,
}

/// What says who made it, and which of that one's it is. Rings copy elements of 4, 8 and other numbers of bytes in ways of
/// their own.
trait Element: Copy + Default + Send + Sync + Debug + 'static {
    fn new(producer: u32, number: u32) -> Self;
    fn is_whole(self) -> bool;
    fn producer(self) -> u32;
    fn number(self) -> u32;
}

impl Element for Stamp {
    fn new(producer: u32, number: u32) -> Self {
        Self { number, inverse: !number ^ producer, producer }
    }

    fn is_whole(self) -> bool {
        self.inverse == !self.number ^ self.producer
    }

    fn producer(self) -> u32 {
        self.producer
    }

    fn number(self) -> u32 {
        self.number
    }
}

impl Element for u64 {
    fn new(producer: u32, number: u32) -> Self {
        (Self::from(producer) << 32) | Self::from(number)
    }

    fn is_whole(self) -> bool {
        true
    }

    fn producer(self) -> u32 {
        (self >> 32) as u32
    }

    fn number(self) -> u32 {
        self as u32
    }
}

/// Up to 8 producers; the numbers of a test don't get to the bits above.
impl Element for u32 {
    fn new(producer: u32, number: u32) -> Self {
        assert!(number >> 29 == 0);
        (producer << 29) | number
    }

    fn is_whole(self) -> bool {
        true
    }

    fn producer(self) -> u32 {
        self >> 29
    }

    fn number(self) -> u32 {
        self & ((1 << 29) - 1)
    }
}

fn spsc_in_order<E: Element>(capacity: usize, longest: usize) {
    let (mut producer, mut consumer) = spsc::ring::<E>(capacity).unwrap();
    let sender = thread::spawn(move || {
        let (start, mut lengths, mut next) = (Instant::now(), Lengths(1), 0_u32);
        while start.elapsed() < DURATION / 8 {
            for _ in 0..64 {
                let values: Vec<_> =
                    (0..lengths.next(longest) as u32).map(|offset| E::new(0, next + offset)).collect();
                let sent = if values.len() % 2 == 0 {
                    if producer.push_bulk(&values) { values.len() } else { 0 }
                } else {
                    producer.push_burst(&values)
                };
                next += sent as u32;
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
        let mut values = vec![E::default(); lengths.next(longest)];
        let count = if values.len() % 2 == 0 && !last_look {
            if consumer.pop_bulk(&mut values) { values.len() } else { 0 }
        } else {
            consumer.pop_burst(&mut values)
        };
        for value in &values[..count] {
            assert!(value.is_whole() && value.number() == expected, "{value:?}, expected {expected}");
            expected += 1;
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
        spsc_in_order::<Stamp>(capacity, longest);
        spsc_in_order::<u64>(capacity, longest);
        spsc_in_order::<u32>(capacity, longest);
    }
}

/// In place, with guards that are dropped, committed in part, and committed in full.
#[test]
fn spsc_in_place_elements_arrive_in_order_and_once() {
    for capacity in [1, 8, 64] {
        let (mut producer, mut consumer) = spsc::ring::<u64>(capacity).unwrap();
        let sender = thread::spawn(move || {
            let (start, mut lengths, mut next) = (Instant::now(), Lengths(3), 0_u64);
            while start.elapsed() < DURATION / 4 {
                for _ in 0..64 {
                    let Some(mut reservation) = producer.reserve_burst(lengths.next(24)) else {
                        thread::yield_now();
                        continue;
                    };
                    let (first, second) = reservation.as_mut_slices();
                    first.iter_mut().chain(second).zip(next..).for_each(|(slot, value)| *slot = value);
                    let count = lengths.next(reservation.count());
                    if count % 3 == 0 {
                        drop(reservation);
                    } else {
                        reservation.commit_first(count);
                        next += count as u64;
                    }
                }
            }
            next
        });
        let (mut lengths, mut expected) = (Lengths(4), 0_u64);
        loop {
            let last_look = consumer.is_disconnected();
            let Some(peek) = consumer.peek_burst(lengths.next(24)) else {
                if last_look {
                    break;
                }
                thread::yield_now();
                continue;
            };
            let (first, second) = peek.as_slices();
            assert!(first.iter().chain(second).copied().eq(expected..expected + peek.count() as u64));
            let count = lengths.next(peek.count());
            if count % 3 != 0 {
                peek.release_first(count);
                expected += count as u64;
            }
        }
        assert_eq!(sender.join().unwrap(), expected);
        assert!(expected > 0);
    }
}

/// What the threads of a run have put in and taken out.
#[derive(Default)]
struct Totals {
    count: AtomicU64,
    sum: AtomicU64,
}

impl Totals {
    fn add<E: Element>(&self, values: &[E]) {
        self.count.fetch_add(values.len() as u64, Ordering::Relaxed);
        self.sum.fetch_add(values.iter().map(|value| u64::from(value.number())).sum(), Ordering::Relaxed);
    }

    fn get(self) -> (u64, u64) {
        (self.count.into_inner(), self.sum.into_inner())
    }
}

const LONGEST: usize = 48;

/// For [`produce`]: pushes in bulk or a burst, and says how many went in.
macro_rules! pushes {
    ($ring:ident) => {
        |values, bulk| {
            if bulk { usize::from($ring.push_bulk(values)) * values.len() } else { $ring.push_burst(values) }
        }
    };
}

/// For [`consume`]: pops in bulk or a burst, and says how many came out.
macro_rules! pops {
    ($ring:ident) => {
        |values, bulk| {
            if bulk { usize::from($ring.pop_bulk(values)) * values.len() } else { $ring.pop_burst(values) }
        }
    };
}

/// Pushes stamps of random burst lengths for `DURATION`.
fn produce<E: Element>(producer: u32, totals: &Totals, mut push: impl FnMut(&[E], bool) -> usize) {
    let (start, mut lengths, mut next) = (Instant::now(), Lengths(producer + 1), 0_u32);
    while start.elapsed() < DURATION {
        let values: Vec<_> =
            (0..lengths.next(LONGEST) as u32).map(|offset| E::new(producer, next + offset)).collect();
        let sent = push(&values, values.len() % 2 == 0);
        totals.add(&values[..sent]);
        next += sent as u32;
        if sent == 0 {
            relax();
        }
    }
}

/// Pops until `done` says so and nothing is left.
fn consume<E: Element>(
    seed: u32,
    done: &AtomicBool,
    totals: &Totals,
    mut pop: impl FnMut(&mut [E], bool) -> usize,
) {
    let (mut lengths, mut next) = (Lengths(seed), [0_u32; 8]);
    loop {
        let last_look = done.load(Ordering::Acquire);
        let mut values = vec![E::default(); lengths.next(LONGEST)];
        let bulk = values.len() % 2 == 0 && !last_look;
        let count = pop(&mut values, bulk);
        for value in &values[..count] {
            assert!(value.is_whole(), "{value:?}");
            // Another consumer may have taken some, but none comes late or twice.
            let expected = &mut next[value.producer() as usize];
            assert!(value.number() >= *expected, "{value:?}, expected {expected} or later");
            *expected = value.number() + 1;
        }
        totals.add(&values[..count]);
        if count == 0 {
            if last_look {
                break;
            }
            relax();
        }
    }
}

/// Threads that produce and threads that consume, each given its number: what went in came out.
fn exchange(
    producers: u32,
    consumers: u32,
    produce: impl Fn(u32, &Totals) + Sync,
    consume: impl Fn(u32, &AtomicBool, &Totals) + Sync,
) {
    let (pushed, popped, done) = (Totals::default(), Totals::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let (produce, consume) = (&produce, &consume);
        let (pushed, popped, done) = (&pushed, &popped, &done);
        let producers: Vec<_> =
            (0..producers).map(|producer| scope.spawn(move || produce(producer, pushed))).collect();
        for consumer in 0..consumers {
            scope.spawn(move || consume(consumer, done, popped));
        }
        for producer in producers {
            producer.join().unwrap();
        }
        done.store(true, Ordering::Release);
    });
    let pushed = pushed.get();
    assert!(pushed.0 > 0);
    assert_eq!(popped.get(), pushed);
}

fn elements_arrive_once_and_each_producers_in_order<E: Element, S: Concurrent>(
    producers: u32,
    consumers: u32,
) {
    let ring = &AnyRing::<E, S>::new(64).unwrap();
    exchange(
        producers,
        consumers,
        |producer, pushed| produce(producer, pushed, pushes!(ring)),
        |consumer, done, popped| consume(100 + consumer, done, popped, pops!(ring)),
    );
    assert!(ring.is_empty());
}

#[test]
fn mpmc_elements_arrive_once_and_each_producers_in_order() {
    elements_arrive_once_and_each_producers_in_order::<Stamp, Queued>(3, 2);
    elements_arrive_once_and_each_producers_in_order::<u64, Queued>(3, 2);
    elements_arrive_once_and_each_producers_in_order::<u32, Queued>(3, 2);
    elements_arrive_once_and_each_producers_in_order::<Stamp, HeadTail>(3, 2);
    elements_arrive_once_and_each_producers_in_order::<u64, HeadTail>(3, 2);
    elements_arrive_once_and_each_producers_in_order::<u32, HeadTail>(3, 2);
    elements_arrive_once_and_each_producers_in_order::<Stamp, RelaxedTail>(3, 2);
    elements_arrive_once_and_each_producers_in_order::<u64, RelaxedTail>(3, 2);
    elements_arrive_once_and_each_producers_in_order::<u32, RelaxedTail>(3, 2);
}

/// Many more threads than a small machine has cores, so that threads lose theirs in the middle of a push.
#[test]
fn mpmc_with_more_threads_than_cores_elements_arrive_once_and_each_producers_in_order() {
    elements_arrive_once_and_each_producers_in_order::<u64, Queued>(5, 3);
    elements_arrive_once_and_each_producers_in_order::<u64, HeadTail>(5, 3);
    elements_arrive_once_and_each_producers_in_order::<u64, RelaxedTail>(5, 3);
}

#[test]
fn mpsc_elements_arrive_once_and_each_producers_in_order() {
    let (producer, mut consumer) = mpsc::ring::<Stamp>(32).unwrap();
    let (pushed, popped, done) = (Totals::default(), Totals::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let (pushed, popped, done) = (&pushed, &popped, &done);
        let producers: Vec<_> = (0..3)
            .map(|number| {
                let mut end = producer.clone();
                scope.spawn(move || {
                    produce(number, pushed, pushes!(end));
                })
            })
            .collect();
        drop(producer);
        let consumer = scope.spawn(move || {
            consume(100, done, popped, pops!(consumer));
            assert!(consumer.is_disconnected() && consumer.is_empty());
        });
        for producer in producers {
            producer.join().unwrap();
        }
        done.store(true, Ordering::Release);
        consumer.join().unwrap();
    });
    let pushed = pushed.get();
    assert!(pushed.0 > 0);
    assert_eq!(popped.get(), pushed);
}

/// In place by many threads, which put back what they don't use.
#[test]
fn hts_in_place_elements_arrive_once_and_each_producers_in_order() {
    let ring = HtsRing::<Stamp>::new(32).unwrap();
    exchange(
        3,
        2,
        |producer, pushed| {
            produce(producer, pushed, |values: &[Stamp], bulk| {
                let Some(mut reservation) = ring.reserve_burst(values.len()) else { return 0 };
                let (first, second) = reservation.as_mut_slices();
                first.iter_mut().chain(second).zip(values).for_each(|(slot, &value)| *slot = value);
                // Now and then not all of it, or none.
                let count = if bulk { reservation.count() } else { reservation.count() / 2 };
                reservation.commit_first(count);
                count
            });
        },
        |consumer, done, popped| {
            consume(100 + consumer, done, popped, |values, bulk| {
                let Some(peek) = ring.peek_burst(values.len()) else { return 0 };
                let count = if bulk { peek.count() } else { peek.count().div_ceil(2) };
                peek.read(0, &mut values[..count]);
                peek.release_first(count);
                count
            });
        },
    );
    assert!(ring.is_empty());
}

/// A pool's use: elements circulate, and there is always space for what was taken out.
fn what_came_out_always_fits_in_again<S: Concurrent>() {
    const ELEMENTS: u32 = 16;
    let ring = AnyRing::<u32, S>::new(ELEMENTS as usize).unwrap();
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
                    assert!(ring.push_bulk(&values[..count]), "no space for {count}");
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
fn mpmc_what_came_out_always_fits_in_again() {
    what_came_out_always_fits_in_again::<Queued>();
    what_came_out_always_fits_in_again::<HeadTail>();
}
