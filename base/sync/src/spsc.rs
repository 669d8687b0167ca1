//! A ring from one thread to another: one producer, one consumer.
//!
//! Lamport's queue ("Specifying Concurrent Program Modules", TOPLAS 5(2), 1983): each side owns one position and
//! reads the other's. Each keeps the other's position as it last saw it and looks again only when that is not
//! enough, so that a side that is ahead does not touch the other's line at all (the idea is MCRingBuffer's;
//! Maffione et al. compare it with its rivals in "Cache-aware design of general-purpose Single-Producer-Single-
//! Consumer queues", Software: Practice and Experience 49(5), 2019).
//!
//! Two edges order it: **write** (R1 to A1) hands filled slots to the consumer, **read** (R2 to A2) hands emptied
//! slots back to the producer.
//!
//! Elements are `Copy`: a ring that is dropped with elements inside has nothing to drop. What an element stands
//! for (a buffer, say) is its owner's to drain.

use crate::padded::CachePadded;
use crate::primitive::{Arc, AtomicBool, AtomicU64, Ordering};
use crate::ring::RingError;
use crate::slots::Slots;
use std::fmt;

/// Makes a ring for up to `capacity` elements, a power of two.
///
/// ```
/// let (mut producer, mut consumer) = warmlane_sync::spsc::ring(4)?;
/// assert_eq!(producer.push_burst(&[1, 2, 3, 4, 5]), 4);
/// let mut values = [0; 2];
/// assert!(consumer.pop_bulk(&mut values));
/// assert_eq!((values, consumer.len()), ([1, 2], 2));
/// # Ok::<(), warmlane_sync::ring::RingError>(())
/// ```
///
/// # Errors
/// [`RingError`], if the capacity is zero, not a power of two, too large, or no memory can be had for it.
pub fn ring<T: Copy>(capacity: usize) -> Result<(Producer<T>, Consumer<T>), RingError> {
    let shared = Arc::new(Shared {
        written: CachePadded::new(Side::new()),
        read: CachePadded::new(Side::new()),
        slots: Slots::new(capacity)?,
    });
    let producer = Producer {
        local: CachePadded::new(Local { position: 0, limit: capacity as u64 }),
        shared: Arc::clone(&shared),
    };
    Ok((producer, Consumer { local: CachePadded::new(Local { position: 0, limit: 0 }), shared }))
}

struct Shared<T> {
    /// Written by the producer: elements put in since the start.
    written: CachePadded<Side>,
    /// Written by the consumer: elements taken out since the start.
    read: CachePadded<Side>,
    /// Those from `read` to `written` belong to the consumer, the others to the producer.
    slots: Slots<T>,
}

/// What one end tells the other.
struct Side {
    position: AtomicU64,
    gone: AtomicBool,
}

impl Side {
    fn new() -> Self {
        Self { position: AtomicU64::new(0), gone: AtomicBool::new(false) }
    }
}

// SAFETY: the slots are the only part that is not Sync by itself. A slot is touched by the producer while it is
// outside read..written and by the consumer while it is inside, and each hands it over by a release store of its
// position that the other acquires; there is one of each, because they are not Clone and take `&mut self`.
// Elements move from thread to thread: hence T: Send.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: nothing in here is tied to a thread but the elements.
unsafe impl<T: Send> Send for Shared<T> {}

/// What one end knows, on lines that no other lane writes to even if both ends lie in one array.
struct Local {
    /// The own position; the shared one is only a copy for the other end.
    position: u64,
    /// How far it may go, as last seen.
    limit: u64,
}

impl Local {
    #[inline(always)]
    fn room(&self) -> u64 {
        self.limit - self.position
    }
}

/// The end that puts elements in. It can move to another thread, but there is only one.
pub struct Producer<T> {
    local: CachePadded<Local>,
    shared: Arc<Shared<T>>,
}

impl<T: Copy> Producer<T> {
    /// Puts in all of `values` or, if there is not room for all, none. `true`: they are in.
    #[inline]
    #[must_use = "the values are not in the ring if this is false"]
    pub fn push_bulk(&mut self, values: &[T]) -> bool {
        let fits = self.room_for(values.len()) == values.len();
        if fits {
            self.push_front(values, values.len());
        }
        fits
    }

    /// Puts in `values` from the front, as many as there is room for; returns how many.
    #[inline]
    #[must_use = "only so many of the values are in the ring"]
    pub fn push_burst(&mut self, values: &[T]) -> usize {
        let count = self.room_for(values.len());
        self.push_front(values, count);
        count
    }

    /// Room, up to `wanted`.
    #[inline(always)]
    fn room_for(&mut self, wanted: usize) -> usize {
        if self.local.room() < wanted as u64 {
            // A2: acquire, pairs with R2. Without it the new elements could overwrite slots that the consumer
            // is still copying from.
            let read = self.shared.read.position.load(Ordering::Acquire);
            self.local.limit = read + self.capacity() as u64;
        }
        wanted.min(self.local.room() as usize)
    }

    #[inline(always)]
    fn push_front(&mut self, values: &[T], count: usize) {
        // A store of nothing new would still take the line away from the consumer.
        if count == 0 {
            return;
        }
        let position = self.local.position;
        // SAFETY: `count` is at most values.len() and the room, which `room_for` said, so that these slots lie outside
        // read..written and are the producer's alone.
        unsafe { self.shared.slots.write(position, values.get_unchecked(..count)) };
        self.local.position = position + count as u64;
        // R1: release, pairs with A1. Without it the consumer could see the position before the elements.
        self.shared.written.position.store(self.local.position, Ordering::Release);
    }

    /// Elements inside. The consumer may have taken more out by the time this returns.
    pub fn len(&self) -> usize {
        self.capacity() - self.free()
    }

    /// Whether the ring is empty: the consumer has taken out all that was put in.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements that there is room for, at least: the consumer only makes more.
    pub fn free(&self) -> usize {
        // Relaxed: no slot is touched on the strength of this.
        let read = self.shared.read.position.load(Ordering::Relaxed);
        self.capacity() - (self.local.position - read) as usize
    }

    /// Elements that the ring holds at most.
    #[inline(always)]
    pub fn capacity(&self) -> usize {
        self.shared.slots.capacity()
    }

    /// Whether the consumer is gone, so that nobody will ever take anything out.
    pub fn is_disconnected(&self) -> bool {
        // A4: acquire, pairs with R4 in the consumer's drop: its last reads of the ring come before what is done
        // here because of them.
        self.shared.read.gone.load(Ordering::Acquire)
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        // R3: release, pairs with A3. Without it the consumer could see the end before the last elements.
        self.shared.written.gone.store(true, Ordering::Release);
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("position", &self.local.position).finish_non_exhaustive()
    }
}

/// The end that takes elements out, in the order in which they were put in. It can move to another thread, but
/// there is only one.
pub struct Consumer<T> {
    local: CachePadded<Local>,
    shared: Arc<Shared<T>>,
}

impl<T: Copy> Consumer<T> {
    /// Fills all of `values` or, if there are not enough elements, leaves it alone. `true`: it is filled.
    #[inline]
    #[must_use = "the values are not filled if this is false"]
    pub fn pop_bulk(&mut self, values: &mut [T]) -> bool {
        let enough = self.available(values.len()) == values.len();
        if enough {
            self.pop_front(values, values.len());
        }
        enough
    }

    /// Fills `values` from the front, with as many elements as there are; returns how many.
    #[inline]
    #[must_use = "only so many of the values are filled"]
    pub fn pop_burst(&mut self, values: &mut [T]) -> usize {
        let count = self.available(values.len());
        self.pop_front(values, count);
        count
    }

    /// Elements inside, up to `wanted`.
    #[inline(always)]
    fn available(&mut self, wanted: usize) -> usize {
        if self.local.room() < wanted as u64 {
            // A1: acquire, pairs with R1. Without it the elements could be read before they are there.
            self.local.limit = self.shared.written.position.load(Ordering::Acquire);
        }
        wanted.min(self.local.room() as usize)
    }

    #[inline(always)]
    fn pop_front(&mut self, values: &mut [T], count: usize) {
        // A store of nothing new would still take the line away from the producer.
        if count == 0 {
            return;
        }
        let position = self.local.position;
        // SAFETY: `count` is at most values.len() and what `available` said, so that these slots lie inside
        // read..written: they hold elements and are the consumer's alone.
        unsafe { self.shared.slots.read(position, values.get_unchecked_mut(..count)) };
        self.local.position = position + count as u64;
        // R2: release, pairs with A2. Without it the producer could reuse the slots before they are copied.
        self.shared.read.position.store(self.local.position, Ordering::Release);
    }

    /// Elements inside, at least: the producer only adds.
    pub fn len(&self) -> usize {
        // Relaxed: no slot is touched on the strength of this.
        (self.shared.written.position.load(Ordering::Relaxed) - self.local.position) as usize
    }

    /// Whether there is nothing to take out.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements that there is room for. The producer may have put more in by the time this returns.
    pub fn free(&self) -> usize {
        self.capacity() - self.len()
    }

    /// Elements that the ring holds at most.
    #[inline(always)]
    pub fn capacity(&self) -> usize {
        self.shared.slots.capacity()
    }

    /// Whether the producer is gone. What it put in can still be taken out: when this is `true` and `pop_burst`
    /// *then* finds nothing (or `is_empty` *then* says so), nothing will ever come. Asked the other way round,
    /// the last elements may come in between and be lost.
    pub fn is_disconnected(&self) -> bool {
        // A3: acquire, pairs with R3. See there.
        self.shared.written.gone.load(Ordering::Acquire)
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        // R4: release, pairs with A4.
        self.shared.read.gone.store(true, Ordering::Release);
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("position", &self.local.position).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bulk_is_all_or_none_and_burst_what_fits() {
        let (mut producer, mut consumer) = ring(4).unwrap();
        assert!(producer.push_bulk(&[1, 2, 3]));
        assert!(!producer.push_bulk(&[4, 5]));
        assert!(!producer.push_bulk(&[0; 5]));
        assert_eq!((producer.len(), producer.free()), (3, 1));
        assert_eq!(producer.push_burst(&[4, 5]), 1);
        assert_eq!(producer.push_burst(&[5]), 0);
        let mut values = [0; 5];
        assert!(!consumer.pop_bulk(&mut values));
        assert_eq!(values, [0; 5]);
        assert_eq!(consumer.pop_burst(&mut values), 4);
        assert_eq!(values, [1, 2, 3, 4, 0]);
        assert_eq!(consumer.pop_burst(&mut values), 0);
        assert!(consumer.is_empty() && producer.is_empty());
        assert!(producer.push_bulk(&[]) && consumer.pop_bulk(&mut []));
    }

    #[test]
    fn what_is_inside_outlives_the_producer() {
        let (mut producer, mut consumer) = ring(2).unwrap();
        assert!(producer.push_bulk(&[1]));
        assert!(!consumer.is_disconnected() && !producer.is_disconnected());
        drop(producer);
        assert!(consumer.is_disconnected());
        let mut value = [0];
        assert!(consumer.pop_bulk(&mut value));
        assert_eq!((value, consumer.len()), ([1], 0));
        let (producer, consumer) = ring::<u8>(2).unwrap();
        drop(consumer);
        assert!(producer.is_disconnected());
    }

    #[test]
    fn elements_of_no_size_are_counted() {
        let (mut producer, mut consumer) = ring::<()>(4).unwrap();
        assert_eq!(producer.push_burst(&[(); 9]), 4);
        assert_eq!(consumer.pop_burst(&mut [(); 3]), 3);
        assert_eq!(consumer.len(), 1);
    }
}
