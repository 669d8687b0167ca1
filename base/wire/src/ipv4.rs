//! IPv4 headers (RFC 791), as a router checks and changes them (RFC 1812 section 5.2.2).

use std::fmt;
use std::net::Ipv4Addr;

use thiserror::Error;

use crate::IpProtocol;
use crate::checksum::{self, ipv4_header_sum20};
use crate::error::{Truncated, take};

/// Bytes of a header without options.
pub const HEADER_LENGTH: usize = 20;

/// Bytes of a header with as many options as fit.
pub const MAXIMUM_HEADER_LENGTH: usize = 60;

/// What is wrong with an IPv4 packet. The order of the variants is the order of the checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Ipv4Error {
    /// Fewer than 20 bytes.
    #[error(transparent)]
    Truncated(#[from] Truncated),
    /// The version field isn't 4.
    #[error("IP version is {version}, IPv4 needs 4")]
    Version {
        /// The version field.
        version: u8,
    },
    /// The header length field says less than 20 bytes, or more than there are.
    #[error(
        "IPv4 header length is {length} bytes, must be 20 to {available} (the bytes present, at most 60)"
    )]
    HeaderLength {
        /// The header length in bytes (IHL × 4).
        length: u8,
        /// The most it may be here.
        available: u8,
    },
    /// The total length is less than the header, or more than there is.
    #[error(
        "IPv4 total length is {length} bytes, must be {header} (the header) to {available} (the bytes present)"
    )]
    TotalLength {
        /// The total length field.
        length: u16,
        /// Bytes of the header.
        header: u8,
        /// Bytes that were there.
        available: usize,
    },
    /// The header checksum doesn't fit the header.
    #[error("IPv4 header checksum is {found:#06x}, the header needs {expected:#06x}")]
    Checksum {
        /// The checksum field.
        found: u16,
        /// What it should be.
        expected: u16,
    },
}

/// A view of the fixed part of a header.
#[derive(Clone, Copy)]
pub struct Ipv4Header<'a>(pub &'a [u8; HEADER_LENGTH]);

impl Ipv4Header<'_> {
    /// The IP version; 4 if this is IPv4.
    #[inline]
    pub const fn version(self) -> u8 {
        self.0[0] >> 4
    }

    /// The header length in bytes as the IHL field tells it: 0 to 60, options included.
    #[inline]
    pub const fn header_length(self) -> usize {
        (self.0[0] & 0x0f) as usize * 4
    }

    /// The differentiated services code point (RFC 2474), 6 bits.
    #[inline]
    pub const fn dscp(self) -> u8 {
        self.0[1] >> 2
    }

    /// The explicit congestion notification field (RFC 3168), 2 bits.
    #[inline]
    pub const fn ecn(self) -> u8 {
        self.0[1] & 0x03
    }

    /// Bytes of the packet, header included, Ethernet padding not included.
    #[inline]
    pub const fn total_length(self) -> u16 {
        u16::from_be_bytes([self.0[2], self.0[3]])
    }

    /// What all fragments of one packet have in common.
    #[inline]
    pub const fn identification(self) -> u16 {
        u16::from_be_bytes([self.0[4], self.0[5]])
    }

    /// The DF flag: routers must not fragment the packet.
    #[inline]
    pub const fn dont_fragment(self) -> bool {
        self.0[6] & 0x40 != 0
    }

    /// The MF flag: this isn't the last fragment.
    #[inline]
    pub const fn more_fragments(self) -> bool {
        self.0[6] & 0x20 != 0
    }

    /// Where this fragment's data belongs in the original's, in bytes (the field counts units of 8).
    #[inline]
    pub const fn fragment_offset(self) -> u16 {
        u16::from_be_bytes([self.0[6] & 0x1f, self.0[7]]) * 8
    }

    /// Whether the packet is a fragment, the first included.
    #[inline]
    pub const fn is_fragment(self) -> bool {
        u16::from_be_bytes([self.0[6], self.0[7]]) & 0x3fff != 0
    }

    /// How many more hops the packet may take.
    #[inline]
    pub const fn ttl(self) -> u8 {
        self.0[8]
    }

    /// What the payload is.
    #[inline]
    pub const fn protocol(self) -> IpProtocol {
        IpProtocol(self.0[9])
    }

    /// The header checksum field.
    #[inline]
    pub const fn checksum(self) -> u16 {
        u16::from_be_bytes([self.0[10], self.0[11]])
    }

    /// Where the packet comes from.
    #[inline]
    pub const fn source(self) -> Ipv4Addr {
        Ipv4Addr::new(self.0[12], self.0[13], self.0[14], self.0[15])
    }

    /// Where it goes.
    #[inline]
    pub const fn destination(self) -> Ipv4Addr {
        Ipv4Addr::new(self.0[16], self.0[17], self.0[18], self.0[19])
    }
}

impl fmt::Debug for Ipv4Header<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "IPv4 {} > {}, {}, length {}, TTL {}",
            self.source(),
            self.destination(),
            self.protocol(),
            self.total_length(),
            self.ttl()
        )
    }
}

/// A packet whose lengths were checked.
#[derive(Debug, Clone, Copy)]
pub struct Ipv4Packet<'a> {
    /// The fixed part of the header.
    pub header: Ipv4Header<'a>,
    /// The options with their padding: 0 to 40 bytes.
    pub options: &'a [u8],
    /// What the total length leaves after the header: link-layer padding is cut off.
    pub payload: &'a [u8],
}

/// Checks a packet as RFC 1812 section 5.2.2 asks: enough bytes, version, header length, total length, checksum,
/// in this order. `bytes` starts at the IPv4 header and may end in link-layer padding.
///
/// # Errors
/// The first rule that is broken, as [`Ipv4Error`].
#[inline]
pub fn check(bytes: &[u8]) -> Result<Ipv4Packet<'_>, Ipv4Error> {
    let packet = check_lengths(bytes)?;
    let header = packet.header.0;
    // Nearly all packets have no options, and their sum is a few instructions.
    let intact = match packet.options {
        [] => ipv4_header_sum20(header) == 0xffff,
        options => intact_with_options(header, options),
    };
    if intact { Ok(packet) } else { Err(checksum_error(header, packet.options)) }
}

/// [`check`] without the checksum, for packets whose header checksum was verified by the port.
///
/// # Errors
/// The first rule that is broken, as [`Ipv4Error`]; never [`Ipv4Error::Checksum`].
#[inline]
pub fn check_lengths(bytes: &[u8]) -> Result<Ipv4Packet<'_>, Ipv4Error> {
    let (fixed, rest) = take(bytes, "IPv4 header")?;
    let header = Ipv4Header(fixed);
    if header.version() != 4 {
        return Err(Ipv4Error::Version { version: header.version() });
    }
    let option_length = header.header_length().wrapping_sub(HEADER_LENGTH);
    let Some((options, rest)) = rest.split_at_checked(option_length) else {
        return Err(Ipv4Error::HeaderLength {
            length: header.header_length() as u8,
            available: bytes.len().min(MAXIMUM_HEADER_LENGTH) as u8,
        });
    };
    let payload_length = usize::from(header.total_length()).wrapping_sub(header.header_length());
    let Some(payload) = rest.get(..payload_length) else {
        return Err(Ipv4Error::TotalLength {
            length: header.total_length(),
            header: header.header_length() as u8,
            available: bytes.len(),
        });
    };
    Ok(Ipv4Packet { header, options, payload })
}

// Out of line, so that the usual packet's path is short and keeps its values in registers.
#[cold]
#[inline(never)]
fn intact_with_options(header: &[u8; HEADER_LENGTH], options: &[u8]) -> bool {
    checksum::Sum::new().bytes(header).bytes(options).is_valid()
}

#[cold]
#[inline(never)]
fn checksum_error(header: &[u8; HEADER_LENGTH], options: &[u8]) -> Ipv4Error {
    let found = Ipv4Header(header).checksum();
    // Adding the field's complement takes the field out of the sum (RFC 1624 section 3).
    let expected = checksum::Sum::new().bytes(header).bytes(options).word(!found).checksum();
    Ipv4Error::Checksum { found, expected }
}

/// Takes one off the TTL and corrects the checksum; leaves a TTL of 0 as it is. A router drops a packet whose TTL
/// is 0 or 1 before it gets here (RFC 1812 section 5.3.1).
///
/// A right checksum stays right and a wrong one stays wrong, which is the point of not computing it anew
/// (RFC 1141 section 1).
#[inline(always)]
pub fn decrement_ttl(header: &mut [u8; HEADER_LENGTH]) {
    let step = u8::from(header[8] != 0);
    header[8] -= step;
    // RFC 1624 equation 3 with ~m + m' = -0x0100: the checksum grows by 0x0100 and the carry comes back in. A
    // result of 0xffff is the other zero, 0x0000, which RFC 1141's formula misses (RFC 1624 section 3). All of
    // this holds in either byte order, so nothing is swapped.
    let grown =
        u32::from(u16::from_ne_bytes([header[10], header[11]])) + u32::from((u16::from(step) << 8).to_be());
    let checksum = (grown + u32::from(grown >= 0xffff)) as u16;
    [header[10], header[11]] = checksum.to_ne_bytes();
}

/// What to write in a header; lengths and checksum are the builder's.
#[derive(Debug, Clone, Copy)]
pub struct Ipv4Fields<'a> {
    /// Where the packet comes from.
    pub source: Ipv4Addr,
    /// Where it goes.
    pub destination: Ipv4Addr,
    /// DSCP (upper 6 bits) and ECN (lower 2).
    pub traffic_class: u8,
    /// The identification.
    pub identification: u16,
    /// The DF flag.
    pub dont_fragment: bool,
    /// The MF flag.
    pub more_fragments: bool,
    /// The fragment offset in bytes; the low 3 bits are cut off.
    pub fragment_offset: u16,
    /// The TTL.
    pub ttl: u8,
    /// Options, padded to a multiple of 4 bytes, at most 40.
    pub options: &'a [u8],
}

impl Ipv4Fields<'_> {
    /// A packet between two addresses: TTL 64 (RFC 1700's default), no options, not a fragment.
    pub const fn new(source: Ipv4Addr, destination: Ipv4Addr) -> Self {
        Self {
            source,
            destination,
            traffic_class: 0,
            identification: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            options: &[],
        }
    }

    /// The fixed part of the header, with its checksum. The caller has checked the lengths.
    pub(crate) fn header(&self, protocol: IpProtocol, total_length: u16) -> [u8; HEADER_LENGTH] {
        let words = (HEADER_LENGTH + self.options.len()) / 4;
        let flags = (u16::from(self.dont_fragment) << 14) | (u16::from(self.more_fragments) << 13);
        let [l0, l1] = total_length.to_be_bytes();
        let [i0, i1] = self.identification.to_be_bytes();
        let [f0, f1] = (flags | (self.fragment_offset >> 3)).to_be_bytes();
        let [s0, s1, s2, s3] = self.source.octets();
        let [d0, d1, d2, d3] = self.destination.octets();
        let first = 0x40 | words as u8;
        let class = self.traffic_class;
        let header = |c0, c1| {
            [
                first, class, l0, l1, i0, i1, f0, f1, self.ttl, protocol.0, c0, c1, s0, s1, s2, s3, d0, d1,
                d2, d3,
            ]
        };
        let checksum = checksum::Sum::new().bytes(&header(0, 0)).bytes(self.options).checksum();
        let [c0, c1] = checksum.to_be_bytes();
        header(c0, c1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fields() -> Ipv4Fields<'static> {
        Ipv4Fields::new(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 2))
    }

    /// A packet of `options`, `payload` and, beyond its total length, `padding`.
    fn packet(options: &[u8], payload: &[u8], padding: usize) -> Vec<u8> {
        let length = (HEADER_LENGTH + options.len() + payload.len()) as u16;
        let fields = Ipv4Fields { options, ..fields() };
        let mut bytes = [&fields.header(IpProtocol::UDP, length)[..], options, payload].concat();
        bytes.resize(bytes.len() + padding, 0xee);
        bytes
    }

    /// Changes one byte and corrects the checksum, so that only the changed field can be what is wrong.
    fn patched(mut bytes: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
        bytes[at] = value;
        bytes[10..12].fill(0);
        let header = (usize::from(bytes[0] & 0x0f) * 4).clamp(20, bytes.len());
        let checksum = checksum::checksum(&bytes[..header]);
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    #[test]
    fn every_field_is_where_rfc_791_puts_it() {
        let header: [u8; 20] =
            [0x46, 0xb9, 0x12, 0x34, 0x56, 0x78, 0x60, 0x03, 63, 6, 0x9a, 0xbc, 10, 1, 2, 3, 10, 4, 5, 6];
        let view = Ipv4Header(&header);
        assert_eq!((view.version(), view.header_length()), (4, 24));
        assert_eq!((view.dscp(), view.ecn()), (46, 1));
        assert_eq!((view.total_length(), view.identification()), (0x1234, 0x5678));
        assert!(view.dont_fragment() && view.more_fragments() && view.is_fragment());
        assert_eq!((view.fragment_offset(), view.ttl()), (24, 63));
        assert_eq!((view.protocol(), view.checksum()), (IpProtocol::TCP, 0x9abc));
        assert_eq!(view.source(), Ipv4Addr::new(10, 1, 2, 3));
        assert_eq!(view.destination(), Ipv4Addr::new(10, 4, 5, 6));
    }

    #[test]
    fn fragments_first_middle_last_and_none() {
        let with = |flags: u8, offset: u8| {
            let mut header = [0; 20];
            (header[6], header[7]) = (flags, offset);
            (Ipv4Header(&header).is_fragment(), Ipv4Header(&header).fragment_offset())
        };
        assert_eq!(with(0x20, 0), (true, 0));
        assert_eq!(with(0x3f, 0xff), (true, 65528));
        assert_eq!(with(0x00, 1), (true, 8));
        assert_eq!(with(0x40, 0), (false, 0));
    }

    #[test]
    fn options_and_payload_are_split_and_padding_is_cut() {
        let bytes = packet(&[1, 1, 1, 0], b"payload", 9);
        let packet = check(&bytes).unwrap();
        assert_eq!((packet.options, packet.payload), (&[1, 1, 1, 0][..], &b"payload"[..]));
        let bytes = self::packet(&[], &[], 0);
        let packet = check(&bytes).unwrap();
        assert!(packet.options.is_empty() && packet.payload.is_empty());
    }

    #[test]
    fn truncated() {
        let error = check(&packet(&[], &[], 0)[..19]).unwrap_err();
        assert_eq!(
            error,
            Ipv4Error::Truncated(Truncated { header: "IPv4 header", needed: 20, available: 19 })
        );
    }

    #[test]
    fn version() {
        let error = check(&patched(packet(&[], b"data", 0), 0, 0x65)).unwrap_err();
        assert_eq!(error, Ipv4Error::Version { version: 6 });
    }

    #[test]
    fn header_length_below_20() {
        let error = check(&patched(packet(&[], b"data", 0), 0, 0x44)).unwrap_err();
        assert_eq!(error, Ipv4Error::HeaderLength { length: 16, available: 24 });
    }

    #[test]
    fn header_length_beyond_the_bytes() {
        let error = check(&patched(packet(&[], b"data", 0), 0, 0x47)).unwrap_err();
        assert_eq!(error, Ipv4Error::HeaderLength { length: 28, available: 24 });
        assert_eq!(
            error.to_string(),
            "IPv4 header length is 28 bytes, must be 20 to 24 (the bytes present, at most 60)"
        );
    }

    #[test]
    fn total_length_below_the_header() {
        let error = check(&patched(packet(&[1; 4], b"data", 0), 3, 23)).unwrap_err();
        assert_eq!(error, Ipv4Error::TotalLength { length: 23, header: 24, available: 28 });
        assert!(check(&patched(packet(&[1; 4], b"data", 0), 3, 24)).is_ok());
    }

    #[test]
    fn total_length_beyond_the_bytes() {
        let error = check(&patched(packet(&[], b"data", 0), 3, 25)).unwrap_err();
        assert_eq!(error, Ipv4Error::TotalLength { length: 25, header: 20, available: 24 });
    }

    #[test]
    fn checksum() {
        for options in [&[][..], &[1, 1, 1, 0]] {
            let mut bytes = packet(options, b"data", 0);
            let right = u16::from_be_bytes([bytes[10], bytes[11]]);
            bytes[11] ^= 0x10;
            let expected = Ipv4Error::Checksum { found: right ^ 0x10, expected: right };
            assert_eq!(check(&bytes).unwrap_err(), expected);
            assert!(check_lengths(&bytes).is_ok());
        }
        // A changed option byte is found too.
        let mut bytes = packet(&[1, 1, 1, 0], &[], 0);
        bytes[20] = 7;
        assert!(matches!(check(&bytes), Err(Ipv4Error::Checksum { .. })));
    }

    #[test]
    fn the_outer_rule_is_reported_first() {
        // Everything is wrong: then the version, then the header length, then the total length, then the checksum.
        let mut bytes = [0xff; 24];
        assert!(matches!(check(&bytes), Err(Ipv4Error::Version { version: 15 })));
        bytes[0] = 0x4f;
        assert!(matches!(check(&bytes), Err(Ipv4Error::HeaderLength { length: 60, available: 24 })));
        bytes[0] = 0x45;
        assert!(matches!(check(&bytes), Err(Ipv4Error::TotalLength { length: 0xffff, .. })));
        bytes[2..4].copy_from_slice(&[0, 20]);
        assert!(matches!(check(&bytes), Err(Ipv4Error::Checksum { found: 0xffff, .. })));
    }

    #[test]
    fn ttl_at_its_ends() {
        for (before, after) in [(255, 254), (2, 1), (1, 0), (0, 0)] {
            let mut header = Ipv4Fields { ttl: before, ..fields() }.header(IpProtocol::TCP, 20);
            decrement_ttl(&mut header);
            assert_eq!(Ipv4Header(&header).ttl(), after);
            assert!(check(&header).is_ok(), "TTL {before}");
        }
    }

    #[test]
    fn decrement_gives_the_right_zero() {
        // The identification brings the checksum to 0xfeff, where RFC 1141 yields 0xffff and the header 0x0000.
        let blank = fields().header(IpProtocol::TCP, 20);
        let identification = checksum::Sum::new().word(0x0100).word(Ipv4Header(&blank).checksum()).fold();
        let mut header = Ipv4Fields { identification, ..fields() }.header(IpProtocol::TCP, 20);
        assert_eq!(Ipv4Header(&header).checksum(), 0xfeff);
        decrement_ttl(&mut header);
        assert_eq!(Ipv4Header(&header).checksum(), 0x0000);
        assert!(check(&header).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_fail(mut bytes in prop::collection::vec(any::<u8>(), 0..100), nearly: bool) {
            if nearly && bytes.len() >= 4 {
                bytes[0] = 0x40 | bytes[0] & 0x0f;
                bytes[2] = 0;
            }
            let _ = check(&bytes);
            if let Ok(packet) = check_lengths(&bytes) {
                let length = 20 + packet.options.len() + packet.payload.len();
                prop_assert_eq!(length, usize::from(packet.header.total_length()));
                prop_assert!(length <= bytes.len());
            }
        }

        #[test]
        fn decrement_equals_computing_anew(mut header: [u8; 20], checksum: Option<u16>) {
            header[0] = 0x45;
            let right = checksum::ipv4_header_checksum20(&header);
            let wrong = checksum.filter(|checksum| *checksum != right && *checksum != 0xffff);
            header[10..12].copy_from_slice(&wrong.unwrap_or(right).to_be_bytes());
            decrement_ttl(&mut header);
            let expected = checksum::ipv4_header_checksum20(&header);
            prop_assert_eq!(Ipv4Header(&header).checksum() == expected, wrong.is_none());
        }

        #[test]
        fn what_is_written_is_read(
            source: [u8; 4], destination: [u8; 4], class: u8, identification: u16, flags: (bool, bool),
            offset in 0..8192_u16, ttl: u8, words in 0..=10_usize, protocol: u8,
        ) {
            let options = vec![1; words * 4];
            let fields = Ipv4Fields {
                source: source.into(), destination: destination.into(), traffic_class: class, identification,
                dont_fragment: flags.0, more_fragments: flags.1, fragment_offset: offset * 8, ttl, options: &options,
            };
            let length = (20 + options.len()) as u16;
            let bytes = [&fields.header(IpProtocol(protocol), length)[..], &options].concat();
            let Ipv4Packet { header, options: read, payload } = check(&bytes).unwrap();
            prop_assert_eq!((header.source(), header.destination()), (fields.source, fields.destination));
            prop_assert_eq!((header.dscp() << 2) | header.ecn(), class);
            prop_assert_eq!((header.identification(), header.ttl()), (identification, ttl));
            prop_assert_eq!((header.dont_fragment(), header.more_fragments()), flags);
            prop_assert_eq!((header.fragment_offset(), header.protocol().0), (offset * 8, protocol));
            prop_assert_eq!((read, payload.len()), (&options[..], 0));
        }
    }
}
