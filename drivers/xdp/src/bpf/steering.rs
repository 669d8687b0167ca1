//! The XDP programs: which packets come to us, and which stay with the kernel.
//!
//! Whatever a program is not sure about stays with the kernel: so does every packet of a receive queue that has no
//! socket, and all of them once our sockets are gone.

use super::assembler::{Assembler, BadLabel, If, Instruction, Register, Width};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, Ipv6Addr};

use Register::{R0, R1, R2, R3, R6, R7, R8, R9};
use Width::{Byte, Half, Word};

/// Fields of `struct xdp_md` (`include/uapi/linux/bpf.h`).
pub(super) const CONTEXT_DATA: i16 = 0;
pub(super) const CONTEXT_DATA_END: i16 = 4;
pub(super) const CONTEXT_QUEUE: i16 = 16;

/// Helpers of the kernel (`include/uapi/linux/bpf.h: BPF_FUNC_map_lookup_elem, BPF_FUNC_redirect_map`).
pub(super) const MAP_LOOKUP: i32 = 1;
pub(super) const REDIRECT_MAP: i32 = 51;

/// `BPF_FUNC_redirect`, and its flag `BPF_F_INGRESS`: to the entrance of an interface, not out of it.
pub(super) const REDIRECT: i32 = 23;
pub(super) const INTO: i32 = 1;

/// `enum xdp_action`: give the packet to the kernel.
pub(super) const XDP_PASS: i32 = 2;

/// Bytes of an Ethernet header, and of each VLAN tag (IEEE 802.1Q clause 9).
const ETHERNET: i32 = 14;
const TAG: i32 = 4;

/// Types of frames (IANA, "IEEE 802 Numbers").
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const CUSTOMER_TAG: u16 = 0x8100;

/// What packets come to the sockets.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Steering {
    /// What passes through the box, and nothing else. For the box itself, and hence the kernel's: everything to a group
    /// (ARP requests, neighbour discovery, OSPF, IS-IS, LLDP), to another Ethernet address than the interface's own (macvlan
    /// interfaces on it, virtual machines, VLANs with Ethernet addresses of their own), everything that is not IP or has
    /// another tag than one of IEEE 802.1Q, all that goes to one of the kernel's addresses (see
    /// [`LocalFilter`](crate::LocalFilter)) or a link-local one.
    Transit,
    /// Everything that comes in.
    #[default]
    All,
    /// Nothing: the port only sends, and the kernel goes on receiving.
    None,
}

/// The maps that a program refers to, by their file descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maps {
    /// The sockets, by receive queue.
    pub(crate) sockets: i32,
    /// The interface's Ethernet address, and a byte each that says whether IPv4 and IPv6 stay with the kernel.
    pub(crate) mac: i32,
    /// The kernel's addresses.
    pub(crate) ipv4: i32,
    pub(crate) ipv6: i32,
}

/// Families of which all packets stay with the kernel, whoever they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftFamilies {
    /// IPv4.
    pub ipv4: bool,
    /// IPv6.
    pub ipv6: bool,
}

/// The only value of the map [`Maps::mac`].
pub(crate) fn own_value([a, b, c, d, e, f]: [u8; 6], left: LeftFamilies) -> [u8; 8] {
    [a, b, c, d, e, f, u8::from(left.ipv4), u8::from(left.ipv6)]
}

const IPV4_IS_LEFT: i16 = 6;
const IPV6_IS_LEFT: i16 = 7;

/// What can be chosen about a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) steering: Steering,
    /// Packets whose time to live ends here stay with the kernel, which answers them.
    pub(crate) pass_expiring: bool,
    /// What becomes of a packet whose receive queue has no socket. Tests choose something else than the default to
    /// see what would have been redirected.
    pub(crate) without_socket: i32,
}

impl Choice {
    pub(crate) const fn new(steering: Steering, pass_expiring: bool) -> Self {
        Self { steering, pass_expiring, without_socket: XDP_PASS }
    }
}

/// A number in network byte order, as a load from the packet gives it.
const fn network(value: u16) -> i32 {
    value.to_be() as i32
}

/// Assembles the program.
///
/// # Errors
/// Never; the labels are all placed.
pub(crate) fn program(choice: Choice, maps: Maps) -> Result<Vec<Instruction>, BadLabel> {
    let mut code = Assembler::default();
    if choice.steering == Steering::None {
        code.set(R0, XDP_PASS);
        code.exit();
        return code.finish();
    }
    code.copy(R9, R1);
    if choice.steering == Steering::Transit {
        let (pass, redirect) = (code.label(), code.label());
        steer(&mut code, choice, maps, pass, redirect);
        code.place(pass);
        code.set(R0, XDP_PASS);
        code.exit();
        code.place(redirect);
    }
    // return bpf_redirect_map(sockets, context->rx_queue_index, without_socket)
    code.map(R1, maps.sockets);
    code.load(Word, R2, R9, CONTEXT_QUEUE);
    code.set(R3, choice.without_socket);
    code.call(REDIRECT_MAP);
    code.exit();
    code.finish()
}

/// Assembles the program that leads all packets into the interface of this number.
///
/// # Errors
/// Never; it has no labels.
pub(crate) fn redirection(into: u32) -> Result<Vec<Instruction>, BadLabel> {
    let mut code = Assembler::default();
    // return bpf_redirect(into, BPF_F_INGRESS)
    code.set(R1, into.cast_signed());
    code.set(R2, INTO);
    code.call(REDIRECT);
    code.exit();
    code.finish()
}

/// Jumps to `pass` or `redirect`. R6 is where parsing has come to, R7 the packet's end, R8 the type of what follows. R1 is the interface's
/// own value, up to the first call.
fn steer(
    code: &mut Assembler,
    choice: Choice,
    maps: Maps,
    pass: super::assembler::Label,
    redirect: super::assembler::Label,
) {
    code.load(Word, R6, R9, CONTEXT_DATA);
    code.load(Word, R7, R9, CONTEXT_DATA_END);
    need(code, ETHERNET, pass);
    // To a group (IEEE 802, the first bit sent): broadcasts and multicasts of all protocols.
    code.load(Byte, R3, R6, 0);
    code.and(R3, 1);
    code.jump_if(R3, If::NotEqual, 0, pass);
    // To another Ethernet address: an interface on this one with an address of its own, a virtual machine, or another host, if
    // somebody listens to all.
    code.value(R1, maps.mac);
    for (width, offset) in [(Word, 0), (Half, 4)] {
        code.load(width, R2, R6, offset);
        code.load(width, R3, R1, offset);
        code.jump_if_register(R2, If::NotEqual, R3, pass);
    }
    code.load(Half, R8, R6, 12);
    code.add(R6, ETHERNET);

    // Behind a second tag, or a provider's, are interfaces that we know nothing of.
    let untagged = code.label();
    code.jump_if(R8, If::NotEqual, network(CUSTOMER_TAG), untagged);
    need(code, TAG, pass);
    code.load(Half, R8, R6, 2);
    code.add(R6, TAG);
    code.place(untagged);
    let ipv6 = code.label();
    code.jump_if(R8, If::Equal, network(IPV6), ipv6);
    code.jump_if(R8, If::NotEqual, network(IPV4), pass);

    let stays = |code: &mut Assembler, is_left_at| {
        code.load(Byte, R3, R1, is_left_at);
        code.jump_if(R3, If::NotEqual, 0, pass);
    };
    // IPv4 (RFC 791, 3.1): time to live at 8, destination at 16.
    stays(code, IPV4_IS_LEFT);
    need(code, 20, pass);
    let expires = |code: &mut Assembler, lifetime_at| {
        if choice.pass_expiring {
            code.load(Byte, R3, R6, lifetime_at);
            code.jump_if(R3, If::LessOrEqual, 1, pass);
        }
    };
    expires(code, 8);
    code.load(Byte, R3, R6, 16);
    // This network, loopback (RFC 6890), groups and what was never assigned, with the limited broadcast.
    code.jump_if(R3, If::Equal, 0, pass);
    code.jump_if(R3, If::Equal, 127, pass);
    code.jump_if(R3, If::GreaterOrEqual, 224, pass);
    // Link-local (RFC 3927): never forwarded.
    code.load(Half, R3, R6, 16);
    code.jump_if(R3, If::Equal, network(0xa9fe), pass);
    lookup(code, maps.ipv4, 16, pass);
    code.jump(redirect);

    // IPv6 (RFC 8200, 3): hop limit at 7, source at 8, destination at 24.
    code.place(ipv6);
    stays(code, IPV6_IS_LEFT);
    need(code, 40, pass);
    expires(code, 7);
    code.load(Byte, R3, R6, 24);
    code.jump_if(R3, If::Equal, 0xff, pass);
    // Link-local, either end (RFC 4291, 2.5.6): never forwarded.
    for address in [8, 24] {
        code.load(Half, R3, R6, address);
        code.and(R3, network(0xffc0));
        code.jump_if(R3, If::Equal, network(0xfe80), pass);
    }
    lookup(code, maps.ipv6, 24, pass);
    code.jump(redirect);
}

/// Jumps to `pass` unless `bytes` more bytes are there. The kernel's verifier insists on this before each access.
fn need(code: &mut Assembler, bytes: i32, pass: super::assembler::Label) {
    code.copy(R2, R6);
    code.add(R2, bytes);
    code.jump_if_register(R2, If::Greater, R7, pass);
}

/// Jumps to `pass` if the address at `offset` is in the map.
fn lookup(code: &mut Assembler, map: i32, offset: i32, pass: super::assembler::Label) {
    code.map(R1, map);
    // The packet itself is the key: helpers may read packets that were checked for length.
    code.copy(R2, R6);
    code.add(R2, offset);
    code.call(MAP_LOOKUP);
    code.jump_if(R0, If::NotEqual, 0, pass);
}

/// An address as the key of a map.
pub(crate) const fn ipv4_key(address: Ipv4Addr) -> [u8; 4] {
    address.octets()
}

/// The same for IPv6.
pub(crate) const fn ipv6_key(address: Ipv6Addr) -> [u8; 16] {
    address.octets()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::interpreter::{Machine, Outcome};
    use super::*;
    use proptest::prelude::*;

    pub(crate) const MAPS: Maps = Maps { sockets: 101, mac: 102, ipv4: 104, ipv6: 106 };
    const SERVICE_TAG: u16 = 0x88a8;
    const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const OURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const OURS_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1);

    fn run(steering: Steering, pass_expiring: bool, frame: &[u8]) -> Outcome {
        let program = program(Choice::new(steering, pass_expiring), MAPS).unwrap();
        let mut machine = Machine::new(3, own_value(OWN_MAC, LeftFamilies::default()));
        machine.insert(MAPS.ipv4, &ipv4_key(OURS));
        machine.insert(MAPS.ipv6, &ipv6_key(OURS_6));
        machine.run(&program, frame)
    }

    const REDIRECTED: Outcome = Outcome::Redirected { map: MAPS.sockets, key: 3 };
    const PASSED: Outcome = Outcome::Returned(XDP_PASS as u64);

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
        let far = Ipv4Addr::new(203, 0, 113, 7);
        let far_6: Ipv6Addr = "2001:db8:9::7".parse().unwrap();
        for tags in [&[][..], &[CUSTOMER_TAG]] {
            let packet = frame(tags, IPV4, &ipv4(far, 64));
            assert_eq!(run(Steering::Transit, true, &packet), REDIRECTED, "{tags:x?}");
            let packet = frame(tags, IPV6, &ipv6(OURS_6, far_6, 64));
            assert_eq!(run(Steering::Transit, true, &packet), REDIRECTED, "{tags:x?}");
        }
    }

    #[test]
    fn what_is_for_the_box_itself_passes() {
        let far_6: Ipv6Addr = "2001:db8:9::7".parse().unwrap();
        let link_local: Ipv6Addr = "fe80::1".parse().unwrap();
        let mut packets = vec![
            frame(&[], 0x0806, &[0; 28]),
            frame(&[], 0x88cc, &[0; 40]),
            // IS-IS: a length, not a type.
            frame(&[], 60, &[0xfe, 0xfe, 3]),
        ];
        for tags in [&[SERVICE_TAG][..], &[SERVICE_TAG, CUSTOMER_TAG], &[CUSTOMER_TAG; 2]] {
            packets.push(frame(tags, IPV4, &ipv4(Ipv4Addr::new(203, 0, 113, 7), 64)));
            packets.push(frame(tags, IPV6, &ipv6(far_6, far_6, 64)));
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
            (far_6, OURS_6),
            (far_6, link_local),
            (link_local, far_6),
            (far_6, "febf::1".parse().unwrap()),
            (far_6, "ff02::5".parse().unwrap()),
        ] {
            packets.push(frame(&[], IPV6, &ipv6(from, to, 64)));
            packets.push(frame(&[CUSTOMER_TAG], IPV6, &ipv6(from, to, 64)));
        }
        let mut group = frame(&[], IPV4, &ipv4(Ipv4Addr::new(203, 0, 113, 7), 64));
        group[0] = 1;
        packets.push(group);
        for packet in packets {
            assert_eq!(run(Steering::Transit, false, &packet), PASSED, "{packet:x?}");
            assert_eq!(run(Steering::All, false, &packet), REDIRECTED);
            assert_eq!(run(Steering::None, false, &packet), PASSED);
        }
    }

    #[test]
    fn a_family_can_be_left() {
        let [four, six] = [
            (IPV4, ipv4(Ipv4Addr::new(203, 0, 113, 7), 64)),
            (IPV6, ipv6(OURS_6, "2001:db8:9::7".parse().unwrap(), 64)),
        ]
        .map(|(kind, payload)| frame(&[CUSTOMER_TAG], kind, &payload));
        let program = program(Choice::new(Steering::Transit, false), MAPS).unwrap();
        for (is_left, outcome) in [(false, REDIRECTED), (true, PASSED)] {
            let left = LeftFamilies { ipv4: is_left, ipv6: false };
            let mut machine = Machine::new(3, own_value(OWN_MAC, left));
            assert_eq!([machine.run(&program, &four), machine.run(&program, &six)], [outcome, REDIRECTED]);
            let left = LeftFamilies { ipv4: false, ipv6: is_left };
            let mut machine = Machine::new(3, own_value(OWN_MAC, left));
            assert_eq!([machine.run(&program, &four), machine.run(&program, &six)], [REDIRECTED, outcome]);
        }
    }

    /// Each byte of the address counts.
    #[test]
    fn what_is_for_another_mac_passes() {
        let far = Ipv4Addr::new(203, 0, 113, 7);
        for tags in [&[][..], &[CUSTOMER_TAG]] {
            let ours = frame(tags, IPV4, &ipv4(far, 64));
            assert_eq!(run(Steering::Transit, false, &ours), REDIRECTED);
            for index in 0..6 {
                let mut other = ours.clone();
                other[index] ^= 0x40;
                assert_eq!(run(Steering::Transit, false, &other), PASSED, "{index}");
                assert_eq!(run(Steering::All, false, &other), REDIRECTED);
            }
        }
    }

    #[test]
    fn whoever_answers_expiring_packets_gets_them() {
        let far = Ipv4Addr::new(203, 0, 113, 7);
        let far_6: Ipv6Addr = "2001:db8:9::7".parse().unwrap();
        for packet in [
            frame(&[], IPV4, &ipv4(far, 1)),
            frame(&[], IPV4, &ipv4(far, 0)),
            frame(&[CUSTOMER_TAG], IPV6, &ipv6(far_6, far_6, 1)),
        ] {
            assert_eq!(run(Steering::Transit, true, &packet), PASSED);
            assert_eq!(run(Steering::Transit, false, &packet), REDIRECTED);
        }
        assert_eq!(run(Steering::Transit, true, &frame(&[], IPV4, &ipv4(far, 2))), REDIRECTED);
    }

    proptest! {
        /// Whatever comes, cut anywhere: the program ends, reads nothing outside, and decides one way or the other.
        #[test]
        fn no_frame_confuses_it(
            tags in prop::collection::vec(prop::sample::select(&[CUSTOMER_TAG, SERVICE_TAG][..]), 0..4),
            kind in prop::sample::select(&[IPV4, IPV6, 0x0806][..]),
            payload in prop::collection::vec(any::<u8>(), 0..64),
            length in 0_usize..90,
        ) {
            let mut packet = frame(&tags, kind, &payload);
            packet.truncate(length);
            let outcome = run(Steering::Transit, true, &packet);
            prop_assert!(outcome == PASSED || outcome == REDIRECTED, "{:?}", outcome);
            // Nothing too short to be forwarded is taken from the kernel.
            prop_assert!(outcome == PASSED || packet.len() >= 34);
        }
    }
}
