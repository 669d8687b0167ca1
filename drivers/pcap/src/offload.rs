//! Checksums that whoever sent the packet left to hardware: a file has none.

use warmlane_mem::Packet;
use warmlane_wire::checksum::Sum;

/// Completes the checksum over everything from `start` on. The field, `offset` bytes behind `start`, holds the sum
/// of the pseudo-header so far, as Linux leaves it (`CHECKSUM_PARTIAL` in include/linux/skbuff.h). `false` if the
/// field is not in the first segment: the packet is as it was.
pub(crate) fn complete_checksum(packet: &mut Packet, start: u16, offset: u8) -> bool {
    let mut skip = usize::from(start);
    let field = skip + usize::from(offset);
    if field + 2 > packet.len() {
        return false;
    }
    let mut sum = Sum::new();
    for segment in packet.segment_data() {
        let from = skip.min(segment.len());
        sum = sum.bytes(&segment[from..]);
        skip -= from;
    }
    // 0 means "no checksum" in UDP; its other form is as good for all protocols (skb_checksum_help in
    // net/core/dev.c does the same).
    let checksum = match sum.checksum() {
        0 => 0xffff,
        checksum => checksum,
    };
    packet.data_mut()[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    true
}
