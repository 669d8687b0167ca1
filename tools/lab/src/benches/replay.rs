//! What a replayed frame costs before anything is done with it.

use crate::bench::{Bench, BenchError, Measure, Options};
use crate::traffic;
use std::sync::Arc;
use warmlane_mem::{Burst, LaneCache, Pool, PoolConfig};
use warmlane_memory::{null, replay};
use warmlane_port::{ReceiveQueue, TransmitQueue};

pub(super) const BENCHES: &[Bench] = &[Bench {
    name: "replay-drop",
    unit: "packet",
    sentence: "replay 60-byte frames, each copied into a fresh buffer, and drop them",
    prepare: drop,
}];

struct Drop {
    burst: Burst,
    receive: Box<dyn ReceiveQueue>,
    transmit: Box<dyn TransmitQueue>,
    _lane: LaneCache,
}

fn drop(options: &Options) -> Result<Box<dyn Measure>, BenchError> {
    let name = "replay-drop";
    let pool = Pool::new(&PoolConfig { name: name.to_owned(), ..PoolConfig::default() })
        .map_err(|error| BenchError::setup(name, error))?;
    let frames = match &options.frames {
        Some(frames) => Arc::clone(frames),
        None => Arc::new(traffic::zeros(65_536, 60).map_err(|error| BenchError::setup(name, error))?),
    };
    let source = replay::open(name, &frames, &pool, replay::ReplayConfig::default())
        .map_err(|error| BenchError::setup(name, error))?;
    let sink = null::sink(name, 1);
    let queues = source.receive.into_iter().next().zip(sink.transmit.into_iter().next());
    let (receive, transmit) = queues.ok_or_else(|| BenchError::setup(name, "the ports have no queues"))?;
    let lane = pool.attach().map_err(|error| BenchError::setup(name, error))?;
    let burst = Burst::with_limit(options.burst.unwrap_or(64));
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
