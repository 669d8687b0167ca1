//! From rounds to a result, and when there is none.

use serde::{Deserialize, Serialize};

/// Rounds that are this far apart did not measure the program, but something around it.
const WIDEST: f64 = 1.6;
/// One in so many rounds at each end doesn't count for that: a median withstands them.
const ASIDE: usize = 10;
/// Two groups of rounds this far apart are two modes, not noise around one value.
const GAP: f64 = 1.2;
/// A group has at least one in so many of the rounds; fewer are outliers, which a median withstands.
const SMALLEST_GROUP: usize = 5;

/// The middle and the ends of a side's rounds.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Spread {
    /// Half of the rounds were faster.
    pub median: f64,
    /// The fastest round.
    pub min: f64,
    /// The slowest round.
    pub max: f64,
}

impl Spread {
    /// `None` without rounds.
    pub fn of(rounds: &[f64]) -> Option<Self> {
        let sorted = sorted(rounds);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Self { median, min, max })
    }
}

/// The chance that the true middle lies below [`Interval::low`] is at most this, and as much that it lies above [`Interval::high`].
const BEYOND: f64 = 0.05;

/// Where the middle of all values lies that there could be, going by those that there are.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// The narrowest pair of values, as many below the lower one as above the upper one, that the true median is between with a
    /// chance of 90 % or more, so that each end holds with 95 %; `None` of fewer than five values, of which no pair is sure enough.
    ///
    /// Each value is below the median with a chance of one half, whatever they are distributed like, so the number of those below is
    /// binomial (David and Nagaraja, Order Statistics, 3rd edition, section 7.1; Le Boudec, Performance Evaluation of Computer and
    /// Communication Systems, theorem 2.1). The values have to be independent. Rounds of one run hardly are, for what surrounds them
    /// lasts; runs at different times are more so, which is why what is promised is held against the interval over runs.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let count = sorted.len();
        // The logarithm of the chance that exactly so many of them are below the median, and the chance that no more are.
        let mut exactly = -(count as f64) * std::f64::consts::LN_2;
        let (mut beyond, mut asides) = (exactly.exp(), 0);
        while beyond <= BEYOND {
            asides += 1;
            exactly += ((count - asides + 1) as f64 / asides as f64).ln();
            beyond += exactly.exp();
        }
        let aside = usize::checked_sub(asides, 1)?;
        Some(Self { low: sorted[aside], high: sorted[count - 1 - aside] })
    }
}

/// The middle of some values, `NaN` of none.
pub fn median(values: &[f64]) -> f64 {
    Spread::of(values).map_or(f64::NAN, |spread| spread.median)
}

fn sorted(rounds: &[f64]) -> Vec<f64> {
    let mut sorted = rounds.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Why a side's rounds don't make a result, if so: its median would depend on chance.
pub fn unsteady(side: &str, rounds: &[f64]) -> Option<String> {
    too_wide(side, rounds).or_else(|| two_modes(side, rounds))
}

/// Says so if rounds are too far apart, but for a few.
pub fn too_wide(what: &str, rounds: &[f64]) -> Option<String> {
    let sorted = sorted(rounds);
    let aside = sorted.len() / ASIDE;
    let counted = &sorted[aside..sorted.len() - aside];
    let (min, max) = (*counted.first()?, *counted.last()?);
    (max > min * WIDEST).then(|| {
        format!(
            "{what} varies from {min:.1} to {max:.1}, more than {WIDEST} times: something else ran beside it"
        )
    })
}

/// Says so if rounds come in two groups.
pub fn two_modes(what: &str, rounds: &[f64]) -> Option<String> {
    let sorted = sorted(rounds);
    let least = sorted.len().div_ceil(SMALLEST_GROUP).max(2);
    // Of the neighbours that divide the rounds in two groups, those that are furthest apart; an outlier is no group.
    let (split, gap) = (least..(sorted.len() + 1).saturating_sub(least))
        .map(|split| (split, sorted[split] / sorted[split - 1]))
        .max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    (gap > GAP).then(|| {
        format!(
            "{what} has two modes: {split} rounds up to {:.1}, {} from {:.1}",
            sorted[split - 1],
            sorted.len() - split,
            sorted[split]
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_ends() {
        let spread =
            |rounds: &[f64]| Spread::of(rounds).map(|spread| (spread.median, spread.min, spread.max));
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[3.0]), Some((3.0, 3.0, 3.0)));
        assert_eq!(spread(&[5.0, 1.0, 2.0]), Some((2.0, 1.0, 5.0)));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), Some((2.5, 1.0, 4.0)));
    }

    #[test]
    fn intervals_are_those_of_the_tables() {
        let interval = |count: u32| {
            Interval::of(&(1..=count).rev().map(f64::from).collect::<Vec<_>>())
                .map(|Interval { low, high }| (low, high))
        };
        assert_eq!([0, 1, 4].map(interval), [None; 3]);
        assert_eq!([5, 7].map(interval), [Some((1.0, 5.0)), Some((1.0, 7.0))]);
        assert_eq!([8, 15, 20].map(interval), [Some((2.0, 7.0)), Some((4.0, 12.0)), Some((6.0, 15.0))]);
        // By the normal approximation, 5,000 less 1.645 times 50, and what is discrete.
        assert_eq!(interval(10_000), Some((4_918.0, 5_083.0)));
    }

    #[test]
    fn noise_and_a_single_outlier_are_fine() {
        assert_eq!(unsteady("ours", &[]), None);
        assert_eq!(unsteady("ours", &[10.0; 9]), None);
        let slope: Vec<f64> = (0..9).map(|i| 10.0 + 0.6 * f64::from(i)).collect();
        assert_eq!(unsteady("ours", &slope), None);
        assert_eq!(unsteady("ours", &[10.0, 10.1, 10.2, 9.9, 10.0, 10.1, 10.3, 10.0, 14.0]), None);
    }

    #[test]
    fn a_wide_spread_is_told() {
        let reason = unsteady("the peer", &[10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 16.5]).unwrap();
        assert_eq!(
            reason,
            "the peer varies from 10.0 to 16.5, more than 1.6 times: something else ran beside it"
        );
    }

    #[test]
    fn one_in_ten_at_each_end_may_be_anything() {
        let mut rounds = vec![10.0; 20];
        (rounds[3], rounds[4], rounds[11], rounds[12]) = (1.0, 1.0, 90.0, 90.0);
        assert_eq!(unsteady("ours", &rounds), None);
        rounds[13] = 90.0;
        assert!(unsteady("ours", &rounds).unwrap().starts_with("ours varies from 10.0 to 90.0"));
    }

    #[test]
    fn two_modes_are_told_in_any_order() {
        let rounds = [10.0, 13.0, 10.1, 13.1, 10.2, 13.0, 10.0, 10.1, 10.0];
        assert_eq!(
            unsteady("ours", &rounds).unwrap(),
            "ours has two modes: 6 rounds up to 10.2, 3 from 13.0"
        );
        // One that is further away than the modes are from each other hides them no more.
        let with_outlier = [10.0, 12.5, 10.1, 12.4, 10.2, 12.5, 10.0, 10.1, 15.8];
        let told = unsteady("ours", &with_outlier).unwrap();
        assert_eq!(told, "ours has two modes: 5 rounds up to 10.2, 4 from 12.4");
        let mirrored: Vec<f64> = rounds.iter().map(|round| 23.0 - round).collect();
        assert!(unsteady("ours", &mirrored).unwrap().starts_with("ours has two modes: 3 rounds"));
    }
}
