//! Queues that count the cycles their calls take, for the table of stages.

use warmlane_counters::counters;
use warmlane_mem::Burst;
use warmlane_port::{ReceiveQueue, TransmitQueue, as_inner_queue};
use warmlane_sys::clock;

counters! {
    /// What a queue's calls take that move packets.
    pub struct CallCounters => CallCountersView {
        /// Packets moved.
        packets: Note, "packets";
        /// Cycles of the time-stamp counter.
        cycles: Note, "cycles";
    }
}

/// A queue and its counters.
struct Metered<Q: ?Sized> {
    counters: CallCounters,
    queue: Box<Q>,
}

/// Counts the cycles of receiving.
pub(crate) fn receive(queue: Box<dyn ReceiveQueue>) -> (Box<dyn ReceiveQueue>, CallCountersView) {
    let metered = Metered { counters: CallCounters::new(), queue };
    let view = metered.counters.view();
    (Box::new(metered), view)
}

/// Counts the cycles of transmitting.
pub(crate) fn transmit(queue: Box<dyn TransmitQueue>) -> (Box<dyn TransmitQueue>, CallCountersView) {
    let metered = Metered { counters: CallCounters::new(), queue };
    let view = metered.counters.view();
    (Box::new(metered), view)
}

impl<Q: ?Sized> Metered<Q> {
    /// Makes a call that moves packets.
    #[inline]
    fn call(&mut self, call: impl FnOnce(&mut Q) -> usize) -> usize {
        let began = clock::cycles();
        let count = call(&mut self.queue);
        if count > 0 {
            self.counters.packets().add(count as u64);
            self.counters.cycles().add(clock::cycles().saturating_sub(began));
        }
        count
    }
}

impl ReceiveQueue for Metered<dyn ReceiveQueue> {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        self.call(|queue| queue.receive(burst))
    }

    as_inner_queue!(leaves, event, status, counters, own_counters);
}

impl TransmitQueue for Metered<dyn TransmitQueue> {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        self.call(|queue| queue.transmit(burst))
    }

    as_inner_queue!(offloads, offloads_change, is_holding, is_costly_to_call, is_lossless);
    as_inner_queue!(event, flush, status, counters, own_counters);
}
