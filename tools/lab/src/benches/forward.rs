//! What forwarding costs: replay, validate, look up in the full table, rewrite, drop.

use crate::bench::{Bench, BenchError, Measure, Options};
use crate::traffic::{self, Mix};
use std::fmt::Write as _;
use std::sync::Arc;
use warmlane_forward::control::{Config, Routes};
use warmlane_forward::datapath::Forwarder;
use warmlane_forward::{ForwardTask, TaskPort};
use warmlane_lane::{Poll, Task};
use warmlane_mem::{LaneCache, Pool, PoolConfig};
use warmlane_memory::{null, replay};
use warmlane_port::QueueCounters;

pub(super) const BENCHES: &[Bench] = &[Bench {
    name: "l3-forward",
    unit: "packet",
    sentence: "replay 60-byte frames, validate, look up in the full table, rewrite, drop",
    prepare: l3_forward,
}];

const NAME: &str = "l3-forward";

/// Next hops that the table is spread over.
const NEIGHBOURS: usize = 32;

/// The task that `warmlane forward` runs on its lanes.
struct Forward {
    task: ForwardTask,
    sink: Arc<QueueCounters>,
    /// What the sink had when the round began.
    before: u64,
    _lane: LaneCache,
}

fn l3_forward(options: &Options) -> Result<Box<dyn Measure>, BenchError> {
    let setup = |error: &dyn std::fmt::Display| BenchError::setup(NAME, error);
    let config = Config::from_toml(&configuration()).map_err(|error| setup(&error))?;
    let routes = Routes::from_config(&config).map_err(|error| setup(&error))?;
    let pool = Pool::new(&PoolConfig { name: NAME.to_owned(), ..PoolConfig::default() })
        .map_err(|error| setup(&error))?;
    let frames = match &options.frames {
        Some(frames) => Arc::clone(frames),
        None => Arc::new(traffic::generate(&Mix::shortest(65_536)).map_err(|error| setup(&error))?),
    };
    let source =
        replay::open(NAME, &frames, &pool, replay::ReplayConfig::default()).map_err(|error| setup(&error))?;
    let out =
        null::sink(NAME, 1).transmit.into_iter().next().ok_or_else(|| setup(&"the sink has no queue"))?;
    let sink = Arc::clone(out.counters());
    let lane = pool.attach().map_err(|error| setup(&error))?;
    let forwarder = Forwarder::new(Arc::new(routes), pool, config.icmp);
    let port = TaskPort { receive: source.receive, transmit: Some(out), lossless: true };
    let task = ForwardTask::new(forwarder, vec![port], options.burst.unwrap_or(64));
    Ok(Box::new(Forward { task, sink, before: 0, _lane: lane }))
}

impl Measure for Forward {
    fn work(&mut self) -> u64 {
        let moved = |poll| if let Poll::Worked(packets) = poll { packets as u64 } else { 0 };
        (0..100).map(|_| moved(self.task.poll())).sum()
    }

    fn begin(&mut self) {
        self.before = self.sink.packets.get();
    }

    fn forwarded(&self) -> Option<u64> {
        Some(self.sink.packets.get() - self.before)
    }
}

/// One port, and the full table spread over neighbours behind it.
fn configuration() -> String {
    let mut text = String::new();
    let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
    let mut neighbours = String::new();
    for host in 2..2 + NEIGHBOURS {
        let addresses = [format!("10.0.0.{host}"), format!("fd00::{host}")];
        for address in &addresses {
            // Writing to a string cannot fail.
            let _ = writeln!(
                neighbours,
                "[[neighbour]]\naddress = \"{address}\"\nmac = \"02:00:00:00:01:{host:02x}\"\nport = \"out\""
            );
        }
        let [four, six] = addresses;
        ipv4.push(four);
        ipv6.push(six);
    }
    let _ = writeln!(text, "[full_table]\nipv4 = {ipv4:?}\nipv6 = {ipv6:?}");
    text + "[[port]]\nname = \"out\"\ndriver = \"null\"\nmac = \"02:00:00:00:00:01\"\n" + &neighbours
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_arrive_is_seen() {
        // A hundred frames that are forwarded, and one of zeros that can't be.
        let mut frames = traffic::generate(&Mix::shortest(100)).unwrap();
        let forwarded = |frames: &warmlane_memory::replay::Frames| {
            let options = Options { frames: Some(Arc::new(frames.clone())), ..Options::default() };
            let mut measure = l3_forward(&options).unwrap();
            measure.work();
            measure.begin();
            (measure.work(), measure.forwarded())
        };
        let (packets, arrived) = forwarded(&frames);
        assert!(packets > 0 && arrived == Some(packets), "{packets} {arrived:?}");
        frames.push(&[0; 60]).unwrap();
        let (packets, arrived) = forwarded(&frames);
        assert!(arrived < Some(packets), "{packets} {arrived:?}");
    }
}
