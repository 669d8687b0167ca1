//! The clock that programs in the kernel go by.

use rustix::time::{ClockId, clock_gettime};

/// The coarse monotonic clock, in nanoseconds.
pub(crate) fn coarse_now() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
