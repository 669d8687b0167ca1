//! Model checking of the locks; how to run it and what a model is, says `loom.rs`:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p warmlane-sync --release --test loom_locks
//! ```
//!
//! The value that a lock guards is in loom's cell, so that loom reports two who have it at the same time, or one after
//! the other without an order between them.
#![cfg(loom)]

mod models;

use loom::sync::Arc;
use loom::thread;
use models::model;
use warmlane_sync::extra::mcs::McsLock;
use warmlane_sync::extra::phase_fair::PhaseFairLock;
use warmlane_sync::extra::sequence::SequenceLock;
use warmlane_sync::extra::ticket::TicketLock;

/// Runs `work` on so many threads and this one; they share `lock`.
fn together<L: Send + Sync + 'static>(threads: usize, lock: L, work: fn(&L)) -> L {
    let lock = Arc::new(lock);
    let threads: Vec<_> = (0..threads)
        .map(|_| {
            let lock = lock.clone();
            thread::spawn(move || work(&lock))
        })
        .collect();
    work(&lock);
    for thread in threads {
        thread.join().unwrap();
    }
    match Arc::try_unwrap(lock) {
        Ok(lock) => lock,
        Err(_) => panic!("the threads have ended"),
    }
}

#[test]
fn ticket_two_threads_take_turns() {
    model(4, || {
        let mut lock = together(1, TicketLock::new(0), |lock| {
            *lock.lock() += 1;
            *lock.lock() += 1;
        });
        assert_eq!(*lock.get_mut(), 4);
    });
}

#[test]
fn ticket_try_lock_is_alone() {
    model(4, || {
        let mut lock = together(1, TicketLock::new([0, 0]), |lock| {
            if let Some(mut value) = lock.try_lock() {
                value[0] += 1;
            }
            lock.lock()[1] += 1;
        });
        let [tried, locked] = *lock.get_mut();
        assert!(tried <= 2 && locked == 2);
    });
}

#[test]
fn mcs_two_threads_take_turns() {
    model(4, || {
        let mut lock = together(1, McsLock::new(0), |lock| {
            lock.with(|value| *value += 1);
            lock.with(|value| *value += 1);
        });
        assert_eq!(*lock.get_mut(), 4);
    });
}

#[test]
fn mcs_three_threads_take_turns() {
    model(2, || {
        let mut lock = together(2, McsLock::new(0), |lock| lock.with(|value| *value += 1));
        assert_eq!(*lock.get_mut(), 3);
    });
}

#[test]
fn mcs_try_with_is_alone_and_can_be_queued_behind() {
    model(4, || {
        let mut lock = together(1, McsLock::new([0, 0]), |lock| {
            lock.try_with(|value| value[0] += 1);
            lock.with(|value| value[1] += 1);
        });
        let [tried, locked] = *lock.get_mut();
        assert!(tried <= 2 && locked == 2);
    });
}

#[test]
fn phase_fair_a_reader_sees_all_or_nothing() {
    model(4, || {
        let mut lock = together(1, PhaseFairLock::new([0, 0]), |lock| {
            {
                let mut value = lock.write();
                value[0] += 1;
                value[1] += 1;
            }
            let value = lock.read();
            assert!(value[0] == value[1] && value[0] >= 1);
        });
        assert_eq!(*lock.get_mut(), [2, 2]);
    });
}

#[test]
fn phase_fair_a_writer_waits_for_readers() {
    model(3, || {
        let lock = Arc::new(PhaseFairLock::new([0, 0]));
        // They don't wait: loom would let two who do look in turns for ever.
        let readers = [(), ()].map(|()| {
            let lock = lock.clone();
            thread::spawn(move || {
                if let Some(value) = lock.try_read() {
                    assert_eq!(value[0], value[1]);
                }
            })
        });
        {
            let mut value = lock.write();
            value[0] += 1;
            value[1] += 1;
        }
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

/// Two writers, with a try in between that fails because a reader waits.
#[test]
fn phase_fair_a_waiting_reader_notices_that_the_writer_is_another() {
    model(4, || {
        let lock = Arc::new(PhaseFairLock::new(0));
        let mut first = lock.write();
        let reader = thread::spawn({
            let lock = lock.clone();
            move || *lock.read()
        });
        *first = 1;
        drop(first);
        if let Some(mut value) = lock.try_write() {
            *value = 2;
        }
        *lock.write() = 3;
        assert!((1..=3).contains(&reader.join().unwrap()));
    });
}

#[test]
fn phase_fair_a_reader_between_two_writers_sees_the_first() {
    model(2, || {
        let lock = Arc::new(PhaseFairLock::new([0, 0]));
        let writers = [(), ()].map(|()| {
            let lock = lock.clone();
            thread::spawn(move || {
                let mut value = lock.write();
                value[0] += 1;
                value[1] += 1;
            })
        });
        {
            let value = lock.read();
            assert_eq!(value[0], value[1]);
        }
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!(*lock.read(), [2, 2]);
    });
}

#[test]
fn phase_fair_trying_is_as_safe() {
    model(3, || {
        let mut lock = together(1, PhaseFairLock::new(0), |lock| {
            if let Some(mut value) = lock.try_write() {
                *value += 1;
            }
            if let Some(value) = lock.try_read() {
                assert!(*value <= 2);
            }
        });
        assert!(*lock.get_mut() <= 2);
    });
}

#[test]
fn phase_fair_trying_to_write_waits_for_nobody_who_writes_or_reads() {
    model(3, || {
        let mut lock = together(1, PhaseFairLock::new(0), |lock| {
            assert!(*lock.read() <= 4);
            if let Some(mut value) = lock.try_write() {
                *value += 1;
            }
            *lock.write() += 1;
        });
        assert!((2..=4).contains(lock.get_mut()));
    });
}

#[test]
fn sequence_no_torn_value_is_read() {
    model(3, || {
        let lock = Arc::new(SequenceLock::<[u64; 2], 2>::new([0, 0]));
        let writer = thread::spawn({
            let lock = lock.clone();
            move || {
                lock.write([1, 1]);
                lock.write([2, 2]);
            }
        });
        let mut last = 0;
        for _ in 0..2 {
            if let Some([first, second]) = lock.try_read() {
                assert_eq!(first, second);
                assert!(first >= last);
                last = first;
            }
        }
        writer.join().unwrap();
        assert_eq!(lock.read(), [2, 2]);
    });
}

#[test]
fn sequence_writers_lose_nothing() {
    model(3, || {
        let lock = together(1, SequenceLock::<[u64; 2], 2>::new([0, 0]), |lock| {
            {
                let mut value = lock.lock();
                value[0] += 1;
                value[1] += 1;
            }
            if let Some(mut value) = lock.try_lock() {
                value[1] += 10;
            }
        });
        let [first, second] = lock.read();
        assert!(first == 2 && [2, 12, 22].contains(&second));
    });
}

#[test]
fn sequence_reading_waits_for_the_writer_only() {
    model(3, || {
        let lock = together(1, SequenceLock::<u64, 1>::new(0), |lock| {
            lock.write(1);
            assert_eq!(lock.read(), 1);
        });
        assert_eq!(lock.read(), 1);
    });
}
