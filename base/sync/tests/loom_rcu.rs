//! Model checking of RCU; how to run it and what a model is, says `loom.rs`:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p warmlane-sync --release --test loom_rcu
//! ```
#![cfg(loom)]

mod models;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use models::model;
use warmlane_sync::rcu::{Domain, Protected, Reader, Replaced, Retired};

/// A value that is written when it is made and when it is dropped, so that loom reports a read that comes before the
/// one or after the other.
struct Value(UnsafeCell<u32>);

// SAFETY: the point of the tests: loom checks each access.
unsafe impl Sync for Value {}
// SAFETY: an integer.
unsafe impl Send for Value {}

impl Value {
    fn new(value: u32) -> Self {
        let cell = UnsafeCell::new(0);
        // SAFETY: loom checks that nobody else has access.
        cell.with_mut(|cell| unsafe { *cell = value });
        Self(cell)
    }

    fn get(&self) -> u32 {
        // SAFETY: loom checks that nobody writes.
        self.0.with(|value| unsafe { *value })
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: loom checks that nobody else has access.
        self.0.with_mut(|value| unsafe { *value = 0 });
    }
}

/// A domain of one reader, and a value of it that is 1.
fn first() -> (Domain, Arc<Protected<Value>>) {
    let domain = Domain::new(1).unwrap();
    let value = Arc::new(Protected::new(&domain, Value::new(1)));
    (domain, value)
}

/// Replaces `value` with 2; gives the queue with the one before.
fn replace(domain: &Domain, value: &Protected<Value>) -> Retired<Replaced<Value>> {
    let mut replaced = Retired::new(domain, 1).unwrap();
    value.replace(Value::new(2), &mut replaced).unwrap();
    replaced
}

/// A writer replaces `value` with 2 while a reader does `body`; `looks` is how often the writer reclaims meanwhile.
fn replace_while(looks: usize, body: impl FnOnce(&Protected<Value>, &mut Reader) + Send + 'static) {
    let (domain, value) = first();
    let mut reader = domain.reader("reader").unwrap();
    let thread = thread::spawn({
        let value = value.clone();
        move || body(&value, &mut reader)
    });
    let mut replaced = replace(&domain, &value);
    for _ in 0..looks {
        replaced.reclaim().for_each(drop);
    }
    thread.join().unwrap();
    replaced.reclaim().for_each(drop);
    assert!(replaced.is_empty());
}

/// Reads one value, wholly.
fn read(value: &Protected<Value>, reader: &Reader) -> u32 {
    let value = value.read(reader).unwrap();
    let first = value.get();
    assert_eq!(first, value.get());
    assert!(first == 1 || first == 2);
    first
}

/// Update, report.
#[test]
fn a_value_stays_until_its_reader_reports_and_never_comes_back() {
    model(4, || {
        replace_while(2, |value, reader| {
            let first = read(value, reader);
            reader.quiescent();
            assert!(read(value, reader) >= first);
        });
    });
}

/// Leave.
#[test]
fn a_value_stays_until_its_reader_is_offline() {
    model(4, || {
        replace_while(2, |value, reader| {
            read(value, reader);
            reader.offline(thread::yield_now);
        });
    });
}

#[test]
fn a_value_stays_until_its_reader_is_gone() {
    model(4, || {
        let (domain, value) = first();
        let reader = domain.reader("reader").unwrap();
        let thread = thread::spawn({
            let value = value.clone();
            move || {
                read(&value, &reader);
            }
        });
        let mut replaced = replace(&domain, &value);
        replaced.reclaim().for_each(drop);
        thread.join().unwrap();
    });
}

/// The next reader has the entry of the one that left: the writer may see either there, or nobody.
#[test]
fn a_reader_in_the_place_of_another_is_seen_or_finds_the_new_one() {
    model(3, || {
        let (domain, value) = first();
        let first = domain.reader("first").unwrap();
        let thread = thread::spawn({
            let (domain, value) = (domain.clone(), value.clone());
            move || {
                read(&value, &first);
                drop(first);
                let second = domain.reader("second").unwrap();
                read(&value, &second);
            }
        });
        let mut replaced = replace(&domain, &value);
        replaced.reclaim().for_each(drop);
        replaced.reclaim().for_each(drop);
        thread.join().unwrap();
    });
}

/// Meet: the reader comes online just when the writer looks.
#[test]
fn a_reader_that_comes_online_finds_the_old_value_and_is_seen_or_finds_the_new_one() {
    model(4, || {
        let (domain, value) = first();
        let reader = domain.reader("reader").unwrap().into_offline();
        let thread = thread::spawn({
            let value = value.clone();
            move || read(&value, &reader.online())
        });
        let mut replaced = replace(&domain, &value);
        replaced.reclaim().for_each(drop);
        thread.join().unwrap();
    });
}

/// Return: the writer sees the reader before it left, or after it came back with a new token.
#[test]
fn what_was_read_before_a_leave_is_read_also_if_only_the_return_is_seen() {
    model(4, || {
        replace_while(2, |value, reader| {
            read(value, reader);
            reader.offline(|| ());
            read(value, reader);
        });
    });
}

/// Each of two writers may drop what the other put in.
#[test]
fn two_writers_drop_each_value_once() {
    model(3, || {
        let (domain, value) = first();
        let writers = [2, 3].map(|new| {
            let (domain, value) = (domain.clone(), value.clone());
            thread::spawn(move || {
                let mut replaced = Retired::new(&domain, 1).unwrap();
                value.replace(Value::new(new), &mut replaced).unwrap();
                let mut dropped = replaced.reclaim().count();
                dropped += replaced.reclaim().count();
                assert_eq!(dropped, 1);
            })
        });
        for writer in writers {
            writer.join().unwrap();
        }
    });
}

/// A reader that reports the second writer's token has the first one's unlinking too.
#[test]
fn a_report_of_one_writers_token_counts_for_the_writer_before() {
    model(2, || {
        let (domain, value) = first();
        let mut reader = domain.reader("reader").unwrap();
        let other = thread::spawn({
            let domain = domain.clone();
            move || {
                domain.start();
            }
        });
        let thread = thread::spawn({
            let value = value.clone();
            move || {
                reader.quiescent();
                read(&value, &reader);
            }
        });
        let mut replaced = replace(&domain, &value);
        replaced.reclaim().for_each(drop);
        replaced.reclaim().for_each(drop);
        other.join().unwrap();
        thread.join().unwrap();
    });
}

/// A queue that goes leaves its items to the domain, which drops them later, here with its last handle.
#[test]
fn what_a_dropped_queue_held_outlives_its_reader() {
    model(3, || {
        let (domain, value) = first();
        let mut reader = domain.reader("reader").unwrap();
        let thread = thread::spawn({
            let value = value.clone();
            move || {
                read(&value, &reader);
                reader.quiescent();
                read(&value, &reader);
            }
        });
        drop(replace(&domain, &value));
        Retired::<u8>::new(&domain, 1).unwrap().reclaim().for_each(drop);
        thread.join().unwrap();
    });
}
