//! What the burst paths of ports over shared memory cost: of both ends of a connection together, in one process.

use super::fixture;
use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::setting::{Lanes, Setting};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use warmlane_mem::{Burst, LaneCache, Pool};
use warmlane_memif::{Connector, MemifOptions};
use warmlane_port::{Port, ReceiveQueue, TransmitQueue};
use warmlane_virtio::vhost::{self, VhostOptions};
use warmlane_virtio::virtio_user::{self, VirtioUserOptions};

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: VHOST_SPLIT,
        unit: "packet",
        sentence: "send packets of 60 bytes from a vhost port to a virtio port and back, by split rings, on one lane",
        lanes: Lanes::One,
        prepare: |setting| vhost(VHOST_SPLIT, false, setting),
    },
    Bench {
        name: VHOST_PACKED,
        unit: "packet",
        sentence: "the same by packed rings",
        lanes: Lanes::One,
        prepare: |setting| vhost(VHOST_PACKED, true, setting),
    },
    Bench {
        name: MEMIF,
        unit: "packet",
        sentence: "send packets of 60 bytes from the server of a memif connection to its client and back, on one lane",
        lanes: Lanes::One,
        prepare: memif,
    },
];

const VHOST_SPLIT: &str = "vhost-split";
const VHOST_PACKED: &str = "vhost-packed";
const MEMIF: &str = "memif";
/// How often a unit of work repeats its burst, so that reading the clock is lost in it.
const REPEAT: usize = 100;
/// Bytes of each packet.
const PACKET: usize = 60;
/// How long the two ends may take to find each other.
const WITHIN: Duration = Duration::from_secs(300);

/// A socket without a file that nobody else has.
fn socket(name: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("@warmlane-{name}-{}-{number}", std::process::id())
}

fn vhost(name: &str, packed: bool, setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let ((pool, lane), socket) = (fixture::pool(name)?, socket(name));
    let options = VhostOptions::new(&socket, warmlane_virtio::Role::Server);
    let device = vhost::open("device", &options, 1, &pool).map_err(LabError::setup)?;
    let options = VirtioUserOptions::new(&socket, warmlane_virtio::Role::Client);
    let options = VirtioUserOptions { packed, ..options };
    let driver = virtio_user::open("driver", &options, 1, &pool).map_err(LabError::setup)?;
    let monitors = [device.monitor, driver.monitor];
    let are_up = || monitors.iter().all(|monitor| monitor.status().is_some_and(|status| status.connected));
    round_trip([device.port, driver.port], are_up, (&pool, lane), setting)
}

fn memif(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    use warmlane_memif::{Role, open};
    let ((pool, lane), socket) = (fixture::pool(MEMIF)?, socket(MEMIF));
    let mut connector = Connector::default();
    let mut end = |name, role| {
        open(name, &MemifOptions::new(&socket, role), 1, &pool, &mut connector).map_err(LabError::setup)
    };
    let (server, client) = (end("server", Role::Server)?, end("client", Role::Client)?);
    let monitors = [server.monitor, client.monitor];
    let are_up = || monitors.iter().all(|monitor| monitor.status().is_some_and(|status| status.connected));
    round_trip([server.port, client.port], are_up, (&pool, lane), setting)
}

struct End {
    transmit: Box<dyn TransmitQueue>,
    receive: Box<dyn ReceiveQueue>,
}

impl End {
    fn new(mut port: Port) -> Result<Self, LabError> {
        let receive = port.receive.pop().ok_or_else(|| LabError::setup("the port has no receive queue"))?;
        Ok(Self { transmit: fixture::transmit(port)?, receive })
    }
}

/// A burst that goes from one end to the other and back.
struct RoundTrip {
    burst: Burst,
    near: End,
    far: End,
    _lane: LaneCache,
}

fn round_trip(
    [near, far]: [Port; 2],
    are_up: impl Fn() -> bool,
    (pool, lane): (&Pool, LaneCache),
    setting: &Setting,
) -> Result<Box<dyn Measure>, LabError> {
    let end = Instant::now() + WITHIN;
    while !are_up() {
        if Instant::now() > end {
            return Err(LabError::setup("the two ends don't find each other"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let size = setting.burst.unwrap_or(32);
    let mut round_trip =
        RoundTrip { burst: Burst::with_limit(size), near: End::new(near)?, far: End::new(far)?, _lane: lane };
    // Who lends the other side buffers does so when it polls.
    for end in [&mut round_trip.near, &mut round_trip.far] {
        end.receive.receive(&mut round_trip.burst);
    }
    pool.take_burst(&mut round_trip.burst, size);
    for packet in &mut *round_trip.burst {
        packet.fill(&[1; PACKET]).map_err(LabError::setup)?;
    }
    // All memory is touched, and nobody has anything left to say to the other side.
    let came = (0..REPEAT).map(|_| round_trip.go()).last();
    if came != Some(size as u64) {
        return Err(LabError::setup(format!("{} of {size} packets come back", came.unwrap_or(0))));
    }
    Ok(Box::new(round_trip))
}

impl RoundTrip {
    /// How many packets came back.
    fn go(&mut self) -> u64 {
        let Self { burst, near, far, .. } = self;
        near.transmit.transmit(burst);
        far.receive.receive(burst);
        far.transmit.transmit(burst);
        near.receive.receive(burst) as u64
    }
}

impl Measure for RoundTrip {
    fn work(&mut self) -> u64 {
        let mut packets = 0;
        for _ in 0..REPEAT {
            packets += self.go();
        }
        packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_packets_come_back() {
        for bench in BENCHES {
            for burst in [1, 32] {
                let setting = Setting { burst: Some(burst), ..Setting::tiny() };
                assert_eq!(bench.count(&setting, 3).unwrap(), (3 * REPEAT * burst) as u64, "{}", bench.name);
            }
        }
    }
}
