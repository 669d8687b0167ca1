//! A small value that many read without writing anything, and few change.

use crate::backoff::Backoff;
use crate::primitive::{AtomicU64, Ordering, fence};
use crate::spin::{SpinLock, SpinLockGuard};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A sequence lock: a reader copies the value out and looks whether a writer was there meanwhile; if so, again.
///
/// For plain data of a few words: it is kept in atomic words, so that a copy that is made while a writer writes is
/// thrown away, but no data race (Boehm, "Can Seqlocks Get Along With Programming Language Memory Models?", MSPC 2012).
/// Hence `T` without padding (`IntoBytes`) and with any bytes allowed (`FromBytes`), and space for it chosen in `WORDS`
/// of 8 bytes; the default, 7, makes one cache line with the sequence number; a value that is too large does not
/// compile. Readers neither write nor wait for each other; while a writer stores, they spin for a few microseconds, then
/// yield their CPU between looks.
///
/// ```
/// use zerocopy::{FromBytes, Immutable, IntoBytes};
///
/// #[derive(Clone, Copy, Debug, PartialEq, FromBytes, Immutable, IntoBytes)]
/// #[repr(C)]
/// struct Calibration {
///     cycles: u64,
///     nanoseconds: u64,
/// }
///
/// let lock: warmlane_sync::extra::sequence::SequenceLock<_> = Calibration { cycles: 26, nanoseconds: 10 }.into();
/// lock.lock().nanoseconds = 11;
/// assert_eq!(lock.read(), Calibration { cycles: 26, nanoseconds: 11 });
/// ```
#[repr(align(64))]
pub struct SequenceLock<T, const WORDS: usize = 7> {
    /// Odd while a writer stores; two more after each. It doesn't wrap in a lifetime.
    sequence: AtomicU64,
    words: [AtomicU64; WORDS],
    /// Held by who writes, from before it reads the old value.
    writer: SpinLock<()>,
    holds: PhantomData<fn(T) -> T>,
}

impl<T: Copy + FromBytes + IntoBytes + Immutable, const WORDS: usize> SequenceLock<T, WORDS> {
    const FITS: () =
        assert!(size_of::<T>() <= 8 * WORDS, "the value does not fit the lock's words: use more of them");

    /// A lock with this value.
    pub fn new(value: T) -> Self {
        const { Self::FITS };
        let lock = Self {
            sequence: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            writer: SpinLock::new(()),
            holds: PhantomData,
        };
        lock.store(&value);
        lock
    }

    /// The value. Waits while a writer stores.
    #[inline]
    pub fn read(&self) -> T {
        let mut backoff = Backoff::default();
        loop {
            if let Some(value) = self.try_read() {
                return value;
            }
            backoff.wait();
        }
    }

    /// The value, unless a writer stores meanwhile.
    #[inline]
    pub fn try_read(&self) -> Option<T> {
        // A1: acquire, pairs with R1 in `publish`. Without it the words could be older than this number.
        let before = self.sequence.load(Ordering::Acquire);
        if before & 1 == 1 {
            return None;
        }
        let value = self.copy();
        // A2: an acquire fence, pairs with R2 in `publish` by way of the words. Without it the second look at the number
        // could be older than the words, and a torn value pass.
        fence(Ordering::Acquire);
        // Relaxed: the fence orders it.
        (self.sequence.load(Ordering::Relaxed) == before).then_some(value)
    }

    /// Waits for other writers. The guard holds a copy to change, which is stored when the guard is dropped; readers
    /// wait only for that.
    #[inline]
    pub fn lock(&self) -> SequenceGuard<'_, T, WORDS> {
        let writer = self.writer.lock();
        // No writer but this one: the words stand still, and locking has acquired them.
        SequenceGuard { value: self.copy(), lock: self, _writer: writer }
    }

    /// As [`lock`](Self::lock), unless there is another writer.
    #[inline]
    pub fn try_lock(&self) -> Option<SequenceGuard<'_, T, WORDS>> {
        let writer = self.writer.try_lock()?;
        Some(SequenceGuard { value: self.copy(), lock: self, _writer: writer })
    }

    /// Replaces what is there by `value`. Waits for other writers.
    #[inline]
    pub fn write(&self, value: T) {
        let _writer = self.writer.lock();
        self.publish(&value);
    }

    /// What the words say now, torn if a writer is at it.
    #[inline(always)]
    fn copy(&self) -> T {
        let mut value = T::new_zeroed();
        for (bytes, word) in value.as_mut_bytes().chunks_mut(8).zip(&self.words) {
            // Relaxed: ordered by what stands around it.
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[..bytes.len()]);
        }
        value
    }

    #[inline(always)]
    fn store(&self, value: &T) {
        for (bytes, word) in value.as_bytes().chunks(8).zip(&self.words) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            // Relaxed: ordered by what stands around it.
            word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
        }
    }

    /// Stores a value; the caller is the only writer.
    #[inline(always)]
    fn publish(&self, value: &T) {
        // Relaxed: only writers change it, one at a time, and locking has acquired what the one before stored.
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        // R2: a release fence, pairs with A2. Without it a reader could find a new word beside the old number, both times.
        fence(Ordering::Release);
        self.store(value);
        // R1: release, pairs with A1. Without it the number could be seen before the words.
        self.sequence.store(sequence + 2, Ordering::Release);
    }
}

impl<T: Copy + FromBytes + IntoBytes + Immutable, const WORDS: usize> From<T> for SequenceLock<T, WORDS> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T, const WORDS: usize> fmt::Debug for SequenceLock<T, WORDS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SequenceLock").finish_non_exhaustive()
    }
}

/// The right to change the value of a [`SequenceLock`]: a copy that is stored when the guard is dropped, also by a panic.
/// Leaking it (`mem::forget`) stores nothing and keeps other writers out for good; readers don't notice.
#[must_use = "the value is stored when the guard is dropped"]
pub struct SequenceGuard<'a, T: Copy + FromBytes + IntoBytes + Immutable, const WORDS: usize> {
    value: T,
    lock: &'a SequenceLock<T, WORDS>,
    /// Unlocked after the value is stored: fields are dropped after `drop` has run.
    _writer: SpinLockGuard<'a, ()>,
}

impl<T: Copy + FromBytes + IntoBytes + Immutable, const WORDS: usize> Deref for SequenceGuard<'_, T, WORDS> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Copy + FromBytes + IntoBytes + Immutable, const WORDS: usize> DerefMut
    for SequenceGuard<'_, T, WORDS>
{
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Copy + FromBytes + IntoBytes + Immutable, const WORDS: usize> Drop for SequenceGuard<'_, T, WORDS> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.publish(&self.value);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    type Odd = [u8; 21];

    #[test]
    fn a_value_of_any_length_comes_back() {
        let lock = SequenceLock::<Odd, 3>::new(std::array::from_fn(|index| index as u8));
        assert_eq!(lock.read(), std::array::from_fn(|index| index as u8));
        lock.write([7; 21]);
        assert_eq!(lock.try_read(), Some([7; 21]));
        SequenceLock::<[u8; 0], 0>::new([]).read();
        assert_eq!(size_of::<SequenceLock<[u64; 6], 6>>(), 64, "one line");
    }

    #[test]
    fn readers_see_the_old_value_until_the_guard_is_dropped() {
        let lock: SequenceLock<_> = [1_u64, 2].into();
        let mut guard = lock.lock();
        guard[1] = 3;
        assert_eq!(*guard, [1, 3]);
        assert_eq!(lock.try_read(), Some([1, 2]));
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert_eq!(lock.read(), [1, 3]);
        *lock.try_lock().unwrap() = [4, 5];
        assert_eq!(lock.read(), [4, 5]);
        std::mem::forget(lock.lock());
        assert_eq!(lock.read(), [4, 5]);
    }

    #[test]
    fn a_writer_in_the_middle_is_noticed() {
        let lock: SequenceLock<_> = 1_u64.into();
        lock.sequence.store(3, Ordering::Relaxed);
        assert_eq!(lock.try_read(), None);
    }
}
