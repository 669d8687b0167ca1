//! What the kernel, which runs the programs, decides about packets.

use std::cell::RefCell;
use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use rustix::net::{AddressFamily, SocketType};

use super::*;

/// Types of frames (IANA, "IEEE 802 Numbers").
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const CUSTOMER_TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;

/// `enum xdp_action`
const PASSED: u32 = 2;
const REDIRECTED: u32 = 4;

const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OURS_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);
const FAR_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 7);

/// A program whose first queue has a socket.
struct Bench {
    program: Program,
    _socket: OwnedFd,
}

impl Bench {
    fn new(steering: Steering, pass_expiring: bool, fragments: bool) -> Self {
        let program = Program::new(steering, pass_expiring, 4, fragments).unwrap();
        program.set_own(OWN_MAC, LeftFamilies::default()).unwrap();
        program.set_address(OURS.into(), Some(TunnelEnds::default())).unwrap();
        program.set_address(OURS_6.into(), Some(TunnelEnds::default())).unwrap();
        let socket = rustix::net::socket(AddressFamily::XDP, SocketType::RAW, None).unwrap();
        program.set_socket(0, &socket).unwrap();
        Self { program, _socket: socket }
    }

    /// What becomes of a packet of the first queue.
    fn run(&mut self, frame: &[u8]) -> u32 {
        self.program.object.try_on(self.program.name, frame).unwrap()
    }
}

/// All kinds: transit, with and without expiring packets; all; none.
struct Benches {
    transit: Bench,
    passing_expiring: Bench,
    all: Bench,
    none: Bench,
}

/// Each for packets of one buffer and of several.
fn benches() -> Vec<Benches> {
    if !warmlane_testkit::requirements::namespaces_and(&[]) {
        return Vec::new();
    }
    let of = |fragments| Benches {
        transit: Bench::new(Steering::Transit, false, fragments),
        passing_expiring: Bench::new(Steering::Transit, true, fragments),
        all: Bench::new(Steering::All, false, fragments),
        none: Bench::new(Steering::None, false, fragments),
    };
    vec![of(false), of(true)]
}

fn frame(tags: &[u16], kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = OWN_MAC.to_vec();
    frame.extend([2, 0, 0, 0, 0, 2]);
    for tag in tags {
        frame.extend(tag.to_be_bytes());
        frame.extend([0, 100]);
    }
    frame.extend(kind.to_be_bytes());
    frame.extend(payload);
    frame
}

fn ipv4(to: Ipv4Addr, time_to_live: u8) -> Vec<u8> {
    let mut packet = vec![0; 28];
    packet[0] = 0x45;
    packet[8] = time_to_live;
    packet[12..16].copy_from_slice(&[198, 51, 100, 9]);
    packet[16..20].copy_from_slice(&to.octets());
    packet
}

fn ipv6(from: Ipv6Addr, to: Ipv6Addr, hop_limit: u8) -> Vec<u8> {
    let mut packet = vec![0; 48];
    packet[0] = 0x60;
    packet[7] = hop_limit;
    packet[8..24].copy_from_slice(&from.octets());
    packet[24..40].copy_from_slice(&to.octets());
    packet
}

#[test]
fn what_is_forwarded_is_redirected() {
    for mut benches in benches() {
        for tags in [&[][..], &[CUSTOMER_TAG]] {
            for packet in [frame(tags, IPV4, &ipv4(FAR, 64)), frame(tags, IPV6, &ipv6(OURS_6, FAR_6, 64))] {
                assert_eq!(benches.passing_expiring.run(&packet), REDIRECTED, "{tags:x?}");
                assert_eq!(benches.transit.run(&packet), REDIRECTED, "{tags:x?}");
            }
        }
    }
}

#[test]
fn what_is_for_the_box_itself_passes() {
    let link_local: Ipv6Addr = "fe80::1".parse().unwrap();
    let mut packets = vec![
        frame(&[], 0x0806, &[0; 28]),
        frame(&[], 0x88cc, &[0; 40]),
        // IS-IS: a length, not a type.
        frame(&[], 60, &[0xfe, 0xfe, 3]),
    ];
    for tags in [&[SERVICE_TAG][..], &[SERVICE_TAG, CUSTOMER_TAG], &[CUSTOMER_TAG; 2]] {
        packets.push(frame(tags, IPV4, &ipv4(FAR, 64)));
        packets.push(frame(tags, IPV6, &ipv6(FAR_6, FAR_6, 64)));
    }
    for to in [
        OURS,
        Ipv4Addr::LOCALHOST,
        Ipv4Addr::UNSPECIFIED,
        Ipv4Addr::BROADCAST,
        Ipv4Addr::new(224, 0, 0, 5),
        Ipv4Addr::new(169, 254, 1, 2),
    ] {
        packets.push(frame(&[], IPV4, &ipv4(to, 64)));
        packets.push(frame(&[CUSTOMER_TAG], IPV4, &ipv4(to, 64)));
    }
    for (from, to) in [
        (FAR_6, OURS_6),
        (FAR_6, link_local),
        (link_local, FAR_6),
        (FAR_6, "febf::1".parse().unwrap()),
        (FAR_6, "ff02::5".parse().unwrap()),
    ] {
        packets.push(frame(&[], IPV6, &ipv6(from, to, 64)));
        packets.push(frame(&[CUSTOMER_TAG], IPV6, &ipv6(from, to, 64)));
    }
    let mut group = frame(&[], IPV4, &ipv4(FAR, 64));
    group[0] = 1;
    packets.push(group);
    // Cut in the middle of a header.
    let (whole, whole_6) =
        (frame(&[], IPV4, &ipv4(FAR, 64)), frame(&[CUSTOMER_TAG], IPV6, &ipv6(FAR_6, FAR_6, 64)));
    packets.extend([whole[..33].to_vec(), whole_6[..57].to_vec(), whole_6[..17].to_vec()]);
    for mut benches in benches() {
        for packet in &packets {
            assert_eq!(benches.transit.run(packet), PASSED, "{packet:x?}");
            assert_eq!(benches.all.run(packet), REDIRECTED);
            assert_eq!(benches.none.run(packet), PASSED);
        }
    }
}

/// Fragments, and what has options, are the kernel's in any case.
#[test]
fn what_is_of_tunnels_comes_to_sockets() {
    const UDP: u8 = 17;
    let packet = |protocol: u8, change: fn(&mut Vec<u8>)| {
        let mut packet = ipv4(OURS, 64);
        packet[9] = protocol;
        packet[22..24].copy_from_slice(&4789_u16.to_be_bytes());
        change(&mut packet);
        frame(&[], IPV4, &packet)
    };
    let unchanged: fn(&mut Vec<u8>) = |_| {};
    for Benches { mut transit, .. } in benches() {
        for ends in [
            TunnelEnds::default(),
            TunnelEnds { udp_ports: [4790, 4789], packets: false },
            TunnelEnds { udp_ports: [0; 2], packets: true },
        ] {
            transit.program.set_address(OURS.into(), Some(ends)).unwrap();
            for (protocol, is_tunnelled) in [
                (UDP, ends.udp_ports[1] == 4789),
                (4, ends.packets),
                (41, ends.packets),
                (47, ends.packets),
                (6, false),
                (50, false),
            ] {
                let expected = if is_tunnelled { REDIRECTED } else { PASSED };
                assert_eq!(transit.run(&packet(protocol, unchanged)), expected, "{ends:?} {protocol}");
                assert_eq!(transit.run(&packet(protocol, |packet| packet[6] = 0x20)), PASSED);
                assert_eq!(transit.run(&packet(protocol, |packet| packet[0] = 0x46)), PASSED);
            }
        }
    }
}

#[test]
fn a_family_can_be_left() {
    let packets = [
        frame(&[CUSTOMER_TAG], IPV4, &ipv4(FAR, 64)),
        frame(&[CUSTOMER_TAG], IPV6, &ipv6(OURS_6, FAR_6, 64)),
    ];
    for Benches { mut transit, .. } in benches() {
        for (ipv4, ipv6) in [(false, false), (true, false), (false, true), (true, true)] {
            transit.program.set_own(OWN_MAC, LeftFamilies { ipv4, ipv6 }).unwrap();
            let expected = [ipv4, ipv6].map(|is_left| if is_left { PASSED } else { REDIRECTED });
            assert_eq!(packets.each_ref().map(|packet| transit.run(packet)), expected, "{ipv4} {ipv6}");
        }
    }
}

/// Each byte of the address counts.
#[test]
fn what_is_for_another_mac_passes() {
    for mut benches in benches() {
        for tags in [&[][..], &[CUSTOMER_TAG]] {
            let ours = frame(tags, IPV4, &ipv4(FAR, 64));
            assert_eq!(benches.transit.run(&ours), REDIRECTED);
            for index in 0..6 {
                let mut other = ours.clone();
                other[index] ^= 0x40;
                assert_eq!(benches.transit.run(&other), PASSED, "{index}");
                assert_eq!(benches.all.run(&other), REDIRECTED);
            }
        }
    }
}

#[test]
fn whoever_answers_expiring_packets_gets_them() {
    for mut benches in benches() {
        for packet in [
            frame(&[], IPV4, &ipv4(FAR, 1)),
            frame(&[], IPV4, &ipv4(FAR, 0)),
            frame(&[CUSTOMER_TAG], IPV6, &ipv6(FAR_6, FAR_6, 1)),
        ] {
            assert_eq!(benches.passing_expiring.run(&packet), PASSED);
            assert_eq!(benches.transit.run(&packet), REDIRECTED);
        }
        assert_eq!(benches.passing_expiring.run(&frame(&[], IPV4, &ipv4(FAR, 2))), REDIRECTED);
    }
}

/// What is set while a program runs counts from then on, each by itself.
#[test]
fn addresses_come_and_go() {
    for mut benches in benches() {
        let transit = &mut benches.passing_expiring;
        let packets = [frame(&[], IPV4, &ipv4(FAR, 64)), frame(&[], IPV6, &ipv6(FAR_6, FAR_6, 64))];
        for (packet, address) in packets.iter().zip([FAR.into(), FAR_6.into()]) {
            transit.program.set_address(address, Some(TunnelEnds::default())).unwrap();
            assert_eq!(transit.run(packet), PASSED, "{address}");
            transit.program.set_address(address, None).unwrap();
            // What is not there need not be taken away.
            transit.program.set_address(address, None).unwrap();
            assert_eq!(transit.run(packet), REDIRECTED, "{address}");
        }
        transit.program.set_own([2, 0, 0, 0, 0, 9], LeftFamilies::default()).unwrap();
        assert_eq!(transit.run(&packets[0]), PASSED);
        transit.program.set_own(OWN_MAC, LeftFamilies::default()).unwrap();
        assert_eq!(transit.run(&packets[0]), REDIRECTED);
        assert_eq!(transit.run(&frame(&[], IPV4, &ipv4(FAR, 1))), PASSED, "it still passes what expires");
    }
}

/// A queue without a socket is the kernel's.
#[test]
fn without_a_socket_all_pass() {
    if !warmlane_testkit::requirements::namespaces_and(&[]) {
        return;
    }
    for steering in [Steering::All, Steering::Transit] {
        let mut program = Program::new(steering, false, 4, false).unwrap();
        program.set_own(OWN_MAC, LeftFamilies::default()).unwrap();
        let result = program.object.try_on(program.name, &frame(&[], IPV4, &ipv4(FAR, 64))).unwrap();
        assert_eq!(result, PASSED, "{steering:?}");
    }
}

/// Whatever comes, cut anywhere: it is decided one way or the other.
#[test]
fn no_frame_confuses_it() {
    for mut benches in benches() {
        let transit = RefCell::new(&mut benches.passing_expiring);
        proptest!(|(
            tags in prop::collection::vec(prop::sample::select(&[CUSTOMER_TAG, SERVICE_TAG][..]), 0..4),
            kind in prop::sample::select(&[IPV4, IPV6, 0x0806][..]),
            payload in prop::collection::vec(any::<u8>(), 0..64),
            length in 14_usize..90,
        )| {
            let mut packet = frame(&tags, kind, &payload);
            packet.truncate(length);
            let outcome = transit.borrow_mut().run(&packet);
            prop_assert!(outcome == PASSED || outcome == REDIRECTED, "{}", outcome);
            // Nothing too short to be forwarded is taken from the kernel.
            prop_assert!(outcome == PASSED || packet.len() >= 34);
        });
    }
}

/// Also where the kernel has cut the name.
#[test]
fn programs_are_known_by_name() {
    for ours in ["warmlane_transi", "warmlane_all", "warmlane_all_fr", "warmlane_none"] {
        assert!(is_name_of_ours(ours), "{ours}");
    }
    for other in ["warmlane_xdp", "warmlane_al", "warmlane_transit", "xdp_pass", ""] {
        assert!(!is_name_of_ours(other), "{other}");
    }
}

/// `TC_ACT_REDIRECT`
const REDIRECTED_BUFFER: u32 = 7;

#[test]
fn packets_are_led_into_another_interface() {
    if !warmlane_testkit::requirements::namespaces_and(&[]) {
        return;
    }
    let (mut object, _map) = reentry(1).unwrap();
    assert_eq!(object.try_on(REENTER, &frame(&[], IPV4, &ipv4(FAR, 64))).unwrap(), REDIRECTED_BUFFER);
}
