//! Does in software what packets need before they leave by a wire, and the next stage or port can't do: completes checksums,
//! cuts packets that are to be segmented, inserts VLAN tags. And what devices may have found and didn't: hashes of flows.
//!
//! A pipeline puts [`on_transmit`] in front of an output that can't do what packets of its inputs may need, and
//! [`on_receive`] behind an input if a stage can't deal with such packets at all. It decides that when it is built: where no
//! port leaves anything to others, nothing is put anywhere, and no packet is looked at.
//!
//! The other way round, [`merge_received`] puts the frames of a flow together again, for stages and ports that are the faster the fewer
//! packets there are. Whoever sets up a port decides whether it does.

mod flow_hash;
mod merge;
mod receive;
mod sctp;
mod segments;
#[cfg(test)]
mod tests;
mod transmit;

use warmlane_counters::drop_reasons;
use warmlane_mem::{Checksum, Packet, SegmentationKind, Vlan};
use warmlane_wire::checksum::Sum;
use warmlane_wire::segment::Transport;
use warmlane_wire::{ethernet, vlan};

use crate::offloads::{Layered, TransmitOffloads, Transports};

pub use flow_hash::flow_hash;
pub use merge::{MERGED, Merger, merge_received};
pub use receive::on_receive;
pub use sctp::{complete_sctp, is_sctp, is_sctp_intact};
pub use segments::{Segments, pieces};
pub use transmit::on_transmit;

/// How often in a row there may be no buffer for a segment before the rest of its packet is dropped. There may never be one:
/// all of them may be in packets that wait for this one.
const MAXIMUM_ATTEMPTS: u32 = 1_024;

drop_reasons! {
    /// Why a packet was dropped that needed something done in software.
    pub enum SoftwareDrop {
        /// The checksum was left to hardware, and its field is not in the packet's first buffer.
        ChecksumUnknown: "checksum-unknown", Warning;
        /// The packet was left to hardware to segment, in a way that is not known (an unknown tunnel, fragments, or segments of a few
        /// bytes).
        GsoUnknown: "gso-unknown", Warning;
        /// The pool ran out of buffers for the segments of a packet.
        NoBuffer: "no-buffer", Loss;
        /// The packet's first buffer has no space in front for a VLAN tag.
        NoHeadroom: "no-headroom", Loss;
        /// The segment had not left when its lane ended.
        Unsent: "unsent", Loss;
    }
}

/// The checksum that was left to hardware: where it is to be stored, from the first data byte, and its value. `None` if the
/// packet has none left, or if its field is not in the first buffer.
///
/// It needs no protocol: the field holds the pseudo header's sum, so the sum over everything from `start` to the end, field
/// included, is the one that the checksum is the complement of.
pub fn partial_checksum(packet: &Packet) -> Option<(usize, u16)> {
    let Checksum::Partial { start, offset } = packet.checksum() else { return None };
    let field = usize::from(start) + usize::from(offset);
    if field + 2 > packet.len() {
        return None;
    }
    let mut sum = Sum::new();
    let mut skip = usize::from(start);
    for data in packet.segment_data() {
        // `start` is inside the first segment, so only there something is skipped.
        sum = sum.bytes(data.get(skip..).unwrap_or_default());
        skip = 0;
    }
    // The place of the field tells which protocol it is.
    let is_udp = usize::from(offset) == Transport::Udp.checksum_offset();
    let transport = if is_udp { Transport::Udp } else { Transport::Tcp };
    Some((field, transport.checksum_to_send(sum.checksum())))
}

/// Copies the packet's front, as much as there is space for, with the checksum that it would have on a wire: to quote it, for example.
/// Returns how many bytes. A packet that is to be segmented will be on no wire as it is, and is copied as it is.
pub fn copy_completed(packet: &Packet, front: &mut [u8]) -> usize {
    let count = packet.copy_to(front);
    if packet.segmentation().is_none()
        && let Some((field, value)) = partial_checksum(packet)
        && let Some(place) = front.get_mut(field..field + 2)
    {
        place.copy_from_slice(&value.to_be_bytes());
    }
    count
}

/// Bytes of the longest frame that leaves for this packet: a segment's, if it is to be segmented.
#[inline(always)]
pub fn longest_part(packet: &Packet) -> usize {
    if packet.has_work_left() { longest_segment(packet) } else { packet.packet_length() }
}

#[cold]
fn longest_segment(packet: &Packet) -> usize {
    let length = packet.packet_length();
    match (packet.segmentation(), usize::from(packet.layer_offsets().payload)) {
        // If it is to be segmented, whoever noted that didn't say where.
        (None, _) | (_, 0) => length,
        (Some(segmentation), headers) => length.min(headers + usize::from(segmentation.size)),
    }
}

/// Completes the packet's checksum, if it was left to hardware, and notes that it is good.
///
/// # Errors
/// [`SoftwareDrop::ChecksumUnknown`]; the packet is then as it was.
pub fn complete_checksum(packet: &mut Packet) -> Result<(), SoftwareDrop> {
    if !matches!(packet.checksum(), Checksum::Partial { .. }) {
        return Ok(());
    }
    let (field, value) = partial_checksum(packet).ok_or(SoftwareDrop::ChecksumUnknown)?;
    let place = packet.data_mut().get_mut(field..field + 2).ok_or(SoftwareDrop::ChecksumUnknown)?;
    place.copy_from_slice(&value.to_be_bytes());
    packet.set_checksum(Checksum::Good);
    Ok(())
}

/// Puts the packet's VLAN tag among its bytes, if it is to be inserted.
///
/// # Errors
/// [`SoftwareDrop::NoHeadroom`]; the packet is then as it was.
pub fn insert_vlan_tag(packet: &mut Packet) -> Result<(), SoftwareDrop> {
    /// The two Ethernet addresses.
    const ADDRESSES: usize = ethernet::HEADER_LENGTH - 2;
    let Vlan::Insert(tag) = packet.vlan() else { return Ok(()) };
    if packet.len() < ADDRESSES || packet.prepend(vlan::TAG_LENGTH).is_err() {
        return Err(SoftwareDrop::NoHeadroom);
    }
    let [t0, t1] = if tag.is_service { [0x88, 0xa8] } else { [0x81, 0x00] };
    let [c0, c1] = tag.control.to_be_bytes();
    packet.data_mut().copy_within(vlan::TAG_LENGTH..vlan::TAG_LENGTH + ADDRESSES, 0);
    if let Some(place) = packet.data_mut().get_mut(ADDRESSES..ADDRESSES + vlan::TAG_LENGTH) {
        place.copy_from_slice(&[t0, t1, c0, c1]);
    }
    match packet.l3_offset() {
        0 => {
            if let Checksum::Partial { start, offset } = packet.checksum() {
                let start = start.saturating_add(vlan::TAG_LENGTH as u16);
                packet.set_checksum(Checksum::Partial { start, offset });
            }
        }
        offset => packet.move_l3_offset(offset.saturating_add(vlan::TAG_LENGTH as u8)),
    }
    packet.set_vlan(Vlan::None);
    Ok(())
}

/// Does what a packet needs and is in `missing`, but for segmentation. Says whether that is left to do.
fn prepare(packet: &mut Packet, missing: &TransmitOffloads) -> Result<bool, SoftwareDrop> {
    if missing.vlan_insert {
        insert_vlan_tag(packet)?;
    }
    if let Some(segmentation) = packet.segmentation() {
        let kinds = of_layer(packet, missing.segmentation);
        let is_missing = match segmentation.kind {
            SegmentationKind::Tcp4 => kinds.tcp4,
            SegmentationKind::Tcp6 => kinds.tcp6,
            SegmentationKind::Udp => kinds.udp4 || kinds.udp6,
        };
        // Whoever cuts it computes the checksums, too.
        return Ok(is_missing);
    }
    if of_layer(packet, missing.checksums) != Transports::NONE {
        // Those that the port could do itself are right as well.
        complete_checksum(packet)?;
    }
    Ok(false)
}

/// What of `offloads` concerns the packet's innermost transport header.
fn of_layer(packet: &Packet, offloads: Layered) -> Transports {
    if offloads.inner != offloads.outer && packet.layer_offsets().inner_l3 > 0 {
        offloads.inner
    } else {
        offloads.outer
    }
}
