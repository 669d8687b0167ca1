//! Model checking: loom runs each model below through all interleavings, and all values that the memory model lets
//! a load return, up to a number of preemptions.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p warmlane-sync --release --test loom
//! ```
//!
//! `LOOM_MAX_PREEMPTIONS` is 3, or 4 where there are few threads, as each model says; setting it overrides them.
//! All together take about ten seconds.
//!
//! The models can fail. Each of these changes to the code was made once, alone, and turned at least one model red:
//!
//! | changed | what loom found |
//! |---|---|
//! | `spin` A1 or R1 relaxed | two threads in the section |
//! | `spsc` A1 or R1 relaxed | an element read before it is written |
//! | `spsc` A2 or R2 relaxed | a slot overwritten while it is read |
//! | `spsc` A3 or R3 relaxed | the end seen before the last element |
//! | `spsc` A4 or R4 relaxed | the consumer gone, what it did before not yet seen |
//! | `mpmc` A1 or R1 relaxed | an element read before it is written, a slot overwritten while it is read |
//! | `mpmc` A2 relaxed | a slot touched whose publication went through another thread |
//! | `mpmc` A3 (load or failed exchange) or R3 relaxed | no room for an element that had just come out |
//! | `mpmc` A4 or R4 relaxed | an element read before it is written, on the strength of a hint |
//! | `mpmc` publishing without waiting | elements lost, a slot read before it is written |
//! | `index_stack` A1 (load or failed exchange) or R1 relaxed | memory touched before its former owner is done |
//! | `index_stack` tag not advanced | the same number with two owners |
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use warmlane_sync::index_stack::IndexStack;
use warmlane_sync::mpmc::Ring;
use warmlane_sync::spin::SpinLock;
use warmlane_sync::spsc;

/// Runs `body` through its interleavings with up to `preemptions` preemptions (`LOOM_MAX_PREEMPTIONS` overrides).
fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.check(body);
}

/// Memory that belongs to whoever has its number; loom reports two who touch it without an order between them.
struct Owned(UnsafeCell<u32>);

// SAFETY: the point of the tests: loom checks each access.
unsafe impl Sync for Owned {}
// SAFETY: an integer.
unsafe impl Send for Owned {}

impl Owned {
    fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    fn touch(&self) -> u32 {
        // SAFETY: loom checks that nobody else has access.
        self.0.with_mut(|value| unsafe {
            *value += 1;
            *value
        })
    }
}

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
#[test]
fn mpmc_every_element_of_two_producers_comes_out_once() {
    model(3, || {
        let ring = Arc::new(Ring::<u32>::new(2).unwrap());
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
#[test]
fn mpmc_two_consumers_share_the_elements_and_give_slots_back() {
    model(3, || {
        let ring = Arc::new(Ring::<u32>::new(2).unwrap());
        assert!(ring.push_bulk(&[1, 2]));
        let consumers = [(); 2].map(|()| {
            let ring = ring.clone();
            thread::spawn(move || {
                let mut value = [0];
                assert_eq!(ring.pop_burst(&mut value), 1);
                value[0]
            })
        });
        let pushed = ring.push_burst(&[3, 4]);
        let mut values = consumers.map(|consumer| consumer.join().unwrap());
        values.sort_unstable();
        assert_eq!(values, [1, 2]);
        let mut rest = [0; 2];
        assert_eq!(ring.pop_burst(&mut rest), pushed);
        assert_eq!(rest[..pushed], [3, 4][..pushed]);
    });
}

/// A producer that is still at work while two consumers look: one may go by what the other saw.
#[test]
fn mpmc_a_consumer_may_trust_what_another_saw() {
    model(3, || {
        let ring = Arc::new(Ring::<u32>::new(2).unwrap());
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

/// The same when the other saw too little for itself and took nothing, so that only the hint carries it along.
#[test]
fn mpmc_a_consumer_may_trust_the_hint_of_one_who_took_nothing() {
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

/// As in a pool: who has taken an element out can always put it back, because the ring has room for all.
#[test]
fn mpmc_what_came_out_always_fits_in_again() {
    model(3, || {
        let ring = Arc::new(Ring::<u32>::new(2).unwrap());
        assert!(ring.push_bulk(&[1, 2]));
        let circulate = |ring: &Ring<u32>| {
            let mut value = [0];
            if ring.pop_burst(&mut value) == 1 {
                assert!(ring.push_bulk(&value), "no room for {}", value[0]);
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

/// What belongs to a number changes hands with it, also through other threads' pushes and pops on top of it.
#[test]
fn index_stack_memory_changes_hands_with_its_number() {
    model(3, || {
        let stack = Arc::new(IndexStack::new(2));
        let owned = Arc::new([Owned::new(), Owned::new()]);
        let pushers = [0, 1].map(|index| {
            let (stack, owned) = (stack.clone(), owned.clone());
            thread::spawn(move || {
                owned[index as usize].touch();
                stack.push(index).unwrap();
            })
        });
        let mut seen = [false; 2];
        let mut pop = || {
            let popped = stack.pop();
            if let Some(index) = popped {
                assert_eq!(owned[index as usize].touch(), 2);
                assert!(!std::mem::replace(&mut seen[index as usize], true), "{index} came twice");
            }
            popped
        };
        pop();
        pop();
        for pusher in pushers {
            pusher.join().unwrap();
        }
        while pop().is_some() {}
        assert_eq!(seen, [true, true]);
    });
}

/// The classic: one thread is about to take the top off when another takes two and puts the first back.
#[test]
fn index_stack_is_not_fooled_by_a_number_that_came_back() {
    model(4, || {
        let stack = Arc::new(IndexStack::new(3));
        let owned = Arc::new([Owned::new(), Owned::new(), Owned::new()]);
        for index in [2, 1, 0] {
            stack.push(index).unwrap();
        }
        let other = thread::spawn({
            let (stack, owned) = (stack.clone(), owned.clone());
            move || {
                let first = stack.pop();
                let second = stack.pop();
                if let Some(first) = first {
                    owned[first as usize].touch();
                    stack.push(first).unwrap();
                }
                second.inspect(|&second| {
                    owned[second as usize].touch();
                })
            }
        });
        let mut held = [false; 3];
        let mut hold = |index: Option<u32>| {
            if let Some(index) = index {
                owned[index as usize].touch();
                assert!(!std::mem::replace(&mut held[index as usize], true), "two have {index}");
            }
        };
        hold(stack.pop());
        hold(stack.pop());
        hold(other.join().unwrap());
        loop {
            let index = stack.pop();
            hold(index);
            if index.is_none() {
                break;
            }
        }
        assert_eq!(held, [true; 3]);
    });
}

#[test]
fn index_stack_counts_at_rest() {
    model(3, || {
        let stack = Arc::new(IndexStack::new(2));
        stack.push(0).unwrap();
        let other = thread::spawn({
            let stack = stack.clone();
            move || stack.push(1).unwrap()
        });
        assert!((1..=2).contains(&stack.len_estimate()));
        other.join().unwrap();
        assert_eq!(stack.len_estimate(), 2);
    });
}

#[test]
fn spin_lock_lets_in_one_at_a_time() {
    model(4, || {
        let lock = Arc::new(SpinLock::new(0_u32));
        let other = thread::spawn({
            let lock = lock.clone();
            move || *lock.lock() += 1
        });
        let tried = lock.try_lock().map_or(0, |mut value| {
            *value += 1;
            1
        });
        *lock.lock() += 1;
        other.join().unwrap();
        assert_eq!(*lock.lock(), 2 + tried);
    });
}
