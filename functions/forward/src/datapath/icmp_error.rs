//! ICMP and ICMPv6 errors to the senders of packets that can't go on.
//!
//! An error goes by the route to the sender, in the table of the packet that it tells of. Its source is our address where it
//! leaves (RFC 1812 section 4.3.2.4). Without a way back there is none. Where a kernel stands behind the forwarder, it is the
//! kernel that tells senders: it knows more ways and addresses than the forwarder does.

use std::net::{Ipv4Addr, Ipv6Addr};

use warmlane_lane::Outputs;
use warmlane_mem::Packet;
use warmlane_port::software_offload::copy_completed;
use warmlane_sys::clock::{self, Clock};
use warmlane_table::NextHopId;
use warmlane_wire::checksum::ipv4_header_checksum20;
use warmlane_wire::icmpv4::{self, Icmpv4Message};
use warmlane_wire::icmpv6::{self, Icmpv6Message};
use warmlane_wire::{EtherType, IpProtocol, Ipv4Header, Ipv4Packet, MacAddress, ethernet, ipv4, ipv6};

use super::fast::{IPV4_HEADERS, IPV6_HEADERS};
use super::forward::{Forwarder, ipv6_packet, offer};
use super::rate_limit::TokenBucket;
use super::reason::Reason;
use super::rewrite::{Family, Ipv4, Ipv6};
use super::slow_path::set_link_layer;
use crate::control::config::IcmpLimits;
use crate::control::{Adjacency, Hops, LaneRoutes, NextHop, TableNumber};

/// Longest link-layer header: two tags.
const LONGEST_LINK_LAYER: usize = 22;

/// As much of a packet as any error looks at or quotes.
const LOOK: usize = LONGEST_LINK_LAYER + icmpv6::MAXIMUM_QUOTE;

/// Precedence "internetwork control" (RFC 1812 section 4.3.2.5).
const CONTROL_PRECEDENCE: u8 = 0xc0;

/// A full bucket of errors.
pub(super) fn limiter(limits: IcmpLimits) -> TokenBucket {
    TokenBucket::new(limits.rate, limits.burst, Clock::calibrated().cycles_per_second())
}

impl Forwarder {
    /// Leaves it to the kernel, if there is one, to tell the sender why a packet can't go on: as often as errors may be sent.
    /// Gives the packet back if there is none.
    pub(super) fn refer(
        &mut self,
        packet: Packet,
        reason: Reason,
        outputs: &mut Outputs<'_>,
    ) -> Option<Packet> {
        if !outputs.is_connected(Self::PUNT) {
            return Some(packet);
        }
        if self.may_send_error() {
            self.punt(packet, reason, outputs);
        } else {
            self.counters.drop_one(reason);
        }
        None
    }

    /// Tells the sender of an IPv4 packet what became of it, if it is owed that. `false` if there is no way to do so.
    pub(super) fn report_ipv4(
        &mut self,
        packet: &Packet,
        message: Icmpv4Message,
        outputs: &mut Outputs<'_>,
    ) -> bool {
        let (mut look, offset) = ([0; LOOK], usize::from(packet.l3_offset()));
        let count = copy_completed(packet, &mut look);
        let Some(bytes) = look.get(offset..count) else { return true };
        let Some(ip) = ipv4_packet(bytes) else { return true };
        let sender = ip.header.source();
        if !icmpv4::may_answer(&ip) || !came_from_one_host(&self.routes, packet, sender) {
            return true;
        }
        let bytes = bytes.get(..usize::from(ip.header.total_length())).unwrap_or(bytes);
        let mut found = [NextHopId::NONE];
        let hops = self.routes.hops();
        self.routes.lookup_ipv4(table_of(hops, packet), &[sender.to_bits()], &mut found);
        let adjacency = error_adjacency::<Ipv4, IPV4_HEADERS>(hops, found[0], bytes);
        // What can't be sent takes no token from the other family.
        let Some((adjacency, source)) =
            adjacency.and_then(|adjacency| Some((adjacency, hops.ipv4_source(&adjacency)?)))
        else {
            return false;
        };
        if !self.may_send_error() {
            return true;
        }
        let quote = icmpv4::quote(bytes);
        let length = ipv4::HEADER_LENGTH + icmpv4::HEADER_LENGTH + quote.len();
        self.identification = self.identification.wrapping_add(1);
        let header =
            ipv4_header(source, sender, length as u16, self.identification, self.routes.hops().ttl());
        self.send_error(&adjacency, EtherType::IPV4, &[&header[..], &message.header(quote), quote], outputs)
    }

    /// The same for IPv6.
    pub(super) fn report_ipv6(
        &mut self,
        packet: &Packet,
        message: Icmpv6Message,
        outputs: &mut Outputs<'_>,
    ) -> bool {
        let (mut look, offset) = ([0; LOOK], usize::from(packet.l3_offset()));
        let count = copy_completed(packet, &mut look);
        let Some(bytes) = look.get(offset..count) else { return true };
        let Some(ip) = ipv6_packet(bytes) else { return true };
        if !icmpv6::may_answer(&ip, &message) {
            return true;
        }
        let sender = ip.header.source();
        let end = ipv6::HEADER_LENGTH + usize::from(ip.header.payload_length());
        let bytes = bytes.get(..end).unwrap_or(bytes);
        let mut found = [NextHopId::NONE];
        let hops = self.routes.hops();
        self.routes.lookup_ipv6(table_of(hops, packet), &[sender.octets()], &mut found);
        let adjacency = error_adjacency::<Ipv6, IPV6_HEADERS>(hops, found[0], bytes);
        let Some((adjacency, source)) =
            adjacency.and_then(|adjacency| Some((adjacency, hops.ipv6_source(&adjacency)?)))
        else {
            return false;
        };
        if !self.may_send_error() {
            return true;
        }
        let quote = icmpv6::quote(bytes);
        let length = (icmpv6::HEADER_LENGTH + quote.len()) as u16;
        let header = ipv6_header(source, sender, length, self.routes.hops().hop_limit(&adjacency));
        let parts = [&header[..], &message.header(source, sender, quote), quote];
        self.send_error(&adjacency, EtherType::IPV6, &parts, outputs)
    }

    /// Takes a token for one more error, of the limits that hold now; counts it if there is none.
    fn may_send_error(&mut self) -> bool {
        if let Some(limits) = self.routes.hops().icmp_limits().filter(|limits| *limits != self.limits) {
            self.limits = limits;
            self.limiter = limiter(limits);
        }
        let may = self.limiter.take(clock::cycles());
        self.counters.errors_limited().add(u64::from(!may));
        may
    }

    /// Sends a new packet, made of these parts.
    fn send_error(
        &mut self,
        adjacency: &Adjacency,
        ethertype: EtherType,
        parts: &[&[u8]],
        outputs: &mut Outputs<'_>,
    ) -> bool {
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        let sent = length <= usize::from(adjacency.mtu)
            && self.pool.take().is_some_and(|mut packet| {
                let Ok(frame) = packet.append(ethernet::HEADER_LENGTH + length) else { return false };
                let bytes = parts.iter().copied().flatten();
                for (byte, value) in frame.iter_mut().skip(ethernet::HEADER_LENGTH).zip(bytes) {
                    *byte = *value;
                }
                packet.set_port(adjacency.port);
                packet.set_l3_offset(ethernet::HEADER_LENGTH as u8);
                set_link_layer(&mut packet, ethertype, adjacency)
                    && offer(packet, adjacency.port, outputs).is_ok()
            });
        self.counters.errors_sent().add(u64::from(sent));
        sent
    }
}

/// The table that a packet was looked up in.
fn table_of(hops: &Hops, packet: &Packet) -> TableNumber {
    hops.interface(packet).map_or(0, |interface| interface.table)
}

/// Where an error goes that quotes these bytes, of several paths as they would; `None` if its neighbour isn't known, or nobody.
fn error_adjacency<F: Family<N>, const N: usize>(
    hops: &Hops,
    found: NextHopId,
    quoted: &[u8],
) -> Option<Adjacency> {
    let member = hops.member(found, |seed| F::flow_hash(hops, seed, quoted));
    match hops.next_hop(member)? {
        NextHop::Forward(adjacency) => Some(*adjacency),
        NextHop::Tunnel(tunnel) => Some(tunnel.entrance(member)),
        _ => None,
    }
}

/// Addresses a frame to where it came from. `false` if that isn't one host.
pub(super) fn turn_around(frame: &mut [u8], our_mac: MacAddress) -> bool {
    let Some(header) = frame.first_chunk_mut::<{ ethernet::HEADER_LENGTH }>() else { return false };
    let link = warmlane_wire::EthernetHeader(header);
    let (sender, ethertype) = (link.source(), link.ethertype());
    ethernet::write(header, sender, our_mac, ethertype);
    sender.is_unicast()
}

/// Whether an address isn't the broadcast address of a link of ours (RFC 1812 section 4.3.2.7).
fn came_from_one_host(routes: &LaneRoutes, packet: &Packet, source: Ipv4Addr) -> bool {
    let mut hops = [NextHopId::NONE];
    routes.lookup_ipv4(table_of(routes.hops(), packet), &[source.to_bits()], &mut hops);
    !matches!(routes.hops().next_hop(hops[0]), Some(NextHop::DirectedBroadcast))
}

/// A view of a valid IPv4 packet that may be cut short.
fn ipv4_packet(bytes: &[u8]) -> Option<Ipv4Packet<'_>> {
    let (header, rest) = bytes.split_first_chunk()?;
    let header = Ipv4Header(header);
    let options = header.header_length().checked_sub(ipv4::HEADER_LENGTH)?;
    let (options, payload) = rest.split_at_checked(options)?;
    Some(Ipv4Packet { header, options, payload })
}

/// The header of an ICMP message of ours.
fn ipv4_header(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    length: u16,
    identification: u16,
    ttl: u8,
) -> [u8; ipv4::HEADER_LENGTH] {
    let ([l0, l1], [i0, i1]) = (length.to_be_bytes(), identification.to_be_bytes());
    let ([s0, s1, s2, s3], [d0, d1, d2, d3]) = (source.octets(), destination.octets());
    let protocol = IpProtocol::ICMP.0;
    let class = CONTROL_PRECEDENCE;
    let mut header = [0x45, class, l0, l1, i0, i1, 0, 0, ttl, protocol, 0, 0, s0, s1, s2, s3, d0, d1, d2, d3];
    [header[10], header[11]] = ipv4_header_checksum20(&header).to_be_bytes();
    header
}

/// The header of an ICMPv6 message of ours; `length` is the message's.
pub(super) fn ipv6_header(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    length: u16,
    hop_limit: u8,
) -> [u8; ipv6::HEADER_LENGTH] {
    let [l0, l1] = length.to_be_bytes();
    let start = [0x60, 0, 0, 0, l0, l1, IpProtocol::ICMPV6.0, hop_limit];
    let mut header = [0; ipv6::HEADER_LENGTH];
    let bytes = start.into_iter().chain(source.octets()).chain(destination.octets());
    for (byte, value) in header.iter_mut().zip(bytes) {
        *byte = value;
    }
    header
}
