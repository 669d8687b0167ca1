//! Ports on PCI devices that are driven from here, not by the kernel.
//!
//! - [`bus`] lists the network devices of this machine, and takes one from the kernel's driver or gives it back (sysfs).
//! - [`vfio`] opens one that was taken: its registers, its interrupts, and memory that it may access.
//! - [`virtio`] drives virtio network devices, with the rings of `drivers/virtio`; `e1000e` drives Intel's 82574 and
//!   `igb` the 82576, with what the two have in common ([`intel`]).
//! - [`NullCard`] is an 82576 that isn't there, for measuring its driver.
//! - `worker` is the thread that looks after a device while it is driven.
//!
//! Promises: no system call, allocation or lock to wait for per packet. What a device says is checked before it is used; with an IOMMU it reaches no
//! memory but its own rings and buffers.
//!
//! Must not: take a device that nobody asked for, or keep one.

mod address;
pub mod bus;
mod driver;
mod e1000e;
mod error;
mod igb;
pub mod intel;
mod kind;
mod options;
pub mod vfio;
pub mod virtio;
mod worker;

pub use address::PciAddress;
pub use driver::PciDriver;
pub use error::PciError;
pub use igb::{NullCard, NullCardPort};
pub use kind::Kind;
pub use options::PciOptions;
