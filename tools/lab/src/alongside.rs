//! What a round gives beside its cost: quantiles, shares, costs by size.
//!
//! Rounds are repeated and turns left out, so that the number of a round says nothing; but its cost, measured in cycles, is its
//! own, and by that it is found again among those that count.

use crate::statistics::median;
use crate::turns::Taken;

/// Values of rounds, by variant.
#[derive(Debug)]
pub(crate) struct Alongside<T>(Vec<Vec<(f64, T)>>);

impl<T> Alongside<T> {
    /// For so many variants.
    pub(crate) fn new(variants: usize) -> Self {
        Self((0..variants).map(|_| Vec::new()).collect())
    }

    /// A round of a variant had this cost and this value.
    pub(crate) fn note(&mut self, variant: usize, cost: f64, value: T) {
        self.0[variant].push((cost, value));
    }

    /// The values of a variant's rounds that count.
    pub(crate) fn counted<'a>(&'a self, taken: &'a Taken, variant: usize) -> impl Iterator<Item = &'a T> {
        taken.variants[variant].iter().filter_map(move |cost| {
            let of_round = self.0[variant].iter().find(|(other, _)| other.total_cmp(cost).is_eq());
            of_round.map(|(_, value)| value)
        })
    }

    /// The middle of a figure of a variant's rounds that count.
    pub(crate) fn median(&self, taken: &Taken, variant: usize, figure: impl Fn(&T) -> f64) -> f64 {
        median(&self.counted(taken, variant).map(figure).collect::<Vec<_>>())
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
        let taken =
            Taken { variants: vec![vec![], vec![9.0, 9.25]], counted: vec![1, 3], ..Taken::default() };
        assert_eq!(shares.counted(&taken, 1).collect::<Vec<_>>(), [&1.0, &3.0]);
        assert!((shares.median(&taken, 1, |share| *share) - 2.0).abs() < 1e-9);
        assert!(shares.median(&taken, 0, |share| *share).is_nan());
    }
}
