//! Views, edits and builders of protocol headers, Internet checksums, flows and their hashes.
//!
//! This crate knows how headers look on the wire and nothing else: no buffers, no ports, no tables, no clock.
//!
//! - One file per protocol. A view wraps a fixed-size array reference (`&[u8; 20]` for IPv4), so after the one
//!   length check that made the array no field access is checked again.
//! - Whatever the bytes are, nothing here panics and nothing on the parse side allocates. Bytes that break a rule
//!   give a typed error with what was seen and what the rule wants; rules are checked outside in.
//! - [`edit::PacketMut`] changes a frame and keeps its checksums right; [`Flow`] says what flow it belongs to.
//! - All values are in host byte order, all lengths in bytes, unless the item says otherwise.
//! - It must not decide policy: what to do with a bad packet is the caller's business.

#![forbid(unsafe_code)]

pub mod arp;
pub mod builder;
pub mod checksum;
pub mod docsis;
pub mod edit;
pub mod ethernet;
pub mod flow_hash;
pub mod geneve;
pub mod gre;
pub mod icmpv4;
pub mod icmpv6;
pub mod igmp;
pub mod ipv4;
pub mod ipv6;
pub mod l2tpv3;
pub mod martian;
pub mod merge;
pub mod mld;
pub mod neighbour;
pub mod psp;
pub mod sctp;
pub mod segment;
pub mod tcp;
pub mod toeplitz;
pub mod udp;
pub mod vlan;
pub mod vxlan;

mod error;
mod fields;
mod flow;
mod layers;
mod protocol;

pub use arp::{ArpError, ArpOperation, ArpPacket};
pub use builder::{BuildError, Frame};
pub use checksum::Addresses;
pub use edit::PacketMut;
pub use error::{IcmpError, Truncated, WrongChecksum};
pub use ethernet::{EtherType, EthernetHeader, MacAddress};
pub use flow::Flow;
pub use geneve::{GeneveError, GeneveHeader};
pub use gre::{GreError, GreHeader};
pub use icmpv4::Icmpv4Message;
pub use icmpv6::Icmpv6Message;
pub use igmp::{GroupRecord, IgmpError, IgmpQuery};
pub use ipv4::{Ipv4Error, Ipv4Fields, Ipv4Header, Ipv4Packet};
pub use ipv6::{Ipv6Error, Ipv6Fields, Ipv6Header, Ipv6Packet};
pub use layers::{IpVersion, Layers, LayersError};
pub use mld::{MldError, MldQuery};
pub use neighbour::{NeighbourError, NeighbourMessage};
pub use protocol::IpProtocol;
pub use tcp::{TcpError, TcpFields, TcpFlags, TcpHeader, TcpSegment};
pub use udp::{UdpError, UdpHeader};
pub use vlan::{LinkLayer, VlanTag};
pub use vxlan::VxlanError;
