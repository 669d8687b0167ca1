//! Packet sockets and TAP devices in network namespaces.

mod common;
mod packet;
mod tap;
mod transfer;
