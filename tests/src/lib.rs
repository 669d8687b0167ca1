//! What the system tests share.

#![forbid(unsafe_code)]

pub mod browser;
mod command;
pub mod daemons;
mod flood;
pub mod flows;
mod guest;
mod iperf;
mod lab;
mod router_lab;
pub mod talk;
pub mod turn;
mod wire;

pub use command::{LONG, SHORT, as_nobody_with, assert_misused, assert_refused, forward};
pub use flood::Flood;
pub use guest::{GuestTests, Machine, OBEY, OBEY_MODULE, PORT as GUEST_PORT, check_in_a_guest};
pub use iperf::{iperf, send_3_mib};
pub use lab::{CAPTURE_PROGRAMS, Driver, Lab, NEIGHBOURS, PROGRAMS};
pub use router_lab::RouterLab;
pub use wire::{check_wire, is_tcp_checksum_right};
