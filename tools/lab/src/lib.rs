//! Measurements and plots.
//!
//! [`mod@bench`] measures one piece of the data path over many short rounds and says minimum, median and maximum with
//! the machine they were taken on; it can also [serve](bench::Bench::serve) rounds one by one, so that a comparison
//! alternates between it and a peer. [`hop`] measures what a cache line costs between two CPUs, [`core_clock`] how fast a core's clock runs, [`partner`] is the
//! second lane of a measurement, [`peer`] a program of somebody else's that takes turns; [`counters`] says what the hardware
//! counted meanwhile. [`turns`] lets ways take turns, and says with [`disturbance`] and [`statistics`] what of it counts. [`experiment`] asks larger questions, with a table and a
//! picture; [`report`] makes a page of them. [`plot`] draws.
//!
//! Promises: figures come from running the real code; nothing is timed inside a test.
//!
//! Must not: be used by anything below it.

#![forbid(unsafe_code)]

pub mod awake;
pub mod bench;
mod benches;
pub mod core_clock;
pub mod counters;
pub mod disturbance;
pub mod doctor;
pub mod experiment;
mod experiments;
pub mod hop;
pub mod locked;
pub mod page;
pub mod partner;
pub mod peer;
pub mod plot;
pub mod report;
mod routes;
pub mod statistics;
pub mod table_inputs;
pub mod traffic;
pub mod turns;
mod two_lanes;
