//! What the kernel is told of a packet that it sends, in bytes right in front of the frame
//! (`Documentation/networking/xsk-tx-metadata.rst`): that its transport checksum is left to the card, or to the kernel where the card
//! computes none.

use warmlane_mem::{Checksum, Packet};

/// Bytes of `struct xsk_tx_metadata`: flags; where summing starts, and where from there the sum goes; and a time to send at, which is not
/// asked for.
pub(crate) const BYTES: usize = 24;

/// Writes it in front of a packet whose checksum is left, if there is space. Says whether.
pub(crate) fn write(packet: &mut Packet) -> bool {
    let Checksum::Partial { start, offset } = packet.checksum() else { return false };
    let Ok(space) = packet.prepend(BYTES) else { return false };
    space.fill(0);
    space[..8].copy_from_slice(&u64::from(libc::XDP_TXMD_FLAGS_CHECKSUM).to_ne_bytes());
    space[8..10].copy_from_slice(&start.to_ne_bytes());
    space[10..12].copy_from_slice(&u16::from(offset).to_ne_bytes());
    packet.trim_front(BYTES).is_ok()
}

/// Whether there is space for it in front of this packet, or none is needed.
#[inline(always)]
pub(crate) fn has_space(packet: &Packet) -> bool {
    !packet.has_work_left() || packet.headroom() >= BYTES
}

/// What the packet's first descriptor says of it.
#[inline(always)]
pub(crate) fn options(packet: &Packet) -> u32 {
    if packet.has_work_left() { libc::XDP_TX_METADATA } else { 0 }
}
