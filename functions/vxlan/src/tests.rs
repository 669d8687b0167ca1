//! The gateway on packets of a pool, without ports.

use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;
use warmlane_forward::control::TunnelProtocol;
use warmlane_forward::control::config::{IcmpLimits, OverlayConfig};
use warmlane_lane::{KeptOutputs, ProbeConfig, ProbeReader, Stage as _};
use warmlane_mem::{Burst, Packet, Pool, PoolConfig, Vlan, VlanTci};
use warmlane_wire::{
    EtherType, Flow, Frame, IpProtocol, Ipv4Fields, Ipv6Fields, MacAddress, VlanTag, ipv4, ipv6, udp, vxlan,
};

use crate::{Gateway, PortFacts, Reason, VxlanCountersView};

mod configured;
mod geneve;
mod groups;
mod inner;
mod left;
mod packets;
mod plain;
mod rehearsed;
mod shown;
mod suppression;
mod too_long;

const US: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xee]);
const A: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xa]);
const B: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xb]);
const VNI: u32 = 0x12_3456;

/// Port 0 leads to the tunnel ends; port 1 and VLAN 7 of port 2 are bridged.
struct Bench {
    pool: Pool,
    gateway: Gateway,
    counters: VxlanCountersView,
    outputs: KeptOutputs,
    /// Who captures what is dropped.
    drops: ProbeReader,
    burst: Burst,
}

pub(crate) fn network(ipv6: bool) -> OverlayConfig {
    let address = |number: u8| -> IpAddr {
        if ipv6 {
            IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(number)])
        } else {
            IpAddr::from([192, 0, 2, number])
        }
    };
    OverlayConfig {
        protocol: TunnelProtocol::Vxlan,
        identifier: VNI,
        local: address(1),
        remotes: vec![address(2), address(3)],
        group: None,
        access: vec![(1, None), (2, Some(7))],
        stations: Vec::new(),
        udp_port: vxlan::PORT,
        mtu: 1450,
        ttl: 64,
        udp_checksum: true,
        inner_checksums: false,
        neighbour_suppression: false,
        hosts: Vec::new(),
        age_seconds: 300,
    }
}

impl Bench {
    /// Without a limit to its errors.
    fn new(network: OverlayConfig) -> Self {
        Self::with_limits(network, IcmpLimits { rate: u32::MAX, burst: 1 })
    }

    fn with_limits(network: OverlayConfig, limits: IcmpLimits) -> Self {
        let pool = Pool::new(&PoolConfig { buffers: 256, ..PoolConfig::default() }).unwrap();
        let facts = PortFacts { mac: Some(US), mtu: 1500 };
        let gateway = Gateway::new(vec![network], vec![facts; 3], pool.clone(), limits);
        let counters = gateway.counters_view();
        let mut outputs = KeptOutputs::of(&gateway);
        let drops = outputs.watch_drops(ProbeConfig::default()).unwrap();
        Self { pool, gateway, counters, outputs, drops, burst: Burst::new() }
    }

    fn packet(&self, port: u16, frame: &[u8]) -> Packet {
        let mut packet = self.pool.take().unwrap();
        packet.fill(frame).unwrap();
        packet.set_port(port);
        packet
    }

    /// One frame from a port; what it became: for the forwarder, and by each output.
    fn pass(&mut self, port: u16, frame: &[u8]) -> [Vec<Vec<u8>>; 4] {
        let packet = self.packet(port, frame);
        self.pass_packet(packet)
    }

    fn pass_packet(&mut self, packet: Packet) -> [Vec<Vec<u8>>; 4] {
        self.burst.clear();
        self.outputs.clear();
        let rehearsed = self.rehearse(&packet);
        let before = rehearsed::counted(&self.gateway.counters());
        let came: Vec<u8> = packet.segment_data().flatten().copied().collect();
        self.burst.push(packet).unwrap();
        self.gateway.process(&mut self.burst, &mut self.outputs.outputs());
        assert_eq!(self.counters.balance(), 0);
        let outcome = self.outcome(&before);
        self.check_shown(&came, &outcome);
        // A rehearsal has the limit's whole burst.
        if !outcome.is_limited() {
            assert_eq!(rehearsed, outcome);
        }
        let bytes = |burst: &Burst| burst.iter().map(|packet| packet.data().to_vec()).collect();
        [
            bytes(&self.burst),
            bytes(self.outputs.burst(0)),
            bytes(self.outputs.burst(1)),
            bytes(self.outputs.burst(2)),
        ]
    }

    fn dropped(&self, reason: Reason) -> u64 {
        self.counters.drops().get(reason)
    }
}

fn inner(source: MacAddress, destination: MacAddress, class: u8, data: &[u8]) -> Vec<u8> {
    let fields = Ipv4Fields {
        traffic_class: class,
        ..Ipv4Fields::new(Ipv4Addr::new(10, 0, 0, source.0[5]), Ipv4Addr::new(10, 0, 0, destination.0[5]))
    };
    Frame::new().ethernet(destination, source).ipv4(fields).udp(1000, 2000).payload(data).to_vec().unwrap()
}

/// A frame in a tunnel, from the remote end with this number.
fn tunnelled(remote: u8, vni: u32, class: u8, frame: &[u8]) -> Vec<u8> {
    let fields = Ipv4Fields {
        traffic_class: class,
        ..Ipv4Fields::new(Ipv4Addr::new(192, 0, 2, remote), Ipv4Addr::new(192, 0, 2, 1))
    };
    let data = [&vxlan::header(vni)[..], frame].concat();
    Frame::new()
        .ethernet(US, MacAddress([2, 9, 9, 9, 9, remote]))
        .ipv4(fields)
        .udp(50_000, vxlan::PORT)
        .payload(&data)
        .to_vec()
        .unwrap()
}

/// The headers around are right; what is inside.
fn unwrapped(packet: &[u8], ipv6: bool) -> (IpAddr, u8, u16, Vec<u8>) {
    assert_eq!(packet[..6], US.0);
    let (destination, class, datagram, addresses) = if ipv6 {
        let ip = ipv6::check(&packet[14..]).unwrap();
        let (source, destination) = (ip.header.source(), ip.header.destination());
        let addresses = warmlane_wire::Addresses::V6 { source, destination };
        (destination.into(), ip.header.traffic_class(), ip.payload, addresses)
    } else {
        let ip = ipv4::check(&packet[14..]).unwrap();
        assert!(ip.header.dont_fragment());
        let (source, destination) = (ip.header.source(), ip.header.destination());
        let addresses = warmlane_wire::Addresses::V4 { source, destination };
        (destination.into(), packet[15], ip.payload, addresses)
    };
    let (header, data) = udp::check(addresses, datagram).unwrap();
    assert_eq!(header.destination_port(), vxlan::PORT);
    assert!(header.source_port() >= 0xc000);
    let (identifier, frame) = vxlan::parse(data).unwrap();
    assert_eq!(identifier, VNI);
    (destination, class, header.source_port(), frame.to_vec())
}

#[test]
fn frames_to_all_go_to_everybody_else() {
    for ipv6 in [false, true] {
        let mut bench = Bench::new(network(ipv6));
        let frame = inner(A, MacAddress::BROADCAST, 0, b"to all");
        let [underlay, nothing, back, vlan] = bench.pass(1, &frame);
        assert!(nothing.is_empty() && back.is_empty());
        assert_eq!(vlan, [[&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat()]);
        let to: Vec<IpAddr> = underlay
            .iter()
            .map(|packet| {
                let (to, _, _, inside) = unwrapped(packet, ipv6);
                assert_eq!(inside, frame);
                to
            })
            .collect();
        assert_eq!(to, network(ipv6).remotes);
        assert_eq!((bench.counters.flooded(), bench.counters.copied(), bench.counters.learned()), (1, 2, 1));
    }
}

#[test]
fn stations_are_found_where_they_were_seen_last() {
    let mut bench = Bench::new(network(false));
    bench.pass(1, &inner(A, MacAddress::BROADCAST, 0, b""));
    let answer = inner(B, A, 0, b"answer");
    let [underlay, _, access, vlan] = bench.pass(0, &tunnelled(3, VNI, 0, &answer));
    assert_eq!((underlay.len(), access, vlan.len()), (0, vec![answer], 0));
    let question = inner(A, B, 0, b"question");
    let [underlay, ..] = bench.pass(1, &question);
    assert_eq!(underlay.len(), 1);
    assert_eq!(unwrapped(&underlay[0], false).0, network(false).remotes[1]);
    // It moves behind another tunnel end.
    bench.pass(0, &tunnelled(2, VNI, 0, &inner(B, A, 0, b"")));
    assert_eq!(bench.counters.moved(), 1);
    let [underlay, ..] = bench.pass(1, &question);
    assert_eq!(unwrapped(&underlay[0], false).0, network(false).remotes[0]);
    // And to an access of ours, tagged beside the frame.
    let mut packet = bench.packet(2, &inner(B, A, 0, b""));
    packet.set_vlan(Vlan::Stripped(VlanTci { control: 7, is_service: false }));
    let [_, _, access, _] = bench.pass_packet(packet);
    assert_eq!(access.len(), 1);
    let [underlay, _, _, vlan] = bench.pass(1, &question);
    assert_eq!((underlay.len(), vlan.len()), (0, 1));
}

#[test]
fn static_stations_need_not_be_seen() {
    let mut bench = Bench::new(OverlayConfig { stations: vec![(B, 1)], ..network(false) });
    let [underlay, ..] = bench.pass(1, &inner(A, B, 0, b""));
    assert_eq!(underlay.len(), 1);
    assert_eq!(unwrapped(&underlay[0], false).0, network(false).remotes[1]);
}

#[test]
fn from_tunnel_to_tunnel_nothing_goes() {
    let mut bench = Bench::new(network(false));
    let [underlay, _, access, vlan] =
        bench.pass(0, &tunnelled(2, VNI, 0, &inner(A, MacAddress::BROADCAST, 0, b"")));
    assert_eq!((underlay.len(), access.len(), vlan.len()), (0, 1, 1));
    bench.pass(0, &tunnelled(3, VNI, 0, &inner(B, A, 0, b"")));
    assert_eq!(bench.dropped(Reason::SplitHorizon), 1);
    bench.pass(1, &inner(US, B, 0, b""));
    bench.pass(1, &inner(MacAddress([2; 6]), US, 0, b""));
    assert_eq!(bench.dropped(Reason::SamePort), 1);
}

#[test]
fn congestion_and_class_are_carried_over() {
    let mut bench = Bench::new(network(false));
    for class in [0, 0x2e << 2, 0xb9, 0x03, 0x02] {
        let [underlay, ..] = bench.pass(1, &inner(A, B, class, b""));
        assert_eq!(unwrapped(&underlay[0], false).1, class);
    }
    // RFC 6040 figure 4: inside, outside, and what comes of it.
    for (inside, outside, expected) in [
        (0, 0, Some(0)),
        (0, 1, Some(0)),
        (0, 2, Some(0)),
        (0, 3, None),
        (2, 0, Some(2)),
        (2, 1, Some(1)),
        (2, 2, Some(2)),
        (2, 3, Some(3)),
        (1, 0, Some(1)),
        (1, 1, Some(1)),
        (1, 2, Some(1)),
        (1, 3, Some(3)),
        (3, 0, Some(3)),
        (3, 1, Some(3)),
        (3, 2, Some(3)),
        (3, 3, Some(3)),
    ] {
        let before = bench.dropped(Reason::CongestionNotCapable);
        let [_, _, access, _] = bench.pass(0, &tunnelled(2, VNI, outside, &inner(B, A, 0xb8 | inside, b"x")));
        assert_eq!(
            access.first().map(|frame| frame[15]),
            expected.map(|ecn: u8| 0xb8 | ecn),
            "{inside} {outside}"
        );
        assert!(access.iter().all(|frame| ipv4::check(&frame[14..]).is_ok()));
        assert_eq!(bench.dropped(Reason::CongestionNotCapable) - before, u64::from(expected.is_none()));
    }
}

#[test]
fn what_is_broken_is_dropped_by_name() {
    let mut bench = Bench::new(network(false));
    let frame = inner(B, MacAddress::BROADCAST, 0, b"frame");
    let right = tunnelled(2, VNI, 0, &frame);
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut packet = right.clone();
        change(&mut packet);
        packet
    };
    let no_checksum = |packet: &mut Vec<u8>| packet[40..42].fill(0);
    let inside = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = frame.clone();
        change(&mut frame);
        tunnelled(2, VNI, 0, &frame)
    };
    let cases = [
        (with(&|packet| packet[60] ^= 1), Reason::OuterChecksum),
        (with(&|packet| packet[38..40].copy_from_slice(&29_u16.to_be_bytes())), Reason::OuterLength),
        (with(&|packet| packet[38..40].copy_from_slice(&200_u16.to_be_bytes())), Reason::OuterLength),
        (
            with(&|packet| {
                no_checksum(packet);
                packet[42] = 0;
            }),
            Reason::NoIdentifier,
        ),
        (tunnelled(2, VNI + 1, 0, &frame), Reason::UnknownNetwork),
        (tunnelled(9, VNI, 0, &frame), Reason::UnknownRemote),
        (tunnelled(1, VNI, 0, &frame), Reason::Recursion),
        (inside(&|frame| frame[24] ^= 1), Reason::InnerChecksum),
        (inside(&|frame| frame[16] = 9), Reason::InnerLength),
        (inside(&|frame| frame[14] = 0x44), Reason::InnerLength),
        (inside(&|frame| frame[12..14].copy_from_slice(&[0x81, 0])), Reason::InnerTag),
        (inside(&|frame| frame[6] = 3), Reason::BadSource),
        (inside(&|frame| frame[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 2])), Reason::LinkLocal),
    ];
    for (packet, reason) in cases {
        let before = bench.dropped(reason);
        let [underlay, _, access, vlan] = bench.pass(0, &packet);
        assert!(underlay.is_empty() && access.is_empty() && vlan.is_empty(), "{reason:?}");
        assert_eq!(bench.dropped(reason) - before, 1, "{reason:?}");
    }
    // Without a checksum it is taken.
    assert_eq!(bench.pass(0, &with(&no_checksum))[2], std::slice::from_ref(&frame));
    // And padding behind the IP packet is no part of the frame.
    assert_eq!(bench.pass(0, &[&right[..], &[0; 9]].concat())[2], [frame]);
}

/// As RFC 7348 section 4.3 allows; and what others send in fragments is no business of a tunnel end.
#[test]
fn fragments_are_dropped_by_name() {
    for version in [4, 6] {
        let mut bench = Bench::new(network(version == 6));
        let mut pass = |remote: u8, first: bool| {
            let data = [0; 8];
            let frame = Frame::new().ethernet(US, MacAddress([2, 9, 9, 9, 9, remote]));
            let frame = if version == 6 {
                let address =
                    |number: u8| network(true).remotes[0].to_string().replace("::2", &format!("::{number}"));
                let [source, destination] = [remote, 1].map(|number| address(number).parse().unwrap());
                let offset = if first { 1 } else { 8 };
                let fragment = [&[17, 0, 0, offset, 1, 2, 3, 4][..], &data].concat();
                frame
                    .ipv6(Ipv6Fields::new(source, destination))
                    .protocol(IpProtocol::FRAGMENT)
                    .payload(&fragment)
                    .to_vec()
            } else {
                let addresses = Ipv4Fields::new([192, 0, 2, remote].into(), [192, 0, 2, 1].into());
                let fields = Ipv4Fields {
                    more_fragments: first,
                    fragment_offset: if first { 0 } else { 8 },
                    ..addresses
                };
                frame.ipv4(fields).protocol(IpProtocol::UDP).payload(&data).to_vec()
            };
            bench.pass(0, &frame.unwrap())[0].len()
        };
        assert_eq!([pass(2, true), pass(3, false), pass(9, true)], [0, 0, 1], "IPv{version}");
        assert_eq!((bench.dropped(Reason::Fragment), bench.counters.from_tunnels()), (2, 2));
    }
}

#[test]
fn what_is_not_ours_passes() {
    let mut bench = Bench::new(network(false));
    let frame = inner(B, A, 0, b"");
    let other_port =
        Frame::new().ethernet(US, B).ipv4(Ipv4Fields::new([192, 0, 2, 2].into(), [192, 0, 2, 1].into()));
    let other_mac = {
        let mut packet = tunnelled(2, VNI, 0, &frame);
        packet[5] ^= 1;
        packet
    };
    for (port, bytes) in [
        (0, frame.clone()),
        (2, frame),
        (0, other_port.udp(1, 53).to_vec().unwrap()),
        (0, other_mac),
        (1, vec![1; 5]),
    ] {
        let [passed, ..] = bench.pass(port, &bytes);
        if port == 1 { assert!(passed.is_empty()) } else { assert_eq!(passed, [bytes]) }
    }
    assert_eq!((bench.counters.from_access(), bench.counters.from_tunnels()), (1, 0));
    assert_eq!(bench.dropped(Reason::BadSource), 1);
    let own = Frame::new().ethernet(B, A).ipv4(Ipv4Fields::new([192, 0, 2, 1].into(), [192, 0, 2, 2].into()));
    bench.pass(1, &own.udp(50_000, vxlan::PORT).to_vec().unwrap());
    assert_eq!(bench.dropped(Reason::Recursion), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What one gateway encapsulates, another unpacks to the same bytes.
    #[test]
    fn there_and_back_is_the_same_frame(
        data in prop::collection::vec(any::<u8>(), 0..1300), v6_inside: bool, v6: bool, checksum: bool, class: u8, chained: bool,
    ) {
        let link = Frame::new().ethernet(MacAddress::BROADCAST, A);
        let frame = if v6_inside {
            let fields = Ipv6Fields { traffic_class: class, ..Ipv6Fields::new(1.into(), 2.into()) };
            link.ipv6(fields).udp(7, 9).payload(&data).to_vec().unwrap()
        } else {
            inner(A, MacAddress::BROADCAST, class, &data)
        };
        let mut near = Bench::new(OverlayConfig { udp_checksum: checksum, ..network(v6) });
        let mut packet = near.packet(1, &frame[..42]);
        let rest = near.packet(1, &frame[42..]);
        if chained && frame.len() > 42 { packet.chain(rest).unwrap(); } else { packet.fill(&frame).unwrap(); packet.set_port(1); }
        near.burst.push(packet).unwrap();
        near.gateway.process(&mut near.burst, &mut near.outputs.outputs());
        let mut bytes = vec![0; near.burst[0].packet_length()];
        near.burst[0].copy_to(&mut bytes);
        let far_end = network(v6);
        let (local, remote) = (far_end.remotes[0], far_end.local);
        let mut far = Bench::new(OverlayConfig { local, remotes: vec![remote], ..far_end });
        let [_, _, access, _] = far.pass(0, &bytes);
        prop_assert_eq!(access, [frame]);
    }

    #[test]
    fn any_bytes_are_taken_passed_or_dropped(
        port in 0_u16..4, bytes in prop::collection::vec(any::<u8>(), 0..120), at in 0_usize..110, tunnel: bool,
    ) {
        let mut bench = Bench::new(network(false));
        let mut packet = if tunnel { tunnelled(2, VNI, 0, &inner(B, A, 0, b"some data in it")) } else { bytes.clone() };
        for (to, byte) in packet.iter_mut().skip(at).zip(bytes.iter().take(3)) {
            *to = *byte;
        }
        bench.pass(port, &packet);
    }

    #[test]
    fn a_flow_has_one_source_port(a: [u8; 8], b: [u8; 8]) {
        let mut bench = Bench::new(network(false));
        let ports: Vec<u16> = [&a[..], &b[..]].iter().map(|data| {
            let [underlay, ..] = bench.pass(1, &inner(A, B, 0, data));
            unwrapped(&underlay[0], false).2
        }).collect();
        prop_assert_eq!(ports[0], ports[1]);
        prop_assert!(Flow::of_frame(&inner(A, B, 0, &a)).is_ok());
    }
}

#[test]
fn tags_of_other_vlans_pass() {
    let mut bench = Bench::new(network(false));
    let tagged = |id| {
        Frame::new()
            .ethernet(B, A)
            .vlan(VlanTag::customer(id))
            .ethertype(EtherType::ARP)
            .payload(&[0; 28])
            .to_vec()
            .unwrap()
    };
    assert_eq!(bench.pass(2, &tagged(8))[0].len(), 1);
    assert_eq!(bench.pass(1, &tagged(7))[0].len(), 1);
    let [underlay, _, access, _] = bench.pass(2, &tagged(7));
    assert_eq!((underlay.len(), access.len()), (2, 1));
    assert_eq!(access[0][12..14], [0x08, 0x06]);
}
