//! Takes over forwarding from the kernel, by the kernel's own routes.
//!
//! The kernel stays the control plane: routing daemons, `ip route`, ARP, neighbour discovery and everything that is for the box
//! itself go on there. This room mirrors what the kernel knows into tables that lanes forward by.
//!
//! - [`control::kernel`] hears by netlink what the kernel's network is, and keeps a plain model of it.
//! - [`control`] works out what that means for lanes, and keeps their tables so.
//! - [`datapath`] holds packets whose next station the kernel has yet to find, and hands it what only it can forward.
//!
//! It promises that the tables are what the kernel's are, moments later at most, also after the kernel took routes away
//! without a word or lost its news; `verify` proves it. It must not know a driver by name, nor change the kernel's routes.

#![forbid(unsafe_code)]

pub mod control;
pub mod datapath;
