//! The two sides of a ring, producers and consumers, and the ways to keep those on one side apart.
//!
//! A side *reserves* positions, works on their slots, and *publishes* them, which gives the slots to the other side.
//! Both sides do the same with the roles of full and empty exchanged, so one implementation serves either.
//!
//! The kinds are named here for who wants to write code over any ring; the traits can't be implemented elsewhere.

mod queued;
mod single;

use crate::primitive::{AtomicU64, Ordering};

pub use queued::Queued;
pub use single::Single;

/// Positions that a side has for itself.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Reserved {
    /// The first.
    pub(crate) position: u64,
    /// How many.
    pub(crate) count: usize,
    /// How many the side could have had, as last seen.
    pub(crate) space: usize,
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// One side of a ring. What it can do is the rings' business.
pub trait Side: sealed::Sealed {
    /// A side that may go up to `limit`.
    #[doc(hidden)]
    fn new(limit: u64, capacity: usize) -> Self;

    /// The word with the tail.
    #[doc(hidden)]
    fn tail_word(&self) -> &AtomicU64;

    /// The tail in such a word.
    #[doc(hidden)]
    #[inline(always)]
    fn tail_of(word: u64) -> u64 {
        word
    }

    /// Positions up to here are given to the other side, which may touch their slots after this: it has acquired
    /// what was done to them.
    #[doc(hidden)]
    #[inline(always)]
    fn acquire_tail(&self) -> u64 {
        // A1: acquire, pairs with R1 of this side. Without it the slots could be touched while this side still is:
        // elements read before they are there, or overwritten before they are read. Where other threads of this side
        // change the word as well, they do so by exchanges, which keep the release sequence.
        Self::tail_of(self.tail_word().load(Ordering::Acquire))
    }

    /// The same for statistics: no slot may be touched on the strength of it.
    #[doc(hidden)]
    #[inline(always)]
    fn tail(&self) -> u64 {
        Self::tail_of(self.tail_word().load(Ordering::Relaxed))
    }

    /// Reserves up to `wanted` positions, at least `minimum`. `look` loads with acquire how far this side may go.
    ///
    /// # Safety
    /// If the side is [`Single`]: only one thread at a time calls this and [`publish`](Self::publish).
    #[doc(hidden)]
    unsafe fn reserve(&self, look: impl Fn() -> u64, wanted: usize, minimum: usize) -> Option<Reserved>;

    /// Gives `count` reserved positions to the other side.
    ///
    /// # Safety
    /// They are all of those that one call of [`reserve`](Self::reserve) gave or, if the side is [`Exclusive`], the
    /// first of them; and each is published once.
    #[doc(hidden)]
    unsafe fn publish(&self, reserved: Reserved, count: usize);
}

/// A side on which only one thread at a time has positions reserved, so that it can change its mind about them.
pub trait Exclusive: Side {
    /// Puts reserved positions back.
    ///
    /// # Safety
    /// They are those that the last call of [`reserve`](Side::reserve) gave, and they are neither published nor put
    /// back.
    #[doc(hidden)]
    unsafe fn cancel(&self, reserved: Reserved);
}

/// A side that any number of threads use at the same time.
pub trait Concurrent: Side + Send + Sync {}

/// Positions from `head` to `limit`; 0 if the head is ahead, as it may seem for a moment to who looks at them one after
/// the other. Of both only the low 32 bits count: they are never 2³¹ apart while they matter.
#[inline(always)]
pub(crate) fn distance(head: u64, limit: u64) -> usize {
    let distance = (limit as u32).wrapping_sub(head as u32);
    if distance >> 31 == 0 { distance as usize } else { 0 }
}

impl sealed::Sealed for Single {}
impl sealed::Sealed for Queued {}
