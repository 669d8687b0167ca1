//! A model of caches: which lines are where, and what moves between the levels and memory.
//!
//! It answers what a machine without counters can't be asked: how many lines a workload reads from memory and writes back. [`Cache`] is one
//! level, [`Hierarchy`] all of a processor's with its memory: cores with a first and a second level of their own, one level that
//! they share, and devices that write and read by way of it. Accesses are whole lines; time is not modelled.

mod cache;
mod geometry;
mod hierarchy;
mod holders;
mod replacement;

pub use cache::{Cache, Evicted, LineIndex};
pub use geometry::{Geometry, GeometryError, LINE_BYTES, Shape};
pub use hierarchy::{Hierarchy, Inclusion, Level, Machine, Traffic};
pub use replacement::Replacement;
