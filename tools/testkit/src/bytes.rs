//! Packets as bytes, written down from the RFCs' diagrams without any of the project's own code, so that a test that
//! compares with them compares with something else.

use warmlane_sys::random::Random;

/// Ethernet type of IPv4.
pub const IPV4: u16 = 0x0800;
/// Ethernet type of IPv6.
pub const IPV6: u16 = 0x86dd;
/// Ethernet type of ARP.
pub const ARP: u16 = 0x0806;
/// Ethernet type of a customer VLAN tag.
pub const VLAN: u16 = 0x8100;
/// Ethernet type of a service VLAN tag.
pub const SERVICE_VLAN: u16 = 0x88a8;

/// Protocol number of ICMP.
pub const ICMP: u8 = 1;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
/// Protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;

/// The Internet checksum (RFC 1071).
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u64;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A frame: destination, source, tags, type, packet, zeros up to the 60 bytes that Ethernet wants.
pub fn frame(
    destination: [u8; 6],
    source: [u8; 6],
    tags: &[(u16, u16)],
    ethertype: u16,
    packet: &[u8],
) -> Vec<u8> {
    let mut frame = Vec::with_capacity(60.max(22 + packet.len()));
    frame.extend(destination);
    frame.extend(source);
    for (protocol, control) in tags {
        frame.extend(protocol.to_be_bytes());
        frame.extend(control.to_be_bytes());
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// Computes the header checksum of an IPv4 packet anew, as far as its header length makes sense.
pub fn seal_ipv4(packet: &mut [u8]) {
    let end = (usize::from(packet[0] & 0x0f) * 4).clamp(20, packet.len());
    packet[10..12].fill(0);
    let sum = checksum(&[&packet[..end]]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// An IPv4 packet with a random identification and type of service.
pub fn ipv4(
    random: &mut Random,
    source: u32,
    destination: u32,
    ttl: u8,
    protocol: u8,
    payload: &[u8],
) -> Vec<u8> {
    let mut packet = vec![0x45, random.bits() as u8];
    packet.extend((20 + payload.len() as u16).to_be_bytes());
    packet.extend((random.bits() as u16).to_be_bytes());
    packet.extend([0, 0, ttl, protocol, 0, 0]);
    packet.extend(source.to_be_bytes());
    packet.extend(destination.to_be_bytes());
    packet.extend(payload);
    seal_ipv4(&mut packet);
    packet
}

/// An IPv6 packet with a random traffic class and flow label.
pub fn ipv6(
    random: &mut Random,
    source: u128,
    destination: u128,
    hop_limit: u8,
    next_header: u8,
    payload: &[u8],
) -> Vec<u8> {
    let mut packet = (0x6000_0000 | random.bits() as u32 & 0x0fff_ffff).to_be_bytes().to_vec();
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next_header, hop_limit]);
    packet.extend(source.to_be_bytes());
    packet.extend(destination.to_be_bytes());
    packet.extend(payload);
    packet
}

/// The addresses that a transport checksum covers.
#[derive(Debug, Clone, Copy)]
pub enum Ends {
    /// Source and destination.
    Ipv4(u32, u32),
    /// Source and destination.
    Ipv6(u128, u128),
}

/// Computes the checksum at `offset` of a transport segment over pseudo header and segment.
pub fn seal_transport(ends: Ends, protocol: u8, segment: &mut [u8], offset: usize) {
    let length = (segment.len() as u32).to_be_bytes();
    let pseudo: Vec<u8> = match ends {
        Ends::Ipv4(source, destination) => [&source.to_be_bytes()[..], &destination.to_be_bytes()].concat(),
        Ends::Ipv6(source, destination) => [&source.to_be_bytes()[..], &destination.to_be_bytes()].concat(),
    };
    segment[offset..offset + 2].fill(0);
    let sum = checksum(&[&pseudo, &length, &[0, protocol], segment]);
    // Zero means "none" in UDP (RFC 768); the other protocols don't mind.
    let sum = if sum == 0 { 0xffff } else { sum };
    segment[offset..offset + 2].copy_from_slice(&sum.to_be_bytes());
}

/// A UDP datagram on random ports.
pub fn udp(random: &mut Random, ends: Ends, payload: &[u8]) -> Vec<u8> {
    let mut segment = (random.bits() as u32 | 0x0400_0400).to_be_bytes().to_vec();
    segment.extend((8 + payload.len() as u16).to_be_bytes());
    segment.extend([0, 0]);
    segment.extend(payload);
    seal_transport(ends, UDP, &mut segment, 6);
    segment
}

/// A TCP segment on random ports, with ACK set.
pub fn tcp(random: &mut Random, ends: Ends, payload: &[u8]) -> Vec<u8> {
    let mut segment = (random.bits() as u32 | 0x0400_0400).to_be_bytes().to_vec();
    segment.extend(random.bits().to_be_bytes());
    segment.extend([0x50, 0x10, 0x20, 0x00, 0, 0, 0, 0]);
    segment.extend(payload);
    seal_transport(ends, TCP, &mut segment, 16);
    segment
}

/// An ICMP message.
pub fn icmp(kind: u8, code: u8, rest: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(rest);
    message.extend(payload);
    let sum = checksum(&[&message]);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// An ICMPv6 message.
pub fn icmpv6(source: u128, destination: u128, kind: u8, rest: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0];
    message.extend(rest);
    message.extend(payload);
    seal_transport(Ends::Ipv6(source, destination), ICMPV6, &mut message, 2);
    message
}

/// An ARP packet (RFC 826) for Ethernet and IPv4.
pub fn arp(operation: u16, sender: ([u8; 6], u32), target: ([u8; 6], u32)) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4];
    packet.extend(operation.to_be_bytes());
    packet.extend(sender.0);
    packet.extend(sender.1.to_be_bytes());
    packet.extend(target.0);
    packet.extend(target.1.to_be_bytes());
    packet
}
