//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624).
//!
//! A ones' complement sum of 16-bit words doesn't depend on byte order except for one final swap (RFC 1071
//! section 2 (B)), so slices are summed as little-endian words wider than 16 bits ([`warmlane_sys::sum`]), and put in
//! network order once at the end. Results are host integers: store them with `to_be_bytes`.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::IpProtocol;

/// A ones' complement sum over bytes that may come in several pieces, of odd length too.
///
/// ```
/// use warmlane_wire::checksum::{Sum, checksum};
///
/// let bytes = [1, 2, 3, 4, 5];
/// let pieces = Sum::new().bytes(&bytes[..1]).bytes(&bytes[1..]);
/// assert_eq!(pieces.checksum(), checksum(&bytes));
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[must_use]
pub struct Sum {
    /// Sum of 16-bit words; folded only when asked for. 2^48 additions fit.
    words: u64,
    /// An odd number of bytes went in so far, so the next byte is the low half of a word.
    odd: bool,
}

impl Sum {
    /// The sum of nothing.
    #[inline]
    pub const fn new() -> Self {
        Self { words: 0, odd: false }
    }

    /// Goes on with `bytes`, behind everything added before.
    #[inline]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        self.part(sum(bytes), bytes.len() % 2 == 1)
    }

    /// Goes on with the bytes of `from`, and copies them to `to` on the way, as many as both have.
    #[inline]
    pub fn copied(self, to: &mut [u8], from: &[u8]) -> Self {
        let count = to.len().min(from.len());
        self.part(fold(warmlane_sys::sum::copy(to, from)).swap_bytes(), count % 2 == 1)
    }

    /// Goes on with one 16-bit field.
    #[inline]
    pub fn word(self, word: u16) -> Self {
        self.part(word, false)
    }

    /// Goes on with the bytes that `next` was made of: two sums computed apart, joined.
    #[inline]
    pub fn then(self, next: Self) -> Self {
        self.part(next.fold(), next.odd)
    }

    /// Takes in a folded sum. Words that start at an odd offset have their halves exchanged (RFC 1071 section 2 (B)).
    #[inline(always)]
    fn part(self, sum: u16, odd: bool) -> Self {
        let sum = if self.odd { sum.swap_bytes() } else { sum };
        Self { words: self.words + u64::from(sum), odd: self.odd ^ odd }
    }

    /// The sum in 16 bits, carries added back in. Bytes that hold their own right checksum give `0xffff`.
    #[inline]
    pub const fn fold(self) -> u16 {
        fold(self.words)
    }

    /// The checksum to put in a header: the complement of [`Sum::fold`].
    #[inline]
    pub const fn checksum(self) -> u16 {
        !self.fold()
    }

    /// Whether the bytes, their checksum field among them, are intact.
    #[inline]
    pub const fn is_valid(self) -> bool {
        self.fold() == 0xffff
    }
}

/// The Internet checksum of `bytes`; an odd last byte counts as the high half of a word.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    !sum(bytes)
}

/// The ones' complement sum of `bytes`, folded to 16 bits.
#[inline]
pub fn sum(bytes: &[u8]) -> u16 {
    fold(warmlane_sys::sum::little_endian(bytes)).swap_bytes()
}

/// The ones' complement sum of an IPv4 header without options, checksum field included: `0xffff` if it is intact.
#[inline(always)]
pub fn ipv4_header_sum20(header: &[u8; 20]) -> u16 {
    let (words, _) = header.as_chunks::<4>();
    // One chain of 32-bit additions with carry: fewer instructions than wider words, which need another fold.
    let mut sum = 0_u32;
    let mut carry = false;
    for word in words {
        (sum, carry) = add_with_carry(sum, u32::from_ne_bytes(*word), carry);
    }
    // Sum and carry can't both be at their top, so this doesn't overflow.
    u16::from_be(fold_half(sum.wrapping_add(u32::from(carry))))
}

/// The checksum that belongs in an IPv4 header without options, whatever its checksum field holds now.
#[inline]
pub fn ipv4_header_checksum20(header: &[u8; 20]) -> u16 {
    let mut blank = *header;
    blank[10] = 0;
    blank[11] = 0;
    !ipv4_header_sum20(&blank)
}

/// The IPv4 pseudo header of TCP and UDP (RFC 9293 section 3.1, RFC 768). `length` is that of the transport header and data.
#[inline]
pub fn pseudo_ipv4(source: Ipv4Addr, destination: Ipv4Addr, protocol: IpProtocol, length: u16) -> Sum {
    let words = half_words(source.to_bits()) + half_words(destination.to_bits());
    Sum { words: words + u64::from(protocol.0) + u64::from(length), odd: false }
}

/// The IPv6 pseudo header (RFC 8200 section 8.1). `length` is that of the upper-layer header and data, without
/// extension headers; `protocol` is the upper layer's, not the first Next Header.
#[inline]
pub fn pseudo_ipv6(source: Ipv6Addr, destination: Ipv6Addr, protocol: IpProtocol, length: u32) -> Sum {
    let words = wide(source.to_bits()) + wide(destination.to_bits());
    Sum { words: words + half_words(length) + u64::from(protocol.0), odd: false }
}

/// The addresses of a packet of either version, as the checksums of TCP, UDP and ICMPv6 take them in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// Where the packet comes from.
        source: Ipv4Addr,
        /// Where it goes.
        destination: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// Where the packet comes from.
        source: Ipv6Addr,
        /// Where it goes in the end: behind a routing header, not the header's destination but the last address.
        destination: Ipv6Addr,
    },
}

impl Addresses {
    /// [`pseudo_ipv4`] or [`pseudo_ipv6`]. `length` is that of the upper-layer header and data; over IPv4 it can't
    /// be more than 65,515.
    #[inline]
    pub fn pseudo_header(self, protocol: IpProtocol, length: u32) -> Sum {
        match self {
            Self::V4 { source, destination } => pseudo_ipv4(source, destination, protocol, length as u16),
            Self::V6 { source, destination } => pseudo_ipv6(source, destination, protocol, length),
        }
    }
}

/// What changing a field does to a checksum that covers it: RFC 1624 equation 3, HC' = ~(~HC + ~m + m').
///
/// Never turns a right checksum into the wrong zero (`0xffff` for `0x0000`), as RFC 1141's formula does. A UDP
/// checksum of 0 means "none" and must be left alone: see [`crate::edit::UdpHeaderMut`]. Fields start at an even offset.
///
/// ```
/// use warmlane_wire::checksum::{Difference, checksum};
///
/// let (old, new) = ([1, 2, 3, 4, 5, 6], [1, 2, 9, 8, 5, 6]);
/// assert_eq!(Difference::u16(0x0304, 0x0908).apply(checksum(&old)), checksum(&new));
/// ```
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Difference(u64);

impl Difference {
    /// A 16-bit field went from `old` to `new`.
    #[inline(always)]
    pub const fn u16(old: u16, new: u16) -> Self {
        Self(!old as u64 + new as u64)
    }

    /// A 32-bit field did, such as an IPv4 address.
    #[inline(always)]
    pub const fn u32(old: u32, new: u32) -> Self {
        Self(half_words(!old) + half_words(new))
    }

    /// A 128-bit field did, such as an IPv6 address.
    #[inline(always)]
    pub const fn u128(old: u128, new: u128) -> Self {
        Self(wide(!old) + wide(new))
    }

    /// The checksum after the change.
    #[inline(always)]
    pub const fn apply(self, checksum: u16) -> u16 {
        !fold(!checksum as u64 + self.0)
    }

    /// The sum after the change, if it is no checksum but the sum itself: that of a pseudo header, say.
    #[inline(always)]
    pub const fn apply_to_sum(self, sum: u16) -> u16 {
        fold(sum as u64 + self.0)
    }
}

/// [`Difference::u16`], applied.
#[inline]
pub const fn update_u16(checksum: u16, old: u16, new: u16) -> u16 {
    Difference::u16(old, new).apply(checksum)
}

/// [`Difference::u32`], applied.
#[inline]
pub const fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    Difference::u32(old, new).apply(checksum)
}

/// [`Difference::u128`], applied.
#[inline]
pub const fn update_u128(checksum: u16, old: u128, new: u128) -> u16 {
    Difference::u128(old, new).apply(checksum)
}

/// The two 16-bit halves added.
#[inline(always)]
const fn half_words(value: u32) -> u64 {
    (value >> 16) as u64 + (value & 0xffff) as u64
}

/// The four 32-bit quarters added, which is as good as their 16-bit halves once folded.
#[inline(always)]
const fn wide(value: u128) -> u64 {
    let quarter = 0xffff_ffff;
    ((value >> 96) + ((value >> 64) & quarter) + ((value >> 32) & quarter) + (value & quarter)) as u64
}

/// Addition of 32-bit words with a carry in and a carry out.
#[inline(always)]
const fn add_with_carry(a: u32, b: u32, carry: bool) -> (u32, bool) {
    let (sum, first) = a.overflowing_add(b);
    let (sum, second) = sum.overflowing_add(carry as u32);
    (sum, first | second)
}

/// Folds 64 bits to 16. Adding a word to itself with its halves exchanged leaves the ones' complement sum of the
/// halves, carry included, in the upper half.
#[inline(always)]
const fn fold(sum: u64) -> u16 {
    fold_half((sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32)
}

/// Folds 32 bits to 16.
#[inline(always)]
pub(crate) const fn fold_half(sum: u32) -> u16 {
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 section 1 word for word: 16-bit words in network order, one at a time.
    fn reference(bytes: &[u8]) -> u16 {
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn rfc_1071_section_3_example() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(&bytes), 0xddf2);
        assert_eq!(checksum(&bytes), 0x220d);
    }

    #[test]
    fn rfc_1624_section_4_example() {
        // HC = 0xdd2f, m = 0x5555, m' = 0x3285: the right answer is 0x0000 and not 0xffff.
        assert_eq!(update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn the_header_of_a_loopback_echo_request() {
        let header: [u8; 20] = [
            0x45, 0x00, 0x00, 0x54, 0x00, 0x00, 0x40, 0x00, 0x40, 0x01, 0x3c, 0xa7, 127, 0, 0, 1, 127, 0, 0,
            1,
        ];
        assert_eq!(ipv4_header_sum20(&header), 0xffff);
        assert_eq!(ipv4_header_checksum20(&header), 0x3ca7);
    }

    #[test]
    fn nothing_and_full_words() {
        assert_eq!(checksum(&[]), 0xffff);
        assert_eq!(sum(&[0; 1500]), 0);
        assert_eq!(sum(&[0xff; 9000]), 0xffff);
        assert_eq!(sum(&[0xff; 9001]), 0xff00);
    }

    #[test]
    fn carries_out_of_the_top_come_back() {
        for length in 1..200 {
            let bytes: Vec<u8> = (0..length).map(|i| if i % 7 == 0 { 0xfe } else { 0xff }).collect();
            assert_eq!(sum(&bytes), reference(&bytes), "{length} bytes");
        }
    }

    #[test]
    fn pseudo_headers_are_the_bytes_of_the_rfcs() {
        let (source, destination) = (Ipv4Addr::new(192, 0, 2, 250), Ipv4Addr::new(198, 51, 100, 7));
        let bytes = [192, 0, 2, 250, 198, 51, 100, 7, 0, 17, 0xab, 0xcd];
        assert_eq!(pseudo_ipv4(source, destination, IpProtocol::UDP, 0xabcd).fold(), reference(&bytes));

        let source: Ipv6Addr = "2001:db8::f00d".parse().unwrap();
        let destination: Ipv6Addr = "2001:db8:ffff::1".parse().unwrap();
        let mut bytes = [source.octets(), destination.octets()].concat();
        bytes.extend([0x00, 0x01, 0xab, 0xcd, 0, 0, 0, 58]);
        assert_eq!(pseudo_ipv6(source, destination, IpProtocol::ICMPV6, 0x1_abcd).fold(), reference(&bytes));
    }

    proptest! {
        #[test]
        fn wide_sums_equal_narrow_ones(bytes in prop::collection::vec(any::<u8>(), 0..700)) {
            prop_assert_eq!(sum(&bytes), reference(&bytes));
        }

        #[test]
        fn pieces_equal_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            cuts: (prop::sample::Index, prop::sample::Index),
        ) {
            let first = cuts.0.index(bytes.len() + 1);
            let second = first + cuts.1.index(bytes.len() - first + 1);
            let joined = Sum::new().bytes(&bytes[..first]).bytes(&bytes[first..second]).bytes(&bytes[second..]);
            prop_assert_eq!(joined.fold(), reference(&bytes));
            let apart = Sum::new().bytes(&bytes[..second]).then(Sum::new().bytes(&bytes[second..]));
            prop_assert_eq!(apart.fold(), reference(&bytes));
        }

        #[test]
        fn header_sum_equals_the_general_one(header: [u8; 20]) {
            prop_assert_eq!(ipv4_header_sum20(&header), reference(&header));
            let mut filled = header;
            filled[10..12].copy_from_slice(&ipv4_header_checksum20(&header).to_be_bytes());
            prop_assert_eq!(ipv4_header_sum20(&filled), 0xffff);
        }

        /// The first word isn't zero, as in each IP header: only all-zero data has two zeros to choose from.
        #[test]
        fn incremental_equals_full(mut bytes: [u8; 40], new: u128, zero in 0..5) {
            bytes[0] = 0x45;
            let field = |bytes: &[u8; 40]| u128::from_be_bytes(*bytes[16..].first_chunk().unwrap());
            // Fields of zeros and ones are where the two zeros of ones' complement get mixed up.
            match zero {
                0 => bytes[16..32].fill(0),
                1 => bytes[16..32].fill(0xff),
                _ => {}
            }
            let new = match zero { 2 => 0, 3 => u128::MAX, _ => new };
            let before = checksum(&bytes);
            let old = field(&bytes);

            let mut after = bytes;
            after[16..32].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(update_u128(before, old, new), checksum(&after));

            let mut after = bytes;
            after[16..20].copy_from_slice(&((new >> 96) as u32).to_be_bytes());
            prop_assert_eq!(update_u32(before, (old >> 96) as u32, (new >> 96) as u32), checksum(&after));

            let mut after = bytes;
            after[16..18].copy_from_slice(&((new >> 112) as u16).to_be_bytes());
            prop_assert_eq!(update_u16(before, (old >> 112) as u16, (new >> 112) as u16), checksum(&after));
        }

        /// The update can land on 0x0000 and 0xffff: aim at both.
        #[test]
        fn incremental_is_right_around_both_zeros(word: u16, old: u16, target in prop::sample::select(vec![0_u16, 1, 0xfffe, 0xffff])) {
            let words = |field: u16| [[0x45, 0x01], word.to_be_bytes(), field.to_be_bytes()].concat();
            let before = checksum(&words(old));
            // The field that brings the checksum to the target, or to the other zero.
            let new = checksum(&[&words(0)[..], &target.to_be_bytes()].concat());
            let after = checksum(&words(new));
            prop_assert_eq!(update_u16(before, old, new), after);
            prop_assert!(after == target || (target == 0xffff && after == 0));
        }
    }
}
