//! A ring between any number of threads.
//!
//! The design of DPDK's rte_ring in its multi-producer, multi-consumer mode: a side reserves slots by moving its
//! *head*, copies, waits until those who reserved earlier are done, and publishes by moving its *tail*. Two things
//! differ. Each side keeps the other's tail as it last saw it beside its own head, and looks again only when that
//! is not enough. And head and tail lie on lines of their own, so that a consumer polling for the next tail does
//! not take the producers' head away.
//!
//! It is not lock-free: a thread that loses its CPU between reserving and publishing holds up those behind it on
//! its own side. They spin for a few microseconds and then yield their CPUs between looks.
//!
//! Four edges order it, each both ways round (the opposite side is the mirror image, in the same code):
//! **publish** (R1 to A1) hands slots to the other side; **queue up** (R1 to A2) carries the publications of those
//! before along, **head** (R3 to A3) and **hint** (R4 to A4) carry what was seen of the other side along.
//!
//! Elements are `Copy`: a ring that is dropped with elements inside has nothing to drop. What an element stands
//! for (a buffer, say) is its owner's to drain.

use crate::backoff::Backoff;
use crate::padded::CachePadded;
use crate::primitive::{AtomicU64, Ordering};
use crate::ring::RingError;
use crate::slots::Slots;
use std::fmt;

/// See the module. Share it by reference or in an `Arc`.
///
/// ```
/// let ring = warmlane_sync::mpmc::Ring::new(4)?;
/// assert_eq!(ring.push_burst(&[1, 2, 3, 4, 5]), 4);
/// let mut values = [0; 2];
/// assert!(ring.pop_bulk(&mut values));
/// assert_eq!((values, ring.len()), ([1, 2], 2));
/// # Ok::<(), warmlane_sync::ring::RingError>(())
/// ```
pub struct Ring<T> {
    producers: Side,
    consumers: Side,
    slots: Slots<T>,
}

// SAFETY: the slots are the only part that is not Sync by itself. A slot is touched only by the one thread whose
// move of a head reserved it, and only after it has acquired the tail with which the other side gave it up (see
// `Side::reserve`). Elements move from thread to thread: hence T: Send.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: nothing in here is tied to a thread but the elements.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// An empty ring for up to `capacity` elements, a power of two.
    ///
    /// # Errors
    /// [`RingError`], if the capacity is zero, not a power of two, too large, or no memory can be had for it.
    pub fn new(capacity: usize) -> Result<Self, RingError> {
        Ok(Self {
            slots: Slots::new(capacity)?,
            producers: Side::new(capacity as u64),
            consumers: Side::new(0),
        })
    }

    /// Puts in all of `values` or, if there is not room for all, none. `true`: they are in, one behind the other.
    ///
    /// Room counts once the threads that emptied it, and those before them, have published. So if elements are
    /// never more than the capacity, counting those that are out with some thread, this always succeeds.
    #[inline]
    #[must_use = "the values are not in the ring if this is false"]
    pub fn push_bulk(&self, values: &[T]) -> bool {
        self.push(values, values.len()) == values.len()
    }

    /// Puts in `values` from the front, as many as there is room for; returns how many. They are in one behind the
    /// other.
    #[inline]
    #[must_use = "only so many of the values are in the ring"]
    pub fn push_burst(&self, values: &[T]) -> usize {
        self.push(values, 1)
    }

    #[inline(always)]
    fn push(&self, values: &[T], minimum: usize) -> usize {
        let lead = self.slots.capacity() as u64;
        let Some((position, count)) = self.producers.reserve(&self.consumers, lead, values.len(), minimum)
        else {
            return 0;
        };
        // SAFETY: `reserve` gave these slots to this thread alone, at most values.len() and at most the capacity.
        unsafe { self.slots.write(position, values.get_unchecked(..count)) };
        self.producers.publish(position, count);
        count
    }

    /// Fills all of `values` or, if there are not enough elements, leaves it alone. `true`: it is filled, with
    /// elements that were one behind the other.
    #[inline]
    #[must_use = "the values are not filled if this is false"]
    pub fn pop_bulk(&self, values: &mut [T]) -> bool {
        self.pop(values, values.len()) == values.len()
    }

    /// Fills `values` from the front, with as many elements as there are; returns how many. They were one behind
    /// the other.
    #[inline]
    #[must_use = "only so many of the values are filled"]
    pub fn pop_burst(&self, values: &mut [T]) -> usize {
        self.pop(values, 1)
    }

    #[inline(always)]
    fn pop(&self, values: &mut [T], minimum: usize) -> usize {
        let Some((position, count)) = self.consumers.reserve(&self.producers, 0, values.len(), minimum)
        else {
            return 0;
        };
        // SAFETY: `reserve` gave these slots to this thread alone, at most values.len(), at most the capacity, and
        // all before the producers' tail, so they hold elements.
        unsafe { self.slots.read(position, values.get_unchecked_mut(..count)) };
        self.consumers.publish(position, count);
        count
    }

    /// Elements inside, published and not yet given up: a moment's view that may be over when this returns.
    pub fn len(&self) -> usize {
        // Relaxed: no slot is touched on the strength of this. The two may be from different moments.
        let read = self.consumers.tail.load(Ordering::Relaxed);
        let written = self.producers.tail.load(Ordering::Relaxed);
        (written.saturating_sub(read) as usize).min(self.capacity())
    }

    /// Whether the ring was empty a moment ago.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements that there was room for a moment ago.
    pub fn free(&self) -> usize {
        self.capacity() - self.len()
    }

    /// Elements that the ring holds at most.
    #[inline(always)]
    pub fn capacity(&self) -> usize {
        self.slots.capacity()
    }
}

impl<T> fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

/// The producers or the consumers.
struct Side {
    reserve: CachePadded<Reserve>,
    /// Slots up to here are given to the other side.
    tail: CachePadded<AtomicU64>,
}

/// What one side alone writes and reads.
struct Reserve {
    /// Slots up to here are reserved.
    head: AtomicU64,
    /// How far the head may go, as somebody last saw it.
    limit: AtomicU64,
}

impl Side {
    fn new(limit: u64) -> Self {
        Self {
            reserve: CachePadded::new(Reserve { head: AtomicU64::new(0), limit: AtomicU64::new(limit) }),
            tail: CachePadded::new(AtomicU64::new(0)),
        }
    }

    /// Reserves up to `wanted` slots for this thread, at least `minimum`: their first position and number, or
    /// `None`. `lead` is how far this side may be ahead of the other's tail.
    #[inline(always)]
    fn reserve(&self, other: &Self, lead: u64, wanted: usize, minimum: usize) -> Option<(u64, usize)> {
        if wanted == 0 {
            return None;
        }
        // A3: acquire, pairs with R3 of whoever moved the head here. It had seen the other side's tail far enough
        // for its own slots; without this edge the load of that tail below could give an older one, behind the
        // head, and the difference would come out negative.
        let mut head = self.reserve.head.load(Ordering::Acquire);
        loop {
            // A4: acquire, pairs with R4 of whoever left the hint. It had acquired the tail; without this edge the
            // slots could be touched while the other side still is.
            let limit = self.reserve.limit.load(Ordering::Acquire);
            // Saturating, because an old hint may be behind the head. A head that is out of date may be behind the
            // hint by more than the capacity, but then the exchange fails.
            let mut room = limit.saturating_sub(head);
            if room < wanted as u64 {
                // A1: acquire, pairs with R1 of the other side. Without it the slots could be touched while the
                // other side still is: elements read before they are there, or overwritten before they are read.
                let seen = other.tail.load(Ordering::Acquire) + lead;
                room = seen.saturating_sub(head);
                // Only if it is news, or pollers of a ring that is empty would fight over the line.
                if seen != limit {
                    // R4: release, pairs with A4. Two threads may leave theirs in the wrong order; an old one only
                    // costs another look.
                    self.reserve.limit.store(seen, Ordering::Release);
                }
            }
            let count = wanted.min(room as usize);
            if count < minimum {
                return None;
            }
            // R3: release, pairs with A3. A failure loads a newer head, hence acquire as there.
            match self.reserve.head.compare_exchange_weak(
                head,
                head + count as u64,
                Ordering::Release,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some((head, count)),
                Err(newer) => head = newer,
            }
        }
    }

    /// Gives reserved slots to the other side, after those that were reserved before.
    #[inline(always)]
    fn publish(&self, position: u64, count: usize) {
        let mut backoff = Backoff::default();
        // A2: acquire, pairs with R1 of the thread before on this side. The store below ends the release sequence
        // of that one's, so without this edge the other side would acquire only this thread's slots.
        while self.tail.load(Ordering::Acquire) != position {
            backoff.wait();
        }
        // R1: release, pairs with A1 of the other side and A2 of the thread behind on this one.
        self.tail.store(position + count as u64, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bulk_is_all_or_none_and_burst_what_fits() {
        let ring = Ring::new(4).unwrap();
        assert!(ring.push_bulk(&[1, 2, 3]));
        assert!(!ring.push_bulk(&[4, 5]));
        assert!(!ring.push_bulk(&[0; 5]));
        assert_eq!((ring.len(), ring.free()), (3, 1));
        assert_eq!(ring.push_burst(&[4, 5]), 1);
        assert_eq!(ring.push_burst(&[5]), 0);
        let mut values = [0; 5];
        assert!(!ring.pop_bulk(&mut values));
        assert_eq!(values, [0; 5]);
        assert_eq!(ring.pop_burst(&mut values), 4);
        assert_eq!(values, [1, 2, 3, 4, 0]);
        assert_eq!(ring.pop_burst(&mut values), 0);
        assert!(ring.is_empty());
        assert!(ring.push_bulk(&[]) && ring.pop_bulk(&mut []));
    }
}
