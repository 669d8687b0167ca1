//! Why the forwarder drops packets. Each reason has its own counter; the first rule that a packet breaks is counted.

use warmlane_port::drop_reasons;

drop_reasons! {
    /// Why a packet was dropped.
    pub enum Reason {
        /// The frame ends within its Ethernet header or a VLAN tag.
        Truncated: "truncated", Warning;
        /// The packet came in by a port that the routes don't know.
        UnknownPort: "unknown-port", Loss;
        /// The frame is addressed to another host.
        OtherHost: "other-host", Notice;
        /// The frame carries neither IPv4 nor IPv6 nor ARP.
        UnknownEthertype: "unknown-ethertype", Notice;
        /// The frame is of a VLAN that the port has no interface for.
        UnknownVlan: "unknown-vlan", Notice;
        /// The frame has more than two VLAN tags.
        TooManyTags: "too-many-vlan-tags", Warning;
        /// The IP packet is for one host, its frame was sent to many (RFC 1812 section 5.3.4).
        LinkLayerGroup: "link-layer-group", Warning;

        /// The frame ends within the IPv4 header.
        Ipv4Truncated: "ipv4-truncated", Warning;
        /// The IP version is not 4 in a frame marked as IPv4.
        Ipv4Version: "ipv4-version", Warning;
        /// The IPv4 header length is below 20 or beyond the frame.
        Ipv4HeaderLength: "ipv4-header-length", Warning;
        /// The IPv4 total length is below the header's or beyond the frame.
        Ipv4TotalLength: "ipv4-total-length", Warning;
        /// The IPv4 header checksum is wrong.
        Ipv4Checksum: "ipv4-checksum", Warning;
        /// The IPv4 source is an address that no host may send from (RFC 1812 section 5.3.7).
        Ipv4MartianSource: "ipv4-martian-source", Warning;
        /// There is no route back to the IPv4 source, or not by the interface that the packet came in by (RFC 3704).
        Ipv4ReversePath: "ipv4-reverse-path", Warning;
        /// The IPv4 destination is an address that nothing may be sent to (RFC 1812 section 5.3.7).
        Ipv4MartianDestination: "ipv4-martian-destination", Warning;
        /// The IPv4 packet wants to choose its own route (RFC 7126 sections 4.3 and 4.4).
        Ipv4SourceRoute: "ipv4-source-route", Warning;
        /// The IPv4 options are malformed (RFC 791 section 3.1).
        Ipv4Options: "ipv4-options", Warning;
        /// The IPv4 packet is a broadcast, which is not forwarded.
        Ipv4Broadcast: "ipv4-broadcast", Notice;
        /// The IPv4 packet is multicast, which is not routed here.
        Ipv4Multicast: "ipv4-multicast", Notice;
        /// The IPv4 packet has link-local addresses, which are not forwarded (RFC 3927 section 7).
        Ipv4LinkLocal: "ipv4-link-local", Notice;
        /// The TTL ran out.
        TtlExpired: "ttl-expired", Notice;

        /// The frame ends within the IPv6 header.
        Ipv6Truncated: "ipv6-truncated", Warning;
        /// The IP version is not 6 in a frame marked as IPv6.
        Ipv6Version: "ipv6-version", Warning;
        /// The IPv6 payload length is beyond the frame, or a jumbogram's.
        Ipv6PayloadLength: "ipv6-payload-length", Warning;
        /// The IPv6 source is an address that no host may send from.
        Ipv6MartianSource: "ipv6-martian-source", Warning;
        /// There is no route back to the IPv6 source, or not by the interface that the packet came in by (RFC 3704).
        Ipv6ReversePath: "ipv6-reverse-path", Warning;
        /// The IPv6 destination is an address that nothing may be sent to.
        Ipv6MartianDestination: "ipv6-martian-destination", Warning;
        /// The IPv6 packet is multicast, which is not routed here.
        Ipv6Multicast: "ipv6-multicast", Notice;
        /// The IPv6 packet has link-local addresses, which are not forwarded (RFC 4291 section 2.5.6).
        Ipv6LinkLocal: "ipv6-link-local", Notice;
        /// The IPv6 packet has options for each router on its way, and whoever is to obey them didn't take it.
        Ipv6Options: "ipv6-options", Notice;
        /// The hop limit ran out.
        HopLimitExpired: "hop-limit-expired", Notice;

        /// There is no route to the destination.
        NoRoute: "no-route", Notice;
        /// The route to the destination, or the flow, says drop.
        RouteDrop: "route-drop", Notice;
        /// The route to the destination, or the flow, says unreachable.
        RouteUnreachable: "route-unreachable", Notice;
        /// The route to the destination says prohibited.
        RouteProhibited: "route-prohibited", Notice;
        /// The destination is on a link of ours, but its Ethernet address is not known.
        NoNeighbour: "no-neighbour", Notice;
        /// The packet would have to wait until its neighbour's Ethernet address is known, but there is no space for more that do.
        NeighbourQueueFull: "neighbour-queue-full", Loss;
        /// The packet is larger than the next link's MTU and may not be fragmented.
        MtuExceeded: "mtu-exceeded", Notice;
        /// The packet cannot be cut into fragments that the next link carries.
        CannotFragment: "cannot-fragment", Warning;
        /// The packet is for this router, which has no use for it.
        NotHandledLocally: "not-handled-locally", Notice;
        /// An ARP or neighbour discovery message that needs no answer from us.
        NeighbourMessage: "neighbour-message", Notice;

        /// The packet is for the kernel, which did not take it.
        PuntRefused: "punt-refused", Loss;
        /// The pool had no buffer for a fragment or a tag.
        NoBuffer: "no-buffer", Loss;
        /// The output port is not connected to this lane.
        NoPort: "no-port", Loss;
        /// The output port did not take the packet in time.
        OutputQueueFull: "output-queue-full", Loss;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_port::Reason as _;

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
