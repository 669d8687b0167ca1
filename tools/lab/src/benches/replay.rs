//! What a replayed frame costs before anything is done with it.

use super::fixture;
use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::setting::Lanes;
use crate::setting::Setting;
use crate::traffic;
use warmlane_mem::{Burst, LaneCache};
use warmlane_memory::null;
use warmlane_port::{ReceiveQueue, TransmitQueue};

pub(super) const BENCHES: &[Bench] = &[Bench {
    name: NAME,
    unit: "packet",
    sentence: "replay 60-byte frames, each copied into a fresh buffer, and drop them",
    lanes: Lanes::One,
    prepare: drop,
}];

const NAME: &str = "replay-drop";

struct Drop {
    burst: Burst,
    receive: Box<dyn ReceiveQueue>,
    transmit: Box<dyn TransmitQueue>,
    _lane: LaneCache,
}

fn drop(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let (pool, lane) = fixture::pool(NAME)?;
    let source = fixture::replayed(NAME, setting, &pool, || traffic::zeros(65_536, 60))?;
    let (receive, transmit) = (fixture::receive(source)?, fixture::transmit(null::sink(NAME, 1))?);
    let burst = Burst::with_limit(setting.burst.unwrap_or(64));
    Ok(Box::new(Drop { burst, receive, transmit, _lane: lane }))
}

impl Measure for Drop {
    fn work(&mut self) -> u64 {
        (0..100)
            .map(|_| {
                let packets = self.receive.receive(&mut self.burst);
                self.transmit.transmit(&mut self.burst);
                packets as u64
            })
            .sum()
    }
}
