//! The time that buckets and ages go by.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use warmlane_sys::clock::Clock;

/// Where the scheduler has its time from.
#[derive(Debug, Clone, Default)]
pub enum Time {
    /// The cycle counter.
    #[default]
    Cycles,
    /// Nanoseconds that somebody else counts: for simulations and tests, which a busy machine must not change.
    Given(Arc<AtomicU64>),
}

impl Time {
    /// Its ticks in a second.
    pub(super) fn per_second(&self) -> u64 {
        match self {
            Self::Cycles => Clock::calibrated().cycles_per_second(),
            Self::Given(_) => 1_000_000_000,
        }
    }

    /// The time when the cycle counter has this value. Once a burst.
    #[inline]
    pub(super) fn at(&self, cycles: u64) -> u64 {
        match self {
            Self::Cycles => cycles,
            Self::Given(nanoseconds) => nanoseconds.load(Ordering::Relaxed),
        }
    }
}
