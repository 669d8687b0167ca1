//! What a configuration will ask of a machine's caches and memory, predicted.
//!
//! A [`Configuration`] is what a file of a function says, in the terms that count for caches: lanes, ports with their rings, the pool,
//! tables. [`Asked`] replays its packets at a [`Load`] in the model of a [machine](crate::memory_traffic::machines): which lines a packet
//! touches was recorded from the running code, the order of buffers comes from real pools. A [`Forecast`] says where the
//! [parts](working_set) of the working set live, what a packet misses and moves, and what [`advice`] would change that.

pub mod advice;
mod configuration;
mod figures;
mod forecast;
mod lanes;
mod load;
pub mod working_set;

pub use advice::Advice;
pub use configuration::{Configuration, Function, PortRings, Table};
pub use figures::{Asked, Figures};
pub use forecast::Forecast;
pub use load::{Load, LoadError};

#[cfg(test)]
mod tests;
