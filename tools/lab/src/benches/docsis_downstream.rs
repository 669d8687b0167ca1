//! What a packet through both MACs of a DOCSIS downstream takes.

use super::fixture;
use crate::bench::Bench;
use crate::cable;
use crate::error::LabError;
use crate::measure::Measure;
use crate::setting::{Lanes, Setting};
use std::time::Duration;
use warmlane_docsis::{Downstream, Queues, downstream};
use warmlane_lane::Task as _;
use warmlane_mem::{Frames, LaneCache, Pool, PoolConfig};
use warmlane_memory::null;

const NAME: &str = "docsis-downstream";

pub(super) const BENCHES: &[Bench] = &[Bench {
    name: NAME,
    unit: "packet",
    sentence: "the cable mix through both MACs: find the modem, classify, queue, schedule, frame, write the CRC, encrypt, tunnel",
    lanes: Lanes::One,
    prepare,
}];

/// Calls of each MAC in a unit of work.
const CALLS: usize = 100;

/// Buffers: queues and packets to the remote PHY hold some for a while.
const BUFFERS: u32 = 16_383;

struct Both {
    made: Downstream,
    _lane: LaneCache,
}

fn prepare(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let mut group = cable::service_group(true, true).map_err(LabError::setup)?;
    // No packet leaves because its time is over, which on a slow machine would be more of them.
    group.limits.flush = Duration::from_secs(1 << 20);
    let config = PoolConfig { name: NAME.to_owned(), buffers: BUFFERS, ..PoolConfig::default() };
    let pool = Pool::new(&config).map_err(LabError::setup)?;
    let lane = pool.attach().map_err(LabError::setup)?;
    let source = fixture::replayed(NAME, setting, &pool, frames)?;
    let sink = fixture::transmit(null::sink(NAME, 1))?;
    let queues = Queues { receive: vec![fixture::receive(source)?], transmit: sink };
    let made = downstream(&group, &pool, queues, None).map_err(LabError::setup)?;
    Ok(Box::new(Both { made, _lane: lane }))
}

/// Enough of the cable mix that each modem gets frames of all lengths.
fn frames() -> Result<Frames, String> {
    let mut frames = Frames::default();
    for place in 0..10 * cable::MODEMS {
        let frame = cable::frame(place, cable::mix(place))?;
        frames.push(&frame).map_err(|error| error.to_string())?;
    }
    Ok(frames)
}

impl Measure for Both {
    fn work(&mut self) -> u64 {
        let framed = self.made.views.lower.framed();
        for _ in 0..CALLS {
            self.made.upper.poll();
            self.made.lower.poll();
        }
        self.made.views.lower.framed() - framed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_comes_is_framed_and_encrypted() {
        let mut both = prepare(&Setting::default()).unwrap();
        let framed = both.work();
        assert!(framed > 50 * CALLS as u64, "{framed}");
    }
}
