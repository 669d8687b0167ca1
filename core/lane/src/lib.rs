//! Lanes: pinned worker threads, each with its own poll loop.
//!
//! A [`Task`] is what a lane polls. A [`Pipeline`] is the usual one: it receives bursts, passes them through [`Stage`]s, and
//! transmits them; its ends are port queues, or channels to other lanes for a pipeline over several lanes. [`Lanes`] starts,
//! stops, drains and joins them; [`LaneCountersView`] and the pipeline's [`Graph`] can be read at any time without slowing the lane.
//!
//! Promises: nothing is shared between lanes unless it is passed to both; the loop makes no system call while
//! there is work; a stop drains what is under way; a lane that panics stops the others and is reported.
//!
//! Must not: know protocols, drivers or functions.

#![forbid(unsafe_code)]

mod builder;
mod check;
mod counters;
mod ends;
mod error;
mod every;
mod finish;
mod graph;
mod idle;
mod inner;
mod lanes;
mod outputs;
mod pipeline;
mod placement;
mod polled_stage;
mod probe;
mod row;
mod stage;
mod tap;
mod task;
mod timing;
mod trace;
mod wake_ups;
mod waker;

pub use builder::{EdgeFrom, EdgeTo, GraphError, InputId, OutputId, PipelineBuilder, StageId};
pub use counters::{LaneCounters, LaneCountersView, StageCounters, StageCountersView};
pub use ends::{Input, LanePort, Output};
pub use error::LaneError;
pub use every::{Every, every};
pub use graph::{Edge, Failure, Graph, InputNode, LaneDrop, Node, OutputNode, StageNode};
pub use idle::{IdlePolicy, wake_up_time};
pub use lanes::{LaneConfig, LaneView, Lanes, run_here};
pub use outputs::{KeptOutputs, Outputs};
pub use pipeline::Pipeline;
pub use placement::{most_on_one_cpu, place, place_on};
pub use probe::{Filter, Point, ProbeConfig, ProbeCounters, ProbeCountersView, ProbeReader, Record};
pub use stage::{Branch, FilterDrop, PassThrough, Rehearsed, Stage, branch, per_packet};
pub use tap::{Tap, TapCounters, TapCountersView, TapDrop};
pub use task::{Poll, Task, TaskFailed};
pub use timing::{StageTimedCounters, StageTimedCountersView, StageTiming, TIMED_ONE_IN};
pub use trace::{Explanation, Grown, Step, Trace, TraceConfig, TraceEnd, TraceReader};
pub use wake_ups::WakeUps;
pub use waker::Waker;
