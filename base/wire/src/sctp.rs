//! SCTP's common header (RFC 9260 section 3.1), as far as its checksum goes: no Internet checksum, but a CRC-32C over header and chunks.

use warmlane_sys::crc32c;

/// Bytes of the common header.
pub const HEADER_LENGTH: usize = 12;

/// Where the checksum is in the header.
pub const CHECKSUM_OFFSET: usize = 8;

/// Bytes of the checksum.
pub const CHECKSUM_LENGTH: usize = 4;

/// The check over a packet whose bytes may come in several pieces; the checksum's field counts as zero.
///
/// ```
/// use warmlane_wire::sctp::{self, Crc};
///
/// let packet = [0, 7, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 3, 0, 4];
/// let (header, chunks) = packet.split_at(sctp::HEADER_LENGTH);
/// assert_eq!(Crc::new().bytes(header).bytes(chunks).field(), Crc::new().bytes(&packet).field());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crc(u32);

impl Default for Crc {
    fn default() -> Self {
        Self::new()
    }
}

impl Crc {
    /// Of nothing.
    pub const fn new() -> Self {
        Self(crc32c::START)
    }

    /// Goes on with `bytes`.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        Self(crc32c::update(self.0, bytes))
    }

    /// The field's bytes: the lowest one is first (RFC 9260 appendix A).
    pub const fn field(self) -> [u8; CHECKSUM_LENGTH] {
        (!self.0).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_is_the_complement_with_its_lowest_byte_first() {
        let crc = Crc::new().bytes(b"123456789");
        assert_eq!(crc.field(), [0x83, 0x92, 0x06, 0xe3]);
    }
}
