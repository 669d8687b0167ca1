//! Packets that were taken out of a datagram, and are put back into it if the kernel is to get that after all.

use warmlane_mem::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
use warmlane_mem::{Checksum, LayerOffsets, Packet};
use warmlane_wire::{EtherType, ethernet, ipv4, ipv6, vlan};

use super::header;

/// What is noted of a packet that was taken out of a datagram, for the kernel to get that as it was.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct TakenOut {
    /// Bytes of the whole frame.
    pub(super) length: u32,
    /// The [mark](mark_of_table) that it would have.
    pub(super) mark: u32,
    /// The port that it came in by.
    pub(super) port: u16,
    /// Bytes in front of the frame inside. With [`SAVED`] the first of them are what its Ethernet header was written over, and no part of the whole frame.
    pub(super) headers: u16,
}

/// Says that something was [saved](save).
pub(super) const SAVED: u16 = 0x8000;

/// Puts a packet that was taken out of a datagram back into it. `false` if it is too late for that: a part of it is gone.
pub(crate) fn put_back(packet: &mut Packet) -> bool {
    let TakenOut { length, mark, port, headers } = *packet.application::<TakenOut>();
    let left = left_inside(packet);
    // What was taken off is still there, in front and behind.
    if packet.prepend(usize::from(headers & !SAVED)).is_err()
        || (headers & SAVED != 0 && !restore(packet, headers))
    {
        return false;
    }
    let Some(missing) = (length as usize).checked_sub(packet.packet_length()) else { return false };
    if missing > 0 && packet.append(missing).is_err() {
        return false;
    }
    packet.set_port(port);
    packet.set_mark(mark);
    let is_tagged = header(packet.data()).is_some_and(|header| header.ethertype() == EtherType::VLAN);
    let tag = if is_tagged { vlan::TAG_LENGTH } else { 0 };
    let l3 = ethernet::HEADER_LENGTH + tag;
    packet.set_l3_offset(l3 as u8);
    match left {
        Some(inside) => {
            let saved = if headers & SAVED == 0 { 0 } else { ethernet::HEADER_LENGTH };
            leave_inside(packet, l3, usize::from(headers & !SAVED) - saved, inside)
        }
        None => true,
    }
}

/// Where the headers of a packet are that was taken out of a datagram, if it is to be cut or has a checksum to be completed.
fn left_inside(packet: &Packet) -> Option<LayerOffsets> {
    packet.has_work_left().then(|| packet.layer_offsets())
}

/// The same of the datagram, whose headers begin at `l3` and have so many bytes with those of a frame inside. `false` if there are too many.
fn leave_inside(packet: &mut Packet, l3: usize, headers: usize, inside: LayerOffsets) -> bool {
    if let Checksum::Partial { start, offset } = packet.checksum() {
        let Some(start) = start.checked_add(headers as u16) else { return false };
        packet.set_checksum(Checksum::Partial { start, offset });
    }
    let network = match packet.data().get(l3).map(|byte| byte >> 4) {
        Some(4) => ipv4::HEADER_LENGTH,
        _ => ipv6::HEADER_LENGTH,
    };
    let moved = |offset: u16| if offset > 0 { offset.saturating_add(headers as u16) } else { 0 };
    packet.set_layer_offsets(LayerOffsets {
        l3: l3 as u16,
        l4: (l3 + network) as u16,
        inner_l3: moved(inside.l3),
        inner_l4: moved(inside.l4),
        payload: moved(inside.payload),
    });
    true
}

/// Keeps what is about to be written over, an Ethernet header's bytes from `start` on, in front of the whole frame. `None` if there is no space. Else how
/// many bytes are in front of what begins at `start` then, with those.
pub(super) fn save(packet: &mut Packet, start: usize) -> Option<usize> {
    const SIZE: usize = ethernet::HEADER_LENGTH;
    packet.prepend(SIZE).ok()?;
    packet.data_mut().copy_within(start + SIZE..start + 2 * SIZE, 0);
    packet.trim_front(SIZE).ok()?;
    Some(start + SIZE)
}

/// Writes it back, and takes it off the front.
fn restore(packet: &mut Packet, headers: u16) -> bool {
    const SIZE: usize = ethernet::HEADER_LENGTH;
    let start = usize::from(headers & !SAVED);
    let data = packet.data_mut();
    if data.len() < start + SIZE {
        return false;
    }
    data.copy_within(..SIZE, start);
    packet.trim_front(SIZE).is_ok()
}
