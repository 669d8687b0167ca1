//! A sink that drops everything, and a source of frames of zeros.

use serde::{Deserialize, Serialize};
use warmlane_driver_common::{Driver, DriverHelp, Environment, OpenError, driver_help};
use warmlane_mem::{Burst, NoSpace, Pool};
use warmlane_port::{Capabilities, Port, QueueCounters, ReceiveQueue, TransmitQueue, queue_report};

/// Ports that drop what is sent to them.
#[derive(Debug)]
pub struct NullDriver;

/// There are none.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NullOptions {}

impl Driver for NullDriver {
    const HELP: DriverHelp = driver_help! {
        "null": "Drops what is sent to it, and receives nothing. Needs no privilege.";
        examples: "null";
    };
    type Options = NullOptions;

    fn open(NullOptions {}: &NullOptions, environment: &mut Environment<'_>) -> Result<Port, OpenError> {
        Ok(sink(&environment.name, environment.queues))
    }
}

/// A port that accepts and frees whatever it is given, on `queues` transmit queues.
pub fn sink(name: &str, queues: usize) -> Port {
    let queue = || Box::new(Sink { counters: QueueCounters::new() }) as Box<dyn TransmitQueue>;
    Port {
        name: name.to_owned(),
        driver: "null",
        capabilities: Capabilities { maximum_frame: u32::MAX, ..Capabilities::default() },
        receive: Vec::new(),
        transmit: (0..queues).map(|_| queue()).collect(),
    }
}

/// A port that gives out frames of `length` bytes, whatever their buffers held before, as fast as it is asked: the
/// price of taking buffers and nothing else.
///
/// # Errors
/// [`NoSpace`], if the frames don't fit the pool's buffers.
pub fn source(name: &str, pool: &Pool, length: usize) -> Result<Port, NoSpace> {
    if length > pool.data_size() {
        return Err(NoSpace { wanted: length, available: pool.data_size() });
    }
    let queue = Source { pool: pool.clone(), length, counters: QueueCounters::new() };
    Ok(Port {
        name: name.to_owned(),
        driver: "null",
        capabilities: Capabilities { maximum_frame: pool.data_size() as u32, ..Capabilities::default() },
        receive: vec![Box::new(queue)],
        transmit: Vec::new(),
    })
}

struct Sink {
    counters: QueueCounters,
}

impl TransmitQueue for Sink {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let count = burst.len();
        let bytes = burst.bytes();
        burst.clear();
        self.counters.count(count as u64, bytes);
        count
    }

    fn is_lossless(&self) -> bool {
        true
    }

    queue_report!(always running, counters);
}

struct Source {
    pool: Pool,
    length: usize,
    counters: QueueCounters,
}

impl ReceiveQueue for Source {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        let count = self.pool.take_burst(burst, usize::MAX);
        for packet in &mut burst[before..] {
            // It fits: the length was checked against the pool's buffers when the port was made.
            let _ = packet.append(self.length);
        }
        self.counters.count(count as u64, (count * self.length) as u64);
        count
    }

    queue_report!(always running, counters);
}
