//! Takes over forwarding from the kernel, by the kernel's own routes.
//!
//! The kernel stays the control plane: routing daemons, `ip route`, ARP, neighbour discovery and all packets to the box itself work as
//! before. This crate mirrors the kernel's state into the tables that lanes use.
//!
//! - [`control::kernel`] follows the kernel's network by netlink, and keeps a plain model of it.
//! - [`control`] works out which tables lanes need for that, finds where theirs differ, and changes those routes.
//! - [`paths`] forwards inside the kernel, without lanes, where that is better.
//! - [`datapath`] holds packets whose neighbour is not resolved yet, and punts to the kernel what only it can forward.
//!
//! Promises: the tables are the kernel's, at most moments later, even after the kernel removed routes without an event or lost
//! events; `verify` checks it. Must not: know a driver by name, or change the kernel's routes.

#![forbid(unsafe_code)]

mod by_interface;
mod coarse_clock;
pub mod control;
pub mod datapath;
mod lane;
pub mod paths;

pub use by_interface::{ByInterface, ByInterfaceError, InterfaceChoice};
pub use lane::pipeline;
