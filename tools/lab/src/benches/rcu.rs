//! What readers pay for quiescent-state RCU.

use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::setting::Lanes;
use crate::setting::Setting;
use warmlane_sync::rcu::Domain;

pub(super) const BENCHES: &[Bench] = &[Bench {
    name: "rcu",
    unit: "report",
    sentence: "report a quiescent state while nobody updates",
    lanes: Lanes::One,
    prepare: report,
}];

/// Reports in one unit of work, so that reading the clock is lost in it.
const REPEAT: u64 = 16_384;

fn report(_: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let domain = Domain::new(64).map_err(LabError::setup)?;
    let mut reader = domain.reader("lane").map_err(LabError::setup)?;
    Ok(Box::new(move || {
        let reader = std::hint::black_box(&mut reader);
        for _ in 0..REPEAT {
            reader.quiescent();
        }
        REPEAT
    }))
}
