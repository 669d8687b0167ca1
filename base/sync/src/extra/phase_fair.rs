//! A lock for many readers or one writer, in which neither starves.

use crate::backoff::Backoff;
use crate::lock::{exclusive_guard, lock_of_a_value};
use crate::primitive::{AtomicU32, AtomicU64, Ordering, UnsafeCell};
use std::fmt;
use std::ops::Deref;

/// A phase-fair read-write lock: phases of readers and of one writer take turns. So a reader waits for one writer at most. A
/// writer waits for the readers that were there before, and for the writers before it.
///
/// It is the ticket form PF-T of Brandenburg and Anderson, "Spin-Based Reader-Writer Synchronization for Multiprocessor
/// Real-Time Systems", Real-Time Systems 46(1), 2010.
///
/// Each reader's entry and exit is a locked instruction on a line that all share: for what is read on every burst use
/// [`rcu`](crate::rcu), for small values [`sequence`](super::sequence). Who waits spins for a few microseconds, then
/// yields its CPU between looks. Not reentrant (a reader that reads again may wait for a writer that waits for it), and
/// not poisoned: a panic in the section unlocks.
///
/// ```
/// let lock = warmlane_sync::extra::phase_fair::PhaseFairLock::new(1);
/// *lock.write() += 1;
/// let (one, two) = (lock.read(), lock.read());
/// assert_eq!(*one + *two, 4);
/// assert!(lock.try_write().is_none());
/// ```
pub struct PhaseFairLock<T> {
    /// Readers that came, in steps of `READER`; below that, whether a writer is there, and in which phase.
    entries: AtomicU64,
    /// Readers that went, in steps of `READER`. Both wrap after 2⁵⁶ readers: even who leaks guards on purpose does not
    /// live to see a writer let in beside them.
    exits: AtomicU64,
    /// The ticket that the next writer gets, and the one that has its turn.
    next: AtomicU32,
    serving: AtomicU32,
    /// The phase of the last writer that came in, known to who has its turn. Not a bit of the ticket: a turn that ends
    /// without a writer (`try_write`) would leave two writers in a row with the same, and a reader that waits for the
    /// first would wait for the second, which waits for it.
    phase: AtomicU64,
    value: UnsafeCell<T>,
}

/// One reader.
const READER: u64 = 0x100;
/// A writer is there.
const PRESENT: u64 = 0b10;
/// Differs from one writer to the next, so that a reader sees that it was another one.
const PHASE: u64 = 0b01;
const WRITER: u64 = PRESENT | PHASE;

// SAFETY: `&PhaseFairLock` gives `&T` to many threads at once (T: Sync), or `&mut T` to one at a time, with releases
// at unlock that the next lock acquires, which moves the T between threads (T: Send).
unsafe impl<T: Send + Sync> Sync for PhaseFairLock<T> {}
// SAFETY: whoever owns the lock owns the T; moving one moves the other.
unsafe impl<T: Send> Send for PhaseFairLock<T> {}

impl<T> PhaseFairLock<T> {
    /// An unlocked lock.
    pub fn new(value: T) -> Self {
        Self {
            entries: AtomicU64::new(0),
            exits: AtomicU64::new(0),
            next: AtomicU32::new(0),
            serving: AtomicU32::new(0),
            phase: AtomicU64::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits until it may read, together with others. Dropping the guard unlocks.
    #[inline]
    pub fn read(&self) -> ReadGuard<'_, T> {
        // A1: acquire, pairs with R1 in the writer's drop. Without it this thread could read what the value was before
        // the writer changed it.
        let writer = self.entries.fetch_add(READER, Ordering::Acquire) & WRITER;
        if writer != 0 {
            let mut backoff = Backoff::default();
            // A2: acquire, pairs with R1, as A1 does. Gone, or another one: that one waits for this reader.
            loop {
                let entries = self.entries.load(Ordering::Acquire);
                if entries & WRITER != writer {
                    break;
                }
                backoff.wait_for_change(&self.entries, entries);
            }
        }
        ReadGuard { lock: self }
    }

    /// Reads if no writer is there.
    #[inline]
    pub fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        // Relaxed: only what to expect.
        let mut entries = self.entries.load(Ordering::Relaxed);
        while entries & WRITER == 0 {
            // A3: acquire, pairs with R1, as A1 does. Relaxed if it fails: then nothing is read.
            match self.entries.compare_exchange(
                entries,
                entries.wrapping_add(READER),
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(ReadGuard { lock: self }),
                Err(other) => entries = other,
            }
        }
        None
    }

    /// Waits until it alone has the value. Dropping the guard unlocks.
    #[inline]
    pub fn write(&self) -> WriteGuard<'_, T> {
        // Relaxed: a ticket gives no access yet.
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let mut backoff = Backoff::default();
        // A4: acquire, pairs with R2 in the writer's drop. Without it this thread could miss what the writer before
        // wrote, or see its bits still in `entries`.
        loop {
            let serving = self.serving.load(Ordering::Acquire);
            if serving == ticket {
                break;
            }
            backoff.wait_for_change(&self.serving, serving);
        }
        // Relaxed: readers that come from now on see the bits and wait, whatever else they see. It continues the release
        // sequence of R1 for those that wait for the writer before.
        let phase = self.next_phase();
        let entered = self.entries.fetch_add(PRESENT | phase, Ordering::Relaxed);
        self.phase.store(phase, Ordering::Relaxed);
        // A5: acquire, pairs with R3 in the readers' drop, all of them, since they are read-modify-writes. Without it a
        // read could still be going on.
        loop {
            let exits = self.exits.load(Ordering::Acquire);
            if exits == entered {
                break;
            }
            backoff.wait_for_change(&self.exits, exits);
        }
        WriteGuard { lock: self, ticket }
    }

    /// Writes if nobody reads, writes or waits to write.
    #[inline]
    pub fn try_write(&self) -> Option<WriteGuard<'_, T>> {
        // A6: acquire, pairs with R2, as A4 does.
        let ticket = self.serving.load(Ordering::Acquire);
        // Relaxed: if nobody took this ticket, `serving` is still at it.
        self.next
            .compare_exchange(ticket, ticket.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed)
            .ok()?;
        // A7: acquire, pairs with R3, as A5 does.
        let exits = self.exits.load(Ordering::Acquire);
        let phase = self.next_phase();
        // Relaxed: as in `write`. As many came as went, and nobody between.
        let entries = exits | PRESENT | phase;
        if self.entries.compare_exchange(exits, entries, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            self.end_turn(ticket);
            return None;
        }
        self.phase.store(phase, Ordering::Relaxed);
        Some(WriteGuard { lock: self, ticket })
    }

    /// The phase of a writer that comes in now; the caller has its turn.
    #[inline(always)]
    fn next_phase(&self) -> u64 {
        // Relaxed: only who has its turn reads or writes it, and turns are ordered by R2.
        self.phase.load(Ordering::Relaxed) ^ PHASE
    }

    /// Lets the next writer come.
    #[inline(always)]
    fn end_turn(&self, ticket: u32) {
        // R2: release, pairs with A4 and A6. Without it the next writer could miss what this one wrote. A plain store:
        // only who has the turn writes it.
        self.serving.store(ticket.wrapping_add(1), Ordering::Release);
    }
}

lock_of_a_value!(PhaseFairLock);

/// The right to read the value of a [`PhaseFairLock`]. Leaking it (`mem::forget`) keeps writers out for good.
#[must_use = "the lock is released when the guard is dropped"]
pub struct ReadGuard<'a, T> {
    lock: &'a PhaseFairLock<T>,
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists, so no writer has the value; readers only have `&T`.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T> Drop for ReadGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // R3: release, pairs with A5 and A7. Without it the reads of this section could come after a writer's writes.
        self.lock.exits.fetch_add(READER, Ordering::Release);
    }
}

impl<T: fmt::Debug> fmt::Debug for ReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// The right to write the value of a [`PhaseFairLock`]. Leaking it (`mem::forget`) leaves the lock locked.
#[must_use = "the lock is released when the guard is dropped"]
pub struct WriteGuard<'a, T> {
    lock: &'a PhaseFairLock<T>,
    ticket: u32,
}

exclusive_guard!(WriteGuard);

impl<T> Drop for WriteGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // R1: release, pairs with A1, A2 and A3. Without it a reader could miss what was written in the section.
        self.lock.entries.fetch_and(!WRITER, Ordering::Release);
        self.lock.end_turn(self.ticket);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn many_read_or_one_writes() {
        let mut lock = PhaseFairLock::new(7);
        let (first, second) = (lock.read(), lock.try_read().unwrap());
        assert_eq!(*first + *second, 14);
        assert!(lock.try_write().is_none());
        drop(first);
        assert!(lock.try_write().is_none());
        drop(second);
        let mut writer = lock.try_write().unwrap();
        *writer = 8;
        assert!(lock.try_read().is_none());
        assert!(lock.try_write().is_none());
        drop(writer);
        assert_eq!(*lock.read(), 8);
        *lock.get_mut() = 9;
        assert_eq!(*lock.write(), 9);
    }

    #[test]
    fn a_panic_in_the_section_unlocks() {
        let lock = PhaseFairLock::new(0);
        for write in [true, false] {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let _guards = if write { (Some(lock.write()), None) } else { (None, Some(lock.read())) };
                panic!("in the section");
            }));
            assert!(result.is_err());
            assert!(lock.try_write().is_some());
        }
    }

    #[test]
    fn counts_wrap() {
        let lock = PhaseFairLock::new(0);
        let last = u64::MAX - 2 * READER + 1;
        lock.entries.store(last, Ordering::Relaxed);
        lock.exits.store(last, Ordering::Relaxed);
        lock.next.store(u32::MAX, Ordering::Relaxed);
        lock.serving.store(u32::MAX, Ordering::Relaxed);
        for _ in 0..4 {
            drop((lock.read(), lock.read()));
            *lock.write() += 1;
            assert!(lock.try_write().is_some());
        }
        assert_eq!(*lock.read(), 4);
    }
}
