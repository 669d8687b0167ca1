//! Changes to headers that keep checksums right.
//!
//! All checksums are updated incrementally (RFC 1624): a right one stays right, a wrong one stays wrong, and the payload
//! is not read.
//!
//! - [`PacketMut`] edits a whole frame: addresses, ports, TTL, DSCP. It knows which checksums a field is part of.
//! - [`Ipv4HeaderMut`] and [`Ipv6HeaderMut`] edit one header. They don't know the transport, whose checksum covers the
//!   addresses too.

mod ipv4;
mod ipv6;
mod packet;
#[cfg(test)]
mod tests;
mod transport;

pub use ipv4::Ipv4HeaderMut;
pub use ipv6::Ipv6HeaderMut;
pub use packet::{EditError, PacketMut};
pub use transport::{TcpHeaderMut, UdpHeaderMut};
