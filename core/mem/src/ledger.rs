//! The always-on count of who has the buffers.

use warmlane_counters::counters;

counters! {
    /// One lane's counts of one pool, once per bulk operation.
    pub(crate) struct LaneCounters => LaneCountersView {
        /// Buffers taken.
        taken: Note, "buffers";
        /// Buffers freed.
        freed: Note, "buffers";
        /// Packets that were wanted and not to be had.
        refused: Note, "packets";
    }
}

/// A pool's counts of buffers. At rest `outstanding` is zero; tests assert that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// Buffers that the pool was made with.
    pub buffers: u32,
    /// Buffers taken since the pool was made.
    pub taken: u64,
    /// Buffers freed since the pool was made.
    pub freed: u64,
}

impl Ledger {
    /// Buffers that packets hold at this moment. Exact at rest; while lanes run it is off by what they did
    /// between two reads.
    pub const fn outstanding(&self) -> u64 {
        self.taken.saturating_sub(self.freed)
    }
}
