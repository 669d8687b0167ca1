//! Everything that lanes look up: both tables, flows, next hops, our own addresses. Built once, then only read.

use std::net::IpAddr;

use thiserror::Error;
use warmlane_table::{ExactError, Ipv4Table, Ipv6Table, NextHopId, TableError};
use warmlane_wire::Flow;

use super::builder::RoutesBuilder;
use super::config::{Config, ValueError};
use super::flows::{FlowError, Flows};
use super::full_table::FullTableError;
use super::groups::GroupError;
use super::hops::{Hops, RouterPort};
use super::next_hop::NextHop;

/// Tables and next hops, shared by all lanes through an [`Arc`](std::sync::Arc).
#[derive(Debug)]
pub struct Routes {
    pub(super) ipv4: Ipv4Table,
    pub(super) ipv6: Ipv6Table,
    pub(super) flows: Flows,
    pub(super) hops: Hops,
}

/// Why routes could not be built.
#[derive(Debug, Error)]
pub enum RoutesError {
    /// The table has no space or no memory.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The table of flows has no space or no memory.
    #[error(transparent)]
    FlowTable(#[from] ExactError),
    /// A flow that can't be matched.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// A flow through a neighbour that was not added.
    #[error("the flow {flow} leads to a neighbour with a number that none has: add that neighbour")]
    FlowWithoutNextHop {
        /// The flow.
        flow: Flow,
    },
    /// A flow through several neighbours, of which all its packets would take the same one.
    #[error("the flow {flow} has several next hops: its packets all take the same way, so give one")]
    FlowNextHops {
        /// The flow.
        flow: Flow,
    },
    /// More next hops than a table can number.
    #[error("there are more than {maximum} next hops: let routes share some")]
    TooManyNextHops {
        /// How many there may be.
        maximum: u32,
    },
    /// Members of a group that cannot be.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// The embedded table is damaged.
    #[error(transparent)]
    FullTable(#[from] FullTableError),
    /// More ports than a packet can name.
    #[error("there are {count} ports: use at most 65535")]
    TooManyPorts {
        /// How many.
        count: usize,
    },
    /// A text or a value that can't be used.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// A port that was not added.
    #[error(
        "there is no port {port}: there are {count}, numbered from 0 in the order in which they were added"
    )]
    NoPort {
        /// Its number.
        port: usize,
        /// How many ports there are.
        count: usize,
    },
    /// A route through nobody.
    #[error("next hop {address} is no neighbour: add it with its Ethernet address and port")]
    NoNeighbour {
        /// The next hop.
        address: IpAddr,
    },
    /// A next hop that is a neighbour on several ports.
    #[error("next hop {address} is a neighbour on several ports: name the adjacency instead")]
    AmbiguousNeighbour {
        /// The next hop.
        address: IpAddr,
    },
}

impl Routes {
    /// Builds what a configuration describes.
    ///
    /// # Errors
    /// [`RoutesError`].
    pub fn from_config(config: &Config) -> Result<Self, RoutesError> {
        RoutesBuilder::from_config(config).build()
    }

    /// Routes to be made in code.
    #[must_use]
    pub fn builder() -> RoutesBuilder {
        RoutesBuilder::new()
    }

    /// The IPv4 table.
    pub fn ipv4(&self) -> &Ipv4Table {
        &self.ipv4
    }

    /// The IPv6 table.
    pub fn ipv6(&self) -> &Ipv6Table {
        &self.ipv6
    }

    /// Flows that don't go by their routes.
    pub fn flows(&self) -> &Flows {
        &self.flows
    }

    /// Ports and next hops.
    pub fn hops(&self) -> &Hops {
        &self.hops
    }

    /// The ports, by their numbers.
    pub fn ports(&self) -> &[RouterPort] {
        self.hops.ports()
    }

    /// What a next hop is; `None` for [`NextHopId::NONE`].
    pub fn next_hop(&self, id: NextHopId) -> Option<&NextHop> {
        self.hops.next_hop(id)
    }

    /// The member of a group that a flow goes to, by the hash that `hash` makes from the seed; any other next hop is
    /// itself. Groups don't nest.
    #[inline]
    pub fn member(&self, id: NextHopId, hash: impl FnOnce(u64) -> u32) -> NextHopId {
        self.hops.member(id, hash)
    }
}
