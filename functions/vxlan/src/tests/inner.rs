//! Transport checksums inside a tunnel, checked where that is asked for or a device has done it.

use warmlane_mem::{Checksum, InnerChecksum};
use warmlane_wire::{Icmpv4Message, Icmpv6Message, TcpFields, checksum, sctp};

use super::*;

fn bench(inner_checksums: bool) -> Bench {
    Bench::new(OverlayConfig { inner_checksums, ..network(false) })
}

/// What came out of the tunnel: nothing, or the packet by the first access.
fn unpack(bench: &mut Bench, packet: Packet) -> Option<Packet> {
    let before = bench.dropped(Reason::InnerChecksum);
    let [_, _, access, _] = bench.pass_packet(packet);
    assert_eq!(access.len() as u64 + bench.dropped(Reason::InnerChecksum) - before, 1);
    bench.outputs.burst(1).take_first()
}

/// Whether the frame comes out, in one buffer and in several: the same both ways.
fn passes(frame: &[u8], inner_checksums: bool) -> bool {
    let bytes = tunnelled(2, VNI, 0, frame);
    // The last byte is at an odd place of the second buffer; and all of the transport is in the second one.
    let ip = match (&frame[12..14], frame[20]) {
        ([8, 0], _) => 20,
        (_, fragment) if fragment == IpProtocol::FRAGMENT.0 => 48,
        _ => 40,
    };
    let outer = bytes.len() - frame.len();
    let [whole, in_pieces, behind] = [bytes.len(), bytes.len() - 3, outer + 14 + ip].map(|length| {
        let mut bench = bench(inner_checksums);
        let (first, second) = bytes.split_at(length);
        let mut packet = bench.packet(0, first);
        if !second.is_empty() {
            packet.chain(bench.packet(0, second)).unwrap();
        }
        unpack(&mut bench, packet).is_some()
    });
    assert_eq!((whole, whole), (in_pieces, behind));
    whole
}

#[test]
fn wrong_ones_are_dropped_where_they_are_checked() {
    let link = Frame::new().ethernet(MacAddress::BROADCAST, B);
    let ipv4 = link.ipv4(Ipv4Fields::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into()));
    let ipv6 = link.ipv6(Ipv6Fields::new(1.into(), 2.into()));
    let echo_v4 = Icmpv4Message::EchoRequest { identifier: 1, sequence: 2 };
    let echo_v6 = Icmpv6Message::EchoRequest { identifier: 1, sequence: 2 };
    for layers in [
        ipv4.udp(1, 2),
        ipv4.tcp(TcpFields::new(1, 2)),
        ipv4.icmpv4(echo_v4),
        ipv6.udp(1, 2),
        ipv6.tcp(TcpFields::new(1, 2)),
        ipv6.icmpv6(echo_v6),
    ] {
        let mut frame = layers.payload(b"what is summed up with the headers").to_vec().unwrap();
        assert!(passes(&frame, true), "{layers:?}");
        // Padding is no part of it.
        assert!(passes(&[&frame[..], &[1; 5]].concat(), true), "{layers:?}");
        let last = frame.len() - 1;
        frame[last] ^= 1;
        assert!(!passes(&frame, true), "{layers:?}");
        assert!(passes(&frame, false), "{layers:?}");
    }
}

/// The checksum of SCTP is no sum.
#[test]
fn wrong_ones_of_sctp_are_dropped_where_they_are_checked() {
    let link = Frame::new().ethernet(MacAddress::BROADCAST, B);
    let mut packet = [&[0, 7, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 20][..], &[3; 16]].concat();
    let checksum = sctp::Crc::new().bytes(&packet).field();
    packet[sctp::CHECKSUM_OFFSET..sctp::HEADER_LENGTH].copy_from_slice(&checksum);
    for layers in [
        link.ipv4(Ipv4Fields::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into())),
        link.ipv6(Ipv6Fields::new(1.into(), 2.into())),
    ] {
        let mut frame = layers.protocol(IpProtocol::SCTP).payload(&packet).to_vec().unwrap();
        assert!(passes(&frame, true) && passes(&[&frame[..], &[1; 5]].concat(), true));
        let last = frame.len() - 1;
        frame[last] ^= 1;
        assert!(!passes(&frame, true) && passes(&frame, false));
    }
}

/// Fragments, UDP without a checksum, and protocols that are not known here.
#[test]
fn what_nobody_can_tell_passes() {
    let fields = Ipv4Fields::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let link = Frame::new().ethernet(MacAddress::BROADCAST, B);
    let fragment = link.ipv4(Ipv4Fields { more_fragments: true, ..fields }).udp(1, 2).payload(&[9; 64]);
    let mut fragment = fragment.to_vec().unwrap();
    fragment[60] ^= 1;
    assert!(passes(&fragment, true));
    let mut without = link.ipv4(fields).udp(1, 2).payload(&[9; 64]).to_vec().unwrap();
    without[40..42].fill(0);
    assert!(passes(&without, true));
    let other = link.ipv4(fields).protocol(IpProtocol::GRE).payload(&[9; 64]).to_vec().unwrap();
    assert!(passes(&other, true));
    let other = link.ipv4(fields).protocol(IpProtocol::ICMPV6).payload(&[9; 64]).to_vec().unwrap();
    assert!(passes(&other, true));
    // UDP behind a fragment header, of which more are to come.
    let fragment = [&[17, 0, 0, 1, 1, 2, 3, 4][..], &[9; 64]].concat();
    let ipv6 = link.ipv6(Ipv6Fields::new(1.into(), 2.into()));
    let fragment = ipv6.protocol(IpProtocol::FRAGMENT).payload(&fragment).to_vec().unwrap();
    assert!(passes(&fragment, true));
}

/// What is cut off before its checksum can't have a right one.
#[test]
fn a_header_that_is_not_whole_is_dropped() {
    let fields = Ipv4Fields::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let link = Frame::new().ethernet(MacAddress::BROADCAST, B);
    for length in 0..8 {
        let frame = link.ipv4(fields).protocol(IpProtocol::UDP).payload(&[0; 8][..length]);
        for padded in [0, 60] {
            let mut bench = bench(true);
            let frame = frame.padded(padded).to_vec().unwrap();
            let packet = bench.packet(0, &tunnelled(2, VNI, 0, &frame));
            assert!(unpack(&mut bench, packet).is_none(), "{length} {padded}");
        }
    }
}

/// Lengths that can't be, with a checksum that is right for what they say.
#[test]
fn a_transport_of_the_wrong_length_is_dropped() {
    let fields = Ipv4Fields::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let link = Frame::new().ethernet(MacAddress::BROADCAST, B);
    let with_sum = |protocol: IpProtocol, covered: usize, field: usize, mut bytes: Vec<u8>| {
        bytes[field..field + 2].fill(0);
        let pseudo = checksum::pseudo_ipv4(fields.source, fields.destination, protocol, covered as u16);
        let sum = pseudo.bytes(&bytes[..covered]).checksum();
        bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        link.ipv4(fields).protocol(protocol).payload(&bytes).to_vec().unwrap()
    };
    let udp = |told: u16| {
        let [high, low] = told.to_be_bytes();
        [&[0, 1, 0, 2, high, low, 0, 0][..], &[9; 12]].concat()
    };
    assert!(passes(&with_sum(IpProtocol::UDP, 20, 6, udp(20)), true));
    assert!(passes(&with_sum(IpProtocol::UDP, 8, 6, udp(8)), true));
    assert!(!passes(&with_sum(IpProtocol::UDP, 20, 6, udp(21)), true));
    for told in [0, 7] {
        assert!(!passes(&with_sum(IpProtocol::UDP, usize::from(told), 6, udp(told)), true), "{told}");
    }
    assert!(!passes(&with_sum(IpProtocol::TCP, 19, 16, vec![5; 19]), true));
}

#[test]
fn what_a_device_has_found_counts() {
    let right = inner(B, MacAddress::BROADCAST, 0, b"data");
    let mut wrong = right.clone();
    wrong[44] ^= 1;
    for (frame, found, expected) in [
        (&right, InnerChecksum::Unknown, Some(Checksum::Good)),
        (&wrong, InnerChecksum::Unknown, None),
        (&right, InnerChecksum::Bad, None),
        (&wrong, InnerChecksum::Good, Some(Checksum::Good)),
    ] {
        let mut bench = bench(true);
        let mut packet = bench.packet(0, &tunnelled(2, VNI, 0, frame));
        packet.set_inner_checksum(found);
        let known = unpack(&mut bench, packet).map(|packet| packet.checksum());
        assert_eq!(known, expected, "{found:?}");
    }
    let mut bench = bench(false);
    let mut packet = bench.packet(0, &tunnelled(2, VNI, 0, &right));
    packet.set_inner_checksum(InnerChecksum::Bad);
    assert!(unpack(&mut bench, packet).is_none());
    // What is known of the checksum around says nothing of the one inside.
    let mut packet = bench.packet(0, &tunnelled(2, VNI, 0, &right));
    packet.set_checksum(Checksum::Good);
    assert_eq!(unpack(&mut bench, packet).map(|packet| packet.checksum()), Some(Checksum::Unknown));
}
