//! How the sender of a channel wakes a receiver that sleeps.
//!
//! The receiver says that it wants to be woken, looks once more, and sleeps. The sender publishes, then looks whether it is to
//! wake somebody. Each of them writes and then reads what the other writes, so one of them sees the other: either the receiver finds
//! the packets or the sender finds the wish. The barrier that this takes is the receiver's to pay
//! ([`warmlane_sys::barrier`]), for it is about to sleep; a sender pays a load.

use crate::primitive::{AtomicBool, Event, Ordering, heavy_barrier, light_barrier};
use std::sync::OnceLock;
use warmlane_sync::padded::CachePadded;

/// Shared by the two ends.
#[derive(Default)]
pub(crate) struct Doorbell {
    /// The receiver sleeps, or is about to. On a line of its own: senders read it after each burst.
    is_wanted: CachePadded<AtomicBool>,
    event: OnceLock<Event>,
}

impl Doorbell {
    /// Sender: call after publishing.
    #[inline(always)]
    pub(crate) fn ring(&self) {
        light_barrier();
        // Relaxed: the barriers order it, and nothing is read that the receiver wrote before.
        if self.is_wanted.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // Acquire: the event was made before the wish.
        if self.is_wanted.swap(false, Ordering::Acquire)
            && let Some(event) = self.event.get()
        {
            event.signal();
        }
    }

    /// Receiver: wishes to be woken by what is published from now on. What was published before it must look for, after this. `None`
    /// where that can't be had: then it mustn't sleep.
    pub(crate) fn wish(&self) -> Option<&Event> {
        let event = if let Some(event) = self.event.get() {
            event
        } else {
            let event = Event::new().ok()?;
            self.event.get_or_init(|| event)
        };
        // Of earlier wishes. What they told of is found by the look that follows.
        event.clear();
        // Release: whoever swaps it away finds the event.
        self.is_wanted.store(true, Ordering::Release);
        heavy_barrier().then_some(event)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitive::AtomicU32;
    use loom::sync::Arc;
    use loom::thread;

    /// A sender that publishes two things and a receiver that sleeps until both are there: if a signal could get lost, it would sleep
    /// for ever, which loom tells.
    #[test]
    fn no_signal_gets_lost() {
        loom::model(|| {
            let shared = Arc::new((Doorbell::default(), AtomicU32::new(0)));
            let sender = Arc::clone(&shared);
            let sending = thread::spawn(move || {
                for count in 1..=2 {
                    sender.1.store(count, Ordering::Release);
                    sender.0.ring();
                }
            });
            let (doorbell, published) = &*shared;
            while published.load(Ordering::Acquire) < 2 {
                let Some(event) = doorbell.wish() else { unreachable!("loom has barriers") };
                let before = published.load(Ordering::Acquire);
                if before < 2 {
                    event.wait();
                }
            }
            sending.join().unwrap();
        });
    }
}
