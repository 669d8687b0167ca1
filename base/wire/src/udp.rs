//! UDP (RFC 768; over IPv6 RFC 8200 section 8.1).

use std::fmt;

use crate::IpProtocol;
use crate::checksum::{self, Addresses};
use crate::error::{WrongChecksum, header_errors, take};
use crate::fields::big_endian_fields;

/// Bytes of the header.
pub const HEADER_LENGTH: usize = 8;

/// Where the checksum is in the header.
pub const CHECKSUM_OFFSET: usize = 6;

header_errors! {
    /// What is wrong with a datagram. The order of the variants is the order of the checks.
    pub enum UdpError with Checksum {
        /// The length field says less than the header or more than there is.
        #[error("UDP length is {length} bytes, must be 8 (the header) to {available} (the bytes present)")]
        Length {
            /// The length field.
            length: u16,
            /// Bytes that were there.
            available: usize,
        },
        /// No checksum over IPv6, where it is compulsory (RFC 8200 section 8.1).
        #[error("UDP checksum is 0 (none) over IPv6, which needs one")]
        NoChecksum,
    }
}

/// A view of the header.
#[derive(Clone, Copy)]
pub struct UdpHeader<'a>(pub &'a [u8; HEADER_LENGTH]);

impl UdpHeader<'_> {
    big_endian_fields! {
        /// The sender's port; 0 if it expects no answer.
        source_port: u16 at 0;
        /// The receiver's port.
        destination_port: u16 at 2;
        /// Bytes of header and data.
        length: u16 at 4;
        /// The checksum field; 0 means "none".
        checksum: u16 at 6;
    }
}

impl fmt::Debug for UdpHeader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UDP {} > {}, length {}", self.source_port(), self.destination_port(), self.length())
    }
}

/// Splits a datagram in header and data; `bytes` may be longer than the length field says.
///
/// # Errors
/// [`UdpError::Truncated`], [`UdpError::Length`].
#[inline]
pub fn parse(bytes: &[u8]) -> Result<(UdpHeader<'_>, &[u8]), UdpError> {
    let (fixed, rest) = take(bytes, "UDP header")?;
    let header = UdpHeader(fixed);
    let data_length = usize::from(header.length()).wrapping_sub(HEADER_LENGTH);
    match rest.get(..data_length) {
        Some(data) => Ok((header, data)),
        None => Err(UdpError::Length { length: header.length(), available: bytes.len() }),
    }
}

/// [`parse`], then the checksum as well.
///
/// # Errors
/// The first rule that is broken, as [`UdpError`].
pub fn check(addresses: Addresses, bytes: &[u8]) -> Result<(UdpHeader<'_>, &[u8]), UdpError> {
    let (header, data) = parse(bytes)?;
    if header.checksum() == 0 {
        return match addresses {
            Addresses::V4 { .. } => Ok((header, data)),
            Addresses::V6 { .. } => Err(UdpError::NoChecksum),
        };
    }
    let pseudo = addresses.pseudo_header(IpProtocol::UDP, u32::from(header.length()));
    let sum = pseudo.bytes(header.0).bytes(data).fold();
    WrongChecksum::check_with_pseudo_header("UDP", header.checksum(), sum)?;
    Ok((header, data))
}

/// The checksum to send: a computed 0 goes as `0xffff`, because 0 means "none" (RFC 768).
#[inline]
pub const fn sendable(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// [`checksum::update_u16`] for UDP: "none" stays "none", and no other checksum becomes it.
#[inline]
pub const fn update_checksum(checksum: u16, old: u16, new: u16) -> u16 {
    if checksum == 0 { 0 } else { sendable(checksum::update_u16(checksum, old, new)) }
}

/// The header of a datagram. Its length is that of header and data.
#[inline]
pub const fn header(
    source_port: u16,
    destination_port: u16,
    length: u16,
    checksum: u16,
) -> [u8; HEADER_LENGTH] {
    let [a, b] = source_port.to_be_bytes();
    let [c, d] = destination_port.to_be_bytes();
    let [e, f] = length.to_be_bytes();
    let [g, h] = checksum.to_be_bytes();
    [a, b, c, d, e, f, g, h]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Truncated;
    use proptest::prelude::*;

    fn v4() -> Addresses {
        Addresses::V4 { source: [192, 0, 2, 1].into(), destination: [198, 51, 100, 2].into() }
    }

    fn v6() -> Addresses {
        Addresses::V6 { source: "2001:db8::1".parse().unwrap(), destination: "2001:db8::2".parse().unwrap() }
    }

    fn datagram(addresses: Addresses, data: &[u8]) -> Vec<u8> {
        let length = (HEADER_LENGTH + data.len()) as u16;
        let blank = header(4242, 53, length, 0);
        let pseudo = addresses.pseudo_header(IpProtocol::UDP, u32::from(length));
        let checksum = sendable(pseudo.bytes(&blank).bytes(data).checksum());
        [&header(4242, 53, length, checksum)[..], data].concat()
    }

    #[test]
    fn a_worked_example() {
        // 192.0.2.1 > 198.51.100.2, ports 1 and 2, "abc": the words c000 0201 c633 6402 0011 000b 0001 0002 000b
        // 6162 6300 add up to 2b0c2, folded b0c4.
        let bytes = [0, 1, 0, 2, 0, 11, 0x4f, 0x3b, b'a', b'b', b'c', 0xee];
        let (header, data) = check(v4(), &bytes).unwrap();
        assert_eq!((header.source_port(), header.destination_port(), header.length()), (1, 2, 11));
        assert_eq!(data, b"abc");
    }

    #[test]
    fn each_rule_has_its_error() {
        let truncated = Truncated { header: "UDP header", needed: 8, available: 7 };
        assert_eq!(parse(&[0; 7]).unwrap_err(), UdpError::Truncated(truncated));
        for length in [7, 12] {
            let bytes = [&header(1, 2, length, 0)[..], &[0; 3]].concat();
            assert_eq!(parse(&bytes).unwrap_err(), UdpError::Length { length, available: 11 });
        }
        let none = header(1, 2, 8, 0);
        assert!(check(v4(), &none).is_ok());
        assert_eq!(check(v6(), &none).unwrap_err(), UdpError::NoChecksum);
        let mut bytes = datagram(v6(), b"question");
        assert!(check(v6(), &bytes).is_ok());
        bytes[8] ^= 0x01;
        assert!(matches!(check(v6(), &bytes).unwrap_err(), UdpError::Checksum(wrong) if wrong.sum != 0xffff));
        assert!(matches!(check(v4(), &datagram(v6(), b"question")).unwrap_err(), UdpError::Checksum(_)));
    }

    #[test]
    fn none_stays_none_and_nothing_becomes_none() {
        assert_eq!(update_checksum(0, 1, 2), 0);
        // RFC 1624 section 4, where the new checksum is zero.
        assert_eq!(update_checksum(0xdd2f, 0x5555, 0x3285), 0xffff);
        assert_eq!((sendable(0), sendable(7)), (0xffff, 7));
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = check(v4(), &bytes);
            if let Ok((header, data)) = parse(&bytes) {
                prop_assert_eq!(usize::from(header.length()), 8 + data.len());
            }
        }

        #[test]
        fn a_new_port_keeps_the_checksum_right(data in prop::collection::vec(any::<u8>(), 0..40), port: u16) {
            let mut bytes = datagram(v4(), &data);
            let old = u16::from_be_bytes([bytes[6], bytes[7]]);
            let new = update_checksum(old, 4242, port);
            bytes[..2].copy_from_slice(&port.to_be_bytes());
            bytes[6..8].copy_from_slice(&new.to_be_bytes());
            prop_assert!(check(v4(), &bytes).is_ok());
            prop_assert_ne!(new, 0);
        }
    }
}
