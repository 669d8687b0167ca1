//! A fair lock whose waiters form a queue, each watching a line of its own.

use crate::backoff::Backoff;
use crate::lock::lock_of_a_value;
use crate::primitive::{AtomicBool, AtomicPtr, Ordering, UnsafeCell};
use std::ptr;

/// The queue lock of Mellor-Crummey and Scott ("Algorithms for Scalable Synchronization on Shared-Memory
/// Multiprocessors", ACM TOCS 9(1), 1991, section 2.4): first come, first served, and whoever unlocks writes only to
/// the line that the next one watches.
///
/// A waiter's node in the queue lies on its stack, so the section is a closure: a guard could be leaked, and its node
/// would be reused while others still point to it. A waiter spins for a few microseconds, then yields its CPU between
/// looks. Not reentrant, and not poisoned: a panic in the section unlocks.
///
/// ```
/// let lock = warmlane_sync::extra::mcs::McsLock::new(1);
/// lock.with(|value| *value += 1);
/// assert_eq!(lock.try_with(|value| *value), Some(2));
/// ```
///
/// The value can't leave the section:
///
/// ```compile_fail
/// let lock = warmlane_sync::extra::mcs::McsLock::new(1);
/// let value = lock.with(|value| value);
/// ```
pub struct McsLock<T> {
    /// The last in the queue; null if the lock is free.
    tail: AtomicPtr<Waiter>,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands `&mut T` to one thread at a time, with a release at unlock that the next lock acquires:
// that moves the T between threads, hence T: Send. It never gives `&T` to two threads at once, so T need not be
// Sync.
unsafe impl<T: Send> Sync for McsLock<T> {}
// SAFETY: whoever owns the lock owns the T; moving one moves the other. Nobody is in the queue: they borrow the lock.
unsafe impl<T: Send> Send for McsLock<T> {}

/// A node of the queue, in the frame of `with`. It stays there until its owner has left the queue.
///
/// Alone on its lines, as by [`CachePadded`](crate::padded::CachePadded): what else the frame holds would take the line away
/// from whoever hands over.
#[repr(align(128))]
struct Waiter {
    /// Who comes after; null until it says so.
    next: AtomicPtr<Waiter>,
    waiting: AtomicBool,
}

impl Waiter {
    #[inline(always)]
    fn new() -> Self {
        Self { next: AtomicPtr::new(ptr::null_mut()), waiting: AtomicBool::new(true) }
    }
}

impl<T> McsLock<T> {
    /// An unlocked lock.
    pub fn new(value: T) -> Self {
        Self { tail: AtomicPtr::new(ptr::null_mut()), value: UnsafeCell::new(value) }
    }

    /// Waits for its turn, runs `section` on the value, and unlocks.
    #[inline]
    pub fn with<R>(&self, section: impl FnOnce(&mut T) -> R) -> R {
        let waiter = Waiter::new();
        // A1: acquire, pairs with R1 and R2. With R1, of who freed the lock: without it this thread could read what the
        // value was before. With R2, of who is last: without it the store to its `next` could come before that is made.
        // R2: release, pairs with A1 of who comes next, as just said.
        let last = self.tail.swap((&raw const waiter).cast_mut(), Ordering::AcqRel);
        if !last.is_null() {
            Self::queue(last, &waiter);
        }
        self.run(&waiter, section)
    }

    /// Runs `section` on the value if the lock is free and nobody waits.
    #[inline]
    pub fn try_with<R>(&self, section: impl FnOnce(&mut T) -> R) -> Option<R> {
        let waiter = Waiter::new();
        let this = (&raw const waiter).cast_mut();
        // A2, R3: as A1 and R2, but the lock has to be free. Relaxed if it is not: then nothing is read.
        self.tail
            .compare_exchange(ptr::null_mut(), this, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
            .then(|| self.run(&waiter, section))
    }

    /// Waits behind `last`. Not a call, which would write to the stack.
    #[inline(always)]
    fn queue(last: *mut Waiter, waiter: &Waiter) {
        // R4: release, pairs with A4. Without it whoever unlocks could write to this node before it is made.
        // SAFETY: `last` was the queue's tail and is in the frame of a `with` that does not return before it has seen
        // this store, since the tail is no longer its node.
        unsafe { &*last }.next.store(ptr::from_ref(waiter).cast_mut(), Ordering::Release);
        let mut backoff = Backoff::default();
        // A3: acquire, pairs with R5. Without it this thread could read what the value was before the one in front
        // changed it.
        while waiter.waiting.load(Ordering::Acquire) {
            backoff.wait_for_change(&waiter.waiting, true);
        }
    }

    /// The section, with the lock taken for `waiter`, and its end.
    #[inline(always)]
    fn run<R>(&self, waiter: &Waiter, section: impl FnOnce(&mut T) -> R) -> R {
        /// Unlocks at the end, also if the section panics. It never leaves this frame, so it can't be leaked.
        struct Unlock<'a, T>(&'a McsLock<T>, &'a Waiter);

        impl<T> Drop for Unlock<'_, T> {
            #[inline(always)]
            fn drop(&mut self) {
                self.0.unlock(self.1);
            }
        }

        let _unlock = Unlock(self, waiter);
        // SAFETY: this thread has the lock, from before this call until `_unlock` is dropped; nobody else has access.
        self.value.with_mut(|value| section(unsafe { &mut *value }))
    }

    #[inline(always)]
    fn unlock(&self, waiter: &Waiter) {
        // A4: acquire, pairs with R4.
        let next = waiter.next.load(Ordering::Acquire);
        if !next.is_null() {
            // SAFETY: see `hand_over`.
            unsafe { Self::hand_over(next) };
            return;
        }
        // R1: release, pairs with A1 and A2. Without it the next holder could miss what was written in the section.
        // Relaxed if it fails: then `next` is what counts.
        let this = ptr::from_ref(waiter).cast_mut();
        if self.tail.compare_exchange(this, ptr::null_mut(), Ordering::Release, Ordering::Relaxed).is_err() {
            Self::unlock_for_late(waiter);
        }
    }

    /// Somebody has taken the tail, but not yet said who it is: two instructions, unless it has lost its CPU.
    #[cold]
    fn unlock_for_late(waiter: &Waiter) {
        let mut backoff = Backoff::default();
        loop {
            // A4: acquire, pairs with R4, as in `unlock`.
            let next = waiter.next.load(Ordering::Acquire);
            if !next.is_null() {
                // SAFETY: see `hand_over`.
                return unsafe { Self::hand_over(next) };
            }
            backoff.wait();
        }
    }

    /// # Safety
    /// The caller has the lock, and `next` is from its waiter: it waits.
    #[inline(always)]
    unsafe fn hand_over(next: *mut Waiter) {
        // R5: release, pairs with A3. Without it the next holder could miss what was written in the section.
        // SAFETY: it is in the frame of a `with` that waits for this store. It may return at once then, so that this is
        // the last access.
        unsafe { &*next }.waiting.store(false, Ordering::Release);
    }
}

lock_of_a_value!(McsLock);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn try_with_runs_only_if_the_lock_is_free() {
        let mut lock = McsLock::new(7);
        lock.with(|value| {
            *value = 8;
            assert_eq!(lock.try_with(|_| ()), None);
        });
        assert_eq!(lock.try_with(|value| *value), Some(8));
        *lock.get_mut() = 9;
        assert_eq!(lock.with(|value| *value), 9);
    }

    #[test]
    fn a_panic_in_the_section_unlocks() {
        let lock = McsLock::new(0);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            lock.with(|value| {
                *value = 1;
                panic!("in the section");
            });
        }));
        assert!(result.is_err());
        assert_eq!(lock.try_with(|value| *value), Some(1));
    }
}
