//! Rings of virtio, and ports over them.
//!
//! - [`ring`] has both formats of rings as they lie in memory, for either side; [`features`] what the sides agree on.
//! - [`protocol`] has the messages of vhost-user, by which another process lends its memory and its rings; [`memory`] is that memory.
//! - [`vhost`] are ports whose other side is the driver: a virtual machine, or DPDK's `net_virtio_user`.
//! - [`virtio_user`] are ports whose other side is the device: another process with a vhost-user back end.
//!
//! Both copy packets by the same code, which sees a ring as buffers that come and go (`queue`), and keep their connection alike (`connection`).
//!
//! Promises: no system call, lock that is waited for, or allocation per packet; each thing that the other side writes is read once, checked, and
//! copied before anything is decided by it. What can't be costs the packet or the connection, and nothing else.
//!
//! Must not: know what the packets are for.

mod connection;
mod error;
pub mod features;
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
