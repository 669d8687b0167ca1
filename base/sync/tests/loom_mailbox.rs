//! Model checking of the mailbox; how to run it and what a model is, says `loom.rs`:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p warmlane-sync --release --test loom_mailbox
//! ```
#![cfg(loom)]

mod models;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use models::model;
use warmlane_sync::mailbox::{ReceiveError, mailbox};

/// A message with contents behind a pointer, and a count of drops.
struct Message {
    contents: Box<UnsafeCell<u32>>,
    drops: Arc<AtomicUsize>,
}

impl Message {
    fn new(number: u32, drops: &Arc<AtomicUsize>) -> Self {
        let contents = Box::new(UnsafeCell::new(0));
        // SAFETY: loom checks that nobody else has access.
        contents.with_mut(|contents| unsafe { *contents = number });
        Self { contents, drops: drops.clone() }
    }

    fn number(&self) -> u32 {
        // SAFETY: loom checks that nobody writes.
        self.contents.with(|contents| unsafe { *contents })
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: loom checks that nobody else has access.
        self.contents.with_mut(|contents| unsafe { *contents = 0 });
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn messages_come_out_in_order_and_whole() {
    model(4, || {
        let drops = Arc::new(AtomicUsize::new(0));
        let (mut sender, mut receiver) = mailbox::<Message>(1).unwrap();
        let thread = thread::spawn({
            let drops = drops.clone();
            move || {
                let mut sent = 0;
                for _ in 0..3 {
                    if sender.send(Message::new(sent + 1, &drops)).is_ok() {
                        sent += 1;
                    }
                }
                sent
            }
        });
        let mut received = 0;
        for _ in 0..2 {
            if let Ok(message) = receiver.receive() {
                received += 1;
                assert_eq!(message.number(), received);
            }
        }
        let sent = thread.join().unwrap();
        while let Ok(message) = receiver.receive() {
            received += 1;
            assert_eq!(message.number(), received);
        }
        assert_eq!(received, sent);
        assert_eq!(drops.load(Ordering::Relaxed), 3, "received or refused");
    });
}

#[test]
fn nothing_is_lost_when_the_sender_leaves() {
    model(4, || {
        let drops = Arc::new(AtomicUsize::new(0));
        let (mut sender, mut receiver) = mailbox::<Message>(1).unwrap();
        let thread = thread::spawn({
            let drops = drops.clone();
            move || assert!(sender.send(Message::new(1, &drops)).is_ok())
        });
        let result = receiver.receive();
        if receiver.is_disconnected() && result.is_err() {
            assert_eq!(receiver.receive().map(|message| message.number()).ok(), Some(1));
        }
        thread.join().unwrap();
        assert_ne!(result.err(), Some(ReceiveError::Disconnected));
        drop(receiver);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn each_message_is_dropped_once_when_the_receiver_leaves() {
    model(4, || {
        let drops = Arc::new(AtomicUsize::new(0));
        let (mut sender, receiver) = mailbox::<Message>(2).unwrap();
        sender.send(Message::new(1, &drops)).ok().unwrap();
        let thread = thread::spawn(move || drop(receiver));
        let refused = sender.send(Message::new(2, &drops)).is_err();
        if refused {
            assert!(sender.is_disconnected());
        }
        drop(sender);
        thread.join().unwrap();
        assert_eq!(drops.load(Ordering::Relaxed), 2);
    });
}

/// One end leaves; the other, which asks `is_disconnected`, does something because of it.
fn leaves<End: Send + 'static>(leaving: End, is_disconnected: impl FnOnce() -> bool) {
    let owned = Arc::new(UnsafeCell::new(0));
    let touch = |owned: &UnsafeCell<i32>| {
        // SAFETY: loom checks that nobody else has access.
        owned.with_mut(|value| unsafe { *value += 1 });
    };
    let owned_there = owned.clone();
    let thread = thread::spawn(move || {
        touch(&owned_there);
        drop(leaving);
    });
    if is_disconnected() {
        touch(&owned);
    }
    thread.join().unwrap();
}

/// What an end did last comes before what the other does because it has left.
#[test]
fn leaving_is_the_last_thing_an_end_does() {
    for sender_leaves in [true, false] {
        model(4, move || {
            let (sender, receiver) = mailbox::<u32>(1).unwrap();
            if sender_leaves {
                leaves(sender, || receiver.is_disconnected());
            } else {
                leaves(receiver, || sender.is_disconnected());
            }
        });
    }
}
