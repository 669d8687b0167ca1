//! The commonest datagram of a VXLAN tunnel, checked as a whole: IPv4 without options, UDP without a checksum, and inside an IPv4 packet without
//! options, whatever that carries. No tag, no fragment of the datagram, nothing left to hardware.
//!
//! Every field is at a fixed place then. So all of them are compared as numbers, with one branch for the lot, where a header at a time
//! would take a branch or two for each. What is not like that, or not right, goes by [`Outer`](crate::outer::Outer), which has names for
//! what is wrong and finds the same of the rest.

use warmlane_mem::Packet;
use warmlane_wire::{IpProtocol, MacAddress, checksum, ethernet, ipv4, vxlan};

use crate::encapsulation::OVER_IPV4;
use crate::inner_frame::InnerFrame;
use crate::outer::DATAGRAM;

/// Bytes of all headers up to the IPv4 header inside, and with it.
const HEADERS: usize = OVER_IPV4 + ethernet::HEADER_LENGTH + ipv4::HEADER_LENGTH;

type Headers = [u8; HEADERS];

/// What is to be known of such a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plain {
    pub(crate) destination_mac: MacAddress,
    /// The tunnel end that it is from.
    pub(crate) source: u32,
    /// The one that it is for: see [`end`].
    pub(crate) end: u64,
    /// The network's identifier.
    pub(crate) identifier: u32,
    /// Bytes of the frame inside.
    pub(crate) frame: usize,
    pub(crate) inside: InnerFrame,
}

/// An IPv4 address and a UDP port as one number.
#[inline(always)]
pub(crate) const fn end(address: u32, port: u16) -> u64 {
    (address as u64) << 16 | port as u64
}

#[inline(always)]
const fn half(bytes: &Headers, at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
const fn word(bytes: &Headers, at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// `Some` if these are headers of that kind, all of them right.
#[inline(always)]
pub(crate) fn look(packet: &Packet) -> Option<Plain> {
    const IP: usize = ethernet::HEADER_LENGTH;
    const UDP: usize = IP + ipv4::HEADER_LENGTH;
    const VXLAN: usize = OVER_IPV4 - vxlan::HEADER_LENGTH;
    const INNER_IP: usize = OVER_IPV4 + ethernet::HEADER_LENGTH;
    /// EtherType of IPv4, version and header length without options; behind them is the traffic class.
    const ETHERTYPE_VERSION: u32 = 0x0800_4500;
    const WITHOUT_CLASS: u32 = 0xffff_ff00;

    let bytes: &Headers = packet.data().first_chunk()?;
    let (outer, inner) = (bytes[IP..].first_chunk()?, bytes[INNER_IP..].first_chunk()?);
    let unlike = (word(bytes, IP - 2) ^ ETHERTYPE_VERSION) & WITHOUT_CLASS
        | (word(bytes, INNER_IP - 2) ^ ETHERTYPE_VERSION) & WITHOUT_CLASS
        // Fragment offset and "more fragments", and beside the TTL the protocol.
        | (word(bytes, IP + 6) ^ IpProtocol::UDP.0 as u32) & 0x3fff_00ff
        | u32::from(half(bytes, UDP + 6))
        // There is an identifier.
        | !word(bytes, VXLAN) & 0x0800_0000
        | u32::from(checksum::ipv4_header_sum20(outer) & checksum::ipv4_header_sum20(inner) ^ 0xffff);
    let total = usize::from(half(bytes, IP + 2));
    let datagram = usize::from(half(bytes, UDP + 4));
    let inner_total = usize::from(half(bytes, INNER_IP + 2));
    let fits = total + IP <= packet.packet_length()
        && datagram + ipv4::HEADER_LENGTH <= total
        && inner_total + ethernet::HEADER_LENGTH + DATAGRAM <= datagram
        && inner_total >= ipv4::HEADER_LENGTH;
    // What the outer header says of congestion says the inner one as well, or it says nothing (RFC 6040 section 4.2).
    let (class, congestion) = (bytes[INNER_IP + 1], bytes[IP + 1] & 3);
    let is_told = congestion == 0 || congestion == class & 3;
    if unlike != 0 || !fits || !is_told || packet.has_offloads() {
        return None;
    }
    let [a, b, c, d, e, f, ..] = *bytes;
    Some(Plain {
        destination_mac: MacAddress([a, b, c, d, e, f]),
        source: word(bytes, IP + 12),
        end: end(word(bytes, IP + 16), half(bytes, UDP + 2)),
        identifier: word(bytes, VXLAN + 4) >> 8,
        frame: datagram - DATAGRAM,
        inside: InnerFrame::with_ipv4(bytes[OVER_IPV4..].first_chunk()?, word(bytes, INNER_IP + 12), class),
    })
}
