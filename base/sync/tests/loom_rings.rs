//! Model checking of the rings: loom runs each model below through all interleavings, and all values that the memory model
//! lets a load return, up to a number of preemptions.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p warmlane-sync --release --test loom_rings
//! ```
//!
//! `LOOM_MAX_PREEMPTIONS` is 2 to 4, fewer where there are more threads, as each model says; setting it overrides them.
//!
//! That they can fail shows `cargo xtask mutate-orderings --file side/queued` (or another part): it weakens one ordering after
//! the other and says which test noticed.
#![cfg(loom)]

mod models;
#[path = "models/owned.rs"]
mod owned;

use loom::sync::Arc;
use loom::thread;
use models::model;
use owned::Owned;
use warmlane_sync::extra::mpsc;
use warmlane_sync::extra::{HeadTail, RelaxedTail};
use warmlane_sync::extra::{HtsRing, RtsRing};
use warmlane_sync::mpmc::{AnyRing, Ring};
use warmlane_sync::side::{Concurrent, Queued};
use warmlane_sync::spsc;

#[test]
fn spsc_elements_come_out_in_order_and_once() {
    model(4, || {
        let (mut producer, mut consumer) = spsc::ring::<u32>(2).unwrap();
        let sender = thread::spawn(move || {
            let mut next = 1;
            for _ in 0..3 {
                let sent = producer.push_burst(&[next, next + 1]);
                next += sent as u32;
            }
            next - 1
        });
        let mut received = 0;
        let mut values = [0; 2];
        for _ in 0..3 {
            let count = consumer.pop_burst(&mut values);
            for &value in &values[..count] {
                received += 1;
                assert_eq!(value, received);
            }
        }
        let sent = sender.join().unwrap();
        while consumer.pop_burst(&mut values[..1]) == 1 {
            received += 1;
            assert_eq!(values[0], received);
        }
        assert_eq!(received, sent);
    });
}

#[test]
fn spsc_bulk_takes_all_or_none() {
    model(4, || {
        let (mut producer, mut consumer) = spsc::ring::<u32>(2).unwrap();
        let sender = thread::spawn(move || {
            let first = producer.push_bulk(&[1, 2]);
            assert!(first);
            producer.push_bulk(&[3, 4])
        });
        let mut values = [0; 2];
        let mut expected = 1;
        for _ in 0..2 {
            if consumer.pop_bulk(&mut values) {
                assert_eq!(values, [expected, expected + 1]);
                expected += 2;
            }
        }
        let last = if sender.join().unwrap() { 5 } else { 3 };
        while consumer.pop_bulk(&mut values) {
            assert_eq!(values, [expected, expected + 1]);
            expected += 2;
        }
        assert_eq!(expected, last);
    });
}

#[test]
fn spsc_nothing_is_lost_when_the_producer_leaves() {
    model(4, || {
        let (mut producer, mut consumer) = spsc::ring::<u32>(2).unwrap();
        let sender = thread::spawn(move || assert!(producer.push_bulk(&[1])));
        if consumer.is_disconnected() {
            assert_eq!(consumer.len(), 1);
            assert_eq!(consumer.pop_burst(&mut [0; 2]), 1);
        }
        sender.join().unwrap();
        assert!(consumer.is_disconnected());
    });
}

#[test]
fn spsc_what_the_consumer_did_comes_before_its_leaving() {
    model(4, || {
        let (producer, consumer) = spsc::ring::<u32>(2).unwrap();
        let owned = Arc::new(Owned::new());
        let receiver = thread::spawn({
            let owned = owned.clone();
            move || {
                owned.touch();
                drop(consumer);
            }
        });
        if producer.is_disconnected() {
            assert_eq!(owned.touch(), 2);
        }
        receiver.join().unwrap();
    });
}

/// Two producers, one consumer: what the later of the two publishes carries what the earlier wrote.
fn every_element_of_two_producers_comes_out_once<S: Concurrent + 'static>(capacity: usize) {
    model(3, move || {
        let ring = Arc::new(AnyRing::<u32, S>::new(capacity).unwrap());
        let producers = [1, 2].map(|value| {
            let ring = ring.clone();
            thread::spawn(move || assert_eq!(ring.push_burst(&[value]), 1))
        });
        let mut values = [0; 2];
        let mut count = ring.pop_burst(&mut values);
        for producer in producers {
            producer.join().unwrap();
        }
        count += ring.pop_burst(&mut values[count..]);
        assert_eq!(count, 2);
        values.sort_unstable();
        assert_eq!(values, [1, 2]);
    });
}

/// Two consumers, one producer that needs the slots back.
fn two_consumers_share_the_elements_and_give_slots_back<S: Concurrent + 'static>(capacity: usize) {
    model(3, move || {
        let ring = Arc::new(AnyRing::<u32, S>::new(capacity).unwrap());
        let first: Vec<u32> = (0..capacity as u32).collect();
        assert!(ring.push_bulk(&first));
        let consumers = [(); 2].map(|()| {
            let ring = ring.clone();
            thread::spawn(move || {
                let mut value = [0];
                assert_eq!(ring.pop_burst(&mut value), 1);
                value[0]
            })
        });
        let pushed = ring.push_burst(&[100, 101]);
        let mut values = consumers.map(|consumer| consumer.join().unwrap());
        values.sort_unstable();
        assert_eq!(values, [0, 1]);
        let mut rest = vec![0; capacity];
        assert_eq!(ring.pop_burst(&mut rest), capacity - 2 + pushed);
        assert_eq!(rest[..capacity - 2], first[2..]);
        assert_eq!(rest[capacity - 2..capacity - 2 + pushed], [100, 101][..pushed]);
    });
}

/// A producer that is still at work while two consumers look: one may go by what the other saw.
fn a_consumer_may_trust_what_another_saw<S: Concurrent + 'static>(capacity: usize) {
    model(3, move || {
        let ring = Arc::new(AnyRing::<u32, S>::new(capacity).unwrap());
        let producer = thread::spawn({
            let ring = ring.clone();
            move || assert!(ring.push_bulk(&[1, 2]))
        });
        let consumer = thread::spawn({
            let ring = ring.clone();
            move || {
                let mut value = [0];
                (ring.pop_burst(&mut value) == 1).then_some(value[0])
            }
        });
        let mut value = [0];
        let here = (ring.pop_burst(&mut value) == 1).then_some(value[0]);
        let there = consumer.join().unwrap();
        producer.join().unwrap();
        assert!(here.is_none() || here != there, "both took {here:?}");
        let mut rest = [0; 2];
        let count = ring.pop_burst(&mut rest);
        assert_eq!(count + usize::from(here.is_some()) + usize::from(there.is_some()), 2);
    });
}

/// As in a pool: who has taken an element out can always put it back, because the ring has space for all.
fn what_came_out_always_fits_in_again<S: Concurrent + 'static>() {
    model(3, || {
        let ring = Arc::new(AnyRing::<u32, S>::new(2).unwrap());
        assert!(ring.push_bulk(&[1, 2]));
        let circulate = |ring: &AnyRing<u32, S>| {
            let mut value = [0];
            if ring.pop_burst(&mut value) == 1 {
                assert!(ring.push_bulk(&value), "no space for {}", value[0]);
            }
        };
        let other = thread::spawn({
            let ring = ring.clone();
            move || circulate(&ring)
        });
        circulate(&ring);
        circulate(&ring);
        other.join().unwrap();
        let mut values = [0; 2];
        assert!(ring.pop_bulk(&mut values));
        values.sort_unstable();
        assert_eq!(values, [1, 2]);
    });
}

/// The models that every kind of side has to pass: its name, and the capacity of the rings, the last model's apart.
macro_rules! models_of_any_side {
    ($side:ty, $capacity:expr, $last:expr) => {
        #[test]
        fn every_element_of_two_producers_comes_out_once() {
            super::every_element_of_two_producers_comes_out_once::<$side>($capacity);
        }

        #[test]
        fn two_consumers_share_the_elements_and_give_slots_back() {
            super::two_consumers_share_the_elements_and_give_slots_back::<$side>($capacity);
        }

        #[test]
        fn a_consumer_may_trust_what_another_saw() {
            super::a_consumer_may_trust_what_another_saw::<$side>($last);
        }
    };
}

mod queued {
    use super::*;

    models_of_any_side!(Queued, 2, 2);

    #[test]
    fn what_came_out_always_fits_in_again() {
        super::what_came_out_always_fits_in_again::<Queued>();
    }

    /// A thread that had to wait marks the side as crowded, and those after it wait before they reserve.
    #[test]
    fn a_crowd_gets_through() {
        model(2, || {
            let ring = Arc::new(Ring::<u32>::new(4).unwrap());
            let producers = [1, 3].map(|value| {
                let ring = ring.clone();
                thread::spawn(move || {
                    assert!(ring.push_bulk(&[value]));
                    assert!(ring.push_bulk(&[value + 1]));
                })
            });
            for producer in producers {
                producer.join().unwrap();
            }
            let mut values = [0; 4];
            assert!(ring.pop_bulk(&mut values));
            let index = |value| values.iter().position(|&other| other == value);
            assert!(index(1) < index(2) && index(3) < index(4), "{values:?}");
            values.sort_unstable();
            assert_eq!(values, [1, 2, 3, 4]);
        });
    }

    /// The other saw too little for itself and took nothing, so that only the hint carries it along.
    #[test]
    fn a_consumer_may_trust_the_hint_of_one_who_took_nothing() {
        model(3, || {
            let ring = Arc::new(Ring::<u32>::new(2).unwrap());
            let looker = thread::spawn({
                let ring = ring.clone();
                move || assert!(!ring.pop_bulk(&mut [0; 2]))
            });
            let consumer = thread::spawn({
                let ring = ring.clone();
                move || {
                    let mut value = [0];
                    let count = ring.pop_burst(&mut value);
                    assert_eq!(value, [7 * count as u32]);
                    count
                }
            });
            assert!(ring.push_bulk(&[7]));
            looker.join().unwrap();
            let count = consumer.join().unwrap();
            assert_eq!(count + ring.len(), 1);
        });
    }
}

mod head_tail {
    use super::*;

    models_of_any_side!(HeadTail, 2, 2);

    #[test]
    fn what_came_out_always_fits_in_again() {
        super::what_came_out_always_fits_in_again::<HeadTail>();
    }

    /// The next one writes to the same slots.
    #[test]
    fn slots_that_are_put_back_are_free_for_others() {
        model(3, || {
            let ring = Arc::new(HtsRing::<u32>::new(1).unwrap());
            let other = thread::spawn({
                let ring = ring.clone();
                move || {
                    let mut reservation = ring.reserve_bulk(1).unwrap();
                    reservation.write(0, &[1]);
                    drop(reservation);
                }
            });
            let third = thread::spawn({
                let ring = ring.clone();
                move || ring.reserve_bulk(1).map(|mut reservation| reservation.write(0, &[2])).is_some()
            });
            let mut value = [0];
            assert_eq!(ring.pop_burst(&mut value), 0);
            other.join().unwrap();
            assert!(third.join().unwrap());
            assert!(ring.push_bulk(&[3]));
            let peek = ring.peek_bulk(1).unwrap();
            peek.read(0, &mut value);
            assert_eq!(value, [3]);
            drop(peek);
            assert_eq!(ring.len(), 1);
        });
    }
}

mod relaxed_tail {
    use super::*;

    models_of_any_side!(RelaxedTail, 8, 16);

    /// Three at work at once: the tail must not move for those who are done while one in between is not.
    #[test]
    fn one_who_is_late_holds_the_tail_back() {
        three_producers(16);
    }

    /// The same where each but the first waits for the one before: the head may not be further ahead.
    #[test]
    fn who_is_too_far_ahead_waits() {
        three_producers(8);
    }

    fn three_producers(capacity: usize) {
        model(2, move || {
            let ring = Arc::new(RtsRing::<u32>::new(capacity).unwrap());
            let producers = [1, 2].map(|value| {
                let ring = ring.clone();
                thread::spawn(move || assert_eq!(ring.push_burst(&[value]), 1))
            });
            assert!(ring.push_bulk(&[3]));
            let mut values = [0; 3];
            let mut count = ring.pop_burst(&mut values);
            for producer in producers {
                producer.join().unwrap();
            }
            count += ring.pop_burst(&mut values[count..]);
            assert_eq!(count, 3);
            values.sort_unstable();
            assert_eq!(values, [1, 2, 3]);
        });
    }
}

#[test]
fn mpsc_two_producers_and_their_leaving() {
    model(3, || {
        let (mut producer, mut consumer) = mpsc::ring::<u32>(2).unwrap();
        let mut clone = producer.clone();
        let senders = [
            thread::spawn(move || assert!(producer.push_bulk(&[1]))),
            thread::spawn(move || assert!(clone.push_bulk(&[2]))),
        ];
        let mut values = [0; 2];
        let gone = consumer.is_disconnected();
        let mut count = consumer.pop_burst(&mut values);
        assert!(!gone || count == 2, "the last elements come in before the end is seen");
        for sender in senders {
            sender.join().unwrap();
        }
        count += consumer.pop_burst(&mut values[count..]);
        assert_eq!(count, 2);
        values.sort_unstable();
        assert_eq!(values, [1, 2]);
    });
}

#[test]
fn zero_copy_what_is_committed_is_there_and_what_is_released_is_free() {
    model(4, || {
        let (mut producer, mut consumer) = spsc::ring::<u32>(2).unwrap();
        let sender = thread::spawn(move || {
            let mut sent = 0;
            for _ in 0..3 {
                if let Some(mut reservation) = producer.reserve_burst(2) {
                    let count = reservation.count();
                    reservation.write(0, &[sent + 1, sent + 2][..count]);
                    // Of two, the second is given back.
                    reservation.commit_first(1);
                    sent += 1;
                }
            }
            sent
        });
        let mut received = 0;
        let mut take = |consumer: &mut spsc::Consumer<u32>| {
            let Some(peek) = consumer.peek_burst(2) else { return false };
            let mut values = [0; 2];
            peek.read(0, &mut values);
            for &value in &values[..peek.count()] {
                received += 1;
                assert_eq!(value, received);
            }
            peek.release();
            true
        };
        take(&mut consumer);
        take(&mut consumer);
        let sent = sender.join().unwrap();
        while take(&mut consumer) {}
        assert_eq!(received, sent);
    });
}
