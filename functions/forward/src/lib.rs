//! IPv4 and IPv6 forwarding as a network function.
//!
//! Packets come in as a burst and leave in one burst per output port: checked outside in, routed by longest match,
//! with new Ethernet addresses, a lower TTL and the right MTU (RFC 1812, RFC 8200). A packet that can't be forwarded is answered with an
//! ICMP error, at a limited rate, or dropped under a named reason.
//!
//! - [`control`] turns a configuration into [`Routes`](control::Routes), which all lanes share and none changes, or
//!   keeps [`LiveRoutes`](control::LiveRoutes), which change while lanes forward by them.
//! - [`datapath`] holds the [`Forwarder`](datapath::Forwarder), a stage, of which each lane has its own;
//!   [`pipeline`] puts it between a lane's ports.
//!
//! It promises that its books balance between any two bursts ([`ForwardCounters`](datapath::ForwardCounters)), that no input makes it
//! panic, and that nothing on the data path allocates, locks or calls the system. It must not know a driver by name.

#![forbid(unsafe_code)]

pub mod control;
pub mod datapath;
mod lane;

pub use lane::{connect_ports, connect_ports_through, pipeline};
