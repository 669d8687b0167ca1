//! What a round gives beside its cost: quantiles, shares, costs by size.
//!
//! Rounds are repeated and turns left out, so that the number of a round says nothing; but its cost, measured in cycles, is its
//! own, and by that it is found again among those that count.

use crate::statistics::median;
use crate::turns::Taken;

/// Values of rounds, by way.
#[derive(Debug)]
pub(crate) struct Alongside<T>(Vec<Vec<(f64, T)>>);

impl<T> Alongside<T> {
    /// For so many ways.
    pub(crate) fn new(ways: usize) -> Self {
        Self((0..ways).map(|_| Vec::new()).collect())
    }

    /// A round of a way had this cost and this value.
    pub(crate) fn note(&mut self, way: usize, cost: f64, value: T) {
        self.0[way].push((cost, value));
    }

    /// The values of a way's rounds that count.
    pub(crate) fn counted<'a>(&'a self, taken: &'a Taken, way: usize) -> impl Iterator<Item = &'a T> {
        taken.ways[way].iter().filter_map(move |cost| {
            let of_round = self.0[way].iter().find(|(other, _)| other.total_cmp(cost).is_eq());
            of_round.map(|(_, value)| value)
        })
    }

    /// The middle of a figure of a way's rounds that count.
    pub(crate) fn median(&self, taken: &Taken, way: usize, figure: impl Fn(&T) -> f64) -> f64 {
        median(&self.counted(taken, way).map(figure).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_rounds_that_do_not_count_are_left_out() {
        let mut shares = Alongside::new(2);
        for (cost, share) in [(9.5, 100.0), (9.0, 1.0), (9.25, 3.0)] {
            shares.note(1, cost, share);
        }
        let taken = Taken { ways: vec![vec![], vec![9.0, 9.25]], counted: vec![1, 3], ..Taken::default() };
        assert_eq!(shares.counted(&taken, 1).collect::<Vec<_>>(), [&1.0, &3.0]);
        assert!((shares.median(&taken, 1, |share| *share) - 2.0).abs() < 1e-9);
        assert!(shares.median(&taken, 0, |share| *share).is_nan());
    }
}
