//! What the system tests share.

#![forbid(unsafe_code)]

mod command;
pub mod daemons;
mod flood;
mod lab;
mod router_lab;

pub use command::{LONG, SHORT, assert_refused, forward};
pub use flood::Flood;
pub use lab::{Driver, Lab, PROGRAMS};
pub use router_lab::RouterLab;
