//! What a lane tells about itself.

use warmlane_counters::counters;

counters! {
    /// What a lane does. Cycles are those of the time-stamp counter.
    pub struct LaneCounters => LaneCountersView {
        /// Times the task was polled.
        polls: Note, "polls";
        /// Polls that moved packets.
        busy_polls: Note, "polls";
        /// Packets moved.
        packets: Note, "packets";
        /// Cycles spent in polls that moved packets.
        busy_cycles: Note, "cycles";
        /// Cycles spent in polls that found nothing, and in waiting after them.
        idle_cycles: Note, "cycles";
        /// Times it slept for a set time, as packets are not far apart.
        naps: Note, "times";
        /// Times it slept until something woke it.
        sleeps: Note, "times";
        /// Times something woke it, not the end of its time.
        wake_ups: Note, "times";
        /// Cycles of `idle_cycles` that it left its CPU for: naps, sleeps and pauses.
        asleep_cycles: Note, "cycles";
    }
}

counters! {
    /// What a pipeline counts of each stage.
    pub struct StageCounters => StageCountersView {
        /// Packets that the stage was given.
        processed: Note, "packets";
        /// Packets that the stage made, or let go after having held them.
        made: Note, "packets";
    }
}

impl LaneCountersView {
    /// Cycles per packet of the polls that moved packets; `None` before the first.
    pub fn cycles_per_packet(&self) -> Option<f64> {
        let packets = self.packets();
        (packets > 0).then(|| self.busy_cycles() as f64 / packets as f64)
    }

    /// Packets per poll that moved packets; `None` before the first.
    pub fn packets_per_poll(&self) -> Option<f64> {
        let polls = self.busy_polls();
        (polls > 0).then(|| self.packets() as f64 / polls as f64)
    }
}
