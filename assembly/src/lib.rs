//! Puts programs together: what stands between the other crates and a command line, or a program that embeds them.
//!
//! [`ports`] knows all drivers and opens ports by name; [`router`] has those of a router, whose interfaces come and go, and [`docsis`]
//! the lanes of a downstream. An [`Assembly`] assigns ports to lanes, starts the lanes, watches them while they run
//! ([`Assembly::run`]), and ends with a [`Report`] that accounts for every packet.
//!
//! Promises: one way to start lanes for all commands and for embedding programs; what is counted can be read at any time from
//! one [`Registry`](warmlane_counters::Registry); a run that lost a buffer or broke a queue ends with an error.
//!
//! Must not: parse command lines, print.

#![forbid(unsafe_code)]

mod asked;
pub mod capture;
pub mod cycles;
pub mod docsis;
mod forwarder;
mod graph;
mod lanes;
mod layout;
mod machine;
mod offloads;
pub mod ports;
mod report;
pub mod router;
mod run;
mod shared_cpus;
mod signals;
pub mod trace;
mod turns;

pub use graph::graphs;
pub use lanes::{Assembly, LaneParts, LaneSettings, StartError, share_out};
pub use layout::layout;
pub use machine::{CacheShare, CpuGroupReport, MachineError, MachineReport, MachineSettings};
pub use offloads::{Offload, PortOffloads, offloads};
pub use report::{
    Drops, ForwardReport, LaneReport, PoolReport, PortReport, Report, Sets, StageReport, Traffic,
};
pub use run::{Event, Outcome, RunError, RunLimits};
pub use shared_cpus::{SharedCpu, shared_cpus};
pub use signals::Signals;
