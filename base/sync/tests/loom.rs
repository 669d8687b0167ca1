//! Model checking: loom runs each model below through all interleavings, and all values that the memory model lets
//! a load return, up to a number of preemptions.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p warmlane-sync --release --test loom
//! ```
//!
//! `LOOM_MAX_PREEMPTIONS` is 3, or 4 where there are few threads, as each model says; setting it overrides them.
//! The rings have theirs in `loom_rings.rs` and `loom_staged.rs`.
//!
//! That all these models can fail shows `cargo xtask mutate-orderings`: it weakens one ordering after the other and says which
//! test noticed.
#![cfg(loom)]

mod models;
#[path = "models/owned.rs"]
mod owned;

use loom::sync::Arc;
use loom::thread;
use models::model;
use owned::Owned;
use warmlane_sync::index_stack::IndexStack;
use warmlane_sync::spin::SpinLock;

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
