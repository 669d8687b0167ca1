//! Pass three over a burst: new headers for what is plain and fits the next link.

use warmlane_mem::{BURST_CAPACITY, Packet};
use warmlane_table::NextHopId;
use warmlane_wire::{EtherType, Ipv4Header, Ipv6Header, ethernet, flow_hash, ipv6};

use super::eight::EIGHT;
use super::fast::{self, IPV4_HEADERS, IPV6_HEADERS};
use super::forward::ipv6_packet;
use super::scratch::{Action, Gathered, SLOW};
use super::tagged;
use crate::control::{ALWAYS_TOO_LARGE, Hops, LaneRoutes, MultipathHash, Rewrite, TAGGED};

/// The action on a packet whose layer 3 offset and next hop, or group of next hops, are known.
pub(super) fn member_of<F: Family<N>, const N: usize>(
    packet: &Packet,
    routes: &LaneRoutes,
    hop: NextHopId,
) -> Action {
    let hops = routes.hops();
    F::action(hops.member(hop, |seed| F::flow_hash(hops, seed, layer_3(packet))))
}

/// What pass three does differently for the two families; `N` is the length of their headers.
pub(super) trait Family<const N: usize> {
    const ETHERTYPE: EtherType;
    type Address: Copy;
    /// What pass one finds for [`rewrite`](Self::rewrite).
    type Lifetime: Copy;
    fn rewrite(headers: &mut [u8; N], rewrite: &Rewrite, lifetime: Self::Lifetime);
    /// Bytes of a packet that begins with these.
    fn length(ip: &[u8]) -> Option<u16>;
    /// Sends on what [`rewrite`](Self::rewrite) does, without the addresses.
    fn set_lifetime(ip: &mut [u8], lifetime: Self::Lifetime);
    fn action(hop: NextHopId) -> Action;
    /// What chooses one of several paths.
    fn flow_hash(hops: &Hops, seed: u64, packet: &[u8]) -> u32;
}

pub(super) fn layer_3(packet: &Packet) -> &[u8] {
    packet.data().get(usize::from(packet.l3_offset())..).unwrap_or_default()
}

pub(super) struct Ipv4;

impl Family<IPV4_HEADERS> for Ipv4 {
    const ETHERTYPE: EtherType = EtherType::IPV4;
    type Address = u32;
    type Lifetime = u32;

    #[inline(always)]
    fn rewrite(headers: &mut [u8; IPV4_HEADERS], rewrite: &Rewrite, lifetime: u32) {
        fast::rewrite_ipv4(headers, rewrite, lifetime);
    }

    fn length(ip: &[u8]) -> Option<u16> {
        Some(Ipv4Header(ip.first_chunk()?).total_length())
    }

    fn set_lifetime(ip: &mut [u8], lifetime: u32) {
        if let Some((_, word)) =
            ip.first_chunk_mut::<12>().and_then(|start| start.split_last_chunk_mut::<4>())
        {
            *word = lifetime.to_le_bytes();
        }
    }

    fn action(hop: NextHopId) -> Action {
        Action::Ipv4(hop)
    }

    fn flow_hash(hops: &Hops, seed: u64, packet: &[u8]) -> u32 {
        match hops.multipath_hash()[0] {
            MultipathHash::Addresses => flow_hash::ipv4_addresses(seed, packet),
            MultipathHash::Ports => flow_hash::ipv4(seed, packet),
        }
    }
}

pub(super) struct Ipv6;

impl Family<IPV6_HEADERS> for Ipv6 {
    const ETHERTYPE: EtherType = EtherType::IPV6;
    type Address = [u8; 16];
    type Lifetime = ();

    #[inline(always)]
    fn rewrite(headers: &mut [u8; IPV6_HEADERS], rewrite: &Rewrite, (): ()) {
        fast::rewrite_ipv6(headers, rewrite);
    }

    fn length(ip: &[u8]) -> Option<u16> {
        Some(Ipv6Header(ip.first_chunk()?).payload_length().saturating_add(ipv6::HEADER_LENGTH as u16))
    }

    fn set_lifetime(ip: &mut [u8], (): ()) {
        ip.first_chunk_mut().map(ipv6::decrement_hop_limit);
    }

    fn action(hop: NextHopId) -> Action {
        Action::Ipv6(hop)
    }

    fn flow_hash(hops: &Hops, seed: u64, packet: &[u8]) -> u32 {
        ipv6_packet(packet).map_or(0, |packet| match hops.multipath_hash()[1] {
            MultipathHash::Addresses => flow_hash::ipv6_addresses(seed, &packet),
            MultipathHash::Ports => flow_hash::ipv6(seed, &packet),
        })
    }
}

/// Pass three for one family.
#[inline(never)]
pub(super) fn rewrite_all<F: Family<N>, const N: usize>(
    packets: &mut [Packet],
    routes: &Hops,
    gathered: &Gathered<F::Address, F::Lifetime>,
    ports: &mut [u16; BURST_CAPACITY],
    actions: &mut [Action; BURST_CAPACITY],
) {
    let Gathered { lengths, hops, lifetimes, .. } = gathered;
    // What isn't rewritten at once, as its next hop is a group, or it has or gets a tag, or it takes the long way.
    let mut member = |packet: &mut Packet, index: usize, slot: usize| {
        let (hop, length, lifetime) = (hops[slot], lengths[slot], lifetimes[slot]);
        rewrite_otherwise::<F, N>(packet, routes, hop, length, lifetime).unwrap_or_else(|action| {
            actions[index % BURST_CAPACITY] = action;
            SLOW
        })
    };
    let mut slot = 0;
    while slot < gathered.count.min(BURST_CAPACITY) {
        // Most bursts are of one kind: then bounds are looked at once for eight packets.
        if let Some(first) = gathered.eight_from(slot)
            && let (Some(packets), Some(ports)) = (eight_mut(packets, first), eight_mut(ports, first))
            && let (Some(lengths), Some(hops)) = (eight(lengths, slot), eight(hops, slot))
            && let Some(lifetimes) = eight(lifetimes, slot)
        {
            let done = rewrite_eight::<F, N>(packets, routes, hops, lengths, lifetimes, ports);
            // The first of these is as it was, so it may be tried again.
            for each in done..EIGHT {
                let packet = &mut packets[each];
                let port = rewrite::<F, N>(packet, routes, hops[each], lengths[each], lifetimes[each]);
                let (index, slot) = (first + each, (slot + each) % BURST_CAPACITY);
                ports[each] = port.unwrap_or_else(|| member(packet, index, slot));
            }
            slot += EIGHT;
        } else {
            let index = usize::from(gathered.indices[slot]);
            let (Some(packet), Some(port)) = (packets.get_mut(index), ports.get_mut(index)) else { break };
            let rewritten = rewrite::<F, N>(packet, routes, hops[slot], lengths[slot], lifetimes[slot]);
            *port = rewritten.unwrap_or_else(|| member(packet, index, slot));
            slot += 1;
        }
    }
}

/// Rewrites eight packets up to the first that needs more than that ([`Rewrite::largest`]), which is left as it is; says how many were
/// rewritten.
#[inline(always)]
fn rewrite_eight<F: Family<N>, const N: usize>(
    packets: &mut [Packet; EIGHT],
    routes: &Hops,
    hops: &[NextHopId; EIGHT],
    lengths: &[u16; EIGHT],
    lifetimes: &[F::Lifetime; EIGHT],
    ports: &mut [u16; EIGHT],
) -> usize {
    for each in 0..EIGHT {
        let packet = &mut packets[each];
        let Some(port) = rewrite::<F, N>(packet, routes, hops[each], lengths[each], lifetimes[each]) else {
            return each;
        };
        ports[each] = port;
    }
    EIGHT
}

#[inline(always)]
fn eight<T>(all: &[T], first: usize) -> Option<&[T; EIGHT]> {
    all.get(first..)?.first_chunk()
}

#[inline(always)]
fn eight_mut<T>(all: &mut [T], first: usize) -> Option<&mut [T; EIGHT]> {
    all.get_mut(first..)?.first_chunk_mut()
}

/// Rewrites a packet that fits the link of its next hop, and gives the port that it leaves by.
#[inline(always)]
fn rewrite<F: Family<N>, const N: usize>(
    packet: &mut Packet,
    routes: &Hops,
    hop: NextHopId,
    length: u16,
    lifetime: F::Lifetime,
) -> Option<u16> {
    let rewrite = routes.rewrites().get(hop.index()).filter(|rewrite| length <= rewrite.largest())?;
    F::rewrite(packet.data_mut().first_chunk_mut()?, rewrite, lifetime);
    Some(rewrite.port())
}

/// Rewrites a packet whose next hop is a group for the member that its flow belongs to, and one that has a tag or gets one.
#[inline(never)]
fn rewrite_otherwise<F: Family<N>, const N: usize>(
    packet: &mut Packet,
    routes: &Hops,
    hop: NextHopId,
    length: u16,
    lifetime: F::Lifetime,
) -> Result<u16, Action> {
    if length < TAGGED {
        packet.set_l3_offset(ethernet::HEADER_LENGTH as u8);
    }
    let hop = routes.member(hop, |seed| F::flow_hash(routes, seed, layer_3(packet)));
    let rewritten = rewrite::<F, N>(packet, routes, hop, length, lifetime);
    let rewritten = match rewritten {
        None if length != ALWAYS_TOO_LARGE => tagged::rewrite::<F, N>(packet, routes, hop, lifetime),
        rewritten => rewritten,
    };
    rewritten.ok_or_else(|| F::action(hop))
}
