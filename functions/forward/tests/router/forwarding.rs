//! What goes through.

use crate::bench::{Bench, HOST, LEFT, NEXT, RIGHT, TAGGED, ipv4, ipv6, to_router, udp4, udp6};
use warmlane_mem::PoolConfig;
use warmlane_wire::{
    EtherType, Frame, IpProtocol, Ipv4Fields, Ipv6Fields, LinkLayer, VlanTag, ipv4 as v4, ipv6 as v6,
};

#[test]
fn ipv4_leaves_with_new_addresses_and_one_ttl_less() {
    let mut bench = Bench::new();
    let fields = Ipv4Fields { ttl: 9, ..ipv4("203.0.113.5") };
    let (port, frame) = bench.one(&udp4(fields, b"hello")).unwrap();
    let expected = Frame::new().ethernet(NEXT, RIGHT).ipv4(Ipv4Fields { ttl: 8, ..fields });
    assert_eq!(port, 1);
    assert_eq!(frame, expected.udp(1111, 2222).payload(b"hello").to_vec().unwrap());
    assert!(v4::check(&frame[14..]).is_ok());
    assert_eq!((bench.counters().forwarded(), bench.counters().sent()), (1, 1));
}

#[test]
fn ipv6_leaves_with_new_addresses_and_one_hop_less() {
    let mut bench = Bench::new();
    let fields = Ipv6Fields { hop_limit: 2, flow_label: 0x12345, ..ipv6("2001:db8:3::5") };
    let (port, frame) = bench.one(&udp6(fields, b"hello")).unwrap();
    let expected = Frame::new().ethernet(NEXT, RIGHT).ipv6(Ipv6Fields { hop_limit: 1, ..fields });
    assert_eq!((port, frame), (1, expected.udp(1111, 2222).payload(b"hello").to_vec().unwrap()));
}

#[test]
fn the_longest_prefix_wins_and_its_vlan_is_put_on() {
    let mut bench = Bench::new();
    for (destination, mac) in [("203.0.113.127", NEXT), ("203.0.113.128", TAGGED), ("198.51.100.2", NEXT)] {
        let (_, frame) = bench.one(&udp4(ipv4(destination), b"")).unwrap();
        let link = LinkLayer::parse(&frame).unwrap();
        assert_eq!((link.header.destination(), link.header.source()), (mac, RIGHT));
        assert_eq!(link.outer.map(VlanTag::id), (mac == TAGGED).then_some(7));
        assert_eq!(link.ethertype, EtherType::IPV4);
        assert_eq!(v4::check(link.payload).unwrap().header.ttl(), 63);
    }
}

#[test]
fn tags_are_taken_off() {
    let mut bench = Bench::new();
    let inner = VlanTag::customer(100);
    for tags in [&[inner][..], &[VlanTag::service(200), inner]] {
        for destination in ["203.0.113.5", "203.0.113.200"] {
            let frame = to_router().ipv4(ipv4(destination)).udp(1111, 2222).payload(b"tagged");
            let frame = tags.iter().fold(frame, |frame, tag| frame.vlan(*tag));
            let (_, tagged) = bench.one(&frame.to_vec().unwrap()).unwrap();
            let (_, plain) = bench.one(&udp4(ipv4(destination), b"tagged")).unwrap();
            assert_eq!(tagged, plain);
        }
        let frame = tags.iter().fold(to_router().ipv6(ipv6("2001:db8:3::5")), |frame, tag| frame.vlan(*tag));
        let (_, frame) = bench.one(&frame.udp(1, 2).to_vec().unwrap()).unwrap();
        assert_eq!(LinkLayer::parse(&frame).unwrap().ethertype, EtherType::IPV6);
    }
}

#[test]
fn options_and_padding_are_no_obstacle() {
    let mut bench = Bench::new();
    let fields = Ipv4Fields { options: &[148, 4, 0, 0, 7, 3, 4, 0], ..ipv4("203.0.113.5") };
    let (_, frame) = bench.one(&udp4(fields, b"options")).unwrap();
    let packet = v4::check(&frame[14..]).unwrap();
    assert_eq!((packet.options, packet.header.ttl()), (fields.options, 63));

    // Short frames keep their padding; behind long ones what isn't IP is cut off.
    let mut short = udp4(ipv4("203.0.113.5"), b"");
    short.resize(60, 0);
    assert_eq!(bench.one(&short).unwrap().1.len(), 60);
    let mut long = udp4(ipv4("203.0.113.5"), &[1; 100]);
    let length = long.len();
    long.extend([0xee; 30]);
    assert_eq!(bench.one(&long).unwrap().1.len(), length);
}

#[test]
fn chains_of_buffers_go_through_whole() {
    let pool = PoolConfig { buffers: 256, data_size: 256, ..PoolConfig::default() };
    let mut bench = Bench::with(crate::bench::CONFIG, &pool);
    for length in [200, 300, 600, 1300] {
        let payload: Vec<u8> = (0..length).map(|n: usize| n as u8).collect();
        let (_, frame) = bench.one(&udp4(ipv4("203.0.113.5"), &payload)).unwrap();
        assert_eq!(v4::check(&frame[14..]).unwrap().payload[8..], payload);
        let (_, frame) = bench.one(&udp6(ipv6("2001:db8:3::5"), &payload)).unwrap();
        assert_eq!(v6::check(&frame[14..]).unwrap().payload[8..], payload);
    }
}

#[test]
fn a_burst_keeps_its_order() {
    let mut bench = Bench::new();
    let mixed = |n: usize| match n % 4 {
        0 => udp4(ipv4("203.0.113.5"), &n.to_be_bytes()),
        1 => udp6(ipv6("2001:db8:3::5"), &n.to_be_bytes()),
        2 => udp4(ipv4("192.0.2.10"), &n.to_be_bytes()),
        _ => udp4(ipv4("203.0.113.200"), &n.to_be_bytes()),
    };
    bench.receive(0, &(0..200).map(mixed).collect::<Vec<_>>());
    let numbers = |sent: &[Vec<u8>]| -> Vec<usize> {
        sent.iter().map(|frame| usize::from_be_bytes(*frame.last_chunk().unwrap())).collect()
    };
    assert_eq!(numbers(&bench.sent[0]), (0..200).filter(|n| n % 4 == 2).collect::<Vec<_>>());
    assert_eq!(numbers(&bench.sent[1]), (0..200).filter(|n| n % 4 != 2).collect::<Vec<_>>());
    assert_eq!(bench.sent[0][0][..12], [HOST.0, LEFT.0].concat());
}

#[test]
fn each_packet_loses_one_hop_whatever_its_neighbours_in_the_burst_need() {
    for other in 0..16 {
        let mut bench = Bench::new();
        let frame = |number: u8| {
            let to = if number == other { "2001:db8:4::5" } else { "2001:db8:3::5" };
            udp6(Ipv6Fields { hop_limit: 20 + number, ..ipv6(to) }, &[number])
        };
        bench.receive(0, &(0..16).map(frame).collect::<Vec<_>>());
        let left = bench.sent[1].iter().map(|frame| (frame[21], frame[62])).collect::<Vec<_>>();
        let expected = (0..16).filter(|number| *number != other).map(|number| (19 + number, number));
        assert_eq!(left, expected.collect::<Vec<_>>());

        let frame = |number: u8| {
            let to = if number == other { "203.0.113.200" } else { "203.0.113.5" };
            udp4(Ipv4Fields { ttl: 20 + number, ..ipv4(to) }, &[number])
        };
        bench.sent[1].clear();
        bench.receive(0, &(0..16).map(frame).collect::<Vec<_>>());
        for (number, frame) in (0..).zip(&bench.sent[1]) {
            let link = LinkLayer::parse(frame).unwrap();
            assert_eq!(link.outer.is_some(), number == other);
            let packet = v4::check(link.payload).unwrap();
            assert_eq!((packet.header.ttl(), packet.payload[8]), (19 + number, number));
        }
        assert_eq!(bench.sent[1].len(), 16);
    }
}

#[test]
fn groups_spread_flows_by_weight_and_keep_each_together() {
    let mut bench = Bench::new();
    let flow = |n: u32, ttl| {
        let destination = std::net::Ipv4Addr::from_bits(0x6442_0000 + n % 250);
        let fields = Ipv4Fields { ttl, ..Ipv4Fields::new([192, 0, 2, 10].into(), destination) };
        to_router().ipv4(fields).udp(n as u16, 53).to_vec().unwrap()
    };
    let mut shares = [0, 0];
    for n in 0..4000 {
        let path = |frame: Vec<u8>| LinkLayer::parse(&frame).unwrap().header.destination() == NEXT;
        let first = path(bench.one(&flow(n, 60)).unwrap().1);
        assert_eq!(first, path(bench.one(&flow(n, 30)).unwrap().1));
        shares[usize::from(first)] += 1;
    }
    // Weights 3 to 1.
    assert!((2700..=3300).contains(&shares[1]), "{shares:?}");
}

#[test]
fn groups_take_options_tags_and_fragments_along() {
    let mut bench = Bench::new();
    let fields = Ipv4Fields { more_fragments: true, ..ipv4("100.66.0.1") };
    let first = to_router().ipv4(fields).protocol(IpProtocol::UDP).payload(&[1; 16]);
    let second = Ipv4Fields { more_fragments: false, fragment_offset: 16, ..fields };
    let second =
        to_router().vlan(VlanTag::customer(5)).ipv4(second).protocol(IpProtocol::UDP).payload(&[2; 16]);
    let mac = |frame: &[u8]| LinkLayer::parse(frame).unwrap().header.destination();
    let first = bench.one(&first.to_vec().unwrap()).unwrap().1;
    let second = bench.one(&second.to_vec().unwrap()).unwrap().1;
    assert_eq!(mac(&first), mac(&second));
}
