//! VXLAN (RFC 7348) and GENEVE (RFC 8926): Ethernet segments bridged over an IP network, in front of a forwarder.
//!
//! A [`Gateway`] is a stage. Frames that come in by an access port are bridged: to another access port of their network, or in UDP to
//! the tunnel end behind which their destination was seen. What is encapsulated stays in the burst, as an IP packet that the
//! forwarder behind routes; what comes from a tunnel end is taken out of the burst and bridged; all else passes.
//!
//! Who has tunnels of its own, as a router by the kernel's devices has, finds the parts of that here: [`Outer`] takes the headers off, and
//! [`Encapsulation`] puts them around frames;
//! [`OuterIpv4`] and [`PacketEncapsulation`] do so for tunnels that carry IP packets without frames.
//!
//! It promises that lengths and checksums of what it unpacks were checked, that its books balance between two bursts
//! ([`VxlanCounters`]), and that nothing on the data path allocates. It must not know how packets get to a tunnel end: that is routing.

#![forbid(unsafe_code)]

mod directory;
mod dropped;
mod encapsulation;
mod explain;
mod flood;
mod gateway;
mod hosts;
mod inner;
mod inner_frame;
mod left;
mod membership;
mod network;
mod outer;
mod packets;
mod plain;
mod reason;
mod remotes;
mod stations;
mod sum;
mod suppression;
mod tags;
#[cfg(test)]
mod tests;
mod too_big;
mod ways;

pub use directory::{Directory, Key};
pub use encapsulation::Encapsulation;
pub use gateway::{Gateway, PortFacts};
pub use inner_frame::InnerFrame;
pub use outer::{Inside, Outer};
pub use packets::{OuterIpv4, PacketEncapsulation};
pub use reason::{Reason, VxlanCounters, VxlanCountersView};
