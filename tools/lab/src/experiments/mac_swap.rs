//! Swapping the two addresses of Ethernet headers, one by one and with vector instructions.

use super::scalar_and_vector::{compared, gain};
use crate::error::LabError;
use crate::experiment::Experiment;
use crate::measure::Measure;
use crate::record::{Claim, Findings};
use crate::setting::{Lanes, Setting};
use crate::traffic;
use crate::verdict::{Answer, Prediction};
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use warmlane_mem::{Burst, LaneCache, Packet, Pool, PoolConfig};
use warmlane_memory::{null, replay};
use warmlane_port::{ReceiveQueue, TransmitQueue};
use warmlane_sys::vector::{self, Vector, Work};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "mac-swap",
    question: "What is it worth to swap source and destination address of Ethernet headers with vector instructions?",
    claim: Claim {
        source: super::sources::ARM,
        says: "swapping source and destination address of four packets at a time with NEON (a shuffle of 16 bytes) gains 20 % over \
               doing it one by one",
        predictions: &PREDICTIONS,
    },
    method: "Two ways to swap in turns: each packet's six bytes exchanged with six others, and four packets at a time, each by a load of 16 bytes, a \
             shuffle and a store. First on 32 packets in the first-level cache, over and over, which is the swap alone; then within a \
             whole path, as the claim has it: frames of 60 bytes copied into fresh buffers by a replay port, swapped, and sent to a port that frees them. \
             The same path without a swap shows what the rest costs.",
    steps: None,
    run,
};

const PREDICTIONS: [Prediction; 1] = [Prediction::effect(
    "vector against one by one, whole path",
    "%",
    20.0,
    "vector instructions that gain nothing",
)];

const BURST: usize = 32;
/// Bursts in a unit of work.
const REPEAT: usize = 100;
/// The destination's six bytes after the source's, the type where it was.
const ORDER: [u8; 16] = [6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 12, 13, 14, 15];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    None,
    Scalar,
    Vector,
}

impl Variant {
    fn swap(self, packets: &mut [Packet]) {
        match self {
            Self::None => {}
            Self::Scalar => swap_one_by_one(packets),
            Self::Vector => vector::run(Swap(packets)),
        }
    }
}

#[inline(never)]
fn swap_one_by_one(packets: &mut [Packet]) {
    for packet in packets {
        if let Some((destination, rest)) = packet.data_mut().split_first_chunk_mut::<6>()
            && let Some(source) = rest.first_chunk_mut::<6>()
        {
            std::mem::swap(destination, source);
        }
    }
}

/// Swaps by shuffles; a frame shorter than 16 bytes has no whole header and stays.
struct Swap<'a>(&'a mut [Packet]);

impl Work for Swap<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) {
        let (fours, rest) = self.0.as_chunks_mut::<4>();
        for [a, b, c, d] in fours {
            shuffle(vector, a);
            shuffle(vector, b);
            shuffle(vector, c);
            shuffle(vector, d);
        }
        for packet in rest {
            shuffle(vector, packet);
        }
    }
}

/// No closure: it would not be compiled for the vector's instructions.
#[inline(always)]
fn shuffle<V: Vector>(vector: V, packet: &mut Packet) {
    if let Some(header) = packet.data_mut().first_chunk_mut::<16>() {
        *header = vector.shuffle(*header, ORDER);
    }
}

/// The same packets over and over.
struct Alone {
    burst: Burst,
    variant: Variant,
    _lane: LaneCache,
}

impl Alone {
    fn new(variant: Variant) -> Result<Self, LabError> {
        let pool =
            Pool::new(&PoolConfig { name: "mac-swap".to_owned(), buffers: 1_024, ..PoolConfig::default() })
                .map_err(LabError::setup)?;
        let lane = pool.attach().map_err(LabError::setup)?;
        let mut burst = Burst::with_limit(BURST);
        pool.take_burst(&mut burst, BURST);
        for (number, packet) in burst.iter_mut().enumerate() {
            packet.append(60).map_err(LabError::setup)?.fill(number as u8);
        }
        Ok(Self { burst, variant, _lane: lane })
    }
}

impl Measure for Alone {
    fn work(&mut self) -> u64 {
        for _ in 0..REPEAT {
            self.variant.swap(black_box(&mut self.burst));
        }
        (REPEAT * self.burst.len()) as u64
    }
}

/// From a port to a port.
struct Path {
    burst: Burst,
    receive: Box<dyn ReceiveQueue>,
    transmit: Box<dyn TransmitQueue>,
    variant: Variant,
    _lane: LaneCache,
}

impl Path {
    fn new(variant: Variant) -> Result<Self, LabError> {
        let name = "mac-swap";
        let pool = Pool::new(&PoolConfig { name: name.to_owned(), ..PoolConfig::default() })
            .map_err(LabError::setup)?;
        let frames = Arc::new(traffic::zeros(4_096, 60).map_err(LabError::setup)?);
        let source =
            replay::open(name, &frames, &pool, replay::ReplayConfig::default()).map_err(LabError::setup)?;
        let queues = source.receive.into_iter().next().zip(null::sink(name, 1).transmit.into_iter().next());
        let (receive, transmit) = queues.ok_or_else(|| LabError::setup("the ports have no queues"))?;
        let lane = pool.attach().map_err(LabError::setup)?;
        Ok(Self { burst: Burst::with_limit(BURST), receive, transmit, variant, _lane: lane })
    }
}

impl Measure for Path {
    fn work(&mut self) -> u64 {
        let mut packets = 0;
        for _ in 0..REPEAT {
            packets += self.receive.receive(&mut self.burst);
            self.variant.swap(&mut self.burst);
            self.transmit.transmit(&mut self.burst);
        }
        packets as u64
    }
}

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    progress("the swap alone");
    let [scalar, vector] = [Variant::Scalar, Variant::Vector].map(Alone::new);
    let alone = setting.take_turns(Lanes::One, &mut [Box::new(scalar?), Box::new(vector?)])?.medians;
    progress("a whole path");
    let [none, scalar, vector] = [Variant::None, Variant::Scalar, Variant::Vector].map(Path::new);
    let path =
        setting.take_turns(Lanes::One, &mut [Box::new(none?), Box::new(scalar?), Box::new(vector?)])?.medians;
    Ok(findings(&alone, &path))
}

/// Of `path`: without, one by one, vector.
fn answers(path: &[f64]) -> [Answer; 1] {
    [gain(path[1], path[2]).into()]
}

/// `alone`: one by one, vector; `path`: without, one by one, vector.
fn findings(alone: &[f64], path: &[f64]) -> Findings {
    let rows: [(&str, Option<f64>, f64, f64); 2] = [
        ("the swap alone", None, alone[0], alone[1]),
        ("receive, swap, send", Some(path[0]), path[1], path[2]),
    ];
    let mut conclusion = format!(
        "With {} instructions the whole path does {:+.0} % packets in the same time (claimed: +20 % with NEON), the swap alone {:+.0} %.",
        vector::level(),
        gain(path[1], path[2]),
        gain(alone[0], alone[1])
    );
    let saved = path[1] - path[2];
    let _ = write!(
        conclusion,
        " In the path that is {saved:.1} cycles of the {:.1} that a packet takes, of which {:.1} are receiving and sending: what the swap is worth \
         depends on what else is done.",
        path[1], path[0]
    );
    compared(
        "what | without [cycles/packet] | one by one [cycles/packet] | vector [cycles/packet] | gain [%]",
        ["Swapping addresses", "what is done"],
        &rows,
        answers(path).to_vec(),
        conclusion,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn both_ways_swap_and_touch_nothing_else() {
        for variant in [Variant::Scalar, Variant::Vector] {
            let mut alone = Alone::new(variant).unwrap();
            for count in [BURST, 7] {
                for packet in alone.burst.iter_mut() {
                    for (index, byte) in packet.data_mut().iter_mut().enumerate() {
                        *byte = index as u8;
                    }
                }
                variant.swap(&mut alone.burst[..count]);
                for (number, packet) in alone.burst.iter().enumerate() {
                    let mut wanted: Vec<u8> = (0..60).collect();
                    if number < count {
                        wanted[..12].rotate_left(6);
                    }
                    assert_eq!(packet.data(), wanted);
                }
            }
        }
    }

    #[test]
    fn turned_figures_refute_the_claim() {
        assert_judged(&PREDICTIONS, &answers(&[8.0, 12.0, 10.0]), &answers(&[8.0, 10.0, 12.0]));
    }

    #[test]
    fn there_is_a_row_for_each_combination() {
        let findings = run(&Setting::tiny(), &mut |_| ()).unwrap();
        findings.assert_rows(2);
    }
}
