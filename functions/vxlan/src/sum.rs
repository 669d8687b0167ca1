//! Sums over packets in several buffers, one of whose checksums may be left to hardware.

use warmlane_mem::{Checksum, Packet};
use warmlane_wire::checksum::Sum;

/// The sum of `length` bytes from `start` on, over all buffers.
pub(crate) fn sum(packet: &Packet, start: usize, length: usize) -> Sum {
    let (mut skip, mut left) = (start, length);
    packet.segment_data().fold(Sum::new(), |sum, data| {
        let skipped = skip.min(data.len());
        skip -= skipped;
        let data = &data[skipped..];
        let data = &data[..left.min(data.len())];
        left -= data.len();
        sum.bytes(data)
    })
}

/// The same as if a [partial checksum](Checksum::Partial) among these bytes were completed.
///
/// What that covers, which goes on to the end, need not be read: its field holds the pseudo header's sum, and with the checksum in it all
/// of it sums up to the complement of that. The kernel calls it "local checksum offload".
pub(crate) fn sum_completed(packet: &Packet, start: usize, length: usize) -> Sum {
    let Checksum::Partial { start: covered, offset } = packet.checksum() else {
        return sum(packet, start, length);
    };
    let covered = usize::from(covered);
    let field = covered + usize::from(offset);
    let held = packet.data().get(field..).and_then(|bytes| bytes.first_chunk());
    match (covered.checked_sub(start), held) {
        (Some(before), Some(held)) if field + 2 <= start + length => {
            let completed = Sum::new().word(!u16::from_be_bytes(*held));
            sum(packet, start, before).then(completed)
        }
        _ => sum(packet, start, length),
    }
}
