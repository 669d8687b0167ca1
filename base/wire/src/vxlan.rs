//! VXLAN (RFC 7348): an Ethernet frame in a UDP datagram.

use crate::error::{header_errors, take};

/// Bytes of the header.
pub const HEADER_LENGTH: usize = 8;

/// The UDP destination port (RFC 7348 section 5).
pub const PORT: u16 = 4789;

/// The flag that says that the network identifier is there; it must be set (RFC 7348 section 5).
const IDENTIFIER_PRESENT: u8 = 0x08;

header_errors! {
    /// What can be wrong with a VXLAN header.
    pub enum VxlanError {
        /// The flag I is not set, so there is no network identifier.
        #[error("VXLAN flags are {flags:#04x}, where 0x08 must be set")]
        NoIdentifier {
            /// The flags found.
            flags: u8,
        },
    }
}

/// The header with this network identifier, of which the low 24 bits count.
#[inline]
pub const fn header(identifier: u32) -> [u8; HEADER_LENGTH] {
    let [_, a, b, c] = identifier.to_be_bytes();
    [IDENTIFIER_PRESENT, 0, 0, 0, a, b, c, 0]
}

/// Reads the header of a UDP datagram's data; gives the network identifier and the inner frame.
///
/// # Errors
/// [`VxlanError`]. Reserved bits are ignored, as RFC 7348 section 5 wants.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<(u32, &[u8]), VxlanError> {
    let ([flags, _, _, _, a, b, c, _], frame) = take::<HEADER_LENGTH>(bytes, "VXLAN header")?;
    if flags & IDENTIFIER_PRESENT == 0 {
        return Err(VxlanError::NoIdentifier { flags: *flags });
    }
    Ok((u32::from_be_bytes([0, *a, *b, *c]), frame))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Truncated;

    #[test]
    fn what_is_written_is_read() {
        let bytes = [&header(0x12_3456)[..], b"frame"].concat();
        assert_eq!(bytes[..8], [0x08, 0, 0, 0, 0x12, 0x34, 0x56, 0]);
        assert_eq!(parse(&bytes), Ok((0x12_3456, &b"frame"[..])));
    }

    #[test]
    fn bad_headers_are_named() {
        let truncated = Truncated { header: "VXLAN header", needed: 8, available: 7 };
        assert_eq!(parse(&[0x08; 7]), Err(VxlanError::Truncated(truncated)));
        assert_eq!(parse(&[0xf7; 8]), Err(VxlanError::NoIdentifier { flags: 0xf7 }));
        assert!(parse(&[0xff; 8]).is_ok(), "reserved bits are ignored");
    }
}
