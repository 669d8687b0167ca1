//! Ports over the Linux kernel: TAP devices ([`tap`]) and packet sockets on existing interfaces ([`packet`]).
//!
//! They are for exchanging packets with the kernel itself (punted packets, local applications, virtual links) and for NICs
//! without a faster driver.
//!
//! Promises: a received packet says which offloads its sender left to hardware (checksums, segmentation), after that was checked;
//! such packets can be sent, too. VLAN tags that the kernel stripped are put back. Nothing blocks. Packet sockets make no system
//! call per packet; a TAP makes one per frame, because it has no ring. While an interface is down, packets to it are counted drops; if it
//! is deleted, the queue is [`Failed`](warmlane_port::QueueStatus::Failed).
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
