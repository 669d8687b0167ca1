//! What the 82574 is told by descriptors for sending (7.2.10).

use crate::intel::descriptor::{Context, DataDescriptor, Offload, Piece, TCP_CHECKSUM, Tso};
use crate::intel::memory::BUFFER_BYTES;

/// The kind of data descriptors for TCP/IP, which fit all frames.
pub(super) const DATA: u64 = DataDescriptor::EXTENDED | 1 << 20;
/// The frame is one to be segmented, by the last context of that kind (TSE).
pub(super) const SEGMENT: u64 = 1 << 26;
/// The bits of the length.
pub(super) const LENGTH: u64 = (1 << 20) - 1;

/// The kind of context descriptors.
pub(super) const CONTEXT: u64 = DataDescriptor::EXTENDED;
/// In context descriptors: for segmentation.
pub(super) const SEGMENTATION: u64 = 1 << 26;
/// In context descriptors: of TCP, and of IPv4.
const TCP: u64 = 1 << 24;
const IPV4: u64 = 1 << 25;

/// Where in an IPv4 header its checksum is, in bytes.
const IPV4_CHECKSUM: u64 = 10;

/// The second word of a data descriptor.
#[inline(always)]
pub(super) const fn data(piece: Piece) -> u64 {
    let end = if piece.is_end { DataDescriptor::END } else { 0 };
    let offload = match piece.offload {
        Offload::None => 0,
        Offload::Checksum => DataDescriptor::INSERT_CHECKSUM,
        Offload::Segmentation { .. } => {
            SEGMENT | DataDescriptor::INSERT_IP_CHECKSUM | DataDescriptor::INSERT_CHECKSUM
        }
    };
    DATA | DataDescriptor::ADD_CRC | end | offload | piece.length as u64
}

/// Which checksum of the frames behind it is to be completed, up to the next context: of what starts at `start`, stored at `offset` from there. What is summed
/// ends with the frame, and the field holds the sum of the pseudo header before. `None` if that is farther from the frame's start than the card can count.
#[inline]
pub(super) fn checksum(start: u16, offset: u8) -> Option<Context> {
    let start = u8::try_from(start).ok()?;
    let field = start.checked_add(offset)?;
    let transport = if offset == TCP_CHECKSUM { TCP } else { 0 };
    Some([u64::from(start) << 32 | u64::from(field) << 40, CONTEXT | IPV4 | transport])
}

/// The same for segmentation (7.3): how the frame behind it is cut.
pub(super) const fn segmentation(tso: Tso) -> Context {
    let (network, transport) = (tso.network as u64, tso.transport as u64);
    let header_sum = network | (network + IPV4_CHECKSUM) << 8 | (transport - 1) << 16;
    let sum = transport | (transport + TCP_CHECKSUM as u64) << 8;
    let lengths = tso.payload as u64 | (tso.headers as u64) << 40 | (tso.size as u64) << 48;
    [header_sum | sum << 32, CONTEXT | SEGMENTATION | IPV4 | TCP | lengths]
}

const _: () = assert!(BUFFER_BYTES as u64 <= LENGTH);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_completed_where_the_card_can_count_to() {
        assert_eq!(checksum(34, 16), Some([34 << 32 | 50 << 40, 1 << 29 | 0b11 << 24]));
        assert_eq!(checksum(54, 6), Some([54 << 32 | 60 << 40, 1 << 29 | 0b10 << 24]));
        assert!(checksum(239, 16).is_some() && checksum(240, 16).is_none() && checksum(256, 0).is_none());
    }

    #[test]
    fn segments_are_described() {
        let tso = Tso { network: 14, transport: 34, headers: 66, size: 1448, payload: 0xffff };
        let kind = 1 << 29 | 0b111 << 24;
        let first = 0x0e | 24 << 8 | 33 << 16 | 34 << 32 | 50 << 40;
        assert_eq!(segmentation(tso), [first, 0xffff | kind | 66 << 40 | 1448 << 48]);
        let offload = Offload::Segmentation { payload: 0xffff };
        let piece = Piece { length: 2048, is_first: true, is_end: true, frame: 2048, offload };
        assert_eq!(data(piece), 0x800 | 1 << 20 | 1 << 29 | 0b111 << 24 | 0b11 << 40);
    }
}
