//! Rings of virtio, and ports over them.
//!
//! - [`ring`] has both formats of rings as they lie in memory, for either side; [`features`] what the sides agree on.
//! - [`protocol`] has the messages of vhost-user, by which another process lends its memory and its rings; [`memory`] is that memory.
//! - [`vhost`] are ports whose other side is the driver: a virtual machine, or DPDK's `net_virtio_user`.
//!
//! Promises: no system call, lock that is waited for, or allocation per packet; each thing that the other side writes is read once, checked, and
//! copied before anything is decided by it. What can't be costs the packet or the connection, and nothing else.
//!
//! Must not: know what the packets are for.

pub mod features;
pub mod memory;
pub mod protocol;
pub mod ring;
pub mod vhost;
