//! What the gateway counts, and why it drops.

use warmlane_counters::counters;
use warmlane_port::drop_reasons;

drop_reasons! {
    /// Why a frame was dropped.
    pub enum Reason {
        /// A tunnel end's datagram comes in fragments, which are not put together (RFC 7348 section 4.3).
        Fragment: "fragment", Warning;
        /// The UDP length is below the tunnel's headers and an Ethernet header, or beyond the IP packet; or GENEVE options are beyond either.
        OuterLength: "outer-length", Warning;
        /// The UDP checksum around the frame is wrong.
        OuterChecksum: "outer-checksum", Warning;
        /// Several datagrams came as one, put together by who sent them on this machine.
        Merged: "merged-datagrams", Warning;
        /// A packet that is to be cut inside one tunnel is to enter another.
        Nested: "nested-segmentation", Warning;
        /// The VXLAN header has no network identifier (RFC 7348 section 5).
        NoIdentifier: "no-identifier", Warning;
        /// The GENEVE header has another version than 0 (RFC 8926 section 3.4).
        Version: "version", Warning;
        /// A GENEVE option has to be understood, and no such is known here (RFC 8926 section 3.5).
        CriticalOption: "critical-option", Warning;
        /// What GENEVE carries is a message between tunnel ends, none of hosts (flag O, RFC 8926 section 3.4).
        ControlMessage: "control-message", Notice;
        /// What GENEVE carries is no Ethernet frame (RFC 8926 section 3.4).
        NotEthernet: "not-ethernet", Notice;
        /// No network here has this identifier and this local address.
        UnknownNetwork: "unknown-network", Notice;
        /// The tunnel end that sent it is not among the network's, or has an address that nobody can have.
        UnknownRemote: "unknown-remote", Warning;
        /// There are too many tunnel ends in the group already.
        TooManyRemotes: "too-many-remotes", Loss;
        /// The frame inside carries a VLAN tag (RFC 7348 section 6.1).
        InnerTag: "inner-tag", Notice;
        /// The IP packet inside is longer than its frame, or its header is malformed.
        InnerLength: "inner-length", Warning;
        /// The IPv4 header checksum inside is wrong, or that of TCP, UDP, SCTP or ICMP, if a device or this program looked at it.
        InnerChecksum: "inner-checksum", Warning;
        /// Congestion was signalled around a packet that can't say so (RFC 6040 section 4.2).
        CongestionNotCapable: "congestion-not-capable", Notice;
        /// The tunnel carries no packets of this version of IP.
        NotCarried: "not-carried", Notice;
        /// The frame comes from a group's address or from none.
        BadSource: "bad-source", Warning;
        /// The frame is for the bridge itself and not to be passed on (IEEE 802.1D table 7-10).
        LinkLocal: "link-local", Notice;
        /// The frame is one that was encapsulated here, and came back.
        Recursion: "recursion", Warning;
        /// The destination is where the frame came from.
        SamePort: "same-port", Notice;
        /// From tunnel to tunnel nothing is passed on: the ends of a network send to each other themselves.
        SplitHorizon: "split-horizon", Notice;
        /// The network has nobody else.
        NobodyElse: "nobody-else", Notice;
        /// The frame is longer than the network's MTU or that of the port.
        TooLong: "too-long", Warning;
        /// The way into the tunnel changed while the packet was on it.
        Changed: "tunnel-changed", Loss;
        /// There is no space for headers in front of the frame.
        NoHeadroom: "no-headroom", Loss;
        /// There was no buffer for a copy.
        NoBuffer: "no-buffer", Loss;
        /// More copies than the burst holds.
        NoSpace: "no-space", Loss;
    }
}

counters! {
    /// The accounting of one lane's gateway: between two bursts its balance is zero.
    pub struct VxlanCounters => VxlanCountersView, drops by Reason {
        /// Frames from access ports.
        from_access: In, "packets";
        /// Packets from tunnel ends, addressed to us.
        from_tunnels: In, "packets";
        /// Copies made of frames for several.
        copied: In, "packets";
        /// ICMP errors made for senders of what is too long.
        errors: In, "packets";
        /// Frames sent to access ports.
        to_access: Out, "packets";
        /// Packets made for tunnel ends and given to the forwarder.
        to_tunnels: Out, "packets";
        /// Packets made for multicast groups of tunnel ends.
        to_groups: Out, "packets";
        /// Frames sent to all, since they are for a group or nobody knows where their destination is.
        flooded: Note, "packets";
        /// Reports of membership in groups that were sent, by IGMP or MLD.
        reports: Note, "packets";
        /// Questions for an address (ARP, neighbour solicitations) that were answered here.
        suppressed: Note, "packets";
        /// ICMP errors that were due and not made, as there were too many of them.
        errors_limited: Note, "packets";
        /// Stations seen for the first time, or again after they were forgotten.
        learned: Note, "stations";
        /// Stations that were seen elsewhere than before.
        moved: Note, "stations";
        /// Stations that the full table had no space for.
        not_learned: Note, "stations";
    }
}
