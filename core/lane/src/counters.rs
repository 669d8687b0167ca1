//! What a lane tells about itself.

use warmlane_sync::counter::Counter;

/// Written by the lane, readable by anyone at any time. Cycles are those of the time-stamp counter.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct LaneCounters {
    /// Times the task was polled.
    pub polls: Counter,
    /// Polls that moved packets.
    pub busy_polls: Counter,
    /// Packets moved.
    pub packets: Counter,
    /// Cycles spent in polls that moved packets.
    pub busy_cycles: Counter,
    /// Cycles spent in polls that found nothing, and in resting after them.
    pub idle_cycles: Counter,
}

impl LaneCounters {
    /// Cycles per packet of the polls that moved packets; `None` before the first.
    pub fn cycles_per_packet(&self) -> Option<f64> {
        let packets = self.packets.get();
        (packets > 0).then(|| self.busy_cycles.get() as f64 / packets as f64)
    }

    /// Packets per poll that moved packets; `None` before the first.
    pub fn packets_per_poll(&self) -> Option<f64> {
        let polls = self.busy_polls.get();
        (polls > 0).then(|| self.packets.get() as f64 / polls as f64)
    }
}
