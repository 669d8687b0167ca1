//! One value that readers see as a whole and a writer replaces as a whole.

use super::{Domain, ForeignReader, Reader, Retired};
use crate::primitive::{AtomicPtr, Ordering};
use std::fmt;
use std::marker::PhantomData;

/// A value that many read and few replace: a configuration, a small table.
pub struct Protected<T> {
    /// From `Box::into_raw`, never null.
    value: AtomicPtr<T>,
    domain: Domain,
    /// Neither Send nor Sync but as said below: an `AtomicPtr` is both, whatever it points to.
    owns: PhantomData<*mut T>,
}

// SAFETY: through `&Protected` threads get `&T` at the same time (T: Sync), put a T in and get one out on another
// thread (T: Send).
unsafe impl<T: Send + Sync> Sync for Protected<T> {}
// SAFETY: it owns its value.
unsafe impl<T: Send> Send for Protected<T> {}

impl<T> Protected<T> {
    /// A value for the readers of `domain`.
    pub fn new(domain: &Domain, value: T) -> Self {
        let value = AtomicPtr::new(Box::into_raw(Box::new(value)));
        Self { value, domain: domain.clone(), owns: PhantomData }
    }

    /// The value as it is now, for up to the reader's next report.
    ///
    /// # Errors
    /// [`ForeignReader`], if the reader is of another domain.
    #[inline]
    pub fn read<'r>(&'r self, reader: &'r Reader) -> Result<&'r T, ForeignReader> {
        self.domain.check(reader)?;
        // A5: acquire, pairs with R5 in `replace`. Without it this could be the address of a value not yet written.
        let value = self.value.load(Ordering::Acquire);
        // SAFETY: it is from a box. `replace` gives that to a queue that drops it only after each reader of the domain
        // that was online then has reported or gone offline. This one is of the domain and online (a `Reader` is), and
        // can't do either while 'r lives, since both take it mutably or by value. Dropping `self` ends 'r too. Nobody
        // has a `&mut T`.
        Ok(unsafe { &*value })
    }

    /// The value, for the only one who has it.
    pub fn get_mut(&mut self) -> &mut T {
        // Relaxed: whoever gave this thread `&mut self` gave it all that was done to it.
        let value = self.value.load(Ordering::Relaxed);
        // SAFETY: from a box; `&mut self` is the only way to it, and no reader has it: what they read borrows `self`.
        unsafe { &mut *value }
    }
}

impl<T: Send + Sync + 'static> Protected<T> {
    /// Replaces the present value by `value`; the old one goes to `replaced` until no reader can refer to it.
    ///
    /// # Errors
    /// [`ReplaceError`] with `value`, if the queue is full or waits for readers of another domain.
    pub fn replace(&self, value: T, replaced: &mut Retired<Replaced<T>>) -> Result<(), ReplaceError<T>> {
        if !self.domain.is_same(replaced.domain()) {
            return Err(ReplaceError::ForeignQueue { value });
        }
        if replaced.is_full() {
            return Err(ReplaceError::Full { value, capacity: replaced.capacity() });
        }
        // R5: release, pairs with A5; and acquire, pairs with the R5 of the replacement before, which may have been
        // another thread's: without it what that wrote could be dropped before it is there.
        let old = self.value.swap(Box::into_raw(Box::new(value)), Ordering::AcqRel);
        replaced.put(Replaced(old));
        Ok(())
    }
}

/// A value that was replaced, and that readers may still refer to: so nobody can read it until it is returned.
///
/// No box yet, because a box claims that nobody else has a reference.
pub struct Replaced<T>(*mut T);

// SAFETY: it owns the T, as a box does; readers' references are to a T that is Sync (see `replace`).
unsafe impl<T: Send> Send for Replaced<T> {}

impl<T> Drop for Replaced<T> {
    fn drop(&mut self) {
        // SAFETY: from a box, by `new` or `replace`, and taken out by the one who swapped it: nobody else makes a box of it
        // again. What is dropped was returned by a queue of the value's domain, or left to the domain: no reader can
        // refer to it any more.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

impl<T> fmt::Debug for Replaced<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replaced").finish_non_exhaustive()
    }
}

impl<T> Drop for Protected<T> {
    fn drop(&mut self) {
        // Relaxed: as in `get_mut`.
        let value = self.value.load(Ordering::Relaxed);
        // SAFETY: from a box, and the only one left of it. No reader has it: what they read borrows `self`.
        drop(unsafe { Box::from_raw(value) });
    }
}

impl<T> fmt::Debug for Protected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Protected").field("domain", &self.domain).finish_non_exhaustive()
    }
}

/// A value was not replaced.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplaceError<T> {
    /// No space for the old value.
    #[error(
        "the queue of {capacity} retired items is full; reclaim, wait for the readers, or make it larger"
    )]
    Full {
        /// The new value.
        value: T,
        /// Items that the queue has space for.
        capacity: usize,
    },
    /// The queue does not wait for the readers of this value.
    #[error(
        "the queue of retired items belongs to another RCU domain than the value; make it for the value's"
    )]
    ForeignQueue {
        /// The new value.
        value: T,
    },
}

impl<T> fmt::Debug for ReplaceError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full { .. } => "Full",
            Self::ForeignQueue { .. } => "ForeignQueue",
        })
    }
}
