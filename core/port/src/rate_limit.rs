//! A receive queue that loses what exceeds a rate: a device of known capacity, to see whether a measurement finds it.

use std::sync::Arc;
use warmlane_mem::Burst;
use warmlane_sys::clock::{self, Clock};

use crate::queue::{QueueCounters, QueueStatus, ReceiveQueue};

crate::drop_reasons! {
    /// Why a limited queue drops.
    pub enum LimitDrop {
        /// The bucket is empty.
        Rate: "rate-limit", Notice, "the packet exceeds the rate and burst that this queue was given";
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
        counters: QueueCounters::new(LimitDrop::ALL),
    })
}

struct Limited {
    queue: Box<dyn ReceiveQueue>,
    per_cycle: f64,
    depth: f64,
    tokens: f64,
    last: u64,
    counters: Arc<QueueCounters>,
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
        burst.truncate(before + count);
        let bytes = burst[before..].iter().map(|packet| packet.packet_length() as u64).sum();
        self.counters.drops.count(LimitDrop::Rate.index(), (arrived - count) as u64);
        self.counters.packets.add(count as u64);
        self.counters.bytes.add(bytes);
        count
    }

    fn status(&self) -> QueueStatus {
        self.queue.status()
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_queue::Numbers;
    use warmlane_mem::{Pool, PoolConfig};

    #[test]
    fn the_burst_passes_and_the_rest_is_dropped() {
        let pool = Pool::new(&PoolConfig { buffers: 256, ..PoolConfig::default() }).unwrap();
        // One a day.
        let mut queue = wrap(Box::new(Numbers::new(&pool, 100)), 1.0 / 86_400.0, 10);
        let mut burst = Burst::new();
        let mut received = 0;
        while queue.status() == QueueStatus::Running {
            received += queue.receive(&mut burst);
            burst.clear();
        }
        assert_eq!((received, queue.counters().drops.total()), (10, 90));
    }

    #[test]
    fn a_high_rate_lets_all_through() {
        let pool = Pool::new(&PoolConfig { buffers: 256, ..PoolConfig::default() }).unwrap();
        let mut queue = wrap(Box::new(Numbers::new(&pool, 100)), 1e12, 100);
        let mut burst = Burst::new();
        let mut received = 0;
        while queue.status() == QueueStatus::Running {
            received += queue.receive(&mut burst);
            burst.clear();
        }
        assert_eq!((received, queue.counters().drops.total()), (100, 0));
    }
}
