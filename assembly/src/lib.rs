//! Programs put together: what is between the other crates and a command line or an embedding program.
//!
//! [`ports`] knows all drivers and opens ports by name. An [`Assembly`] shares ports out to lanes, starts them, watches them
//! while they run ([`Assembly::run`]), and ends with a [`Report`] in which every packet is accounted for.
//!
//! Promises: one way to start lanes for all commands and for embedding programs; what is counted can be read at any time from
//! one [`Registry`](warmlane_counters::Registry); a run that lost a buffer or broke a queue ends with an error.
//!
//! Must not: parse command lines, print.

#![forbid(unsafe_code)]

mod forwarder;
mod lanes;
mod machine;
pub mod ports;
mod report;
mod run;
mod shared_cpus;
mod signals;

pub use lanes::{Assembly, LaneParts, LaneSettings, StartError, share_out};
pub use machine::{CacheShare, CpuGroupReport, MachineError, MachineReport, MachineSettings};
pub use report::{
    Drops, ForwardReport, LaneReport, PoolReport, PortReport, Report, Sets, StageReport, Traffic,
};
pub use run::{Event, Outcome, RunError, RunLimits};
pub use shared_cpus::{SharedCpu, shared_cpus};
pub use signals::Signals;
