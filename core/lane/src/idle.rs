//! What a lane does when there is nothing to do.

use std::time::Duration;
use warmlane_sync::spin::relax;

/// How a lane waits for work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdlePolicy {
    /// Polls on. The lowest latency, at the price of a whole core.
    Spin,
    /// Polls on for a while, then yields, then sleeps for longer and longer, up to [`LONGEST_SLEEP`]: a lane
    /// without traffic costs next to nothing, and the first packet after a pause waits up to that long.
    #[default]
    Ramp,
}

/// The longest that a ramped lane sleeps between two polls.
pub const LONGEST_SLEEP: Duration = Duration::from_micros(200);

/// Empty polls before a ramped lane starts to yield.
const SPINS: u32 = 2_000;
/// Empty polls before it starts to sleep.
const YIELDS: u32 = 2_200;
/// The first sleep; each later one is as long again.
const SLEEP_STEP: Duration = Duration::from_micros(2);

/// Counts empty polls and rests accordingly.
#[derive(Debug)]
pub(crate) struct Idle {
    policy: IdlePolicy,
    empty_polls: u32,
}

impl Idle {
    pub(crate) const fn new(policy: IdlePolicy) -> Self {
        Self { policy, empty_polls: 0 }
    }

    pub(crate) const fn worked(&mut self) {
        self.empty_polls = 0;
    }

    pub(crate) fn wait(&mut self) {
        self.empty_polls = self.empty_polls.saturating_add(1);
        match self.policy {
            IdlePolicy::Spin => relax(),
            IdlePolicy::Ramp if self.empty_polls < SPINS => relax(),
            IdlePolicy::Ramp if self.empty_polls < YIELDS => std::thread::yield_now(),
            IdlePolicy::Ramp => {
                let steps = self.empty_polls - YIELDS + 1;
                std::thread::sleep((SLEEP_STEP * steps.min(1_000)).min(LONGEST_SLEEP));
            }
        }
    }
}
