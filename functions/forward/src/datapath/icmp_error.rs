//! ICMP and ICMPv6 errors to the senders of packets that can't go on.
//!
//! An error goes back the way its packet came: by the same port and the same tags, to the neighbour that handed the
//! packet to us. That neighbour is on the path from the sender, so it needs no table to get there, and a flood of bad
//! packets can't make us send to third parties. Its source is our address on that port (RFC 1812 section 4.3.2.4).

use std::net::{Ipv4Addr, Ipv6Addr};

use warmlane_lane::Outputs;
use warmlane_mem::Packet;
use warmlane_port::software_offload::partial_checksum;
use warmlane_sys::clock::{self, Clock};
use warmlane_table::NextHopId;
use warmlane_wire::checksum::ipv4_header_checksum20;
use warmlane_wire::icmpv4::{self, Icmpv4Message};
use warmlane_wire::icmpv6::{self, Icmpv6Message};
use warmlane_wire::{IpProtocol, Ipv4Header, Ipv4Packet, MacAddress, ethernet, ipv4, ipv6};

use super::forward::{Forwarder, ipv6_packet, offer};
use super::rate_limit::TokenBucket;
use crate::control::config::IcmpLimits;
use crate::control::{Interface, LaneRoutes, NextHop};

/// Longest link-layer header: two tags.
const LONGEST_LINK_LAYER: usize = 22;

/// As much of a packet as any error looks at or quotes.
const LOOK: usize = LONGEST_LINK_LAYER + icmpv6::MAXIMUM_QUOTE;

/// TTL and hop limit of what we send ourselves.
pub(super) const OWN_TTL: u8 = 64;

/// Precedence "internetwork control" (RFC 1812 section 4.3.2.5).
const CONTROL_PRECEDENCE: u8 = 0xc0;

/// A full bucket of errors.
pub(super) fn limiter(limits: IcmpLimits) -> TokenBucket {
    TokenBucket::new(limits.rate, limits.burst, Clock::calibrated().cycles_per_second())
}

impl Forwarder {
    /// Tells the sender of an IPv4 packet what became of it, if it is owed that.
    pub(super) fn report_ipv4(&mut self, packet: &Packet, message: Icmpv4Message, outputs: &mut Outputs<'_>) {
        let (mut look, offset) = ([0; LOOK], usize::from(packet.l3_offset()));
        let count = copy_complete(packet, &mut look);
        let Some(frame) = look.get(..count) else { return };
        let Some(ip) = frame.get(offset..).and_then(ipv4_packet) else { return };
        if !icmpv4::may_answer(&ip) || !came_from_one_host(&self.routes, packet, ip.header.source()) {
            return;
        }
        // What can't be sent for want of an address takes no token from the other family.
        let Some(source) = self.ipv4_source(packet) else { return self.count_error(false) };
        if !self.may_send_error() {
            return self.counters.errors_limited().add(1);
        }
        let end = frame.len().min(offset + usize::from(ip.header.total_length()));
        let quote = icmpv4::quote(frame.get(offset..end).unwrap_or_default());
        let length = ipv4::HEADER_LENGTH + icmpv4::HEADER_LENGTH + quote.len();
        self.identification = self.identification.wrapping_add(1);
        let header = ipv4_header(source, ip.header.source(), length as u16, self.identification);
        let parts = [&header[..], &message.header(quote), quote];
        let sent = self.send_back(frame.get(..offset).unwrap_or_default(), &parts, packet.port(), outputs);
        self.count_error(sent);
    }

    /// Tells the sender of an IPv6 packet what became of it, if it is owed that.
    pub(super) fn report_ipv6(&mut self, packet: &Packet, message: Icmpv6Message, outputs: &mut Outputs<'_>) {
        let (mut look, offset) = ([0; LOOK], usize::from(packet.l3_offset()));
        let count = copy_complete(packet, &mut look);
        let Some(frame) = look.get(..count) else { return };
        let Some(ip) = frame.get(offset..).and_then(ipv6_packet) else { return };
        if !icmpv6::may_answer(&ip, &message) {
            return;
        }
        let Some(source) = self.ipv6_source(packet) else { return self.count_error(false) };
        if !self.may_send_error() {
            return self.counters.errors_limited().add(1);
        }
        let end = frame.len().min(offset + ipv6::HEADER_LENGTH + usize::from(ip.header.payload_length()));
        let quote = icmpv6::quote(frame.get(offset..end).unwrap_or_default());
        let destination = ip.header.source();
        let length = (icmpv6::HEADER_LENGTH + quote.len()) as u16;
        let header = ipv6_header(source, destination, length, OWN_TTL);
        let parts = [&header[..], &message.header(source, destination, quote), quote];
        let sent = self.send_back(frame.get(..offset).unwrap_or_default(), &parts, packet.port(), outputs);
        self.count_error(sent);
    }

    /// Takes a token for one more error, of the limits that hold now.
    fn may_send_error(&mut self) -> bool {
        if let Some(limits) = self.routes.hops().icmp_limits().filter(|limits| *limits != self.limits) {
            self.limits = limits;
            self.limiter = limiter(limits);
        }
        self.limiter.take(clock::cycles())
    }

    fn count_error(&self, sent: bool) {
        let counter = if sent { self.counters.errors_sent() } else { self.counters.errors_unsent() };
        counter.add(1);
    }

    /// Our address where a packet came in, or else on any port.
    fn ipv4_source(&self, packet: &Packet) -> Option<Ipv4Addr> {
        let hops = self.routes.hops();
        let mut interfaces =
            hops.interface(packet).into_iter().chain(hops.ports().iter().map(Interface::of_port));
        interfaces.find_map(|interface| interface.ipv4_address())
    }

    /// The same for IPv6.
    fn ipv6_source(&self, packet: &Packet) -> Option<Ipv6Addr> {
        let hops = self.routes.hops();
        let mut interfaces =
            hops.interface(packet).into_iter().chain(hops.ports().iter().map(Interface::of_port));
        interfaces.find_map(|interface| interface.ipv6_address())
    }

    /// Sends a new packet to where a frame with this link-layer header came from.
    fn send_back(
        &mut self,
        link_layer: &[u8],
        parts: &[&[u8]],
        port: u16,
        outputs: &mut Outputs<'_>,
    ) -> bool {
        let Some(mut packet) = self.pool.take() else { return false };
        let length = link_layer.len() + parts.iter().map(|part| part.len()).sum::<usize>();
        let Ok(frame) = packet.append(length) else { return false };
        let bytes = [link_layer].into_iter().chain(parts.iter().copied()).flatten();
        for (byte, value) in frame.iter_mut().zip(bytes) {
            *byte = *value;
        }
        let Some(our_mac) = self.routes.hops().port(port).map(|known| known.source_address(port)) else {
            return false;
        };
        packet.set_port(port);
        packet.set_l3_offset(link_layer.len() as u8);
        turn_around(packet.data_mut(), our_mac) && offer(packet, port, outputs).is_ok()
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

/// Copies the packet's front, with the checksum that it would have on a wire. One that is to be segmented will be on none.
fn copy_complete(packet: &Packet, front: &mut [u8; LOOK]) -> usize {
    let count = packet.copy_to(front);
    if packet.segmentation().is_none()
        && let Some((field, value)) = partial_checksum(packet)
        && let Some(place) = front.get_mut(field..field + 2)
    {
        place.copy_from_slice(&value.to_be_bytes());
    }
    count
}

/// Whether an address isn't the broadcast address of a link of ours (RFC 1812 section 4.3.2.7).
fn came_from_one_host(routes: &LaneRoutes, packet: &Packet, source: Ipv4Addr) -> bool {
    let table = routes.hops().interface(packet).map_or(0, |interface| interface.table);
    let mut hops = [NextHopId::NONE];
    routes.lookup_ipv4(table, &[source.to_bits()], &mut hops);
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
) -> [u8; ipv4::HEADER_LENGTH] {
    let ([l0, l1], [i0, i1]) = (length.to_be_bytes(), identification.to_be_bytes());
    let ([s0, s1, s2, s3], [d0, d1, d2, d3]) = (source.octets(), destination.octets());
    let protocol = IpProtocol::ICMP.0;
    let class = CONTROL_PRECEDENCE;
    let mut header =
        [0x45, class, l0, l1, i0, i1, 0, 0, OWN_TTL, protocol, 0, 0, s0, s1, s2, s3, d0, d1, d2, d3];
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
