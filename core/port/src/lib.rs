//! Where packets enter and leave.
//!
//! A driver hands out a [`Port`]: a name, [`Capabilities`], and queues that implement [`ReceiveQueue`] and
//! [`TransmitQueue`]. A queue belongs to exactly one lane; its counters can be read by anyone at any time by a
//! [`QueueCountersView`].
//! Every packet that goes nowhere is counted under a [`DropReason`]: a name, a severity and a sentence, declared
//! with [`drop_reasons!`]; [`BurstExt::keep`] drops in one line. [`CountDropped`] shows dropped packets to whoever captures them.
//!
//! [`channel`] makes queues of the ends of a channel to another lane.
//!
//! [`replaceable`] replaces the queues of running lanes when an interface was deleted and created again.
//!
//! [`fault`] and [`rate_limit`] put a receive queue behind a simulated device that misbehaves or has a known capacity, to test
//! measurements. [`software_offload`] does in software what packets need and the next stage or port can't do, and [`steering`] what
//! a card's rules and its spreading of flows would.
//!
//! Promises: queue calls never block and move whole bursts; what a transmit queue does not accept stays with the
//! caller, in order; counters cost their writer a plain add.
//!
//! Must not: know drivers, nor protocols beyond what hardware would do in its place; allocate or lock per burst.

#![forbid(unsafe_code)]

pub mod channel;
pub mod fault;
mod inner;
mod keep;
mod offloads;
mod port;
mod queue;
pub mod rate_limit;
pub mod replaceable;
mod report;
pub mod software_offload;
pub mod steering;
#[cfg(test)]
mod test_queue;
pub mod watched;

pub use keep::BurstExt;
pub use offloads::{InSoftware, Layered, Offloads, TransmitOffloads, Transports};
pub use port::{Capabilities, MacBytes, NoQueue, Port, PortView};
pub use queue::{QueueCounters, QueueCountersView, QueueStatus, ReceiveQueue, TransmitQueue};
pub use watched::CountDropped;
// Drivers declare their reasons with what else they need of ports.
pub use warmlane_counters::{
    DropCounters, DropReason, DropView, NoDrops, Reason, Severity, Source, drop_reasons,
};
