//! Packets that are plain but for a VLAN tag that they come with or leave with: those of a router on a trunk.
//!
//! Their headers move by the length of a tag, so they take more than untagged ones, but not the long way.

use warmlane_mem::Packet;
use warmlane_table::NextHopId;
use warmlane_wire::{EtherType, ethernet, vlan};

use super::fast::{self, bytes_at};
use super::rewrite::Family;
use super::scratch::{Plain, Scratch};
use super::slow_path::set_link_layer;
use crate::control::{Admission, Hops, NextHop, TAGGED};

/// Bytes of an Ethernet header and a tag.
const TAGGED_HEADER: usize = ethernet::HEADER_LENGTH + vlan::TAG_LENGTH;

/// EtherType and VLAN of a tag, without its priority, in the order of the wire.
const TAG_MASK: u32 = u32::from_le_bytes([0xff, 0xff, 0x0f, 0xff]);

/// The EtherType of such tags, in the order of the wire.
const TAG: u16 = EtherType::VLAN.0.to_be();

/// Gathers packets of one VLAN that are plain otherwise, from `start` on. Returns the index of the first other packet.
#[inline(never)]
pub(super) fn gather(packets: &mut [Packet], start: usize, hops: &Hops, scratch: &mut Scratch) -> usize {
    let Some(first) = packets.get(start) else { return start };
    let port = first.port();
    let Some(tag) = tag(first.data()) else { return start };
    if hops.table_of(first) != Some(scratch.table) {
        return start;
    }
    let admission = hops.admission(port);
    let mut index = start;
    for packet in packets.get_mut(start..).unwrap_or_default() {
        let (frame, length) = (packet.data(), packet.packet_length());
        let is_for_us = frame
            .first_chunk::<TAGGED_HEADER>()
            .is_some_and(|bytes| admission.admits(fast::first_bytes(bytes)));
        if packet.port() != port || frame.len() != length || self::tag(frame) != Some(tag) || !is_for_us {
            break;
        }
        // Seen from behind the tag's length, everything but the addresses is where it is in an untagged frame.
        let (frame, length) = (frame.get(vlan::TAG_LENGTH..).unwrap_or_default(), length - vlan::TAG_LENGTH);
        if let Some(headers) = frame.first_chunk()
            && let Some(plain) = fast::plain_ipv4(headers, length, Admission::ALL)
        {
            scratch.ipv4.put(scratch.ipv4.count, index, Plain { length: TAGGED, ..plain });
            scratch.ipv4.count += 1;
        } else if let Some(headers) = frame.first_chunk()
            && let Some(plain) = fast::plain_ipv6(headers, length, Admission::ALL)
        {
            scratch.ipv6.put(scratch.ipv6.count, index, Plain { length: TAGGED, ..plain });
            scratch.ipv6.count += 1;
        } else {
            break;
        }
        packet.set_l3_offset(TAGGED_HEADER as u8);
        index += 1;
    }
    index
}

/// The tag of a frame that has one of a VLAN (IEEE 802.1Q), without its priority.
#[inline(always)]
fn tag(frame: &[u8]) -> Option<u32> {
    let tag = u32::from_le_bytes(bytes_at::<12, 4>(frame)) & TAG_MASK;
    ((tag as u16).to_le() == TAG).then_some(tag)
}

/// Rewrites a plain packet whose layer 3 offset is known, with or without a tag, for a next hop with or without one. Gives the port that it leaves by;
/// `None`, and the packet as it was, if it takes the long way.
#[inline(never)]
pub(super) fn rewrite<F: Family<N>, const N: usize>(
    packet: &mut Packet,
    hops: &Hops,
    hop: NextHopId,
    lifetime: F::Lifetime,
) -> Option<u16> {
    let adjacency = match hops.next_hop(hop)? {
        NextHop::Forward(adjacency) => *adjacency,
        NextHop::Tunnel(tunnel) => tunnel.entrance(hop),
        _ => return None,
    };
    let length = F::length(ip(packet)?)?;
    if length > adjacency.mtu || !set_link_layer(packet, F::ETHERTYPE, &adjacency) {
        return None;
    }
    F::set_lifetime(ip(packet)?, lifetime);
    Some(adjacency.port)
}

/// What begins at the layer 3 offset.
#[inline(always)]
fn ip(packet: &mut Packet) -> Option<&mut [u8]> {
    let offset = usize::from(packet.l3_offset());
    packet.data_mut().get_mut(offset..)
}
