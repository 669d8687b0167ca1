//! What a driver for a card costs, without the card.

use super::fixture;
use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::setting::{Lanes, Setting};
use warmlane_mem::{Burst, LaneCache};
use warmlane_pci::{NullCard, NullCardPort};
use warmlane_port::Port;
use warmlane_virtio::bus::NullDevice;

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: NAME,
        unit: "packet",
        sentence: "receive packets of 60 bytes by the driver of Intel's 82576 and send them back, with a card that is played and moves no data",
        lanes: Lanes::One,
        prepare: |setting| Ok(Box::new(Echo::new(setting)?)),
    },
    Bench {
        name: "virtio-echo",
        unit: "packet",
        sentence: "receive packets of 60 bytes by the driver of virtio devices with zero-copy and send them back by split rings, with a device that is played and moves no data",
        lanes: Lanes::One,
        prepare: |setting| Ok(Box::new(VirtioEcho::new(setting, false)?)),
    },
    Bench {
        name: "virtio-echo-packed",
        unit: "packet",
        sentence: "the same by packed rings",
        lanes: Lanes::One,
        prepare: |setting| Ok(Box::new(VirtioEcho::new(setting, true)?)),
    },
];

const NAME: &str = "card-echo";
/// Descriptors of a ring.
const RING: usize = 256;
/// How often a unit of work repeats its burst, so that reading the clock is lost in it.
const REPEAT: usize = 100;
/// Bytes of each packet.
const PACKET: u16 = 60;

struct Echo {
    port: NullCardPort,
    burst: Burst,
    size: usize,
    _lane: LaneCache,
}

impl Echo {
    fn new(setting: &Setting) -> Result<Self, LabError> {
        let (pool, lane) = fixture::pool(NAME)?;
        let port = NullCard::open(&pool, RING, true).map_err(LabError::setup)?;
        let size = setting.burst.unwrap_or(32).clamp(1, RING / 2);
        Ok(Self { port, burst: Burst::with_limit(size), size, _lane: lane })
    }
}

impl Measure for Echo {
    fn work(&mut self) -> u64 {
        let Self { port, burst, size, .. } = self;
        let mut packets = 0;
        for _ in 0..REPEAT {
            port.card.deliver(*size, PACKET);
            port.receive.receive(burst);
            packets += port.transmit.transmit(burst) as u64;
            port.card.send();
        }
        packets
    }
}

struct VirtioEcho {
    device: NullDevice,
    port: Port,
    burst: Burst,
    size: usize,
    _lane: LaneCache,
}

impl VirtioEcho {
    fn new(setting: &Setting, is_packed: bool) -> Result<Self, LabError> {
        let (pool, lane) = fixture::pool("virtio-echo")?;
        let (device, port) = NullDevice::open(&pool, RING as u16, is_packed).map_err(LabError::setup)?;
        let size = setting.burst.unwrap_or(32).clamp(1, RING / 2);
        Ok(Self { device, port, burst: Burst::with_limit(size), size, _lane: lane })
    }
}

impl Measure for VirtioEcho {
    fn work(&mut self) -> u64 {
        let Self { device, port, burst, size, .. } = self;
        let mut packets = 0;
        for _ in 0..REPEAT {
            device.deliver(*size, PACKET);
            port.receive[0].receive(burst);
            packets += port.transmit[0].transmit(burst) as u64;
            device.send();
        }
        packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_packets_are_sent_back() {
        for burst in [1, 7, 32, 128] {
            let setting = Setting { burst: Some(burst), ..Setting::tiny() };
            for bench in BENCHES {
                assert_eq!(bench.count(&setting, 3).unwrap(), (3 * REPEAT * burst) as u64, "{}", bench.name);
            }
        }
    }
}
