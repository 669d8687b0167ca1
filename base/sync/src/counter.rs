//! A count that one lane writes and anybody reads.

use std::fmt;
// Not from `primitive`: no other memory hangs on a count, so there is no ordering to check, and `new` can be const.
use std::sync::atomic::{AtomicU64, Ordering};

/// A 64-bit count with a single writer.
///
/// `add` is a plain load, add and store: no locked instruction, which would cost about 20 cycles even on a line
/// that no other lane has. The price is the rule: **one thread adds**. Two that add at the same time lose counts;
/// nothing worse happens. Readers on any thread see whole values that never go backwards, a little late. Counts
/// of two counters read together may disagree by what happened in between.
///
/// It wraps at 2⁶⁴. Put counters of different lanes in a [`CachePadded`](crate::padded::CachePadded) each.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `count`. Only one thread may do so.
    #[inline(always)]
    pub fn add(&self, count: u64) {
        // Relaxed, and not fetch_add: see the type.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// The count, as far as it is visible here.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_the_count_grow_and_end_right() {
        const COUNTS: u64 = 1_000_000;
        let counter = Counter::new();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..COUNTS).for_each(|_| counter.add(3)));
            let mut last = 0;
            while last < 3 * COUNTS {
                let now = counter.get();
                assert!(now >= last && now.is_multiple_of(3), "{now} after {last}");
                last = now;
            }
        });
        assert_eq!(counter.get(), 3 * COUNTS);
    }

    #[test]
    fn it_wraps() {
        let counter = Counter::new();
        counter.add(u64::MAX);
        counter.add(2);
        assert_eq!(counter.get(), 1);
    }
}
