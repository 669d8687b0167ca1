//! How long bursts and rings should be.

use super::held::AT_ONCE;
use crate::error::LabError;
use crate::experiment::Experiment;
use crate::measure::Measure;
use crate::modelled::{self, Access, Step, Workload};
use crate::plot::{Axis, Figure, Marks};
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting};
use crate::statistics::median;
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Prediction};
use std::cell::{Cell as Shared, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use warmlane_mem::{Burst, LaneCache, Packet, Pool, PoolConfig};
use warmlane_sys::clock;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "burst-depth",
    question: "how long should bursts and rings be, and what do bursty arrivals lose?",
    claim: Claim {
        source: super::sources::ARM,
        says: "shorter rings lose packets under heavy traffic, longer ones take memory and cache; bursts of 8, 16 or 32 keep \
               neighbouring packets together; the best setting depends on NIC and platform (their figure 7 has no numbers in the text)",
        predictions: &PREDICTIONS,
    },
    method: "One lane between two rings of the same depth. Buffers from a pool are posted to the receive ring; a poll takes up to a \
             burst of those that have arrived, writes Ethernet addresses and hop count of each, passes the burst to the transmit ring, \
             which frees in bulk what it has held for its depth, and posts fresh buffers. First, everything posted has always arrived: \
             cycles per packet. Then arrivals come by the clock, in trains of 1,024 packets at four times the pace that a \
             burst of 32 and rings of 512 just sustained, and pauses that bring the mean to 80 % of it: what finds no posted buffer is \
             dropped. Nobody writes the frames, so buffers come from the cache as a device's would not, and arrivals cost \
             this lane the look at the clock.",
    steps: None,
    run,
};

const PREDICTIONS: [Prediction; 3] = [
    Prediction::at_least(
        "rings of 64 lose more of a train than rings of 1,024, bursts of 32",
        "points",
        1.0,
        "short rings that lose no more",
    ),
    Prediction::at_least(
        "rings of 4,096 cost more than rings of 512, bursts of 32",
        "%",
        3.0,
        "long rings that cost no more",
    ),
    Prediction::at_least(
        "bursts of 32 gain on bursts of 4, rings of 512",
        "%",
        3.0,
        "bursts that gain nothing",
    ),
];

const BURSTS: [usize; 7] = [4, 8, 16, 32, 64, 128, 256];
const DEPTHS: [usize; 7] = [64, 128, 256, 512, 1_024, 2_048, 4_096];
/// Packets in a train of arrivals.
const TRAIN: u64 = 1_024;
/// How much faster than they can be forwarded they come.
const OVERLOAD: f64 = 4.0;
/// The mean load, with the pauses.
const LOAD: f64 = 0.8;
/// The setting that says what can be forwarded.
const USUAL: (usize, usize) = (32, 512);
/// Packets in a unit of work, and polls if none arrive.
const WORK: usize = 1_600;
const FRAME: usize = 60;

/// What arrives when.
trait Arrivals {
    /// How many have arrived since the last call.
    fn arrived(&mut self) -> u64;
}

/// As many as there is space for.
struct Always;

impl Arrivals for Always {
    #[inline(always)]
    fn arrived(&mut self) -> u64 {
        u64::MAX
    }
}

/// Trains of packets, by the clock.
struct Trains {
    /// Cycles from packet to packet in a train.
    gap: f64,
    /// Cycles from train to train.
    period: u64,
    start: u64,
    counted: u64,
}

impl Trains {
    /// Trains for a lane that needs so many cycles a packet.
    fn for_capacity(cycles: f64) -> Self {
        #[expect(clippy::cast_sign_loss, reason = "a cost is positive")]
        let period = (TRAIN as f64 * cycles / LOAD) as u64;
        Self { gap: cycles / OVERLOAD, period: period.max(1), start: clock::cycles(), counted: 0 }
    }

    /// Arrivals up to so many cycles after the start.
    fn until(&self, cycles: u64) -> u64 {
        #[expect(clippy::cast_sign_loss, reason = "a quotient of positive numbers")]
        let of_this_train = ((cycles % self.period) as f64 / self.gap) as u64;
        cycles / self.period * TRAIN + of_this_train.min(TRAIN)
    }
}

impl Arrivals for Trains {
    #[inline(always)]
    fn arrived(&mut self) -> u64 {
        let all = self.until(clock::cycles().saturating_sub(self.start));
        // Clocks of two CPUs may differ by a little.
        let new = all.saturating_sub(self.counted);
        self.counted += new;
        new
    }
}

/// Packets offered and dropped in this round, and the shares of the rounds before, for who has no access to the lane any
/// more.
#[derive(Default)]
struct Tally {
    offered: Shared<u64>,
    dropped: Shared<u64>,
    shares: RefCell<Vec<f64>>,
}

impl Tally {
    /// Per cent dropped in the middle one of these turns; the first round of all warmed up.
    fn median(&self, turns: &[usize]) -> f64 {
        let shares = self.shares.borrow();
        median(&turns.iter().filter_map(|turn| shares.get(turn + 1).copied()).collect::<Vec<_>>())
    }
}

struct Forwarding<A> {
    pool: Pool,
    /// Posted buffers in the order in which they are filled; the first `filled` are.
    posted: VecDeque<Packet>,
    filled: usize,
    sent: VecDeque<Packet>,
    depth: usize,
    burst: Burst,
    fresh: Burst,
    old: Burst,
    arrivals: A,
    tally: Rc<Tally>,
    _lane: LaneCache,
}

impl<A: Arrivals> Forwarding<A> {
    fn new(burst: usize, depth: usize, arrivals: A) -> Result<Self, LabError> {
        let pool = Pool::new(&pool(depth)).map_err(LabError::setup)?;
        let lane = pool.attach().map_err(LabError::setup)?;
        let mut this = Self {
            pool,
            posted: VecDeque::with_capacity(depth),
            filled: 0,
            sent: VecDeque::with_capacity(depth + burst),
            depth,
            burst: Burst::with_limit(burst),
            fresh: Burst::with_limit(burst),
            old: Burst::with_limit(AT_ONCE),
            arrivals,
            tally: Rc::default(),
            _lane: lane,
        };
        this.post();
        Ok(this)
    }

    /// Posts buffers wherever the receive ring has none.
    #[inline]
    fn post(&mut self) {
        while self.posted.len() < self.depth {
            let wanted = self.depth - self.posted.len();
            if self.pool.take_burst(&mut self.fresh, wanted) == 0 {
                return;
            }
            self.posted.extend(self.fresh.drain());
        }
    }

    #[inline]
    fn poll(&mut self) -> usize {
        let space = (self.posted.len() - self.filled) as u64;
        let arrived = self.arrivals.arrived();
        let taken = arrived.min(space);
        self.filled += taken as usize;
        if arrived != u64::MAX {
            self.tally.offered.set(self.tally.offered.get() + arrived);
            self.tally.dropped.set(self.tally.dropped.get() + arrived - taken);
        }
        let count = self.filled.min(self.burst.limit());
        if count == 0 {
            return 0;
        }
        self.filled -= count;
        for packet in self.posted.drain(..count) {
            // It has space: the burst was empty and `count` is at most its limit.
            drop(self.burst.push(packet));
        }
        self.post();
        for packet in self.burst.iter_mut() {
            if let Ok(data) = packet.append(FRAME) {
                data[..12].copy_from_slice(&[2; 12]);
                data[22] = data[22].wrapping_sub(1);
            }
        }
        self.sent.extend(self.burst.drain());
        while self.sent.len() > self.depth {
            for packet in self.sent.drain(..AT_ONCE.min(self.sent.len())) {
                drop(self.old.push(packet));
            }
            self.old.clear();
        }
        count
    }
}

impl<A: Arrivals> Measure for Forwarding<A> {
    fn work(&mut self) -> u64 {
        let mut packets = 0;
        for _ in 0..WORK {
            packets += self.poll();
            if packets >= WORK {
                break;
            }
        }
        packets as u64
    }

    fn begin(&mut self) {
        // What came while others were measured is nobody's fault.
        self.arrivals.arrived();
        self.tally.offered.set(0);
        self.tally.dropped.set(0);
    }

    fn end(&mut self) {
        let share = self.tally.dropped.get() as f64 * 100.0 / self.tally.offered.get().max(1) as f64;
        self.tally.shares.borrow_mut().push(share);
    }
}

/// The pool of rings of this depth.
fn pool(depth: usize) -> PoolConfig {
    PoolConfig { name: "burst-depth".to_owned(), buffers: 2 * depth as u32 + 1_024, ..PoolConfig::default() }
}

/// Both rings full, for a model of caches: buffers are posted, written when their packet has come, and freed when it is sent.
fn workload(burst: usize, depth: usize) -> Result<Workload, LabError> {
    let pool = pool(depth);
    let packets = modelled::rounds(pool.buffers as usize, 2 * depth);
    let order = modelled::order(&pool, packets, burst, 2 * depth, false)?;
    let after = order.behind;
    let step = |after, lines, data| Step { after, by_second: false, lines, data };
    let steps = vec![
        step(0, &[(0, Access::Write)][..], None),
        step(after / 2, &[(0, Access::Write)], Some(Access::Write)),
        step(after, &[(0, Access::Read)], None),
    ];
    Ok(Workload { order, burst, lengths: vec![FRAME], data_line: modelled::BEFORE_DATA, steps })
}

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let grid = || DEPTHS.into_iter().flat_map(|depth| BURSTS.into_iter().map(move |burst| (burst, depth)));
    let mut cycles = Vec::new();
    for depth in DEPTHS {
        progress(&format!("always full, rings of {depth}"));
        for (variant, burst) in BURSTS.into_iter().enumerate() {
            setting.model(variant, || workload(burst, depth))?;
        }
        let mut variants = BURSTS
            .into_iter()
            .map(|burst| Ok(Box::new(Forwarding::new(burst, depth, Always)?) as Box<dyn Measure>))
            .collect::<Result<Vec<_>, LabError>>()?;
        cycles.extend(setting.take_turns(Lanes::One, &mut variants)?.medians);
    }
    let usual = grid().position(|cell| cell == USUAL).map_or(f64::NAN, |index| cycles[index]);
    // Without it there is no pace for trains, and their half of the table stays empty.
    let drops = if usual.is_finite() {
        dropped_in_trains(setting, progress, usual)?
    } else {
        vec![f64::NAN; cycles.len()]
    };
    let rows =
        grid().zip(cycles.iter().zip(&drops)).map(|((burst, depth), (&cycles, &dropped))| -> Vec<Cell> {
            vec![burst.into(), depth.into(), cycles.into(), dropped.into()]
        });
    Ok(Findings {
        columns: Column::list(
            "burst [packets] | ring depth [packets] | always full [cycles/packet] | dropped in trains [%]",
        ),
        rows: rows.collect(),
        figures: vec![
            map("Cycles per packet, rings always full", &cycles),
            map(
                &format!(
                    "Per cent dropped: trains of {TRAIN} at {OVERLOAD} times the pace, {:.0} % load",
                    LOAD * 100.0
                ),
                &drops,
            ),
        ],
        answers: answers(&cycles, &drops).to_vec(),
        conclusion: conclusion(&cycles, &drops, usual),
    })
}

/// Per cent that each ring and burst loses of trains whose pace follows from what a packet usually costs.
fn dropped_in_trains(
    setting: &Setting,
    progress: &mut dyn FnMut(&str),
    usual: f64,
) -> Result<Vec<f64>, LabError> {
    let mut drops = Vec::new();
    for depth in DEPTHS {
        progress(&format!("in trains, rings of {depth}"));
        let lanes = BURSTS
            .into_iter()
            .map(|burst| Forwarding::new(burst, depth, Trains::for_capacity(usual)))
            .collect::<Result<Vec<_>, LabError>>()?;
        let tallies: Vec<Rc<Tally>> = lanes.iter().map(|lane| Rc::clone(&lane.tally)).collect();
        let mut variants: Vec<_> = lanes.into_iter().map(|lane| Box::new(lane) as Box<dyn Measure>).collect();
        let turns = setting.take_turns(Lanes::One, &mut variants)?;
        let counts = |(tally, cycles): (&Rc<Tally>, &f64)| {
            if cycles.is_finite() { tally.median(&turns.counted) } else { f64::NAN }
        };
        drops.extend(tallies.iter().zip(&turns.medians).map(counts));
    }
    Ok(drops)
}

fn map(title: &str, values: &[f64]) -> Figure {
    Figure {
        title: title.to_owned(),
        x: Axis::linear("packets per burst"),
        y: Axis::linear("ring depth"),
        marks: Marks::HeatMap {
            columns: BURSTS.iter().map(usize::to_string).collect(),
            rows: DEPTHS.iter().map(usize::to_string).collect(),
            values: values.chunks(BURSTS.len()).map(<[f64]>::to_vec).collect(),
        },
    }
}

/// What a table says of a burst and a depth.
fn at(values: &[f64], burst: usize, depth: usize) -> f64 {
    let position = |of: &[usize], value| of.iter().position(|&other| other == value).unwrap_or(0);
    values[position(&DEPTHS, depth) * BURSTS.len() + position(&BURSTS, burst)]
}

fn answers(cycles: &[f64], drops: &[f64]) -> [Answer; 3] {
    let per_cent = |more: f64, less: f64| 100.0 * (more / less - 1.0);
    [
        (at(drops, 32, 64) - at(drops, 32, 1_024)).into(),
        per_cent(at(cycles, 32, 4_096), at(cycles, 32, 512)).into(),
        per_cent(at(cycles, 4, 512), at(cycles, 32, 512)).into(),
    ]
}

/// A train is this much longer than what is forwarded while it comes.
fn excess() -> f64 {
    TRAIN as f64 * (1.0 - 1.0 / OVERLOAD)
}

fn conclusion(cycles: &[f64], drops: &[f64], usual: f64) -> String {
    if !usual.is_finite() {
        return "The trains' pace follows from what the usual burst and ring cost, which was not steady enough to count: \
                there were no trains."
            .to_owned();
    }
    let least =
        |values: &[f64]| (0..values.len()).min_by(|&a, &b| values[a].total_cmp(&values[b])).unwrap_or(0);
    let deepest = DEPTHS[DEPTHS.len() - 1];
    let cheapest = least(cycles);
    let by_depth = DEPTHS.map(|depth| at(drops, USUAL.0, depth));
    let best = least(&by_depth);
    let deep_cost = at(cycles, USUAL.0, deepest);
    let budget = usual / LOAD;
    let deep = if deep_cost > budget {
        format!("more than the {budget:.1} that the load leaves it, so that it falls behind for good")
    } else {
        format!("still within the {budget:.1} that the load leaves it")
    };
    format!(
        "Cheapest is a burst of {} with rings of {}: {:.1} cycles a packet. With the usual rings of 512 a burst of 32 takes {usual:.1}, one of 4 {:.1} and \
         one of 256 {:.1}. A train of {TRAIN} brings {:.0} packets more than can be forwarded meanwhile: by bursts of 32, rings of 64 lose {:.1} %, \
         rings of 512 {:.1} %, and rings of {} least, {:.1} %. In rings of 4,096 a packet costs {deep_cost:.1} cycles, {deep}, and {:.1} % are lost. \
         The claim has no figures in its text to set beside these; it says that both short and long rings cost. Some of what \
         is lost with rings that hold a whole train comes from moments when the host had taken the CPU away.",
        BURSTS[cheapest % BURSTS.len()],
        DEPTHS[cheapest / BURSTS.len()],
        cycles[cheapest],
        at(cycles, 4, USUAL.1),
        at(cycles, 256, USUAL.1),
        excess(),
        by_depth[0],
        by_depth[3],
        DEPTHS[best],
        by_depth[best],
        at(drops, USUAL.0, deepest),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn trains_arrive_by_the_clock() {
        let trains = Trains { gap: 2.0, period: 10_240, start: 0, counted: 0 };
        assert_eq!(trains.until(0), 0);
        assert_eq!(trains.until(100), 50);
        assert_eq!(trains.until(5_000), TRAIN, "the pause");
        assert_eq!(trains.until(10_240 + 10), TRAIN + 5);
        let fitted = Trains::for_capacity(40.0);
        assert_eq!(fitted.period, 51_200, "1,024 packets in the time of 1,280");
    }

    struct Given(u64);

    impl Arrivals for Given {
        fn arrived(&mut self) -> u64 {
            self.0
        }
    }

    #[test]
    fn what_finds_no_buffer_is_counted() {
        let mut lane = Forwarding::new(32, 64, Given(96)).unwrap();
        assert_eq!(lane.poll(), 32);
        assert_eq!((lane.tally.offered.get(), lane.tally.dropped.get()), (96, 32));
        // 32 wait and 32 are posted again.
        assert_eq!(lane.poll(), 32);
        assert_eq!((lane.tally.offered.get(), lane.tally.dropped.get()), (192, 32 + 64));
        for _ in 0..10 {
            lane.poll();
        }
        assert!(lane.sent.len() <= 64 && lane.posted.len() == 64);
    }

    #[test]
    fn turned_figures_refute_the_claim() {
        let table = |value: fn(usize, usize) -> f64| -> Vec<f64> {
            DEPTHS.into_iter().flat_map(|depth| BURSTS.map(|burst| value(burst, depth))).collect()
        };
        let cost = |burst: usize, depth: usize| 20.0 + 80.0 / burst as f64 + depth as f64 / 400.0;
        let lost = |_, depth: usize| 70.0 - depth as f64 / 64.0;
        let as_claimed = answers(&table(cost), &table(lost));
        let turned = answers(
            &table(|burst, depth| 100.0 + burst as f64 / 4.0 - depth as f64 / 100.0),
            &table(|_, depth| depth as f64 / 100.0),
        );
        assert_judged(&PREDICTIONS, &as_claimed, &turned);
    }

    #[test]
    fn without_a_pace_there_is_a_word_instead_of_trains() {
        let none = vec![f64::NAN; BURSTS.len() * DEPTHS.len()];
        assert!(
            conclusion(&none, &none, f64::NAN).ends_with("not steady enough to count: there were no trains.")
        );
    }

    #[test]
    fn a_tiny_run_fills_both_maps() {
        let findings = run(&Setting::tiny(), &mut |_| ()).unwrap();
        assert_eq!(findings.rows.len(), BURSTS.len() * DEPTHS.len());
        assert_eq!(findings.figures.len(), 2);
        for row in &findings.rows {
            let [.., Cell::Figure(cycles), Cell::Figure(dropped)] = row[..] else { panic!("{row:?}") };
            assert!(cycles > 1.0 && (0.0..=100.0).contains(&dropped), "{row:?}");
        }
    }
}
