//! From descriptors to descriptors: receiving, forwarding and sending by the driver of Intel's 82576, one by one and with vector instructions.

mod forward;

use crate::benches::fixture;
use crate::error::LabError;
use crate::experiment::Experiment;
use crate::measure::Measure;
use crate::plot::{Axis, Figure, Marks};
use crate::random::Xorshift;
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting};
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Basis, Prediction};
use forward::Forwarding;
use std::hint::black_box;
use warmlane_mem::{Burst, LaneCache, Pool};
use warmlane_pci::{NullCard, NullCardPort};
use warmlane_sys::{clock, vector};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "vector-rx",
    question: "What does a packet cost from a card's descriptors to its descriptors, one by one and with vector instructions?",
    claim: Claim {
        source: super::sources::INTEL_TALK,
        says: "in three steps, the scalar driver, the vector driver, and a forwarder that works on several packets at once between the two ends of the \
               vector driver, a packet comes down to 54 cycles, receiving, forwarding and sending included; \
               each step's share is in a picture without figures",
        predictions: &PREDICTIONS,
    },
    method: "The driver of Intel's 82576 with a card that reaches the pool, and that the lab plays outside the time that counts: it turns the descriptors of frames of 64 \
             bytes over, and moves no data. Then 32 packets at a time are received (read descriptors until one is not done; take the buffers back; write the packets' \
             headers; post buffers of the pool), forwarded (look the destination up among 65,536 prefixes, write both Ethernet addresses, count the hop) and sent \
             (write descriptors; free the buffers that the card is done with). The steps are the \
             claim's: descriptors are looked at and packets forwarded one by one; descriptors several at a time; packets eight at a time, too, with their addresses \
             written by shuffles and stores of 16 bytes. Sending is the same in all. The whole is timed over a ring of packets; so is each of its parts, with \
             a ring received before any of it is forwarded: their sum must explain the whole within 10 %. With rings of 64 descriptors, all headers and frames in use \
             fit in the first-level cache, with 4,096 they are some 1 MiB. What a card's writes and reads cost is not in it.",
    steps: None,
    run,
};

const NO_GAIN: &str = "vector instructions that gain nothing";
const UNEXPLAINED: &str = "parts that do not add up to the whole";

const PREDICTIONS: [Prediction; 6] = [
    Prediction {
        basis: Basis::Figure,
        ..Prediction::at_most(
            "a packet with the new vector step, long rings; the claim's has a card on top",
            "cycles",
            54.0,
            "a path that costs more even without a card",
        )
    },
    Prediction::at_least("vector driver against scalar one, short rings", "%", 3.0, NO_GAIN),
    Prediction::at_least(
        "vector forwarding between against scalar forwarding, short rings",
        "%",
        3.0,
        NO_GAIN,
    ),
    Prediction::check(
        "scalar: sum of the parts over the whole, short rings",
        "times",
        [0.9, 1.1],
        UNEXPLAINED,
    ),
    Prediction::check(
        "old vector: sum of the parts over the whole, short rings",
        "times",
        [0.9, 1.1],
        UNEXPLAINED,
    ),
    Prediction::check(
        "new vector: sum of the parts over the whole, short rings",
        "times",
        [0.9, 1.1],
        UNEXPLAINED,
    ),
];

/// Descriptors of a ring, of which a card has one less.
const RINGS: [usize; 2] = [64, 4_096];
/// Packets that are received at once.
const BURST: usize = 32;
/// Packets in a unit of work, at least.
const PACKETS: usize = 3_000;

/// How far vector instructions go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Scalar,
    OldVector,
    NewVector,
}

const STEPS: [(Step, &str); 3] =
    [(Step::Scalar, "scalar"), (Step::OldVector, "old vector"), (Step::NewVector, "new vector")];

/// What is timed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timed {
    Whole,
    Receiving,
    Forwarding,
    Sending,
}

const TIMED: [Timed; 4] = [Timed::Whole, Timed::Receiving, Timed::Forwarding, Timed::Sending];

struct Path {
    port: NullCardPort,
    forwarding: Forwarding,
    step: Step,
    timed: Timed,
    counted: u64,
    burst: Burst,
    /// Bursts that are received before any is forwarded.
    received: Vec<Burst>,
    _lane: LaneCache,
}

impl Path {
    fn new(ring: usize, step: Step, timed: Timed) -> Result<Self, LabError> {
        Self::with_pool(fixture::pool("vector-rx")?, ring, step, timed)
    }

    fn with_pool(
        (pool, lane): (Pool, LaneCache),
        ring: usize,
        step: Step,
        timed: Timed,
    ) -> Result<Self, LabError> {
        fill_all(&pool)?;
        let port = NullCard::open(&pool, ring, step != Step::Scalar).map_err(LabError::setup)?;
        let bursts = if timed == Timed::Whole { 0 } else { ring.div_ceil(BURST) };
        Ok(Self {
            port,
            forwarding: Forwarding::new(),
            step,
            timed,
            counted: 0,
            burst: Burst::with_limit(BURST),
            received: (0..bursts).map(|_| Burst::with_limit(BURST)).collect(),
            _lane: lane,
        })
    }

    #[inline(always)]
    fn forward(forwarding: &Forwarding, step: Step, burst: &mut Burst) {
        if step == Step::NewVector { forwarding.by_vector(burst) } else { forwarding.one_by_one(burst) }
    }

    /// All that has come, burst by burst; returns how many packets were sent.
    fn whole(&mut self) -> usize {
        let Self { port, forwarding, step, burst, .. } = self;
        let mut packets = 0;
        while port.receive.receive(burst) > 0 {
            Self::forward(forwarding, *step, burst);
            packets += port.transmit.transmit(burst);
        }
        packets
    }

    /// The same part by part, of which the one in question is timed.
    fn parts(&mut self) -> usize {
        let Self { port, forwarding, step, received, .. } = self;
        let begin = clock::cycles_ordered();
        for burst in &mut *received {
            if port.receive.receive(burst) == 0 {
                break;
            }
        }
        let received_all = clock::cycles_ordered();
        for burst in &mut *received {
            Self::forward(forwarding, *step, burst);
        }
        let forwarded = clock::cycles_ordered();
        let packets = received.iter_mut().map(|burst| port.transmit.transmit(burst)).sum();
        let sent = clock::cycles_ordered();
        self.counted += match self.timed {
            Timed::Receiving => received_all - begin,
            Timed::Forwarding => forwarded - received_all,
            Timed::Sending => sent - forwarded,
            Timed::Whole => sent - begin,
        };
        packets
    }
}

/// Writes a frame to each buffer of a pool. A card would, outside the time that counts.
fn fill_all(pool: &Pool) -> Result<(), LabError> {
    let mut random = Xorshift(Xorshift::SEED);
    let mut all = Vec::new();
    while let Some(mut packet) = pool.take() {
        packet.fill(&forward::frame(&mut random)).map_err(LabError::setup)?;
        all.push(packet);
    }
    Ok(())
}

impl Measure for Path {
    fn work(&mut self) -> u64 {
        let mut packets = 0;
        while packets < PACKETS {
            self.port.card.deliver(usize::MAX, size_of::<forward::Start>() as u16);
            if self.timed == Timed::Whole {
                let begin = clock::cycles_ordered();
                packets += black_box(self.whole());
                self.counted += clock::cycles_ordered() - begin;
            } else {
                packets += black_box(self.parts());
            }
            self.port.card.send();
        }
        packets as u64
    }

    fn begin(&mut self) {
        self.counted = 0;
    }

    fn counted_cycles(&self) -> Option<u64> {
        Some(self.counted)
    }
}

/// Cycles a packet of a step: the whole, receiving, forwarding, sending.
type Costs = [f64; TIMED.len()];

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let mut costs = Vec::new();
    for ring in RINGS {
        progress(&format!("rings of {ring}"));
        let mut variants = Vec::<Box<dyn Measure>>::new();
        for (step, _) in STEPS {
            for timed in TIMED {
                variants.push(Box::new(Path::new(ring, step, timed)?));
            }
        }
        let medians = setting.take_turns(Lanes::One, &mut variants)?.medians;
        let of_step = |number: usize| std::array::from_fn(|timed| medians[number * TIMED.len() + timed]);
        costs.push(std::array::from_fn(of_step));
    }
    Ok(findings(&costs))
}

fn sum(costs: &Costs) -> f64 {
    costs[1..].iter().sum()
}

/// How much more is done in the same time, in percent.
fn gain(before: &Costs, after: &Costs) -> f64 {
    100.0 * (before[0] / after[0] - 1.0)
}

/// `costs` has, for each of [`RINGS`], those of the steps.
fn findings(costs: &[[Costs; 3]]) -> Findings {
    let columns = Column::list(
        "descriptors of a ring | step | receive [cycles/packet] | forward [cycles/packet] | send [cycles/packet] | sum [cycles/packet] | \
         whole [cycles/packet] | sum over whole [times] | gain over scalar [%]",
    );
    let (mut rows, mut groups, mut series) = (Vec::new(), Vec::new(), vec![Vec::new(); TIMED.len()]);
    for (ring, costs) in RINGS.into_iter().zip(costs) {
        for ((_, step), cost) in STEPS.into_iter().zip(costs) {
            let [whole, receive, forward, send] = *cost;
            let mut row: Vec<Cell> = vec![ring.into(), step.into()];
            let figures =
                [receive, forward, send, sum(cost), whole, sum(cost) / whole, gain(&costs[0], cost)];
            row.extend(figures.map(Cell::from));
            rows.push(row);
            groups.push(format!("{step}, {ring}"));
            series.iter_mut().zip(cost).for_each(|(series, &cost)| series.push(cost));
        }
    }
    let names = ["whole", "receive", "forward", "send"].map(str::to_owned);
    let figure = Figure {
        title: "From descriptors to descriptors".to_owned(),
        x: Axis::linear("step, and descriptors of a ring"),
        y: Axis::linear("cycles per packet"),
        marks: Marks::Bars { groups, series: names.into_iter().zip(series).collect() },
    };
    let (answers, conclusion) = (answers(costs).to_vec(), conclusion(costs));
    Findings { columns, rows, figures: vec![figure], answers, conclusion }
}

fn answers(costs: &[[Costs; 3]]) -> [Answer; 6] {
    let [first, .., last] = costs else { return [Answer::MISSING; 6] };
    let [scalar, old, new] = first;
    let explained = |costs: &Costs| Answer::from(sum(costs) / costs[0]);
    let whole = last[2][0];
    [
        whole.into(),
        gain(scalar, old).into(),
        gain(old, new).into(),
        explained(scalar),
        explained(old),
        explained(new),
    ]
}

fn conclusion(costs: &[[Costs; 3]]) -> String {
    let told = RINGS.iter().zip(costs).map(|(ring, [scalar, old, new])| {
        format!(
            "with rings of {ring} descriptors {:.1} cycles a packet one by one, {:.1} with the vector driver ({:+.0} %), {:.1} with vector forwarding between \
             ({:+.0} %)",
            scalar[0],
            old[0],
            gain(scalar, old),
            new[0],
            gain(old, new)
        )
    });
    format!(
        "With {} instructions, {}. The claim's 54 cycles are those of Sandy Bridge with a card that writes and reads the same lines; here there is \
         none, so that being below them shows only that the instructions are not what took that long.",
        vector::level(),
        told.collect::<Vec<_>>().join("; "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn turned_figures_refute_the_claim() {
        let step = |whole: f64, sum: f64| [whole, sum / 2.0, sum / 4.0, sum / 4.0];
        let as_claimed = [step(15.0, 15.5), step(12.0, 11.8), step(10.0, 10.2)];
        let turned = [step(10.0, 20.0), step(12.0, 6.0), step(150.0, 100.0)];
        assert_judged(&PREDICTIONS, &answers(&[as_claimed; 2]), &answers(&[turned; 2]));
    }

    /// All frames, by their buffers, of a pool that has got all of these back.
    fn frames(pool: &Pool) -> Vec<Vec<u8>> {
        let mut frames = vec![Vec::new(); pool.buffers() as usize];
        let mut all = Vec::new();
        while let Some(mut packet) = pool.take() {
            let frame = packet.append(size_of::<forward::Start>()).unwrap().to_vec();
            frames[packet.id().index() as usize] = frame;
            all.push(packet);
        }
        assert!(frames.iter().all(|frame| !frame.is_empty()));
        frames
    }

    #[test]
    fn every_step_leaves_the_same() {
        for ring in [64, 256] {
            for timed in [Timed::Whole, Timed::Sending] {
                let [scalar, old, new] = STEPS.map(|(step, _)| {
                    let (pool, lane) = fixture::pool("vector-rx").unwrap();
                    let mut path = Path::with_pool((pool.clone(), lane), ring, step, timed).unwrap();
                    let packets = path.work() + path.work();
                    assert!(packets >= 2 * PACKETS as u64, "{packets}");
                    drop(path);
                    frames(&pool)
                });
                let forwarded = scalar.iter().filter(|frame| frame[11] == 0xff).count();
                assert!(forwarded >= ring - 1, "{forwarded}");
                assert!(scalar == old && scalar == new);
            }
        }
    }

    #[test]
    fn there_is_a_row_for_each_combination() {
        let findings = run(&Setting::tiny(), &mut |_| ()).unwrap();
        findings.assert_rows(RINGS.len() * STEPS.len());
    }
}
