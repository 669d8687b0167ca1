//! What buffers cost.

use super::fixture;
use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::setting::Lanes;
use crate::setting::Setting;
use crate::two_lanes::{Shape, TwoLanes};
use warmlane_mem::{Burst, Cursor, Frames, LaneCache, Pool};
use warmlane_memory::null;
use warmlane_port::TransmitQueue;

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: "pool-one-lane",
        unit: "packet",
        sentence: "take 32 packets ready to use and free them, on one lane",
        lanes: Lanes::One,
        prepare: one_lane,
    },
    Bench {
        name: "pool-two-lanes",
        unit: "packet",
        sentence: "take and write 1,520-byte frames on one lane, read and free them on another; 65,535 buffers",
        lanes: Lanes::Two,
        prepare: |setting| two_lanes(setting, Shape::default()),
    },
    Bench {
        name: "pool-two-lanes-8191",
        unit: "packet",
        sentence: "the same with 8,191 buffers",
        lanes: Lanes::Two,
        prepare: |setting| two_lanes(setting, Shape { buffers: 8_191, ..Shape::default() }),
    },
    Bench {
        name: "pool-two-lanes-held",
        unit: "packet",
        sentence: "the same with 65,535 buffers, of which 20,000 are always under way",
        lanes: Lanes::Two,
        prepare: |setting| {
            let shape = Shape { under_way: 20_000, held: true, ..Shape::default() };
            two_lanes(setting, shape)
        },
    },
    Bench {
        name: "pool-two-lanes-header",
        unit: "packet",
        sentence: "take and write 64-byte frames on one lane, read and free them on another; 65,535 buffers",
        lanes: Lanes::Two,
        prepare: |setting| two_lanes(setting, Shape { lengths: vec![64], ..Shape::default() }),
    },
    Bench {
        name: "pool-two-lanes-header-8191",
        unit: "packet",
        sentence: "the same with 8,191 buffers",
        lanes: Lanes::Two,
        prepare: |setting| {
            let shape = Shape { lengths: vec![64], buffers: 8_191, ..Shape::default() };
            two_lanes(setting, shape)
        },
    },
    Bench {
        name: "pool-two-lanes-header-held",
        unit: "packet",
        sentence: "the same with 65,535 buffers, of which 20,000 are always under way",
        lanes: Lanes::Two,
        prepare: |setting| {
            let shape = Shape { lengths: vec![64], under_way: 20_000, held: true, ..Shape::default() };
            two_lanes(setting, shape)
        },
    },
    Bench {
        name: "tx-null",
        unit: "packet",
        sentence: "take buffers, write a 64-byte frame into each, transmit to a port that frees them",
        lanes: Lanes::One,
        prepare: |setting| to_null("tx-null", setting, 0),
    },
    Bench {
        name: "tx-held",
        unit: "packet",
        sentence: "the same, but 6,144 packets wait before they are transmitted, as in the rings of a card",
        lanes: Lanes::One,
        prepare: |setting| to_null("tx-held", setting, HELD),
    },
];

/// How often a unit of work repeats its burst, so that reading the clock is lost in it.
const REPEAT: usize = 100;

struct OneLane {
    burst: Burst,
    size: usize,
    pool: Pool,
    _lane: LaneCache,
}

fn one_lane(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let size = setting.burst.unwrap_or(32);
    let (pool, lane) = fixture::pool("pool-one-lane")?;
    Ok(Box::new(OneLane { burst: Burst::with_limit(size), size, pool, _lane: lane }))
}

impl Measure for OneLane {
    fn work(&mut self) -> u64 {
        let mut packets = 0;
        for _ in 0..REPEAT {
            packets += self.pool.take_burst(&mut self.burst, self.size);
            std::hint::black_box(&mut self.burst);
            self.burst.clear();
        }
        packets as u64
    }
}

fn two_lanes(setting: &Setting, mut shape: Shape) -> Result<Box<dyn Measure>, LabError> {
    shape.burst = setting.burst.unwrap_or(shape.burst);
    let lanes = TwoLanes::start("pool-two-lanes", &shape, setting.second_cpu()?).map_err(LabError::setup)?;
    Ok(Box::new(lanes))
}

/// Frames of 64 bytes, some of which wait before they go to a port that frees them.
struct ToNull {
    /// The oldest is transmitted next, and filled again.
    waiting: Vec<Burst>,
    oldest: usize,
    size: usize,
    frames: Frames,
    cursor: Cursor,
    transmit: Box<dyn TransmitQueue>,
    pool: Pool,
    _lane: LaneCache,
}

/// `packets` wait, but at least a burst.
fn to_null(name: &str, setting: &Setting, packets: usize) -> Result<Box<dyn Measure>, LabError> {
    let size = setting.burst.unwrap_or(32);
    let (pool, lane) = fixture::pool(name)?;
    let mut frames = Frames::new();
    frames.push(&[0x5a; 64]).map_err(LabError::setup)?;
    // The first round fills them.
    let waiting = (0..packets.div_ceil(size).max(1)).map(|_| Burst::with_limit(size)).collect();
    let cursor = Cursor::default();
    let transmit = fixture::transmit(null::sink(name, 1))?;
    Ok(Box::new(ToNull { waiting, oldest: 0, size, frames, cursor, transmit, pool, _lane: lane }))
}

impl Measure for ToNull {
    fn work(&mut self) -> u64 {
        let mut packets = 0;
        for _ in 0..REPEAT {
            let burst = &mut self.waiting[self.oldest];
            packets += self.transmit.transmit(burst);
            self.pool.take_copies(burst, &self.frames, &mut self.cursor, self.size);
            self.oldest += 1;
            if self.oldest == self.waiting.len() {
                self.oldest = 0;
            }
        }
        packets as u64
    }
}

/// Packets that wait in `tx-held`. Their headers and first lines of data take 768 KiB: most of a second-level cache of 1 MiB, so that
/// one more line for each packet doesn't fit any more.
const HELD: usize = 6_144;
