//! For tests: a queue of packets that are numbered in their first byte.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;

use warmlane_counters::drop_reasons;
use warmlane_mem::{Burst, Pool};

use crate::queue::{QueueCounters, QueueCountersView, QueueStatus, ReceiveQueue};

drop_reasons! {
    /// Why numbers get lost.
    pub(crate) enum NumbersDrop {
        /// The number got lost before it was received.
        Lost: "lost", Loss;
    }
}

pub(crate) struct Numbers {
    pool: Pool,
    next: u8,
    end: u8,
    counters: QueueCounters<NumbersDrop>,
    event: UnixStream,
}

impl Numbers {
    pub(crate) fn new(pool: &Pool, end: u8) -> Self {
        Self {
            pool: pool.clone(),
            next: 0,
            end,
            counters: QueueCounters::new(),
            event: UnixStream::pair().unwrap().0,
        }
    }
}

impl Numbers {
    /// Counts numbers that got lost.
    pub(crate) fn losing(self, count: u64) -> Self {
        self.counters.drops().count(NumbersDrop::Lost, count);
        self
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
        let count = burst.len() - before;
        self.counters.packets().add(count as u64);
        count
    }

    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }

    fn status(&self) -> QueueStatus {
        if self.next == self.end { QueueStatus::Finished } else { QueueStatus::Running }
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view()
    }
}
