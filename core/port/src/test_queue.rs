//! For tests: a queue of packets that are numbered in their first byte.

use std::sync::Arc;
use warmlane_mem::{Burst, Pool};

use crate::queue::{QueueCounters, QueueStatus, ReceiveQueue};

pub(crate) struct Numbers {
    pool: Pool,
    next: u8,
    end: u8,
    counters: Arc<QueueCounters>,
}

impl Numbers {
    pub(crate) fn new(pool: &Pool, end: u8) -> Self {
        Self { pool: pool.clone(), next: 0, end, counters: QueueCounters::new(&[]) }
    }
}

impl ReceiveQueue for Numbers {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        self.pool.take_burst(burst, usize::from(self.end - self.next).min(5));
        for packet in &mut burst[before..] {
            packet.fill(&[self.next]).unwrap();
            self.next += 1;
        }
        burst.len() - before
    }

    fn status(&self) -> QueueStatus {
        if self.next == self.end { QueueStatus::Finished } else { QueueStatus::Running }
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}
