//! What nearly all packets go through: one look that finds a plain packet right in every respect, one that rewrites it.
//!
//! A check here says "plain and right" or "not so sure"; it never says why. Whatever isn't sure takes the long way
//! (`validate`), which finds the reason. So the conditions are collected without branching between them.

#![expect(clippy::needless_bitwise_bool, reason = "conditions are collected without branching between them")]

use warmlane_wire::checksum::ipv4_header_sum20;
use warmlane_wire::martian::{
    ipv4_destination_is_martian, ipv4_source_is_martian, ipv4_stays_on_link, ipv6_destination_is_martian,
    ipv6_source_is_martian, ipv6_stays_on_link,
};
use warmlane_wire::{EtherType, Ipv4Header, Ipv6Header, ethernet, ipv4, ipv6};

use crate::control::{Admission, Rewrite};

/// Bytes of an Ethernet header and a plain IPv4 header.
pub(super) const IPV4_HEADERS: usize = ethernet::HEADER_LENGTH + ipv4::HEADER_LENGTH;

/// Bytes of an Ethernet header and an IPv6 header.
pub(super) const IPV6_HEADERS: usize = ethernet::HEADER_LENGTH + ipv6::HEADER_LENGTH;

/// Frames up to this length may end in padding that isn't worth cutting off: the shortest Ethernet frame and a tag.
const PADDED: usize = 64;

/// Address to look up and length of the IP packet, in bytes.
pub(super) type Plain<A> = (A, u16);

/// Whether an IP packet of `length` fills the frame, or is short of it by padding only.
#[inline(always)]
fn fills(frame_length: usize, length: usize) -> bool {
    let end = ethernet::HEADER_LENGTH + length;
    (end == frame_length) | ((end < frame_length) & (frame_length <= PADDED))
}

/// Recognises an untagged IPv4 packet for us, without options, in one buffer, with TTL to spare, from and to ordinary
/// addresses, all of whose header is right.
#[inline(always)]
pub(super) fn plain_ipv4(
    headers: &[u8; IPV4_HEADERS],
    frame_length: usize,
    admission: Admission,
) -> Option<Plain<u32>> {
    let (link, _) = headers.split_first_chunk::<{ ethernet::HEADER_LENGTH }>()?;
    let header = headers.last_chunk::<{ ipv4::HEADER_LENGTH }>()?;
    let ip = Ipv4Header(header);
    let [a, b, c, d, e, f, g, h, _, _, _, _, high, low] = *link;
    let total = ip.total_length();
    let (source, destination) = (ip.source(), ip.destination());
    let plain = admission.admits(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
        & (u16::from_be_bytes([high, low]) == EtherType::IPV4.0)
        & (header[0] == 0x45)
        & (usize::from(total) >= ipv4::HEADER_LENGTH)
        & fills(frame_length, usize::from(total))
        & (ipv4_header_sum20(header) == 0xffff)
        & (ip.ttl() > 1)
        & !ipv4_source_is_martian(source)
        // Multicast isn't martian as a destination, but not plain either.
        & !ipv4_source_is_martian(destination)
        & !ipv4_destination_is_martian(destination)
        & !ipv4_stays_on_link(source)
        & !ipv4_stays_on_link(destination);
    plain.then_some((destination.to_bits(), total))
}

/// The same for IPv6; extension headers are not a router's business (RFC 8200 section 4).
#[inline(always)]
pub(super) fn plain_ipv6(
    headers: &[u8; IPV6_HEADERS],
    frame_length: usize,
    admission: Admission,
) -> Option<Plain<[u8; 16]>> {
    let (link, _) = headers.split_first_chunk::<{ ethernet::HEADER_LENGTH }>()?;
    let header = headers.last_chunk::<{ ipv6::HEADER_LENGTH }>()?;
    let ip = Ipv6Header(header);
    let [a, b, c, d, e, f, g, h, _, _, _, _, high, low] = *link;
    let total = ipv6::HEADER_LENGTH + usize::from(ip.payload_length());
    let (source, destination) = (ip.source(), ip.destination());
    let plain = admission.admits(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
        & (u16::from_be_bytes([high, low]) == EtherType::IPV6.0)
        & (header[0] >> 4 == 6)
        // Zero may stand for a jumbogram's length; leave it to who looks closer.
        & (total > ipv6::HEADER_LENGTH)
        & fills(frame_length, total)
        & (ip.hop_limit() > 1)
        & !ipv6_source_is_martian(source)
        & !ipv6_destination_is_martian(destination)
        & !destination.is_multicast()
        & !ipv6_stays_on_link(source)
        & !ipv6_stays_on_link(destination);
    // Above 65,534 there is no link that carries it as it is.
    plain.then_some((destination.octets(), total.min(usize::from(u16::MAX)) as u16))
}

/// Sends a plain IPv4 packet on: new addresses, one off the TTL, checksum corrected for it (RFC 1624).
#[inline(always)]
pub(super) fn rewrite_ipv4(headers: &mut [u8; IPV4_HEADERS], rewrite: &Rewrite) {
    let Some((link, rest)) = headers.split_first_chunk_mut() else { return };
    ethernet::set_addresses(link, &rewrite.addresses);
    if let Some(header) = rest.first_chunk_mut() {
        ipv4::decrement_ttl(header);
    }
}

/// Sends an IPv6 packet on: new addresses, one off the hop limit.
#[inline(always)]
pub(super) fn rewrite_ipv6(headers: &mut [u8; IPV6_HEADERS], rewrite: &Rewrite) {
    let Some((link, rest)) = headers.split_first_chunk_mut() else { return };
    ethernet::set_addresses(link, &rewrite.addresses);
    if let Some(header) = rest.first_chunk_mut() {
        ipv6::decrement_hop_limit(header);
    }
}
