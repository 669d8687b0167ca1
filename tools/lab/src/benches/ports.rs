//! What a port's burst path costs where nothing but memory is behind it.

use crate::bench::{Bench, BenchError, Measure, Options};
use warmlane_mem::{Burst, LaneCache, Pool, PoolConfig};
use warmlane_memory::ring_pair;
use warmlane_port::{ReceiveQueue, TransmitQueue};

pub(super) const BENCHES: &[Bench] = &[Bench {
    name: "ring-pair",
    unit: "packet",
    sentence: "send packets into one port of a ring pair and receive them from the other, on one lane",
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

fn ring_pair(options: &Options) -> Result<Box<dyn Measure>, BenchError> {
    let setup = |error: &dyn std::fmt::Display| BenchError::setup(NAME, error);
    let size = options.burst.unwrap_or(32);
    let pool = Pool::new(&PoolConfig { name: NAME.to_owned(), ..PoolConfig::default() })
        .map_err(|error| setup(&error))?;
    let lane = pool.attach().map_err(|error| setup(&error))?;
    let [near, far] = ring_pair::open(["near", "far"], 512).map_err(|error| setup(&error))?;
    let queues = near.transmit.into_iter().next().zip(far.receive.into_iter().next());
    let (transmit, receive) = queues.ok_or_else(|| setup(&"the ports have no queues"))?;
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
