//! VLAN tags, put on and taken off where an access is a VLAN of a port.

use warmlane_mem::{Packet, Vlan};
use warmlane_wire::{EtherType, LinkLayer, VlanTag, ethernet, vlan};

use crate::reason::Reason;

/// Bytes of both Ethernet addresses.
pub(crate) const ADDRESSES: usize = 12;

/// Notes where layer 3 is, so that what is left to hardware can move along with it.
fn note_l3_offset(packet: &mut Packet) {
    let offset = LinkLayer::parse(packet.data()).map_or(ethernet::HEADER_LENGTH, |link| link.header_length());
    packet.set_l3_offset(offset as u8);
}

/// Takes the tag off, which is in the frame unless there is one beside it.
pub(crate) fn without_tag(mut packet: Packet, tag: Option<u16>) -> Packet {
    if packet.vlan() == Vlan::None && tag.is_some() {
        note_l3_offset(&mut packet);
        // The addresses go over the tag.
        packet.data_mut().copy_within(..ADDRESSES, vlan::TAG_LENGTH);
        // It was there, as the link layer was read.
        let _ = packet.trim_front(vlan::TAG_LENGTH);
        packet.move_l3_offset(packet.l3_offset().saturating_sub(vlan::TAG_LENGTH as u8));
    }
    packet.set_vlan(Vlan::None);
    packet
}

/// The tag in a frame that has one.
pub(crate) fn tag_bytes(frame: &[u8]) -> Option<[u8; vlan::TAG_LENGTH]> {
    frame.get(ADDRESSES..)?.first_chunk().copied()
}

/// Puts the tag of a VLAN on.
pub(crate) fn put_tag_on(packet: &mut Packet, id: u16) -> Result<(), Reason> {
    note_l3_offset(packet);
    packet.prepend(vlan::TAG_LENGTH).map_err(|_| Reason::NoHeadroom)?;
    packet.move_l3_offset(packet.l3_offset().saturating_add(vlan::TAG_LENGTH as u8));
    let data = packet.data_mut();
    data.copy_within(vlan::TAG_LENGTH..vlan::TAG_LENGTH + ADDRESSES, 0);
    let [high, low] = id.to_be_bytes();
    let [first, second] = EtherType::VLAN.0.to_be_bytes();
    data[ADDRESSES..ADDRESSES + vlan::TAG_LENGTH].copy_from_slice(&[first, second, high, low]);
    Ok(())
}

/// The VLAN that a frame's own tag names.
#[inline(always)]
pub(crate) fn tag_of(link: Option<&LinkLayer<'_>>) -> Option<u16> {
    link.and_then(|link| link.outer).map(VlanTag::id)
}

/// The VLAN of a frame, whose tag may be beside it.
#[inline(always)]
pub(crate) fn vlan_of(packet: &Packet, link: Option<&LinkLayer<'_>>) -> Option<u16> {
    match packet.vlan() {
        Vlan::Stripped(beside) | Vlan::Insert(beside) => Some(beside.control & 0xfff),
        Vlan::None => tag_of(link),
    }
}
