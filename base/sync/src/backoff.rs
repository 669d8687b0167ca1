//! How long to spin for another thread before giving the CPU away.

#[cfg(all(target_arch = "aarch64", not(any(loom, miri))))]
#[path = "backoff/aarch64.rs"]
mod event;
#[cfg(all(not(loom), any(miri, not(any(target_arch = "aarch64", target_arch = "x86_64")))))]
#[path = "backoff/portable.rs"]
mod event;
#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
#[path = "backoff/x86_64.rs"]
mod event;

use crate::primitive::{AtomicBool, AtomicU32, AtomicU64, yield_now};

/// Pauses before each yield. On x86_64 a pause is up to 140 cycles, so this is at most a few microseconds: much longer
/// than any critical section here takes unless its thread has lost the CPU.
const SPINS: u32 = 64;

/// Something that another thread will write, to be watched.
pub(crate) trait Watched {
    /// What is in it.
    type Value: Copy + PartialEq;

    /// Looks, with no ordering: only to know whether waiting is still worth while.
    #[cfg(not(loom))]
    fn look(&self) -> Self::Value;
}

macro_rules! watched {
    ($($atomic:ty: $value:ty),+) => {$(
        impl Watched for $atomic {
            type Value = $value;

            #[cfg(not(loom))]
            #[inline(always)]
            fn look(&self) -> $value {
                self.load(crate::primitive::Ordering::Relaxed)
            }
        }
    )+};
}

watched!(AtomicBool: bool, AtomicU32: u32, AtomicU64: u64);

/// Waiting for a thread that will be done in a moment, if it runs at all: spins first; then, because the other
/// may wait for this very CPU, yields between looks.
#[derive(Default)]
pub(crate) struct Backoff {
    spins: u32,
}

impl Backoff {
    /// Waits a moment.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn wait(&mut self) {
        if self.spins < SPINS {
            self.spins += 1;
            crate::spin::relax();
        } else {
            yield_now();
        }
    }

    /// Under loom spinning would never let the other thread go on.
    #[cfg(loom)]
    pub(crate) fn wait(&mut self) {
        self.spins = SPINS;
        yield_now();
    }

    /// Whether the wait was so long that the CPU was given away, or is about to be.
    #[inline]
    pub(crate) fn has_yielded(&self) -> bool {
        self.spins >= SPINS
    }

    /// Waits a moment, or until `watched` is no longer `seen`. The caller looks again with the ordering that it needs.
    ///
    /// Where the CPU can sleep until a line is written, it does so at first (`wfe`), or after some pauses (`umwait`,
    /// `mwaitx`), for a bounded time; then come yields as elsewhere.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn wait_for_change<W: Watched>(&mut self, watched: &W, seen: W::Value) {
        if (event::AFTER..SPINS).contains(&self.spins) {
            self.sleep(watched, seen);
        } else {
            self.wait();
        }
    }

    /// Under loom as any wait.
    #[cfg(loom)]
    pub(crate) fn wait_for_change<W: Watched>(&mut self, _: &W, _: W::Value) {
        self.wait();
    }

    /// Each sleep that ends without a change stands for as many pauses as make the yields begin after [`event::TIMES`] of them.
    #[cfg(not(loom))]
    #[cold]
    fn sleep<W: Watched>(&mut self, watched: &W, seen: W::Value) {
        if !event::sleep(watched, seen) {
            self.wait();
        } else if watched.look() == seen {
            self.spins += (SPINS - event::AFTER).div_ceil(event::TIMES);
        } else {
            // Somebody is at work: no reason to give the CPU away soon.
            self.spins += 1;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    /// Waits of a `Backoff` that end with its first yield.
    const WAITS: u32 = SPINS + 1;

    #[test]
    fn nobody_writes_and_the_wait_ends_all_the_same() {
        let watched = AtomicU32::new(7);
        let mut backoff = Backoff::default();
        for _ in 0..WAITS {
            backoff.wait_for_change(&watched, 7);
        }
        assert!(backoff.spins >= SPINS, "it yields by now");
    }

    #[test]
    fn what_was_written_before_the_wait_is_seen() {
        let watched = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| watched.store(1, Ordering::Release));
            let mut backoff = Backoff::default();
            while watched.load(Ordering::Acquire) == 0 {
                backoff.wait_for_change(&watched, 0);
            }
        });
        let flag = AtomicBool::new(true);
        let mut backoff = Backoff::default();
        for _ in 0..SPINS / 2 {
            backoff.wait_for_change(&flag, false);
        }
        assert!(backoff.spins < SPINS, "changes are no reason to yield");
    }
}
