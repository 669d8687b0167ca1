//! The ends of rings that have only one thread at one of them.

use crate::primitive::{Arc, AtomicU32, Ordering};
use crate::ring::RingError;
use crate::shared::{Shared, fullness};
use crate::side::{Concurrent, Side, Single};
use crate::zero_copy::{Peek, Reservation};
use std::fmt;

/// A ring, and which of its ends are still there.
struct Ends<T, P, C> {
    shared: Shared<T, P, C>,
    /// Written when an end comes or goes, so they need no lines of their own.
    producers: AtomicU32,
    consumers: AtomicU32,
}

/// More producers than this end the process, as `Arc` does: whoever forgets clones in a loop would otherwise bring the
/// count round to 0, and the consumer would give up a ring that producers still fill. The other half of the range is for
/// threads that have added one and not yet looked.
const MOST_PRODUCERS: u32 = u32::MAX / 2;

/// Both ends of a new ring.
pub(crate) type Pair<T, P, C> = (Producer<T, P, C>, Consumer<T, P, C>);

pub(crate) fn new<T: Copy, P: Side, C: Side>(capacity: usize) -> Result<Pair<T, P, C>, RingError> {
    let ends = Arc::new(Ends {
        shared: Shared::new(capacity)?,
        producers: AtomicU32::new(1),
        consumers: AtomicU32::new(1),
    });
    Ok((Producer { ends: Arc::clone(&ends) }, Consumer { ends }))
}

/// The end that puts elements in. It can move to another thread; of [`spsc`](crate::spsc) there is only one, of
/// [`mpsc`](crate::extra::mpsc) any number, by [`clone`](Clone::clone).
pub struct Producer<T, P: Side, C: Side> {
    ends: Arc<Ends<T, P, C>>,
}

impl<T: Copy, P: Side, C: Side> Producer<T, P, C> {
    /// Puts in all of `values` or, if there is not space for all, none. `true`: they are in, one behind the other. More
    /// values than the capacity never fit.
    #[inline(always)]
    #[must_use = "the values are not in the ring if this is false"]
    pub fn push_bulk(&mut self, values: &[T]) -> bool {
        // SAFETY: the one thread that has the producer by `&mut`; the only one unless it is not `Single`.
        unsafe { self.ends.shared.push(values, values.len()) == values.len() }
    }

    /// Puts in `values` from the front, as many as there is space for; returns how many.
    #[inline(always)]
    #[must_use = "only so many of the values are in the ring"]
    pub fn push_burst(&mut self, values: &[T]) -> usize {
        // SAFETY: as in `push_bulk`.
        unsafe { self.ends.shared.push(values, 1) }
    }

    fullness! {
        ends.shared:
        /// Elements inside. The consumer may have taken more out by the time this returns.
        len,
        /// Whether the ring is empty: the consumer has taken out all that was put in.
        is_empty,
        /// Elements that there is space for: at least so many if there is no other producer, because the consumer only makes
        /// more.
        free
    }

    /// Whether the consumer is gone, so that nobody will ever take anything out.
    pub fn is_disconnected(&self) -> bool {
        // A4: acquire, pairs with R4 in the consumer's drop: its last reads of the ring come before what is done
        // here because of them.
        self.ends.consumers.load(Ordering::Acquire) == 0
    }
}

impl<T: Copy + Default, C: Side> Producer<T, Single, C> {
    /// Slots for `count` elements, to fill in place, or `None` if there is not space for all. `None` too if `count` is 0.
    #[inline]
    pub fn reserve_bulk(&mut self, count: usize) -> Option<Reservation<'_, T, Single, C>> {
        // SAFETY: the only producer, borrowed by `&mut` for as long as the result lives.
        unsafe { Reservation::new(&self.ends.shared, count, count) }
    }

    /// Slots for up to `count` elements, to fill in place, or `None` if there is no space.
    #[inline]
    pub fn reserve_burst(&mut self, count: usize) -> Option<Reservation<'_, T, Single, C>> {
        // SAFETY: as in `reserve_bulk`.
        unsafe { Reservation::new(&self.ends.shared, count, 1) }
    }
}

impl<T, P: Concurrent, C: Side> Clone for Producer<T, P, C> {
    fn clone(&self) -> Self {
        // Relaxed: whoever clones has a producer, so the count is not 0 meanwhile, and nothing hangs on its value.
        if self.ends.producers.fetch_add(1, Ordering::Relaxed) > MOST_PRODUCERS {
            std::process::abort();
        }
        Self { ends: Arc::clone(&self.ends) }
    }
}

impl<T, P: Side, C: Side> Drop for Producer<T, P, C> {
    fn drop(&mut self) {
        // R3: release, pairs with A3. Without it the consumer could see the end before the last elements. Those that
        // go before the last are in the same release sequence, because this is an exchange.
        self.ends.producers.fetch_sub(1, Ordering::Release);
    }
}

impl<T, P: Side, C: Side> fmt::Debug for Producer<T, P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("len", &self.ends.shared.len()).finish_non_exhaustive()
    }
}

/// The end that takes elements out, in the order in which they were put in. It can move to another thread, but
/// there is only one.
pub struct Consumer<T, P: Side, C: Side> {
    ends: Arc<Ends<T, P, C>>,
}

impl<T: Copy, P: Side> Consumer<T, P, Single> {
    /// Fills all of `values` or, if there are not enough elements, leaves it alone. `true`: it is filled. Never if it is
    /// longer than the capacity.
    #[inline(always)]
    #[must_use = "the values are not filled if this is false"]
    pub fn pop_bulk(&mut self, values: &mut [T]) -> bool {
        // SAFETY: the only consumer, by `&mut`.
        unsafe { self.ends.shared.pop(values, values.len()) == values.len() }
    }

    /// Fills `values` from the front, with as many elements as there are; returns how many.
    #[inline(always)]
    #[must_use = "only so many of the values are filled"]
    pub fn pop_burst(&mut self, values: &mut [T]) -> usize {
        // SAFETY: as in `pop_bulk`.
        unsafe { self.ends.shared.pop(values, 1) }
    }

    /// The next `count` elements, to look at in place, or `None` if there are not so many. `None` too if `count` is 0.
    #[inline]
    pub fn peek_bulk(&mut self, count: usize) -> Option<Peek<'_, T, P, Single>> {
        // SAFETY: the only consumer, borrowed by `&mut` for as long as the result lives.
        unsafe { Peek::new(&self.ends.shared, count, count) }
    }

    /// The next elements, up to `count`, to look at in place, or `None` if there are none.
    #[inline]
    pub fn peek_burst(&mut self, count: usize) -> Option<Peek<'_, T, P, Single>> {
        // SAFETY: as in `peek_bulk`.
        unsafe { Peek::new(&self.ends.shared, count, 1) }
    }

    /// Whether the producers are gone. What they put in can still be taken out: when this is `true` and `pop_burst`
    /// *then* finds nothing (or `is_empty` *then* says so), nothing will ever come. Asked the other way round,
    /// the last elements may come in between and be lost.
    pub fn is_disconnected(&self) -> bool {
        // A3: acquire, pairs with R3. See there.
        self.ends.producers.load(Ordering::Acquire) == 0
    }

    fullness! {
        ends.shared:
        /// Elements inside, at least: the producers only add.
        len,
        /// Whether there is nothing to take out.
        is_empty,
        /// Elements that there is space for. The producers may have put more in by the time this returns.
        free
    }
}

impl<T, P: Side, C: Side> Drop for Consumer<T, P, C> {
    fn drop(&mut self) {
        // R4: release, pairs with A4.
        self.ends.consumers.store(0, Ordering::Release);
    }
}

impl<T, P: Side, C: Side> fmt::Debug for Consumer<T, P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("len", &self.ends.shared.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::extra::mpsc;
    use std::process::Command;

    /// Set in the child process that is to end.
    const CHILD: &str = "WARMLANE_SYNC_TOO_MANY_PRODUCERS";

    #[test]
    #[cfg_attr(miri, ignore = "it starts a process")]
    fn one_producer_too_many_ends_the_process() {
        let test = "ends::tests::one_producer_too_many_ends_the_process";
        let (producer, consumer) = mpsc::ring::<u32>(2).unwrap();
        producer.ends.producers.store(MOST_PRODUCERS, Ordering::Relaxed);
        let last = producer.clone();
        if std::env::var_os(CHILD).is_some() {
            std::mem::forget(producer.clone());
            std::process::exit(0);
        }
        let child =
            Command::new(std::env::current_exe().unwrap()).args([test, "--exact"]).env(CHILD, "1").output();
        let status = child.unwrap().status;
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(6), "SIGABRT, not {status}");
        drop((producer, last));
        assert!(!consumer.is_disconnected());
    }
}
