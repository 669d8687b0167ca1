//! What can be wrong with a configuration, and where.

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use thiserror::Error;
use warmlane_table::{IpPrefix, PrefixError};
use warmlane_wire::ethernet::MacAddressError;

/// A place in the text; lines and columns (in characters) count from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

impl Place {
    fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A configuration that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{place}: {problem}")]
pub struct ConfigError {
    /// Where.
    pub place: Place,
    /// What, and what to do about it.
    pub problem: ConfigProblem,
}

/// A problem and the range of bytes it is about.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) span: Range<usize>,
    pub(super) problem: ConfigProblem,
}

impl ConfigError {
    pub(super) fn syntax(text: &str, error: &toml::de::Error) -> Self {
        let offset = error.span().map_or(0, |span| span.start);
        let problem = ConfigProblem::Syntax { message: error.message().trim().replace('\n', ", ") };
        Self { place: Place::of(text, offset), problem }
    }

    pub(super) fn at(text: &str, fault: Fault) -> Self {
        Self { place: Place::of(text, fault.span.start), problem: fault.problem }
    }
}

/// What is wrong, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConfigProblem {
    /// Not TOML, a key that isn't known, or a value of the wrong type.
    #[error("{message}")]
    Syntax {
        /// What the TOML parser says.
        message: String,
    },
    /// A number outside its range.
    #[error("{what} is {value}: use {minimum} to {maximum}")]
    Range {
        /// Which number.
        what: &'static str,
        /// What was given.
        value: i64,
        /// The least it may be.
        minimum: i64,
        /// The most it may be.
        maximum: i64,
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
    /// A text that isn't an IP address.
    #[error("\"{text}\" is not an IP address: write one as in 192.0.2.1 or 2001:db8::1")]
    Address {
        /// What was given.
        text: String,
    },
    /// A text that isn't an address with a prefix length.
    #[error(
        "\"{text}\" is not an address with the length of its prefix: write one as in 192.0.2.1/24 or 2001:db8::1/64"
    )]
    InterfaceAddress {
        /// What was given.
        text: String,
    },
    /// An address that no station can have.
    #[error(
        "{address} is no address that one station can have (unspecified, loopback, multicast, reserved, or a \
             network's own or broadcast address): give a unicast address"
    )]
    NotUnicast {
        /// The address.
        address: IpAddr,
    },
    /// The same address on two ports, or twice on one.
    #[error("address {address} is given twice: each port needs addresses of its own")]
    DuplicateAddress {
        /// The address.
        address: IpAddr,
    },
    /// A text that isn't an Ethernet address.
    #[error(transparent)]
    Mac(#[from] MacAddressError),
    /// An Ethernet address that no station can have.
    #[error("{what} {mac} is a group address or zero: give the address of one station")]
    MacNotUnicast {
        /// Whose address.
        what: &'static str,
        /// The address.
        mac: warmlane_wire::MacAddress,
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
    /// A text that isn't a prefix, or has host bits set.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
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
    /// Weights or a list that make no group.
    #[error(transparent)]
    Group(#[from] crate::control::groups::GroupError),
}

fn on_port(port: Option<&str>) -> String {
    port.map(|port| format!(" on port \"{port}\"")).unwrap_or_default()
}
