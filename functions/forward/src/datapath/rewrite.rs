//! Pass three over a burst: new headers for what is plain and fits the next link.

use warmlane_mem::{BURST_CAPACITY, Packet};
use warmlane_table::NextHopId;
use warmlane_wire::{ethernet, flow_hash};

use super::fast::{self, IPV4_HEADERS, IPV6_HEADERS};
use super::forward::ipv6_packet;
use super::scratch::{Action, Gathered, SLOW};
use crate::control::{ALWAYS_TOO_LARGE, Hops, LaneRoutes, MultipathHash, Rewrite};

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
    fn rewrite(headers: &mut [u8; N], rewrite: &Rewrite);
    fn action(hop: NextHopId) -> Action;
    /// What chooses one of several paths.
    fn flow_hash(hops: &Hops, seed: u64, packet: &[u8]) -> u32;
}

pub(super) fn layer_3(packet: &Packet) -> &[u8] {
    packet.data().get(usize::from(packet.l3_offset())..).unwrap_or_default()
}

pub(super) struct Ipv4;

impl Family<IPV4_HEADERS> for Ipv4 {
    #[inline(always)]
    fn rewrite(headers: &mut [u8; IPV4_HEADERS], rewrite: &Rewrite) {
        fast::rewrite_ipv4(headers, rewrite);
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
    #[inline(always)]
    fn rewrite(headers: &mut [u8; IPV6_HEADERS], rewrite: &Rewrite) {
        fast::rewrite_ipv6(headers, rewrite);
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
pub(super) fn rewrite_all<F: Family<N>, A, const N: usize>(
    packets: &mut [Packet],
    routes: &Hops,
    gathered: &Gathered<A>,
    ports: &mut [u16; BURST_CAPACITY],
    actions: &mut [Action; BURST_CAPACITY],
) {
    let rewrites = routes.rewrites();
    let Some(indices) = gathered.indices.get(..gathered.count) else { return };
    let of_packets = gathered.lengths.iter().zip(&gathered.hops);
    for (&index, (&length, &hop)) in indices.iter().zip(of_packets) {
        let Some(packet) = packets.get_mut(usize::from(index)) else { break };
        ports[usize::from(index)] = match (rewrites.get(hop.index()), packet.data_mut().first_chunk_mut()) {
            (Some(rewrite), Some(headers)) if length <= rewrite.largest => {
                F::rewrite(headers, rewrite);
                rewrite.port
            }
            _ => match rewrite_member::<F, N>(packet, routes, hop, length) {
                Ok(port) => port,
                Err(action) => {
                    actions[usize::from(index)] = action;
                    SLOW
                }
            },
        };
    }
}

/// Rewrites a packet whose next hop is a group for the member that its flow belongs to. Gives the action on a packet
/// that needs more.
#[inline(never)]
pub(super) fn rewrite_member<F: Family<N>, const N: usize>(
    packet: &mut Packet,
    routes: &Hops,
    hop: NextHopId,
    length: u16,
) -> Result<u16, Action> {
    if length != ALWAYS_TOO_LARGE {
        packet.set_l3_offset(ethernet::HEADER_LENGTH as u8);
    }
    let hop = routes.member(hop, |seed| F::flow_hash(routes, seed, layer_3(packet)));
    match (routes.rewrites().get(hop.index()), packet.data_mut().first_chunk_mut()) {
        (Some(rewrite), Some(headers)) if length <= rewrite.largest => {
            F::rewrite(headers, rewrite);
            Ok(rewrite.port)
        }
        _ => Err(F::action(hop)),
    }
}
