//! A histogram of fixed size for numbers of any size, with a bounded relative error.

/// Buckets whose width grows with the number: each power of two is cut into 2^`bits` of them, so a number is known to
/// within one part in 2^`bits` (Tene's HDR histogram has the same layout). Recording is a shift, an add and a store.
#[derive(Clone, Debug)]
pub struct Histogram {
    bits: u32,
    counts: Box<[u64]>,
    total: u64,
    sum: u128,
    minimum: u64,
    maximum: u64,
}

/// Numbers of 2^44 and above (an hour and more in cycles) are counted in the last bucket.
const LARGEST_POWER: u32 = 44;

impl Histogram {
    /// Nothing recorded. `bits` is brought into 1..=10.
    pub fn new(bits: u32) -> Self {
        let bits = bits.clamp(1, 10);
        let buckets = ((LARGEST_POWER - bits + 1) as usize) << bits;
        let counts = vec![0; buckets].into_boxed_slice();
        Self { bits, counts, total: 0, sum: 0, minimum: u64::MAX, maximum: 0 }
    }

    /// Counts a number once.
    #[inline]
    pub fn record(&mut self, number: u64) {
        self.record_many(number, 1);
    }

    /// Counts a number `times` times.
    #[inline]
    pub fn record_many(&mut self, number: u64, times: u64) {
        if times == 0 {
            return;
        }
        let bucket = self.bucket(number).min(self.counts.len() - 1);
        self.counts[bucket] += times;
        self.total += times;
        self.sum += u128::from(number) * u128::from(times);
        self.minimum = self.minimum.min(number);
        self.maximum = self.maximum.max(number);
    }

    #[inline(always)]
    const fn bucket(&self, number: u64) -> usize {
        // The top `bits` + 1 bits of a number are its bucket's place inside its power of two.
        let power = (number | (1 << self.bits)).ilog2();
        let shift = power - self.bits;
        ((shift as usize) << self.bits) + (number >> shift) as usize
    }

    /// The largest number that is counted where `bucket` is.
    const fn upper(&self, bucket: usize) -> u64 {
        let shift = (bucket >> self.bits).saturating_sub(1) as u32;
        let inside = bucket as u64 - ((shift as u64) << self.bits);
        ((inside + 1) << shift) - 1
    }

    /// How many were recorded.
    pub const fn count(&self) -> u64 {
        self.total
    }

    /// The smallest number; `None` if there is none.
    pub fn minimum(&self) -> Option<u64> {
        (self.total > 0).then_some(self.minimum)
    }

    /// The largest number; `None` if there is none.
    pub fn maximum(&self) -> Option<u64> {
        (self.total > 0).then_some(self.maximum)
    }

    /// The mean; `None` if there is none.
    pub fn mean(&self) -> Option<f64> {
        (self.total > 0).then(|| self.sum as f64 / self.total as f64)
    }

    /// The number that `part` (0 to 1) of all are at or below, to within a bucket; `None` if there is none.
    #[expect(clippy::cast_sign_loss, reason = "a part of a count is not negative")]
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let wanted = ((part.clamp(0.0, 1.0) * self.total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Some(self.upper(bucket).clamp(self.minimum, self.maximum));
            }
        }
        None
    }

    /// Adds what another has recorded, which was made with the same `bits`, else bucket by bucket's upper end.
    pub fn add(&mut self, other: &Self) {
        if other.total == 0 {
            return;
        }
        for (bucket, &count) in other.counts.iter().enumerate() {
            if count > 0 {
                let place = self.bucket(other.upper(bucket)).min(self.counts.len() - 1);
                self.counts[place] += count;
            }
        }
        self.total += other.total;
        self.sum += other.sum;
        self.minimum = self.minimum.min(other.minimum);
        self.maximum = self.maximum.max(other.maximum);
    }

    /// Each bucket that is not empty: the largest number it stands for, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(bucket, &count)| (self.upper(bucket), count))
    }
}

#[cfg(test)]
#[expect(clippy::cast_sign_loss, reason = "ranks are not negative")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantiles_are_within_a_bucket(numbers in prop::collection::vec(0..1_u64 << 43, 1..300), part in 0.0..=1.0_f64) {
            let mut histogram = Histogram::new(7);
            for &number in &numbers {
                histogram.record(number);
            }
            let mut sorted = numbers.clone();
            sorted.sort_unstable();
            let rank = ((part * sorted.len() as f64).ceil() as usize).max(1) - 1;
            let (exact, ours) = (sorted[rank], histogram.quantile(part).unwrap());
            prop_assert!(ours >= exact && ours - exact <= exact >> 7, "{ours} for {exact}");
            prop_assert_eq!(histogram.minimum(), sorted.first().copied());
            prop_assert_eq!(histogram.maximum(), sorted.last().copied());
        }
    }

    #[test]
    fn empty_and_huge() {
        let mut histogram = Histogram::new(5);
        assert_eq!((histogram.quantile(0.5), histogram.mean(), histogram.minimum()), (None, None, None));
        histogram.record(u64::MAX);
        assert_eq!((histogram.count(), histogram.maximum()), (1, Some(u64::MAX)));
        let mut sum = Histogram::new(5);
        sum.record_many(3, 4);
        sum.add(&histogram);
        assert_eq!((sum.count(), sum.minimum(), sum.quantile(0.5)), (5, Some(3), Some(3)));
    }
}
