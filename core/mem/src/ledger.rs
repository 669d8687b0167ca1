//! The always-on count of who has the buffers.

use warmlane_sync::counter::Counter;
use warmlane_sync::padded::CachePadded;

/// One lane's counts of one pool, written by the lane alone, once per bulk operation.
#[derive(Default)]
pub(crate) struct LaneCounters {
    pub(crate) taken: CachePadded<Counter>,
    pub(crate) freed: Counter,
    /// Packets that were wanted and not to be had.
    pub(crate) refused: Counter,
}

/// A pool's books. At rest `outstanding` is zero; tests assert that.
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
