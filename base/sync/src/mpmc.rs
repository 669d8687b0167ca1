//! A ring between any number of threads.
//!
//! Of each kind there is one design for both sides, the producers and the consumers:
//!
//! | ring | a thread that loses its CPU in the middle of a push holds up | take it |
//! |---|---|---|
//! | [`Ring`] | the pushes that began after it, where they publish; in a crowd as in an [`HtsRing`] | unless you know better |
//! | [`HtsRing`] | all other pushes, before they begin | for zero copy |
//! | [`RtsRing`] | no push, until an eighth of the capacity is waiting behind it | if no push may wait for another |
//!
//! (Pops likewise, with each other.) A [`Ring`] notices by itself when its threads share cores (`side/queued.rs`). None of
//! them is lock-free: what was pushed after an unfinished push can't be popped before that is done, since order is kept.
//! Who waits spins for a few microseconds and then yields its CPU between looks.
//!
//! The edges are labelled in `side/queued.rs`, `side/head_tail.rs` and `side/relaxed_tail.rs`; each goes both ways
//! round.
//!
//! Elements are `Copy`: a ring that is dropped with elements inside has nothing to drop. What an element stands
//! for (a buffer, say) is its owner's to drain.

use crate::ring::RingError;
use crate::shared::Shared;
use crate::side::{Concurrent, HeadTail, Queued, RelaxedTail};
use crate::zero_copy::{Peek, Reservation};
use std::fmt;

/// A ring whose threads publish in the order in which they reserved. See the module. Share it by reference or in an
/// `Arc`.
///
/// ```
/// let ring = warmlane_sync::mpmc::Ring::new(4)?;
/// assert_eq!(ring.push_burst(&[1, 2, 3, 4, 5]), 4);
/// let mut values = [0; 2];
/// assert!(ring.pop_bulk(&mut values));
/// assert_eq!((values, ring.len()), ([1, 2], 2));
/// # Ok::<(), warmlane_sync::ring::RingError>(())
/// ```
pub type Ring<T> = AnyRing<T, Queued>;

/// A ring with head and tail synchronised: one push and one pop at a time. It can be worked on in place.
///
/// ```
/// let ring = warmlane_sync::mpmc::HtsRing::<u32>::new(4)?;
/// let mut reserved = ring.reserve_bulk(2).ok_or("no room")?;
/// reserved.as_mut_slices().0.copy_from_slice(&[1, 2]);
/// reserved.commit();
/// let peek = ring.peek_burst(8).ok_or("empty")?;
/// assert_eq!(peek.as_slices().0, [1, 2]);
/// peek.release_first(1);
/// assert_eq!(ring.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// While a guard lives, all other pushes (or pops) wait; one that is leaked with [`std::mem::forget`] holds them up for
/// ever.
pub type HtsRing<T> = AnyRing<T, HeadTail>;

/// A ring with a relaxed tail: pushes don't wait for each other, nor do pops.
///
/// What is pushed can be popped, and what is popped makes room, when all pushes (pops) that overlapped it are done: more
/// lag than in a [`Ring`], in exchange for less waiting.
pub type RtsRing<T> = AnyRing<T, RelaxedTail>;

/// A ring between any number of threads that are kept apart as `S` says.
pub struct AnyRing<T, S> {
    shared: Shared<T, S, S>,
}

impl<T: Copy, S: Concurrent> AnyRing<T, S> {
    /// An empty ring for up to `capacity` elements, a power of two.
    ///
    /// # Errors
    /// [`RingError`], if the capacity is zero, not a power of two, too large, or no memory can be had for it.
    pub fn new(capacity: usize) -> Result<Self, RingError> {
        Ok(Self { shared: Shared::new(capacity)? })
    }

    /// Puts in all of `values` or, if there is not room for all, none. `true`: they are in, one behind the other. More
    /// values than the capacity never fit.
    ///
    /// Room counts once the threads that emptied it, and those before them, have published. So if elements are
    /// never more than the capacity, counting those that are out with some thread, this always succeeds (not in an
    /// [`RtsRing`], where those that came later have to be done as well).
    #[inline]
    #[must_use = "the values are not in the ring if this is false"]
    pub fn push_bulk(&self, values: &[T]) -> bool {
        // SAFETY: the side is not `Single`.
        unsafe { self.shared.push(values, values.len()) == values.len() }
    }

    /// Puts in `values` from the front, as many as there is room for; returns how many. They are in one behind the
    /// other.
    #[inline]
    #[must_use = "only so many of the values are in the ring"]
    pub fn push_burst(&self, values: &[T]) -> usize {
        // SAFETY: the side is not `Single`.
        unsafe { self.shared.push(values, 1) }
    }

    /// Fills all of `values` or, if there are not enough elements, leaves it alone. `true`: it is filled, with
    /// elements that were one behind the other. Never if it is longer than the capacity.
    #[inline]
    #[must_use = "the values are not filled if this is false"]
    pub fn pop_bulk(&self, values: &mut [T]) -> bool {
        // SAFETY: the side is not `Single`.
        unsafe { self.shared.pop(values, values.len()) == values.len() }
    }

    /// Fills `values` from the front, with as many elements as there are; returns how many. They were one behind
    /// the other.
    #[inline]
    #[must_use = "only so many of the values are filled"]
    pub fn pop_burst(&self, values: &mut [T]) -> usize {
        // SAFETY: the side is not `Single`.
        unsafe { self.shared.pop(values, 1) }
    }

    /// Elements inside, published and not yet given up: a moment's view that may be over when this returns.
    pub fn len(&self) -> usize {
        self.shared.len()
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
        self.shared.capacity()
    }
}

impl<T: Copy> HtsRing<T> {
    /// Slots for `count` elements, to fill in place, or `None` if there is not room for all. `None` too if `count` is 0.
    #[inline]
    pub fn reserve_bulk(&self, count: usize) -> Option<Reservation<'_, T, HeadTail, HeadTail>>
    where
        T: Default,
    {
        // SAFETY: the side is not `Single`.
        unsafe { Reservation::new(&self.shared, count, count) }
    }

    /// Slots for up to `count` elements, to fill in place, or `None` if there is no room.
    #[inline]
    pub fn reserve_burst(&self, count: usize) -> Option<Reservation<'_, T, HeadTail, HeadTail>>
    where
        T: Default,
    {
        // SAFETY: the side is not `Single`.
        unsafe { Reservation::new(&self.shared, count, 1) }
    }

    /// The next `count` elements, to look at in place, or `None` if there are not so many. `None` too if `count` is 0.
    #[inline]
    pub fn peek_bulk(&self, count: usize) -> Option<Peek<'_, T, HeadTail, HeadTail>> {
        // SAFETY: the side is not `Single`.
        unsafe { Peek::new(&self.shared, count, count) }
    }

    /// The next elements, up to `count`, to look at in place, or `None` if there are none.
    #[inline]
    pub fn peek_burst(&self, count: usize) -> Option<Peek<'_, T, HeadTail, HeadTail>> {
        // SAFETY: the side is not `Single`.
        unsafe { Peek::new(&self.shared, count, 1) }
    }
}

impl<T, S> fmt::Debug for AnyRing<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn bulk_is_all_or_none_and_burst_what_fits<S: Concurrent>() {
        let ring = AnyRing::<_, S>::new(4).unwrap();
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

    #[test]
    fn bulk_is_all_or_none_and_burst_what_fits_of_each_kind() {
        bulk_is_all_or_none_and_burst_what_fits::<Queued>();
        bulk_is_all_or_none_and_burst_what_fits::<HeadTail>();
        bulk_is_all_or_none_and_burst_what_fits::<RelaxedTail>();
    }
}
