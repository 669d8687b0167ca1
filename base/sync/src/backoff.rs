//! How long to spin for another thread before giving the CPU away.

use crate::primitive::yield_now;

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
}
