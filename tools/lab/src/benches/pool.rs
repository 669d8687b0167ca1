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
        prepare: tx_null,
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

struct TxNull {
    burst: Burst,
    size: usize,
    frames: Frames,
    cursor: Cursor,
    transmit: Box<dyn TransmitQueue>,
    pool: Pool,
    _lane: LaneCache,
}

fn tx_null(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let name = "tx-null";
    let size = setting.burst.unwrap_or(32);
    let (pool, lane) = fixture::pool(name)?;
    let mut frames = Frames::new();
    frames.push(&[0x5a; 64]).map_err(LabError::setup)?;
    let transmit = fixture::transmit(null::sink(name, 1))?;
    let burst = Burst::with_limit(size);
    Ok(Box::new(TxNull { burst, size, frames, cursor: Cursor::default(), transmit, pool, _lane: lane }))
}

impl Measure for TxNull {
    fn work(&mut self) -> u64 {
        let mut packets = 0;
        for _ in 0..REPEAT {
            self.pool.take_copies(&mut self.burst, &self.frames, &mut self.cursor, self.size);
            packets += self.transmit.transmit(&mut self.burst);
        }
        packets as u64
    }
}
