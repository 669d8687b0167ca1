//! Ports over the Linux kernel: TAP devices ([`tap`]) and packet sockets on existing interfaces ([`packet`]).
//!
//! They are for what the kernel speaks to us: punted packets, local applications, virtual links, and NICs for which
//! there is no faster driver.
//!
//! Promises: each packet that comes out says what a sender left to hardware (checksums, segmentation), and that was checked;
//! such packets are sent, too. VLAN tags that the kernel took out are put back. Nothing blocks. Packet sockets make no system call
//! per packet; a TAP makes one per frame, because it has no ring. An interface that is down is a counted drop, one
//! that is deleted a [`Failed`](warmlane_port::QueueStatus::Failed) queue.
//!
//! Must not: touch other interfaces, routes or addresses; trust an offset or length in memory shared with the
//! kernel before checking it; know what the packets are for.

mod drops;
mod error;
mod intake;
pub mod packet;
mod packet_socket;
mod packet_transmit;
mod ring;
pub mod tap;
mod transmit;

pub use drops::{ReceiveDrop, TransmitDrop};
pub use error::KernelError;
pub use packet::{PacketDriver, PacketOptions};
pub use tap::{TapDriver, TapOptions};
