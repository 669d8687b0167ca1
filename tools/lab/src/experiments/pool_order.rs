//! In which order a pool should give its buffers out.

use crate::agreement::Beside;
use crate::counters;
use crate::error::LabError;
use crate::experiment::Experiment;
use crate::measure::Measure;
use crate::modelled::are_one_core;
use crate::plot::{Axis, Figure, Marks};
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting};
use crate::table::{Cell, Column};
use crate::two_lanes::{Shape, TwoLanes};
use crate::verdict::{Answer, Prediction};
use warmlane_mem::PoolKind;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "pool-order",
    question: "Two lanes, one takes and writes, the other reads and frees: which kind of pool takes fewest cycles?",
    claim: Claim {
        source: super::sources::INTEL_POOLS,
        says: "a stack without lane cache instead of a ring with a cache of 256 saves 76 % of the memory bandwidth on average of four tests \
               (73 to 79 %), between two threads of one core",
        predictions: &PREDICTIONS,
    },
    method: "One lane takes bursts of 32, writes each frame and hands them over by a ring; the other reads a word of each \
             line and frees. Frames by the cable mix (3 % of 68, 1 % of 932 and 96 % of 1,520 bytes) or of 64 bytes; all of a \
             frame touched, or its first 64 bytes; up to 256 packets under way, or 2,000 or 20,000 held in between and up to \
             256 more. The kinds of a row take turns; figures are medians of rounds in which a line cost about the same from CPU to CPU. It answers in \
             cycles, and on the CPUs that it is given, which are mostly two cores; the claim is about bytes of memory traffic, and about two threads of one core. \
             Where memory's controllers, or resctrl, count its traffic, that is set beside it.",
    steps: Some(|| rows(&SIZES, &UNDER_WAY).map(|row| row.label()).collect()),
    run: |setting, progress| run(setting, progress, &SIZES, &UNDER_WAY),
};

const PREDICTIONS: [Prediction; 2] = [
    Prediction::effects(
        "memory traffic that a stack saves over a ring with caches, mix, whole, 256 under way, 131,072 buffers",
        "%",
        [73.0, 79.0],
        "a stack that moves as many bytes",
    ),
    Prediction::at_least(
        "cycles of a ring with caches against a stack, mix, whole, 256 under way, 131,072 buffers",
        "times",
        1.1,
        "a ring that goes through more buffers than caches hold at no more cost",
    ),
];

/// The row by which the claim is judged: as in the source, far more buffers than are under way, and all bytes touched.
const JUDGED: &str = "131072, mix, whole, 256";

const SIZES: [u32; 5] = [1_024, 4_096, 8_192, 32_768, 131_072];

/// Packets between the lanes; all but the first are held.
const UNDER_WAY: [usize; 3] = [256, 2_000, 20_000];

/// Name, kind, and magazine of the lane caches, 0 for none.
const KINDS: [(&str, PoolKind, u32); 7] = [
    ("ring, cache", PoolKind::Ring, 256),
    ("ring", PoolKind::Ring, 0),
    ("stack, cache", PoolKind::Stack, 256),
    ("stack", PoolKind::Stack, 0),
    ("lock-free, cache", PoolKind::LockFreeStack, 256),
    ("lock-free", PoolKind::LockFreeStack, 0),
    ("depot", PoolKind::Depot, 256),
];
const RING_WITH_CACHE: usize = 0;
const STACK: usize = 3;
const DEPOT: usize = KINDS.len() - 1;

/// What is written to and read of the packets.
const FRAMES: [(&str, &str); 3] = [("mix", "whole"), ("mix", "header"), ("64", "whole")];

/// What the depot may take, of the best other kind's time.
const NEAR: f64 = 1.1;

/// Buffers that the lanes have in their caches, on top of those under way.
const IN_CACHES: usize = 1_600;

/// Frame lengths of the cable mix, in an order that looks like none.
fn cable_mix() -> Vec<usize> {
    // Steps of 37 through 100 visit each number once.
    (0..100)
        .map(|step| step * 37 % 100)
        .map(|number| match number {
            0..3 => 68,
            3 => 932,
            _ => 1_520,
        })
        .collect()
}

/// A row of the matrix.
#[derive(Clone, Copy)]
struct Row {
    buffers: u32,
    frames: (&'static str, &'static str),
    under_way: usize,
}

/// All rows in which that many packets fit between the lanes.
fn rows(sizes: &[u32], under_way: &[usize]) -> impl Iterator<Item = Row> {
    let fits = |buffers: u32, held: usize| held == UNDER_WAY[0] || held + IN_CACHES <= buffers as usize;
    sizes.iter().flat_map(move |&buffers| {
        let under_way = under_way.iter().filter(move |&&held| fits(buffers, held));
        under_way.flat_map(move |&under_way| FRAMES.map(|frames| Row { buffers, frames, under_way }))
    })
}

impl Row {
    fn label(&self) -> String {
        format!("{}, {}, {}, {}", self.buffers, self.frames.0, self.frames.1, self.under_way)
    }

    fn shape(&self) -> Shape {
        let (frames, touched) = self.frames;
        Shape {
            buffers: self.buffers,
            lengths: if frames == "mix" { cable_mix() } else { vec![64] },
            touched: if touched == "whole" { usize::MAX } else { 64 },
            under_way: self.under_way,
            held: self.under_way != UNDER_WAY[0],
            beyond_held: Some(UNDER_WAY[0]),
            ..Shape::default()
        }
    }

    /// Bytes that are touched of most of its frames.
    fn touched(&self) -> usize {
        let shape = self.shape();
        shape.lengths.iter().copied().max().unwrap_or(0).min(shape.touched)
    }

    fn cells(&self, medians: &[f64], line_transfer: Option<f64>) -> Vec<Cell> {
        let (frames, touched) = self.frames;
        let mut cells: Vec<Cell> =
            vec![(self.buffers as usize).into(), frames.into(), touched.into(), self.under_way.into()];
        cells.extend(medians.iter().map(|&median| Cell::from(median)));
        cells.push((medians[DEPOT] / best_other(medians).1).into());
        cells.push(line_transfer.into());
        cells
    }
}

fn run(
    setting: &Setting,
    progress: &mut dyn FnMut(&str),
    sizes: &[u32],
    under_way: &[usize],
) -> Result<Findings, LabError> {
    let second_cpu = setting.second_cpu()?;
    let (mut table, mut labels, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let mut beside = Beside::new(setting)?;
    for row in rows(sizes, under_way).filter(|row| setting.wants(&row.label())) {
        progress(&row.label());
        let shape = |kind, magazine| Shape { kind, magazine, ..row.shape() };
        let frame = row.touched();
        let before = beside.as_ref().map(|beside| beside.costs(frame)).transpose()?;
        let mut variants = Vec::<Box<dyn Measure>>::new();
        for (name, kind, magazine) in KINDS {
            let shape = shape(kind, magazine);
            let lanes = TwoLanes::start(name, &shape, second_cpu).map_err(LabError::setup)?;
            variants.push(Box::new(lanes));
        }
        // One turn that does not count: the depot looks for its bound meanwhile.
        for variant in &mut variants {
            crate::measure::measure_once(&mut **variant, setting.length * 4);
        }
        let turns = setting.take_turns(Lanes::Two, &mut variants)?;
        table.push(row.cells(&turns.medians, turns.line_transfer));
        if let Some((beside, before)) = beside.as_mut().zip(before) {
            let shapes = KINDS.map(|(_, kind, magazine)| shape(kind, magazine)).to_vec();
            beside.measured(row.label(), shapes, frame, &turns, before)?;
        }
        labels.push(row.label());
        values.push(turns.medians);
    }
    if let Some(beside) = beside {
        let kinds = KINDS.map(|(name, ..)| name.to_owned()).to_vec();
        counters::agree(beside.compare(setting, kinds)?);
    }
    let judged = labels.iter().position(|label| label == JUDGED);
    let medians = judged.map(|row| values[row].as_slice());
    let traffic = |kind: usize| {
        let counted = |event| counters::so_far(JUDGED, kind, event);
        let of_controllers = counted("DRAM bytes read").zip(counted("DRAM bytes written"));
        of_controllers.map(|(read, written)| read + written).or_else(|| counted(counters::traffic::NAME))
    };
    let traffic = traffic(RING_WITH_CACHE).zip(traffic(STACK));
    let answers = answers(medians, traffic, are_one_core(setting.cpu, second_cpu)).to_vec();
    let conclusion = conclusion(&labels, &values);
    let figures = vec![picture(labels, &values)];
    Ok(Findings { columns: columns(), rows: table, figures, answers, conclusion })
}

/// From the medians of the row that is judged, the bytes of memory traffic a packet that a ring with caches and a stack make
/// there, and whether the lanes share a core.
fn answers(medians: Option<&[f64]>, traffic: Option<(f64, f64)>, one_core: bool) -> [Answer; 2] {
    let saved = match traffic {
        None => Answer::none("nothing counts memory traffic here"),
        Some((ring, stack)) => {
            let saved = Answer::from(100.0 * (1.0 - stack / ring));
            if one_core {
                saved
            } else {
                saved.but_cannot_tell("the lanes run on two cores, the claim's on one")
            }
        }
    };
    let times = medians.map_or(f64::NAN, |medians| medians[RING_WITH_CACHE] / medians[STACK]);
    [saved, times.into()]
}

fn columns() -> Vec<Column> {
    let named = ["buffers", "frames", "touched", "under way"].map(Column::plain);
    let kinds = KINDS.map(|(name, ..)| Column::figures(name, "cycles/packet"));
    let last = [Column::figures("depot to best other", "x"), Column::figures("line transfer", "cycles")];
    named.into_iter().chain(kinds).chain(last).collect()
}

/// The fastest kind but the depot.
fn best_other(medians: &[f64]) -> (usize, f64) {
    let others = medians[..DEPOT].iter().copied().enumerate();
    others.min_by(|(_, first), (_, second)| first.total_cmp(second)).unwrap_or((0, f64::NAN))
}

fn conclusion(labels: &[String], values: &[Vec<f64>]) -> String {
    let ratios = values.iter().map(|medians| medians[DEPOT] / best_other(medians).1);
    let ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
    let near = ratios.iter().filter(|&&ratio| ratio <= NEAR).count();
    // Of each kind: the most that choosing it costs against the best other kind of the row.
    let worst = |kind: usize| {
        let ratios = values.iter().map(|medians| medians[kind] / best_other(medians).1);
        ratios
            .zip(labels)
            .filter(|(ratio, _)| ratio.is_finite())
            .max_by(|(first, _), (second, _)| first.total_cmp(second))
    };
    let Some((depot, row)) = worst(DEPOT) else { return String::from("No row of the depot counts.") };
    let others: Vec<String> = (0..DEPOT)
        .filter_map(|kind| worst(kind).map(|(ratio, _)| format!("{} {ratio:.2}", KINDS[kind].0)))
        .collect();
    let gains = values.iter().map(|medians| medians[RING_WITH_CACHE] / medians[STACK]);
    let gains: Vec<f64> = gains.filter(|gain| gain.is_finite()).collect();
    let better = gains.iter().filter(|&&gain| gain > 1.0).count();
    let largest = gains.iter().copied().fold(f64::NAN, f64::max);
    format!(
        "In {near} of {} rows the depot is within 10 % of the best other kind; at worst it takes {depot:.2} of that one's time \
         ({row}). Choosing another kind takes up to: {}. \
         The article's change, from a ring with cache to a stack without, is faster in {better} of {} rows, at best {largest:.2} \
         times. The article's threads share a core and its private caches, where what was freed last is warmest for both. \
         Between cores, what was freed last is in the other core's cache, and a line from the shared cache comes \
         sooner, as long as the buffers that go round fit it.",
        ratios.len(),
        others.join(", "),
        gains.len(),
    )
}

fn picture(labels: Vec<String>, values: &[Vec<f64>]) -> Figure {
    let relative = |medians: &Vec<f64>| {
        let best = medians.iter().copied().fold(f64::INFINITY, f64::min);
        medians.iter().map(|median| median / best).collect()
    };
    Figure {
        title: "Time for a packet, as a multiple of the row's best kind".to_owned(),
        x: Axis::linear("kind of pool"),
        y: Axis::linear("buffers, frames, touched, under way"),
        marks: Marks::HeatMap {
            columns: KINDS.map(|(name, ..)| name.to_owned()).to_vec(),
            rows: labels,
            values: values.iter().map(relative).collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn a_small_matrix_has_every_row() {
        let Some(setting) = Setting::tiny_on_two_cpus() else { return };
        let findings = run(&setting, &mut |_| {}, &[1_024, 4_096], &[256, 2_000]).unwrap();
        // 2,000 do not fit between the lanes of the smaller pool.
        findings.assert_rows(3 + 6);
    }

    #[test]
    fn rows_that_do_not_count_are_no_worst_case() {
        let labels = ["first", "second", "third"].map(str::to_owned);
        let row = |depot| vec![9.0, 8.0, 7.0, 6.0, 5.0, 4.0, depot];
        let conclusion = conclusion(&labels, &[row(f64::NAN), row(6.0), row(4.4)]);
        assert!(
            conclusion.starts_with(
                "In 1 of 2 rows the depot is within 10 % of the best other kind; at worst it takes 1.50 of"
            ),
            "{conclusion}"
        );
        assert!(conclusion.contains("(second)") && conclusion.contains("in 3 of 3 rows"), "{conclusion}");
        assert_eq!(super::conclusion(&labels, &[row(f64::NAN)]), "No row of the depot counts.");
    }

    #[test]
    fn turned_figures_refute_the_claim() {
        let medians = |ring, stack| [ring, 1.0, 1.0, stack, 1.0, 1.0, 1.0];
        assert_judged(
            &PREDICTIONS,
            &answers(Some(&medians(300.0, 90.0)), Some((2_000.0, 500.0)), true),
            &answers(Some(&medians(90.0, 300.0)), Some((500.0, 2_000.0)), true),
        );
        let told = |traffic, one_core| answers(None, traffic, one_core)[0].cannot_tell.clone().unwrap();
        assert_eq!(told(Some((2_000.0, 500.0)), false), "the lanes run on two cores, the claim's on one");
        assert_eq!(told(None, true), "nothing counts memory traffic here");
        assert!(rows(&SIZES, &UNDER_WAY).any(|row| row.label() == JUDGED));
    }

    #[test]
    fn the_mix_is_the_articles() {
        let mix = cable_mix();
        let count = |length| mix.iter().filter(|&&other| other == length).count();
        assert_eq!((mix.len(), count(68), count(932), count(1_520)), (100, 3, 1, 96));
    }
}
