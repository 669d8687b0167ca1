//! Control messages from one lane to another.

use crate::padded::CachePadded;
use crate::primitive::{Arc, AtomicU64, Ordering, UnsafeCell, fence};
use crate::ring::{self, RingError};
use std::fmt;
use std::mem::MaybeUninit;

/// Makes a mailbox with space for `capacity` messages, a power of two.
///
/// Neither end ever waits. A message is owned: it is dropped exactly once, by who receives it, or with the mailbox if
/// nobody does. Looking into an empty one is a relaxed load of a line that only the sender writes, and only when it
/// sends: a lane can afford that on every turn. Several senders have a mailbox each.
///
/// ```
/// use warmlane_sync::mailbox::{ReceiveError, mailbox};
///
/// let (mut sender, mut receiver) = mailbox::<String>(2)?;
/// sender.send("add port 3".to_owned())?;
/// assert_eq!(receiver.receive()?, "add port 3");
/// assert_eq!(receiver.receive(), Err(ReceiveError::Empty));
/// drop(sender);
/// assert_eq!(receiver.receive(), Err(ReceiveError::Disconnected));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`RingError`], if the capacity is zero, not a power of two, too large, or no memory can be had for it.
pub fn mailbox<T: Send>(capacity: usize) -> Result<(Sender<T>, Receiver<T>), RingError> {
    let shared = Arc::new(Shared {
        sent: CachePadded::new(AtomicU64::new(0)),
        received: CachePadded::new(AtomicU64::new(0)),
        slots: slots(capacity)?,
    });
    Ok((Sender { sent: 0, shared: Arc::clone(&shared) }, Receiver { received: 0, shared }))
}

fn slots<T>(capacity: usize) -> Result<Box<[Slot<T>]>, RingError> {
    ring::check(capacity)?;
    let mut slots = Vec::new();
    slots
        .try_reserve_exact(capacity)
        .map_err(|_| RingError::OutOfMemory { capacity, element_bytes: size_of::<Slot<T>>() })?;
    slots.resize_with(capacity, || UnsafeCell::new(MaybeUninit::uninit()));
    Ok(slots.into_boxed_slice())
}

type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// The end is gone; in the top bit of its count, which doesn't get there.
const GONE: u64 = 1 << 63;

struct Shared<T> {
    /// Written by the sender: how many messages it has put in, and `GONE`.
    sent: CachePadded<AtomicU64>,
    /// Written by the receiver: how many messages it has taken out, and `GONE`.
    received: CachePadded<AtomicU64>,
    /// Those from `received` to `sent` hold a message and belong to the receiver, the others to the sender.
    slots: Box<[Slot<T>]>,
}

// SAFETY: the slots are the only part that is not Sync by itself. One is touched by the sender while it is outside
// received..sent and by the receiver while it is inside, and each hands it over by a release store of its count that
// the other acquires; there is one of each, because they are not Clone and take `&mut self`. Messages move from
// thread to thread: hence T: Send.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: nothing in here is tied to a thread but the messages.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    #[inline(always)]
    fn slot(&self, number: u64) -> &Slot<T> {
        // The length is a power of two.
        &self.slots[number as usize & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // Relaxed: both ends are gone, and the reference count has ordered all they did before this.
        let sent = self.sent.load(Ordering::Relaxed) & !GONE;
        let received = self.received.load(Ordering::Relaxed) & !GONE;
        for number in received..sent {
            // SAFETY: from `received` to `sent` slots hold messages, and nobody else has them.
            self.slot(number).with_mut(|slot| unsafe { (*slot).assume_init_drop() });
        }
    }
}

/// The end that puts messages in. It can move to another thread, but there is only one.
pub struct Sender<T: Send> {
    sent: u64,
    shared: Arc<Shared<T>>,
}

impl<T: Send> Sender<T> {
    /// Puts a message in. Never waits.
    ///
    /// # Errors
    /// [`SendError`] with the message, if there is no space or the receiver is gone. If it leaves later, messages inside
    /// are dropped.
    pub fn send(&mut self, message: T) -> Result<(), SendError<T>> {
        // A2: acquire, pairs with R2. Without it the message could overwrite one that the receiver still copies.
        let received = self.shared.received.load(Ordering::Acquire);
        if received & GONE != 0 {
            return Err(SendError::Disconnected { message });
        }
        if self.sent - received == self.shared.slots.len() as u64 {
            return Err(SendError::Full { message, capacity: self.shared.slots.len() });
        }
        // SAFETY: the slot is outside received..sent: it holds nothing and is the sender's alone.
        self.shared.slot(self.sent).with_mut(|slot| unsafe { (*slot).write(message) });
        self.sent += 1;
        // R1: release, pairs with A1. Without it the receiver could see the count before the message.
        self.shared.sent.store(self.sent, Ordering::Release);
        Ok(())
    }

    /// Whether the receiver is gone, so that nobody will ever take anything out.
    pub fn is_disconnected(&self) -> bool {
        // A4: acquire, pairs with R4 in the receiver's drop: what it did with the messages comes before what is done here
        // because of its leaving.
        self.shared.received.load(Ordering::Acquire) & GONE != 0
    }

    /// Messages that there is space for.
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }
}

impl<T: Send> Drop for Sender<T> {
    fn drop(&mut self) {
        // R3: release, pairs with A1 and A3: the end comes after all that the sender did. It stores the count again,
        // and a plain store ends R1's release sequence, so without it the last message could be seen before it is there.
        self.shared.sent.store(self.sent | GONE, Ordering::Release);
    }
}

impl<T: Send> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("sent", &self.sent).finish_non_exhaustive()
    }
}

/// The end that takes messages out, in the order in which they were put in. It can move to another thread, but there is
/// only one.
pub struct Receiver<T: Send> {
    received: u64,
    shared: Arc<Shared<T>>,
}

impl<T: Send> Receiver<T> {
    /// Takes a message out. Never waits.
    ///
    /// # Errors
    /// [`ReceiveError`], if there is none: for now, or ever.
    #[inline]
    pub fn receive(&mut self) -> Result<T, ReceiveError> {
        // Relaxed: most often there is nothing.
        let sent = self.shared.sent.load(Ordering::Relaxed);
        if sent == self.received { Err(ReceiveError::Empty) } else { self.take(sent) }
    }

    #[cold]
    fn take(&mut self, sent: u64) -> Result<T, ReceiveError> {
        // A1: an acquire fence, pairs with R1 and R3. Without it the message could be read before it is there.
        fence(Ordering::Acquire);
        if sent & !GONE == self.received {
            return Err(ReceiveError::Disconnected);
        }
        // SAFETY: the slot is inside received..sent: it holds a message, which moves out, since the count that goes up
        // below gives the slot back.
        let message = self.shared.slot(self.received).with(|slot| unsafe { (*slot).assume_init_read() });
        self.received += 1;
        // R2: release, pairs with A2. Without it the sender could reuse the slot before the message is copied.
        self.shared.received.store(self.received, Ordering::Release);
        Ok(message)
    }

    /// Whether nothing is inside now.
    pub fn is_empty(&self) -> bool {
        // Relaxed: nothing is read because of it, and `receive` orders what it takes.
        self.shared.sent.load(Ordering::Relaxed) & !GONE == self.received
    }

    /// Whether the sender is gone. What it put in can still be received.
    pub fn is_disconnected(&self) -> bool {
        // A3: acquire, pairs with R3.
        self.shared.sent.load(Ordering::Acquire) & GONE != 0
    }
}

impl<T: Send> Drop for Receiver<T> {
    fn drop(&mut self) {
        // What is there goes now, not when the sender does. What is sent meanwhile goes then: there may be no end of it.
        let sent = self.shared.sent.load(Ordering::Relaxed) & !GONE;
        while self.received != sent
            && let Ok(message) = self.receive()
        {
            drop(message);
        }
        // R4: release, pairs with A4; see there.
        self.shared.received.store(self.received | GONE, Ordering::Release);
    }
}

impl<T: Send> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("received", &self.received).finish_non_exhaustive()
    }
}

/// A message was not sent.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError<T> {
    /// The receiver has not come to look for a while.
    #[error("the mailbox holds {capacity} messages and is full; try again when the receiver has looked")]
    Full {
        /// What was to be sent.
        message: T,
        /// Messages that there is space for.
        capacity: usize,
    },
    /// Nobody will ever look.
    #[error("the mailbox has no receiver any more; its lane has ended")]
    Disconnected {
        /// What was to be sent.
        message: T,
    },
}

impl<T> SendError<T> {
    /// What was to be sent.
    pub fn into_message(self) -> T {
        match self {
            Self::Full { message, .. } | Self::Disconnected { message } => message,
        }
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full { .. } => "Full",
            Self::Disconnected { .. } => "Disconnected",
        })
    }
}

/// No message was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// There is none now.
    #[error("the mailbox is empty")]
    Empty,
    /// There will be none.
    #[error("the mailbox is empty and has no sender any more")]
    Disconnected,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc as Counter;

    #[test]
    fn messages_come_out_in_order_and_once() {
        let (mut sender, mut receiver) = mailbox(2).unwrap();
        for round in 0..3 {
            sender.send(Box::new(round)).unwrap();
            sender.send(Box::new(round + 10)).unwrap();
            let error = sender.send(Box::new(99)).unwrap_err();
            assert_eq!(error, SendError::Full { message: Box::new(99), capacity: sender.capacity() });
            assert_eq!(receiver.receive().map(|message| *message), Ok(round));
            assert_eq!(receiver.receive().map(|message| *message), Ok(round + 10));
            assert_eq!(receiver.receive(), Err(ReceiveError::Empty));
        }
    }

    #[test]
    fn a_capacity_that_cannot_be_is_refused() {
        assert_eq!(mailbox::<u8>(0).err(), Some(RingError::Zero));
        assert_eq!(mailbox::<u8>(3).err(), Some(RingError::NotPowerOfTwo { capacity: 3 }));
        assert_eq!(mailbox::<u8>(1 << 40).err(), Some(RingError::TooLarge { capacity: 1 << 40 }));
        // Miri has no end of memory.
        #[cfg(not(miri))]
        assert!(matches!(mailbox::<[u8; 1 << 18]>(1 << 30).err(), Some(RingError::OutOfMemory { .. })));
    }

    #[test]
    fn each_message_is_dropped_once_whoever_leaves_first() {
        let alive = Counter::new(());
        for sender_first in [true, false] {
            let (mut sender, mut receiver) = mailbox(4).unwrap();
            (0..3).for_each(|_| sender.send(Counter::clone(&alive)).unwrap());
            drop(receiver.receive());
            assert_eq!(Counter::strong_count(&alive), 3);
            if sender_first {
                drop(sender);
                assert!(receiver.is_disconnected());
                drop(receiver.receive().unwrap());
                assert_eq!(Counter::strong_count(&alive), 2);
                drop(receiver);
            } else {
                drop(receiver);
                assert_eq!(Counter::strong_count(&alive), 1, "at once");
                assert!(sender.is_disconnected());
                let error = sender.send(Counter::clone(&alive)).unwrap_err();
                assert!(error.to_string().contains("its lane has ended"), "{error}");
                assert!(matches!(error, SendError::Disconnected { .. }));
                drop(error.into_message());
            }
            assert_eq!(Counter::strong_count(&alive), 1);
        }
    }

    #[test]
    fn what_is_inside_outlives_the_sender_then_comes_the_end() {
        let (mut sender, mut receiver) = mailbox(1).unwrap();
        sender.send(7).unwrap();
        drop(sender);
        assert_eq!(receiver.receive(), Ok(7));
        assert_eq!(receiver.receive(), Err(ReceiveError::Disconnected));
    }
}
