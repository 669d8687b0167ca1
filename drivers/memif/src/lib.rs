//! Ports over memif, the memory that two processes on one machine share to pass packets: the protocol of VPP, libmemif and
//! DPDK's `net_memif`, version 2.0.
//!
//! [`open`] makes a port of either role. A client provides the memory: rings and their buffers, or with [`Mode::ZeroCopy`] its pool, in
//! which its packets then stay, and which a server that wants it, too, uses as its own: then nobody copies. A server makes the socket. Either side can come and go: a lost connection is made again, and packets sent
//! in the meantime are counted drops.
//!
//! Promises: no system call, lock or allocation per packet. Whatever the other side writes is read once, copied and checked before it
//! is used: an impossible index, offset or length costs the connection or the packet, and nothing else. Memory that the other side could
//! truncate is refused unless [`MemifOptions::allow_unsealed`] is set. With [`Mode::ZeroCopy`] a client trusts its server with the pool, and a server its client with
//! the metadata of packets.
//!
//! memif doesn't carry offloads: they are done before, in software.
//!
//! Must not: know what the packets are for.

mod control;
mod driver;
mod drops;
mod error;
mod exchange;
mod handshake;
mod lent;
mod link;
mod offer;
mod options;
mod own;
mod port;
pub mod protocol;
mod receive;
mod region;
mod ring;
mod socket;
mod transmit;
#[cfg(test)]
mod wake_up_model;
mod worker;

pub use driver::MemifDriver;
pub use drops::{ReceiveDrop, TransmitDrop};
pub use error::MemifError;
pub use options::{MemifOptions, Mode, Role};
pub use port::{Connector, MemifPort, Monitor, open};
pub use warmlane_driver_common::peer::ConnectionStatus;
