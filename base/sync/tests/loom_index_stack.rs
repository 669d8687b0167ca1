//! Model checking of the index stack's bulk ends; how to run it and what a model is, says `loom.rs`:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p warmlane-sync --release --test loom_index_stack
//! ```
#![cfg(loom)]

mod models;
#[path = "models/owned.rs"]
mod owned;

use loom::sync::Arc;
use loom::thread;
use models::model;
use owned::Owned;
use warmlane_sync::index_stack::IndexStack;

/// What belongs to numbers changes hands with them, many at a time, also through another thread's push on top.
#[test]
fn memory_changes_hands_with_many_numbers() {
    model(3, || {
        let stack = Arc::new(IndexStack::new(3));
        let owned = Arc::new([0, 1, 2].map(|_| Owned::new()));
        let push = |stack: &IndexStack, owned: &[Owned; 3], numbers: &[u32]| {
            for &number in numbers {
                owned[number as usize].touch();
            }
            stack.push_many(numbers).unwrap();
        };
        let pop = |stack: &IndexStack, owned: &[Owned; 3]| {
            let mut numbers = [0; 2];
            let count = stack.pop_many(&mut numbers);
            for &number in &numbers[..count] {
                assert_eq!(owned[number as usize].touch(), 2, "taken once, by one");
            }
            count
        };
        let popper = thread::spawn({
            let (stack, owned) = (stack.clone(), owned.clone());
            move || pop(&stack, &owned) + pop(&stack, &owned)
        });
        let pusher = thread::spawn({
            let (stack, owned) = (stack.clone(), owned.clone());
            move || push(&stack, &owned, &[2])
        });
        push(&stack, &owned, &[0, 1]);
        pusher.join().unwrap();
        let mut popped = popper.join().unwrap();
        popped += pop(&stack, &owned);
        popped += pop(&stack, &owned);
        assert_eq!(popped, 3);
    });
}
