//! Pass one over a burst: which addresses are to be looked up, and what is to be done with packets that aren't plain.

use std::net::IpAddr;

use warmlane_mem::{BURST_CAPACITY, Packet};
use warmlane_sys::vector;
use warmlane_table::NextHopId;

use super::eight::Eights;
use super::fast::{self, IPV4_HEADERS, IPV6_HEADERS};
use super::reason::Reason;
use super::rewrite::{Ipv4, Ipv6, member_of};
use super::scratch::{Action, Gathered, GatheredIpv4, GatheredIpv6, Plain, SLOW, Scratch};
use super::source_check;
use super::validate::{Finding, validate};
use crate::control::{Admission, LaneRoutes};

/// Gathers plain IPv4 packets that came in by `port`, from `start` on. Returns the index of the first other packet.
#[inline(never)]
pub(super) fn gather_ipv4(
    packets: &[Packet],
    start: usize,
    port: u16,
    admission: Admission,
    gathered: &mut GatheredIpv4,
) -> usize {
    let start = vector::run(Eights { packets, start, port, admission, gathered });
    gather(packets, start, port, gathered, |headers, length| fast::plain_ipv4(headers, length, admission))
}

/// The same for IPv6.
#[inline(never)]
pub(super) fn gather_ipv6(
    packets: &[Packet],
    start: usize,
    port: u16,
    admission: Admission,
    gathered: &mut GatheredIpv6,
) -> usize {
    gather(packets, start, port, gathered, |headers, length| fast::plain_ipv6(headers, length, admission))
}

/// Gathers packets of which `plain` says what they are.
#[inline(always)]
fn gather<A: Copy, L: Copy, const HEADERS: usize>(
    packets: &[Packet],
    start: usize,
    port: u16,
    gathered: &mut Gathered<A, L>,
    plain: impl Fn(&[u8; HEADERS], usize) -> Option<Plain<A, L>>,
) -> usize {
    let (mut index, mut count) = (start, gathered.count);
    for packet in packets.get(start..).unwrap_or_default() {
        let (frame, length) = (packet.data(), packet.packet_length());
        // Of a chain, the first buffer is shorter than the packet.
        if packet.port() == port
            && frame.len() == length
            && let Some(headers) = frame.first_chunk()
            && let Some(plain) = plain(headers, length)
        {
            gathered.put(count, index, plain);
            (index, count) = (index + 1, count + 1);
        } else {
            break;
        }
    }
    gathered.count = count;
    index
}

/// Looks closely at one packet that isn't plain.
#[cold]
#[inline(never)]
pub(super) fn examine_slowly(packet: &mut Packet, index: usize, routes: &LaneRoutes, scratch: &mut Scratch) {
    let hops = routes.hops();
    let known = hops.port(packet.port()).is_some();
    let admission = known.then(|| hops.admission(packet.port()));
    let finding = validate(packet, admission);
    let table = hops.interface(packet).map(|interface| interface.table);
    let finding = match finding {
        // Options are for who has the addresses and clocks that they ask for.
        Finding::WithOptions(_, reason) if scratch.has_kernel => Finding::Punt(reason),
        Finding::WithOptions(IpAddr::V4(address), _) => Finding::Ipv4(address),
        Finding::WithOptions(IpAddr::V6(address), _) => Finding::Ipv6(address),
        other => other,
    };
    let finding = match finding {
        Finding::Ipv4(_) => source_check::claimed_finding(hops, packet).unwrap_or(finding),
        _ => finding,
    };
    let action = match (finding, table) {
        (Finding::Drop(reason @ (Reason::Truncated | Reason::UnknownPort | Reason::OtherHost)), None) => {
            Action::Drop(reason)
        }
        // Somebody else's VLAN, whatever is in the packet: a bridge's, or another network namespace's.
        (_, None) => Action::Punt(Reason::UnknownVlan),
        (Finding::Ipv4(address), Some(table)) if table == scratch.table => {
            scratch.ipv4.put_slow(index, address.to_bits(), 0);
            return;
        }
        (Finding::Ipv6(address), Some(table)) if table == scratch.table => {
            scratch.ipv6.put_slow(index, address.octets(), ());
            return;
        }
        (Finding::Ipv4(_), Some(table)) if !source_check::accepts_ipv4(routes, packet, table) => {
            Action::Drop(Reason::Ipv4ReversePath)
        }
        (Finding::Ipv6(_), Some(table)) if !source_check::accepts_ipv6(routes, packet, table) => {
            Action::Drop(Reason::Ipv6ReversePath)
        }
        (Finding::Ipv4(address), Some(table)) => {
            let mut found = [NextHopId::NONE];
            routes.lookup_ipv4(table, &[address.to_bits()], &mut found);
            member_of::<Ipv4, IPV4_HEADERS>(packet, routes, found[0])
        }
        (Finding::Ipv6(address), Some(table)) => {
            let mut found = [NextHopId::NONE];
            routes.lookup_ipv6(table, &[address.octets()], &mut found);
            member_of::<Ipv6, IPV6_HEADERS>(packet, routes, found[0])
        }
        (Finding::Arp, _) => Action::Arp,
        (Finding::Ipv6OnLink(reason), _) => Action::Ipv6OnLink(reason),
        (Finding::WithOptions(_, reason) | Finding::Punt(reason), _) => Action::Punt(reason),
        (Finding::Drop(reason), _) => Action::Drop(reason),
    };
    scratch.ports[index % BURST_CAPACITY] = SLOW;
    scratch.actions[index % BURST_CAPACITY] = action;
}
