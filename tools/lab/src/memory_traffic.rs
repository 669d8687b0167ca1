//! How much memory traffic a DOCSIS downstream causes with each kind of pool, predicted.
//!
//! [`touches`] says which lines a frame's way through both MACs touches, as [`trace`] has recorded them from the running code.
//! [`orders`] are the buffers that pools hand out, as the pools themselves say. [`replay`] puts both together and lets a model of a
//! [machine](machines) go through it, by the [`parameters`] that were fitted. A [`question`] asks for that, and [`study`] holds what comes out against
//! [`published`] figures.

pub mod forward_touches;
pub mod forward_workload;
pub mod machines;
pub mod mix;
pub mod orders;
pub mod own_pools;
pub mod parameters;
pub mod peak;
pub mod pool_touches;
pub mod published;
pub mod question;
pub mod replay;
pub mod result;
pub mod study;
pub mod touches;
pub mod trace;
pub mod workload;
