//! Where packets say that they come from, looked up like where they go to: unicast reverse path forwarding (RFC 3704).
//!
//! Only where it is switched on: then a second burst lookup, before the first, so that what is dropped isn't looked up twice. Our own
//! addresses as sources are found without it.

use warmlane_mem::{BURST_CAPACITY, Burst, Packet};
use warmlane_table::NextHopId;
use warmlane_wire::{Ipv4Header, Ipv6Header, ethernet, ipv4, ipv6, martian};

use super::forward::Forwarder;
use super::reason::Reason;
use super::scratch::{Action, Gathered, SLOW};
use super::validate::Finding;
use crate::control::{
    ALWAYS_TOO_LARGE, Claimed, Hops, InterfaceCheck, LaneRoutes, NextHop, SourceCheck, TAGGED, TableNumber,
};

/// What is looked up of each family.
pub(super) struct Sources {
    ipv4: [u32; BURST_CAPACITY],
    ipv6: [[u8; 16]; BURST_CAPACITY],
    ways_back: [NextHopId; BURST_CAPACITY],
}

impl Sources {
    pub(super) const fn new() -> Self {
        Self {
            ipv4: [0; BURST_CAPACITY],
            ipv6: [[0; 16]; BURST_CAPACITY],
            ways_back: [NextHopId::NONE; BURST_CAPACITY],
        }
    }
}

impl Forwarder {
    /// Takes IPv4 packets that claim to come from an address of ours, or from all stations on a link, out of what was gathered.
    #[inline(never)]
    pub(super) fn check_claimed_sources(&mut self, burst: &Burst) {
        let (scratch, hops) = (&mut *self.scratch, self.routes.hops());
        let claimed = hops.claimed_sources();
        let sources = |index: u8| burst.get(usize::from(index)).map_or(0, ipv4_source);
        let gathered = scratch.ipv4.indices.get(..scratch.ipv4.count).unwrap_or_default();
        if gathered.iter().all(|&index| claimed.find(sources(index)).is_none()) {
            return;
        }
        // Packets of our own come by a port that takes them, and no others do.
        let first = burst.first().map(Packet::port);
        let is_for_own =
            |port| hops.port(port).is_some_and(|port| port.vlans.is_none() && port.source_check.accepts_own);
        if first.is_some_and(is_for_own) && burst.iter().all(|packet| Some(packet.port()) == first) {
            return;
        }
        let (ports, actions) = (&mut scratch.ports, &mut scratch.actions);
        scratch.ipv4.retain(|_, index, _| {
            let packet = burst.get(usize::from(index));
            let action = match packet.and_then(|packet| claimed_finding(hops, packet)) {
                None => return true,
                Some(Finding::Punt(reason)) => Action::Punt(reason),
                Some(_) => Action::Drop(Reason::Ipv4MartianSource),
            };
            ports[usize::from(index)] = SLOW;
            actions[usize::from(index)] = action;
            false
        });
    }

    /// Takes packets whose sources may not come in by their interfaces out of what was gathered.
    #[inline(never)]
    pub(super) fn check_sources(&mut self, burst: &Burst) {
        let (scratch, routes) = (&mut *self.scratch, &self.routes);
        let Sources { ipv4, ipv6, ways_back } = &mut *self.sources;
        for (index, source) in scratch.ipv4.indices.iter().take(scratch.ipv4.count).zip(&mut *ipv4) {
            *source = burst.get(usize::from(*index)).map_or(0, ipv4_source);
        }
        for (index, source) in scratch.ipv6.indices.iter().take(scratch.ipv6.count).zip(&mut *ipv6) {
            *source = burst.get(usize::from(*index)).map_or([0; 16], ipv6_source);
        }
        let mut refuse = |index: u8, reason| {
            scratch.ports[usize::from(index)] = SLOW;
            scratch.actions[usize::from(index)] = Action::Drop(reason);
        };
        if let (Some(sources), Some(hops)) =
            (ipv4.get(..scratch.ipv4.count), ways_back.get_mut(..scratch.ipv4.count))
            && !sources.is_empty()
        {
            routes.lookup_ipv4(scratch.table, sources, hops);
            scratch.ipv4.retain(|slot, index, length| {
                let way_back = ways_back[slot % BURST_CAPACITY];
                let packet = burst.get(usize::from(index));
                let fits =
                    packet.is_some_and(|packet| accepts_way_back(routes.hops(), packet, length, way_back));
                if !fits {
                    refuse(index, Reason::Ipv4ReversePath);
                }
                fits
            });
        }
        if let (Some(sources), Some(hops)) =
            (ipv6.get(..scratch.ipv6.count), ways_back.get_mut(..scratch.ipv6.count))
            && !sources.is_empty()
        {
            routes.lookup_ipv6(scratch.table, sources, hops);
            scratch.ipv6.retain(|slot, index, length| {
                let way_back = ways_back[slot % BURST_CAPACITY];
                let packet = burst.get(usize::from(index));
                let fits = packet.is_some_and(|packet| {
                    stays_on_link(sources.get(slot))
                        || accepts(routes.hops(), packet, length, way_back, |check| check.ipv6)
                });
                if !fits {
                    refuse(index, Reason::Ipv6ReversePath);
                }
                fits
            });
        }
    }
}

/// A link-local source is looked after where it is known whether the packet would leave its link.
fn stays_on_link(source: Option<&[u8; 16]>) -> bool {
    source.is_some_and(|source| martian::ipv6_stays_on_link((*source).into()))
}

/// What is to be said of an IPv4 packet for its source alone.
#[cold]
pub(super) fn claimed_finding(hops: &Hops, packet: &Packet) -> Option<Finding> {
    match hops.claimed_sources().find(ipv4_source(packet))? {
        Claimed::Own
            if hops.interface(packet).is_some_and(|interface| interface.source_check.accepts_own) =>
        {
            None
        }
        Claimed::Own => Some(Finding::Drop(Reason::Ipv4MartianSource)),
        Claimed::Broadcast => Some(Finding::Punt(Reason::Ipv4MartianSource)),
    }
}

/// Whether a packet that was gathered may come from a source with this way back.
fn accepts(
    hops: &Hops,
    packet: &Packet,
    length: u16,
    way_back: NextHopId,
    of_family: impl Fn(InterfaceCheck) -> SourceCheck,
) -> bool {
    let port = packet.port();
    let (check, vlan) = if length >= TAGGED {
        // An unknown VLAN is not gathered.
        let interface = hops.interface(packet);
        (interface.map(|interface| interface.source_check), interface.and_then(|interface| interface.vlan))
    } else {
        // Plain, hence untagged.
        (hops.port(port).map(|port| port.source_check), None)
    };
    check.is_none_or(|check| hops.accepts_source(of_family(check), way_back, port, vlan))
}

/// The same for IPv4, where the kernel may be told to take our own addresses.
fn accepts_way_back(hops: &Hops, packet: &Packet, length: u16, way_back: NextHopId) -> bool {
    let own_is_accepted =
        || hops.interface(packet).is_some_and(|interface| interface.source_check.accepts_own);
    let is_own = matches!(hops.next_hop(way_back), Some(NextHop::Local | NextHop::LocalPunt));
    (is_own && own_is_accepted()) || accepts(hops, packet, length, way_back, |check| check.ipv4)
}

/// The same for a single packet, whose layer 3 offset is known, before it is looked up in `table`.
#[cold]
pub(super) fn accepts_ipv4(routes: &LaneRoutes, packet: &Packet, table: TableNumber) -> bool {
    if !routes.hops().checks_sources() {
        return true;
    }
    let mut way_back = [NextHopId::NONE];
    routes.lookup_ipv4(table, &[ipv4_source(packet)], &mut way_back);
    accepts_way_back(routes.hops(), packet, ALWAYS_TOO_LARGE, way_back[0])
}

/// As [`accepts_ipv4`].
#[cold]
pub(super) fn accepts_ipv6(routes: &LaneRoutes, packet: &Packet, table: TableNumber) -> bool {
    if !routes.hops().checks_sources() {
        return true;
    }
    let source = ipv6_source(packet);
    let mut way_back = [NextHopId::NONE];
    routes.lookup_ipv6(table, &[source], &mut way_back);
    stays_on_link(Some(&source))
        || accepts(routes.hops(), packet, ALWAYS_TOO_LARGE, way_back[0], |check| check.ipv6)
}

/// Where the IP header begins: plain packets have no note of it.
fn ip(packet: &Packet) -> &[u8] {
    let offset = usize::from(packet.l3_offset()).max(ethernet::HEADER_LENGTH);
    packet.data().get(offset..).unwrap_or_default()
}

fn ipv4_source(packet: &Packet) -> u32 {
    ip(packet)
        .first_chunk::<{ ipv4::HEADER_LENGTH }>()
        .map_or(0, |header| Ipv4Header(header).source().to_bits())
}

fn ipv6_source(packet: &Packet) -> [u8; 16] {
    let header = ip(packet).first_chunk::<{ ipv6::HEADER_LENGTH }>();
    header.map_or([0; 16], |header| Ipv6Header(header).source().octets())
}

impl<A: Copy, L: Copy> Gathered<A, L> {
    /// Keeps what `keep` wants, in order. It is asked with the slot, the index in the burst and the length.
    fn retain(&mut self, mut keep: impl FnMut(usize, u8, u16) -> bool) {
        let mut kept = 0;
        for index in 0..self.count.min(BURST_CAPACITY) {
            if keep(index, self.indices[index], self.lengths[index]) {
                self.indices[kept] = self.indices[index];
                self.lengths[kept] = self.lengths[index];
                self.addresses[kept] = self.addresses[index];
                self.lifetimes[kept] = self.lifetimes[index];
                kept += 1;
            }
        }
        self.count = kept;
    }
}
