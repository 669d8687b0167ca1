//! Packets that are for us: what a router answers itself so that it can be found and pinged.
//!
//! ARP requests (RFC 826), neighbour solicitations (RFC 4861) and echo requests (RFC 792, RFC 4443) for our addresses
//! become their answers in the same buffer and go back where they came from, tags included. All else is punted.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;

use warmlane_lane::Outputs;
use warmlane_mem::{Checksum, Packet};
use warmlane_wire::arp::{self, ArpOperation, ArpPacket};
use warmlane_wire::checksum::{self, update_u16};
use warmlane_wire::neighbour::{self, NeighbourMessage};
use warmlane_wire::{IpProtocol, Ipv4Header, Ipv6Header, MacAddress, ethernet, ipv4, ipv6};

use super::forward::{Forwarder, ipv6_packet};
use super::icmp_error::{ipv6_header, turn_around};
use super::reason::Reason;
use crate::control::OWN_TTL;

/// The types of echo requests (RFC 792, RFC 4443).
const ECHO_REQUEST_IPV4: u8 = 8;
const ECHO_REQUEST_IPV6: u8 = 128;

/// The group of all nodes on a link (RFC 4291 section 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

impl Forwarder {
    /// Sends a packet that has become an answer back by the port it came in by.
    fn answer(&mut self, packet: Packet, outputs: &mut Outputs<'_>) {
        let port = packet.port();
        let sent = self.send(packet, port, outputs);
        self.counters.answered().add(u64::from(sent));
    }

    /// Our Ethernet address on a port; the port is known, or the packet would not have come this far.
    fn our_mac(&self, port: u16) -> MacAddress {
        self.routes.hops().port(port).map_or(MacAddress::ZERO, |known| known.source_address(port))
    }

    /// Answers an ARP request for an address of the port it came in by.
    pub(super) fn finish_arp(&mut self, mut packet: Packet, outputs: &mut Outputs<'_>) {
        let (port, offset) = (packet.port(), usize::from(packet.l3_offset()));
        let our_mac = self.our_mac(port);
        let request = packet.data().get(offset..).and_then(|bytes| ArpPacket::parse(bytes).ok());
        let ours = |arp: &ArpPacket| {
            let address = IpAddr::V4(arp.target_ip);
            arp.operation == ArpOperation::Request
                && self.routes.hops().port(port).is_some_and(|known| known.has_address(address))
        };
        let Some(request) = request.filter(ours) else {
            return self.punt(packet, Reason::NeighbourMessage, outputs);
        };
        let reply = request.reply(our_mac).to_bytes();
        let end = offset + arp::PACKET_LENGTH;
        if packet.data().get(offset..end).is_none() || !turn_around(packet.data_mut(), our_mac) {
            return self.punt(packet, Reason::NeighbourMessage, outputs);
        }
        if let Some(bytes) = packet.data_mut().get_mut(offset..end) {
            bytes.copy_from_slice(&reply);
        }
        self.answer(packet, outputs);
    }

    /// Answers an IPv4 echo request to an address of ours.
    pub(super) fn finish_local_ipv4(&mut self, mut packet: Packet, outputs: &mut Outputs<'_>) {
        let our_mac = self.our_mac(packet.port());
        if is_echo_request_ipv4(&packet) && turn_around(packet.data_mut(), our_mac) {
            make_echo_reply_ipv4(&mut packet);
            return self.answer(packet, outputs);
        }
        self.punt(packet, Reason::NotHandledLocally, outputs);
    }

    /// Answers what is asked of us by IPv6 that stays on its link: to a group, or to a link-local address.
    pub(super) fn finish_on_link(&mut self, packet: Packet, reason: Reason, outputs: &mut Outputs<'_>) {
        let ip = packet.data().get(usize::from(packet.l3_offset())..).and_then(|bytes| bytes.first_chunk());
        let destination = ip.map_or(Ipv6Addr::UNSPECIFIED, |header| Ipv6Header(header).destination());
        let port = self.routes.hops().port(packet.port());
        let ours = port.is_some_and(|port| port.has_address(IpAddr::V6(destination)));
        if ours || neighbour::is_solicited_node(destination) {
            let reason = if ours { Reason::NotHandledLocally } else { reason };
            return self.finish_local_ipv6(packet, reason, outputs);
        }
        self.punt(packet, reason, outputs);
    }

    /// Answers a neighbour solicitation or an echo request.
    pub(super) fn finish_local_ipv6(
        &mut self,
        mut packet: Packet,
        reason: Reason,
        outputs: &mut Outputs<'_>,
    ) {
        let port = packet.port();
        let our_mac = self.our_mac(port);
        match read_question(&packet) {
            Some(Question::Echo) if turn_around(packet.data_mut(), our_mac) => {
                make_echo_reply_ipv6(&mut packet);
                self.answer(packet, outputs);
            }
            Some(Question::WhoHas { target, asker })
                if self
                    .routes
                    .hops()
                    .port(port)
                    .is_some_and(|known| known.has_address(IpAddr::V6(target))) =>
            {
                if advertise(&mut packet, our_mac, target, asker) {
                    return self.answer(packet, outputs);
                }
                self.punt(packet, Reason::NeighbourMessage, outputs);
            }
            Some(Question::WhoHas { .. }) => self.punt(packet, Reason::NeighbourMessage, outputs),
            _ => self.punt(packet, reason, outputs),
        }
    }
}

/// What may be asked of us.
enum Question {
    Echo,
    WhoHas { target: Ipv6Addr, asker: Ipv6Addr },
}

fn read_question(packet: &Packet) -> Option<Question> {
    let offset = usize::from(packet.l3_offset());
    let ip = packet.data().get(offset..).and_then(ipv6_packet)?;
    if ip.header.next_header() != IpProtocol::ICMPV6 {
        return None;
    }
    let (source, destination) = (ip.header.source(), ip.header.destination());
    if packet.segments() == 1
        && let Ok(NeighbourMessage::Solicitation { target, .. }) =
            NeighbourMessage::parse(ip.header, ip.payload)
    {
        return Some(Question::WhoHas { target, asker: source });
    }
    // An echo request to a group may be answered (RFC 4443 section 4.2); we don't.
    if destination.is_multicast() || source.is_unspecified() {
        return None;
    }
    let (start, length) = (offset + ipv6::HEADER_LENGTH, ip.header.payload_length());
    let message = sum(packet, start..start + usize::from(length));
    let sum = checksum::pseudo_ipv6(source, destination, IpProtocol::ICMPV6, length.into()).then(message);
    (ip.payload.first_chunk() == Some(&[ECHO_REQUEST_IPV6, 0]) && sum.is_valid()).then_some(Question::Echo)
}

/// Whether a valid IPv4 packet is an echo request.
fn is_echo_request_ipv4(packet: &Packet) -> bool {
    let offset = usize::from(packet.l3_offset());
    let ip = packet.data().get(offset..).unwrap_or_default();
    let Some(header) = ip.first_chunk().map(Ipv4Header) else { return false };
    if header.protocol() != IpProtocol::ICMP || header.is_fragment() {
        return false;
    }
    let [start, end] = [header.header_length(), usize::from(header.total_length())].map(|at| offset + at);
    let kind = packet.data().get(start..).and_then(|message| message.first_chunk());
    kind == Some(&[ECHO_REQUEST_IPV4, 0]) && sum(packet, start..end).is_valid()
}

/// The sum of some of a packet's bytes, whichever buffers they are in.
fn sum(packet: &Packet, mut range: Range<usize>) -> checksum::Sum {
    packet.segment_data().fold(checksum::Sum::new(), |sum, data| {
        let here = range.start.min(data.len())..range.end.min(data.len());
        range = range.start - here.start..range.end - here.end;
        sum.bytes(&data[here])
    })
}

/// Exchanges addresses and sets the type to "echo reply" (RFC 1122 section 3.2.2.6).
fn make_echo_reply_ipv4(packet: &mut Packet) {
    let offset = usize::from(packet.l3_offset());
    let ip = packet.data_mut().get_mut(offset..).unwrap_or_default();
    let Some(header_length) = ip.first_chunk().map(|header| Ipv4Header(header).header_length()) else {
        return;
    };
    let Some((header, message)) = ip.split_at_mut_checked(header_length) else { return };
    if let Some(fixed) = header.first_chunk_mut::<{ ipv4::HEADER_LENGTH }>() {
        let [.., a, b, c, d, e, f, g, h] = *fixed;
        if let Some(addresses) = fixed.last_chunk_mut() {
            *addresses = [e, f, g, h, a, b, c, d];
        }
        fixed[8] = OWN_TTL;
        [fixed[10], fixed[11]] = [0, 0];
    }
    let sum = checksum::checksum(header);
    if let Some(field) = header.get_mut(10..12) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
    set_type(message, 0);
    packet.set_checksum(Checksum::Unknown);
}

/// Exchanges addresses and sets the type to "echo reply". The pseudo header's sum stays the same.
fn make_echo_reply_ipv6(packet: &mut Packet) {
    let offset = usize::from(packet.l3_offset());
    let ip = packet.data_mut().get_mut(offset..).unwrap_or_default();
    let Some((header, message)) = ip.split_first_chunk_mut::<{ ipv6::HEADER_LENGTH }>() else { return };
    header[7] = OWN_TTL;
    if let Some((source, destination)) = header[8..].split_at_mut_checked(16) {
        source.swap_with_slice(destination);
    }
    set_type(message, 129);
    packet.set_checksum(Checksum::Unknown);
}

/// Changes an ICMP message's type and corrects its checksum for that.
fn set_type(message: &mut [u8], kind: u8) {
    if let Some([old, code, c0, c1]) = message.first_chunk_mut() {
        let before = u16::from_be_bytes([*old, *code]);
        *old = kind;
        let after = u16::from_be_bytes([*old, *code]);
        [*c0, *c1] = update_u16(u16::from_be_bytes([*c0, *c1]), before, after).to_be_bytes();
    }
}

/// Makes a solicitation for `target` the advertisement that answers it. `false` if that doesn't fit the buffer.
fn advertise(packet: &mut Packet, our_mac: MacAddress, target: Ipv6Addr, asker: Ipv6Addr) -> bool {
    // Who checks for duplicates has no address yet and listens to the group (RFC 4861 section 7.2.4).
    let nobody = asker.is_unspecified();
    let destination = if nobody { ALL_NODES } else { asker };
    let message = NeighbourMessage::Advertisement {
        target,
        target_link_layer: Some(our_mac),
        router: true,
        solicited: !nobody,
        replace: true,
    };
    let offset = usize::from(packet.l3_offset());
    let end = offset + ipv6::HEADER_LENGTH + message.length();
    if let Some(missing) = end.checked_sub(packet.len())
        && packet.append(missing).is_err()
    {
        return false;
    }
    packet.truncate(end);
    if !turn_around(packet.data_mut(), our_mac) {
        return false;
    }
    if nobody && let Some(header) = packet.data_mut().first_chunk_mut::<{ ethernet::HEADER_LENGTH }>() {
        let ethertype = warmlane_wire::EthernetHeader(header).ethertype();
        ethernet::write(header, MacAddress::of_ipv6_multicast(destination), our_mac, ethertype);
    }
    let header = ipv6_header(target, destination, message.length() as u16, neighbour::HOP_LIMIT);
    let bytes = message.to_bytes(target, destination);
    if let Some(ip) = packet.data_mut().get_mut(offset..end) {
        for (byte, value) in ip.iter_mut().zip(header.iter().chain(&bytes)) {
            *byte = *value;
        }
    }
    packet.set_checksum(Checksum::Unknown);
    true
}
