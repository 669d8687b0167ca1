//! How far apart buffers should stand.

use super::held::{self, HoldingQueue};
use crate::error::LabError;
use crate::experiment::Experiment;
use crate::measure::Measure;
use crate::modelled::Workload;
use crate::plot::{Axis, Figure, Marks, Series};
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting};
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Prediction};
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::Arc;
use warmlane_forward::control::config::{IcmpLimits, InterfaceAddress};
use warmlane_forward::control::{Routes, RoutesBuilder, RoutesError};
use warmlane_forward::datapath::Forwarder;
use warmlane_forward::pipeline;
use warmlane_lane::{LanePort, Pipeline, Poll, Task as _};
use warmlane_mem::plan::{CacheShape, Plan, Spread};
use warmlane_mem::{Burst, Frames, LaneCache, Pool, PoolConfig};
use warmlane_memory::replay;
use warmlane_table::{IpPrefix, Ipv4Prefix};
use warmlane_wire::builder::Frame;
use warmlane_wire::ethernet::MacAddress;
use warmlane_wire::ipv4::Ipv4Fields;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "layout",
    question: "does the distance between buffers decide how fast a router is?",
    claim: Claim {
        source: "Kamalakshitha Aligeri (Arm), \"Cache Awareness in DPDK Mempool\", dpdk.org, 2024-06-05",
        says: "l3fwd on one core with a 64 KiB 4-way cache forwards 17 % more with buffers of 2,368 bytes than with 2,048, which use \
               only some of the sets",
        predictions: &PREDICTIONS,
    },
    method: "The forwarder of `warmlane forward` (validate, look up among 16 routes, rewrite) between a port that replays \
             60-byte frames into fresh buffers and one that holds as many packets as a device's ring does before it frees \
             them, 32 at a time; the same 2,048-byte buffers at each distance, in turns. The sets are counted from addresses, for as \
             many buffers as a cache could hold the two hot lines of. The seed's own measure, 8,192 buffers by set, is the first picture.",
    steps: None,
    run,
};

const PREDICTIONS: [Prediction; 1] = [Prediction::effect(
    "2,368 bytes against 2,048, 1,024 packets under way",
    "%",
    17.0,
    "buffers that fold on few sets and are forwarded as fast",
)];
/// Packets under way, of which the claim is judged: l3fwd's rings.
const USUAL_DEPTH: usize = 1_024;

/// Header, headroom and data together: what the seed's shorter buffers had.
const BUFFER_BYTES: usize = 2_048;
const HEADROOM: usize = 128;
const HEADER: usize = 64;
/// The strides of the seed, and one more of an even number of lines.
const STRIDES: [usize; 3] = [2_048, 2_304, 2_368];
/// Packets that the transmit ring holds.
const IN_FLIGHT: [usize; 4] = [256, 1_024, 4_096, 12_288];
const BUFFERS: u32 = 16_384;
/// Buffers of the seed's histogram.
const DRAWN: usize = 8_192;
/// Prefixes in the table, as in DPDK's l3fwd.
const ROUTES: usize = 16;
/// Where they lead.
const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const FRAMES: usize = 1_024;

struct Variant {
    stride: usize,
    name: String,
    plan: Plan,
}

fn variants(caches: &[CacheShape]) -> Vec<Variant> {
    let planned = Plan::for_this_machine(BUFFER_BYTES, HEADROOM).stride;
    let mut strides: Vec<usize> = STRIDES.to_vec();
    if !strides.contains(&planned) {
        strides.push(planned);
    }
    strides
        .into_iter()
        .map(|stride| Variant {
            stride,
            name: if stride == planned { format!("{stride} (planned)") } else { stride.to_string() },
            plan: Plan::with_stride(BUFFER_BYTES, HEADROOM, stride, caches),
        })
        .collect()
}

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let caches = CacheShape::of_this_machine();
    let variants = variants(&caches);
    let frames = Arc::new(frames()?);
    let routes = Arc::new(routes().map_err(LabError::setup)?);
    let mut rows = Vec::new();
    // For each depth, the cycles of each way.
    let mut cycles: Vec<Vec<f64>> = Vec::new();
    for in_flight in IN_FLIGHT {
        progress(&format!("{in_flight} packets under way"));
        for (number, variant) in variants.iter().enumerate() {
            setting.model(number, || workload(&pool(BUFFERS, Some(variant.stride)), in_flight))?;
        }
        let mut measures = variants
            .iter()
            .map(|variant| {
                let held = HoldingQueue::new(in_flight, Burst::clear);
                let forward = Forward::new(&routes, &frames, &pool(BUFFERS, Some(variant.stride)), held)?;
                Ok(Box::new(forward) as Box<dyn Measure>)
            })
            .collect::<Result<Vec<_>, LabError>>()?;
        cycles.push(setting.take_turns(Lanes::One, &mut measures)?.medians);
    }
    for (in_flight, cycles) in IN_FLIGHT.into_iter().zip(&cycles) {
        for (variant, &cost) in variants.iter().zip(cycles) {
            let mut row: Vec<Cell> = vec![variant.name.as_str().into(), in_flight.into()];
            for spread in &variant.plan.spreads {
                row.push((spread.kept() * 100.0).into());
                row.push(spread.unused_sets().into());
            }
            row.extend([cost.into(), gain(cycles[0], cost).into()]);
            rows.push(row);
        }
    }
    let mut columns = Column::list("stride | in flight [packets]");
    for spread in variants.first().map(|variant| variant.plan.spreads.as_slice()).unwrap_or_default() {
        columns.push(Column::figures(&format!("L{} keeps", spread.shape.level), "%"));
        columns.push(Column::plain(&format!("L{} sets unused", spread.shape.level)));
    }
    columns.push(Column::figures("forwarder", "cycles/packet"));
    columns.push(Column::figures("rate against 2,048", "%"));
    Ok(Findings {
        columns,
        rows,
        figures: figures(&variants, &cycles),
        answers: answers(&variants, &cycles).to_vec(),
        conclusion: conclusion(&variants, &cycles),
    })
}

fn answers(variants: &[Variant], cycles: &[Vec<f64>]) -> [Answer; 1] {
    let variant = |stride| variants.iter().position(|variant| variant.stride == stride).unwrap_or(0);
    let depth = IN_FLIGHT.iter().position(|&depth| depth == USUAL_DEPTH).unwrap_or(0);
    [gain(cycles[depth][variant(2_048)], cycles[depth][variant(2_368)]).into()]
}

/// How many per cent more a second.
fn gain(before: f64, after: f64) -> f64 {
    (before / after - 1.0) * 100.0
}

fn figures(variants: &[Variant], cycles: &[Vec<f64>]) -> Vec<Figure> {
    let mut figures = Vec::new();
    if let Some(nearest) = variants.first().and_then(|variant| variant.plan.spreads.first()) {
        let shape = nearest.shape;
        let series = variants.iter().map(|variant| {
            let mut sets = vec![0_u32; shape.sets];
            for buffer in 0..DRAWN {
                for offset in [0, HEADER + HEADROOM] {
                    sets[(buffer * variant.stride + offset) / shape.line % shape.sets] += 1;
                }
            }
            let points = sets.iter().enumerate().map(|(set, &lines)| (set as f64, f64::from(lines)));
            Series { name: variant.name.clone(), points: points.collect() }
        });
        figures.push(Figure {
            title: format!("Headers and first data lines of {DRAWN} buffers in the sets of L{}", shape.level),
            x: Axis::linear("set"),
            y: Axis::linear("lines"),
            marks: Marks::Lines(series.collect()),
        });
    }
    let kept =
        |variant: &Variant| variant.plan.spreads.iter().map(|spread| Spread::kept(spread) * 100.0).collect();
    let levels = variants.first().map(|variant| variant.plan.spreads.as_slice()).unwrap_or_default();
    figures.push(Figure {
        title: "Hot lines that find a place, when there are as many as the cache has lines".to_owned(),
        x: Axis::linear("cache"),
        y: Axis::linear("%"),
        marks: Marks::Bars {
            groups: levels.iter().map(|spread| format!("L{}", spread.shape.level)).collect(),
            series: variants.iter().map(|variant| (variant.name.clone(), kept(variant))).collect(),
        },
    });
    let lines = variants.iter().enumerate().map(|(number, variant)| Series {
        name: variant.name.clone(),
        points: IN_FLIGHT.iter().zip(cycles).map(|(&depth, cycles)| (depth as f64, cycles[number])).collect(),
    });
    figures.push(Figure {
        title: "The forwarder".to_owned(),
        x: Axis::logarithmic("packets under way"),
        y: Axis::linear("cycles per packet"),
        marks: Marks::Lines(lines.collect()),
    });
    figures
}

fn conclusion(variants: &[Variant], cycles: &[Vec<f64>]) -> String {
    let gains = |number: usize| {
        let gains = IN_FLIGHT
            .iter()
            .zip(cycles)
            .map(|(depth, cycles)| format!("{:+.1} % with {depth}", gain(cycles[0], cycles[number])));
        gains.collect::<Vec<_>>().join(", ")
    };
    let position = |stride| variants.iter().position(|variant| variant.stride == stride).unwrap_or(0);
    let folded = &variants[0];
    let planned = variants.iter().position(|variant| variant.name.ends_with("(planned)")).unwrap_or(0);
    let mut text = format!(
        "Against 2,048 bytes, 2,368 bytes forward {} packets under way, where the claim says +17 %; the planned {} bytes, with {} bytes of \
         padding instead of {}: {}; and 2,304 bytes, an even number of lines: {}.",
        gains(position(2_368)),
        variants[planned].stride,
        variants[planned].stride - BUFFER_BYTES,
        2_368 - BUFFER_BYTES,
        gains(planned),
        gains(position(2_304)),
    );
    for spread in &folded.plan.spreads {
        let shape = spread.shape;
        let used = shape.sets - spread.unused_sets();
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            " At 2,048 bytes L{} uses {used} of its {} sets and holds the hot lines of {} buffers instead of {}.",
            shape.level,
            shape.sets,
            used * shape.ways / 2,
            shape.lines() / 2,
        );
    }
    if folded.plan.spreads.is_empty() {
        text.push_str(" The machine does not tell its caches, so the sets could not be counted.");
    }
    text.push_str(
        " What folding throws out must come from the next level again. That this is the whole difference is not shown by cycles: at 2,048 bytes every other \
         header and frame also begins at the same place of a 4 KiB page, where a load can be taken to depend on an earlier store. \
         At 2,304 bytes every sixteenth does, at 2,368 every sixty-fourth. The claim's core has 4 ways in its first \
         level and a NIC that writes frames past it; here the lane writes each frame itself and has nothing else to do, so the same misses are \
         another share of a packet.",
    );
    text
}

fn pool(buffers: u32, stride: Option<usize>) -> PoolConfig {
    PoolConfig {
        name: "layout".to_owned(),
        buffers,
        data_size: BUFFER_BYTES - HEADER - HEADROOM,
        headroom: HEADROOM,
        stride,
        ..PoolConfig::default()
    }
}

/// The same forwarder with planned buffers, so many packets under way, and another way to free them.
pub(super) fn forwarder(in_flight: usize, free: fn(&mut Burst)) -> Result<Box<dyn Measure>, LabError> {
    let routes = Arc::new(routes().map_err(LabError::setup)?);
    let (pool, held) = (pool(in_flight as u32 + 4_096, None), HoldingQueue::new(in_flight, free));
    Ok(Box::new(Forward::new(&routes, &Arc::new(frames()?), &pool, held)?))
}

/// The same for a model of caches.
pub(super) fn workload_of_forwarder(in_flight: usize) -> Result<Workload, LabError> {
    workload(&pool(in_flight as u32 + 4_096, None), in_flight)
}

fn workload(pool: &PoolConfig, in_flight: usize) -> Result<Workload, LabError> {
    held::workload(pool, in_flight)
}

/// A forwarder whose packets stay under way for a while.
struct Forward {
    task: Pipeline,
    _lane: LaneCache,
}

impl Forward {
    fn new(
        routes: &Arc<Routes>,
        frames: &Arc<Frames>,
        pool: &PoolConfig,
        held: HoldingQueue,
    ) -> Result<Self, LabError> {
        let pool = Pool::new(pool).map_err(LabError::setup)?;
        let lane = pool.attach().map_err(LabError::setup)?;
        let source = replay::open("layout", frames, &pool, replay::ReplayConfig::default())
            .map_err(LabError::setup)?;
        let forwarder = Forwarder::new(Arc::clone(routes), pool, IcmpLimits::default());
        let port =
            LanePort { name: "out".to_owned(), receive: source.receive, transmit: Some(Box::new(held)) };
        let task = pipeline(forwarder, vec![port]).map_err(LabError::setup)?.with_burst(32);
        Ok(Self { task, _lane: lane })
    }
}

impl Measure for Forward {
    fn work(&mut self) -> u64 {
        let moved = |poll| if let Poll::Worked(packets) = poll { packets as u64 } else { 0 };
        (0..100).map(|_| moved(self.task.poll())).sum()
    }
}

/// A port, a neighbour behind it, and routes there.
fn routes() -> Result<Routes, RoutesError> {
    let none: [InterfaceAddress; 0] = [];
    let builder = Routes::builder().port(MacAddress([2, 0, 0, 0, 0, 1]), none).neighbour(
        NEIGHBOUR,
        MacAddress([2, 0, 0, 0, 1, 2]),
        0,
    );
    let prefix = |number| Ipv4Prefix::containing(u32::from_be_bytes([198, 18, number as u8, 0]), 24);
    let with_route = |builder: RoutesBuilder, number| builder.route(IpPrefix::V4(prefix(number)), NEIGHBOUR);
    (0..ROUTES).fold(builder, with_route).build()
}

fn frames() -> Result<Frames, LabError> {
    let mut frames = Frames::new();
    for number in 0..FRAMES {
        let destination = [198, 18, (number % ROUTES) as u8, (number / ROUTES) as u8];
        let frame = Frame::new()
            .ethernet(MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]))
            .ipv4(Ipv4Fields::new([203, 0, 113, 7].into(), destination.into()))
            .udp(1_024 + number as u16, 53)
            .payload(&[0; 18])
            .to_vec()
            .map_err(LabError::setup)?;
        frames.push(&frame).map_err(LabError::setup)?;
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn turned_figures_refute_the_claim() {
        let variants = variants(&[]);
        let of = |folded: f64, spread: f64| {
            let of_way = |variant: &Variant| if variant.stride == 2_048 { folded } else { spread };
            answers(&variants, &vec![variants.iter().map(of_way).collect(); IN_FLIGHT.len()])
        };
        assert_judged(&PREDICTIONS, &of(117.0, 100.0), &of(100.0, 117.0));
    }

    #[test]
    fn a_tiny_run_has_a_row_for_each_stride_and_depth() {
        let findings = run(&Setting::tiny(), &mut |_| ()).unwrap();
        let strides = variants(&CacheShape::of_this_machine()).len();
        findings.assert_rows(strides * IN_FLIGHT.len());
        assert!(findings.conclusion.contains("Against 2,048 bytes"), "{}", findings.conclusion);
        for row in &findings.rows {
            let [.., Cell::Figure(cycles), Cell::Figure(_)] = row[..] else { panic!("{row:?}") };
            assert!(cycles > 1.0 && cycles.is_finite());
        }
    }
}
