//! A router with two ports on the workbench: frames in, frames out.

use std::sync::Arc;

use warmlane_forward::control::{Config, Routes};
use warmlane_forward::datapath::{ForwardCountersView, Forwarder, Reason};
use warmlane_lane::{KeptOutputs, Stage as _};
use warmlane_mem::{Burst, Packet, Pool, PoolConfig};
use warmlane_wire::{Frame, Ipv4Fields, Ipv6Fields, MacAddress};

pub(crate) const LEFT: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
pub(crate) const RIGHT: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
pub(crate) const HOST: MacAddress = MacAddress([2, 0, 0, 0, 1, 1]);
pub(crate) const NEXT: MacAddress = MacAddress([2, 0, 0, 0, 2, 2]);
pub(crate) const TAGGED: MacAddress = MacAddress([2, 0, 0, 0, 2, 3]);

pub(crate) const CONFIG: &str = r#"
[[port]]
name = "left"
driver = "test"
addresses = ["192.0.2.1/24", "2001:db8:1::1/64", "fe80::1/64"]
mac = "02:00:00:00:00:01"

[[port]]
name = "right"
driver = "test"
addresses = ["198.51.100.1/24", "2001:db8:2::1/64"]
mtu = 1400
mac = "02:00:00:00:00:02"

[[neighbour]]
address = "198.51.100.2"
mac = "02:00:00:00:02:02"
port = "right"

[[neighbour]]
address = "2001:db8:2::2"
mac = "02:00:00:00:02:02"
port = "right"

[[neighbour]]
address = "198.51.100.3"
mac = "02:00:00:00:02:03"
port = "right"
vlan = 7

[[neighbour]]
address = "192.0.2.10"
mac = "02:00:00:00:01:01"
port = "left"

[[neighbour]]
address = "2001:db8:1::10"
mac = "02:00:00:00:01:01"
port = "left"

[[route]]
prefix = "203.0.113.0/24"
via = "198.51.100.2"

[[route]]
prefix = "203.0.113.128/25"
via = "198.51.100.3"

[[route]]
prefix = "100.64.0.0/16"
drop = true

[[route]]
prefix = "100.65.0.0/16"
unreachable = true

[[route]]
prefix = "100.66.0.0/16"
via = [{ via = "198.51.100.2", weight = 3 }, { via = "198.51.100.3" }]

[[route]]
prefix = "2001:db8:3::/48"
via = "2001:db8:2::2"

[[route]]
prefix = "2001:db8:4::/48"
unreachable = true

[[route]]
prefix = "2001:db8:5::/48"
drop = true
"#;

pub(crate) struct Bench {
    pub(crate) pool: Pool,
    pub(crate) routes: Arc<Routes>,
    pub(crate) forwarder: Forwarder,
    /// Frames that left, by port.
    pub(crate) sent: [Vec<Vec<u8>>; 2],
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(CONFIG, &PoolConfig { buffers: 512, ..PoolConfig::default() })
    }

    pub(crate) fn with(config: &str, pool: &PoolConfig) -> Self {
        let config = Config::from_toml(config).unwrap();
        let routes = Arc::new(Routes::from_config(&config).unwrap());
        let pool = Pool::new(pool).unwrap();
        let forwarder = Forwarder::new(Arc::clone(&routes), pool.clone(), config.icmp);
        Self { pool, routes, forwarder, sent: [Vec::new(), Vec::new()] }
    }

    pub(crate) fn counters(&self) -> ForwardCountersView {
        self.forwarder.view()
    }

    /// A packet of this frame, in as many buffers as it takes.
    pub(crate) fn packet(&self, frame: &[u8]) -> Packet {
        let mut packet = self.pool.take().unwrap();
        let (first, rest) = frame.split_at(frame.len().min(self.pool.data_size()));
        packet.fill(first).unwrap();
        for part in rest.chunks(self.pool.data_size()) {
            let mut segment = self.pool.take().unwrap();
            segment.fill(part).unwrap();
            packet.chain(segment).unwrap();
        }
        packet
    }

    /// Forwards frames that came in by `port`; what leaves is added to `sent`.
    pub(crate) fn receive(&mut self, port: u16, frames: &[Vec<u8>]) {
        for frames in frames.chunks(64) {
            let mut burst = Burst::with_limit(64);
            for frame in frames {
                let mut packet = self.packet(frame);
                packet.set_port(port);
                burst.push(packet).unwrap();
            }
            self.process(&mut burst);
        }
    }

    pub(crate) fn process(&mut self, burst: &mut Burst) {
        let mut outputs = KeptOutputs::of(&self.forwarder).without(Forwarder::PUNT).without(Forwarder::HOLD);
        self.forwarder.process(burst, &mut outputs.outputs());
        assert!(burst.is_empty());
        assert_eq!(self.counters().balance(), 0, "{:?}", self.counters());
        for (port, sent) in self.sent.iter_mut().enumerate() {
            for packet in outputs.burst(Forwarder::FIRST_PORT + port).drain() {
                let mut frame = vec![0; packet.packet_length()];
                packet.copy_to(&mut frame);
                sent.push(frame);
            }
        }
        assert_eq!(self.pool.ledger().outstanding(), 0);
    }

    /// What would leave by the ports, and the reasons why anything would be dropped, if this frame came in from the left.
    fn rehearse(&mut self, frame: &[u8]) -> ([Vec<Vec<u8>>; 2], Vec<&'static str>) {
        let before = format!("{:?}", self.counters());
        let mut burst = Burst::new();
        burst.push(self.packet(frame)).unwrap();
        let mut outputs = KeptOutputs::of(&self.forwarder).without(Forwarder::PUNT).without(Forwarder::HOLD);
        let counted = self.forwarder.rehearse(0, &mut burst, &mut outputs.outputs());
        let mut reasons = Vec::new();
        for source in counted.expect("the forwarder can rehearse") {
            source.read(&mut |entry| {
                reasons.extend(entry.reason.filter(|_| entry.value > 0).map(|reason| reason.name));
            });
        }
        assert_eq!(format!("{:?}", self.counters()), before);
        let frames = |port| {
            let burst = outputs.burst(Forwarder::FIRST_PORT + port);
            burst.iter().map(|packet| packet.segment_data().flatten().copied().collect()).collect()
        };
        ([0, 1].map(frames), reasons)
    }

    fn drops(&self) -> Vec<(&'static str, u64)> {
        self.counters().drops().iter().map(|(reason, count)| (reason.name, count)).collect()
    }

    /// Forwards one frame from the left; gives what left by either port, which is at most one frame. It was said before what would happen.
    pub(crate) fn one(&mut self, frame: &[u8]) -> Option<(u16, Vec<u8>)> {
        let rehearsed = self.rehearse(frame);
        let (before, limited) = (self.drops(), self.counters().errors_limited());
        self.receive(0, &[frame.to_vec()]);
        if limited == self.counters().errors_limited() {
            let grown = self.drops().into_iter().zip(before).filter(|(now, before)| now != before);
            assert_eq!((&self.sent, grown.map(|((name, _), _)| name).collect()), (&rehearsed.0, rehearsed.1));
        }
        let [left, right] = std::mem::take(&mut self.sent);
        let all: Vec<_> = left.into_iter().map(|f| (0, f)).chain(right.into_iter().map(|f| (1, f))).collect();
        assert!(all.len() <= 1, "{all:?}");
        all.into_iter().next()
    }

    /// Forwards one frame, which must be dropped for this reason; gives the error that was sent back, if any.
    pub(crate) fn dropped(&mut self, frame: &[u8], reason: Reason) -> Option<Vec<u8>> {
        let before = (self.counters().drops().get(reason), self.counters().drops().total());
        let sent = self.one(frame);
        let after = (self.counters().drops().get(reason), self.counters().drops().total());
        let names: Vec<_> =
            self.counters().drops().iter().filter(|(_, n)| *n > 0).map(|(r, _)| r.name).collect();
        assert_eq!((before.0 + 1, before.1 + 1), after, "{reason:?} expected; counted so far: {names:?}");
        sent.map(|(port, frame)| {
            assert_eq!(port, 0);
            frame
        })
    }
}

/// From the host on the left, with the MAC addresses that it needs.
pub(crate) fn to_router<'a>() -> Frame<'a> {
    Frame::new().ethernet(LEFT, HOST)
}

pub(crate) fn ipv4(destination: &str) -> Ipv4Fields<'static> {
    Ipv4Fields::new([192, 0, 2, 10].into(), destination.parse().unwrap())
}

pub(crate) fn ipv6(destination: &str) -> Ipv6Fields<'static> {
    Ipv6Fields::new("2001:db8:1::10".parse().unwrap(), destination.parse().unwrap())
}

pub(crate) fn udp4(fields: Ipv4Fields<'_>, payload: &[u8]) -> Vec<u8> {
    to_router().ipv4(fields).udp(1111, 2222).payload(payload).to_vec().unwrap()
}

pub(crate) fn udp6(fields: Ipv6Fields<'_>, payload: &[u8]) -> Vec<u8> {
    to_router().ipv6(fields).udp(1111, 2222).payload(payload).to_vec().unwrap()
}

/// Sets the IPv4 header checksum of an untagged frame right again after a change.
pub(crate) fn fix_checksum(frame: &mut [u8]) {
    let end = 14 + usize::from(frame[14] & 0x0f) * 4;
    frame[24..26].fill(0);
    let checksum = warmlane_wire::checksum::checksum(&frame[14..end]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
}
