//! Lanes: pinned worker threads, each with its own poll loop.
//!
//! A [`Task`] is what a lane polls. A [`Pipeline`] is the usual one: receive a burst, pass it through a
//! [`Stage`], transmit it; its ends are port queues, or channels to other lanes for a pipeline over several
//! lanes. [`Lanes`] starts, stops, drains and joins them; [`LaneCounters`] can be read at any time without
//! slowing the lane.
//!
//! Promises: nothing is shared between lanes unless it is passed to both; the loop makes no system call while
//! there is work; a stop drains what is under way; a lane that panics stops the others and is reported.
//!
//! Must not: know protocols, drivers or functions.

#![forbid(unsafe_code)]

mod counters;
mod error;
mod idle;
mod lanes;
mod pipeline;
mod placement;
mod task;

pub use counters::LaneCounters;
pub use error::LaneError;
pub use idle::{IdlePolicy, LONGEST_SLEEP};
pub use lanes::{LaneConfig, LaneView, Lanes};
pub use pipeline::{Input, Output, Pipeline, PipelineCounters};
pub use placement::place;
pub use task::{PassThrough, Poll, Stage, Task, per_packet};
