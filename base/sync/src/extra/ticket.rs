//! A fair spin lock: first come, first served.

use crate::backoff::Backoff;
use crate::lock::{exclusive_guard, lock_of_a_value};
use crate::prefetch::prefetch_write_at;
use crate::primitive::{AtomicU32, Ordering, UnsafeCell};

/// A lock that serves in the order of arrival, like numbered tickets at a counter (Mellor-Crummey and Scott,
/// "Algorithms for Scalable Synchronization on Shared-Memory Multiprocessors", ACM TOCS 9(1), 1991, section 2.2).
///
/// One locked instruction to lock, none to unlock. All waiters watch one line, so it is for few of them; with many,
/// [`McsLock`](super::mcs::McsLock) has each watch its own. A waiter spins for a few microseconds, then yields its CPU
/// between looks. The price of fairness: a waiter that has lost its CPU when its turn comes holds up those behind it.
/// Not reentrant, and not poisoned: a panic in the section unlocks.
///
/// ```
/// let lock = warmlane_sync::extra::ticket::TicketLock::new(1);
/// *lock.lock() += 1;
/// assert_eq!(lock.try_lock().map(|value| *value), Some(2));
/// ```
pub struct TicketLock<T> {
    /// The ticket that the next to come gets. It wraps, which is right as long as fewer than 2³² wait at a time.
    next: AtomicU32,
    /// The ticket that has the lock; the same as `next` if nobody has.
    serving: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands `&mut T` to one thread at a time, with a release at unlock that the next lock acquires:
// that moves the T between threads, hence T: Send. It never gives `&T` to two threads at once, so T need not be
// Sync.
unsafe impl<T: Send> Sync for TicketLock<T> {}
// SAFETY: whoever owns the lock owns the T; moving one moves the other.
unsafe impl<T: Send> Send for TicketLock<T> {}

impl<T> TicketLock<T> {
    /// An unlocked lock.
    pub fn new(value: T) -> Self {
        Self { next: AtomicU32::new(0), serving: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Waits for its turn. Dropping the guard unlocks.
    #[inline]
    pub fn lock(&self) -> TicketGuard<'_, T> {
        // Relaxed: a ticket gives no access yet.
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let mut backoff = Backoff::default();
        loop {
            // A1: acquire, pairs with R1 in the guard's drop. Without it this thread could read what the value was before
            // the former holder changed it.
            let serving = self.serving.load(Ordering::Acquire);
            if serving == ticket {
                return TicketGuard { lock: self, ticket };
            }
            backoff.wait_for_change(&self.serving, serving);
            // Whoever is next asks for the line to write it, and then looks: a look alone would leave a copy with the
            // holder, and the first store of the section would have to wait for another trip between the cores. Those
            // further behind only look, so that they don't fight over it.
            if ticket.wrapping_sub(serving) == 1 {
                prefetch_write_at((&raw const self.serving).cast());
            }
        }
    }

    /// Takes the lock if it is free and nobody waits.
    #[inline]
    pub fn try_lock(&self) -> Option<TicketGuard<'_, T>> {
        // A2: acquire, pairs with R1, as A1 does.
        let ticket = self.serving.load(Ordering::Acquire);
        // Relaxed: if nobody took this ticket, `serving` is still at it, since it never overtakes `next`; and what was
        // done before it got there A2 has seen.
        self.next
            .compare_exchange(ticket, ticket.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
            .then(|| TicketGuard { lock: self, ticket })
    }
}

lock_of_a_value!(TicketLock);

/// The right to the value of a [`TicketLock`]. Leaking it (`mem::forget`) leaves the lock locked.
#[must_use = "the lock is released when the guard is dropped"]
pub struct TicketGuard<'a, T> {
    lock: &'a TicketLock<T>,
    ticket: u32,
}

// SAFETY: a shared guard gives `&T` only, to as many threads as share it: hence T: Sync.
unsafe impl<T: Sync> Sync for TicketGuard<'_, T> {}

exclusive_guard!(TicketGuard);

impl<T> Drop for TicketGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // R1: release, pairs with A1 and A2. Without it the next holder could miss what was written in the section. A
        // plain store: only who has the lock writes it.
        self.lock.serving.store(self.ticket.wrapping_add(1), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn try_lock_says_whether_it_is_taken() {
        let mut lock = TicketLock::new(7);
        let guard = lock.lock();
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock().is_none(), "not unlocked by trying");
        drop(guard);
        assert_eq!(lock.try_lock().map(|guard| *guard), Some(7));
        *lock.get_mut() = 8;
        assert_eq!(*lock.lock(), 8);
    }

    #[test]
    fn a_panic_in_the_section_unlocks() {
        let lock = TicketLock::new(0);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut guard = lock.lock();
            *guard = 1;
            panic!("in the section");
        }));
        assert!(result.is_err());
        assert_eq!(*lock.lock(), 1);
    }

    #[test]
    fn tickets_wrap() {
        let lock = TicketLock {
            next: AtomicU32::new(u32::MAX),
            serving: AtomicU32::new(u32::MAX),
            ..TicketLock::new(1)
        };
        drop(lock.lock());
        assert_eq!(lock.try_lock().map(|guard| *guard), Some(1));
        assert_eq!(*lock.lock(), 1);
    }
}
