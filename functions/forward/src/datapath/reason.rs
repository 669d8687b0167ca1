//! Why the forwarder drops packets. Each reason has its own counter; the first rule that a packet breaks is counted.

use warmlane_port::drop_reasons;

drop_reasons! {
    /// Why a packet was dropped.
    pub enum Reason {
        /// Shorter than its Ethernet header and tags.
        Truncated: "truncated", Warning, "the frame ends within its Ethernet header or a VLAN tag";
        /// The input port has no number here.
        UnknownPort: "unknown-port", Loss, "the packet came in by a port that the routes don't know";
        /// The destination address is another station's.
        OtherHost: "other-host", Notice, "the frame is addressed to another station";
        /// Neither IPv4 nor IPv6 nor ARP.
        UnknownEthertype: "unknown-ethertype", Notice, "the frame carries neither IPv4 nor IPv6 nor ARP";
        /// A VLAN that the port has no interface for.
        UnknownVlan: "unknown-vlan", Notice, "the frame is of a VLAN that the port has no interface for";
        /// More than two tags.
        TooManyTags: "too-many-vlan-tags", Warning, "the frame has more than two VLAN tags";
        /// An IP packet to one station in a frame to many (RFC 1812 section 5.3.4).
        LinkLayerGroup: "link-layer-group", Warning, "the IP packet is for one station, its frame was sent to many";

        /// Fewer than 20 bytes.
        Ipv4Truncated: "ipv4-truncated", Warning, "the frame ends within the IPv4 header";
        /// The version isn't 4.
        Ipv4Version: "ipv4-version", Warning, "the IP version is not 4 in a frame marked as IPv4";
        /// The header length is below 20 or beyond the packet.
        Ipv4HeaderLength: "ipv4-header-length", Warning, "the IPv4 header length is below 20 or beyond the frame";
        /// The total length is below the header's or beyond the packet.
        Ipv4TotalLength: "ipv4-total-length", Warning, "the IPv4 total length is below the header's or beyond the frame";
        /// The header checksum is wrong.
        Ipv4Checksum: "ipv4-checksum", Warning, "the IPv4 header checksum is wrong";
        /// A source that no host has (RFC 1812 section 5.3.7).
        Ipv4MartianSource: "ipv4-martian-source", Warning, "the IPv4 source is an address that no host may send from";
        /// A source that isn't reached the way that the packet came (RFC 3704), where that is checked.
        Ipv4ReversePath: "ipv4-reverse-path", Warning,
            "there is no route back to the IPv4 source, or not by the interface that the packet came in by";
        /// A destination that no host has (RFC 1812 section 5.3.7).
        Ipv4MartianDestination: "ipv4-martian-destination", Warning,
            "the IPv4 destination is an address that nothing may be sent to";
        /// Loose or strict source routing (RFC 7126 sections 4.3 and 4.4).
        Ipv4SourceRoute: "ipv4-source-route", Warning, "the IPv4 packet wants to choose its own route";
        /// Options that don't add up (RFC 791 section 3.1).
        Ipv4Options: "ipv4-options", Warning, "the IPv4 options are malformed";
        /// To everybody on a link.
        Ipv4Broadcast: "ipv4-broadcast", Notice, "the IPv4 packet is a broadcast, which is not forwarded";
        /// To a group.
        Ipv4Multicast: "ipv4-multicast", Notice, "the IPv4 packet is multicast, which is not routed here";
        /// Link-local addresses (RFC 3927 section 7).
        Ipv4LinkLocal: "ipv4-link-local", Notice, "the IPv4 packet has link-local addresses, which are not forwarded";
        /// The TTL ran out.
        TtlExpired: "ttl-expired", Notice, "the TTL ran out";

        /// Fewer than 40 bytes.
        Ipv6Truncated: "ipv6-truncated", Warning, "the frame ends within the IPv6 header";
        /// The version isn't 6.
        Ipv6Version: "ipv6-version", Warning, "the IP version is not 6 in a frame marked as IPv6";
        /// The payload length is beyond the packet, or is that of a jumbogram.
        Ipv6PayloadLength: "ipv6-payload-length", Warning, "the IPv6 payload length is beyond the frame, or a jumbogram's";
        /// A source that no host has.
        Ipv6MartianSource: "ipv6-martian-source", Warning, "the IPv6 source is an address that no host may send from";
        /// A source that isn't reached the way that the packet came (RFC 3704), where that is checked.
        Ipv6ReversePath: "ipv6-reverse-path", Warning,
            "there is no route back to the IPv6 source, or not by the interface that the packet came in by";
        /// A destination that no host has.
        Ipv6MartianDestination: "ipv6-martian-destination", Warning,
            "the IPv6 destination is an address that nothing may be sent to";
        /// To a group.
        Ipv6Multicast: "ipv6-multicast", Notice, "the IPv6 packet is multicast, which is not routed here";
        /// Link-local addresses (RFC 4291 section 2.5.6).
        Ipv6LinkLocal: "ipv6-link-local", Notice, "the IPv6 packet has link-local addresses, which are not forwarded";
        /// The hop limit ran out.
        HopLimitExpired: "hop-limit-expired", Notice, "the hop limit ran out";

        /// No route at all.
        NoRoute: "no-route", Notice, "there is no route to the destination";
        /// The route says so.
        RouteDrop: "route-drop", Notice, "the route to the destination says drop";
        /// The route says so.
        RouteUnreachable: "route-unreachable", Notice, "the route to the destination says unreachable";
        /// The route says so.
        RouteProhibited: "route-prohibited", Notice, "the route to the destination says prohibited";
        /// On a link of ours, but where?
        NoNeighbour: "no-neighbour", Notice, "the destination is on a link of ours, but its Ethernet address is not known";
        /// Larger than the next link carries, and may not be cut.
        MtuExceeded: "mtu-exceeded", Notice, "the packet is larger than the next link's MTU and may not be fragmented";
        /// Fragments don't fit: the header leaves no room for 8 bytes of data.
        CannotFragment: "cannot-fragment", Warning, "the packet cannot be cut into fragments that the next link carries";
        /// To us, and neither ARP, neighbour discovery nor ping.
        NotHandledLocally: "not-handled-locally", Notice, "the packet is for this router, which has no use for it";
        /// An ARP or neighbour message that isn't a question about us.
        NeighbourMessage: "neighbour-message", Notice, "an ARP or neighbour discovery message that needs no answer from us";

        /// Whoever takes what isn't for us doesn't keep up.
        PuntRefused: "punt-refused", Loss, "the packet is for the kernel, which did not take it";
        /// Out of buffers.
        NoBuffer: "no-buffer", Loss, "the pool had no buffer for a fragment or a tag";
        /// A next hop's port that isn't there.
        NoPort: "no-port", Loss, "the output port is not connected to this lane";
        /// The port doesn't keep up.
        OutputQueueFull: "output-queue-full", Loss, "the output port did not take the packet in time";
    }
}

/// More reasons than fit the byte that carries one on the data path would be counted for the last.
const _: () = assert!(Reason::ALL.len() <= 256);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_sentences_are_there() {
        for (number, reason) in Reason::ALL.iter().enumerate() {
            assert!(!reason.sentence.is_empty());
            assert!(
                reason
                    .name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            );
            assert!(Reason::ALL[..number].iter().all(|other| other.name != reason.name), "{}", reason.name);
        }
    }
}
