//! Measurements and plots.
//!
//! Whatever can be measured by name is a [`subject`]: a [`bench`](mod@bench) measures one piece of the data path for one figure, an
//! [`experiment`] asks a larger question, with a table and a picture. Both do it by one [`setting`]: the ways to do a thing
//! ([`measure`]) take [`turns`], which say with [`disturbance`], [`hop`] and [`core_clock`] what of it counts, and the outcome is
//! a [`record`] with the [`machine`] that it was taken on and what the hardware counted meanwhile ([`counters`]). Whether an
//! experiment's claim was reproduced follows from its figures alone ([`verdict`]).
//! A bench can also [serve](bench::Bench::serve) rounds one by one, so that a comparison alternates between it and a peer.
//!
//! A new experiment is a file in `experiments`, and its name in `experiments.rs`; a new bench is an entry in a file of
//! `benches`. [`partner`] is the second lane of a measurement, [`peer`] a program of somebody else's that takes turns.
//! [`plot`] draws, [`report`] makes a page. [`cache_model`] says what moves between caches and memory where nothing can count it.
//!
//! Promises: figures come from running the real code; nothing is timed inside a test.
//!
//! Must not: be used by anything below it.

#![forbid(unsafe_code)]

mod alongside;
pub mod awake;
pub mod bench;
mod benches;
pub mod cache_model;
pub mod core_clock;
pub mod counters;
pub mod disturbance;
pub mod error;
pub mod experiment;
mod experiments;
pub mod hop;
pub mod locked;
pub mod machine;
pub mod measure;
mod namespaces;
mod paced;
pub mod page;
pub mod partner;
pub mod peer;
pub mod plot;
mod random;
pub mod record;
pub mod report;
pub mod ring_shape;
mod routes;
pub mod setting;
pub mod statistics;
pub mod subject;
pub mod table;
pub mod table_inputs;
pub mod traffic;
pub mod turns;
mod two_lanes;
pub mod verdict;
