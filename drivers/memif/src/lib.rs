//! Ports over memif, the memory that two processes on one machine share to pass packets: the protocol of VPP, libmemif and
//! DPDK's `net_memif`, version 2.0.
//!
//! [`open`] makes a port of either role. A client brings the memory: rings, and buffers for them, or with [`Mode::ZeroCopy`] those of its
//! pool, in which its packets then stay. A server makes the socket. Either comes and goes without the other: a connection that is lost, however
//! that came, is made again. Packets that are to be sent meanwhile are a counted drop.
//!
//! Promises: no system call, lock or allocation per packet; each thing that the other side writes is read once, checked, and copied before
//! anything is decided by it. An index, a place or a length that can't be costs the connection or the packet, and nothing else. Memory that could
//! be cut short under us is refused unless [`MemifOptions::allow_unsealed`] says otherwise. With [`Mode::ZeroCopy`] the server is trusted
//! with the pool.
//!
//! What the packets of these ports need besides their bytes is not carried: it is done before, in software.
//!
//! Must not: know what the packets are for.

mod control;
mod driver;
mod drops;
mod error;
mod handshake;
mod lent;
mod link;
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
