//! The commonest datagrams, read as a whole, against the general way.

use super::*;
use crate::inner_frame::InnerFrame;
use crate::outer::Outer;
use crate::plain::{self, Plain};
use warmlane_mem::Checksum;
use warmlane_wire::LinkLayer;

/// What the general way makes of a datagram for a tunnel end, and the frame in it.
fn general(mut packet: Packet) -> Option<(Plain, Vec<u8>)> {
    let outer = Outer::of(&packet, &LinkLayer::parse(packet.data()).ok()?)?;
    let found = outer.check(&packet, TunnelProtocol::Vxlan).ok()?;
    let inside = outer.strip(&mut packet, &found, false).ok()?;
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (outer.source, outer.destination) else {
        return None;
    };
    let end = plain::end(destination.to_bits(), outer.destination_port);
    let destination_mac = outer.destination_mac;
    let (source, identifier, frame) = (source.to_bits(), found.identifier, found.length);
    let plain = Plain { destination_mac, source, end, identifier, frame, inside };
    Some((plain, packet.data().to_vec()))
}

/// A datagram without a checksum.
fn datagram(remote: u8, vni: u32, class: u8, frame: &[u8]) -> Vec<u8> {
    let mut datagram = tunnelled(remote, vni, class, frame);
    datagram[40..42].fill(0);
    datagram
}

/// Puts the right checksum into the IPv4 header at this place.
fn mend(bytes: &mut [u8], at: usize) {
    if let Some(header) = bytes.get_mut(at..).and_then(|bytes| bytes.first_chunk_mut::<20>()) {
        let checksum = warmlane_wire::checksum::ipv4_header_checksum20(header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

proptest! {
    /// What is found is what the general way finds, whatever the bytes.
    #[test]
    fn the_same_is_found(
        (remote, vni, class, inner_class) in (any::<u8>(), 0..1_u32 << 24, any::<u8>(), any::<u8>()),
        data in proptest::collection::vec(any::<u8>(), 0..64),
        padding in proptest::collection::vec(any::<u8>(), 0..8),
        changes in proptest::collection::vec((0..92_usize, any::<u8>()), 0..4),
        (outer, inside) in any::<(bool, bool)>(),
        length in 60..200_usize,
    ) {
        let bench = Bench::new(network(false));
        let frame = [&inner(A, B, inner_class, &data)[..], &padding].concat();
        let mut bytes = datagram(remote, vni, class, &frame);
        bytes.extend(&padding);
        for (at, value) in &changes {
            if let Some(byte) = bytes.get_mut(*at) {
                *byte = *value;
            }
        }
        // Changes would hardly ever get beyond wrong sums.
        if outer {
            mend(&mut bytes, 14);
        }
        if inside {
            mend(&mut bytes, 64);
        }
        let is_whole = bytes.len() <= length;
        bytes.truncate(length);
        let found = plain::look(&bench.packet(0, &bytes));
        let general = general(bench.packet(0, &bytes));
        if let Some(plain) = found {
            let (expected, frame) = general.unwrap();
            prop_assert_eq!(plain, expected);
            prop_assert_eq!(&bytes[50..50 + plain.frame], &frame);
        }
        let congestion = [0, inner_class & 3].contains(&(class & 3));
        if changes.is_empty() && is_whole {
            prop_assert_eq!(found.is_some(), congestion);
        }
    }
}

/// Frames of access ports, likewise.
#[test]
fn an_ipv4_frame_is_read_as_in_the_general_way() {
    let frame = inner(A, B, 0b1011_1010, b"data");
    for bit in 0..8 * 34 {
        let mut frame = frame.clone();
        frame[bit / 8] ^= 1 << (bit % 8);
        let general = InnerFrame::of(&frame).unwrap();
        match InnerFrame::of_ipv4(&frame) {
            Some(found) => assert_eq!(found, general, "bit {bit}"),
            None => assert!((96..112).contains(&bit), "bit {bit} is of the EtherType"),
        }
    }
    assert_eq!(InnerFrame::of_ipv4(&frame[..33]), None);
}

/// One bit after the other is turned over, and the sums of headers set right again.
#[test]
fn each_bit_is_read_as_in_the_general_way() {
    let bench = Bench::new(network(false));
    let bytes = datagram(2, VNI, 0, &inner(A, B, 0, b"data"));
    let mut found_again = 0;
    for bit in 0..8 * 84 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        mend(&mut bytes, 14);
        mend(&mut bytes, 64);
        if let Some(plain) = plain::look(&bench.packet(0, &bytes)) {
            let (expected, frame) = general(bench.packet(0, &bytes)).unwrap_or_else(|| panic!("bit {bit}"));
            assert_eq!((plain, &bytes[50..50 + plain.frame]), (expected, &frame[..]), "bit {bit}");
            found_again += 1;
        }
    }
    // Addresses, identifiers, classes, lifetimes, sums and much else: they change nothing about the kind of datagram.
    assert!(found_again > 300, "{found_again}");
}

#[test]
fn most_datagrams_are_read_as_a_whole() {
    let bench = Bench::new(network(false));
    let frame = inner(A, B, 0b1011_1010, b"data");
    for (class, is_plain) in [(0, true), (0b10, true), (0b01, false), (0b11, false)] {
        let packet = bench.packet(0, &datagram(2, VNI, class, &frame));
        assert_eq!(
            plain::look(&packet),
            general(packet).map(|(plain, _)| plain).filter(|_| is_plain),
            "{class}"
        );
    }
    let with_checksum = bench.packet(0, &tunnelled(2, VNI, 0, &frame));
    assert_eq!(plain::look(&with_checksum), None);
    let mut known = bench.packet(0, &datagram(2, VNI, 0, &frame));
    known.set_checksum(Checksum::Good);
    assert_eq!(plain::look(&known), None);
    known.forget_contents();
    assert!(plain::look(&known).is_some());
    let mut tagged = known;
    tagged.set_vlan(Vlan::Stripped(VlanTci { control: 7, is_service: false }));
    assert_eq!(plain::look(&tagged), None);
}

/// All that the gateway looks at behind that, each with what has to come of it.
#[test]
fn the_gateway_takes_what_is_all_right_and_names_the_rest() {
    let frame = inner(B, A, 0, b"answer");
    let local_is_remote =
        OverlayConfig { remotes: vec![[192, 0, 2, 2].into(), [192, 0, 2, 1].into()], ..network(false) };
    let cases: [(OverlayConfig, Vec<u8>, Option<Reason>); 5] = [
        (network(false), datagram(2, VNI, 0, &frame), None),
        (network(false), datagram(2, VNI + 1, 0, &frame), Some(Reason::UnknownNetwork)),
        (network(false), datagram(9, VNI, 0, &frame), Some(Reason::UnknownRemote)),
        (local_is_remote, datagram(1, VNI, 0, &frame), Some(Reason::Recursion)),
        (
            OverlayConfig { inner_checksums: true, ..network(false) },
            datagram(2, VNI, 0, &{
                let mut wrong = frame.clone();
                wrong[45] ^= 1;
                wrong
            }),
            Some(Reason::InnerChecksum),
        ),
    ];
    for (network, bytes, reason) in cases {
        let mut bench = Bench::new(network);
        bench.pass(1, &inner(A, MacAddress::BROADCAST, 0, b""));
        // What is behind the datagram goes.
        let [underlay, nothing, access, vlan] = bench.pass(0, &[&bytes[..], &[9; 5]].concat());
        let access_has = if reason.is_none() { vec![frame.clone()] } else { vec![] };
        assert_eq!((underlay.len(), nothing.len(), access, vlan.len()), (0, 0, access_has, 0), "{reason:?}");
        if let Some(reason) = reason {
            assert_eq!(bench.dropped(reason), 1, "{reason:?}");
        }
    }
    // Of another tunnel end's, or for another host, it is the forwarder's.
    let mut elsewhere = datagram(2, VNI, 0, &frame);
    elsewhere[33] = 77;
    mend(&mut elsewhere, 14);
    let mut other_host = datagram(2, VNI, 0, &frame);
    other_host[5] ^= 1;
    for bytes in [elsewhere, other_host] {
        let mut bench = Bench::new(network(false));
        assert_eq!(bench.pass(0, &bytes)[0], [&bytes[..]]);
    }
    // And by an access port it is a frame like any other.
    let mut bench = Bench::new(network(false));
    let bytes = datagram(2, VNI, 0, &frame);
    assert_eq!(bench.pass(1, &bytes)[0].len(), 2);
    assert_eq!(bench.counters.from_access(), 1);
}
