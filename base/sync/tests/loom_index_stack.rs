//! Model checking of the index stack's bulk ends; how to run it and what a model is, says `loom.rs`:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p warmlane-sync --release --test loom_index_stack
//! ```
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use warmlane_sync::index_stack::IndexStack;

/// Memory that belongs to whoever has its number; loom reports two who touch it without an order between them.
struct Owned(UnsafeCell<u32>);

// SAFETY: the point of the test: loom checks each access.
unsafe impl Sync for Owned {}
// SAFETY: an integer.
unsafe impl Send for Owned {}

impl Owned {
    fn touch(&self) -> u32 {
        // SAFETY: loom checks that nobody else has access.
        self.0.with_mut(|value| unsafe {
            *value += 1;
            *value
        })
    }
}

/// What belongs to numbers changes hands with them, many at a time, also through another thread's push on top.
#[test]
fn memory_changes_hands_with_many_numbers() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(|| {
        let stack = Arc::new(IndexStack::new(3));
        let owned = Arc::new([0, 1, 2].map(|_| Owned(UnsafeCell::new(0))));
        let pushers = [vec![0, 1], vec![2]].map(|numbers| {
            let (stack, owned) = (stack.clone(), owned.clone());
            thread::spawn(move || {
                for &number in &numbers {
                    owned[number as usize].touch();
                }
                stack.push_many(&numbers).unwrap();
            })
        });
        let mut seen = [false; 3];
        let mut pop = || {
            let mut numbers = [0; 2];
            let count = stack.pop_many(&mut numbers);
            for &number in &numbers[..count] {
                assert_eq!(owned[number as usize].touch(), 2);
                assert!(!std::mem::replace(&mut seen[number as usize], true), "{number} came twice");
            }
            count
        };
        pop();
        for pusher in pushers {
            pusher.join().unwrap();
        }
        while pop() > 0 {}
        assert_eq!(seen, [true; 3]);
    });
}
