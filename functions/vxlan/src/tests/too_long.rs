//! What is too long for a tunnel or an access, and what its sender is told.

use std::net::Ipv6Addr;

use warmlane_mem::Checksum;
use warmlane_wire::checksum;
use warmlane_wire::icmpv4::{self, Icmpv4Message};
use warmlane_wire::icmpv6::Icmpv6Message;

use super::*;

#[test]
fn what_is_too_long_is_dropped() {
    let mut bench = Bench::new(network(false));
    let longest = inner(A, B, 0, &[0; 1450 - 28]);
    let [underlay, ..] = bench.pass(1, &longest);
    assert_eq!(underlay[0].len(), 14 + 1500);
    bench.pass(1, &inner(A, B, 0, &[0; 1451 - 28]));
    // The flood to three: two tunnels refuse it, the VLAN takes it.
    assert_eq!((bench.dropped(Reason::TooLong), bench.counters.to_access()), (2, 2));
}

/// An error is in the name of the destination, and goes back to where the packet came from, whichever way that is.
#[test]
fn senders_are_told_what_is_too_long() {
    let mut bench = Bench::new(network(false));
    let ipv4 = |dont_fragment, destination| {
        let addresses = Ipv4Fields::new([10, 0, 0, 0xa].into(), [10, 0, 0, 0xb].into());
        let link = Frame::new().ethernet(destination, A).ipv4(Ipv4Fields { dont_fragment, ..addresses });
        link.udp(1, 2).payload(&[7; 1500 - 28]).to_vec().unwrap()
    };
    let [from, to]: [Ipv6Addr; 2] = ["2001:db8::a", "2001:db8::b"].map(|address| address.parse().unwrap());
    let ipv6 = Frame::new().ethernet(B, A).ipv6(Ipv6Fields::new(from, to));
    let ipv6 = ipv6.udp(1, 2).payload(&[7; 1500 - 48]).to_vec().unwrap();
    // Who doesn't forbid fragments isn't told, nor is who sends to all.
    for frame in [ipv4(false, B), ipv4(true, MacAddress::BROADCAST)] {
        assert!(bench.pass(1, &frame)[2].is_empty());
    }
    let mut broken = ipv4(true, B);
    broken[24] ^= 1;
    assert!(bench.pass(1, &broken)[2].is_empty());

    let sent = ipv4(true, B);
    let [underlay, _, back, vlan] = bench.pass(1, &sent);
    // The VLAN takes it, as long as nobody knows where B is.
    assert_eq!((underlay.len(), back.len(), vlan.len()), (0, 1, 1));
    assert_eq!(back[0][..12], [A.0, B.0].concat());
    let ip = ipv4::check(&back[0][14..]).unwrap();
    assert_eq!(
        (ip.header.source(), ip.header.destination()),
        ([10, 0, 0, 0xb].into(), [10, 0, 0, 0xa].into())
    );
    let message = Icmpv4Message::Unreachable { code: icmpv4::unreachable::FRAGMENTATION_NEEDED, mtu: 1450 };
    assert_eq!(Icmpv4Message::parse(ip.payload).unwrap(), (message, &sent[14..][..548]));
    // What is quoted has the checksum that it would have on a wire.
    let mut left = bench.packet(1, &sent);
    let addresses = [[10, 0, 0, 0xa], [10, 0, 0, 0xb]].map(Ipv4Addr::from);
    let held = checksum::pseudo_ipv4(addresses[0], addresses[1], IpProtocol::UDP, 1480).fold();
    left.data_mut()[40..42].copy_from_slice(&held.to_be_bytes());
    left.set_checksum(Checksum::Partial { start: 34, offset: 6 });
    assert_eq!(bench.pass_packet(left)[2], back);

    // Behind a tunnel is B, and so from now on the VLAN gets nothing.
    bench.pass(0, &tunnelled(2, VNI, 0, &inner(B, A, 0, b"")));
    let [_, _, back, vlan] = bench.pass(1, &ipv6);
    assert_eq!((back.len(), vlan.len()), (1, 0));
    let ip = ipv6::check(&back[0][14..]).unwrap();
    let (source, destination) = (ip.header.source(), ip.header.destination());
    assert_eq!((source, destination), (to, from));
    let message = Icmpv6Message::parse(source, destination, ip.payload).unwrap();
    assert_eq!(message, (Icmpv6Message::PacketTooBig { mtu: 1450 }, &ipv6[14..][..1232]));

    assert_eq!((bench.counters.errors(), bench.counters.errors_limited()), (3, 0));
    // As often as the limits allow: never.
    let mut bench = Bench::with_limits(network(false), IcmpLimits { rate: 0, burst: 1 });
    assert!(bench.pass(1, &ipv6)[2].is_empty());
    assert_eq!((bench.counters.errors(), bench.counters.errors_limited()), (0, 1));
}

#[test]
fn what_is_too_long_for_an_access_is_told_through_the_tunnel() {
    let mut bench = Bench::new(network(false));
    bench.pass(1, &inner(A, MacAddress::BROADCAST, 0, b""));
    let fields =
        Ipv4Fields { dont_fragment: true, ..Ipv4Fields::new([10, 0, 0, 0xb].into(), [10, 0, 0, 0xa].into()) };
    let frame = Frame::new().ethernet(A, B).ipv4(fields).udp(1, 2).payload(&[0; 1501 - 28]).to_vec().unwrap();
    let [underlay, _, access, _] = bench.pass(0, &tunnelled(3, VNI, 0, &frame));
    assert_eq!((underlay.len(), access.len()), (1, 0));
    let (to, _, _, inside) = unwrapped(&underlay[0], false);
    assert_eq!(to, network(false).remotes[1]);
    let ip = ipv4::check(&inside[14..]).unwrap();
    assert!(matches!(
        Icmpv4Message::parse(ip.payload),
        Ok((Icmpv4Message::Unreachable { mtu: 1500, .. }, _))
    ));
}

/// A frame may be long by what is behind its packet, and some addresses are no host's.
#[test]
fn nobody_is_told_of_packets_that_fit_or_have_no_host_to_speak_for() {
    let mut bench = Bench::new(network(false));
    let ipv4 = |to: [u8; 4], bytes| {
        let fields = Ipv4Fields { dont_fragment: true, ..Ipv4Fields::new([10, 0, 0, 0xa].into(), to.into()) };
        Frame::new().ethernet(B, A).ipv4(fields).udp(1, 2).payload(&vec![7; bytes]).to_vec().unwrap()
    };
    let ipv6 = |to: &str, bytes| {
        let fields = Ipv6Fields::new("2001:db8::a".parse().unwrap(), to.parse().unwrap());
        Frame::new().ethernet(B, A).ipv6(fields).udp(1, 2).payload(&vec![7; bytes]).to_vec().unwrap()
    };
    for short in [ipv4([10, 0, 0, 0xb], 60), ipv6("2001:db8::b", 60)] {
        let padded = [&short[..], &[0; 1500]].concat();
        assert!(bench.pass(1, &padded)[2].is_empty());
    }
    for long in
        [ipv4([127, 0, 0, 1], 1472), ipv4([240, 0, 0, 1], 1472), ipv6("::1", 1452), ipv6("ff0e::1", 1452)]
    {
        assert!(bench.pass(1, &long)[2].is_empty());
    }
    // The padded ones are too long for the VLAN, too.
    assert_eq!((bench.dropped(Reason::TooLong), bench.counters.errors()), (2 * 3 + 4 * 2, 0));
}

/// The other tunnel ends may have delivered it, and an error in the name of B would teach the sender's that B is here.
#[test]
fn nobody_is_told_of_what_a_tunnel_floods() {
    let mut bench = Bench::new(network(false));
    let fields =
        Ipv4Fields { dont_fragment: true, ..Ipv4Fields::new([10, 0, 0, 0xa].into(), [10, 0, 0, 0xb].into()) };
    let frame = Frame::new().ethernet(B, A).ipv4(fields).udp(1, 2).payload(&[0; 1501 - 28]).to_vec().unwrap();
    let [underlay, ..] = bench.pass(0, &tunnelled(3, VNI, 0, &frame));
    assert_eq!((underlay.len(), bench.counters.errors()), (0, 0));
}
