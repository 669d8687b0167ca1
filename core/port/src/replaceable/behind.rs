//! What may stand behind a queue that can be replaced, other than a driver's.

use warmlane_counters::{Source, drop_reasons};
use warmlane_mem::Burst;

use crate::queue::{QueueCounters, QueueCountersView, QueueStatus, ReceiveQueue, TransmitQueue};
use crate::watched::CountDropped as _;

drop_reasons! {
    /// Why packets don't leave where no interface is.
    pub enum VacancyDrop {
        /// The packet was on its way to an interface that isn't there any more.
        Vacant: "interface-left", Loss;
    }
}

/// A queue of an interface that isn't there.
#[derive(Default)]
pub(super) struct Vacancy {
    counters: QueueCounters<VacancyDrop>,
}

impl ReceiveQueue for Vacancy {
    fn receive(&mut self, _burst: &mut Burst) -> usize {
        0
    }

    fn status(&self) -> QueueStatus {
        QueueStatus::Vacant
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view()
    }
}

impl TransmitQueue for Vacancy {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let count = burst.len();
        self.counters.drops().count_packets(VacancyDrop::Vacant, burst);
        burst.clear();
        count
    }

    fn status(&self) -> QueueStatus {
        QueueStatus::Vacant
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view()
    }
}

/// Several queues of one interface, each of which is asked first in turn.
pub(super) struct Several {
    queues: Vec<Box<dyn ReceiveQueue>>,
    first: usize,
}

impl Several {
    /// These, or the one that it is.
    pub(super) fn of(mut queues: Vec<Box<dyn ReceiveQueue>>) -> Box<dyn ReceiveQueue> {
        if queues.len() == 1 { queues.remove(0) } else { Box::new(Self { queues, first: 0 }) }
    }
}

impl ReceiveQueue for Several {
    #[inline]
    fn receive(&mut self, burst: &mut Burst) -> usize {
        self.first = if self.first + 1 < self.queues.len() { self.first + 1 } else { 0 };
        let (late, early) = self.queues.split_at_mut(self.first);
        let mut count = 0;
        for queue in early.iter_mut().chain(late) {
            if burst.space() == 0 {
                break;
            }
            count += queue.receive(burst);
        }
        count
    }

    fn status(&self) -> QueueStatus {
        let all = self.queues.iter().map(|queue| queue.status());
        let mut others = all.filter(|status| *status != QueueStatus::Running);
        others.next().unwrap_or(QueueStatus::Running)
    }

    fn counters(&self) -> QueueCountersView {
        // Who looks at them all has those of the port.
        self.queues.first().map_or_else(|| Vacancy::default().counters.view(), |queue| queue.counters())
    }

    fn own_counters(&self) -> Vec<Box<dyn Source>> {
        self.queues.iter().flat_map(|queue| queue.own_counters()).collect()
    }
}
