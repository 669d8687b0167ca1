//! What drivers share.
//!
//! - [`Driver`] is what a driver is to the rest of the program: a name, help, options and a way to open a port.
//!   [`options`] reads a driver's options from a text such as `eth0,mode=copy,busy-poll`.
//! - [`Interface`] is what the kernel knows of a network interface; [`AddressFollower`] follows the kernel's own addresses.
//! - [`virtio_net`] reads and writes the offload headers of virtio-net.
//! - [`LentBuffers`] keeps track of buffers that the kernel or another process has, [`FillLevel`] says how many to lend.
//! - [`Gather`] puts a packet together from data in several places.
//! - [`PortEvents`] is what happens to ports while they are open, which drivers' threads say by a [`Reporter`].
//! - [`peer`] is another process that shares memory with this one, and may be hostile.
//! - [`system`] has the system calls that rustix lacks, [`SystemError`] the errors that all drivers share.
//!
//! Must not: know a driver.

mod addresses;
mod driver;
mod error;
mod ethtool;
mod events;
mod fill_level;
mod gather;
mod interface;
mod lent_buffers;
mod name;
mod netlink;
pub mod options;
pub mod peer;
mod shared_pool;
mod sysfs;
pub mod system;
pub mod virtio_net;

pub use addresses::{AddressFollower, LocalSink};
pub use driver::{Direction, Driver, DriverHelp, Environment, Files, OpenError, OptionHelp, Shared};
pub use error::{SystemError, interface_gone};
pub use events::{PortEvents, Reporter, Severity};
pub use fill_level::FillLevel;
pub use gather::{Gather, Ungathered};
pub use interface::{Controller, Interface};
pub use lent_buffers::{LentBuffers, LentMarks};
pub use name::InterfaceName;
pub use options::OptionError;
pub use shared_pool::{PoolAddresses, SharedPool};
