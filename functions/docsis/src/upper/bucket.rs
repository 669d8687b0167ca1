//! Token buckets: no more than `burst` bytes at once, and in any time T no more than `burst + rate × T`.
//!
//! Kept as the time at which the bucket will be full (the virtual scheduling of ITU-T I.371's generic cell rate algorithm), so that
//! there is nothing to refill.

/// Bits of a cycle's fraction, so that no rate is rounded by more than one in a million.
const FRACTION: u32 = 32;

/// A bucket, full at first. Times are in cycles of the time-stamp counter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    /// Cycles that a byte takes, with the fraction.
    per_byte: u64,
    /// Cycles that the burst takes, with the fraction.
    depth: u128,
    /// When it is full, in cycles with the fraction.
    full_at: u128,
}

impl Bucket {
    /// A bucket of `rate` bits a second, which isn't 0, and `burst` bytes.
    pub(crate) fn new(rate: u64, burst: u64, cycles_per_second: u64) -> Self {
        let per_byte = ((u128::from(cycles_per_second) * 8) << FRACTION) / u128::from(rate.max(1));
        let per_byte = u64::try_from(per_byte).unwrap_or(u64::MAX);
        Self { per_byte, depth: u128::from(per_byte) * u128::from(burst), full_at: 0 }
    }

    /// When so many bytes may go, in cycles: `now` or before if they may at once.
    #[inline]
    pub(crate) fn ready_at(&self, bytes: u32, now: u64) -> u64 {
        let full_at = self.full_at.max(u128::from(now) << FRACTION);
        let empty_by = full_at + u128::from(self.per_byte) * u128::from(bytes);
        let at = empty_by.saturating_sub(self.depth);
        // Rounded up: a cycle too early would be too much.
        u64::try_from((at + ((1 << FRACTION) - 1)) >> FRACTION).unwrap_or(u64::MAX)
    }

    /// Takes the bytes out, whether they may go or not.
    #[inline]
    pub(crate) fn take(&mut self, bytes: u32, now: u64) {
        let full_at = self.full_at.max(u128::from(now) << FRACTION);
        self.full_at = full_at + u128::from(self.per_byte) * u128::from(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_burst_goes_at_once_and_then_the_rate_holds() {
        // A byte takes eight cycles.
        let mut bucket = Bucket::new(1_000_000, 3_000, 1_000_000);
        for _ in 0..2 {
            assert!(bucket.ready_at(1_500, 100) <= 100);
            bucket.take(1_500, 100);
        }
        assert_eq!(bucket.ready_at(1_000, 100), 100 + 8_000);
        assert!(bucket.ready_at(1_000, 8_100) <= 8_100);
        assert!(bucket.ready_at(3_001, u64::MAX / 2) > u64::MAX / 2, "never more than the burst");
    }

    proptest! {
        /// Over any time between two packets, the bound of MULPI annex C.2.2.6.2 holds, and over all time the rate is reached.
        #[test]
        fn no_interval_has_more_than_the_bound(
            rate in 10_000..10_000_000_000_u64,
            burst in 2_000..100_000_u64,
            sizes in prop::collection::vec(64..2_000_u32, 2..100),
        ) {
            let cycles = 3_000_000_000;
            let mut bucket = Bucket::new(rate, burst, cycles);
            let mut now = 12_345;
            let mut sent: Vec<(u64, u64)> = Vec::new();
            for size in sizes {
                now = now.max(bucket.ready_at(size, now));
                bucket.take(size, now);
                sent.push((now, size.into()));
            }
            for (index, (from, _)) in sent.iter().enumerate() {
                let mut bytes = 0_u64;
                for (until, size) in &sent[index..] {
                    bytes += size;
                    let allowed = u128::from(rate) * u128::from(until - from) / 8 / u128::from(cycles) + u128::from(burst);
                    prop_assert!(u128::from(bytes) <= allowed + 1);
                }
            }
            let total: u64 = sent.iter().map(|(_, size)| size).sum();
            let needed = u128::from(total.saturating_sub(burst)) * 8 * u128::from(cycles) / u128::from(rate);
            prop_assert!(u128::from(now - 12_345) <= needed + sent.len() as u128 + u128::from(needed > 0) * (needed / 1_000_000));
        }
    }
}
