//! The forwarding decision once more, written packet by packet and rule by rule, against random traffic.

use std::cell::RefCell;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::bench::{Bench, HOST, fix_checksum, ipv4, ipv6, to_router, udp4, udp6};
use proptest::prelude::*;
use warmlane_forward::control::config::IcmpLimits;
use warmlane_forward::datapath::Forwarder;
use warmlane_mem::{Pool, PoolConfig};
use warmlane_wire::{
    ArpPacket, Frame, Icmpv4Message, Icmpv6Message, Ipv4Fields, Ipv6Fields, NeighbourMessage, VlanTag,
};

/// What becomes of a packet: the index of the neighbour it goes to, or that it stays.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Fate {
    /// To 198.51.100.2, untagged.
    Next,
    /// To 198.51.100.3, tagged.
    Tagged,
    /// To either of these two.
    Either,
    /// To 192.0.2.10.
    Host,
    /// Not forwarded.
    Stays,
}

fn in4(address: Ipv4Addr, network: [u8; 4], length: u32) -> bool {
    (address.to_bits() ^ u32::from_be_bytes(network)) >> (32 - length) == 0
}

fn fate4(source: Ipv4Addr, destination: Ipv4Addr, ttl: u8, total: usize, dont_fragment: bool) -> Fate {
    let bad = |address: Ipv4Addr| {
        matches!(address.octets()[0], 0 | 127 | 224..) || in4(address, [169, 254, 0, 0], 16)
    };
    if bad(source) || bad(destination) || ttl < 2 {
        return Fate::Stays;
    }
    let [a, b, c, d] = destination.octets();
    let fate = match (a, b, c, d) {
        (203, 0, 113, 128..) | (198, 51, 100, 3) => Fate::Tagged,
        (203, 0, 113, _) | (198, 51, 100, 2) => Fate::Next,
        (192, 0, 2, 10) => Fate::Host,
        (100, 66, ..) => Fate::Either,
        _ => Fate::Stays,
    };
    if fate != Fate::Host && total > 1400 && dont_fragment { Fate::Stays } else { fate }
}

fn fate6(source: Ipv6Addr, destination: Ipv6Addr, hop_limit: u8, total: usize) -> Fate {
    let bad = |address: Ipv6Addr| {
        address.is_multicast()
            || address.is_loopback()
            || address.is_unspecified()
            || address.to_ipv4_mapped().is_some()
            || (address.segments()[0] & 0xffc0) == 0xfe80
    };
    let is = |text: &str| destination == text.parse::<Ipv6Addr>().unwrap();
    let routed = destination.segments()[..3] == [0x2001, 0xdb8, 3] || is("2001:db8:2::2");
    if bad(source) || bad(destination) || hop_limit < 2 {
        Fate::Stays
    } else if is("2001:db8:1::10") {
        Fate::Host
    } else if total > 1400 || !routed {
        Fate::Stays
    } else {
        Fate::Next
    }
}

fn fate_of(sent: &[Vec<Vec<u8>>; 2]) -> Fate {
    let to = |frame: &Vec<u8>| (frame[5], frame[6..12] == [2, 0, 0, 0, 0, 1]);
    match (sent[0].first().map(to), sent[1].first().map(to)) {
        // Frames to the host with a source inside of its own network are answers and errors, unless forwarded.
        (None, Some((2, _))) => Fate::Next,
        (None, Some((3, _))) => Fate::Tagged,
        (Some((1, true)), None) => Fate::Host,
        (None, None) => Fate::Stays,
        other => panic!("{other:?}"),
    }
}

fn address4() -> impl Strategy<Value = Ipv4Addr> {
    let networks = prop::sample::select(vec![
        [203, 0, 113, 0],
        [203, 0, 113, 255],
        [198, 51, 100, 2],
        [198, 51, 100, 3],
        [192, 0, 2, 10],
        [192, 0, 2, 1],
        [100, 64, 3, 3],
        [100, 65, 3, 3],
        [100, 66, 3, 3],
        [0, 0, 0, 0],
        [127, 0, 0, 1],
        [169, 254, 1, 1],
        [169, 1, 1, 1],
        [224, 0, 0, 5],
        [255; 4],
        [240, 1, 1, 1],
        [9, 9, 9, 9],
        [126, 1, 1, 1],
        [223, 1, 1, 1],
    ]);
    (networks, any::<u8>(), any::<bool>())
        .prop_map(|([a, b, c, d], last, keep)| Ipv4Addr::new(a, b, c, if keep { d } else { last }))
}

fn address6() -> impl Strategy<Value = Ipv6Addr> {
    let starts = prop::sample::select(vec![
        "2001:db8:3::",
        "2001:db8:2::2",
        "2001:db8:2::9",
        "2001:db8:1::",
        "2001:db8:4::",
        "2001:db8:5::",
        "::",
        "::1",
        "::ffff:1.2.3.4",
        "fe80::5",
        "ff02::1",
        "ff0e::1",
        "fd00::1",
        "64:ff9b::1",
        "fec0::1",
        "2001:db8:9::",
    ]);
    (starts, any::<u16>(), any::<bool>()).prop_map(|(start, last, keep)| {
        let address: Ipv6Addr = start.parse().unwrap();
        if keep { address } else { Ipv6Addr::from_bits(address.to_bits() ^ u128::from(last)) }
    })
}

/// Runs one frame through a bench that is used again and again; gives what left, without answers and errors.
fn through(bench: &mut Bench, port: u16, frame: &[u8]) -> [Vec<Vec<u8>>; 2] {
    let own = |bench: &Bench| bench.counters().errors_sent() + bench.counters().answered();
    let before = own(bench);
    bench.receive(port, &[frame.to_vec()]);
    let sent = std::mem::take(&mut bench.sent);
    // An answer or an error is all that leaves then.
    if own(bench) > before { [Vec::new(), Vec::new()] } else { sent }
}

/// Small buffers, so that packets are chains, and ordinary ones.
fn benches() -> [Bench; 3] {
    [64, 96, 2048].map(|data_size| {
        let pool = PoolConfig { buffers: 256, data_size, ..PoolConfig::default() };
        Bench::with(crate::bench::CONFIG, &pool)
    })
}

fn cases() -> ProptestConfig {
    ProptestConfig::with_cases(2000)
}

#[test]
fn ipv4_goes_where_the_rules_say() {
    let bench = RefCell::new(Bench::new());
    let what = (address4(), address4(), 0_u8..4, 0_usize..1450, 0_usize..3, any::<bool>(), 0_usize..3);
    proptest!(cases(), |((source, destination, ttl, size, tags, dont_fragment, options) in what)| {
        let options = vec![1; options * 4];
        let fields = Ipv4Fields { ttl, dont_fragment, options: &options, ..Ipv4Fields::new(source, destination) };
        let frame = (0..tags).fold(to_router(), |frame, _| frame.vlan(VlanTag::customer(1)));
        let payload = vec![0; size];
        let frame = frame.ipv4(fields).udp(1, 2).payload(&payload).to_vec().unwrap();
        let total = frame.len() - 14 - tags * 4;
        let fate = fate_of(&through(&mut bench.borrow_mut(), 0, &frame));
        let expected = fate4(source, destination, ttl, total, dont_fragment);
        if expected == Fate::Either {
            prop_assert!(matches!(fate, Fate::Next | Fate::Tagged));
        } else {
            prop_assert_eq!(fate, expected);
        }
    });
}

#[test]
fn ipv6_goes_where_the_rules_say() {
    let bench = RefCell::new(Bench::new());
    let what = (address6(), address6(), 0_u8..4, 0_usize..1450, 0_usize..3);
    proptest!(cases(), |((source, destination, hop_limit, size, tags) in what)| {
        let fields = Ipv6Fields { hop_limit, ..Ipv6Fields::new(source, destination) };
        let frame = (0..tags).fold(to_router(), |frame, _| frame.vlan(VlanTag::customer(1)));
        let payload = vec![0; size];
        let frame = frame.ipv6(fields).udp(1, 2).payload(&payload).to_vec().unwrap();
        let fate = fate_of(&through(&mut bench.borrow_mut(), 0, &frame));
        prop_assert_eq!(fate, fate6(source, destination, hop_limit, frame.len() - 14 - tags * 4));
    });
}

#[test]
fn the_short_way_and_the_long_one_send_the_same() {
    let short = Bench::new();
    // What takes several buffers takes the long way. (Such buffers hold no fragments.)
    let pool = Pool::new(&PoolConfig { buffers: 512, data_size: 96, ..PoolConfig::default() }).unwrap();
    let forwarder = Forwarder::new(Arc::clone(&short.routes), pool.clone(), IcmpLimits::default());
    let long = Bench { routes: Arc::clone(&short.routes), pool, forwarder, sent: Default::default() };
    let (short, long) = (RefCell::new(short), RefCell::new(long));
    let tags = prop::collection::vec((0_u16..8, 0_u16..4), 0..3);
    let what = (address4(), address6(), any::<bool>(), 1_u8..4, 60_usize..1370, tags);
    proptest!(cases(), |((to, to_ipv6, is_ipv6, ttl, size, tags) in what)| {
        let tag = |(priority, id)| VlanTag { control: priority << 13 | id, ..VlanTag::customer(id) };
        let frame = tags.into_iter().map(tag).fold(to_router(), Frame::vlan);
        let frame = if is_ipv6 {
            frame.ipv6(Ipv6Fields { hop_limit: ttl, ..Ipv6Fields::new("2001:db8:7::1".parse().unwrap(), to_ipv6) })
        } else {
            frame.ipv4(Ipv4Fields { ttl, ..Ipv4Fields::new([192, 0, 2, 10].into(), to) })
        };
        let frame = frame.udp(1, 2).payload(&vec![0; size]).to_vec().unwrap();
        let expected = through(&mut long.borrow_mut(), 0, &frame);
        prop_assert_eq!(through(&mut short.borrow_mut(), 0, &frame), expected);
        let [short, long] = [&short, &long].map(|bench| format!("{:?}", bench.borrow().counters().drops()));
        prop_assert_eq!(short, long);
    });
}

#[test]
fn any_bytes_are_accounted_for() {
    let benches = RefCell::new(benches());
    let what =
        (0_usize..3, prop::collection::vec((0_u16..4, prop::collection::vec(any::<u8>(), 0..200)), 0..20));
    proptest!(cases(), |((bench, frames) in what)| {
        let bench = &mut benches.borrow_mut()[bench];
        let before = bench.counters().received();
        for (port, frame) in &frames {
            through(bench, *port, frame);
        }
        prop_assert_eq!(bench.counters().received() - before, frames.len() as u64);
    });
}

/// One frame of each kind that the router knows.
fn good_frame(kind: usize) -> Vec<u8> {
    let ping4 = Icmpv4Message::EchoRequest { identifier: 1, sequence: 2 };
    let ping6 = Icmpv6Message::EchoRequest { identifier: 1, sequence: 2 };
    let arp = ArpPacket::request(HOST, [192, 0, 2, 10].into(), [192, 0, 2, 1].into());
    let target = "2001:db8:1::1".parse().unwrap();
    let ask = NeighbourMessage::Solicitation { target, source_link_layer: Some(HOST) };
    let frame = to_router();
    let frame = match kind {
        0 => return udp4(ipv4("203.0.113.5"), &[1; 60]),
        1 => {
            let fields = Ipv4Fields { options: &[7, 7, 4, 1, 2, 3, 4, 0], ..ipv4("203.0.113.200") };
            return udp4(fields, &[1; 60]);
        }
        2 => return udp6(ipv6("2001:db8:3::5"), &[1; 40]),
        3 => frame.vlan(VlanTag::customer(3)).ipv4(ipv4("192.0.2.1")).icmpv4(ping4).payload(&[2; 40]),
        4 => frame.ipv6(ipv6("2001:db8:1::1")).icmpv6(ping6).payload(&[2; 40]),
        5 => frame.ipv6(Ipv6Fields { hop_limit: 255, ..ipv6("2001:db8:1::1") }).neighbour(ask),
        _ => frame.arp(arp).padded(60),
    };
    frame.to_vec().unwrap()
}

#[test]
fn damaged_frames_are_accounted_for() {
    let benches = RefCell::new(benches());
    let changes = prop::collection::vec((0_usize..120, any::<u8>()), 0..6);
    let what = (0_usize..3, 0_usize..7, changes, 1_usize..160, any::<bool>());
    proptest!(cases(), |((bench, kind, changes, length, repair) in what)| {
        let mut frame = good_frame(kind);
        for (at, value) in changes {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        if repair && kind < 2 && frame[14] & 0x0f >= 5 {
            fix_checksum(&mut frame);
        }
        frame.truncate(length);
        // The bench checks the books after each burst.
        benches.borrow_mut()[bench].receive(0, &[frame]);
    });
}
