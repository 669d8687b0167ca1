//! Measurements and plots.
//!
//! [`mod@bench`] measures one piece of the data path over many short rounds and says minimum, median and maximum with
//! the machine they were taken on; it can also [serve](bench::Bench::serve) rounds one by one, so that a comparison
//! alternates between it and a peer. [`plot`] draws.
//!
//! Promises: figures come from running the real code; nothing is timed inside a test.
//!
//! Must not: be used by anything below it.

#![forbid(unsafe_code)]

pub mod bench;
mod benches;
pub mod doctor;
pub mod plot;
pub mod traffic;
