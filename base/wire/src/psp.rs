//! The sublayer of PSP, the packet streaming protocol, in an L2TPv3 session (CM-SP-DEPI section 8.3, CM-SP-R-DEPI, ITU-T J.212).
//!
//! ```text
//! V S H H | flow id 3 bits | 0    segment count    sequence number
//! B E length of segment 1         B E length of segment 2    …
//! segment 1, segment 2, …
//! ```
//!
//! MAC frames are cut into segments: one that begins a frame has B, one that ends it has E. Where the flow identifier stands two
//! dissectors agree: Wireshark's of DEPI's other sublayer (packet-l2tp.c, `l2tp.l2_spec_flow_id`, mask 0x0e), whose first byte is the
//! same, and one of PSP for Cisco's and Broadcom's upstream (UEPI).

use crate::error::{Truncated, header_errors, take};

/// Bytes of the sublayer's header in front of the segment table.
pub const HEADER_LENGTH: usize = 4;

/// Bytes of a segment's entry in the table.
pub const ENTRY_LENGTH: usize = 2;

/// Bytes that a segment has at most.
pub const MAXIMUM_SEGMENT: usize = 0x3fff;

/// Segments that we put into one packet at most. Drafts differ in whether the count has 7 bits or 8.
pub const MAXIMUM_SEGMENTS: usize = 127;

const SEQUENCED: u8 = 0x40;
const EXTENDED: u8 = 0x30;
const BEGIN: u16 = 0x8000;
const END: u16 = 0x4000;

header_errors! {
    /// What can be wrong with a PSP packet.
    pub enum PspError {
        /// An extended header, of which nobody has said what is in it.
        #[error("PSP flags are {flags:#04x}: extended headers are not understood")]
        ExtendedHeader {
            /// The flags.
            flags: u8,
        },
        /// The segments are longer than the packet.
        #[error("PSP segments are {length} bytes together, but {available} follow the table")]
        Length {
            /// Bytes of all segments.
            length: usize,
            /// Bytes that are there.
            available: usize,
        },
    }
}

/// The header's four bytes: what stands in front of `segments` entries. `flow` is 0 to 7.
#[inline]
pub const fn header(flow: u8, segments: u8, sequence: u16) -> [u8; HEADER_LENGTH] {
    let [high, low] = sequence.to_be_bytes();
    [SEQUENCED | (flow & 7) << 1, segments, high, low]
}

/// A segment's entry in the table. Only the low 14 bits of `length` count.
#[inline]
pub const fn entry(begins: bool, ends: bool, length: u16) -> [u8; ENTRY_LENGTH] {
    let flags = if begins { BEGIN } else { 0 } | if ends { END } else { 0 };
    (flags | length & MAXIMUM_SEGMENT as u16).to_be_bytes()
}

/// A piece of a MAC frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment<'a> {
    /// A frame begins with it.
    pub begins: bool,
    /// A frame ends with it.
    pub ends: bool,
    /// The piece.
    pub bytes: &'a [u8],
}

/// A packet whose lengths were checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PspPacket<'a> {
    /// The flow, 0 to 7: each is a stream of frames of its own.
    pub flow: u8,
    /// The packet's number among those of its session, if it has one.
    pub sequence: Option<u16>,
    table: &'a [u8],
    data: &'a [u8],
}

impl<'a> PspPacket<'a> {
    /// Reads what follows the L2TPv3 header. Bytes behind the last segment are ignored: short frames are padded by Ethernet.
    ///
    /// # Errors
    /// [`PspError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PspError> {
        let ([flags, segments, high, low], rest) = take::<HEADER_LENGTH>(bytes, "PSP header")?;
        if flags & EXTENDED != 0 {
            return Err(PspError::ExtendedHeader { flags: *flags });
        }
        let needed = usize::from(*segments) * ENTRY_LENGTH;
        let short = Truncated { header: "PSP segment table", needed, available: rest.len() };
        let (table, data) = rest.split_at_checked(needed).ok_or(short)?;
        let length = entries(table).map(|(_, length)| length).sum();
        if length > data.len() {
            return Err(PspError::Length { length, available: data.len() });
        }
        let sequence = (flags & SEQUENCED != 0).then_some(u16::from_be_bytes([*high, *low]));
        Ok(Self { flow: flags >> 1 & 7, sequence, table, data })
    }

    /// The segments in their order.
    pub fn segments(&self) -> impl Iterator<Item = Segment<'a>> + use<'a> {
        let mut data = self.data;
        entries(self.table).map_while(move |(flags, length)| {
            let (bytes, rest) = data.split_at_checked(length)?;
            data = rest;
            Some(Segment { begins: flags & BEGIN != 0, ends: flags & END != 0, bytes })
        })
    }
}

/// The flags and lengths in a segment table.
fn entries(table: &[u8]) -> impl Iterator<Item = (u16, usize)> {
    table.as_chunks::<ENTRY_LENGTH>().0.iter().map(|entry| {
        let word = u16::from_be_bytes(*entry);
        (word, usize::from(word) & MAXIMUM_SEGMENT)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_packet_is_laid_out_as_drawn() {
        let bytes =
            [&header(5, 2, 0x0102)[..], &entry(false, true, 3), &entry(true, false, 2), b"endbe", b"padding"]
                .concat();
        assert_eq!(bytes[..8], [0x4a, 2, 1, 2, 0x40, 3, 0x80, 2]);
        let packet = PspPacket::parse(&bytes).unwrap();
        assert_eq!((packet.flow, packet.sequence), (5, Some(0x0102)));
        assert_eq!(
            packet.segments().collect::<Vec<_>>(),
            [
                Segment { begins: false, ends: true, bytes: b"end" },
                Segment { begins: true, ends: false, bytes: b"be" }
            ]
        );
    }

    #[test]
    fn bad_packets_are_named() {
        let short =
            |header, needed, available| Err(PspError::Truncated(Truncated { header, needed, available }));
        assert_eq!(PspPacket::parse(&[0x40, 0, 0]), short("PSP header", 4, 3));
        assert_eq!(PspPacket::parse(&[0x40, 2, 0, 0, 1, 2, 3]), short("PSP segment table", 4, 3));
        assert_eq!(PspPacket::parse(&[0x10, 0, 0, 0]), Err(PspError::ExtendedHeader { flags: 0x10 }));
        let long = [&header(0, 1, 0)[..], &entry(true, true, 3), b"ab"].concat();
        assert_eq!(PspPacket::parse(&long), Err(PspError::Length { length: 3, available: 2 }));
        assert_eq!(PspPacket::parse(&[0, 0, 0, 9]).unwrap().sequence, None);
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_are_named(bytes in prop::collection::vec(any::<u8>(), 0..200), count in 0..8_u8) {
            let mut bytes = bytes;
            if let Some(byte) = bytes.get_mut(1) {
                *byte = count;
            }
            if let Ok(packet) = PspPacket::parse(&bytes) {
                prop_assert_eq!(packet.segments().count(), usize::from(count));
            }
        }
    }
}
