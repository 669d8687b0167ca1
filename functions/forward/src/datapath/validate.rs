//! The long way through validation: everything that the fast checks of the first pass did not let through.
//!
//! The order is that of RFC 1812 section 5.2.2 and RFC 8200 section 3, from the outside in, so that the counted reason
//! is the first rule broken. What comes out valid (options, tags, padding, chains of buffers) is routed like the rest.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use warmlane_mem::Packet;
use warmlane_wire::checksum::Sum;
use warmlane_wire::martian::{
    ipv4_destination_is_martian, ipv4_source_is_martian, ipv4_stays_on_link, ipv6_destination_is_martian,
    ipv6_source_is_martian, ipv6_stays_on_link,
};
use warmlane_wire::{EtherType, Ipv4Header, Ipv6Header, LinkLayer, ethernet, ipv4, ipv6};

use super::reason::Reason;
use crate::control::Admission;

/// What is to be done with a packet after validation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    /// Route it by this address.
    Ipv4(Ipv4Addr),
    /// Route it by this address.
    Ipv6(Ipv6Addr),
    /// Route it by this address, unless somebody is there to whom its options may mean something.
    WithOptions(IpAddr, Reason),
    /// An ARP packet.
    Arp,
    /// IPv6 within the link: to a group or to a link-local address, which may be a question about us.
    Ipv6OnLink(Reason),
    /// Not to be forwarded; whoever takes punted packets may want it.
    Punt(Reason),
    /// Broken.
    Drop(Reason),
}

/// Validates a packet and notes its layer 3 offset. Frames to a group are only let through where IP is sent to groups.
#[cold]
pub(super) fn validate(packet: &mut Packet, admission: Option<Admission>) -> Finding {
    let Some(admission) = admission else { return Finding::Drop(Reason::UnknownPort) };
    let Ok(link) = LinkLayer::parse(packet.data()) else { return Finding::Drop(Reason::Truncated) };
    let destination = link.header.destination();
    let to_group = destination.is_multicast();
    let [a, b, c, d, e, f] = destination.0;
    if !to_group && !admission.admits(u64::from_le_bytes([a, b, c, d, e, f, 0, 0])) {
        return Finding::Drop(Reason::OtherHost);
    }
    let (ethertype, offset) = (link.ethertype, link.header_length());
    packet.set_l3_offset(offset as u8);
    match ethertype {
        EtherType::IPV4 => check_ipv4(packet, offset, to_group),
        EtherType::IPV6 => check_ipv6(packet, offset, to_group),
        EtherType::ARP => Finding::Arp,
        _ if ethertype.is_vlan() => Finding::Drop(Reason::TooManyTags),
        _ => Finding::Punt(Reason::UnknownEthertype),
    }
}

/// Cuts off what the link layer added behind the IP packet, but for the padding that short frames need anyway.
fn cut_padding(packet: &mut Packet, length: usize) {
    if packet.packet_length() > length.max(ethernet::MINIMUM_FRAME) {
        packet.truncate(length.max(ethernet::MINIMUM_FRAME));
    }
}

fn check_ipv4(packet: &mut Packet, offset: usize, to_group: bool) -> Finding {
    let Some((fixed, rest)) = packet.data().get(offset..).and_then(|bytes| bytes.split_first_chunk()) else {
        return Finding::Drop(Reason::Ipv4Truncated);
    };
    let header = Ipv4Header(fixed);
    // RFC 1812 section 5.2.2, in the order in which a rule needs those before it.
    if header.version() != 4 {
        return Finding::Drop(Reason::Ipv4Version);
    }
    let options =
        header.header_length().checked_sub(ipv4::HEADER_LENGTH).and_then(|length| rest.get(..length));
    let Some(options) = options else { return Finding::Drop(Reason::Ipv4HeaderLength) };
    let total = usize::from(header.total_length());
    if total < header.header_length() || offset + total > packet.packet_length() {
        return Finding::Drop(Reason::Ipv4TotalLength);
    }
    if !Sum::new().bytes(fixed).bytes(options).is_valid() {
        return Finding::Drop(Reason::Ipv4Checksum);
    }
    let (source, destination) = (header.source(), header.destination());
    // A host that asks for its address sends from 0.0.0.0 to everybody (RFC 1812 section 5.3.7 exempts that).
    if ipv4_source_is_martian(source) && !(source.is_unspecified() && destination.is_broadcast()) {
        // The kernel takes what is reserved for addresses like others.
        return match source.octets() {
            [0 | 240..=255, ..] if !source.is_unspecified() && !source.is_broadcast() => {
                Finding::Punt(Reason::Ipv4MartianSource)
            }
            _ => Finding::Drop(Reason::Ipv4MartianSource),
        };
    }
    if destination.is_broadcast() {
        return Finding::Punt(Reason::Ipv4Broadcast);
    }
    if destination.is_multicast() {
        return Finding::Punt(Reason::Ipv4Multicast);
    }
    if ipv4_destination_is_martian(destination) {
        return match destination.octets() {
            [0 | 240..=255, ..] if !destination.is_unspecified() => {
                Finding::Punt(Reason::Ipv4MartianDestination)
            }
            _ => Finding::Drop(Reason::Ipv4MartianDestination),
        };
    }
    if to_group {
        return Finding::Drop(Reason::LinkLayerGroup);
    }
    if ipv4_stays_on_link(source) || ipv4_stays_on_link(destination) {
        return Finding::Punt(Reason::Ipv4LinkLocal);
    }
    match source_routed(options) {
        Some(true) => return Finding::Punt(Reason::Ipv4SourceRoute),
        None => return Finding::Punt(Reason::Ipv4Options),
        Some(false) => {}
    }
    let has_options = !options.is_empty();
    cut_padding(packet, offset + total);
    if has_options {
        return Finding::WithOptions(destination.into(), Reason::Ipv4Options);
    }
    Finding::Ipv4(destination)
}

/// Whether there is a source routing option among these; `None` if they don't add up (RFC 791 section 3.1).
fn source_routed(mut options: &[u8]) -> Option<bool> {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const LOOSE_SOURCE_ROUTE: u8 = 131;
    const STRICT_SOURCE_ROUTE: u8 = 137;
    while let [kind, rest @ ..] = options {
        options = match *kind {
            END => break,
            NO_OPERATION => rest,
            LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE => return Some(true),
            // The length counts type and length themselves.
            _ => options.get(usize::from(*rest.first()?).max(2)..).filter(|_| rest[0] >= 2)?,
        };
    }
    Some(false)
}

fn check_ipv6(packet: &mut Packet, offset: usize, to_group: bool) -> Finding {
    let Some(fixed) = packet.data().get(offset..).and_then(|bytes| bytes.first_chunk()) else {
        return Finding::Drop(Reason::Ipv6Truncated);
    };
    let header = Ipv6Header(fixed);
    if header.version() != 6 {
        return Finding::Drop(Reason::Ipv6Version);
    }
    let length = offset + ipv6::HEADER_LENGTH + usize::from(header.payload_length());
    // A length of zero with a hop-by-hop header is a jumbogram (RFC 2675 section 2), larger than any link here.
    let jumbogram =
        header.payload_length() == 0 && header.next_header() == warmlane_wire::IpProtocol::HOP_BY_HOP;
    if length > packet.packet_length() {
        return Finding::Drop(Reason::Ipv6PayloadLength);
    }
    if jumbogram {
        return Finding::Punt(Reason::Ipv6PayloadLength);
    }
    let (source, destination) = (header.source(), header.destination());
    let has_options = header.next_header() == warmlane_wire::IpProtocol::HOP_BY_HOP;
    // A host that checks whether its address is free asks a group from `::` (RFC 4862 section 5.4.2).
    if ipv6_source_is_martian(source) && !(source.is_unspecified() && destination.is_multicast()) {
        let finding = if source.to_ipv4_mapped().is_some() { Finding::Punt } else { Finding::Drop };
        return finding(Reason::Ipv6MartianSource);
    }
    if ipv6_destination_is_martian(destination) {
        return Finding::Punt(Reason::Ipv6MartianDestination);
    }
    if destination.is_multicast() {
        cut_padding(packet, length);
        return Finding::Ipv6OnLink(Reason::Ipv6Multicast);
    }
    if to_group {
        return Finding::Drop(Reason::LinkLayerGroup);
    }
    cut_padding(packet, length);
    if ipv6_stays_on_link(destination) {
        return Finding::Ipv6OnLink(Reason::Ipv6LinkLocal);
    }
    if has_options {
        return Finding::WithOptions(destination.into(), Reason::Ipv6Options);
    }
    // A link-local source may speak to us, but not through us: that is seen when the route is known.
    Finding::Ipv6(destination)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_walked() {
        assert_eq!(source_routed(&[]), Some(false));
        assert_eq!(source_routed(&[1, 1, 7, 3, 4, 0, 131, 3]), Some(false));
        assert_eq!(source_routed(&[1, 131, 3, 4]), Some(true));
        assert_eq!(source_routed(&[7, 3, 4, 137]), Some(true));
        assert_eq!(source_routed(&[7, 1, 0, 0]), None);
        assert_eq!(source_routed(&[7, 5, 0, 0]), None);
        assert_eq!(source_routed(&[1, 1, 1, 7]), None);
    }
}
