//! The two ends of a port.

use crate::reason::{DropCounters, DropReason};
use std::sync::Arc;
use warmlane_mem::Burst;
use warmlane_sync::counter::Counter;

/// Whether a queue can still be expected to move packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueStatus {
    /// It can.
    Running,
    /// It came to its regular end: the file is read, the count is reached, the other side closed.
    Finished,
    /// It broke, and why: a sentence that names the thing and the remedy.
    Failed(String),
}

/// What a queue has moved and dropped. Its lane writes, anyone reads.
#[derive(Debug)]
pub struct QueueCounters {
    /// Packets received or transmitted.
    pub packets: Counter,
    /// Their bytes: whole frames without the frame check sequence.
    pub bytes: Counter,
    /// What was dropped, by reason.
    pub drops: DropCounters,
}

impl QueueCounters {
    /// All zero.
    pub fn new(reasons: &'static [DropReason]) -> Arc<Self> {
        Arc::new(Self {
            packets: Counter::default(),
            bytes: Counter::default(),
            drops: DropCounters::new(reasons),
        })
    }
}

/// Where packets come in. It moves to the lane that polls it, and has its pool inside.
pub trait ReceiveQueue: Send {
    /// Appends up to `burst.room()` packets to `burst` and returns how many. Never blocks.
    fn receive(&mut self, burst: &mut Burst) -> usize;

    /// Whether more can come; worth asking when `receive` returned 0.
    fn status(&self) -> QueueStatus;

    /// What it has moved and dropped.
    fn counters(&self) -> &Arc<QueueCounters>;
}

/// Where packets go out.
pub trait TransmitQueue: Send {
    /// Takes packets from the front of `burst` and returns how many; those it has no room for stay, in order.
    ///
    /// A packet that can never be sent (too large for the link, say) is taken too, and counted as a drop with its
    /// reason. Never blocks.
    fn transmit(&mut self, burst: &mut Burst) -> usize;

    /// Whether a call of [`transmit`](Self::transmit) costs as much as many packets do, a system call for instance: a lane that
    /// has much to do then gathers several bursts for each.
    fn is_costly_to_call(&self) -> bool {
        false
    }

    /// Pushes out what is buffered and reclaims what was sent. Lanes call it when idle, and before they end.
    fn flush(&mut self) {}

    /// Whether packets can still leave; worth asking when `transmit` took nothing.
    fn status(&self) -> QueueStatus;

    /// What it has moved and dropped.
    fn counters(&self) -> &Arc<QueueCounters>;
}
