//! How long to spin for another thread before giving the CPU away.

use crate::primitive::{AtomicU64, yield_now};

/// Pauses before each yield. On x86_64 a pause is up to 140 cycles, so this is at most a few microseconds: much longer
/// than any critical section here takes unless its thread has lost the CPU.
#[cfg(not(loom))]
const SPINS: u32 = 64;

/// Waiting for a thread that will be done in a moment, if it runs at all: spins first; then, because the other
/// may wait for this very CPU, yields between looks.
#[derive(Default)]
pub(crate) struct Backoff {
    #[cfg(not(loom))]
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
        yield_now();
    }

    /// Waits a moment, or until `place` is no longer `seen`. The caller looks again with the ordering that it needs.
    #[inline]
    pub(crate) fn wait_for_change(&mut self, place: &AtomicU64, seen: u64) {
        #[cfg(all(target_arch = "aarch64", not(any(loom, miri))))]
        if self.spins < EVENTS {
            self.spins += 1;
            wait_for_event(place, seen);
            return;
        }
        let _ = (place, seen);
        self.wait();
    }
}

/// Waits for an event before each yield. Linux makes one happen every 100 µs at the latest (its arch-timer event stream),
/// so a thread that has lost its CPU is not waited for longer than twice that.
#[cfg(all(target_arch = "aarch64", not(any(loom, miri))))]
const EVENTS: u32 = 2;

/// Sleeps until another core writes to the line of `place`, if it is `seen` now: the load-exclusive watches the line, and
/// losing it is an event ("Wait for Event mechanism", Arm Architecture Reference Manual, D1.6). Linux waits for its locks
/// so (`__cmpwait` in arch/arm64/include/asm/cmpxchg.h). The event that may be left from before is taken first.
#[cfg(all(target_arch = "aarch64", not(any(loom, miri))))]
#[inline(always)]
fn wait_for_event(place: &AtomicU64, seen: u64) {
    // SAFETY: loads from `place`, which is aligned and lives, as an atomic access of its size, and touches nothing but the
    // register named, the flags and the monitor.
    unsafe {
        std::arch::asm!(
            "sevl",
            "wfe",
            "ldxr {value}, [{place}]",
            "cmp {value}, {seen}",
            "b.ne 2f",
            "wfe",
            "2:",
            value = out(reg) _,
            place = in(reg) place.as_ptr(),
            seen = in(reg) seen,
            options(nostack, readonly)
        );
    }
}
