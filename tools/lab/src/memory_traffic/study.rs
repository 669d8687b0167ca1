//! The published tests, cell by cell, and what follows.

use super::parameters::Parameters;
use super::published::{AVERAGE, INSTANCES, TESTS, Test};
use super::question::{Bandwidth, Load, Question};
use super::touches::Touches;
use crate::error::LabError;
use crate::verdict::Verdict;
use serde::Serialize;
use std::fmt;

/// A cell of the published tables.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The test's number.
    pub test: usize,
    /// Instances side by side.
    pub instances: usize,
    /// The drop in per cent as published.
    pub published: f64,
    /// As modelled.
    pub modelled: f64,
    /// By how much the model's is larger, in points.
    pub difference: f64,
    /// What each pool's traffic is.
    pub pools: Vec<(String, Bandwidth)>,
}

impl Question {
    /// The parameters that bring the modelled drops of the first test nearest to the published ones, by the sum of squares: from those that the
    /// question has, one step of one parameter after the other, as long as that helps.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn fit(&self, touches: &Touches, progress: &(dyn Fn(&str) + Sync)) -> Result<Parameters, LabError> {
        let error = |parameters: Parameters| {
            let question =
                Self { parameters, pools: self.pools.iter().take(2).cloned().collect(), ..self.clone() };
            let cells = question.cells(&TESTS[..FITTED], &INSTANCES, touches, progress)?;
            Ok::<_, LabError>(cells.iter().map(|cell| cell.difference * cell.difference).sum::<f64>())
        };
        let mut best = (error(self.parameters)?, self.parameters);
        loop {
            let before = best.1;
            for step in before.steps(self.model.shared.ways) {
                let found = error(step)?;
                progress(&format!("{step:?}: {found:.0}"));
                if found < best.0 {
                    best = (found, step);
                }
            }
            if best.1 == before {
                return Ok(before);
            }
        }
    }

    /// Some of the published tests with some numbers of instances.
    ///
    /// # Errors
    /// [`LabError`].
    pub fn cells(
        &self,
        tests: &[Test],
        instances: &[usize],
        touches: &Touches,
        progress: &(dyn Fn(&str) + Sync),
    ) -> Result<Vec<Cell>, LabError> {
        let asked: Vec<_> = tests
            .iter()
            .flat_map(|test| {
                let numbers = INSTANCES.into_iter().zip(test.drops);
                numbers.filter(|(number, _)| instances.contains(number)).map(move |cell| (*test, cell))
            })
            .collect();
        let loads: Vec<_> = asked
            .iter()
            .map(|(test, (instances, _))| Load { gbps: test.gbps, crc: test.crc, instances: *instances })
            .collect();
        let traffic = self.traffic(&loads, touches, progress)?;
        Ok(asked
            .into_iter()
            .zip(traffic)
            .map(|((test, (instances, published)), pools)| {
                let modelled = drop(&pools);
                Cell {
                    test: test.number,
                    instances,
                    published,
                    modelled,
                    difference: modelled - published,
                    pools: self.named(pools),
                }
            })
            .collect())
    }
}

/// By how much the second pool's traffic is less than the first's, in per cent.
pub(super) fn drop(pools: &[Bandwidth]) -> f64 {
    match pools {
        [ring, stack, ..] => (1.0 - stack.both() / ring.both()) * 100.0,
        _ => f64::NAN,
    }
}

/// Whether a depot's traffic is at most the stack's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DepotAgainstStack {
    /// In so many cells or rows it is.
    pub at_most: usize,
    /// Of so many.
    pub of: usize,
    /// By how many per cent it is more, where that is most; less than 0 if it is less everywhere.
    pub worst_percent: f64,
}

impl DepotAgainstStack {
    /// From the figures of each cell, if one of the pools is called a depot and the second is a stack.
    pub fn of<'a>(cells: impl Iterator<Item = &'a [(String, Bandwidth)]>) -> Option<Self> {
        let more = |pools: &[(String, Bandwidth)]| {
            let (name, stack) = pools.get(1).filter(|(name, _)| name.contains("stack"))?;
            let (_, depot) = pools.iter().find(|(other, _)| other == "depot" && other != name)?;
            Some((depot.both() / stack.both() - 1.0) * 100.0)
        };
        let all = cells.map(more).collect::<Option<Vec<_>>>()?;
        let worst_percent = all.iter().copied().reduce(f64::max)?;
        Some(Self { at_most: all.iter().filter(|more| **more <= 0.0).count(), of: all.len(), worst_percent })
    }
}

impl fmt::Display for DepotAgainstStack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at_most, of, worst_percent } = self;
        write!(formatter, "The depot's traffic is at most the stack's in {at_most} of {of}")?;
        if at_most < of {
            write!(formatter, ", and {worst_percent:.1} % more at worst.")
        } else {
            formatter.write_str(".")
        }
    }
}

/// How many cells of the tests that nothing was fitted to are as near as they may be.
pub fn within(cells: &[Cell]) -> [usize; 2] {
    let others = cells.iter().filter(|cell| cell.test != FITTED);
    [others.clone().filter(|cell| cell.difference.abs() <= TOLERATED).count(), others.count()]
}

/// The cell, of tests that nothing was fitted to, that is farthest from what was published.
pub fn farthest(cells: &[Cell]) -> Option<&Cell> {
    let others = cells.iter().filter(|cell| cell.test != FITTED);
    others.max_by(|first, second| first.difference.abs().total_cmp(&second.difference.abs()))
}

/// A modelled drop may differ from a published one by so many points.
const TOLERATED: f64 = 10.0;

/// The modelled average may differ from the published one by so many points.
const TOLERATED_AVERAGE: f64 = 3.0;

/// The test that the parameters were fitted to.
pub(super) const FITTED: usize = 1;

/// The average of the modelled drops.
pub fn average(cells: &[Cell]) -> f64 {
    cells.iter().map(|cell| cell.modelled).sum::<f64>() / cells.len() as f64
}

/// Whether the published figures come out of the model.
pub fn verdict(cells: &[Cell]) -> Verdict {
    let wanted: usize = TESTS.iter().map(|test| test.drops.len()).sum();
    if cells.len() < wanted {
        return Verdict::CannotTell(format!("{} of the {wanted} cells were modelled", cells.len()));
    }
    if let Some(cell) = cells.iter().find(|cell| !cell.modelled.is_finite()) {
        return Verdict::CannotTell(format!("no traffic with {} instances", cell.instances));
    }
    let mut reasons: Vec<String> = cells
        .iter()
        .filter(|cell| cell.test != FITTED && cell.difference.abs() > TOLERATED)
        .map(|cell| {
            format!(
                "test {} with {} instances: {:.0} % instead of {:.0} %",
                cell.test, cell.instances, cell.modelled, cell.published
            )
        })
        .collect();
    let average = average(cells);
    if (average - AVERAGE).abs() > TOLERATED_AVERAGE {
        reasons.push(format!("the average is {average:.1} % instead of {AVERAGE:.0} %"));
    }
    if reasons.is_empty() { Verdict::Reproduced } else { Verdict::NotReproduced(reasons.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(modelled: impl Fn(f64) -> f64) -> Vec<Cell> {
        let of = |test: Test| {
            let modelled = &modelled;
            INSTANCES.into_iter().zip(test.drops).map(move |(instances, published)| Cell {
                test: test.number,
                instances,
                published,
                modelled: modelled(published),
                difference: modelled(published) - published,
                pools: Vec::new(),
            })
        };
        TESTS.into_iter().flat_map(of).collect()
    }

    #[test]
    fn turned_figures_are_not_reproduced() {
        assert_eq!(verdict(&cells(|drop| drop)), Verdict::Reproduced);
        assert_eq!(verdict(&cells(|drop| drop - 2.0)), Verdict::Reproduced);
        let refuted = |modelled: &dyn Fn(f64) -> f64| match verdict(&cells(modelled)) {
            Verdict::NotReproduced(reason) => reason,
            other => panic!("{other:?}"),
        };
        assert!(refuted(&|drop| 100.0 - drop).contains("test 2 with 1 instances: 4 % instead of 96 %"));
        let reason = refuted(&|drop| drop - 4.0);
        assert!(reason.starts_with("the average is 71.6 %"), "{reason}");
        let partly = verdict(&cells(|drop| drop)[..15]);
        assert_eq!(partly, Verdict::CannotTell("15 of the 20 cells were modelled".to_owned()));
        assert!(matches!(verdict(&cells(|_| f64::NAN)), Verdict::CannotTell(_)));
    }

    #[test]
    fn the_farthest_cell_and_those_near_enough_are_of_tests_that_nothing_was_fitted_to() {
        let mut all = cells(|drop| drop);
        all[0].difference = 90.0;
        all[18].difference = -17.0;
        all[19].difference = 9.0;
        assert_eq!(within(&all), [14, 15]);
        assert_eq!(farthest(&all).map(|cell| (cell.test, cell.instances)), Some((4, 8)));
        assert_eq!(farthest(&all[..5]), None);
    }

    #[test]
    fn a_depot_above_the_stack_is_counted_and_told() {
        let cell = |stack: f64, depot: f64| {
            let bandwidth = |written| Bandwidth { read: 1.0, written, lines: 0.0 };
            [("ring", 9.0), ("dpdk-stack", stack), ("depot", depot)]
                .map(|(name, written)| (name.to_owned(), bandwidth(written)))
        };
        let (less, more) = (cell(3.0, 2.0), cell(3.0, 3.2));
        let found = DepotAgainstStack::of([&less[..], &more[..]].into_iter()).unwrap();
        assert_eq!((found.at_most, found.of), (1, 2));
        assert!(found.to_string().contains("in 1 of 2, and 5.0 % more at worst"), "{found}");
        let found = DepotAgainstStack::of([&less[..], &cell(3.0, 3.0)].into_iter()).unwrap();
        assert_eq!(found.to_string(), "The depot's traffic is at most the stack's in 2 of 2.");
        assert_eq!(DepotAgainstStack::of([&less[..2]].into_iter()), None);
    }
}
