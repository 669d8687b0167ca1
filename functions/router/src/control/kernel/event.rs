//! What the kernel says of its network, in plain values.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use warmlane_forward::control::IpTunnel;
use warmlane_table::IpPrefix;

/// A network interface, by the kernel's number.
pub type LinkIndex = u32;

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// The kernel's number.
    pub index: LinkIndex,
    /// Its name at present.
    pub name: String,
    /// What the kernel calls its kind: `veth`, `vlan`, `bridge`; empty for hardware.
    pub kind: String,
    /// Set up by the operator.
    pub is_up: bool,
    /// Somebody is at the other end of the cable.
    pub has_carrier: bool,
    /// The Ethernet address, if it has one.
    pub mac: Option<[u8; 6]>,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// The interface that it belongs to: a bridge, a bond, a VRF.
    pub master: Option<LinkIndex>,
    /// The interface that it stands on: a VLAN's parent.
    pub lower: Option<LinkIndex>,
    /// For a VLAN with customer tags (IEEE 802.1Q): its number.
    pub vlan: Option<u16>,
    /// For a VRF: its routing table.
    pub vrf_table: Option<u32>,
    /// For a VXLAN device: what it does.
    pub vxlan: Option<Vxlan>,
    /// For a device that carries IP packets over IPv4: what it does.
    pub ip_tunnel: Option<IpTunnelDevice>,
    /// For a bridge: it tells frames apart by VLANs.
    pub filters_vlans: bool,
    /// What its bridge does with it, if it is a member of one.
    pub bridge_port: Option<BridgePort>,
}

/// A member of a bridge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BridgePort {
    /// Frames pass: it is neither down nor blocked against loops.
    pub is_forwarding: bool,
    /// The bridge learns where stations are from frames that come in there.
    pub learns: bool,
}

/// How a VXLAN device is set up (`ip link add … type vxlan`).
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the device's own")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vxlan {
    /// The network's identifier (VNI).
    pub identifier: u32,
    /// Our tunnel end; `None`: whichever address the way to the other end has.
    pub local: Option<IpAddr>,
    /// The interface that its datagrams leave by; `None`: whichever the route to the other end says.
    pub lower: Option<LinkIndex>,
    /// The UDP port of all tunnel ends.
    pub udp_port: u16,
    /// TTL or hop limit of its datagrams; 0: as other packets of the box's own.
    pub ttl: u8,
    /// DSCP of its datagrams, in the upper six bits; 1: that of the packet inside.
    pub tos: u8,
    /// It learns from datagrams behind which tunnel ends stations are.
    pub learns: bool,
    /// The UDP ports that its datagrams come from, the first and the last; `None`: any.
    pub source_ports: Option<(u16, u16)>,
    /// Over IPv4 it sends UDP checksums.
    pub udp_checksum: bool,
    /// Over IPv6 it sends none.
    pub no_checksum_over_ipv6: bool,
    /// Over IPv6 it takes datagrams without a checksum.
    pub takes_no_checksum_over_ipv6: bool,
    /// Its datagrams over IPv4 must not be cut.
    pub dont_fragment: bool,
    /// Why only the kernel can do what it does.
    pub kernel_only: Option<&'static str>,
}

/// How a device is set up that carries IP packets over IPv4 (`ip link add … type ipip`, `sit` or `gre`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpTunnelDevice {
    /// Our tunnel end.
    pub local: Ipv4Addr,
    /// The other one.
    pub remote: Ipv4Addr,
    /// The interface that its packets leave by; `None`: whichever the route to the other end says.
    pub lower: Option<LinkIndex>,
    /// What is between the headers of packets that it takes, and of those that it sends.
    pub tunnel: [IpTunnel; 2],
    /// Whether it carries IPv4, and whether it carries IPv6.
    pub carries: [bool; 2],
    /// TTL of its packets; 0: that of the packet inside.
    pub ttl: u8,
    /// DSCP of its packets, in the upper six bits; 1: that of the packet inside.
    pub tos: u8,
    /// Why only the kernel can do what it does.
    pub kernel_only: Option<&'static str>,
}

/// A tunnel end that a station is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TunnelEnd {
    /// Its address.
    pub address: IpAddr,
    /// Its UDP port; `None`: the device's.
    pub udp_port: Option<u16>,
    /// The network's identifier there; `None`: the device's.
    pub identifier: Option<u32>,
    /// Datagrams leave by a certain interface.
    pub has_link: bool,
}

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// Whose.
    pub link: LinkIndex,
    /// The address.
    pub address: IpAddr,
    /// Bits of the prefix that is on the link.
    pub length: u8,
}

/// A neighbour on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// Which link.
    pub link: LinkIndex,
    /// Its address.
    pub address: IpAddr,
    /// What is known of it.
    pub state: NeighbourState,
}

/// What the kernel knows of a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeighbourState {
    /// Its Ethernet address.
    Known([u8; 6]),
    /// Its Ethernet address of a while ago: to be asked again if it is used.
    Stale([u8; 6]),
    /// Nothing yet, or no longer.
    Unknown,
}

impl NeighbourState {
    /// The Ethernet address.
    pub fn mac(self) -> Option<[u8; 6]> {
        match self {
            Self::Known(mac) | Self::Stale(mac) => Some(mac),
            Self::Unknown => None,
        }
    }
}

/// One way that packets can go.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoutePath {
    /// Out of this interface.
    pub link: LinkIndex,
    /// To this gateway; `None` for the packet's own destination.
    pub gateway: Option<IpAddr>,
    /// Its share among several paths.
    pub weight: u16,
    /// The kernel doesn't use it at present.
    pub is_dead: bool,
}

/// What a route leads to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// Out of interfaces.
    Paths(Vec<RoutePath>),
    /// A nexthop object, by its number.
    Object(u32),
    /// The box itself.
    Local,
    /// All neighbours on a link of ours.
    Broadcast,
    /// Nowhere.
    Blackhole,
    /// Nowhere, and the sender is told.
    Unreachable,
    /// Nowhere, and the sender is told that it's forbidden.
    Prohibit,
    /// Something that only the kernel can do.
    KernelOnly,
}

/// Where a route is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteKey {
    /// The kernel's number of the table.
    pub table: u32,
    /// What addresses it is for.
    pub prefix: IpPrefix,
}

/// One of the routes to a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The lowest is used.
    pub metric: u32,
    /// Type of service; others than 0 are left to the kernel.
    pub tos: u8,
    /// Only for packets from these addresses (`ip -6 route add … from …`); left to the kernel.
    pub source: Option<IpPrefix>,
    /// Who made it: an `RTPROT_` number.
    pub protocol: u8,
    /// The longest packet, in bytes; 0: as its interface has it.
    pub mtu: u32,
    /// Where to.
    pub target: Arc<Target>,
}

/// How a new route goes with those that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Instead of the first with its metric.
    Replace,
    /// Behind those with its metric.
    Append,
    /// Before those with its metric.
    Insert,
}

/// A nexthop object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextHopObject {
    /// A path.
    Path(RoutePath),
    /// Other objects and their weights.
    Group(Vec<(u32, u16)>),
    /// Nowhere.
    Blackhole,
    /// Something that only the kernel can do.
    KernelOnly,
}

/// What a rule does with packets that it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleAction {
    /// Asks a table.
    Table(u32),
    /// Asks the table of the VRF that the packet is in, if it is in one.
    Vrf,
    /// Drops them.
    Blackhole,
    /// Drops them, and tells the sender.
    Unreachable,
    /// Drops them, and tells the sender that it's forbidden.
    Prohibit,
    /// Goes on with the next.
    Nothing,
    /// Something else.
    Other,
}

/// A rule that says which table is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Rules are asked from low to high.
    pub priority: u32,
    /// For IPv6.
    pub is_ipv6: bool,
    /// What it does.
    pub action: RuleAction,
    /// Only for packets that come in by the interface of this name.
    pub comes_in_by: Option<String>,
    /// Only for packets that would go out by some interface.
    pub is_for_output: bool,
    /// Only for packets to these addresses.
    pub to: Option<IpPrefix>,
    /// Only for some packets, by their source, mark, ports or whatever else.
    pub looks_at_more: bool,
}

/// A station on a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StationKey {
    /// The bridge.
    pub bridge: LinkIndex,
    /// The station's Ethernet address.
    pub mac: [u8; 6],
    /// Its VLAN; 0 where the bridge doesn't tell VLANs apart.
    pub vlan: u16,
}

/// Something that the kernel says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An interface is there, or has changed.
    Link(Link),
    /// An interface is gone.
    LinkGone(LinkIndex),
    /// An address is there.
    Address(Address),
    /// An address is gone.
    AddressGone(Address),
    /// A neighbour is there, or has changed.
    Neighbour(Neighbour),
    /// A neighbour is gone.
    NeighbourGone(LinkIndex, IpAddr),
    /// Behind which of its members a bridge knows a station; 0: none, as it is the box itself.
    Station(StationKey, LinkIndex),
    /// A bridge has forgotten that a station is behind this member.
    StationGone(StationKey, LinkIndex),
    /// Behind which tunnel end a VXLAN device knows a station; `None`: only the kernel knows how to reach it.
    Behind(LinkIndex, [u8; 6], Option<TunnelEnd>),
    /// A VXLAN device has forgotten that.
    BehindGone(LinkIndex, [u8; 6], Option<TunnelEnd>),
    /// What a bridge does with a member has changed.
    BridgePort(LinkIndex, BridgePort),
    /// A nexthop object is there, or has changed.
    Object(u32, NextHopObject),
    /// A nexthop object is gone.
    ObjectGone(u32),
    /// A route is there.
    Route(RouteKey, Route, Placement),
    /// A route is gone.
    RouteGone(RouteKey, Route),
    /// A rule is there.
    Rule(Rule),
    /// A rule is gone.
    RuleGone(Rule),
}
