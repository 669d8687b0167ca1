//! A receive queue that loses what exceeds a rate: a device of known capacity, to see whether a measurement finds it.

use warmlane_counters::drop_reasons;
use warmlane_mem::{Burst, bytes_of};
use warmlane_sys::clock::{self, Clock};

use crate::queue::{QueueCounters, QueueCountersView, ReceiveQueue};
use crate::watched::CountDropped as _;

drop_reasons! {
    /// Why a limited queue drops.
    pub enum LimitDrop {
        /// The packet exceeds the rate and burst that this queue was given.
        Rate: "rate-limit", Notice;
    }
}

/// Lets through `packets_per_second` of `queue` on average and `burst` at once (a token bucket that starts full), and
/// drops the rest.
pub fn wrap(queue: Box<dyn ReceiveQueue>, packets_per_second: f64, burst: u32) -> Box<dyn ReceiveQueue> {
    Box::new(Limited {
        queue,
        per_cycle: packets_per_second / Clock::calibrated().cycles_per_second() as f64,
        depth: f64::from(burst),
        tokens: f64::from(burst),
        last: clock::cycles(),
        counters: QueueCounters::new(),
    })
}

struct Limited {
    queue: Box<dyn ReceiveQueue>,
    per_cycle: f64,
    depth: f64,
    tokens: f64,
    last: u64,
    counters: QueueCounters<LimitDrop>,
}

impl ReceiveQueue for Limited {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let now = clock::cycles();
        let elapsed = now.saturating_sub(self.last);
        self.last = now;
        self.tokens = (self.tokens + elapsed as f64 * self.per_cycle).min(self.depth);
        let before = burst.len();
        let arrived = self.queue.receive(burst);
        #[expect(clippy::cast_sign_loss, reason = "tokens are not negative")]
        let count = arrived.min(self.tokens as usize);
        self.tokens -= count as f64;
        // What came first passes.
        self.counters.drops().count_packets(LimitDrop::Rate, &burst[before + count..]);
        burst.truncate(before + count);
        let bytes = bytes_of(&burst[before..]);
        self.counters.count(count as u64, bytes);
        count
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view().with_drops_of(&self.queue.counters())
    }

    crate::as_inner_queue!(leaves, event, status, has_passed_on, stop, own_counters);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::QueueStatus;
    use crate::test_queue::{Numbers, NumbersDrop};
    use warmlane_mem::{Pool, PoolConfig};

    fn passed_and_dropped(queue: &mut dyn ReceiveQueue) -> (usize, u64) {
        let (mut burst, mut received) = (Burst::new(), 0);
        while queue.status() == QueueStatus::Running {
            received += queue.receive(&mut burst);
            burst.clear();
        }
        (received, queue.counters().drops().total())
    }

    #[test]
    fn the_burst_passes_and_the_rest_is_dropped() {
        let pool = Pool::new(&PoolConfig { buffers: 256, ..PoolConfig::default() }).unwrap();
        // One a day.
        let mut queue = wrap(Box::new(Numbers::new(&pool, 100)), 1.0 / 86_400.0, 10);
        assert_eq!(passed_and_dropped(&mut *queue), (10, 90));
    }

    #[test]
    fn drops_of_the_queue_inside_are_shown_too() {
        let pool = Pool::new(&PoolConfig { buffers: 256, ..PoolConfig::default() }).unwrap();
        let mut queue = wrap(Box::new(Numbers::new(&pool, 5).losing(7)), 1.0 / 86_400.0, 3);
        let mut burst = Burst::new();
        assert_eq!(queue.receive(&mut burst), 3);
        let counters = queue.counters();
        assert_eq!((counters.packets(), counters.drops().total()), (3, 9));
        assert_eq!((counters.drops().get(LimitDrop::Rate), counters.drops().get(NumbersDrop::Lost)), (2, 7));
        assert!(queue.event().is_some());
    }

    #[test]
    fn a_high_rate_lets_all_through() {
        let pool = Pool::new(&PoolConfig { buffers: 256, ..PoolConfig::default() }).unwrap();
        let mut queue = wrap(Box::new(Numbers::new(&pool, 100)), 1e12, 100);
        assert_eq!(passed_and_dropped(&mut *queue), (100, 0));
    }
}
