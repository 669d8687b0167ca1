//! What can be wrong with a configuration.

use std::net::IpAddr;

use thiserror::Error;
use warmlane_port::steering::RuleError;
use warmlane_settings::{OutOfRange, SettingsError};
use warmlane_table::IpPrefix;
use warmlane_wire::Flow;

use crate::control::TunnelProtocol;
use crate::control::flows::FlowError;

/// A configuration that can't be used: where, what is wrong, and what to do about it.
pub type ConfigError = SettingsError<ConfigProblem>;

/// What is wrong, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigProblem {
    /// Not TOML, a key that isn't known, or a value that can't be read.
    #[error("{message}")]
    Syntax {
        /// What the TOML parser says.
        message: String,
    },
    /// A number outside its range.
    #[error(transparent)]
    Range(#[from] OutOfRange),
    /// More ports than a packet can name.
    #[error("there are {count} ports: use at most 65535")]
    TooManyPorts {
        /// How many.
        count: usize,
    },
    /// No port at all.
    #[error("there is no port: add at least one [[port]]")]
    NoPort,
    /// Two ports of the same name.
    #[error("port name \"{name}\" is used twice: give each port its own")]
    DuplicatePort {
        /// The name.
        name: String,
    },
    /// A name that no port has.
    #[error("there is no port \"{name}\": ports are {known}")]
    UnknownPort {
        /// The name given.
        name: String,
        /// The names there are, separated by commas.
        known: String,
    },
    /// The same address on two ports, or twice on one.
    #[error("address {address} is given twice: each port needs addresses of its own")]
    DuplicateAddress {
        /// The address.
        address: IpAddr,
    },
    /// The MTU of a port with IPv6 is below 1280.
    #[error("port \"{port}\" has IPv6 addresses or neighbours and an MTU of {mtu}: IPv6 needs at least 1280")]
    MtuForIpv6 {
        /// The port.
        port: String,
        /// Its MTU.
        mtu: u16,
    },
    /// Two neighbours with the same address on the same port.
    #[error("neighbour {address} on port \"{port}\" is given twice: leave one of them out")]
    DuplicateNeighbour {
        /// The neighbour's address.
        address: IpAddr,
        /// The port.
        port: String,
    },
    /// Two routes to the same prefix.
    #[error("there are two routes to {prefix}: leave one out, or list both next hops under one `via`")]
    DuplicateRoute {
        /// The prefix.
        prefix: IpPrefix,
    },
    /// A route that says nothing about where to go, or too much.
    #[error(
        "route to {prefix} says {count} ways to go: give exactly one of `via` (with or without `port`), \
             `port`, `drop = true`, `unreachable = true`"
    )]
    RouteTarget {
        /// The prefix.
        prefix: IpPrefix,
        /// How many ways it names.
        count: usize,
    },
    /// A flow that can't be matched.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// The same flow twice.
    #[error("the flow {flow} is given twice: leave one of them out")]
    DuplicateFlow {
        /// The flow.
        flow: Flow,
    },
    /// A flow through several neighbours, of which all its packets would take the same one.
    #[error("the flow {flow} has several next hops: its packets all take the same way, so give one")]
    FlowNextHops {
        /// The flow.
        flow: Flow,
    },
    /// A flow through a port, on whose link no neighbour is named.
    #[error("the flow {flow} names a port, which doesn't say which neighbour: add `via`")]
    FlowPort {
        /// The flow.
        flow: Flow,
    },
    /// A flow that says nothing about where to go, or too much.
    #[error(
        "the flow {flow} says {count} ways to go: give exactly one of `via` (with or without `port`), \
             `drop = true`, `unreachable = true`"
    )]
    FlowTarget {
        /// The flow.
        flow: Flow,
        /// How many ways it names.
        count: usize,
    },
    /// A rule of a port that can't be.
    #[error(transparent)]
    Rule(Box<RuleError>),
    /// A rule that drops, and says more.
    #[error("the rule drops, so that a queue or a mark has no sense: leave them out, or `drop`")]
    RuleDropsAll,
    /// A next hop whose Ethernet address isn't known.
    #[error("next hop {address} has no [[neighbour]]{}: add one with its mac and port", on_port(.port.as_deref()))]
    NoNeighbour {
        /// The next hop.
        address: IpAddr,
        /// The port that the route names.
        port: Option<String>,
    },
    /// A next hop that is a neighbour on several ports.
    #[error("next hop {address} is a neighbour on several ports: say which with `port`")]
    AmbiguousNeighbour {
        /// The next hop.
        address: IpAddr,
    },
    /// The same next hop twice in a list.
    #[error("next hop {address} is in the list twice: add up the weights instead")]
    DuplicateNextHop {
        /// The next hop.
        address: IpAddr,
    },
    /// A bridged network on several lanes, which would not know what the others have learned.
    #[error("there are {lanes} lanes: a [[{}]] network needs `lanes = 1`", .protocol.key())]
    OverlayLanes {
        /// The network's protocol.
        protocol: TunnelProtocol,
        /// How many.
        lanes: usize,
    },
    /// The packets around are too long for each port that they could leave by.
    #[error(
        "packets of {mtu} bytes inside come to {outer}, and port '{port}' has an `mtu` of {port_mtu}: make the network's `mtu` {most}, or raise the port's"
    )]
    OverlayMtu {
        /// Bytes of the longest IP packet inside.
        mtu: u16,
        /// The same around it.
        outer: u32,
        /// The port that carries the longest.
        port: String,
        /// Bytes that it carries.
        port_mtu: u16,
        /// Bytes inside that it would carry.
        most: u32,
    },
    /// More of something than a gateway has numbers for.
    #[error("there are {count} {what}, and {most} is the most")]
    OverlayTooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// Two networks with one identifier.
    #[error(
        "there are two [[{}]] networks with VNI {vni}: leave one out, or list its ports under the other's `access`",
        .protocol.key()
    )]
    DuplicateVni {
        /// The networks' protocol.
        protocol: TunnelProtocol,
        /// The identifier.
        vni: u32,
    },
    /// Networks of two protocols at one tunnel end, where nothing would tell their datagrams apart.
    #[error(
        "{address} has networks of two protocols at UDP port {udp_port}: give those of one another `udp-port`"
    )]
    TwoProtocols {
        /// Our tunnel end.
        address: IpAddr,
        /// Its UDP port.
        udp_port: u16,
    },
    /// Frames of a port, or a VLAN of it, that belong to two networks.
    #[error("the frames of port \"{port}\" belong to two bridged networks: give each a `vlan` of its own")]
    DuplicateAccess {
        /// The port.
        port: String,
    },
    /// A port whose untagged frames are bridged and that has addresses all the same.
    #[error(
        "port \"{port}\" has addresses, but its untagged frames are a bridged network's: leave the addresses out, or name a `vlan`"
    )]
    AccessWithAddresses {
        /// The port.
        port: String,
    },
    /// A local tunnel end that is no port's address.
    #[error("{address} is no address of a port: set it among a port's `addresses`")]
    NotOurs {
        /// The address.
        address: IpAddr,
    },
    /// A remote tunnel end that can't be one.
    #[error(
        "{address} can't be a tunnel end beside {local}: name others, of the same version of IP, once each"
    )]
    Remote {
        /// The remote tunnel end.
        address: IpAddr,
        /// The local one.
        local: IpAddr,
    },
    /// A network without other tunnel ends.
    #[error(
        "network {vni} has no other tunnel ends: say them as `remotes`, or a `group` where they can be heard"
    )]
    NoTunnelEnds {
        /// The network's identifier.
        vni: i64,
    },
    /// An address that can't be a network's group.
    #[error(
        "{address} can't be the group of tunnel ends beside {local}: name a multicast address of the same version of IP that is neither for one link (224.0.0.0/24, ff01::/16, ff02::/16) nor for named sources (232.0.0.0/8, ff30::/12)"
    )]
    MulticastGroup {
        /// The group.
        address: IpAddr,
        /// Our tunnel end.
        local: IpAddr,
    },
    /// A port for a group, and no group.
    #[error("`group-port` is of no use without `group`")]
    GroupPortWithoutGroup,
    /// A port that can't be a group's.
    #[error(
        "port '{port}' has no address of the same version of IP as {group}: the group's members are asked there, and answer by it"
    )]
    GroupPortWithoutAddress {
        /// The port.
        port: String,
        /// The group.
        group: IpAddr,
    },
    /// An address of a station in a network that leaves questions to its hosts.
    #[error(
        "{address} is of no use without `neighbour-suppression = true`: set that for the network, or leave the address out"
    )]
    AddressWithoutSuppression {
        /// The address.
        address: IpAddr,
    },
    /// A station behind an unknown tunnel end.
    #[error("{address} is none of the network's `remotes`: add it to them")]
    NoRemote {
        /// The tunnel end.
        address: IpAddr,
    },
    /// Weights or a list that make no group.
    #[error(transparent)]
    Group(#[from] crate::control::groups::GroupError),
}

fn on_port(port: Option<&str>) -> String {
    port.map(|port| format!(" on port \"{port}\"")).unwrap_or_default()
}

impl From<String> for ConfigProblem {
    fn from(message: String) -> Self {
        Self::Syntax { message }
    }
}
