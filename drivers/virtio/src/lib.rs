//! Virtio rings, and ports over them.
//!
//! - [`ring`] has both formats of rings as they lie in memory, for either side; [`features`] what the sides agree on.
//! - [`protocol`] has the messages of vhost-user, by which another process lends its memory and its rings; [`memory`] is that memory.
//! - [`vhost`] are ports whose other side is the driver: a virtual machine, or DPDK's `net_virtio_user`.
//! - [`virtio_user`] are ports whose other side is the device: another process with a vhost-user back end.
//! - [`bus`] is for ports whose device is hardware, or an emulator's: `drivers/pci` finds it and tells it where its rings are.
//!
//! Both copy packets with the same code, which sees a ring as a queue of buffers (`queue`), and share the code that keeps a connection
//! (`connection`). A device on a bus can reach a pool as well, and then nothing is copied that is in one buffer of it ([`bus::BusMemory::lend`]).
//!
//! Promises: no system call, allocation or lock to wait for per packet. Whatever the other side writes is read once, copied and checked
//! before it is used: an impossible value costs the packet or the connection, and nothing else.
//!
//! Must not: know what the packets are for.

pub mod bus;
mod connection;
mod error;
pub mod features;
mod layout;
mod log;
pub mod memory;
mod port;
pub mod protocol;
mod queue;
pub mod ring;
pub mod vhost;
pub mod virtio_user;

pub use connection::role::Role;
pub use error::VirtioError;
pub use port::{Monitor, VirtioPort};
pub use queue::drops::{ReceiveDrop, TransmitDrop};
pub use queue::look::LookLevel;
