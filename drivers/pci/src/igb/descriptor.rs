//! What the 82576 is told by advanced descriptors for sending (7.2.2).

use crate::intel::descriptor::{Context, DataDescriptor, Offload, Piece, TCP_CHECKSUM, Tso};
use crate::intel::memory::BUFFER_BYTES;
use warmlane_wire::EtherType;

/// The kind of data descriptors (DTYP), and that of contexts.
pub(super) const DATA: u64 = DataDescriptor::EXTENDED | 0b0011 << 20;
pub(super) const CONTEXT: u64 = DataDescriptor::EXTENDED | 0b0010 << 20;
/// The frame is one to be segmented (TSE).
pub(super) const SEGMENT: u64 = 1 << 31;
/// The bits of the length (DTALEN).
pub(super) const LENGTH: u64 = 0xffff;
/// Where the bytes of the whole frame are (PAYLEN), or those behind its headers, if it is one to be segmented. In its first descriptor only.
pub(super) const FRAME_SHIFT: u32 = 46;
/// The most that can be said there: 18 bits.
pub(super) const LONGEST: u32 = (1 << 18) - 1;

/// In contexts, the first word: the bytes of all before the IP header (MACLEN), above those of the IP header (IPLEN).
pub(super) const NETWORK_SHIFT: u32 = 9;
const MOST_BEFORE_NETWORK: usize = 0x7f;
const MOST_NETWORK_HEADER: usize = 0x1ff;
/// In contexts, the second word: of IPv4 (TUCMD.IPV4), and of TCP rather than UDP (TUCMD.L4T).
pub(super) const IPV4: u64 = 1 << 10;
pub(super) const TCP: u64 = 0b01 << 11;
/// In contexts, the second word: the bytes of the TCP header (L4LEN), and of what is behind it in each segment (MSS).
pub(super) const TRANSPORT_SHIFT: u32 = 40;
pub(super) const SIZE_SHIFT: u32 = 48;

/// Where in a UDP header its checksum is, in bytes.
pub(super) const UDP_CHECKSUM: u8 = 6;

/// Where the type of an Ethernet frame's contents is, and bytes of a VLAN tag.
const TYPE: usize = 12;
const TAG: usize = 4;

/// The second word of a data descriptor.
#[inline(always)]
pub(super) const fn data(piece: Piece) -> u64 {
    let end = if piece.is_end { DataDescriptor::END } else { 0 };
    let (offload, frame) = match piece.offload {
        Offload::None => (0, piece.frame),
        Offload::Checksum => (DataDescriptor::INSERT_CHECKSUM, piece.frame),
        Offload::Segmentation { payload } => {
            let all = SEGMENT | DataDescriptor::INSERT_IP_CHECKSUM | DataDescriptor::INSERT_CHECKSUM;
            (all, payload)
        }
    };
    let frame = if piece.is_first { (frame as u64) << FRAME_SHIFT } else { 0 };
    DATA | DataDescriptor::ADD_CRC | end | offload | frame | piece.length as u64
}

/// The lengths of headers in a context, for an IP header at `network` and one of TCP or UDP at `transport`. `None` if they don't fit in.
fn lengths(network: usize, transport: usize) -> Option<u64> {
    let header = transport.checked_sub(network).filter(|header| *header <= MOST_NETWORK_HEADER)?;
    (network <= MOST_BEFORE_NETWORK).then_some((network << NETWORK_SHIFT | header) as u64)
}

/// Which checksum of the frames behind it is to be completed, up to the next context: of what starts at `start`, stored at `offset` from there, in a frame that begins
/// so. The field holds the sum of the pseudo header before. `None` if the card can't: it knows only where TCP and UDP have theirs, and finds them by the lengths of the
/// headers before.
#[inline]
pub(super) fn checksum(frame: &[u8], start: u16, offset: u8) -> Option<Context> {
    let transport = match offset {
        TCP_CHECKSUM => TCP,
        UDP_CHECKSUM => 0,
        _ => return None,
    };
    let mut kind = TYPE;
    let kind_of = |at: usize| Some(EtherType(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?)));
    while kind_of(kind)?.is_vlan() {
        kind += TAG;
    }
    let version = if kind_of(kind)? == EtherType::IPV4 { IPV4 } else { 0 };
    let lengths = lengths(kind + size_of::<EtherType>(), start.into())?;
    Some([lengths, CONTEXT | version | transport])
}

/// The same for segmentation (7.2.4): how the frame behind it is cut.
pub(super) fn segmentation(tso: Tso) -> Option<Context> {
    let lengths = lengths(tso.network.into(), tso.transport.into())?;
    let transport = u64::from(tso.headers.checked_sub(tso.transport)?);
    let size = u64::from(tso.size);
    Some([lengths, CONTEXT | IPV4 | TCP | transport << TRANSPORT_SHIFT | size << SIZE_SHIFT])
}

const _: () = assert!(BUFFER_BYTES as u64 <= LENGTH);

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(tags: usize, kind: [u8; 2]) -> Vec<u8> {
        let tags = [0x81, 0, 0, 7].repeat(tags);
        [&[0; 12][..], &tags, &kind, &[0; 40]].concat()
    }

    #[test]
    fn checksums_are_completed_where_the_card_looks_for_them() {
        let kind = 1 << 29 | 0b10 << 20;
        let (ipv4, ipv6) = ([8, 0], [0x86, 0xdd]);
        assert_eq!(checksum(&frame(0, ipv4), 34, 16), Some([14 << 9 | 0x14, kind | 1 << 10 | 1 << 11]));
        assert_eq!(checksum(&frame(1, ipv4), 38, 6), Some([18 << 9 | 0x14, kind | 1 << 10]));
        assert_eq!(checksum(&frame(0, ipv6), 54, 6), Some([14 << 9 | 0x28, kind]));
        // Elsewhere than TCP and UDP have it, in front of the IP header, too far behind it, and behind too many tags.
        assert_eq!(checksum(&frame(0, ipv4), 34, 2), None);
        assert_eq!(checksum(&frame(0, ipv4), 13, 6), None);
        assert_eq!(
            (checksum(&frame(0, ipv4), 526, 6), checksum(&frame(0, ipv4), 525, 6).is_some()),
            (None, true)
        );
        assert_eq!(
            (checksum(&frame(29, ipv4), 150, 6), checksum(&frame(28, ipv4), 150, 6).is_some()),
            (None, true)
        );
        assert_eq!(checksum(&frame(1, ipv4)[..17], 38, 6), None, "it ends before");
    }

    #[test]
    fn segments_are_described() {
        let tso = Tso { network: 14, transport: 34, headers: 66, size: 1448, payload: 0xffff };
        let kind = 1 << 29 | 0b10 << 20 | 0b11 << 10;
        assert_eq!(segmentation(tso), Some([14 << 9 | 0x14, kind | 32 << 40 | 1448 << 48]));
        assert_eq!(segmentation(Tso { network: 128, ..tso }), None);
        let offload = Offload::Segmentation { payload: 0xffff };
        let first = Piece { length: 2048, is_first: true, is_end: false, frame: 70_000, offload };
        let expected = 0x800 | 0b11 << 20 | 1 << 25 | 1 << 29 | 1 << 31 | 0b11 << 40 | 0xffff << 46;
        assert_eq!(data(first), expected);
        let last = Piece { length: 1, is_first: false, is_end: true, frame: 70_000, offload: Offload::None };
        assert_eq!(data(last), 1 | 0b11 << 20 | 0b11 << 24 | 1 << 29);
    }
}
