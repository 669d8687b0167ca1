//! RCU as its users see it, and on real threads at full speed.
#![cfg(not(loom))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use warmlane_sync::rcu::{
    Domain, ForeignReader, MAXIMUM_READERS, Protected, RcuError, ReplaceError, Retired,
};

mod stop;
use stop::Stop;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(5);

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn what_cannot_be_made_is_refused_with_the_reason() {
    assert_eq!(Domain::new(0).err(), Some(RcuError::Readers { readers: 0 }));
    assert!(Domain::new(MAXIMUM_READERS + 1).is_err());
    let domain = Domain::new(1).unwrap();
    assert_eq!(Retired::<u8>::new(&domain, 0).err(), Some(RcuError::NoCapacity));
    let error = Retired::<[u8; 1 << 16]>::new(&domain, 1 << 42).err();
    assert!(matches!(error, Some(RcuError::OutOfMemory { count, .. }) if count == 1 << 42), "{error:?}");
    let first = domain.reader("lane 0").unwrap();
    let error = domain.reader("lane 1").unwrap_err();
    assert_eq!(
        error.to_string(),
        "no space for reader 'lane 1': the RCU domain was made for 1 readers and has as many; make it for more or drop one"
    );
    drop(first);
    assert_eq!(domain.reader("lane 1").unwrap().name(), "lane 1");
}

#[test]
fn a_token_is_over_when_every_online_reader_has_reported() {
    let domain = Domain::new(3).unwrap();
    assert!(domain.is_over(domain.start()), "nobody reads");
    let (mut first, mut second) = (domain.reader("first").unwrap(), domain.reader("second").unwrap());
    let parked = domain.reader("third").unwrap().into_offline();
    let token = domain.start();
    assert!(!domain.is_over(token));
    first.quiescent();
    assert!(!domain.is_over(token));
    second.quiescent();
    assert!(domain.is_over(token), "offline readers don't count");

    let token = domain.start();
    second.quiescent();
    first.offline(|| assert!(domain.is_over(token)));
    assert!(domain.is_over(token), "online again, later than the token");
    let later = domain.start();
    assert!(!domain.is_over(later));
    assert!(!Domain::new(1).unwrap().is_over(later), "another domain's");
    drop((first, second));
    assert!(domain.is_over(later));
    assert_eq!(parked.online().name(), "third");
}

#[test]
fn a_panic_while_offline_ends_online() {
    let domain = Domain::new(1).unwrap();
    let mut reader = domain.reader("lane").unwrap();
    let result =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| reader.offline(|| panic!("offline"))));
    assert!(result.is_err());
    assert!(!domain.is_over(domain.start()));
}

#[test]
fn synchronize_names_who_is_stuck() {
    let domain = Domain::new(4).unwrap();
    let readers = ["lane 0", "lane 1", "lane 2"].map(|name| domain.reader(name).unwrap());
    let [_stuck, mut reports, leaked] = readers;
    std::mem::forget(leaked);
    reports.quiescent();
    let error = thread::scope(|scope| {
        let writer = scope.spawn(|| domain.synchronize(20 * SHORT));
        while !writer.is_finished() {
            reports.quiescent();
        }
        writer.join().unwrap().unwrap_err()
    });
    assert_eq!(error.readers, ["lane 0", "lane 2"]);
    assert!(error.waited >= 20 * SHORT);
    let text = error.to_string();
    assert!(text.contains("from lane 0, lane 2; a lane reports once a burst"), "{text}");
}

#[test]
fn synchronize_returns_when_all_have_reported() {
    let domain = Domain::new(2).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _at_the_end = Stop(&stop);
        for name in ["lane 0", "lane 1"] {
            let (mut reader, stop) = (domain.reader(name).unwrap(), &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    reader.quiescent();
                    reader.offline(|| thread::sleep(Duration::from_micros(50)));
                }
            });
        }
        for _ in 0..20 {
            domain.synchronize(LONG).unwrap();
        }
    });
}

#[test]
fn a_reader_of_another_domain_is_refused() {
    let (domain, other) = (Domain::new(1).unwrap(), Domain::new(1).unwrap());
    let value = Protected::new(&domain, 7);
    let foreign = other.reader("foreign").unwrap();
    assert_eq!(value.read(&foreign), Err(ForeignReader));
    assert_eq!(domain.check(&domain.reader("own").unwrap()), Ok(()));
    let mut wrong = Retired::new(&other, 1).unwrap();
    assert_eq!(value.replace(8, &mut wrong), Err(ReplaceError::ForeignQueue { value: 8 }));
    assert_eq!(value.read(&domain.reader("own").unwrap()), Ok(&7));
}

#[test]
fn a_full_queue_gives_the_item_back_and_takes_it_when_reclaimed() {
    let domain = Domain::new(1).unwrap();
    let mut reader = domain.reader("lane").unwrap();
    let mut retired = Retired::new(&domain, 2).unwrap();
    retired.retire(1).unwrap();
    assert_eq!(retired.reclaim().count(), 0);
    retired.retire(2).unwrap();
    let full = retired.retire(3).unwrap_err();
    assert_eq!((full.item, full.capacity), (3, 2));
    assert!(retired.synchronize(SHORT).is_err());

    let mut value = Protected::new(&domain, 10);
    let mut replaced = Retired::new(&domain, 1).unwrap();
    value.replace(11, &mut replaced).unwrap();
    assert_eq!(value.replace(12, &mut replaced), Err(ReplaceError::Full { value: 12, capacity: 1 }));
    assert_eq!(*value.get_mut(), 11);

    reader.quiescent();
    assert_eq!(retired.reclaim().next(), Some(1), "and what is not taken stays");
    assert_eq!((retired.len(), retired.is_full()), (1, false));
    retired.retire(full.item).unwrap();
    assert_eq!(retired.reclaim().collect::<Vec<_>>(), [2], "3 came after the report");
    drop(reader);
    retired.synchronize(LONG).unwrap();
    assert_eq!(retired.reclaim().collect::<Vec<_>>(), [3]);
    assert!(retired.is_empty());
}

#[test]
fn one_grace_period_covers_a_batch() {
    let domain = Domain::new(1).unwrap();
    let before = domain.start();
    let mut retired = Retired::new(&domain, 1_000).unwrap();
    (0..1_000).for_each(|item| retired.retire(item).unwrap());
    assert_eq!(retired.reclaim().count(), 1_000, "nobody reads");
    let after = domain.start();
    assert_ne!(before, after);
    assert_eq!(format!("{before:?}").replace("number: 2", "number: 4"), format!("{after:?}"));
}

#[test]
fn what_a_dropped_queue_held_is_dropped_once_and_not_too_early() {
    let drops = Arc::new(AtomicUsize::new(0));
    let count = || drops.load(Ordering::Relaxed);
    let domain = Domain::new(1).unwrap();
    let mut reader = domain.reader("lane").unwrap();
    let abandon = |items: usize| {
        let mut retired = Retired::new(&domain, items).unwrap();
        (0..items).for_each(|_| assert!(retired.retire(Counted(Arc::clone(&drops))).is_ok()));
        assert_eq!(retired.reclaim().count(), 0);
    };
    abandon(3);
    assert_eq!(count(), 0, "the reader has not reported");
    reader.quiescent();
    domain.synchronize(SHORT).unwrap_err();
    assert_eq!(Retired::<u8>::new(&domain, 1).unwrap().reclaim().count(), 0);
    assert_eq!(count(), 3, "any queue of the domain drops them");

    abandon(2);
    drop(domain);
    assert_eq!(count(), 3, "the reader is still of the domain");
    drop(reader);
    assert_eq!(count(), 5, "the last handle has gone");
}

#[test]
fn a_value_is_dropped_with_its_place_or_its_queue() {
    let drops = Arc::new(AtomicUsize::new(0));
    let domain = Domain::new(1).unwrap();
    let value = Protected::new(&domain, Counted(Arc::clone(&drops)));
    let mut replaced = Retired::new(&domain, 4).unwrap();
    value.replace(Counted(Arc::clone(&drops)), &mut replaced).unwrap();
    assert_eq!(replaced.reclaim().count(), 1);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
    drop(value);
    assert_eq!(drops.load(Ordering::Relaxed), 2);
}

/// A value that shows when it is read after its end.
struct Stamped {
    words: [AtomicU64; 16],
}

const GONE: u64 = u64::MAX;

impl Stamped {
    fn new(stamp: u64) -> Self {
        Self { words: std::array::from_fn(|_| AtomicU64::new(stamp)) }
    }

    fn stamp(&self) -> u64 {
        let first = self.words[0].load(Ordering::Relaxed);
        for word in &self.words {
            let word = word.load(Ordering::Relaxed);
            assert!(word == first && word != GONE, "a value read after its end: {word} beside {first}");
        }
        first
    }
}

impl Drop for Stamped {
    fn drop(&mut self) {
        self.words.iter_mut().for_each(|word| *word.get_mut() = GONE);
    }
}

/// Readers that report, go offline, leave and come back, and writers that replace, for a while.
fn readers_and_writers(readers: usize, writers: usize, duration: Duration) {
    let domain = Domain::new(readers).unwrap();
    let value = Protected::new(&domain, Stamped::new(0));
    let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _at_the_end = Stop(&stop);
        for number in 0..readers {
            let (domain, value, stop, reads) = (&domain, &value, &stop, &reads);
            scope.spawn(move || {
                let mut reader = domain.reader(&format!("reader {number}")).unwrap();
                let mut bursts = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..8 {
                        value.read(&reader).unwrap().stamp();
                    }
                    bursts += 1;
                    match bursts % 64 {
                        0 => {
                            drop(reader);
                            reader = domain.reader(&format!("reader {number}")).unwrap();
                        }
                        1..8 => reader.offline(|| ()),
                        8 => reader = reader.into_offline().online(),
                        _ => reader.quiescent(),
                    }
                }
                reads.fetch_add(8 * bursts, Ordering::Relaxed);
            });
        }
        for number in 0..writers {
            let (domain, value, stop) = (&domain, &value, &stop);
            scope.spawn(move || {
                let mut replaced = Retired::new(domain, 32).unwrap();
                let mut stamp = number as u64;
                while !stop.load(Ordering::Relaxed) {
                    stamp += writers as u64;
                    let mut new = Stamped::new(stamp);
                    while let Err(error) = value.replace(new, &mut replaced) {
                        let ReplaceError::Full { value, .. } = error else { unreachable!("{error}") };
                        new = value;
                        if replaced.reclaim().count() == 0 {
                            replaced.synchronize(LONG).unwrap();
                        }
                    }
                    if stamp.is_multiple_of(5) {
                        replaced.reclaim().for_each(drop);
                    }
                }
            });
        }
        let start = Instant::now();
        while start.elapsed() < duration {
            domain.synchronize(LONG).unwrap();
            thread::sleep(Duration::from_millis(1));
        }
    });
    assert!(reads.load(Ordering::Relaxed) > 0);
}

#[test]
fn no_value_is_read_after_its_end() {
    readers_and_writers(1, 1, Duration::from_millis(500));
}

#[test]
fn no_value_is_read_after_its_end_with_more_threads_than_cores() {
    readers_and_writers(6, 2, Duration::from_millis(700));
}
