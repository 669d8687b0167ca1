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
    let header = packet.header;
    // Nearly all packets have no options, and their sum is a few instructions.
    let intact = if packet.options.is_empty() {
        ipv4_header_sum20(header.0) == 0xffff
    } else {
        checksum::Sum::new().bytes(header.0).bytes(packet.options).is_valid()
    };
    if intact { Ok(packet) } else { Err(checksum_error(packet)) }
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

#[cold]
#[inline(never)]
fn checksum_error(packet: Ipv4Packet<'_>) -> Ipv4Error {
    let found = packet.header.checksum();
    let sum = checksum::Sum::new().bytes(packet.header.0).bytes(packet.options).word(!found);
    // Adding the field's complement takes the field out of the sum (RFC 1624 section 3).
    Ipv4Error::Checksum { found, expected: sum.checksum() }
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
    // result of 0xffff is the other zero, 0x0000, which RFC 1141's formula misses (RFC 1624 section 3).
    let checksum = u32::from(u16::from_be_bytes([header[10], header[11]])) + (u32::from(step) << 8);
    let checksum = (checksum + u32::from(checksum >= 0xffff)) as u16;
    [header[10], header[11]] = checksum.to_be_bytes();
}
