//! Measurements and plots.
//!
//! [`mod@bench`] measures one piece of the data path over many short rounds and says minimum, median and maximum with
//! the machine they were taken on; it can also [serve](bench::Bench::serve) rounds one by one, so that a comparison
//! alternates between it and a peer. [`hop`] measures what a cache line costs between two CPUs, [`partner`] is the
//! second lane of a measurement. [`experiment`] asks larger questions, with a table and a
//! picture; [`report`] makes a page of them. [`plot`] draws.
//!
//! Promises: figures come from running the real code; nothing is timed inside a test.
//!
//! Must not: be used by anything below it.

#![forbid(unsafe_code)]

pub mod bench;
mod benches;
pub mod doctor;
pub mod experiment;
mod experiments;
pub mod hop;
pub mod locked;
pub mod page;
pub mod partner;
pub mod plot;
pub mod report;
mod routes;
pub mod traffic;
mod two_lanes;
