//! How many buffers should go round between two lanes, and what it costs without any pool.

use crate::error::LabError;
use crate::experiment::Experiment;
use crate::measure::Measure;
use crate::partner::Partner;
use crate::plot::{Axis, Figure, Marks, Series};
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting};
use crate::table::{Cell, Column};
use crate::two_lanes::{Shape, TwoLanes, read_lines};
use crate::verdict::{Answer, Prediction};
use warmlane_mem::PoolKind;
use warmlane_sync::spsc;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "hot-set",
    question: "Two lanes, one takes and writes, the other reads and frees: how many buffers should go round?",
    claim: Claim {
        source: super::sources::INTEL_POOLS,
        says: "the same few buffers should be used over and over, as a pool of many is needed only at times; going round through all \
               of them misses the caches on almost every buffer. Its own answer, the last freed first, is for threads of one core",
        predictions: &PREDICTIONS,
    },
    method: "As pool-order, with frames of one length and 65,535 buffers. A depot keeps a fixed number of them going round, or looks \
             for the best number itself; a ring with lane caches of 256 uses all in turn. Beside them stands what cannot be \
             had for less: no pool and no buffer, but frames that lie in the slots of a ring from lane to lane, where one lane \
             writes them and the other reads them; its length is the number of frames that go round. They lie one behind the \
             other, or as far apart as the pools' buffers do, with 2,048 bytes for data. All take turns.",
    steps: Some(|| TRAFFIC.iter().map(Traffic::label).collect()),
    run: |setting, progress| run(setting, progress, &HOT_SETS, &FRAMES),
};

const PREDICTIONS: [Prediction; 2] = [
    Prediction::at_least(
        "all 65,535 in turn (ring, cache) against the depot by itself, 1,520 bytes, 256 under way",
        "times",
        1.1,
        "a pool that goes through all of its buffers at no more cost",
    ),
    Prediction::check(
        "the depot by itself against the best fixed number, 1,520 bytes, 256 under way",
        "times",
        [0.0, 1.1],
        "a search for the number that ends at a bad one",
    ),
];

/// What goes over.
struct Traffic {
    bytes: usize,
    under_way: usize,
    held: bool,
}

const TRAFFIC: [Traffic; 4] = [
    Traffic { bytes: 1_520, under_way: 256, held: false },
    Traffic { bytes: 1_520, under_way: 20_000, held: true },
    Traffic { bytes: 64, under_way: 256, held: false },
    Traffic { bytes: 64, under_way: 20_000, held: true },
];

/// Buffers that go round in depots, beside those that are under way.
const HOT_SETS: [u32; 8] = [256, 512, 1_024, 1_536, 2_048, 4_096, 8_192, 65_536];

/// Frames that go round in rings, those under way included.
const FRAMES: [usize; 7] = [128, 256, 512, 1_024, 2_048, 4_096, 32_768];

/// Space for a frame in whole lines.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Slot<const BYTES: usize>([u8; BYTES]);

impl<const BYTES: usize> Default for Slot<BYTES> {
    fn default() -> Self {
        Self([0; BYTES])
    }
}

/// From buffer to buffer in the pools: header, headroom and 2,048 bytes in an odd number of lines.
const APART: usize = 2_240;

/// Frames in the slots of a ring: one lane writes them there, the other reads them there.
struct InRing<const BYTES: usize> {
    producer: spsc::Producer<Slot<BYTES>>,
    /// What is copied into the slots.
    template: Vec<u8>,
    under_way: usize,
    partner: Partner,
}

/// Frames that are read together, and that there is space for before any is written.
const BURST: usize = 32;
/// Bursts in a unit of work, as with the pools.
const BURSTS: usize = 64;

impl<const BYTES: usize> InRing<BYTES> {
    fn start(traffic: &Traffic, frames: usize, second_cpu: usize) -> Result<Self, LabError> {
        let (producer, mut consumer) = spsc::ring::<Slot<BYTES>>(frames).map_err(LabError::setup)?;
        let least = if traffic.held { traffic.under_way } else { BURST };
        let bytes = traffic.bytes;
        let step = move || {
            let Some(frames) = (consumer.len() >= least).then(|| consumer.peek_bulk(BURST)).flatten() else {
                std::hint::spin_loop();
                return;
            };
            let (first, second) = frames.as_slices();
            for frame in first.iter().chain(second) {
                read_lines(&frame.0[..bytes]);
            }
            frames.release();
        };
        let partner = Partner::start(second_cpu, || Ok(step)).map_err(LabError::setup)?;
        // Of what is held, the reader takes the oldest; a burst more than that is always on the way to it.
        let under_way = if traffic.held { frames } else { traffic.under_way };
        Ok(Self { producer, template: vec![0x5a; bytes], under_way, partner })
    }
}

impl<const BYTES: usize> Measure for InRing<BYTES> {
    fn work(&mut self) -> u64 {
        let mut sent = 0;
        for _ in 0..BURSTS {
            if self.producer.len() + BURST > self.under_way {
                std::hint::spin_loop();
                continue;
            }
            let Some(mut reserved) = self.producer.reserve_bulk(BURST) else {
                std::hint::spin_loop();
                continue;
            };
            let (first, second) = reserved.as_mut_slices();
            for slot in first.iter_mut().chain(second) {
                slot.0[..self.template.len()].copy_from_slice(&self.template);
            }
            reserved.commit();
            sent += BURST as u64;
        }
        sent
    }

    fn begin(&mut self) {
        self.partner.resume();
    }

    fn end(&mut self) {
        self.partner.pause();
    }
}

impl Traffic {
    fn label(&self) -> String {
        let under_way = if self.held { "held" } else { "under way at most" };
        format!("{} bytes, {} {under_way}", self.bytes, self.under_way)
    }

    fn shape(&self) -> Shape {
        Shape { lengths: vec![self.bytes], under_way: self.under_way, held: self.held, ..Shape::default() }
    }

    /// Whether so many frames go round while so many are under way.
    fn fits(&self, frames: usize) -> bool {
        !self.held || frames >= self.under_way + BURST
    }
}

/// One way to do it.
struct Variant {
    name: &'static str,
    /// How many buffers or frames go round, if that is fixed.
    round: Option<usize>,
}

const DEPOT: &str = "depot";
const SEARCHING: &str = "depot by itself";
const RING: &str = "ring, cache";
const NO_POOL: &str = "no pool";
const NO_POOL_APART: &str = "no pool apart";

fn variants(hot_sets: &[u32], frames: &[usize]) -> Vec<Variant> {
    let fixed = hot_sets.iter().map(|&buffers| Variant { name: DEPOT, round: Some(buffers as usize) });
    let others = [SEARCHING, RING].map(|name| Variant { name, round: None });
    let without = [NO_POOL, NO_POOL_APART]
        .into_iter()
        .flat_map(|name| frames.iter().map(move |&frames| Variant { name, round: Some(frames) }));
    fixed.chain(others).chain(without).collect()
}

impl Variant {
    fn has_no_pool(&self) -> bool {
        [NO_POOL, NO_POOL_APART].contains(&self.name)
    }

    /// What its lanes do, if there is a pool.
    fn shape(&self, traffic: &Traffic) -> Option<Shape> {
        match (self.name, self.round) {
            (RING, _) => Some(Shape { kind: PoolKind::Ring, magazine: 256, ..traffic.shape() }),
            _ if self.has_no_pool() => None,
            (_, round) => Some(Shape { hot_set: round.map(|buffers| buffers as u32), ..traffic.shape() }),
        }
    }

    fn start(&self, traffic: &Traffic, second_cpu: usize) -> Result<Box<dyn Measure>, LabError> {
        if let Some(shape) = self.shape(traffic) {
            let lanes = TwoLanes::start(self.name, &shape, second_cpu).map_err(LabError::setup)?;
            return Ok(Box::new(lanes));
        }
        let frames = self.round.unwrap_or(0);
        Ok(match self.name {
            NO_POOL_APART => Box::new(InRing::<APART>::start(traffic, frames, second_cpu)?),
            _ if traffic.bytes == 64 => Box::new(InRing::<64>::start(traffic, frames, second_cpu)?),
            _ => Box::new(InRing::<1_536>::start(traffic, frames, second_cpu)?),
        })
    }
}

fn run(
    setting: &Setting,
    progress: &mut dyn FnMut(&str),
    hot_sets: &[u32],
    frames: &[usize],
) -> Result<Findings, LabError> {
    let second_cpu = setting.second_cpu()?;
    let variants = variants(hot_sets, frames);
    let mut columns = Column::list("way | go round");
    let mut rows: Vec<Vec<Cell>> = variants
        .iter()
        .map(|variant| vec![variant.name.into(), variant.round.map_or(Cell::Missing, Cell::from)])
        .collect();
    let (mut figures, mut conclusions, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    for traffic in TRAFFIC.iter().filter(|traffic| setting.wants(&traffic.label())) {
        progress(&traffic.label());
        for (number, shape) in variants.iter().enumerate() {
            if let Some(shape) = shape.shape(traffic) {
                setting.model(number, || shape.workload())?;
            }
        }
        let (fitting, mut started): (Vec<usize>, Vec<_>) = variants
            .iter()
            .enumerate()
            .filter(|(_, variant)| {
                !variant.has_no_pool() || variant.round.is_some_and(|frames| traffic.fits(frames))
            })
            .map(|(number, variant)| Ok((number, variant.start(traffic, second_cpu)?)))
            .collect::<Result<Vec<_>, LabError>>()?
            .into_iter()
            .unzip();
        // The depot that searches does so meanwhile.
        for variant in &mut started {
            crate::measure::measure_once(&mut **variant, setting.length * 4);
        }
        let turns = setting.take_turns(Lanes::Two, &mut started)?;
        let mut costs = vec![f64::NAN; variants.len()];
        fitting.iter().zip(&turns.medians).for_each(|(&variant, &median)| costs[variant] = median);
        columns.push(Column::figures(&traffic.label(), "cycles/packet"));
        rows.iter_mut().zip(&costs).for_each(|(row, &cost)| row.push(cost.into()));
        figures.push(picture(traffic, &variants, &costs));
        conclusions.push(conclusion(traffic, &variants, &costs, turns.line_transfer));
        if traffic.label() == TRAFFIC[0].label() {
            answers = self::answers(&variants, &costs).to_vec();
        }
    }
    Ok(Findings { columns, rows, figures, answers, conclusion: conclusions.join(" ") })
}

fn answers(variants: &[Variant], costs: &[f64]) -> [Answer; 2] {
    let cost = |name| best(name, variants, costs).1;
    [(cost(RING) / cost(SEARCHING)).into(), (cost(SEARCHING) / cost(DEPOT)).into()]
}

/// The cheapest of a name: how many go round there, and the cost.
fn best(name: &str, variants: &[Variant], costs: &[f64]) -> (usize, f64) {
    let named = variants.iter().zip(costs).filter(|(variant, cost)| variant.name == name && cost.is_finite());
    let best = named.min_by(|(_, first), (_, second)| first.total_cmp(second));
    best.map_or((0, f64::NAN), |(variant, &cost)| (variant.round.unwrap_or(0), cost))
}

fn conclusion(traffic: &Traffic, variants: &[Variant], costs: &[f64], line_transfer: Option<f64>) -> String {
    let lines = traffic.bytes.div_ceil(64);
    let (fixed, fixed_cost) = best(DEPOT, variants, costs);
    let (frames, floor) = best(NO_POOL, variants, costs);
    let (frames_apart, floor_apart) = best(NO_POOL_APART, variants, costs);
    let (itself, ring) = (best(SEARCHING, variants, costs).1, best(RING, variants, costs).1);
    let line_transfer = line_transfer.unwrap_or(f64::NAN);
    format!(
        "{}: best of the fixed sets is {fixed}, {fixed_cost:.0} cycles; by itself the depot comes to {itself:.0}. Frames in a ring of \
         {frames} take {floor:.0}: {lines} lines of {line_transfer:.0} cycles each, {:.1} of them under way at a time; of {frames_apart}, as far \
         apart as buffers are, {floor_apart:.0}. A ring with lane caches over all buffers takes {ring:.0}, {:.2} times the depot's; of no \
         pool of such buffers it could be more than {:.2} times.",
        traffic.label(),
        lines as f64 * line_transfer / floor,
        ring / itself,
        ring / floor_apart,
    )
}

fn picture(traffic: &Traffic, variants: &[Variant], costs: &[f64]) -> Figure {
    let (least, most) = (f64::from(HOT_SETS[0]), f64::from(HOT_SETS[HOT_SETS.len() - 1]));
    let series = [DEPOT, SEARCHING, RING, NO_POOL, NO_POOL_APART].map(|name| {
        let named = variants.iter().zip(costs).filter(|(variant, _)| variant.name == name);
        let points = named.flat_map(|(variant, &cost)| match variant.round {
            Some(round) => vec![(round as f64, cost)],
            // Nothing that the axis shows: a level line.
            None => vec![(least, cost), (most, cost)],
        });
        Series { name: name.to_owned(), points: points.collect() }
    });
    Figure {
        title: traffic.label(),
        x: Axis::logarithmic("buffers or frames that go round"),
        y: Axis::linear("cycles per packet"),
        marks: Marks::Lines(series.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn a_small_run_has_every_way() {
        let Some(setting) = Setting::tiny_on_two_cpus() else { return };
        let findings = run(&setting, &mut |_| {}, &[256], &[256, 32_768]).unwrap();
        assert_eq!((findings.columns.len(), findings.figures.len()), (2 + TRAFFIC.len(), TRAFFIC.len()));
        assert_eq!(findings.rows.len(), 7);
        // 20,000 are not held in a ring of 256. (Of the others, some may not count, if something else runs meanwhile.)
        for row in findings.rows.iter().filter(|row| row[0] != "depot".into() && row[1] == 256.into()) {
            assert_eq!([&row[3], &row[5]], [&Cell::Missing; 2], "{row:?}");
        }
        let only = Setting { only: Some("64 bytes, 256".to_owned()), ..setting };
        assert_eq!(run(&only, &mut |_| {}, &[256], &[256]).unwrap().columns.len(), 3);
    }

    #[test]
    fn turned_figures_refute_the_claim() {
        let variants = variants(&[128, 256], &[]);
        let as_claimed = answers(&variants, &[300.0, 250.0, 255.0, 600.0]);
        let turned = answers(&variants, &[300.0, 250.0, 600.0, 255.0]);
        assert_judged(&PREDICTIONS, &as_claimed, &turned);
    }

    #[test]
    fn the_best_is_said_and_what_does_not_count_is_not() {
        let variants = variants(&[128, 256], &[256, 512]);
        let costs = [300.0, 250.0, 260.0, 600.0, f64::NAN, 200.0, f64::NAN, 240.0];
        let text = conclusion(&TRAFFIC[0], &variants, &costs, Some(145.0));
        assert!(
            text.starts_with("1520 bytes, 256 under way at most: best of the fixed sets is 256, 250 cycles")
        );
        assert!(
            text.contains("Frames in a ring of 512 take 200: 24 lines of 145 cycles each, 17.4 of"),
            "{text}"
        );
        assert!(
            text.contains(
                "of 512, as far apart as buffers are, 240. A ring with lane caches over all buffers takes 600, 2.31 times \
                 the depot's; of no pool of such buffers it could be more than 2.50 times"
            ),
            "{text}"
        );
    }
}
