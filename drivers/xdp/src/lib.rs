//! Ports over AF_XDP sockets: the interface stays the kernel's, and gives us the packets that we forward.
//!
//! [`open`] makes a socket for each receive queue of an interface and attaches an XDP program that redirects packets to
//! them: all, or those that pass through the box ([`Steering`]); a [`LocalFilter`] is told which addresses are the box's own. The memory is a pool's ([`Umem`]), at the stride that was
//! planned for it; ports opened with one `Umem` pass packets to each other without a copy in user space.
//!
//! Promises: nothing blocks; at most one system call per burst, and only if the kernel asks for it. The program is our
//! own (`bpf/steering.bpf.c`), compiled beforehand and loaded without any tool; it and the sockets go when the process ends, however
//! it does, and the kernel has the interface's packets again. What mode was obtained is said ([`Obtained`]), what the kernel dropped is
//! counted. Whatever the kernel writes is checked: a buffer that it did not have, or an address outside of one, is a counted
//! drop.
//!
//! What was taken and is the kernel's after all goes back by a [`Reentry`].
//!
//! Must not: touch other interfaces, or the settings of this one; know what the packets are for.
//!
//! On a veth pair, the other end must compute its checksums itself (`ethtool -K OTHER tx off`): AF_XDP has no word for
//! "left to hardware", so a packet of a local sender there would go on with a wrong one.

mod bpf;
mod driver;
mod drops;
mod error;
mod find;
mod local;
mod options;
mod pieces;
mod port;
mod receive;
mod reentry;
mod ring;
mod socket;
mod transmit;
mod umem;
mod wake;

pub use bpf::{LeftFamilies, Steering};
pub use driver::XdpDriver;
pub use drops::{ReceiveDrop, TransmitDrop};
pub use error::XdpError;
pub use local::LocalFilter;
pub use options::{XdpMode, XdpOptions};
pub use port::{Cost, Monitor, Obtained, XdpPort, check, open};
pub use reentry::Reentry;
pub use socket::XdpStatistics;
pub use umem::Umem;
