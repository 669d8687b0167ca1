//! How long things took, in a histogram that one thread writes and anyone reads.

use std::fmt;

use crate::cell::{Cells, CellsView, CounterRef};
use crate::describe::{Description, Role};
use crate::registry::{Entry, Source};

/// Each power of two is cut into 2^`BITS` buckets, so a time is known to within a quarter.
const BITS: u32 = 2;

/// Times of 2^`LARGEST_POWER` nanoseconds (two seconds) and above are counted in the last bucket.
const LARGEST_POWER: u32 = 31;

const BUCKETS: usize = ((LARGEST_POWER - BITS + 1) << BITS) as usize;

/// Where the sum of all times is, behind the buckets.
const SUM: usize = BUCKETS;

/// What a registry is told: how many times lie below each power of four, and not below the one before. The prefixes are binary.
const RANGES: [(&str, u32); 12] = [
    ("below-1us", 10),
    ("below-4us", 12),
    ("below-16us", 14),
    ("below-64us", 16),
    ("below-256us", 18),
    ("below-1ms", 20),
    ("below-4ms", 22),
    ("below-16ms", 24),
    ("below-64ms", 26),
    ("below-256ms", 28),
    ("below-1s", 30),
    ("longer", u32::MAX),
];

/// Times in nanoseconds. One thread records; it can move to another, but not be shared or cloned. Anyone reads by a
/// [`DurationHistogramView`].
///
/// ```
/// use warmlane_counters::DurationHistogram;
///
/// let latency = DurationHistogram::new("latency");
/// let view = latency.view();
/// for microseconds in 1..=100 {
///     latency.record(microseconds * 1_000);
/// }
/// let times = view.times();
/// assert_eq!(times.count(), 100);
/// let median = times.quantile(0.5).unwrap();
/// assert!((50_000..62_500).contains(&median));
/// ```
pub struct DurationHistogram {
    cells: Cells<{ BUCKETS + 1 }>,
    set: &'static str,
}

impl DurationHistogram {
    /// Without a time. `set` is what registries call it, in lower case with hyphens.
    pub fn new(set: &'static str) -> Self {
        Self { cells: Cells::default(), set }
    }

    /// Counts a time.
    #[inline]
    pub fn record(&self, nanoseconds: u64) {
        self.cells.entry::<CounterRef<'_>>(bucket(nanoseconds)).add(1);
        self.cells.entry::<CounterRef<'_>>(SUM).add(nanoseconds);
    }

    /// The histogram, to read.
    pub fn view(&self) -> DurationHistogramView {
        DurationHistogramView { cells: self.cells.view(), set: self.set }
    }
}

impl fmt::Debug for DurationHistogram {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.view(), formatter)
    }
}

/// Reads a [`DurationHistogram`] from any thread. In a registry it is how many times lie in each of twelve ranges, which can be added up.
#[derive(Clone)]
pub struct DurationHistogramView {
    cells: CellsView<{ BUCKETS + 1 }>,
    set: &'static str,
}

impl DurationHistogramView {
    /// What was recorded until now.
    pub fn times(&self) -> Times {
        Times { counts: std::array::from_fn(|bucket| self.cells.get(bucket)), sum: self.cells.get(SUM) }
    }
}

impl Source for DurationHistogramView {
    fn read(&self, each: &mut dyn FnMut(Entry)) {
        let describe = |name, unit, help| Description { set: self.set, name, unit, help, role: Role::Note };
        let mut first = 0;
        for (name, power) in RANGES {
            let end = if power < LARGEST_POWER { bucket(1 << power) } else { BUCKETS };
            let count = (first..end).map(|bucket| self.cells.get(bucket)).sum();
            first = end;
            let help =
                "How many times lie in this range, and in none before it; 1 us is 1,024 ns, and so on.";
            each(Entry::of(describe(name, "times", help), count));
        }
        each(Entry::of(describe("sum", "nanoseconds", "All times together."), self.cells.get(SUM)));
    }
}

impl fmt::Debug for DurationHistogramView {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::registry::debug(self, "DurationHistogramView", formatter)
    }
}

/// Times as they were read, of one histogram or of several.
#[derive(Clone, Debug)]
pub struct Times {
    counts: [u64; BUCKETS],
    sum: u64,
}

impl Times {
    /// How many.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their mean in nanoseconds; `None` if there is none.
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum as f64 / count as f64)
    }

    /// The time in nanoseconds that `part` (0 to 1) of all are at or below, rounded up to the end of its bucket; `None` if there is none.
    #[expect(clippy::cast_sign_loss, reason = "a part of a count is not negative")]
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let wanted = ((part.clamp(0.0, 1.0) * self.count() as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map(upper)
    }

    /// Adds another's.
    pub fn add(&mut self, other: &Self) {
        self.sum = self.sum.wrapping_add(other.sum);
        for (count, others) in self.counts.iter_mut().zip(other.counts) {
            *count += others;
        }
    }
}

/// The top `BITS` + 1 bits of a number are its bucket's place inside its power of two.
#[inline(always)]
fn bucket(nanoseconds: u64) -> usize {
    let nanoseconds = nanoseconds.min((1 << LARGEST_POWER) - 1);
    let shift = (nanoseconds | (1 << BITS)).ilog2() - BITS;
    ((shift << BITS) as usize + (nanoseconds >> shift) as usize).min(BUCKETS - 1)
}

/// The largest number that is counted where `bucket` is.
const fn upper(bucket: usize) -> u64 {
    let shift = (bucket >> BITS).saturating_sub(1) as u32;
    let inside = bucket as u64 - ((shift as u64) << BITS);
    ((inside + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_in_the_bucket_that_ends_next() {
        for power in 0..LARGEST_POWER {
            for number in [1_u64 << power, (1 << power) + 1, (2 << power) - 1] {
                let found = bucket(number);
                assert!(number <= upper(found), "{number}");
                assert!(found == 0 || number > upper(found - 1), "{number}");
            }
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
        assert_eq!(upper(BUCKETS - 1), (1 << LARGEST_POWER) - 1);
    }

    #[test]
    fn quantiles_are_within_a_quarter_and_sums_are_exact() {
        let (one, other) = (DurationHistogram::new("a"), DurationHistogram::new("b"));
        for number in 1..=1_000 {
            one.record(number * 1_000);
        }
        let mut times = one.view().times();
        for (part, exact) in [(0.0, 1_000.0), (0.5, 500_000.0), (0.99, 990_000.0), (1.0, 1_000_000.0)] {
            let found = times.quantile(part).unwrap() as f64;
            assert!((exact..exact * 1.25).contains(&found), "{part}: {found}");
        }
        assert_eq!(times.mean(), Some(500_500.0));
        other.record(u64::from(u32::MAX));
        times.add(&other.view().times());
        assert_eq!((times.count(), times.quantile(1.0)), (1_001, Some((1 << LARGEST_POWER) - 1)));
        assert_eq!(DurationHistogram::new("c").view().times().quantile(0.5), None);
    }

    #[test]
    fn the_registry_gets_ranges_that_can_be_added() {
        let histogram = DurationHistogram::new("latency");
        for time in [0, 1_023, 1_024, 4_095, 4_096, 1 << 29, 1 << 30, 1 << 40] {
            histogram.record(time);
        }
        let mut found = Vec::new();
        histogram.view().read(&mut |entry| found.push((entry.description.name, entry.value)));
        found.retain(|(name, count)| *count > 0 && *name != "sum");
        assert_eq!(
            found,
            [("below-1us", 2), ("below-4us", 2), ("below-16us", 1), ("below-1s", 1), ("longer", 2)]
        );
    }
}
