//! What a replayed frame costs before anything is done with it.

use super::fixture;
use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::setting::Lanes;
use crate::setting::Setting;
use crate::traffic;
use warmlane_mem::Burst;
use warmlane_memory::null;

pub(super) const BENCHES: &[Bench] = &[Bench {
    name: NAME,
    unit: "packet",
    sentence: "replay 60-byte frames, each copied into a fresh buffer, and drop them",
    lanes: Lanes::One,
    prepare: drop,
}];

const NAME: &str = "replay-drop";

fn drop(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let (pool, lane) = fixture::pool(NAME)?;
    let source = fixture::replayed(NAME, setting, &pool, || traffic::zeros(65_536, 60))?;
    let (receive, transmit) = (fixture::receive(source)?, fixture::transmit(null::sink(NAME, 1))?);
    let burst = Burst::with_limit(setting.burst.unwrap_or(64));
    Ok(Box::new(fixture::Through { burst, receive, transmit, _lane: lane }))
}
