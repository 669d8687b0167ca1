//! Ports over AF_XDP sockets: the kernel keeps the interface, and hands over the packets that we forward.
//!
//! [`open`] makes a socket for each receive queue of an interface and attaches an XDP program that redirects packets to them: all
//! packets, or those in transit ([`Steering`]), in which case a [`LocalFilter`] knows the box's own addresses. The sockets' memory is a pool
//! ([`Umem`]) with its planned stride; ports that share a `Umem` pass packets to each other without a copy in user space.
//!
//! Promises: nothing blocks; at most one system call per burst, and only if the kernel asks for it. The program is precompiled
//! (`bpf/steering.bpf.c`); it and the sockets disappear when the process ends, for whatever reason, and the kernel gets the interface's
//! packets again. [`Obtained`] says which mode was obtained; what the kernel dropped is counted. Whatever the kernel writes is checked: a
//! buffer that it did not have, or an address outside of one, is a counted drop.
//!
//! A packet that was taken and turns out to be the kernel's returns to it by a [`Reentry`].
//!
//! Must not: touch other interfaces, or the settings of this one; know what the packets are for.
//!
//! On a veth pair, the other end must compute its checksums itself (`ethtool -K OTHER tx off`): AF_XDP can't say that a checksum was left to
//! hardware, so packets of a local sender there would be forwarded with wrong ones. Samples tell of it:
//! [`Monitor::left_checksums`].

mod bpf;
mod driver;
mod drops;
mod error;
mod find;
mod left_checksum;
mod local;
mod options;
mod pieces;
mod port;
mod receive;
mod reentry;
mod ring;
mod socket;
mod transmit;
mod transmit_metadata;
mod umem;
mod wake;

pub use bpf::{LeftFamilies, Steering, TunnelEnds};
pub use driver::XdpDriver;
pub use drops::{ReceiveDrop, TransmitDrop};
pub use error::XdpError;
pub use local::LocalFilter;
pub use options::{XdpMode, XdpOptions};
pub use port::{Cost, Monitor, Obtained, XdpPort, check, open};
pub use reentry::Reentry;
pub use socket::XdpStatistics;
pub use umem::Umem;
