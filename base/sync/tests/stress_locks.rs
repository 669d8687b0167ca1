//! The locks and the mailbox on real threads at full speed, also on more threads than there are cores: nobody is in
//! the section with another, nothing that was written in it is missed, and nobody starves.
#![cfg(not(loom))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use warmlane_sync::extra::mcs::McsLock;
use warmlane_sync::extra::phase_fair::PhaseFairLock;
use warmlane_sync::extra::sequence::SequenceLock;
use warmlane_sync::extra::ticket::TicketLock;
use warmlane_sync::mailbox::{ReceiveError, SendError, mailbox};
use warmlane_sync::spin::SpinLock;

/// How long each test keeps its threads busy.
const DURATION: Duration = Duration::from_millis(250);
/// More than there are cores on most machines that run tests.
const MANY: usize = 8;

/// What a lock guards: words that all say the same.
type Value = [u64; 8];

fn step(value: &mut Value) -> u64 {
    let before = value[0];
    for word in value.iter_mut() {
        assert_eq!(*word, before, "two in the section");
        *word = before + 1;
    }
    before
}

/// Runs `step_locked` and `try_locked` on `threads` threads for a while; gives how often each got the lock.
fn take_turns(
    threads: usize,
    locked: impl Fn() -> u64 + Sync,
    try_locked: impl Fn() -> bool + Sync,
) -> Vec<u64> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut turns = 0;
                    while !stop.load(Ordering::Relaxed) {
                        locked();
                        turns += 1 + u64::from(try_locked());
                    }
                    turns
                })
            })
            .collect();
        thread::sleep(DURATION);
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn everyone_had_a_turn(turns: &[u64], total: u64) {
    assert_eq!(turns.iter().sum::<u64>(), total);
    assert!(turns.iter().all(|&turns| turns > 0), "{turns:?}");
}

/// The test of a lock that is held by a guard.
macro_rules! guarded {
    ($name:ident, $lock:ident) => {
        #[test]
        fn $name() {
            for threads in [2, MANY] {
                let lock = $lock::new(Value::default());
                let turns = take_turns(
                    threads,
                    || step(&mut lock.lock()),
                    || lock.try_lock().is_some_and(|mut value| step(&mut value) < u64::MAX),
                );
                everyone_had_a_turn(&turns, lock.lock()[7]);
            }
        }
    };
}

guarded!(spin, SpinLock);

guarded!(ticket, TicketLock);

#[test]
fn mcs() {
    for threads in [2, MANY] {
        let lock = McsLock::new(Value::default());
        let turns = take_turns(threads, || lock.with(step), || lock.try_with(step).is_some());
        everyone_had_a_turn(&turns, lock.with(|value| value[7]));
    }
}

#[test]
fn phase_fair() {
    for threads in [2, MANY] {
        let lock = PhaseFairLock::new(Value::default());
        let check = |value: &Value| assert!(value.iter().all(|&word| word == value[0]), "{value:?}");
        let turns = take_turns(
            threads,
            || {
                check(&lock.read());
                step(&mut lock.write());
                check(&lock.read());
                lock.try_read().map_or(0, |value| value[0])
            },
            || lock.try_write().is_some_and(|mut value| step(&mut value) < u64::MAX),
        );
        everyone_had_a_turn(&turns, lock.read()[7]);
    }
}

#[test]
fn sequence() {
    for threads in [2, MANY] {
        let lock = SequenceLock::<Value, 8>::new(Value::default());
        let check = |value: Value| assert!(value.iter().all(|&word| word == value[0]), "{value:?}");
        let turns = take_turns(
            threads,
            || {
                check(lock.read());
                step(&mut lock.lock());
                lock.try_read().map_or(0, |value| value[0])
            },
            || lock.try_lock().is_some_and(|mut value| step(&mut value) < u64::MAX),
        );
        everyone_had_a_turn(&turns, lock.read()[7]);
    }
}

/// A message that counts its drops and says what it is behind a pointer.
struct Message {
    number: Box<u64>,
    drops: Arc<AtomicU64>,
}

impl Drop for Message {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

fn messages_arrive(capacity: usize, receiver_leaves: bool) {
    let drops = Arc::new(AtomicU64::new(0));
    let (mut sender, mut receiver) = mailbox(capacity).unwrap();
    let sending = thread::spawn({
        let drops = Arc::clone(&drops);
        move || {
            let (start, mut number) = (Instant::now(), 0);
            while start.elapsed() < DURATION || (receiver_leaves && !sender.is_disconnected()) {
                let mut message = Message { number: Box::new(number), drops: Arc::clone(&drops) };
                number += 1;
                while let Err(error) = sender.send(message) {
                    if matches!(error, SendError::Disconnected { .. }) {
                        drop(error);
                        return number;
                    }
                    message = error.into_message();
                    thread::yield_now();
                }
            }
            number
        }
    });
    let (start, mut expected) = (Instant::now(), 0);
    loop {
        match receiver.receive() {
            Ok(message) => {
                assert_eq!(*message.number, expected);
                expected += 1;
            }
            Err(ReceiveError::Empty) => thread::yield_now(),
            Err(ReceiveError::Disconnected) => break,
        }
        if receiver_leaves && start.elapsed() > DURATION {
            break;
        }
    }
    drop(receiver);
    let sent = sending.join().unwrap();
    assert!(expected > 0 && (receiver_leaves || expected == sent));
    assert_eq!(drops.load(Ordering::Relaxed), sent, "each exactly once");
}

#[test]
fn messages_arrive_in_order_until_the_sender_leaves() {
    messages_arrive(1, false);
    messages_arrive(64, false);
}

#[test]
fn messages_are_dropped_once_when_the_receiver_leaves() {
    messages_arrive(4, true);
}
