//! TCP headers (RFC 9293 section 3.1).

use std::fmt;
use std::ops::BitOr;

use crate::IpProtocol;
use crate::checksum::Addresses;
use crate::error::{WrongChecksum, header_errors, take};
use crate::fields::big_endian_fields;

/// Bytes of a header without options.
pub const HEADER_LENGTH: usize = 20;

/// Where the checksum is in the header.
pub const CHECKSUM_OFFSET: usize = 16;

header_errors! {
    /// What is wrong with a segment. The order of the variants is the order of the checks.
    pub enum TcpError with Checksum {
        /// The data offset field says less than 20 bytes, or more than there are.
        #[error("TCP header length is {length} bytes, must be 20 to {available} (the bytes present, at most 60)")]
        HeaderLength {
            /// The header length in bytes (data offset × 4).
            length: u8,
            /// The most it may be here.
            available: u8,
        },
    }
}

/// The control bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// The sender has no more data.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push the data to the application.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement field is valid.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is valid.
    pub const URG: Self = Self(0x20);
    /// Congestion was seen (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// The congestion window was reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    const NAMES: [&'static str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];

    /// Whether all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for TcpFlags {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (bit, name) in Self::NAMES.iter().enumerate() {
            if self.0 & (1 << bit) != 0 {
                write!(f, "{separator}{name}")?;
                separator = "|";
            }
        }
        Ok(())
    }
}

/// A view of the fixed part of a header.
#[derive(Clone, Copy)]
pub struct TcpHeader<'a>(pub &'a [u8; HEADER_LENGTH]);

impl TcpHeader<'_> {
    big_endian_fields! {
        /// The sender's port.
        source_port: u16 at 0;
        /// The receiver's port.
        destination_port: u16 at 2;
        /// The sequence number of the first data byte.
        sequence: u32 at 4;
        /// The next sequence number that the sender expects, if ACK is set.
        acknowledgement: u32 at 8;
    }

    /// The header length in bytes as the data offset field tells it: 0 to 60, options included.
    #[inline]
    pub const fn header_length(self) -> usize {
        (self.0[12] >> 4) as usize * 4
    }

    /// The control bits.
    #[inline]
    pub const fn flags(self) -> TcpFlags {
        TcpFlags(self.0[13])
    }

    big_endian_fields! {
        /// How much the sender is willing to receive, before scaling.
        window: u16 at 14;
        /// The checksum field.
        checksum: u16 at 16;
        /// The urgent pointer, if URG is set.
        urgent: u16 at 18;
    }
}

impl fmt::Debug for TcpHeader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "TCP {} > {}, {:?}, sequence {}, acknowledgement {}",
            self.source_port(),
            self.destination_port(),
            self.flags(),
            self.sequence(),
            self.acknowledgement()
        )
    }
}

/// A segment whose header length was checked.
#[derive(Debug, Clone, Copy)]
pub struct TcpSegment<'a> {
    /// The fixed part of the header.
    pub header: TcpHeader<'a>,
    /// The options with their padding: 0 to 40 bytes.
    pub options: &'a [u8],
    /// The data.
    pub payload: &'a [u8],
}

/// Splits a segment; `bytes` is exactly what the IP header leaves, without link-layer padding.
///
/// # Errors
/// [`TcpError::Truncated`], [`TcpError::HeaderLength`].
#[inline]
pub fn parse(bytes: &[u8]) -> Result<TcpSegment<'_>, TcpError> {
    let (fixed, rest) = take(bytes, "TCP header")?;
    let header = TcpHeader(fixed);
    match rest.split_at_checked(header.header_length().wrapping_sub(HEADER_LENGTH)) {
        Some((options, payload)) => Ok(TcpSegment { header, options, payload }),
        None => Err(TcpError::HeaderLength {
            length: header.header_length() as u8,
            available: bytes.len().min(60) as u8,
        }),
    }
}

/// [`parse`], then the checksum as well.
///
/// # Errors
/// The first rule that is broken, as [`TcpError`].
pub fn check(addresses: Addresses, bytes: &[u8]) -> Result<TcpSegment<'_>, TcpError> {
    let segment = parse(bytes)?;
    let sum = addresses.pseudo_header(IpProtocol::TCP, bytes.len() as u32).bytes(bytes).fold();
    WrongChecksum::check_with_pseudo_header("TCP", segment.header.checksum(), sum)?;
    Ok(segment)
}

/// What to write in a header; the checksum is the builder's.
#[derive(Debug, Clone, Copy, Default)]
pub struct TcpFields<'a> {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// The sequence number.
    pub sequence: u32,
    /// The acknowledged sequence number.
    pub acknowledgement: u32,
    /// The control bits.
    pub flags: TcpFlags,
    /// The receive window.
    pub window: u16,
    /// The urgent pointer.
    pub urgent: u16,
    /// Options, padded to a multiple of 4 bytes, at most 40.
    pub options: &'a [u8],
}

impl TcpFields<'_> {
    /// A segment between two ports: no flags, numbers of 0, the largest window, no options.
    pub const fn new(source_port: u16, destination_port: u16) -> Self {
        Self {
            source_port,
            destination_port,
            sequence: 0,
            acknowledgement: 0,
            flags: TcpFlags(0),
            window: u16::MAX,
            urgent: 0,
            options: &[],
        }
    }

    /// The fixed part of the header. The caller has checked the options' length.
    pub(crate) fn header(&self, checksum: u16) -> [u8; HEADER_LENGTH] {
        let [s0, s1] = self.source_port.to_be_bytes();
        let [d0, d1] = self.destination_port.to_be_bytes();
        let [q0, q1, q2, q3] = self.sequence.to_be_bytes();
        let [a0, a1, a2, a3] = self.acknowledgement.to_be_bytes();
        let offset = (((HEADER_LENGTH + self.options.len()) / 4) << 4) as u8;
        let [w0, w1] = self.window.to_be_bytes();
        let [c0, c1] = checksum.to_be_bytes();
        let [u0, u1] = self.urgent.to_be_bytes();
        [s0, s1, d0, d1, q0, q1, q2, q3, a0, a1, a2, a3, offset, self.flags.0, w0, w1, c0, c1, u0, u1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Truncated;
    use proptest::prelude::*;

    fn addresses() -> Addresses {
        Addresses::V4 { source: [192, 0, 2, 1].into(), destination: [198, 51, 100, 2].into() }
    }

    fn segment(fields: &TcpFields<'_>, payload: &[u8]) -> Vec<u8> {
        let blank = [&fields.header(0)[..], fields.options, payload].concat();
        let pseudo = addresses().pseudo_header(IpProtocol::TCP, blank.len() as u32);
        let checksum = pseudo.bytes(&blank).checksum();
        [&fields.header(checksum)[..], fields.options, payload].concat()
    }

    #[test]
    fn reads_what_was_written() {
        let fields = TcpFields {
            source_port: 0x0102,
            destination_port: 0x0304,
            sequence: 0x0506_0708,
            acknowledgement: 0x090a_0b0c,
            flags: TcpFlags::SYN | TcpFlags::ACK,
            window: 0x0d0e,
            urgent: 0x0f10,
            options: &[2, 4, 5, 0xb4],
        };
        let bytes = segment(&fields, b"data");
        assert_eq!(bytes[..16], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x60, 0x12, 13, 14]);
        assert_eq!(bytes[18..20], [15, 16]);
        let read = check(addresses(), &bytes).unwrap();
        assert_eq!((read.header.source_port(), read.header.destination_port()), (0x0102, 0x0304));
        assert_eq!((read.header.sequence(), read.header.acknowledgement()), (0x0506_0708, 0x090a_0b0c));
        assert_eq!((read.header.window(), read.header.urgent()), (0x0d0e, 0x0f10));
        assert_eq!(
            (read.header.header_length(), read.options, read.payload),
            (24, fields.options, &b"data"[..])
        );
        assert!(read.header.flags().contains(TcpFlags::SYN) && !read.header.flags().contains(TcpFlags::FIN));
        assert_eq!(format!("{:?}", read.header.flags()), "SYN|ACK");
    }

    #[test]
    fn each_rule_has_its_error() {
        let truncated = Truncated { header: "TCP header", needed: 20, available: 19 };
        assert_eq!(parse(&[0; 19]).unwrap_err(), TcpError::Truncated(truncated));
        for (offset, length) in [(4, 16), (7, 28)] {
            let mut bytes = [0; 24];
            bytes[12] = offset << 4;
            assert_eq!(parse(&bytes).unwrap_err(), TcpError::HeaderLength { length, available: 24 });
        }
        let mut bytes = segment(&TcpFields::default(), b"odd");
        assert!(check(addresses(), &bytes).is_ok());
        bytes[22] ^= 0x80;
        assert!(
            matches!(check(addresses(), &bytes).unwrap_err(), TcpError::Checksum(wrong) if wrong.sum != 0xffff)
        );
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = check(addresses(), &bytes);
            if let Ok(segment) = parse(&bytes) {
                prop_assert_eq!(20 + segment.options.len() + segment.payload.len(), bytes.len());
                prop_assert_eq!(20 + segment.options.len(), segment.header.header_length());
            }
        }
    }
}
