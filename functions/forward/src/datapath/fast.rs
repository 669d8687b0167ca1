//! What nearly all packets go through: one look that finds a plain packet right in every respect, one that rewrites it.
//!
//! A check here says "plain and right" or "not so sure"; it never says why. Whatever isn't sure takes the long way
//! (`validate`), which finds the reason. Each condition is a compare and a branch that is practically never taken,
//! which is cheaper than collecting them. Reads are of whole words at fixed offsets: bytes 14, 18, .. of the frame are
//! the words of the IPv4 header, so that what the checksum sums is what the other checks look at.

use std::net::{Ipv4Addr, Ipv6Addr};

use warmlane_wire::martian::{
    ipv4_destination_is_martian, ipv4_source_is_martian, ipv4_stays_on_link, ipv6_destination_is_martian,
    ipv6_source_is_martian, ipv6_stays_on_link,
};
use warmlane_wire::{Ipv6Header, ethernet, ipv4, ipv6};

use super::scratch::Plain;
use crate::control::{Admission, Rewrite};

/// Bytes of an Ethernet header and a plain IPv4 header.
pub(super) const IPV4_HEADERS: usize = ethernet::HEADER_LENGTH + ipv4::HEADER_LENGTH;

/// Bytes of an Ethernet header and an IPv6 header.
pub(super) const IPV6_HEADERS: usize = ethernet::HEADER_LENGTH + ipv6::HEADER_LENGTH;

/// Frames up to this length may end in padding that isn't worth cutting off: the shortest Ethernet frame and a tag.
pub(super) const PADDED: usize = 64;

/// EtherType IPv4 and the first byte of a header without options, in the order of the wire.
const IPV4_START: u32 = u32::from_le_bytes([0x08, 0x00, 0x45, 0]);

/// The bits of a word that [`IPV4_START`] is about; the fourth byte is the traffic class.
const IPV4_START_MASK: u32 = u32::from_le_bytes([0xff, 0xff, 0xff, 0]);

/// The header after the fixed one that is for routers (RFC 8200 section 4.3).
const HOP_BY_HOP: u8 = warmlane_wire::IpProtocol::HOP_BY_HOP.0;

/// EtherType IPv6 and the version.
const IPV6_START: u32 = u32::from_le_bytes([0x86, 0xdd, 0x60, 0]);

/// The bits of a word that [`IPV6_START`] is about; the others are traffic class.
const IPV6_START_MASK: u32 = u32::from_le_bytes([0xff, 0xff, 0xf0, 0]);

/// First bytes of IPv4 addresses of which some, or all, are not plain.
pub(super) static SPECIAL_FIRST_BYTE: [bool; 256] = {
    let mut special = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let network = Ipv4Addr::new(byte as u8, 0, 0, 0);
        let link_local = Ipv4Addr::new(byte as u8, 254, 0, 0);
        special[byte] = ipv4_source_is_martian(network) || ipv4_stays_on_link(link_local);
        byte += 1;
    }
    special
};

/// `N` bytes of a frame from an offset that is known at compile time, so that nothing is left to check at run time.
#[inline(always)]
pub(super) fn bytes_at<const AT: usize, const N: usize>(frame: &[u8]) -> [u8; N] {
    match frame.split_at_checked(AT).and_then(|(_, rest)| rest.first_chunk()) {
        Some(bytes) => *bytes,
        None => [0; N],
    }
}

/// Four bytes of a frame, first byte lowest.
#[inline(always)]
fn word<const AT: usize>(frame: &[u8]) -> u32 {
    u32::from_le_bytes(bytes_at::<AT, 4>(frame))
}

/// The eight bytes that a frame starts with: the destination, which [`Admission::admits`] looks at, and more.
#[inline(always)]
pub(super) fn first_bytes(frame: &[u8]) -> u64 {
    u64::from_le_bytes(bytes_at::<0, 8>(frame))
}

/// The multiplicative inverse of 0xffff modulo 2^64.
const INVERSE: u64 = 0xfffe_fffe_fffe_ffff;

/// Whether a number is a multiple of 0xffff: such numbers, and only they, become small when divided this way.
#[inline(always)]
fn is_ones_complement_zero(sum: u64) -> bool {
    sum.wrapping_mul(INVERSE) <= u64::MAX / 0xffff
}

/// Whether a packet that ends after `end` bytes fills the frame, or is short of it by padding only. The frame holds at
/// least `headers`; so must the packet.
#[inline(always)]
fn fills(frame_length: usize, end: usize, headers: usize) -> bool {
    end == frame_length || (end < frame_length && frame_length <= PADDED && end >= headers)
}

/// Recognises an untagged IPv4 packet for us, without options, in one buffer, with TTL to spare, from and to ordinary
/// addresses, all of whose header is right.
#[inline(always)]
pub(super) fn plain_ipv4(
    headers: &[u8; IPV4_HEADERS],
    frame_length: usize,
    admission: Admission,
) -> Option<Plain<u32, u32>> {
    let start = word::<12>(headers);
    let words = [
        word::<14>(headers),
        word::<18>(headers),
        word::<22>(headers),
        word::<26>(headers),
        word::<30>(headers),
    ];
    let [first, second, ttl_and_checksum, source, destination] = words;
    let sum = u64::from(first)
        + u64::from(second)
        + u64::from(ttl_and_checksum)
        + u64::from(source)
        + u64::from(destination);
    let total = ((first >> 16) as u16).swap_bytes();
    let plain = admission.admits(first_bytes(headers))
        && start & IPV4_START_MASK == IPV4_START
        && fills(frame_length, ethernet::HEADER_LENGTH + usize::from(total), IPV4_HEADERS)
        // The ones' complement sum of a right header is 0xffff, which is zero modulo 0xffff, in any byte order and
        // in words of any multiple of 16 bits (RFC 1071 section 2). A header isn't all zero: it starts with 0x45.
        && is_ones_complement_zero(sum)
        // A TTL above 1: the word's lowest byte.
        && ttl_and_checksum & 0xfe != 0
        && (!(SPECIAL_FIRST_BYTE[(source & 0xff) as usize] | SPECIAL_FIRST_BYTE[(destination & 0xff) as usize])
            || ordinary_ipv4(source, destination));
    plain.then_some(Plain {
        address: destination.swap_bytes(),
        length: total,
        lifetime: decremented(ttl_and_checksum),
    })
}

/// Whether these addresses, whose first bytes raised doubts, are ordinary all the same.
#[cold]
pub(super) fn ordinary_ipv4(source: u32, destination: u32) -> bool {
    let (source, destination) =
        (Ipv4Addr::from_bits(source.swap_bytes()), Ipv4Addr::from_bits(destination.swap_bytes()));
    !ipv4_source_is_martian(source)
        && !ipv4_stays_on_link(source)
        && !ipv4_destination_is_martian(destination)
        && !ipv4_stays_on_link(destination)
        && !destination.is_multicast()
}

/// The same for IPv6; extension headers are not a router's business (RFC 8200 section 4).
#[inline(always)]
pub(super) fn plain_ipv6(
    headers: &[u8; IPV6_HEADERS],
    frame_length: usize,
    admission: Admission,
) -> Option<Plain<[u8; 16], ()>> {
    let payload = u16::from_be_bytes([headers[18], headers[19]]);
    // Outside these lie `::`, `::1` and mapped addresses at one end, link-local ones and groups at the other.
    let doubtful = |first: u8| first.wrapping_sub(1) >= 0xfd;
    let plain = admission.admits(first_bytes(headers))
        && word::<12>(headers) & IPV6_START_MASK == IPV6_START
        // Options for routers, which a jumbogram has as well: leave them to who looks closer.
        && headers[20] != HOP_BY_HOP
        && fills(frame_length, IPV6_HEADERS + usize::from(payload), IPV6_HEADERS)
        && headers[21] > 1
        && (!(doubtful(headers[22]) || doubtful(headers[38])) || ordinary_ipv6(headers));
    let (_, destination) = headers.split_last_chunk()?;
    // Above 65,534 bytes there is no link that carries it as it is.
    let length = payload.saturating_add(ipv6::HEADER_LENGTH as u16);
    plain.then_some(Plain { address: *destination, length, lifetime: () })
}

/// Whether addresses whose first bytes raised doubts are ordinary all the same.
#[cold]
fn ordinary_ipv6(headers: &[u8; IPV6_HEADERS]) -> bool {
    let Some(header) = headers.last_chunk() else { return false };
    let (source, destination): (Ipv6Addr, Ipv6Addr) =
        (Ipv6Header(header).source(), Ipv6Header(header).destination());
    !ipv6_source_is_martian(source)
        && !ipv6_stays_on_link(source)
        && !ipv6_destination_is_martian(destination)
        && !ipv6_stays_on_link(destination)
        && !destination.is_multicast()
}

/// Replaces the two Ethernet addresses.
#[inline(always)]
fn set_addresses<const N: usize>(headers: &mut [u8; N], rewrite: &Rewrite) {
    if let Some((start, rest)) = headers.split_first_chunk_mut()
        && let Some(end) = rest.first_chunk_mut()
    {
        (*start, *end) = rewrite.addresses();
    }
}

/// Sends a plain IPv4 packet on: new addresses, and the word that pass one made of TTL, protocol and checksum.
#[inline(always)]
pub(super) fn rewrite_ipv4(headers: &mut [u8; IPV4_HEADERS], rewrite: &Rewrite, lifetime: u32) {
    set_addresses(headers, rewrite);
    if let Some((_, word)) = headers[..26].split_last_chunk_mut::<4>() {
        *word = lifetime.to_le_bytes();
    }
}

/// The word of TTL (lowest byte), protocol and checksum with a TTL of one less; the TTL isn't zero.
///
/// For that the checksum grows by 0x0100 (RFC 1624 equation 3). Its high byte comes first on the wire, so it is the
/// lower one here: a carry out of it runs on into the other byte, which is where ones' complement wants it.
#[inline(always)]
pub(super) fn decremented(word: u32) -> u32 {
    // Of the two zeros 0xffff is the one to avoid (RFC 1624 section 3), as it would carry once more.
    let positive = |word: u32| if word >= 0xffff_0000 { word & 0xffff } else { word };
    positive(positive(word).wrapping_add(0x0001_0000 - 1))
}

/// Sends an IPv6 packet on: new addresses, one off the hop limit.
#[inline(always)]
pub(super) fn rewrite_ipv6(headers: &mut [u8; IPV6_HEADERS], rewrite: &Rewrite) {
    set_addresses(headers, rewrite);
    headers[21] = headers[21].saturating_sub(1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_wire::checksum::ipv4_header_sum20;

    #[test]
    fn the_short_decrement_is_the_right_one() {
        for checksum in 0..=u16::MAX {
            for ttl in [1, 2, 64, 255] {
                let mut header = [0x45; ipv4::HEADER_LENGTH];
                header[8] = ttl;
                [header[10], header[11]] = checksum.to_be_bytes();
                let mut expected = header;
                ipv4::decrement_ttl(&mut expected);
                let word = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
                let bytes = decremented(word).to_le_bytes();
                // 0xffff and 0x0000 are the same number; the right one of the two is asked for where the header's
                // sum was right before.
                let canonical =
                    |bytes: [u8; 4]| if bytes[2..] == [0xff; 2] { [bytes[0], bytes[1], 0, 0] } else { bytes };
                let expected = [expected[8], expected[9], expected[10], expected[11]];
                assert_eq!(canonical(bytes), canonical(expected), "{checksum:#06x} {ttl}");
                assert_ne!(bytes[2..], [0xff; 2]);
            }
        }
    }

    #[test]
    fn the_short_sum_is_the_right_one() {
        let mut header = [0_u8; ipv4::HEADER_LENGTH];
        header[0] = 0x45;
        let mut state = 1_u64;
        for round in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            header[1 + (round % 19)] = (state >> 56) as u8;
            if round % 2 == 0 {
                let sum = warmlane_wire::checksum::ipv4_header_checksum20(&header);
                [header[10], header[11]] = sum.to_be_bytes();
            }
            let mut frame = [0; IPV4_HEADERS];
            frame[12..14].copy_from_slice(&[8, 0]);
            frame[14..].copy_from_slice(&header);
            let words =
                [14, 18, 22, 26, 30].map(|at| u32::from_le_bytes(*frame[at..].first_chunk().unwrap()));
            let sum: u64 = words.into_iter().map(u64::from).sum();
            assert_eq!(is_ones_complement_zero(sum), ipv4_header_sum20(&header) == 0xffff);
        }
    }
}
