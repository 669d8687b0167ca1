//! Ports over the Linux kernel: TAP devices ([`tap`]) and packet sockets on existing interfaces ([`packet`]).
//!
//! They are for what the kernel speaks to us: punted packets, local applications, virtual links, and NICs for which
//! there is no faster driver. [`interfaces()`] lists what there is to open.
//!
//! Promises: each packet that comes out is complete: what a sender left to hardware (checksums, segmentation) is
//! done here, VLAN tags that the kernel took out are put back. Nothing blocks. Packet sockets make no system call
//! per packet; a TAP makes one per frame, because it has no ring. An interface that is down is a counted drop, one
//! that is deleted a [`Failed`](warmlane_port::QueueStatus::Failed) queue.
//!
//! Must not: touch other interfaces, routes or addresses; trust an offset or length in memory shared with the
//! kernel before checking it; know what the packets are for.

mod checksum;
mod drops;
mod error;
mod intake;
mod interfaces;
mod link;
mod offload;
pub mod packet;
mod packet_transmit;
mod ring;
mod segment;
mod system;
pub mod tap;
mod transmit;

pub use drops::{ReceiveDrop, TransmitDrop};
pub use error::KernelError;
pub use interfaces::{Interface, interfaces};
pub use packet::PacketConfig;
pub use tap::TapConfig;
