//! Questions for addresses of known hosts are answered, and no others.

use std::net::Ipv6Addr;

use warmlane_wire::arp::ArpPacket;
use warmlane_wire::neighbour::{self, NeighbourMessage};

use super::*;
use crate::hosts::{Hosts, LONGEST_ANSWER, hear};
use crate::stations::Station;

const ROUTER: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xcc]);

fn bench() -> Bench {
    Bench::new(OverlayConfig { neighbour_suppression: true, ..network(false) })
}

fn ip(host: u8) -> Ipv4Addr {
    [10, 0, 0, host].into()
}

fn ipv6(host: u16) -> Ipv6Addr {
    [0x2001, 0xdb8, 9, 0, 0, 0, 0, host].into()
}

fn arp(to: MacAddress, from: MacAddress, packet: ArpPacket) -> Vec<u8> {
    Frame::new().ethernet(to, from).arp(packet).to_vec().unwrap()
}

fn request(from: MacAddress, sender: u8, target: u8) -> Vec<u8> {
    arp(MacAddress::BROADCAST, from, ArpPacket::request(from, ip(sender), ip(target)))
}

fn neighbour(
    to: MacAddress,
    from: MacAddress,
    ends: (Ipv6Addr, Ipv6Addr),
    message: NeighbourMessage,
) -> Vec<u8> {
    let fields = Ipv6Fields { hop_limit: neighbour::HOP_LIMIT, ..Ipv6Fields::new(ends.0, ends.1) };
    Frame::new().ethernet(to, from).ipv6(fields).neighbour(message).to_vec().unwrap()
}

fn solicitation(source: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let group = neighbour::solicited_node(target);
    let [.., x, y, z] = group.octets();
    let source_link_layer = (!source.is_unspecified()).then_some(A);
    let message = NeighbourMessage::Solicitation { target, source_link_layer };
    neighbour(MacAddress([0x33, 0x33, 0xff, x, y, z]), A, (source, group), message)
}

fn advertisement(from: MacAddress, target: Ipv6Addr, router: bool) -> Vec<u8> {
    let message = NeighbourMessage::Advertisement {
        target,
        target_link_layer: Some(from),
        router,
        solicited: true,
        replace: true,
    };
    neighbour(A, from, (target, ipv6(1)), message)
}

/// What a tunnel end brings.
fn tunnelled(frame: &[u8]) -> Vec<u8> {
    let data = [&vxlan::header(VNI)[..], frame].concat();
    let link = Frame::new().ethernet(US, MacAddress([2, 0, 0, 0, 9, 9]));
    let ip = link.ipv4(Ipv4Fields::new([192, 0, 2, 2].into(), [192, 0, 2, 1].into()));
    ip.udp(50_000, vxlan::PORT).payload(&data).to_vec().unwrap()
}

/// Nothing but this came out, by the access on port 1.
#[track_caller]
fn assert_answer(came: [Vec<Vec<u8>>; 4], wanted: &[u8]) {
    let [forwarder, zero, one, two] = came;
    assert_eq!((forwarder.len(), zero.len(), one.len(), two.len()), (0, 0, 1, 0));
    assert_eq!(one[0], wanted);
}

/// It went to the other access and to both tunnel ends.
#[track_caller]
fn assert_flooded(came: &[Vec<Vec<u8>>; 4]) {
    assert_eq!((came[0].len(), came[2].len(), came[3].len()), (2, 0, 1));
}

#[test]
fn a_host_behind_a_tunnel_is_asked_for_once() {
    let mut bench = bench();
    assert_flooded(&bench.pass(1, &request(A, 1, 2)));
    let reply = ArpPacket::request(A, ip(1), ip(2)).reply(B);
    bench.pass(0, &tunnelled(&arp(A, B, reply)));
    let answer = arp(A, B, reply);
    assert_answer(bench.pass(1, &request(A, 1, 2)), &answer);
    // Who asks for nobody's address, or its own, is heard by all.
    assert_flooded(&bench.pass(1, &request(A, 1, 3)));
    assert_flooded(&bench.pass(1, &request(A, 1, 1)));
    // A host that looks whether its address is taken learns that it is (RFC 5227).
    let probe = ArpPacket::request(A, Ipv4Addr::UNSPECIFIED, ip(2));
    assert_answer(bench.pass(1, &arp(MacAddress::BROADCAST, A, probe)), &arp(A, B, probe.reply(B)));
    assert_eq!(bench.counters.suppressed(), 2);
    // One that is asked straight, as hosts do now and then, answers itself.
    let unicast = arp(B, A, ArpPacket::request(A, ip(1), ip(2)));
    assert_eq!(bench.pass(1, &unicast)[0].len(), 1);
    // In a VLAN the answer has its tag.
    let tagged = Frame::new().ethernet(MacAddress::BROADCAST, ROUTER).vlan(VlanTag::customer(7));
    let tagged = tagged.arp(ArpPacket::request(ROUTER, ip(9), ip(2))).to_vec().unwrap();
    // The first one tells the others where its sender is.
    assert_eq!(bench.pass(2, &tagged)[0].len(), 2);
    let came = bench.pass(2, &tagged);
    assert_eq!((came[0].len(), came[2].len(), came[3].len()), (0, 0, 1));
    assert_eq!(came[3][0][12..16], [0x81, 0, 0, 7]);
}

#[test]
fn hosts_that_move_or_are_on_the_same_port_answer_themselves() {
    let mut bench = bench();
    let says = |from, host| ArpPacket::request(from, ip(host), ip(host));
    // A host on the port that asks.
    bench.pass(1, &arp(MacAddress::BROADCAST, B, says(B, 2)));
    assert_flooded(&bench.pass(1, &request(A, 1, 2)));
    // It moves behind a tunnel end, and its address to another one.
    bench.pass(0, &tunnelled(&arp(MacAddress::BROADCAST, B, says(B, 2))));
    let reply = |mac| ArpPacket::request(A, ip(1), ip(2)).reply(mac);
    assert_answer(bench.pass(1, &request(A, 1, 2)), &arp(A, B, reply(B)));
    bench.pass(0, &tunnelled(&arp(MacAddress::BROADCAST, ROUTER, says(ROUTER, 2))));
    assert_answer(bench.pass(1, &request(A, 1, 2)), &arp(A, ROUTER, reply(ROUTER)));
    // Nobody speaks for another one, and who is spoken for is asked again.
    bench.pass(0, &tunnelled(&arp(MacAddress::BROADCAST, B, says(ROUTER, 3))));
    assert_flooded(&bench.pass(1, &request(A, 1, 3)));
    let virtual_mac = MacAddress([0, 0, 0x5e, 0, 1, 9]);
    bench.pass(0, &tunnelled(&arp(MacAddress::BROADCAST, ROUTER, says(virtual_mac, 2))));
    assert_flooded(&bench.pass(1, &request(A, 1, 2)));
}

/// Other tunnel ends learn from nothing else where it is.
#[test]
fn a_host_that_has_moved_is_heard_by_all() {
    let mut bench = bench();
    let reply = ArpPacket::request(A, ip(1), ip(2)).reply(B);
    bench.pass(1, &request(A, 1, 3));
    bench.pass(0, &tunnelled(&arp(A, B, reply)));
    bench.pass(0, &tunnelled(&request(A, 1, 9)));
    // A was behind the tunnel end, and is back.
    assert_flooded(&bench.pass(1, &request(A, 1, 2)));
    assert_answer(bench.pass(1, &request(A, 1, 2)), &arp(A, B, reply));
    // Its address is another one now.
    assert_flooded(&bench.pass(1, &request(A, 7, 2)));
    assert_answer(bench.pass(1, &request(A, 7, 2)), &arp(A, B, ArpPacket::request(A, ip(7), ip(2)).reply(B)));
}

/// What is in another VLAN inside is none of ours.
#[test]
fn tags_inside_are_other_networks() {
    let mut bench = bench();
    let reply = ArpPacket::request(A, ip(1), ip(2)).reply(B);
    bench.pass(1, &request(A, 1, 3));
    bench.pass(0, &tunnelled(&arp(A, B, reply)));
    let inner = Frame::new().ethernet(MacAddress::BROADCAST, A).vlan(VlanTag::customer(10));
    let inner = inner.arp(ArpPacket::request(A, ip(1), ip(2))).to_vec().unwrap();
    bench.pass(1, &inner);
    assert_eq!(bench.counters.suppressed(), 0);
}

/// A host that has given up its address is not spoken for, though its frames still come.
#[test]
fn an_address_that_is_not_claimed_again_is_forgotten() {
    let host = (IpAddr::from(ip(2)), Station::from(B));
    let mut hosts = Hosts::new(&[(ip(9).into(), ROUTER)], 100);
    let claim = hear(&arp(A, B, ArpPacket::request(A, ip(1), ip(2)).reply(B))).unwrap();
    assert!(!hosts.learn(&claim, 10), "it is new");
    assert!(hosts.learn(&claim, 20), "it is known");
    assert_eq!(hosts.find(host.0, 120).map(|host| host.station), Some(host.1));
    assert_eq!(hosts.find(host.0, 121), None, "it was claimed at 20");
    assert!(hosts.find(ip(9).into(), 1_000_000).is_some());
}

/// What a proxy says (override flag not set) counts only where nothing else was said, and is not said louder than it was.
#[test]
fn a_proxy_does_not_displace_a_host() {
    let mut hosts = Hosts::new(&[], 100);
    let says = |from, replace| {
        let target = ipv6(2);
        let message = NeighbourMessage::Advertisement {
            target,
            target_link_layer: Some(from),
            router: false,
            solicited: false,
            replace,
        };
        hear(&neighbour(A, from, (target, ipv6(1)), message)).unwrap()
    };
    hosts.learn(&says(ROUTER, false), 1);
    hosts.learn(&says(B, true), 2);
    hosts.learn(&says(ROUTER, false), 3);
    assert_eq!(hosts.find(ipv6(2).into(), 4).map(|host| host.station), Some(Station::from(B)));
    let question = hear(&solicitation(ipv6(1), ipv6(2))).unwrap().asks.unwrap();
    let mut hosts = Hosts::new(&[], 100);
    hosts.learn(&says(ROUTER, false), 1);
    let mut answer = [0; LONGEST_ANSWER];
    question.answer(hosts.find(ipv6(2).into(), 1).unwrap(), &mut answer).unwrap();
    let packet = ipv6::check(&answer[14..]).unwrap();
    let message = NeighbourMessage::parse(packet.header, packet.payload).unwrap();
    assert!(matches!(message, NeighbourMessage::Advertisement { replace: false, .. }), "{message:?}");
}

#[test]
fn a_question_from_a_tunnel_end_goes_to_its_hosts() {
    let mut bench = bench();
    bench.pass(1, &arp(MacAddress::BROADCAST, A, ArpPacket::request(A, ip(1), ip(1))));
    let [_, _, one, two] = bench.pass(0, &tunnelled(&request(B, 2, 1)));
    assert_eq!((one.len(), two.len(), bench.counters.suppressed()), (1, 1, 0));
}

#[test]
fn neighbours_are_solicited_once() {
    let mut bench = bench();
    for (host, mac, is_router) in [(2, B, false), (0xcc, ROUTER, true)] {
        assert_flooded(&bench.pass(1, &solicitation(ipv6(1), ipv6(host))));
        bench.pass(0, &tunnelled(&advertisement(mac, ipv6(host), is_router)));
        let answer = advertisement(mac, ipv6(host), is_router);
        assert_answer(bench.pass(1, &solicitation(ipv6(1), ipv6(host))), &answer);
    }
    // Whoever looks whether the address is taken is told by all, as it has none yet.
    let [_, _, one, _] = bench.pass(1, &solicitation(Ipv6Addr::UNSPECIFIED, ipv6(2)));
    assert_eq!(one[0][..6], [0x33, 0x33, 0, 0, 0, 1]);
    let packet = ipv6::check(&one[0][14..]).unwrap();
    let message = NeighbourMessage::parse(packet.header, packet.payload).unwrap();
    assert!(matches!(message, NeighbourMessage::Advertisement { solicited: false, .. }), "{message:?}");
    assert_eq!(bench.counters.suppressed(), 3);
}

#[test]
fn known_hosts_need_not_say_anything() {
    let mut network = network(false);
    network.stations = vec![(B, 1)];
    network.hosts = vec![(ip(2).into(), B), (ipv6(2).into(), B)];
    network.neighbour_suppression = true;
    let mut bench = Bench::new(network);
    let reply = ArpPacket::request(A, ip(1), ip(2)).reply(B);
    assert_flooded(&bench.pass(1, &request(A, 1, 2)));
    assert_answer(bench.pass(1, &request(A, 1, 2)), &arp(A, B, reply));
    // Whatever others say.
    bench.pass(0, &tunnelled(&arp(MacAddress::BROADCAST, ROUTER, ArpPacket::request(ROUTER, ip(2), ip(2)))));
    assert_answer(bench.pass(1, &request(A, 1, 2)), &arp(A, B, reply));
    // It could be a router: who takes it for one is not told otherwise.
    assert_answer(bench.pass(1, &solicitation(ipv6(1), ipv6(2))), &advertisement(B, ipv6(2), true));
}

#[test]
fn without_suppression_all_are_asked() {
    let mut bench = Bench::new(network(false));
    let reply = ArpPacket::request(A, ip(1), ip(2)).reply(B);
    bench.pass(0, &tunnelled(&arp(A, B, reply)));
    assert_flooded(&bench.pass(1, &request(A, 1, 2)));
}

proptest! {
    #[test]
    fn any_question_is_survived(
        bytes in prop::collection::vec(any::<u8>(), 14..120), kind in 0..2_u8, operation in 0..3_u16,
    ) {
        let mut bytes = bytes;
        bytes[0] |= 1;
        bytes[6] &= 0xfe;
        let front: &[u8] = if kind == 0 { &[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, operation as u8] } else { &[0x86, 0xdd, 0x60] };
        for (place, byte) in bytes[12..].iter_mut().zip(front) {
            *place = *byte;
        }
        if kind == 1 && bytes.len() > 55 {
            bytes[20] = 58;
            bytes[21] = 255;
            bytes[54] = 135 + (operation % 2) as u8;
        }
        let mut bench = bench();
        bench.pass(1, &bytes);
        bench.pass(1, &bytes);
    }
}
