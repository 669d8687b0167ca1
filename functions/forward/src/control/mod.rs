//! What is decided before packets flow: configuration, tables, next hops.

mod builder;
pub mod config;
mod counters;
mod flows;
pub mod full_table;
pub mod groups;
mod hops;
mod host;
mod live;
mod next_hop;
mod routes;
mod source_check;
mod tunnel;

pub use builder::{IntoTarget, RoutesBuilder, Target};
pub use config::Config;
pub use counters::{TableCounters, TableCountersView};
pub use flows::{FlowError, Flows, flow};
pub(crate) use flows::{Ipv4Key, Ipv6Key};
pub(crate) use hops::Admission;
pub use hops::{Beside, Hops, RouterPort, VlanInterface};
pub(crate) use host::Claimed;
pub(crate) use host::OWN_TTL;
pub use host::{Host, MultipathHash};
pub use live::{LaneRoutes, LiveError, LiveRoutes, TableChange, TableNumber};
pub(crate) use next_hop::{ALWAYS_TOO_LARGE, Rewrite, TAGGED};
pub use next_hop::{Adjacency, NextHop, Unresolved};
pub use routes::{Routes, RoutesError};
pub use source_check::{InterfaceCheck, SourceCheck, SourceCheckError};
pub use tunnel::{Around, AroundFrame, AroundPacket, Class, IpTunnel, Tunnel, TunnelProtocol};
