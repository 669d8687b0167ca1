//! What readers pay for quiescent-state RCU.

use crate::bench::{Bench, BenchError, Measure, Options};
use warmlane_sync::rcu::Domain;

pub(super) const BENCHES: &[Bench] = &[Bench {
    name: "rcu",
    unit: "report",
    sentence: "report a quiescent state while nobody updates",
    prepare: report,
}];

/// Reports in one unit of work, so that reading the clock is lost in it.
const REPEAT: u64 = 16_384;

fn report(_: &Options) -> Result<Box<dyn Measure>, BenchError> {
    let failed = |error| BenchError::setup("rcu", error);
    let domain = Domain::new(64).map_err(failed)?;
    let mut reader = domain.reader("lane").map_err(failed)?;
    Ok(Box::new(move || {
        let reader = std::hint::black_box(&mut reader);
        for _ in 0..REPEAT {
            reader.quiescent();
        }
        REPEAT
    }))
}
