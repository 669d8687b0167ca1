//! A spin lock, and the pause that belongs in every spinning loop.

use crate::backoff::Backoff;
use crate::lock::{exclusive_guard, lock_of_a_value};
use crate::primitive::{AtomicBool, Ordering, UnsafeCell};

/// Tells the CPU that this is a spinning loop: `pause` on x86_64, `isb` on aarch64 (where `yield` does nothing on
/// most cores). Saves power, leaves the core to its other hardware thread, and spares the flush of the pipeline
/// that follows when the awaited value changes.
#[inline(always)]
pub fn relax() {
    std::hint::spin_loop();
}

/// A lock for sections of a few dozen instructions.
///
/// Test-and-test-and-set: waiters read until the lock looks free and only then write, so that they wait on a
/// shared line (Rudolph and Segall, "Dynamic decentralized cache schemes for MIMD parallel processors", ISCA
/// 1984). A waiter spins for a few microseconds, then yields its CPU between looks, so a holder that was
/// descheduled gets to run. Not fair, not reentrant, and not poisoned: a panic in the section unlocks.
pub struct SpinLock<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands `&mut T` to one thread at a time, with a release at unlock that the next lock acquires:
// that moves the T between threads, hence T: Send. It never gives `&T` to two threads at once, so T need not be
// Sync.
unsafe impl<T: Send> Sync for SpinLock<T> {}
// SAFETY: whoever owns the lock owns the T; moving one moves the other.
unsafe impl<T: Send> Send for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// An unlocked lock.
    pub fn new(value: T) -> Self {
        Self { locked: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock. Dropping the guard unlocks.
    #[inline]
    pub fn lock(&self) -> SpinLockGuard<'_, T> {
        let mut backoff = Backoff::default();
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            loop {
                backoff.wait_for_change(&self.locked, true);
                // Relaxed: only a hint when to try again.
                if !self.locked.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinLockGuard<'_, T>> {
        // A1: acquire, pairs with R1 in the guard's drop. Without it this thread could read what the value was
        // before the former holder changed it. Relaxed if it fails: then nothing is read.
        self.locked
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
            .then(|| SpinLockGuard { lock: self })
    }
}

lock_of_a_value!(SpinLock);

/// The right to the value of a [`SpinLock`].
#[must_use = "the lock is released when the guard is dropped"]
pub struct SpinLockGuard<'a, T> {
    lock: &'a SpinLock<T>,
}

// SAFETY: a shared guard gives `&T` only, to as many threads as share it: hence T: Sync.
unsafe impl<T: Sync> Sync for SpinLockGuard<'_, T> {}

exclusive_guard!(SpinLockGuard);

impl<T> Drop for SpinLockGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // R1: release, pairs with A1. Without it the next holder could miss what was written in the section.
        self.lock.locked.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn try_lock_says_whether_it_is_taken() {
        let lock = SpinLock::new(7);
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert_eq!(lock.try_lock().map(|guard| *guard), Some(7));
    }

    #[test]
    fn a_panic_in_the_section_unlocks() {
        let lock = SpinLock::new(0);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            *lock.lock() = 1;
            let _guard = lock.lock();
            panic!("in the section");
        }));
        assert!(result.is_err());
        assert_eq!(*lock.lock(), 1);
    }
}
