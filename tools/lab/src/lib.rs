//! Measurements and plots.
//!
//! Everything that can be measured by name is a [`subject`]: a [`bench`](mod@bench) measures one piece of the data path and gives one
//! figure; an [`experiment`] answers a larger question with a table and a plot. Both share their [`setting`]s. The variants that are
//! compared ([`measure`]) take [`turns`]; [`disturbance`], [`line_transfer`] and [`core_clock`] decide which turns count. The result is a
//! [`record`] with the [`machine`] that it was taken on and the hardware's [`counters`]. Whether an experiment's claim was reproduced
//! follows from its figures alone ([`verdict`]). A bench can also [serve](bench::Bench::serve) rounds one by one, so that a comparison
//! alternates between it and a peer.
//!
//! A new experiment is a file in `experiments`, listed in `experiments.rs`; a new bench is an entry in a file of `benches`.
//! [`partner`] is the second lane of a measurement, [`peer`] another program that takes turns. [`plot`] draws, [`report`] makes a
//! page. [`cache_model`] simulates what moves between caches and memory where no hardware counter can tell, and
//! [`memory_traffic`] predicts by it what a DOCSIS downstream moves, and [`mod@predict`] what a configuration will.
//!
//! Promises: figures come from running the real code; nothing is timed inside a test.
//!
//! Must not: be used by anything below it.

#![forbid(unsafe_code)]

pub mod agreement;
mod alongside;
pub mod awake;
pub mod bench;
mod benches;
mod cable;
pub mod cache_model;
pub mod chase;
mod control_groups;
pub mod core_clock;
pub mod counters;
pub mod disturbance;
pub mod error;
pub mod experiment;
mod experiments;
pub mod line_transfer;
pub mod locked;
pub mod machine;
pub mod measure;
pub mod memory_traffic;
pub mod modelled;
mod namespaces;
mod own_program;
mod paced;
pub mod page;
pub mod partner;
pub mod peer;
pub mod plot;
pub mod predict;
mod random;
pub mod record;
pub mod report;
pub mod ring_shape;
mod routes;
pub mod setting;
pub mod statistics;
pub mod streams;
pub mod subject;
pub mod table;
pub mod table_inputs;
pub mod traffic;
pub mod turns;
mod two_lanes;
pub mod verdict;
