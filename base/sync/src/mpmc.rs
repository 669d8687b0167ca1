//! A ring between any number of threads.
//!
//! One design serves both sides, the producers and the consumers. [`Ring`] notices by itself when its threads share cores
//! (`side/queued.rs`, which labels the edges). It is not lock-free: order is kept, so what was pushed after an unfinished
//! push can be popped only when that is done. A thread that waits spins for a few microseconds and then yields its CPU
//! between checks. [`extra`](crate::extra) has two variants that wait elsewhere.
//!
//! Elements are `Copy`: a ring that is dropped with elements inside has nothing to drop. What an element refers to
//! (a buffer, say) is for its owner to drain.

use crate::ring::RingError;
use crate::shared::{Shared, fullness};
use crate::side::{Concurrent, Queued};
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

/// A ring between any number of threads that are kept apart as `S` says.
pub struct AnyRing<T, S> {
    pub(crate) shared: Shared<T, S, S>,
}

impl<T: Copy, S: Concurrent> AnyRing<T, S> {
    /// An empty ring for up to `capacity` elements, a power of two.
    ///
    /// # Errors
    /// [`RingError`], if the capacity is zero, not a power of two, too large, or no memory can be had for it.
    pub fn new(capacity: usize) -> Result<Self, RingError> {
        Ok(Self { shared: Shared::new(capacity)? })
    }

    /// Puts in all of `values` or, if there is not space for all, none. `true`: they are in, one behind the other. More
    /// values than the capacity never fit.
    ///
    /// Space counts once the threads that emptied it, and those before them, have published. So if elements are
    /// never more than the capacity, counting those that are out with some thread, this always succeeds (not in an
    /// [`RtsRing`](crate::extra::RtsRing), where those that came later have to be done as well).
    #[inline]
    #[must_use = "the values are not in the ring if this is false"]
    pub fn push_bulk(&self, values: &[T]) -> bool {
        // SAFETY: the side is not `Single`.
        unsafe { self.shared.push(values, values.len()) == values.len() }
    }

    /// Puts in `values` from the front, as many as there is space for; returns how many. They are in one behind the
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

    fullness! {
        shared:
        /// Elements inside, published and not yet given up: a moment's view that may be over when this returns.
        len,
        /// Whether the ring was empty a moment ago.
        is_empty,
        /// Elements that there was space for a moment ago.
        free
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
    use crate::extra::{HeadTail, RelaxedTail};

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
