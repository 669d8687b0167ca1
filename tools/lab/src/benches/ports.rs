//! What a port's burst path costs where nothing but memory is behind it.

use super::fixture;
use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::setting::Lanes;
use crate::setting::Setting;
use warmlane_mem::{Burst, LaneCache};
use warmlane_memory::ring_pair;
use warmlane_port::{ReceiveQueue, TransmitQueue};

pub(super) const BENCHES: &[Bench] = &[Bench {
    name: "ring-pair",
    unit: "packet",
    sentence: "send packets into one port of a ring pair and receive them from the other, on one lane",
    lanes: Lanes::One,
    prepare: ring_pair,
}];

const NAME: &str = "ring-pair";
/// How often a unit of work repeats its burst, so that reading the clock is lost in it.
const REPEAT: usize = 100;

struct RingPair {
    burst: Burst,
    transmit: Box<dyn TransmitQueue>,
    receive: Box<dyn ReceiveQueue>,
    _lane: LaneCache,
}

fn ring_pair(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let size = setting.burst.unwrap_or(32);
    let (pool, lane) = fixture::pool(NAME)?;
    let [near, far] = ring_pair::open(["near", "far"], 512).map_err(LabError::setup)?;
    let (transmit, receive) = (fixture::transmit(near)?, fixture::receive(far)?);
    let mut burst = Burst::with_limit(size);
    pool.take_burst(&mut burst, size);
    Ok(Box::new(RingPair { burst, transmit, receive, _lane: lane }))
}

impl Measure for RingPair {
    fn work(&mut self) -> u64 {
        (0..REPEAT)
            .map(|_| {
                self.transmit.transmit(&mut self.burst);
                self.receive.receive(&mut self.burst) as u64
            })
            .sum()
    }
}
