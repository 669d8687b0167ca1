//! Questions to the router, and their answers.

use std::net::Ipv6Addr;

use crate::bench::{Bench, HOST, LEFT, ipv4, ipv6, to_router, udp4, udp6};
use warmlane_forward::datapath::Reason;
use warmlane_wire::{
    ArpOperation, ArpPacket, EthernetHeader, Frame, Icmpv4Message, Icmpv6Message, Ipv6Fields, LinkLayer,
    MacAddress, NeighbourMessage, VlanTag, ipv4 as v4, ipv6 as v6, neighbour,
};

fn arp(target: [u8; 4]) -> ArpPacket {
    ArpPacket::request(HOST, [192, 0, 2, 10].into(), target.into())
}

#[test]
fn arp_requests_for_the_ports_address_are_answered() {
    let mut bench = Bench::new();
    let ask = |target| Frame::new().ethernet(MacAddress::BROADCAST, HOST).arp(arp(target)).padded(60);
    let (port, frame) = bench.one(&ask([192, 0, 2, 1]).to_vec().unwrap()).unwrap();
    let link = LinkLayer::parse(&frame).unwrap();
    assert_eq!((port, link.header.destination(), link.header.source()), (0, HOST, LEFT));
    let reply = ArpPacket::parse(link.payload).unwrap();
    assert_eq!((reply.operation, reply.sender_mac, reply.target_mac), (ArpOperation::Reply, LEFT, HOST));
    assert_eq!((reply.sender_ip, reply.target_ip), ([192, 0, 2, 1].into(), [192, 0, 2, 10].into()));

    let tagged = ask([192, 0, 2, 1]).vlan(VlanTag::customer(3)).to_vec().unwrap();
    let (_, frame) = bench.one(&tagged).unwrap();
    assert_eq!(LinkLayer::parse(&frame).unwrap().outer.map(VlanTag::id), Some(3));

    // Not for another's address, nor for ours on another port.
    for target in [[192, 0, 2, 2], [198, 51, 100, 1]] {
        bench.dropped(&ask(target).to_vec().unwrap(), Reason::NeighbourMessage);
    }
    let reply = to_router().arp(arp([192, 0, 2, 1]).reply(LEFT)).to_vec().unwrap();
    bench.dropped(&reply, Reason::NeighbourMessage);
    bench.dropped(&reply[..30], Reason::NeighbourMessage);
    assert_eq!(bench.counters().answered(), 2);
}

fn solicit(source: Ipv6Addr, target: Ipv6Addr, from: Option<MacAddress>) -> Vec<u8> {
    let group = neighbour::solicited_node(target);
    let fields = Ipv6Fields { hop_limit: 255, ..Ipv6Fields::new(source, group) };
    let message = NeighbourMessage::Solicitation { target, source_link_layer: from };
    let frame = Frame::new().ethernet(MacAddress::of_ipv6_multicast(group), HOST).ipv6(fields);
    frame.neighbour(message).to_vec().unwrap()
}

#[test]
fn neighbour_solicitations_for_the_ports_addresses_are_answered() {
    let mut bench = Bench::new();
    let host: Ipv6Addr = "2001:db8:1::10".parse().unwrap();
    for target in ["2001:db8:1::1", "fe80::1"] {
        let target: Ipv6Addr = target.parse().unwrap();
        for (source, link_layer) in [(host, Some(HOST)), (host, None), (Ipv6Addr::UNSPECIFIED, None)] {
            let (_, frame) = bench.one(&solicit(source, target, link_layer)).unwrap();
            let link = LinkLayer::parse(&frame).unwrap();
            let ip = v6::check(link.payload).unwrap();
            let nobody = source.is_unspecified();
            let to = if nobody { "ff02::1".parse().unwrap() } else { host };
            assert_eq!((ip.header.source(), ip.header.destination()), (target, to));
            let mac = if nobody { MacAddress([0x33, 0x33, 0, 0, 0, 1]) } else { HOST };
            assert_eq!(link.header.destination(), mac);
            let expected = NeighbourMessage::Advertisement {
                target,
                target_link_layer: Some(LEFT),
                router: true,
                solicited: !nobody,
                replace: true,
            };
            assert_eq!(NeighbourMessage::parse(ip.header, ip.payload), Ok(expected));
        }
    }
    let other = solicit(host, "2001:db8:1::77".parse().unwrap(), Some(HOST));
    bench.dropped(&other, Reason::NeighbourMessage);
    // Unicast, as a host does that checks whether we are still there.
    let fields = Ipv6Fields { hop_limit: 255, ..ipv6("2001:db8:1::1") };
    let message = NeighbourMessage::Solicitation { target: fields.destination, source_link_layer: None };
    assert!(bench.one(&to_router().ipv6(fields).neighbour(message).to_vec().unwrap()).is_some());
    // From beyond the link (RFC 4861 section 7.1.1): not a question, but a packet for us that says nothing.
    let far = Ipv6Fields { hop_limit: 254, ..fields };
    bench.dropped(&to_router().ipv6(far).neighbour(message).to_vec().unwrap(), Reason::NotHandledLocally);
}

#[test]
fn pings_to_any_of_our_addresses_come_back() {
    let mut bench = Bench::new();
    let ping = Icmpv4Message::EchoRequest { identifier: 5, sequence: 6 };
    // The longer ones are in several buffers, of odd lengths.
    let data = [7_u8; 8_901];
    for destination in ["192.0.2.1", "198.51.100.1"] {
        for (ttl, length) in [(1, 61), (64, 61), (64, 8_901)] {
            let data = &data[..length];
            let fields = warmlane_wire::Ipv4Fields { ttl, options: &[1, 1, 1, 0], ..ipv4(destination) };
            let frame = to_router().ipv4(fields).icmpv4(ping).payload(data).to_vec().unwrap();
            let (port, frame) = bench.one(&frame).unwrap();
            assert_eq!((port, EthernetHeader::parse(&frame).unwrap().0.destination()), (0, HOST));
            let ip = v4::check(&frame[14..]).unwrap();
            assert_eq!((ip.header.source(), ip.header.destination()), (fields.destination, fields.source));
            assert_eq!(ip.header.ttl(), 64);
            let reply = Icmpv4Message::EchoReply { identifier: 5, sequence: 6 };
            assert_eq!(Icmpv4Message::parse(ip.payload), Ok((reply, data)));
        }
    }
    let ping = Icmpv6Message::EchoRequest { identifier: 5, sequence: 6 };
    // The last is the anycast address of all routers on the link.
    for (destination, length) in
        [("2001:db8:1::1", 61), ("2001:db8:2::1", 8_901), ("fe80::1", 61), ("2001:db8:1::", 61)]
    {
        let data = &data[..length];
        let fields = Ipv6Fields { hop_limit: 1, ..ipv6(destination) };
        let frame = to_router().ipv6(fields).icmpv6(ping).payload(data).to_vec().unwrap();
        let (_, frame) = bench.one(&frame).unwrap();
        let ip = v6::check(&frame[14..]).unwrap();
        let (source, destination) = (ip.header.source(), ip.header.destination());
        assert_eq!((source, destination), (fields.destination, fields.source));
        let reply = Icmpv6Message::EchoReply { identifier: 5, sequence: 6 };
        assert_eq!(Icmpv6Message::parse(source, destination, ip.payload), Ok((reply, data)));
    }
}

#[test]
fn the_rest_that_is_for_us_is_not_handled() {
    let mut bench = Bench::new();
    assert!(bench.dropped(&udp4(ipv4("192.0.2.1"), b"dns?"), Reason::NotHandledLocally).is_none());
    assert!(bench.dropped(&udp6(ipv6("2001:db8:2::1"), b"dns?"), Reason::NotHandledLocally).is_none());
    let ping = Icmpv4Message::EchoRequest { identifier: 5, sequence: 6 };
    let mut broken = to_router().ipv4(ipv4("192.0.2.1")).icmpv4(ping).payload(&[1; 20]).to_vec().unwrap();
    broken[50] ^= 1;
    bench.dropped(&broken, Reason::NotHandledLocally);
    let long = to_router().ipv4(ipv4("192.0.2.1")).icmpv4(ping).payload(&[1; 8_900]).to_vec().unwrap();
    for place in [50, 8_000] {
        let mut broken = long.clone();
        broken[place] ^= 1;
        bench.dropped(&broken, Reason::NotHandledLocally);
    }
}
