//! Every reason to drop, reached by a frame that breaks only that rule, and the error that it causes.

use crate::bench::{Bench, HOST, LEFT, NEXT, TAGGED, fix_checksum, ipv4, ipv6, to_router, udp4, udp6};
use warmlane_forward::datapath::{Forwarder, Reason};
use warmlane_lane::{KeptOutputs, Stage as _};
use warmlane_mem::{Burst, PoolConfig};
use warmlane_wire::{
    EtherType, Frame, Icmpv4Message, Icmpv6Message, IpProtocol, Ipv4Fields, Ipv6Fields, LinkLayer,
    MacAddress, VlanTag, ipv4 as v4, ipv6 as v6,
};

#[test]
fn link_layer_rules() {
    let mut bench = Bench::new();
    let good = udp4(ipv4("203.0.113.5"), &[0; 30]);
    assert!(bench.dropped(&good[..13], Reason::Truncated).is_none());
    let tagged = to_router().vlan(VlanTag::customer(1)).ipv4(ipv4("203.0.113.5")).to_vec().unwrap();
    assert!(bench.dropped(&tagged[..17], Reason::Truncated).is_none());
    let mut other = good.clone();
    other[5] ^= 1;
    assert!(bench.dropped(&other, Reason::OtherHost).is_none());
    let mut unknown = good.clone();
    unknown[12..14].copy_from_slice(&[0x88, 0xcc]);
    assert!(bench.dropped(&unknown, Reason::UnknownEthertype).is_none());
    let mut third = to_router().vlan(VlanTag::service(1)).vlan(VlanTag::customer(2)).to_vec().unwrap();
    third[20..22].copy_from_slice(&EtherType::VLAN.0.to_be_bytes());
    assert!(bench.dropped(&third, Reason::TooManyTags).is_none());
    for group in [MacAddress::BROADCAST, MacAddress([1, 0, 0x5e, 0, 0, 1])] {
        let mut frame = good.clone();
        frame[..6].copy_from_slice(&group.0);
        assert!(bench.dropped(&frame, Reason::LinkLayerGroup).is_none());
        let mut frame = udp6(ipv6("2001:db8:3::1"), b"");
        frame[..6].copy_from_slice(&group.0);
        assert!(bench.dropped(&frame, Reason::LinkLayerGroup).is_none());
    }
    bench.receive(7, &[good]);
    assert_eq!(bench.counters().drops().get(Reason::UnknownPort), 1);
}

/// Checks that a frame with such a change is dropped for this reason, and that its sender isn't told.
fn assert_dropped(bench: &mut Bench, good: &[u8], change: impl Fn(&mut Vec<u8>), reason: Reason) {
    let mut frame = good.to_vec();
    change(&mut frame);
    assert!(bench.dropped(&frame, reason).is_none());
}

#[test]
fn ipv4_header_rules() {
    let mut bench = Bench::new();
    let good = udp4(ipv4("203.0.113.5"), &[0; 60]);
    assert!(bench.dropped(&good[..33], Reason::Ipv4Truncated).is_none());
    let mut broken = |change: &dyn Fn(&mut Vec<u8>), reason| {
        let fixed = |frame: &mut Vec<u8>| {
            change(frame);
            if reason != Reason::Ipv4Checksum {
                fix_checksum(frame);
            }
        };
        assert_dropped(&mut bench, &good, fixed, reason);
    };
    broken(&|frame| frame[14] = 0x55, Reason::Ipv4Version);
    broken(&|frame| frame[14] = 0x44, Reason::Ipv4HeaderLength);
    broken(&|frame| frame[16..18].copy_from_slice(&[0, 19]), Reason::Ipv4TotalLength);
    broken(&|frame| frame[17] += 1, Reason::Ipv4TotalLength);
    broken(&|frame| frame[25] ^= 1, Reason::Ipv4Checksum);
    broken(&|frame| frame[22] ^= 1, Reason::Ipv4Checksum);
    for source in [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [240, 0, 0, 1], [255; 4]] {
        broken(&|frame| frame[26..30].copy_from_slice(&source), Reason::Ipv4MartianSource);
    }
    for destination in [[0, 0, 0, 1], [127, 0, 0, 1], [240, 0, 0, 1]] {
        broken(&|frame| frame[30..34].copy_from_slice(&destination), Reason::Ipv4MartianDestination);
    }
    broken(&|frame| frame[30..34].fill(255), Reason::Ipv4Broadcast);
    broken(&|frame| frame[30..34].copy_from_slice(&[239, 1, 2, 3]), Reason::Ipv4Multicast);
    broken(&|frame| frame[26..30].copy_from_slice(&[169, 254, 2, 3]), Reason::Ipv4LinkLocal);
    broken(&|frame| frame[30..34].copy_from_slice(&[169, 254, 2, 3]), Reason::Ipv4LinkLocal);
    broken(&|frame| frame[30..34].copy_from_slice(&[198, 51, 100, 255]), Reason::Ipv4Broadcast);
    broken(&|frame| frame[30..34].copy_from_slice(&[198, 51, 100, 0]), Reason::Ipv4Broadcast);

    let mut short = udp4(Ipv4Fields { options: &[1; 8], ..ipv4("203.0.113.5") }, b"");
    short.truncate(14 + 24);
    assert!(bench.dropped(&short, Reason::Ipv4HeaderLength).is_none());
    for (options, reason) in [
        ([131, 7, 4, 1, 2, 3, 4, 0], Reason::Ipv4SourceRoute),
        ([137, 7, 4, 1, 2, 3, 4, 0], Reason::Ipv4SourceRoute),
        ([7, 9, 4, 1, 2, 3, 4, 0], Reason::Ipv4Options),
    ] {
        let fields = Ipv4Fields { options: &options, ..ipv4("203.0.113.5") };
        assert!(bench.dropped(&udp4(fields, b""), reason).is_none());
    }
}

#[test]
fn ipv6_header_rules() {
    let mut bench = Bench::new();
    let good = udp6(ipv6("2001:db8:3::5"), &[0; 30]);
    assert!(bench.dropped(&good[..53], Reason::Ipv6Truncated).is_none());
    let mut broken =
        |change: &dyn Fn(&mut Vec<u8>), reason| assert_dropped(&mut bench, &good, change, reason);
    broken(&|frame| frame[14] = 0x40, Reason::Ipv6Version);
    broken(&|frame| frame[19] += 1, Reason::Ipv6PayloadLength);
    broken(&|frame| frame[18..21].fill(0), Reason::Ipv6PayloadLength);
    let set = |at: usize, text: &'static str| {
        let address: std::net::Ipv6Addr = text.parse().unwrap();
        move |frame: &mut Vec<u8>| frame[at..at + 16].copy_from_slice(&address.octets())
    };
    for source in ["::", "::1", "ff02::1", "::ffff:192.0.2.1"] {
        broken(&set(22, source), Reason::Ipv6MartianSource);
    }
    for destination in ["::", "::1", "::ffff:192.0.2.1", "ff00::1"] {
        broken(&set(38, destination), Reason::Ipv6MartianDestination);
    }
    broken(&set(38, "ff0e::1"), Reason::Ipv6Multicast);
    broken(&set(38, "fe80::99"), Reason::Ipv6LinkLocal);
}

/// The ICMP error in a frame that came back, and the packet quoted.
fn error4(frame: &[u8]) -> (Icmpv4Message, Vec<u8>) {
    let link = LinkLayer::parse(frame).unwrap();
    assert_eq!((link.header.destination(), link.header.source()), (HOST, LEFT));
    let packet = v4::check(link.payload).unwrap();
    assert_eq!(packet.header.source(), std::net::Ipv4Addr::new(192, 0, 2, 1));
    assert_eq!(packet.header.destination(), std::net::Ipv4Addr::new(192, 0, 2, 10));
    assert_eq!(packet.header.protocol(), IpProtocol::ICMP);
    assert!(packet.header.total_length() <= 576);
    let (message, quote) = Icmpv4Message::parse(packet.payload).unwrap();
    (message, quote.to_vec())
}

fn error6(frame: &[u8]) -> (Icmpv6Message, Vec<u8>) {
    let link = LinkLayer::parse(frame).unwrap();
    assert_eq!((link.header.destination(), link.header.source()), (HOST, LEFT));
    let packet = v6::check(link.payload).unwrap();
    let (source, destination) = (packet.header.source(), packet.header.destination());
    assert_eq!(source, "2001:db8:1::1".parse::<std::net::Ipv6Addr>().unwrap());
    assert!(link.payload.len() <= 1280);
    let (message, quote) = Icmpv6Message::parse(source, destination, packet.payload).unwrap();
    (message, quote.to_vec())
}

#[test]
fn ipv4_errors_say_what_happened_and_quote_the_packet() {
    let mut bench = Bench::new();
    let unreachable = |code| Icmpv4Message::Unreachable { code, mtu: 0 };
    let expired = Ipv4Fields { ttl: 1, ..ipv4("203.0.113.5") };
    let large = Ipv4Fields { dont_fragment: true, ..ipv4("203.0.113.5") };
    for (frame, reason, message) in [
        (udp4(expired, &[7; 40]), Reason::TtlExpired, Icmpv4Message::TimeExceeded { code: 0 }),
        (
            udp4(Ipv4Fields { ttl: 0, ..expired }, b""),
            Reason::TtlExpired,
            Icmpv4Message::TimeExceeded { code: 0 },
        ),
        (udp4(ipv4("9.9.9.9"), b"x"), Reason::NoRoute, unreachable(0)),
        (udp4(ipv4("198.51.100.77"), b"x"), Reason::NoNeighbour, unreachable(1)),
        (udp4(ipv4("100.65.1.1"), b"x"), Reason::RouteUnreachable, unreachable(1)),
        (udp4(large, &[9; 1373]), Reason::MtuExceeded, Icmpv4Message::Unreachable { code: 4, mtu: 1400 }),
    ] {
        let error = bench.dropped(&frame, reason).unwrap_or_else(|| panic!("{reason:?} sends an error"));
        let (sent, quote) = error4(&error);
        assert_eq!(sent, message);
        let packet = &frame[14..];
        assert_eq!(quote, packet[..packet.len().min(548)]);
    }
    assert_eq!(bench.counters().errors_sent(), 6);
    assert!(bench.one(&udp4(large, &[9; 1372])).is_some());
    assert!(bench.dropped(&udp4(ipv4("100.64.1.1"), b""), Reason::RouteDrop).is_none());
}

#[test]
fn ipv6_errors_say_what_happened_and_quote_the_packet() {
    let mut bench = Bench::new();
    let unreachable = |code| Icmpv6Message::Unreachable { code };
    let expired = Ipv6Fields { hop_limit: 1, ..ipv6("2001:db8:3::5") };
    for (frame, reason, message) in [
        (udp6(expired, &[7; 40]), Reason::HopLimitExpired, Icmpv6Message::TimeExceeded { code: 0 }),
        (udp6(ipv6("2001:db9::1"), b"x"), Reason::NoRoute, unreachable(0)),
        (udp6(ipv6("2001:db8:2::77"), b"x"), Reason::NoNeighbour, unreachable(3)),
        (udp6(ipv6("2001:db8:4::1"), b"x"), Reason::RouteUnreachable, unreachable(0)),
        (
            udp6(ipv6("2001:db8:3::5"), &[9; 1353]),
            Reason::MtuExceeded,
            Icmpv6Message::PacketTooBig { mtu: 1400 },
        ),
    ] {
        let error = bench.dropped(&frame, reason).unwrap_or_else(|| panic!("{reason:?} sends an error"));
        let (sent, quote) = error6(&error);
        assert_eq!(sent, message);
        let packet = &frame[14..];
        assert_eq!(quote, packet[..packet.len().min(1232)]);
    }
    // To an address of its link there is no route.
    let from_link = Ipv6Fields { source: "fe80::9".parse().unwrap(), ..ipv6("2001:db8:3::5") };
    assert!(bench.dropped(&udp6(from_link, b""), Reason::Ipv6LinkLocal).is_none());
    assert_eq!(bench.counters().errors_unsent(), 1);
    assert!(bench.one(&udp6(ipv6("2001:db8:3::5"), &[9; 1352])).is_some());
    assert!(bench.dropped(&udp6(ipv6("2001:db8:5::1"), b""), Reason::RouteDrop).is_none());
}

/// What a link added to a short frame is no part of the packet.
#[test]
fn padding_is_not_quoted() {
    let mut bench = Bench::new();
    let no_next_header = IpProtocol(59);
    let expired4 = to_router().ipv4(Ipv4Fields { ttl: 1, ..ipv4("203.0.113.5") }).udp(1, 2).payload(b"x");
    let expired6 =
        to_router().ipv6(Ipv6Fields { hop_limit: 1, ..ipv6("2001:db8:3::5") }).protocol(no_next_header);
    let (expired4, expired6) = (expired4.to_vec().unwrap(), expired6.to_vec().unwrap());
    let padded = |frame: &[u8]| [frame, &[0xee; 60][frame.len()..]].concat();
    let error = bench.dropped(&padded(&expired4), Reason::TtlExpired).unwrap();
    assert_eq!(error4(&error).1, expired4[14..]);
    let error = bench.dropped(&padded(&expired6), Reason::HopLimitExpired).unwrap();
    assert_eq!(error6(&error).1, expired6[14..]);
}

/// A tag is no part of what the MTU limits.
#[test]
fn a_vlan_takes_packets_as_large_as_its_port_does() {
    let mut bench = Bench::new();
    let whole = Ipv4Fields { dont_fragment: true, ..ipv4("203.0.113.200") };
    let (_, largest) = bench.one(&udp4(whole, &[9; 1372])).unwrap();
    assert_eq!((largest.len(), &largest[12..16]), (18 + 1400, &[0x81, 0, 0, 7][..]));
    let error = bench.dropped(&udp4(whole, &[9; 1373]), Reason::MtuExceeded).unwrap();
    assert_eq!(error4(&error).0, Icmpv4Message::Unreachable { code: 4, mtu: 1400 });
    // Nor is one that is taken off.
    let tagged = |length: usize| {
        let frame = to_router().vlan(VlanTag::customer(3)).ipv4(whole).udp(1111, 2222);
        frame.payload(&vec![9; length]).to_vec().unwrap()
    };
    assert_eq!(bench.one(&tagged(1372)).unwrap().1, largest);
    bench.dropped(&tagged(1373), Reason::MtuExceeded).unwrap();
}

/// Whoever handed the packet to us, and however.
#[test]
fn errors_go_by_route() {
    let mut bench = Bench::new();
    let error = |bench: &mut Bench, frame: &[u8]| {
        let (port, error) = bench.one(frame).expect("an error");
        let link = LinkLayer::parse(&error).unwrap();
        let ends = (port, link.header.destination(), link.outer.map(VlanTag::id));
        let source = match link.ethertype {
            EtherType::IPV4 => std::net::IpAddr::V4(v4::check(link.payload).unwrap().header.source()),
            _ => std::net::IpAddr::V6(v6::check(link.payload).unwrap().header.source()),
        };
        (ends, source.to_string())
    };
    // The sender's own link, though the packet was tagged and came by another station.
    let mut frame = to_router().vlan(VlanTag::customer(9)).ipv4(ipv4("9.9.9.9")).udp(1, 2).to_vec().unwrap();
    frame[11] ^= 7;
    assert_eq!(error(&mut bench, &frame), ((0, HOST, None), "192.0.2.1".to_owned()));
    // Another link, with the address that we have there, and the tag of the neighbour.
    let from = |source: &str| Ipv4Fields::new(source.parse().unwrap(), "9.9.9.9".parse().unwrap());
    assert_eq!(
        error(&mut bench, &udp4(from("203.0.113.1"), b"")),
        ((1, NEXT, None), "198.51.100.1".to_owned())
    );
    let tagged = ((1, TAGGED, Some(7)), "198.51.100.1".to_owned());
    assert_eq!(error(&mut bench, &udp4(from("203.0.113.200"), b"")), tagged);
    let from6 = Ipv6Fields::new("2001:db8:3::7".parse().unwrap(), "2001:db9::1".parse().unwrap());
    assert_eq!(error(&mut bench, &udp6(from6, b"")), ((1, NEXT, None), "2001:db8:2::1".to_owned()));
    // An error of several paths goes as the packet would that it tells of.
    let several = error(&mut bench, &udp4(from("100.66.1.1"), b"")).0.1;
    assert!(several == NEXT || several == TAGGED);
    // Nowhere, nobody, and where no packet goes.
    let sent = bench.counters().errors_sent();
    for source in ["9.9.9.8", "198.51.100.77", "100.64.1.1", "100.65.1.1"] {
        assert!(bench.dropped(&udp4(from(source), b""), Reason::NoRoute).is_none(), "{source}");
    }
    assert_eq!((bench.counters().errors_sent(), bench.counters().errors_unsent()), (sent, 4));
}

/// An address of another port's, where the port that an error leaves by has none.
#[test]
fn errors_by_links_without_addresses_have_another_ports() {
    let config = crate::bench::CONFIG.replacen(r#""192.0.2.1/24", "2001:db8:1::1/64", "#, "", 1);
    let mut bench = Bench::with(&config, &PoolConfig::default());
    let error = bench.dropped(&udp4(ipv4("9.9.9.9"), b""), Reason::NoRoute).unwrap();
    let source = v4::check(LinkLayer::parse(&error).unwrap().payload).unwrap().header.source();
    assert_eq!(source.to_string(), "198.51.100.1");
    let error = bench.dropped(&udp6(ipv6("2001:db9::1"), b""), Reason::NoRoute).unwrap();
    let source = v6::check(LinkLayer::parse(&error).unwrap().payload).unwrap().header.source();
    assert_eq!(source.to_string(), "2001:db8:2::1", "the link's own is good there only");
}

#[test]
fn what_no_error_may_answer_gets_none() {
    let mut bench = Bench::new();
    let silent = |bench: &mut Bench, frame: &[u8], reason| assert!(bench.dropped(frame, reason).is_none());
    for message in [Icmpv4Message::TimeExceeded { code: 0 }, Icmpv4Message::Unreachable { code: 1, mtu: 0 }] {
        let frame = to_router().ipv4(ipv4("9.9.9.9")).icmpv4(message).payload(&[0; 28]).to_vec().unwrap();
        silent(&mut bench, &frame, Reason::NoRoute);
    }
    let later = Ipv4Fields { fragment_offset: 8, ..ipv4("9.9.9.9") };
    let later = to_router().ipv4(later).protocol(IpProtocol::UDP).payload(&[0; 8]).to_vec().unwrap();
    silent(&mut bench, &later, Reason::NoRoute);
    let everybody = Ipv4Fields::new([192, 0, 2, 255].into(), [9, 9, 9, 9].into());
    silent(&mut bench, &udp4(everybody, b""), Reason::NoRoute);
    let error = to_router().ipv6(ipv6("2001:db9::1")).icmpv6(Icmpv6Message::Unreachable { code: 0 });
    silent(&mut bench, &error.payload(&[0; 40]).to_vec().unwrap(), Reason::NoRoute);
    // But a ping that finds no route is told.
    let ping = Icmpv4Message::EchoRequest { identifier: 1, sequence: 1 };
    let ping = to_router().ipv4(ipv4("9.9.9.9")).icmpv4(ping).to_vec().unwrap();
    assert!(bench.dropped(&ping, Reason::NoRoute).is_some());
    assert_eq!(bench.counters().errors_limited(), 0);
}

#[test]
fn errors_are_limited() {
    let limits = "icmp = { rate = 1, burst = 5 }\n";
    let mut bench = Bench::with(&format!("{limits}{}", crate::bench::CONFIG), &PoolConfig::default());
    bench.receive(0, &vec![udp4(ipv4("9.9.9.9"), b""); 100]);
    let counters = bench.counters();
    assert!((5..=7).contains(&counters.errors_sent()));
    assert_eq!(counters.errors_sent() + counters.errors_limited(), 100);
    assert_eq!(counters.drops().get(Reason::NoRoute), 100);
}

#[test]
fn outputs_that_are_missing_or_full() {
    let mut bench = Bench::new();
    let mut burst = Burst::with_limit(64);
    let fill = |bench: &Bench, burst: &mut Burst| {
        for _ in 0..10 {
            let mut packet = bench.pool.take().unwrap();
            packet.fill(&udp4(ipv4("203.0.113.5"), b"")).unwrap();
            burst.push(packet).unwrap();
        }
    };
    fill(&bench, &mut burst);
    let mut outputs = KeptOutputs::of(&bench.forwarder).without(Forwarder::FIRST_PORT + 1);
    bench.forwarder.process(&mut burst, &mut outputs.outputs());
    assert_eq!(bench.counters().drops().get(Reason::NoPort), 10);
    fill(&bench, &mut burst);
    let mut outputs = KeptOutputs::of(&bench.forwarder);
    *outputs.burst(Forwarder::FIRST_PORT + 1) = Burst::with_limit(4);
    bench.forwarder.process(&mut burst, &mut outputs.outputs());
    assert_eq!(bench.counters().drops().get(Reason::OutputQueueFull), 6);
    assert_eq!(bench.counters().balance(), 0);
    drop(outputs);
    assert_eq!(bench.pool.ledger().outstanding(), 0);
}

#[test]
fn ports_without_an_address_take_frames_for_anyone() {
    let config = crate::bench::CONFIG.replacen("mac = \"02:00:00:00:00:01\"", "", 1);
    let mut bench = Bench::with(&config, &PoolConfig::default());
    let anyone = MacAddress([0x0a, 9, 9, 9, 9, 9]);
    let frame = Frame::new().ethernet(anyone, HOST).ipv4(ipv4("203.0.113.5")).udp(1, 2).to_vec().unwrap();
    assert!(bench.one(&frame).is_some());
    let frame = Frame::new().ethernet(MacAddress::BROADCAST, HOST).ipv4(ipv4("203.0.113.5")).udp(1, 2);
    bench.dropped(&frame.to_vec().unwrap(), Reason::LinkLayerGroup);
}
