//! Takes over forwarding from the kernel, by the kernel's own routes.
//!
//! The kernel stays the control plane: routing daemons, `ip route`, ARP, neighbour discovery and everything that is for the box
//! itself go on there. This crate mirrors what the kernel knows into tables that lanes forward by.
//!
//! - [`control::kernel`] follows the kernel's network by netlink, and keeps a plain model of it.
//! - [`control`] works out which tables lanes need for that, finds where theirs differ, and changes those routes.
//! - [`paths`] forwards inside the kernel, without lanes, where that is better.
//! - [`datapath`] holds packets whose neighbour is not resolved yet, and punts to the kernel what only it can forward.
//!
//! It promises that the tables are what the kernel's are, moments later at most, also after the kernel took routes away
//! without an event or lost events; `verify` proves it. It must not know a driver by name, nor change the kernel's routes.

#![forbid(unsafe_code)]

mod by_interface;
mod coarse_clock;
pub mod control;
pub mod datapath;
mod lane;
pub mod paths;

pub use by_interface::{ByInterface, ByInterfaceError, InterfaceChoice};
pub use lane::pipeline;
