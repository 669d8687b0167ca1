//! Rings between any number of threads that wait elsewhere than [`mpmc::Ring`](crate::mpmc::Ring) does.
//!
//! | ring | a thread that loses its CPU in the middle of a push delays | use it |
//! |---|---|---|
//! | [`mpmc::Ring`](crate::mpmc::Ring) | pushes that began after it, where they publish; when crowded as in an [`HtsRing`] | by default |
//! | [`HtsRing`] | all other pushes, before they begin | to work in place |
//! | [`RtsRing`] | no push, until an eighth of the capacity is waiting behind it | if no push may wait for another |
//!
//! Pops delay each other likewise. The edges are labelled in `extra/head_tail.rs` and `extra/relaxed_tail.rs`; each goes
//! both ways round.

use super::{HeadTail, RelaxedTail};
use crate::mpmc::AnyRing;
use crate::zero_copy::{Peek, Reservation};

/// A ring with head and tail synchronised: one push and one pop at a time. It can be worked on in place.
///
/// ```
/// let ring = warmlane_sync::extra::HtsRing::<u32>::new(4)?;
/// let mut reserved = ring.reserve_bulk(2).ok_or("no space")?;
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
/// What is pushed can be popped, and what is popped makes space, when all pushes (pops) that overlapped it are done: more
/// lag than in a [`Ring`](crate::mpmc::Ring), in exchange for less waiting.
pub type RtsRing<T> = AnyRing<T, RelaxedTail>;

impl<T: Copy> HtsRing<T> {
    /// Slots for `count` elements, to fill in place, or `None` if there is not space for all. `None` too if `count` is 0.
    #[inline]
    pub fn reserve_bulk(&self, count: usize) -> Option<Reservation<'_, T, HeadTail, HeadTail>>
    where
        T: Default,
    {
        // SAFETY: the side is not `Single`.
        unsafe { Reservation::new(&self.shared, count, count) }
    }

    /// Slots for up to `count` elements, to fill in place, or `None` if there is no space.
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
