//! What buffers cost.

use crate::bench::{Bench, BenchError, Measure, Options};
use warmlane_mem::{Burst, LaneCache, Pool, PoolConfig};

pub(super) const BENCHES: &[Bench] = &[Bench {
    name: "pool-one-lane",
    unit: "packet",
    sentence: "take 32 packets ready to use and free them, on one lane",
    prepare: one_lane,
}];

/// How often a unit of work repeats its burst, so that reading the clock is lost in it.
const REPEAT: usize = 100;

struct OneLane {
    burst: Burst,
    size: usize,
    pool: Pool,
    _lane: LaneCache,
}

fn one_lane(options: &Options) -> Result<Box<dyn Measure>, BenchError> {
    let name = "pool-one-lane";
    let size = options.burst.unwrap_or(32);
    let pool = Pool::new(&PoolConfig { name: name.to_owned(), ..PoolConfig::default() })
        .map_err(|error| BenchError::setup(name, error))?;
    let lane = pool.attach().map_err(|error| BenchError::setup(name, error))?;
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
