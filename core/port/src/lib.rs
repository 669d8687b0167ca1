//! Where packets enter and leave.
//!
//! A driver hands out a [`Port`]: a name, [`Capabilities`], and queues that implement [`ReceiveQueue`] and
//! [`TransmitQueue`]. A queue belongs to exactly one lane; its [`QueueCounters`] can be read by anyone at any time.
//! Every packet that goes nowhere is counted under a [`DropReason`]: a name, a severity and a sentence, declared
//! with [`drop_reasons!`].
//!
//! [`fault`] and [`rate_limit`] put a receive queue behind a device that misbehaves or has a known capacity: what a
//! measurement is tested against.
//!
//! Promises: queue calls never block and move whole bursts; what a transmit queue does not accept stays with the
//! caller, in order; counters cost their writer a plain add.
//!
//! Must not: know protocols or drivers, allocate or lock per burst.

#![forbid(unsafe_code)]

pub mod fault;
mod port;
mod queue;
pub mod rate_limit;
mod reason;
#[cfg(test)]
mod test_queue;

pub use port::{Capabilities, MacBytes, Port};
pub use queue::{QueueCounters, QueueStatus, ReceiveQueue, TransmitQueue};
pub use reason::{DropCounters, DropReason, Severity};
