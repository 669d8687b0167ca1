//! What generating a packet costs.

use crate::bench::{Bench, BenchError, Measure, Options};
use std::sync::Arc;
use warmlane_gen::control::Config;
use warmlane_gen::datapath::{Pattern, TransmitOrder, TransmitOrders, Transmitter};
use warmlane_lane::{Poll, Task};
use warmlane_mem::{LaneCache, Pool, PoolConfig};
use warmlane_memory::null;

pub(super) const BENCHES: &[Bench] = &[Bench {
    name: NAME,
    unit: "packet",
    sentence: "generate 64-byte UDP from random sources, each with sequence number, time and checksums, and drop it",
    prepare: generate,
}];

const NAME: &str = "gen-null";

/// What testpmd's `--txonly-multi-flow` varies is the source address too.
const STREAMS: &str = r#"
[[stream]]
size = 64
[stream.packet]
ipv4 = { source = "198.18.0.0", destination = "198.19.0.1" }
udp = { source = 1024, destination = 9 }
[[stream.vary]]
field = "ipv4.source"
order = "random"
count = 65536
"#;

/// The task that `warmlane gen` runs on its sending lane.
struct Generate {
    task: Transmitter,
    _lane: LaneCache,
}

fn generate(options: &Options) -> Result<Box<dyn Measure>, BenchError> {
    let setup = |error: &dyn std::fmt::Display| BenchError::setup(NAME, error);
    let config = Config::from_toml(STREAMS).map_err(|error| setup(&error))?;
    let plan = config.profile.plan().map_err(|error| setup(&error))?;
    let pool = Pool::new(&PoolConfig { name: NAME.to_owned(), ..PoolConfig::default() })
        .map_err(|error| setup(&error))?;
    let lane = pool.attach().map_err(|error| setup(&error))?;
    let sink = null::sink(NAME, 1).transmit.into_iter().next();
    let orders = Arc::new(TransmitOrders::default());
    let mut task =
        Transmitter::new(sink.ok_or_else(|| setup(&"the port has no queue"))?, pool, Arc::clone(&orders));
    orders.give(TransmitOrder {
        plan: Arc::new(plan),
        trial: 1,
        pattern: Pattern::Unpaced,
        packets_per_cycle: 0.0,
        duration: u64::MAX >> 1,
        count: u64::MAX,
        burst: options.burst.unwrap_or(64),
        patience: 0,
        seed: 1,
    });
    // Takes the order up, which allocates.
    task.poll();
    Ok(Box::new(Generate { task, _lane: lane }))
}

impl Measure for Generate {
    fn work(&mut self) -> u64 {
        let moved = |poll| if let Poll::Worked(packets) = poll { packets as u64 } else { 0 };
        (0..100).map(|_| moved(self.task.poll())).sum()
    }
}
