//! GRE (RFC 2784) with the key and the sequence number of RFC 2890: a packet of any protocol in an IP packet.

use crate::EtherType;
use crate::error::{header_errors, take};

/// Bytes of the header without what is optional in it.
pub const HEADER_LENGTH: usize = 4;

/// Bytes of the header with a key and nothing else that is optional.
pub const LENGTH_WITH_KEY: usize = HEADER_LENGTH + WORD;

/// Each optional field takes as many bytes; a checksum with what is reserved beside it, too.
const WORD: usize = 4;

const CHECKSUM: u16 = 0x8000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;
/// Of RFC 1701, and reserved since: who doesn't know what they mean must discard the packet (RFC 2784 section 2.3).
const UNKNOWN: u16 = 0x4c00;
const VERSION: u16 = 0x0007;

header_errors! {
    /// What can be wrong with a GRE header, in the order of the checks.
    pub enum GreError {
        /// Another version: 1 is that of PPTP (RFC 2637).
        #[error("GRE version {version}, where 0 must be")]
        Version {
            /// The version found.
            version: u8,
        },
        /// Flags that change the header in ways that are not known here.
        #[error("GRE flags are {flags:#06x}, of which 0x4c00 must not be set")]
        Flags {
            /// The flags found, with the version.
            flags: u16,
        },
    }
}

/// A GRE header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GreHeader {
    /// What follows: [`EtherType::IPV4`] and the like; [`EtherType::BRIDGED`] is a frame.
    pub protocol: EtherType,
    /// The key, which tells tunnels between the same two ends apart.
    pub key: Option<u32>,
    /// Whether there is a checksum over the header and all behind it, which [`parse`] doesn't look at.
    pub has_checksum: bool,
    /// Whether there is a sequence number.
    pub has_sequence: bool,
}

/// The header without a key.
#[inline]
pub const fn header(protocol: EtherType) -> [u8; HEADER_LENGTH] {
    let [high, low] = protocol.0.to_be_bytes();
    [0, 0, high, low]
}

/// The header with a key.
#[inline]
pub const fn header_with_key(protocol: EtherType, key: u32) -> [u8; LENGTH_WITH_KEY] {
    let ([high, low], [a, b, c, d]) = (protocol.0.to_be_bytes(), key.to_be_bytes());
    [(KEY >> 8) as u8, 0, high, low, a, b, c, d]
}

/// Reads the header of an IP packet's data; gives it and what follows.
///
/// # Errors
/// [`GreError`].
#[inline]
pub fn parse(bytes: &[u8]) -> Result<(GreHeader, &[u8]), GreError> {
    let ([first, second, high, low], mut rest) = take::<HEADER_LENGTH>(bytes, "GRE header")?;
    let flags = u16::from_be_bytes([*first, *second]);
    if flags & VERSION != 0 {
        return Err(GreError::Version { version: (flags & VERSION) as u8 });
    }
    if flags & UNKNOWN != 0 {
        return Err(GreError::Flags { flags });
    }
    let mut key = None;
    for (flag, header) in [(CHECKSUM, "GRE checksum"), (KEY, "GRE key"), (SEQUENCE, "GRE sequence number")] {
        if flags & flag != 0 {
            let (field, behind) = take::<WORD>(rest, header)?;
            if flag == KEY {
                key = Some(u32::from_be_bytes(*field));
            }
            rest = behind;
        }
    }
    let header = GreHeader {
        protocol: EtherType(u16::from_be_bytes([*high, *low])),
        key,
        has_checksum: flags & CHECKSUM != 0,
        has_sequence: flags & SEQUENCE != 0,
    };
    Ok((header, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Truncated;

    const PLAIN: GreHeader =
        GreHeader { protocol: EtherType::IPV4, key: None, has_checksum: false, has_sequence: false };

    #[test]
    fn what_is_written_is_read() {
        let bytes = [&header(EtherType::IPV4)[..], b"packet"].concat();
        assert_eq!(bytes[..4], [0, 0, 8, 0]);
        assert_eq!(parse(&bytes), Ok((PLAIN, &b"packet"[..])));
        let bytes = [&header_with_key(EtherType::IPV6, 0x0102_0304)[..], b"packet"].concat();
        assert_eq!(bytes[..8], [0x20, 0, 0x86, 0xdd, 1, 2, 3, 4]);
        let with_key = GreHeader { protocol: EtherType::IPV6, key: Some(0x0102_0304), ..PLAIN };
        assert_eq!(parse(&bytes), Ok((with_key, &b"packet"[..])));
    }

    #[test]
    fn optional_fields_stand_in_their_order() {
        let bytes = [0xb0, 0, 8, 0, 0xaa, 0xaa, 0, 0, 0, 0, 0, 7, 0, 0, 0, 9, 0x45];
        let all = GreHeader { key: Some(7), has_checksum: true, has_sequence: true, ..PLAIN };
        assert_eq!(parse(&bytes), Ok((all, &[0x45][..])));
    }

    #[test]
    fn bad_headers_are_named() {
        let truncated = |header, available| Err(Truncated { header, needed: 4, available }.into());
        assert_eq!(parse(&[0, 0, 8]), truncated("GRE header", 3));
        assert_eq!(parse(&[0x80, 0, 8, 0, 1]), truncated("GRE checksum", 1));
        assert_eq!(parse(&[0xa0, 0, 8, 0, 1, 2, 3, 4, 5, 6]), truncated("GRE key", 2));
        assert_eq!(parse(&[0x10, 0, 8, 0]), truncated("GRE sequence number", 0));
        assert_eq!(parse(&[0, 1, 8, 0]), Err(GreError::Version { version: 1 }));
        for first in [0x40, 0x08, 0x04] {
            let flags = u16::from_be_bytes([first, 0]);
            assert_eq!(parse(&[first, 0, 8, 0]), Err(GreError::Flags { flags }));
        }
        // Reserved bits that are ignored.
        assert!(parse(&[0x03, 0xf8, 8, 0]).is_ok());
    }
}
