//! Whether a model of caches puts variants in the order in which they were measured.
//!
//! What a variant misses in the model, each miss at what it costs on this machine ([`Latencies`]), is a time for each core; the lanes work side by
//! side, so the longer of both is the variant's. Misses that overlap, prefetchers, and what a pool itself takes (locks, indices) are not in it: it is an
//! order that is predicted, not cycles.

use crate::chase::Latencies;
use crate::modelled::Misses;
use crate::verdict::Verdict;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Variants whose cycles differ by less than this factor are not put in an order.
const DIFFER: f64 = 1.1;

/// So many contradictions are told to people; programs get all cells.
const TOLD: usize = 8;

/// A step of an experiment whose variants were measured and modelled.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Cell {
    /// The step, in the experiment's own words.
    pub step: String,
    /// Cycles of each variant as measured; nothing where that doesn't count.
    pub measured: Vec<Option<f64>>,
    /// What each variant's misses cost, in the model.
    pub modelled: Vec<f64>,
}

/// Two variants that the model puts in another order than the measurement.
#[derive(Clone, Debug, PartialEq)]
struct Contradiction<'a> {
    step: &'a str,
    slower: usize,
    faster: usize,
    measured: f64,
    modelled: f64,
}

/// What both come to.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Agreement {
    /// What each miss costs.
    pub latencies: Latencies,
    /// The variants' names.
    pub variants: Vec<String>,
    /// All steps.
    pub cells: Vec<Cell>,
    /// Steps in which some variants differ by more than 10 %.
    pub differing: usize,
    /// Those of them in which the model has all such variants in the same order.
    pub agreeing: usize,
    /// Pairs of variants that differ by more than 10 %.
    pub pairs: usize,
    /// Those of them that the model has in the same order.
    pub agreeing_pairs: usize,
    /// Whether all agree.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// What the misses of each packet cost, by the slower of both cores.
pub(crate) fn cost(cores: &[Misses; 2], latencies: &Latencies) -> f64 {
    let Latencies { levels: [_, second, shared, memory], other_core } = latencies;
    let of_core = |&[first_misses, second_misses, transfers, upgrades, reads, _]: &Misses| {
        let from_shared = (second_misses - transfers - reads).max(0.0);
        (first_misses - second_misses) * second
            + from_shared * shared
            + reads * memory
            + (transfers + upgrades) * other_core
    };
    of_core(&cores[0]).max(of_core(&cores[1]))
}

impl Cell {
    /// Pairs that differ: the slower and the faster one, and by which factor.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize, f64)> {
        let variants = 0..self.measured.len();
        let all =
            variants.clone().flat_map(move |slower| variants.clone().map(move |faster| (slower, faster)));
        all.filter_map(|(slower, faster)| {
            let factor = self.measured[slower]? / self.measured[faster]?;
            (factor > DIFFER).then_some((slower, faster, factor))
        })
    }

    fn contradictions(&self) -> impl Iterator<Item = Contradiction<'_>> {
        self.pairs().filter_map(|(slower, faster, measured)| {
            let modelled = self.modelled[slower] / self.modelled[faster];
            // Where both miss nothing that is no order either.
            let agrees = self.modelled[slower] > self.modelled[faster];
            (!agrees).then_some(Contradiction { step: &self.step, slower, faster, measured, modelled })
        })
    }
}

impl Agreement {
    /// Compares all cells.
    pub(crate) fn of(latencies: Latencies, variants: Vec<String>, cells: Vec<Cell>) -> Self {
        let differing = cells.iter().filter(|cell| cell.pairs().next().is_some());
        let agreeing = differing.clone().filter(|cell| cell.contradictions().next().is_none()).count();
        let differing = differing.count();
        let pairs: usize = cells.iter().map(|cell| cell.pairs().count()).sum();
        let against: usize = cells.iter().map(|cell| cell.contradictions().count()).sum();
        let verdict = match differing {
            0 => Verdict::CannotTell("no variants of a cell differ by more than 10 %".to_owned()),
            all if all == agreeing => Verdict::Reproduced,
            all => Verdict::NotReproduced(format!(
                "in {agreeing} of {all} cells whose variants differ by more than 10 % the model has them in the measured order; of {pairs} such pairs it has {}",
                pairs - against
            )),
        };
        Self {
            latencies,
            variants,
            cells,
            differing,
            agreeing,
            pairs,
            agreeing_pairs: pairs - against,
            verdict,
        }
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Latencies { levels: [first, second, shared, memory], other_core } = self.latencies;
        writeln!(
            formatter,
            "The model's order of variants against the measured one: {}.\nCycles of a load from the first, second and shared level, memory and the other core here: \
             {first:.1}, {second:.1}, {shared:.0}, {memory:.0}, {other_core:.0}.",
            self.verdict
        )?;
        let name = |variant: usize| self.variants.get(variant).map_or("?", String::as_str);
        let mut contradictions = self.cells.iter().flat_map(Cell::contradictions);
        for Contradiction { step, slower, faster, measured, modelled } in contradictions.by_ref().take(TOLD) {
            writeln!(
                formatter,
                "  {step}: '{}' takes {measured:.2} times as long as '{}', in the model {modelled:.2}",
                name(slower),
                name(faster)
            )?;
        }
        match contradictions.count() {
            0 => Ok(()),
            more => writeln!(formatter, "  and {more} more pairs (--json has all cells)"),
        }
    }
}

#[cfg(test)]
impl Agreement {
    /// One cell, whose two variants were measured in the other order.
    pub(crate) fn example() -> Self {
        let latencies = Latencies { levels: [4.0, 14.0, 50.0, 300.0], other_core: 100.0 };
        let measured = vec![Some(300.0), Some(100.0)];
        let cell = Cell { step: "a step".to_owned(), measured, modelled: vec![10.0, 30.0] };
        Self::of(latencies, vec!["ring".to_owned(), "stack".to_owned()], vec![cell])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCIES: Latencies = Latencies { levels: [4.0, 14.0, 50.0, 300.0], other_core: 100.0 };

    fn of(cells: &[(&[f64], &[f64])]) -> Agreement {
        let cell = |(measured, modelled): &(&[f64], &[f64])| Cell {
            step: "a step".to_owned(),
            measured: measured
                .iter()
                .map(|cycles| Some(*cycles).filter(|cycles| cycles.is_finite()))
                .collect(),
            modelled: modelled.to_vec(),
        };
        let names = ["ring", "stack", "depot"].map(str::to_owned).to_vec();
        Agreement::of(LATENCIES, names, cells.iter().map(cell).collect())
    }

    #[test]
    fn misses_cost_what_their_level_takes_and_the_slower_core_decides() {
        // 10 misses of the first level, 6 of the second: 1 from the other core, 3 from memory; 2 lines taken to be written.
        let busy = [10.0, 6.0, 1.0, 2.0, 3.0, 5.0];
        let expected = 4.0 * 14.0 + 2.0 * 50.0 + 3.0 * 300.0 + 3.0 * 100.0;
        assert!((cost(&[[0.0; 6], busy], &LATENCIES) - expected).abs() < 1e-9);
        assert!((cost(&[busy, busy], &LATENCIES) - expected).abs() < 1e-9);
    }

    #[test]
    fn the_same_order_is_reproduced_and_another_is_told() {
        let same = of(&[(&[300.0, 100.0, 105.0], &[30.0, 10.0, 5.0])]);
        assert_eq!((same.differing, same.agreeing, same.pairs, same.agreeing_pairs), (1, 1, 2, 2));
        assert_eq!(same.verdict, Verdict::Reproduced);
        let turned =
            of(&[(&[300.0, 100.0, 105.0], &[10.0, 30.0, 5.0]), (&[300.0, 100.0, 105.0], &[30.0, 10.0, 5.0])]);
        assert_eq!((turned.differing, turned.agreeing, turned.pairs, turned.agreeing_pairs), (2, 1, 4, 3));
        let told = turned.to_string();
        assert!(told.contains("not reproduced: in 1 of 2 cells"), "{told}");
        assert!(
            told.contains("a step: 'ring' takes 3.00 times as long as 'stack', in the model 0.33"),
            "{told}"
        );
        // No order at all is not the measured one.
        assert_eq!(of(&[(&[300.0, 100.0], &[0.0, 0.0])]).agreeing_pairs, 0);
    }

    #[test]
    fn what_differs_little_or_does_not_count_is_in_no_order() {
        let close = of(&[(&[100.0, 109.0, f64::NAN], &[30.0, 10.0, 5.0])]);
        assert_eq!((close.differing, close.pairs), (0, 0));
        assert_eq!(close.verdict.word(), "cannot tell here");
        let json = serde_json::to_string(&close).unwrap();
        assert_eq!(serde_json::from_str::<Agreement>(&json).unwrap(), close);
    }
}
