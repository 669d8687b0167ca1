//! The back end of vhost-user: another process, such as the monitor of a virtual machine, lends its memory and rings; this side is the device.

mod control;
mod device;
mod doorbell;
mod driver;
mod drops;
mod error;
mod inbound;
mod negotiated;
mod options;
mod port;
mod receive;
mod ring;
mod session;
mod transmit;

pub use driver::VhostDriver;
pub use drops::{ReceiveDrop, TransmitDrop};
pub use error::VhostError;
pub use options::{Role, VhostOptions};
pub use port::{Monitor, VhostPort, open};
