//! The slow path, for packets whose route is known: tags, options, unusual sizes, addresses of ours, and whatever can't go on.

use warmlane_lane::Outputs;
use warmlane_mem::Packet;
use warmlane_port::software_offload::{Segments, longest_part};
use warmlane_table::NextHopId;
use warmlane_wire::icmpv4::{self, Icmpv4Message};
use warmlane_wire::icmpv6::{self, Icmpv6Message};
use warmlane_wire::{EtherType, Ipv4Header, Ipv6Header, MacAddress, ethernet, ipv4, ipv6, martian, vlan};

use super::forward::Forwarder;
use super::fragment::Cut;
use super::reason::Reason;
use super::scratch::Action;
use crate::control::{Adjacency, NextHop, TableNumber};

/// A [`NextHop`] that isn't a group, by value.
#[derive(Debug, Clone, Copy)]
enum Target {
    Forward(Adjacency),
    Local,
    NoNeighbour,
    Unresolved,
    DirectedBroadcast,
    Drop,
    Unreachable,
    Prohibited,
    Punt,
}

impl Forwarder {
    /// Does with a packet what the action says; counts it, whatever that is.
    #[cold]
    #[inline(never)]
    pub(super) fn take_slow_path(&mut self, packet: Packet, action: Action, outputs: &mut Outputs<'_>) {
        self.showing_drops(packet, outputs, |forwarder, packet, outputs| {
            forwarder.do_action(packet, action, outputs);
        });
    }

    fn do_action(&mut self, packet: Packet, action: Action, outputs: &mut Outputs<'_>) {
        match action {
            Action::Ipv4(hop) => self.finish_ipv4(packet, hop, outputs),
            Action::Ipv6(hop) => self.finish_ipv6(packet, hop, outputs),
            Action::Arp => self.finish_arp(packet, outputs),
            Action::Ipv6OnLink(reason) => self.finish_on_link(packet, reason, outputs),
            Action::Punt(reason) => self.punt(packet, reason, outputs),
            Action::Drop(reason) => self.counters.drop_one(reason),
        }
    }

    /// Gives a packet away, or drops it for this reason if nobody wants it.
    pub(super) fn punt(&mut self, mut packet: Packet, reason: Reason, outputs: &mut Outputs<'_>) {
        if !outputs.is_connected(Self::PUNT) {
            return self.counters.drop_one(reason);
        }
        let table = self.routes.hops().interface(&packet).map(|interface| interface.table);
        packet.set_mark(mark_of_table(table));
        match outputs.push(Self::PUNT, packet) {
            Ok(()) => self.counters.punted().add(1),
            Err(_) => self.counters.drop_one(Reason::PuntRefused),
        }
    }

    /// Passes on a packet whose neighbour's Ethernet address is to be found out.
    ///
    /// # Errors
    /// The packet, if there is nobody to hold it, or no space.
    fn hold(&mut self, mut packet: Packet, hop: NextHopId, outputs: &mut Outputs<'_>) -> Result<(), Packet> {
        packet.set_mark(hop.index() as u32);
        outputs.push(Self::HOLD, packet)?;
        self.counters.held().add(1);
        Ok(())
    }

    /// A copy of what is known of a next hop that isn't a group.
    fn target(&self, hop: NextHopId) -> Option<Target> {
        Some(match self.routes.hops().next_hop(hop)? {
            NextHop::Forward(adjacency) => Target::Forward(*adjacency),
            NextHop::Tunnel(tunnel) => Target::Forward(tunnel.entrance(hop)),
            NextHop::Group(_) => return None,
            NextHop::Local => Target::Local,
            NextHop::NoNeighbour => Target::NoNeighbour,
            NextHop::Unresolved(_) => Target::Unresolved,
            NextHop::DirectedBroadcast => Target::DirectedBroadcast,
            NextHop::Drop => Target::Drop,
            NextHop::Unreachable => Target::Unreachable,
            NextHop::Prohibited => Target::Prohibited,
            NextHop::Punt | NextHop::PuntBy(_) | NextHop::LocalPunt => Target::Punt,
        })
    }

    /// Tells the sender of a packet, whose layer 3 offset is known, that the neighbour can't be found. `false` if there is no
    /// way to do so.
    pub(super) fn report_unreachable(&mut self, packet: &Packet, outputs: &mut Outputs<'_>) -> bool {
        let first = packet.data().get(usize::from(packet.l3_offset())).copied().unwrap_or_default();
        match first >> 4 {
            4 => self.report_ipv4(packet, unreachable_ipv4(icmpv4::unreachable::HOST), outputs),
            6 => {
                let code = icmpv6::unreachable::ADDRESS;
                self.report_ipv6(packet, Icmpv6Message::Unreachable { code }, outputs)
            }
            _ => true,
        }
    }

    fn finish_ipv4(&mut self, mut packet: Packet, hop: NextHopId, outputs: &mut Outputs<'_>) {
        let offset = usize::from(packet.l3_offset());
        let Some(header) = packet.data().get(offset..).and_then(|bytes| bytes.first_chunk()) else {
            return self.counters.drop_one(Reason::Ipv4Truncated);
        };
        let ip = Ipv4Header(header);
        let (total, ttl, dont_fragment) = (usize::from(ip.total_length()), ip.ttl(), ip.dont_fragment());
        let largest = largest_part(&packet, total);
        let (reason, message) = match self.target(hop) {
            Some(Target::Local) => return self.finish_local_ipv4(packet, outputs),
            Some(Target::Punt) => return self.punt(packet, Reason::NotHandledLocally, outputs),
            Some(Target::DirectedBroadcast) => return self.punt(packet, Reason::Ipv4Broadcast, outputs),
            Some(Target::Drop) => return self.counters.drop_one(Reason::RouteDrop),
            // RFC 1812 section 5.2.7.1: network unreachable if there is no route, host unreachable if there is one
            // that leads nowhere.
            None => (Reason::NoRoute, unreachable_ipv4(icmpv4::unreachable::NETWORK)),
            Some(Target::Unresolved) => match self.hold(packet, hop, outputs) {
                Ok(()) => return,
                Err(back) => {
                    packet = back;
                    (Reason::NoNeighbour, unreachable_ipv4(icmpv4::unreachable::HOST))
                }
            },
            Some(Target::NoNeighbour) => (Reason::NoNeighbour, unreachable_ipv4(icmpv4::unreachable::HOST)),
            Some(Target::Unreachable) => {
                (Reason::RouteUnreachable, unreachable_ipv4(icmpv4::unreachable::HOST))
            }
            Some(Target::Prohibited) => {
                (Reason::RouteProhibited, unreachable_ipv4(icmpv4::unreachable::PROHIBITED))
            }
            // RFC 1812 section 5.3.1: the packet is not for us, so with a TTL of 1 it ends here.
            Some(Target::Forward(_)) if ttl <= 1 => {
                let code = icmpv4::time_exceeded::IN_TRANSIT;
                (Reason::TtlExpired, Icmpv4Message::TimeExceeded { code })
            }
            Some(Target::Forward(adjacency)) if largest > usize::from(adjacency.mtu) && dont_fragment => {
                let code = icmpv4::unreachable::FRAGMENTATION_NEEDED;
                (Reason::MtuExceeded, Icmpv4Message::Unreachable { code, mtu: adjacency.mtu })
            }
            Some(Target::Forward(adjacency)) => {
                if let Some(header) = packet.data_mut().get_mut(offset..).and_then(|ip| ip.first_chunk_mut())
                {
                    ipv4::decrement_ttl(header);
                }
                if largest > usize::from(adjacency.mtu) {
                    return self.finish_fragments(packet, &adjacency, outputs);
                }
                return self.finish_forward(packet, EtherType::IPV4, &adjacency, outputs);
            }
        };
        let Some(packet) = self.refer(packet, reason, outputs) else { return };
        self.counters.drop_one(reason);
        let told = self.report_ipv4(&packet, message, outputs);
        self.counters.errors_unsent().add(u64::from(!told));
    }

    fn finish_ipv6(&mut self, mut packet: Packet, hop: NextHopId, outputs: &mut Outputs<'_>) {
        let offset = usize::from(packet.l3_offset());
        let Some(header) = packet.data().get(offset..).and_then(|bytes| bytes.first_chunk()) else {
            return self.counters.drop_one(Reason::Ipv6Truncated);
        };
        let ip = Ipv6Header(header);
        let largest = largest_part(&packet, ipv6::HEADER_LENGTH + usize::from(ip.payload_length()));
        let (hop_limit, from_link_local) = (ip.hop_limit(), martian::ipv6_stays_on_link(ip.source()));
        let unreachable = |code| Icmpv6Message::Unreachable { code };
        let (reason, message) = match self.target(hop) {
            Some(Target::Local) => {
                return self.finish_local_ipv6(packet, Reason::NotHandledLocally, outputs);
            }
            Some(Target::Punt) => return self.punt(packet, Reason::NotHandledLocally, outputs),
            Some(Target::Drop | Target::DirectedBroadcast) => {
                return self.counters.drop_one(Reason::RouteDrop);
            }
            // RFC 4443 section 3.1.
            None => (Reason::NoRoute, unreachable(icmpv6::unreachable::NO_ROUTE)),
            // RFC 4007 section 9: a packet doesn't leave the zone of its source.
            Some(Target::Forward(_) | Target::Unresolved) if from_link_local => {
                (Reason::Ipv6LinkLocal, unreachable(icmpv6::unreachable::BEYOND_SCOPE))
            }
            Some(Target::Unresolved) => match self.hold(packet, hop, outputs) {
                Ok(()) => return,
                Err(back) => {
                    packet = back;
                    (Reason::NoNeighbour, unreachable(icmpv6::unreachable::ADDRESS))
                }
            },
            Some(Target::NoNeighbour) => (Reason::NoNeighbour, unreachable(icmpv6::unreachable::ADDRESS)),
            Some(Target::Unreachable) => {
                (Reason::RouteUnreachable, unreachable(icmpv6::unreachable::NO_ROUTE))
            }
            Some(Target::Prohibited) => {
                (Reason::RouteProhibited, unreachable(icmpv6::unreachable::PROHIBITED))
            }
            Some(Target::Forward(_)) if hop_limit <= 1 => {
                let code = icmpv6::time_exceeded::IN_TRANSIT;
                (Reason::HopLimitExpired, Icmpv6Message::TimeExceeded { code })
            }
            // Routers don't fragment (RFC 8200 section 4.5).
            Some(Target::Forward(adjacency)) if largest > usize::from(adjacency.mtu) => {
                (Reason::MtuExceeded, Icmpv6Message::PacketTooBig { mtu: u32::from(adjacency.mtu) })
            }
            Some(Target::Forward(adjacency)) => {
                if let Some(header) = packet.data_mut().get_mut(offset..).and_then(|ip| ip.first_chunk_mut())
                {
                    ipv6::decrement_hop_limit(header);
                }
                return self.finish_forward(packet, EtherType::IPV6, &adjacency, outputs);
            }
        };
        let Some(packet) = self.refer(packet, reason, outputs) else { return };
        self.counters.drop_one(reason);
        let told = self.report_ipv6(&packet, message, outputs);
        self.counters.errors_unsent().add(u64::from(!told));
    }

    /// Sends a packet on that needs no more than a new link-layer header.
    fn finish_forward(
        &mut self,
        mut packet: Packet,
        ethertype: EtherType,
        adjacency: &Adjacency,
        outputs: &mut Outputs<'_>,
    ) {
        if !set_link_layer(&mut packet, ethertype, adjacency) {
            return self.counters.drop_one(Reason::NoBuffer);
        }
        let sent = self.send(packet, adjacency.port, outputs);
        self.counters.forwarded().add(u64::from(sent));
    }

    /// Cuts a packet, and its segments if it is to be segmented, and sends the pieces.
    fn finish_fragments(&mut self, packet: Packet, adjacency: &Adjacency, outputs: &mut Outputs<'_>) {
        if packet.segmentation().is_none() {
            if let Err(reason) = self.send_fragments(packet, true, adjacency, outputs) {
                self.counters.drop_one(reason);
            }
            return;
        }
        let Ok(mut segments) = Segments::new(packet) else {
            return self.counters.drop_one(Reason::CannotFragment);
        };
        let mut is_first = true;
        while segments.remaining() > 0 {
            let sent = match segments.make_next() {
                Some(segment) => self.send_fragments(segment, is_first, adjacency, outputs),
                None => Err(Reason::NoBuffer),
            };
            match sent {
                Ok(()) => is_first = false,
                // Counted as one drop, as it came, as long as nothing of it has left.
                Err(reason) if is_first => return self.counters.drop_one(reason),
                Err(_) => return self.counters.fragments_lost().add(1 + segments.remaining() as u64),
            }
        }
    }

    /// Cuts a packet and sends the pieces. The first of a received packet counts as that.
    fn send_fragments(
        &mut self,
        packet: Packet,
        is_first: bool,
        adjacency: &Adjacency,
        outputs: &mut Outputs<'_>,
    ) -> Result<(), Reason> {
        let cut = Cut::new(packet, adjacency.mtu)?;
        // All or nothing: without its last fragments a packet only wastes the receiver's memory.
        let mut pieces = [const { None }; super::fragment::MAXIMUM_FRAGMENTS];
        let pieces = pieces.get_mut(..cut.count()).ok_or(Reason::CannotFragment)?;
        for (number, piece) in pieces.iter_mut().enumerate() {
            let mut packet = cut.make(number, &self.pool).ok_or(Reason::NoBuffer)?;
            if !set_link_layer(&mut packet, EtherType::IPV4, adjacency) {
                return Err(Reason::NoBuffer);
            }
            *piece = Some(packet);
        }
        let mut pieces = pieces.iter_mut().filter_map(Option::take);
        let first = pieces.next().ok_or(Reason::CannotFragment)?;
        super::forward::offer(first, adjacency.port, outputs).map_err(|(reason, _)| reason)?;
        if is_first {
            self.counters.forwarded().add(1);
            self.counters.fragmented().add(1);
        } else {
            self.counters.extra_fragments().add(1);
        }
        for piece in pieces {
            match super::forward::offer(piece, adjacency.port, outputs) {
                Ok(()) => self.counters.extra_fragments().add(1),
                Err(_) => self.counters.fragments_lost().add(1),
            }
        }
        Ok(())
    }
}

/// Bytes of the largest IP packet that leaves for this one of `total` bytes: a segment's, if it is to be segmented.
fn largest_part(packet: &Packet, total: usize) -> usize {
    if packet.segmentation().is_none() {
        return total;
    }
    total.min(longest_part(packet).saturating_sub(packet.l3_offset().into()))
}

/// What the mark of a punted packet says: the number of the table that it is looked up in, from 1, or 0 if it is of a VLAN
/// that its port has no interface for.
pub const fn mark_of_table(table: Option<TableNumber>) -> u32 {
    match table {
        Some(table) => table as u32 + 1,
        None => 0,
    }
}

fn unreachable_ipv4(code: u8) -> Icmpv4Message {
    Icmpv4Message::Unreachable { code, mtu: 0 }
}

/// Replaces what is in front of the IP packet, tags included. `false` if there is no space for it.
pub(super) fn set_link_layer(packet: &mut Packet, ethertype: EtherType, adjacency: &Adjacency) -> bool {
    let old = usize::from(packet.l3_offset());
    let new = ethernet::HEADER_LENGTH + if adjacency.vlan.is_some() { vlan::TAG_LENGTH } else { 0 };
    let moved = match old.checked_sub(new) {
        Some(surplus) => packet.trim_front(surplus).is_ok(),
        None => packet.prepend(new - old).is_ok(),
    };
    if !moved {
        return false;
    }
    packet.move_l3_offset(new as u8);
    write_link_layer(packet.data_mut(), adjacency.destination, adjacency.source, adjacency.vlan, ethertype)
}

/// Writes an Ethernet header with at most one tag. `false` if the bytes are too few.
fn write_link_layer(
    frame: &mut [u8],
    destination: MacAddress,
    source: MacAddress,
    vlan: Option<u16>,
    ethertype: EtherType,
) -> bool {
    let Some((header, rest)) = frame.split_first_chunk_mut() else { return false };
    let Some(vlan) = vlan else {
        ethernet::write(header, destination, source, ethertype);
        return true;
    };
    ethernet::write(header, destination, source, EtherType::VLAN);
    let Some(tag) = rest.first_chunk_mut::<{ vlan::TAG_LENGTH }>() else { return false };
    let ([a, b], [c, d]) = ((vlan & 0x0fff).to_be_bytes(), ethertype.0.to_be_bytes());
    *tag = [a, b, c, d];
    true
}
