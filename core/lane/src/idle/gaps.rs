//! How far apart packets are, as learned from those that came.

use super::policy::Limits;

/// A gap counts for one eighth of what is learned.
const LEARNED_BITS: u32 = 3;

/// At which intervals packets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pace {
    /// So soon that it doesn't pay to do anything but poll.
    Close,
    /// So often that being woken for each would cost more than to look now and then.
    Apart,
    /// So seldom that each may wake the lane.
    Rare,
}

impl Pace {
    const fn of(gap: u64, close: u64, apart: u64) -> Self {
        if gap <= close {
            Self::Close
        } else if gap <= apart {
            Self::Apart
        } else {
            Self::Rare
        }
    }
}

/// What is learned, in cycles.
#[derive(Debug)]
pub(super) struct Gaps {
    mean: u64,
    pace: Pace,
}

impl Gaps {
    pub(super) const fn new() -> Self {
        Self { mean: 0, pace: Pace::Close }
    }

    pub(super) const fn pace(&self) -> Pace {
        self.pace
    }

    /// One more gap.
    pub(super) fn learn(&mut self, gap: u64, limits: &Limits) {
        // A long gap says no more than that it was long, and is not to be remembered for as many short ones.
        let gap = gap.min(limits.apart.saturating_mul(4));
        self.mean = self.mean - (self.mean >> LEARNED_BITS) + (gap >> LEARNED_BITS);
        // Not back at once: the pace is that of before as long as the mean is neither clearly shorter nor clearly longer.
        let fastest = Pace::of(self.mean, limits.close, limits.apart);
        let slowest = Pace::of(self.mean, limits.close / 2, limits.apart / 2);
        self.pace = self.pace.clamp(fastest, slowest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const LIMITS: Limits = Limits {
        close: 1_000,
        apart: 10_000,
        often: 10_000,
        seldom: 1_000,
        nap: Duration::from_micros(5),
        pause: Duration::from_micros(20),
        sleep: Duration::from_millis(100),
    };

    /// How many gaps of this length it takes until the pace is another one, 200 at most.
    fn until_other(gaps: &mut Gaps, gap: u64) -> usize {
        let before = gaps.pace();
        (0..200)
            .find(|_| {
                gaps.learn(gap, &LIMITS);
                gaps.pace() != before
            })
            .unwrap_or(200)
    }

    #[test]
    fn the_pace_follows_the_gaps_within_some_dozens() {
        let mut gaps = Gaps::new();
        assert!(until_other(&mut gaps, 4_000) < 8);
        assert_eq!(gaps.pace(), Pace::Apart);
        assert!(until_other(&mut gaps, 1_000_000) < 8);
        assert_eq!(gaps.pace(), Pace::Rare);
        for _ in 0..40 {
            gaps.learn(100, &LIMITS);
        }
        assert_eq!(gaps.pace(), Pace::Close);
    }

    #[test]
    fn one_long_gap_among_short_ones_changes_nothing_for_long() {
        let mut gaps = Gaps::new();
        for _ in 0..100 {
            gaps.learn(100, &LIMITS);
        }
        // A second, and it is as if it had been four times the limit.
        gaps.learn(u64::MAX, &LIMITS);
        assert_eq!(gaps.pace(), Pace::Apart);
        assert!(until_other(&mut gaps, 100) < 30);
        assert_eq!(gaps.pace(), Pace::Close);
    }

    /// Gaps on either side of a limit don't change the pace again and again.
    #[test]
    fn gaps_about_a_limit_leave_the_pace_alone() {
        for (limit, gap) in [(LIMITS.close, 4_000), (LIMITS.apart, 100_000)] {
            let mut gaps = Gaps::new();
            for _ in 0..100 {
                gaps.learn(gap, &LIMITS);
            }
            // Nine tenths of the limit: above half of it.
            let from_above = gaps.pace();
            assert_eq!(until_other(&mut gaps, limit * 9 / 10), 200, "{from_above:?}");
            // Well below, and then up to nine tenths again.
            until_other(&mut gaps, limit / 4);
            assert!(gaps.pace() < from_above);
            assert_eq!(until_other(&mut gaps, limit * 9 / 10), 200);
        }
    }
}
