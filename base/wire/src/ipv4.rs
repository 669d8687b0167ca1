//! IPv4 headers (RFC 791), as a router checks and changes them (RFC 1812 section 5.2.2).

use std::fmt;
use std::net::Ipv4Addr;

use crate::IpProtocol;
use crate::checksum::{self, ipv4_header_sum20};
use crate::error::{header_errors, take};
use crate::fields::big_endian_fields;

/// Bytes of a header without options.
pub const HEADER_LENGTH: usize = 20;

/// Bytes of a header with as many options as fit.
pub const MAXIMUM_HEADER_LENGTH: usize = 60;

/// By how much the identification of a packet is more than that of the one before it, if both are segments of one: senders count. Those whose
/// packets must not be cut may have 0 in all of them, since nobody looks at it (RFC 6864 section 4.1). `flags` is the word with the flag DF.
#[inline(always)]
pub const fn identification_step(identification: u16, flags: u16) -> u16 {
    const DONT_FRAGMENT: u16 = 0x4000;
    !(identification == 0 && flags & DONT_FRAGMENT != 0) as u16
}

header_errors! {
    /// What is wrong with an IPv4 packet. The order of the variants is the order of the checks.
    pub enum Ipv4Error {
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

    big_endian_fields! {
        /// Bytes of the packet, header included, Ethernet padding not included.
        total_length: u16 at 2;
        /// What all fragments of one packet have in common.
        identification: u16 at 4;
        /// The header checksum field.
        checksum: u16 at 10;
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

    /// The fixed part of the header, with its checksum. Options count in it, but don't fit in these bytes: who has some appends
    /// them, and has checked that lengths are as they may be.
    pub fn header(&self, protocol: IpProtocol, total_length: u16) -> [u8; HEADER_LENGTH] {
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
mod tests;
