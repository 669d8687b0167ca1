//! VLANs and VRFs from the kernel's messages to the frames that leave, for kernels that have neither.
//!
//! The link information in the messages was recorded from a kernel (it is that of netlink-packet-route's tests:
//! `ip link add … type vlan id 101`, `ip link add … type vrf table 10`, `ip link set … master …`). VLAN and VRF devices
//! themselves are tested by `tests/router/devices.rs`.

use std::net::Ipv4Addr;
use std::sync::Arc;

use warmlane_forward::control::config::IcmpLimits;
use warmlane_forward::datapath::{Forwarder, mark_of_table};
use warmlane_lane::{KeptOutputs, Stage as _};
use warmlane_mem::{Burst, Pool, PoolConfig};
use warmlane_wire::checksum;

use super::desired::RoutedPort;
use super::fib::Fib;
use super::kernel::{
    Event, Neighbour, NeighbourState, Placement, Route, RouteKey, RoutePath, RuleAction, Target, View, decode,
};
use super::policy_tests::rule;
use super::warnings::not_followed;

const NEW_LINK: u16 = 16;

/// `IFLA_LINKINFO` of a VLAN: kind `vlan`, protocol 802.1Q, number 101, flags, priorities.
const VLAN_101: [u8; 80] = [
    0x50, 0x00, 0x12, 0x00, 0x09, 0x00, 0x01, 0x00, 0x76, 0x6c, 0x61, 0x6e, 0x00, 0x00, 0x00, 0x00, 0x40,
    0x00, 0x02, 0x00, 0x06, 0x00, 0x05, 0x00, 0x81, 0x00, 0x00, 0x00, 0x06, 0x00, 0x01, 0x00, 0x65, 0x00,
    0x00, 0x00, 0x0c, 0x00, 0x02, 0x00, 0x01, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0x10, 0x00, 0x04,
    0x00, 0x0c, 0x00, 0x01, 0x00, 0x06, 0x00, 0x00, 0x00, 0x07, 0x00, 0x00, 0x00, 0x10, 0x00, 0x03, 0x00,
    0x0c, 0x00, 0x01, 0x00, 0x04, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00,
];

/// The same of a VRF: kind `vrf`, table 10.
const VRF_10: [u8; 24] = [
    0x18, 0x00, 0x12, 0x00, 0x08, 0x00, 0x01, 0x00, 0x76, 0x72, 0x66, 0x00, 0x0c, 0x00, 0x02, 0x00, 0x08,
    0x00, 0x01, 0x00, 0x0a, 0x00, 0x00, 0x00,
];

/// The same of a veth that is a member of a VRF.
const VETH_IN_VRF_10: [u8; 36] = [
    0x24, 0x00, 0x12, 0x00, 0x09, 0x00, 0x01, 0x00, 0x76, 0x65, 0x74, 0x68, 0x00, 0x00, 0x00, 0x00, 0x08,
    0x00, 0x04, 0x00, 0x76, 0x72, 0x66, 0x00, 0x0c, 0x00, 0x05, 0x00, 0x08, 0x00, 0x01, 0x00, 0x0a, 0x00,
    0x00, 0x00,
];

/// The same of a bridge, as far as it says what it is.
const BRIDGE: [u8; 16] =
    [0x10, 0x00, 0x12, 0x00, 0x0b, 0x00, 0x01, 0x00, 0x62, 0x72, 0x69, 0x64, 0x67, 0x65, 0x00, 0x00];

/// Interfaces' numbers, and names.
const WEST: u32 = 35;
const EAST: u32 = 36;
const WEST_101: u32 = 34;
const VRF: u32 = 33;

/// A link as the kernel tells it (`struct ifinfomsg`, attributes).
fn link(index: u32, name: &str, master: Option<u32>, lower: Option<u32>, information: &[u8]) -> Event {
    let mut body = vec![0, 0, 1, 0];
    body.extend(index.to_ne_bytes());
    // IFF_UP, IFF_BROADCAST, IFF_RUNNING, IFF_MULTICAST, IFF_LOWER_UP.
    body.extend(0x0001_1043_u32.to_ne_bytes());
    body.extend([0; 4]);
    let mut attribute = |kind: u16, value: &[u8]| {
        body.extend((4 + value.len() as u16).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(value);
        body.resize(body.len().next_multiple_of(4), 0);
    };
    attribute(3, &[name.as_bytes(), &[0]].concat());
    attribute(4, &1500_u32.to_ne_bytes());
    attribute(1, &[2, 0, 0, 0, 0, index as u8]);
    if let Some(master) = master {
        attribute(10, &master.to_ne_bytes());
    }
    if let Some(lower) = lower {
        attribute(5, &lower.to_ne_bytes());
    }
    body.extend(information);
    decode(NEW_LINK, 0, &body).expect("a link")
}

fn route(table: u32, prefix: &str, link: u32, gateway: &str) -> Event {
    let key = RouteKey { table, prefix: prefix.parse().unwrap() };
    let path = RoutePath { link, gateway: Some(gateway.parse().unwrap()), weight: 1, is_dead: false };
    Event::Route(
        key,
        Route {
            metric: 0,
            tos: 0,
            source: None,
            protocol: 2,
            mtu: 0,
            target: Arc::new(Target::Paths(vec![path])),
        },
        Placement::Append,
    )
}

fn neighbour(link: u32, address: &str, last: u8) -> Event {
    let state = NeighbourState::Known([4, 0, 0, 0, 0, last]);
    Event::Neighbour(Neighbour { link, address: address.parse().unwrap(), state })
}

struct TestRouter {
    view: View,
    fib: Fib,
    forwarder: Forwarder,
    pool: Pool,
    outputs: KeptOutputs,
}

impl TestRouter {
    fn new(events: Vec<Event>) -> Self {
        let port = |link, name: &str| RoutedPort { name: name.to_owned(), link, mtu_limit: 1500 };
        let mut fib = Fib::new(vec![port(WEST, "w0"), port(EAST, "e0")], 1, 0).unwrap();
        let mut view = View::default();
        for event in events {
            view.apply(event);
        }
        let changes = view.take_changes();
        fib.update(&view, &changes).unwrap();
        let pool = Pool::new(&PoolConfig { buffers: 64, ..PoolConfig::default() }).unwrap();
        let lane = fib.lane("lane0").unwrap();
        let forwarder = Forwarder::new(lane, pool.clone(), IcmpLimits { rate: 0, burst: 0 });
        let outputs = KeptOutputs::of(&forwarder).without(Forwarder::HOLD);
        Self { view, fib, forwarder, pool, outputs }
    }

    fn apply(&mut self, event: Event) {
        self.view.apply(event);
        let changes = self.view.take_changes();
        self.fib.update(&self.view, &changes).unwrap();
    }

    /// What becomes of a packet that comes in by a port: the port it leaves by, the neighbour it goes to, its tag.
    fn send(&mut self, port: u16, tag: Option<u16>, to: [u8; 4]) -> Option<(usize, u8, Option<u16>)> {
        let index = [WEST, EAST][usize::from(port)] as u8;
        let mut frame = vec![2, 0, 0, 0, 0, index, 4, 0, 0, 0, 9, 9];
        if let Some(tag) = tag {
            frame.extend([0x81, 0]);
            frame.extend(tag.to_be_bytes());
        }
        frame.extend([8, 0]);
        let mut header = [0x45, 0, 0, 60, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 9, 0, 0, 0, 0];
        header[16..].copy_from_slice(&Ipv4Addr::from(to).octets());
        let sum = checksum::checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        frame.extend(header);
        frame.extend([0; 40]);
        let mut packet = self.pool.take().unwrap();
        packet.fill(&frame).unwrap();
        packet.set_port(port);
        let mut burst = Burst::new();
        burst.push(packet).unwrap();
        self.forwarder.poll(0, &mut Burst::new(), &mut self.outputs.outputs());
        self.forwarder.process(&mut burst, &mut self.outputs.outputs());
        assert_eq!(self.forwarder.view().balance(), 0);
        let (port, packet) = (0..2).find_map(|port| {
            let packet = self.outputs.burst(Forwarder::FIRST_PORT + port).pop()?;
            Some((port, packet))
        })?;
        let data = packet.data();
        let tag = (data[12..14] == [0x81, 0]).then(|| u16::from_be_bytes([data[14], data[15]]));
        Some((port, data[5], tag))
    }

    /// The marks and bytes of packets that were punted since the last time.
    fn punted(&mut self) -> Vec<(u32, Vec<u8>)> {
        let punted = self.outputs.burst(Forwarder::PUNT).drain();
        punted.map(|packet| (packet.mark(), packet.data().to_vec())).collect()
    }
}

const FAR: [u8; 4] = [203, 0, 113, 1];

/// Both ports, and a VLAN on the western one, each with a route and its neighbour.
fn ports_and_a_vlan() -> Vec<Event> {
    vec![
        link(WEST, "w0", None, None, &[]),
        link(EAST, "e0", None, None, &[]),
        link(WEST_101, "w0.101", None, Some(WEST), &VLAN_101),
        route(254, "203.0.113.0/24", WEST_101, "198.51.100.7"),
        route(254, "10.0.0.0/8", EAST, "192.0.2.7"),
        neighbour(WEST_101, "198.51.100.7", 7),
        neighbour(EAST, "192.0.2.7", 8),
    ]
}

#[test]
fn a_vlan_of_the_kernels_is_an_interface() {
    let mut router = TestRouter::new(ports_and_a_vlan());
    // Into the VLAN, out of it, and back into it.
    assert_eq!(router.send(1, None, FAR), Some((0, 7, Some(101))));
    assert_eq!(router.send(0, Some(101), [10, 0, 0, 1]), Some((1, 8, None)));
    assert_eq!(router.send(0, Some(101), FAR), Some((0, 7, Some(101))));
    // Others are the kernel's, on this port or on the other one.
    assert!(router.punted().is_empty());
    assert_eq!(router.send(0, Some(102), FAR), None);
    assert_eq!(router.send(1, Some(101), FAR), None);
    router.apply(Event::LinkGone(WEST_101));
    assert_eq!(router.send(0, Some(101), [10, 0, 0, 1]), None);
    let marks: Vec<_> = router.punted().iter().map(|(mark, _)| *mark).collect();
    assert_eq!(marks, [mark_of_table(None); 3]);
}

/// What comes in by a VLAN that is a member of a bridge is the bridge's, and what leaves by it leaves by the bridge.
#[test]
fn a_vlan_in_a_bridge_is_the_kernels() {
    let bridge = link(VRF, "br0", None, None, &BRIDGE);
    let mut router = TestRouter::new([vec![bridge], ports_and_a_vlan()].concat());
    assert_eq!(router.send(0, Some(101), [10, 0, 0, 1]), Some((1, 8, None)));
    // The kernel has both: such a VLAN's frames may come to the port's address, too.
    let warned = not_followed(&router.view, router.fib.ports());
    assert!(
        matches!(&warned[..], [one] if one.contains("w0.101 (vlan) has an Ethernet address of its own")),
        "{warned:?}"
    );
    router.apply(link(WEST_101, "w0.101", Some(VRF), Some(WEST), &VLAN_101));
    assert_eq!(router.send(0, Some(101), [10, 0, 0, 1]), None);
    assert_eq!(router.send(1, None, FAR), None);
    let marks: Vec<_> = router.punted().iter().map(|(mark, _)| *mark).collect();
    assert_eq!(marks, [None, Some(0)].map(mark_of_table));
    let warned = not_followed(&router.view, router.fib.ports());
    assert!(
        matches!(&warned[..], [one] if one.contains("w0.101") && one.contains("member of br0")),
        "{warned:?}"
    );
    // The port itself.
    router.apply(link(EAST, "e0", Some(VRF), None, &[]));
    assert_eq!(router.send(0, None, [10, 0, 0, 1]), None);
    let warned = not_followed(&router.view, router.fib.ports());
    assert!(warned.iter().any(|one| one.contains("e0 is a member of br0")), "{warned:?}");
    router.apply(link(EAST, "e0", None, None, &[]));
    router.apply(link(WEST_101, "w0.101", None, Some(WEST), &VLAN_101));
    assert_eq!(router.send(0, Some(101), [10, 0, 0, 1]), Some((1, 8, None)));
}

#[test]
fn a_vrf_of_the_kernels_has_a_table_of_its_own() {
    let mut router = TestRouter::new(vec![
        link(VRF, "red", None, None, &VRF_10),
        link(WEST, "w0", None, None, &[]),
        link(EAST, "e0", Some(VRF), None, &VETH_IN_VRF_10),
        link(WEST_101, "w0.101", Some(VRF), Some(WEST), &VLAN_101),
        Event::Rule(rule(0, RuleAction::Table(255))),
        Event::Rule(rule(1000, RuleAction::Vrf)),
        Event::Rule(rule(32_766, RuleAction::Table(254))),
        route(254, "203.0.113.0/24", WEST, "198.51.100.7"),
        route(10, "203.0.113.0/24", EAST, "192.0.2.7"),
        neighbour(WEST, "198.51.100.7", 7),
        neighbour(EAST, "192.0.2.7", 8),
    ]);
    assert_eq!(router.send(0, None, FAR), Some((0, 7, None)));
    // The same port, but the VLAN is a member.
    assert_eq!(router.send(0, Some(101), FAR), Some((1, 8, None)));
    assert_eq!(router.send(1, None, FAR), Some((1, 8, None)));
    // What the VRF has no route for is the kernel's, as it came in, and by a table that says so.
    assert!(router.punted().is_empty());
    assert_eq!(router.send(0, Some(101), [10, 0, 0, 1]), None);
    let (mark, frame) = router.punted().pop().unwrap();
    assert!(mark > mark_of_table(Some(0)));
    assert_eq!(frame[12..16], [0x81, 0, 0, 101]);
    // A member that leaves goes by the table of the others.
    router.apply(link(WEST_101, "w0.101", None, Some(WEST), &VLAN_101));
    assert_eq!(router.send(0, Some(101), FAR), Some((0, 7, None)));
}
