//! Whether a model of caches puts variants in the order in which they were measured.
//!
//! Each line that a lane touches of a buffer is answered by somebody in the model, and costs what a line costs that comes from there while a lane goes
//! through frames ([`streams`](crate::streams)), as measured beside the step itself. To that comes what lanes take from each other of the pool's own
//! ([`own_pools`](crate::memory_traffic::own_pools)): a line that a lane waits for costs what one takes from CPU to CPU. The lanes work
//! side by side, so the slower one's time is the variant's. Instructions are the same for all and left out: it is an order that is predicted, not cycles.

use crate::counters;
use crate::error::LabError;
use crate::memory_traffic::machines::Model;
use crate::memory_traffic::own_pools::{LaneTouches, OwnPools};
use crate::modelled::{self, ByAnswer, Lines, OTHER};
use crate::setting::{Setting, Turns};
use crate::streams::{BUFFERS, Frames, LineCosts};
use crate::two_lanes::Shape;
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
    /// Those of the model: the slower lane's.
    pub modelled: Vec<f64>,
    /// Of the model: both lanes'.
    pub lanes: Vec<[f64; 2]>,
    /// What a line cost while it was measured.
    pub costs: LineCosts,
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

/// Cycles that each lane takes for what it does for a packet: for lines of buffers, and for those that the pool's lanes take from each other.
pub(crate) fn cost(lines: &[Lines; 2], own: &[LaneTouches; 2], costs: &LineCosts) -> [f64; 2] {
    let of = |counts: &ByAnswer, each: &ByAnswer| {
        counts.iter().zip(each).map(|(count, cost)| count * cost).sum::<f64>()
    };
    [0, 1].map(|lane| {
        let Lines { read, written } = &lines[lane];
        let LaneTouches { waited, read: come, written: go, .. } = own[lane];
        of(read, &costs.read)
            + of(written, &costs.written)
            + waited * costs.transfer
            + come * costs.read[OTHER]
            + go * costs.written[OTHER]
    })
}

/// A step that was measured.
struct Row {
    step: String,
    shapes: Vec<Shape>,
    measured: Vec<Option<f64>>,
    costs: LineCosts,
}

/// A model that is asked beside steps that are measured.
pub(crate) struct Beside {
    model: Model,
    frames: Frames,
    own_pools: OwnPools,
    steps: Vec<Row>,
}

impl Beside {
    /// Nothing, if nobody asks for a model.
    pub(crate) fn new(setting: &Setting) -> Result<Option<Self>, LabError> {
        let Some(model) = &setting.model else { return Ok(None) };
        let frames = Frames::new(BUFFERS, model, [setting.cpu, setting.second_cpu()?])?;
        let own_pools = OwnPools::recorded()?;
        Ok(Some(Self { model: model.clone(), frames, own_pools, steps: Vec::new() }))
    }

    /// What lines of frames of so many bytes cost now.
    pub(crate) fn costs(&self, bytes: usize) -> Result<LineCosts, LabError> {
        self.frames.measure(bytes)
    }

    /// A step was measured, of these variants; `before` it, lines cost so much.
    pub(crate) fn measured(
        &mut self,
        step: String,
        shapes: Vec<Shape>,
        bytes: usize,
        turns: &Turns,
        before: LineCosts,
    ) -> Result<(), LabError> {
        let after = self.costs(bytes)?;
        // A host may move its CPUs at any time: those of the regime in which the step was measured.
        let off = |costs: &LineCosts| {
            turns.line_transfer.map_or(0.0, |transfer| (costs.transfer / transfer).ln().abs())
        };
        let costs = if off(&after) < off(&before) { after } else { before };
        let medians = turns.medians.iter();
        let measured = medians.map(|median| Some(*median).filter(|median| median.is_finite())).collect();
        self.steps.push(Row { step, shapes, measured, costs });
        Ok(())
    }

    /// Plays all steps: when all are measured, since it takes its time, and no quiet machine.
    pub(crate) fn compare(self, setting: &Setting, variants: Vec<String>) -> Result<Agreement, LabError> {
        let one_core = setting.lanes_share_a_core();
        let mut cells = Vec::new();
        for Row { step, shapes, measured, costs } in self.steps {
            counters::step(&step);
            let model = self.model.with_shared(costs.shared_kib);
            let mut lanes = Vec::new();
            for (variant, shape) in shapes.iter().enumerate() {
                let own = self.own_pools.find(shape.kind, shape.magazine).unwrap_or_default();
                let mut modelled = shape.workload()?.play(&model, one_core)?;
                let mut both = cost(&modelled.lines, &own, &costs);
                // Where the second lane is the faster one, hardly anything lies between them.
                if !shape.held && both[0] > both[1] {
                    modelled = shape.workload_with(2 * shape.burst)?.play(&model, one_core)?;
                    both = cost(&modelled.lines, &own, &costs);
                }
                modelled::note(variant, &modelled);
                lanes.push(both);
            }
            let modelled = lanes.iter().map(|[first, second]| first.max(*second)).collect();
            cells.push(Cell { step, measured, modelled, lanes, costs });
        }
        Ok(Agreement::of(variants, cells))
    }
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
    pub(crate) fn of(variants: Vec<String>, cells: Vec<Cell>) -> Self {
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
        Self { variants, cells, differing, agreeing, pairs, agreeing_pairs: pairs - against, verdict }
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "The model's order of variants against the measured one: {}.", self.verdict)?;
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
        let cell = Cell::example(vec![Some(300.0), Some(100.0)], vec![10.0, 30.0]);
        Self::of(vec!["ring".to_owned(), "stack".to_owned()], vec![cell])
    }
}

#[cfg(test)]
impl Cell {
    fn example(measured: Vec<Option<f64>>, modelled: Vec<f64>) -> Self {
        let lanes = modelled.iter().map(|cost| [*cost, 0.0]).collect();
        Self { step: "a step".to_owned(), measured, modelled, lanes, costs: COSTS }
    }
}

/// What lines might cost.
#[cfg(test)]
const COSTS: LineCosts = LineCosts {
    read: [0.5, 1.0, 2.0, 1.5, 7.0, 0.0],
    written: [0.5, 1.0, 4.0, 2.0, 8.0, 5.0],
    transfer: 80.0,
    shared_kib: 16_384,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cells: &[(&[f64], &[f64])]) -> Agreement {
        let counts = |cycles: &f64| Some(*cycles).filter(|cycles| cycles.is_finite());
        let cell = |(measured, modelled): &(&[f64], &[f64])| {
            Cell::example(measured.iter().map(counts).collect(), modelled.to_vec())
        };
        let names = ["ring", "stack", "depot"].map(str::to_owned).to_vec();
        Agreement::of(names, cells.iter().map(cell).collect())
    }

    #[test]
    fn lines_cost_what_those_take_who_answer_and_own_ones_a_transfer() {
        let read = [1.0, 0.0, 10.0, 0.0, 2.0, 0.0];
        let written = [0.0, 3.0, 0.0, 1.0, 0.0, 20.0];
        let lines = [Lines { read, ..Lines::default() }, Lines { written, ..Lines::default() }];
        let own = LaneTouches { waited: 0.5, read: 1.0, written: 2.0, ..LaneTouches::default() };
        let [first, second] = cost(&lines, &[LaneTouches::default(), own], &COSTS);
        assert!((first - (0.5 + 20.0 + 14.0)).abs() < 1e-9, "{first}");
        assert!((second - (3.0 + 2.0 + 100.0 + 40.0 + 2.0 + 8.0)).abs() < 1e-9, "{second}");
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
