//! From descriptors to descriptors: receiving, forwarding and sending, one by one and with vector instructions.

mod forward;
mod receive;
mod transmit;

use crate::error::LabError;
use crate::experiment::Experiment;
use crate::measure::Measure;
use crate::plot::{Axis, Figure, Marks};
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting};
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Basis, Prediction};
use forward::Forwarding;
use receive::Driver;
use std::hint::black_box;
use std::sync::atomic::{Ordering, fence};
use transmit::Transmit;
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
    method: "Rings of 256 descriptors of 16 bytes on both ends, laid out as a card's. The lab plays the card, outside the time that counts: it writes all \
             receive descriptors. Then 32 packets at a time are received (read descriptors until one is not done; write length, type, VLAN tag and hash \
             into the packet's header with the fields that every packet starts with; post a new buffer), forwarded (look the destination up among 65,536 \
             prefixes, write both Ethernet addresses, count the hop) and sent (write a descriptor, keep the buffer's number). The steps are the \
             claim's: all one by one; receiving and sending eight at a time, by shuffles and stores of 16 bytes, and forwarding one by one; \
             all eight at a time. The whole is timed over a ring of packets; so is each of its parts, with \
             a ring received before any of it is forwarded: their sum must explain the whole within 10 %. Buffers come in order from a set whose headers and frames \
             the first-level cache holds, or the last-level cache; so none is freed. What a card's writes and reads cost is not in it.",
    steps: None,
    run,
};

const NO_GAIN: &str = "vector instructions that gain nothing";
const UNEXPLAINED: &str = "parts that do not add up to the whole";

const PREDICTIONS: [Prediction; 6] = [
    Prediction {
        basis: Basis::Figure,
        ..Prediction::at_most(
            "a packet with the new vector step, last level; the claim's has a card on top",
            "cycles",
            54.0,
            "a path that costs more even without a card",
        )
    },
    Prediction::at_least("vector driver against scalar one, first level", "%", 3.0, NO_GAIN),
    Prediction::at_least(
        "vector forwarding between against scalar forwarding, first level",
        "%",
        3.0,
        NO_GAIN,
    ),
    Prediction::check(
        "scalar: sum of the parts over the whole, first level",
        "times",
        [0.9, 1.1],
        UNEXPLAINED,
    ),
    Prediction::check(
        "old vector: sum of the parts over the whole, first level",
        "times",
        [0.9, 1.1],
        UNEXPLAINED,
    ),
    Prediction::check(
        "new vector: sum of the parts over the whole, first level",
        "times",
        [0.9, 1.1],
        UNEXPLAINED,
    ),
];

const RING: usize = 256;
/// Packets that are received at once.
const BURST: usize = 32;
/// Rings in a unit of work.
const REPEAT: usize = 12;
/// Descriptors or packets that the vector variants take at once.
const WIDTH: usize = 8;
/// Buffers: headers and frames are 32 KiB, and 4 MiB.
const BUFFERS: [(&str, usize); 2] = [("first level", 256), ("last level", 32_768)];

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
    driver: Driver,
    forwarding: Forwarding,
    transmit: Transmit,
    step: Step,
    timed: Timed,
    counted: u64,
    /// Buffers that were received and not forwarded yet.
    received: Vec<u32>,
}

impl Path {
    fn new(buffers: usize, step: Step, timed: Timed) -> Result<Self, LabError> {
        Ok(Self {
            driver: Driver::new(buffers, step != Step::Scalar)?,
            forwarding: Forwarding::new(buffers)?,
            transmit: Transmit::new(),
            step,
            timed,
            counted: 0,
            received: Vec::with_capacity(RING),
        })
    }

    #[inline(always)]
    fn forward(forwarding: &mut Forwarding, step: Step, buffers: &[u32]) {
        if step == Step::NewVector { forwarding.by_vector(buffers) } else { forwarding.one_by_one(buffers) }
    }

    #[inline(always)]
    fn send(&mut self, buffers: &[u32]) {
        let headers = &self.driver.headers;
        if self.step == Step::Scalar {
            self.transmit.one_by_one(headers, buffers);
        } else {
            self.transmit.by_vector(headers, buffers);
        }
    }

    /// All that has come, burst by burst; returns how many packets.
    fn whole(&mut self) -> usize {
        let mut packets = 0;
        for _ in 0..RING / BURST {
            let mut burst = [0; BURST];
            let received = self.driver.receive();
            let count = received.len();
            burst[..count].copy_from_slice(received);
            Self::forward(&mut self.forwarding, self.step, &burst[..count]);
            self.send(&burst[..count]);
            packets += count;
        }
        packets
    }

    /// The same part by part, of which the one in question is timed.
    fn parts(&mut self) -> usize {
        self.received.clear();
        let begin = clock::cycles_ordered();
        for _ in 0..RING / BURST {
            self.received.extend_from_slice(self.driver.receive());
        }
        let received = clock::cycles_ordered();
        let buffers = std::mem::take(&mut self.received);
        for burst in buffers.chunks(BURST) {
            Self::forward(&mut self.forwarding, self.step, burst);
        }
        let forwarded = clock::cycles_ordered();
        for burst in buffers.chunks(BURST) {
            self.send(burst);
        }
        let sent = clock::cycles_ordered();
        self.counted += match self.timed {
            Timed::Receiving => received - begin,
            Timed::Forwarding => forwarded - received,
            Timed::Sending => sent - forwarded,
            Timed::Whole => sent - begin,
        };
        self.received = buffers;
        self.received.len()
    }
}

impl Measure for Path {
    fn work(&mut self) -> u64 {
        let mut packets = 0;
        for _ in 0..REPEAT {
            self.driver.deliver(RING);
            // A card's writes are long done when the driver reads; ours must be, or a wide load would wait for narrow stores.
            fence(Ordering::SeqCst);
            if self.timed == Timed::Whole {
                let begin = clock::cycles_ordered();
                packets += black_box(self.whole());
                self.counted += clock::cycles_ordered() - begin;
            } else {
                packets += black_box(self.parts());
            }
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
    for (name, buffers) in BUFFERS {
        progress(name);
        let mut variants = Vec::<Box<dyn Measure>>::new();
        for (step, _) in STEPS {
            for timed in TIMED {
                variants.push(Box::new(Path::new(buffers, step, timed)?));
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

/// `costs` has, for each of [`BUFFERS`], those of the steps.
fn findings(costs: &[[Costs; 3]]) -> Findings {
    let columns = Column::list(
        "headers and frames in | step | receive [cycles/packet] | forward [cycles/packet] | send [cycles/packet] | sum [cycles/packet] | \
         whole [cycles/packet] | sum over whole [times] | gain over scalar [%]",
    );
    let (mut rows, mut groups, mut series) = (Vec::new(), Vec::new(), vec![Vec::new(); TIMED.len()]);
    for ((cache, _), costs) in BUFFERS.into_iter().zip(costs) {
        for ((_, step), cost) in STEPS.into_iter().zip(costs) {
            let [whole, receive, forward, send] = *cost;
            let mut row: Vec<Cell> = vec![cache.into(), step.into()];
            let figures =
                [receive, forward, send, sum(cost), whole, sum(cost) / whole, gain(&costs[0], cost)];
            row.extend(figures.map(Cell::from));
            rows.push(row);
            groups.push(format!("{step}, {cache}"));
            series.iter_mut().zip(cost).for_each(|(series, &cost)| series.push(cost));
        }
    }
    let names = ["whole", "receive", "forward", "send"].map(str::to_owned);
    let figure = Figure {
        title: "From descriptors to descriptors".to_owned(),
        x: Axis::linear("step, and the cache that holds headers and frames"),
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
    let told = BUFFERS.iter().zip(costs).map(|((cache, _), [scalar, old, new])| {
        format!(
            "with all in the {cache} cache {:.1} cycles a packet one by one, {:.1} with the vector driver ({:+.0} %), {:.1} with vector forwarding between \
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

    #[test]
    fn every_step_leaves_the_same_and_so_do_its_parts() {
        for buffers in [256, 1_003] {
            let mut paths: Vec<Path> = STEPS
                .into_iter()
                .flat_map(|(step, _)| {
                    [Timed::Whole, Timed::Sending].map(|timed| Path::new(buffers, step, timed).unwrap())
                })
                .collect();
            for path in &mut paths {
                assert_eq!(path.work() + path.work(), 2 * (REPEAT * RING) as u64);
            }
            let (first, others) = paths.split_first().unwrap();
            for other in others {
                assert!(
                    first.transmit.ring == other.transmit.ring && first.transmit.sent == other.transmit.sent
                );
                assert!(first.forwarding.frames[..] == other.forwarding.frames[..]);
            }
        }
    }

    #[test]
    fn there_is_a_row_for_each_combination() {
        let findings = run(&Setting::tiny(), &mut |_| ()).unwrap();
        findings.assert_rows(BUFFERS.len() * STEPS.len());
    }
}
