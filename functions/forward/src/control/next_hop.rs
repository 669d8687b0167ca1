//! Next hops: what a route leads to, and the form of it that the data path reads.

use std::net::IpAddr;

use warmlane_table::NextHopId;
use warmlane_wire::MacAddress;

use super::groups::Group;
use super::tunnel::Tunnel;

/// Where a packet goes when it leaves through a port: everything that its new Ethernet header needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Adjacency {
    /// The next hop's Ethernet address.
    pub destination: MacAddress,
    /// Our own.
    pub source: MacAddress,
    /// Number of the port.
    pub port: u16,
    /// Largest IP packet that the link carries, in bytes.
    pub mtu: u16,
    /// VLAN that the frame is tagged with (IEEE 802.1Q).
    pub vlan: Option<u16>,
}

/// Whose Ethernet address is to be found out, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Unresolved {
    /// The link, by a number that means something to who finds it out.
    pub link: u32,
    /// The gateway; `None` for the packet's own destination.
    pub gateway: Option<IpAddr>,
    /// Number of the port that the link is, or is on.
    pub port: u16,
    /// Its VLAN there.
    pub vlan: Option<u16>,
}

/// What a route leads to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NextHop {
    /// Out through a port.
    Forward(Adjacency),
    /// To a neighbour on another network, by a tunnel through ours.
    Tunnel(Tunnel),
    /// One of several next hops, chosen by flow. Members must not be groups themselves.
    Group(Group),
    /// An address of ours.
    Local,
    /// A neighbour on one of our links whose Ethernet address isn't known.
    NoNeighbour,
    /// A neighbour whose Ethernet address is not resolved yet. Packets are held until then, where somebody does that;
    /// else it is as [`NoNeighbour`](Self::NoNeighbour).
    Unresolved(Unresolved),
    /// The first or last address of an IPv4 link, which means all hosts there (RFC 1812 section 5.3.5.2).
    DirectedBroadcast,
    /// Nowhere, without a word.
    Drop,
    /// Nowhere, and the sender is told.
    Unreachable,
    /// Nowhere, and the sender is told that it is forbidden.
    Prohibited,
    /// Not our business: to whoever takes punted packets.
    Punt,
    /// The same, but it is known that it leads out of the interface that is the port of this number.
    PuntBy(u16),
    /// An address of ours, but whoever takes punted packets answers for it.
    LocalPunt,
}

/// The 16 bytes that the data path reads for each packet, in two loads; four next hops share a cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
pub(crate) struct Rewrite {
    /// The frame's first eight bytes: the destination, and two bytes of the source.
    first_bytes: [u8; 8],
    /// The source's last four bytes, the first of them lowest; above them, 16 bits each, the largest IP packet and the port. One word, for one load.
    rest: u64,
}

const _: () = assert!(size_of::<Rewrite>() == 16);

/// Above every [`Rewrite::largest`]: the length of packets that always take the slow path.
pub(crate) const ALWAYS_TOO_LARGE: u16 = u16::MAX;

/// The same for those that are plain but for a VLAN tag: their layer 3 offset is noted, and their length is in their headers. No buffer
/// holds a whole packet that long.
pub(crate) const TAGGED: u16 = ALWAYS_TOO_LARGE - 1;

impl Rewrite {
    /// Of the next hop of this number.
    pub(crate) fn of(number: NextHopId, hop: &NextHop) -> Self {
        let adjacency = match hop {
            NextHop::Forward(adjacency) => *adjacency,
            NextHop::Tunnel(tunnel) => tunnel.entrance(number),
            _ => return Self::new([0; 12], 0, 0),
        };
        let [a, b, c, d, e, f] = adjacency.destination.0;
        let [g, h, i, j, k, l] = adjacency.source.0;
        let largest = if adjacency.vlan.is_none() { adjacency.mtu.min(TAGGED - 1) } else { 0 };
        Self::new([a, b, c, d, e, f, g, h, i, j, k, l], largest, adjacency.port)
    }

    fn new(addresses: [u8; 12], largest: u16, port: u16) -> Self {
        let [first_bytes @ .., i, j, k, l] = addresses;
        let last = u64::from(u32::from_le_bytes([i, j, k, l]));
        Self { first_bytes, rest: last | u64::from(largest) << 32 | u64::from(port) << 48 }
    }

    /// Destination and source as they stand in the frame: the first eight bytes, the last four.
    #[inline(always)]
    pub(crate) const fn addresses(&self) -> ([u8; 8], [u8; 4]) {
        (self.first_bytes, (self.rest as u32).to_le_bytes())
    }

    /// Largest IP packet that needs nothing but these addresses. Zero, which every packet exceeds, for all next hops
    /// that need more: tags, groups, and those that aren't forwarded to. So one comparison finds all packets that need more.
    #[inline(always)]
    pub(crate) const fn largest(&self) -> u16 {
        (self.rest >> 32) as u16
    }

    /// Number of the port, or of the output that leads into a tunnel.
    #[inline(always)]
    pub(crate) const fn port(&self) -> u16 {
        (self.rest >> 48) as u16
    }
}
