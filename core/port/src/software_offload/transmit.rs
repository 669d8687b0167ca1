//! In front of a transmit queue that can't do what packets need.

use warmlane_mem::{BURST_CAPACITY, Burst, Packet};

use super::segments::Segments;
use super::{MAXIMUM_ATTEMPTS, SoftwareDrop, prepare};
use crate::offloads::TransmitOffloads;
use crate::queue::{QueueCounters, QueueCountersView, TransmitQueue};
use crate::watched::CountDropped as _;

/// Does what packets need and `queue` doesn't before they get there, as far as they may need it.
pub fn on_transmit(queue: Box<dyn TransmitQueue>, may_need: TransmitOffloads) -> Box<dyn TransmitQueue> {
    let missing = may_need.without(queue.offloads());
    if may_need.is_none() || missing.is_none() && !queue.offloads_change() {
        return queue;
    }
    Box::new(OnTransmit {
        queue,
        may_need,
        missing,
        ready: Box::new(Burst::with_limit(BURST_CAPACITY)),
        segments: None,
        fruitless: 0,
        counters: QueueCounters::new(),
    })
}

struct OnTransmit {
    queue: Box<dyn TransmitQueue>,
    /// What packets may need.
    may_need: TransmitOffloads,
    /// What is done here.
    missing: TransmitOffloads,
    /// What goes to the queue next, and then `segments`.
    ready: Box<Burst>,
    segments: Option<Segments>,
    /// How often in a row there was no buffer.
    fruitless: u32,
    counters: QueueCounters<SoftwareDrop>,
}

impl OnTransmit {
    /// Passes on what is held; says whether nothing is any more.
    fn push(&mut self) -> bool {
        loop {
            if !self.ready.is_empty() {
                self.queue.transmit(&mut self.ready);
            }
            if !self.ready.is_empty() {
                return false;
            }
            let Some(segments) = &mut self.segments else { return true };
            segments.make(&mut self.ready);
            let remaining = segments.remaining();
            if self.ready.is_empty() && remaining > 0 {
                // What was sent may be free by now.
                self.queue.flush();
                self.fruitless += 1;
                if self.fruitless < MAXIMUM_ATTEMPTS {
                    return false;
                }
                segments.drop_rest(self.counters.drops(), SoftwareDrop::NoBuffer);
                self.segments = None;
            } else if remaining == 0 {
                self.segments = None;
            }
            self.fruitless = 0;
        }
    }
}

impl TransmitQueue for OnTransmit {
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        if self.queue.offloads_change() {
            self.missing = self.may_need.without(self.queue.offloads());
        }
        while self.push() && !burst.is_empty() {
            let (missing, counters) = (&self.missing, &self.counters);
            let mut first = None;
            // Looked at already, in an earlier turn or call: whatever is done once is not left to do.
            if burst.iter().any(Packet::has_work_left) {
                let mut index = 0;
                burst.retain(|packet| {
                    match prepare(packet, missing) {
                        Ok(true) => first = first.or(Some(index)),
                        Ok(false) => {}
                        Err(reason) => {
                            counters.drops().count_packet(reason, packet);
                            return false;
                        }
                    }
                    index += 1;
                    true
                });
            }
            match first {
                None => {
                    self.queue.transmit(burst);
                    break;
                }
                Some(0) => match burst.take_first().map(Segments::new) {
                    Some(Ok(segments)) => self.segments = Some(segments),
                    Some(Err(packet)) => counters.drops().count_packet(SoftwareDrop::GsoUnknown, &packet),
                    None => {}
                },
                Some(count) => {
                    burst.move_front_to(count, &mut self.ready);
                }
            }
        }
        before - burst.len()
    }

    fn is_holding(&self) -> bool {
        !self.ready.is_empty() || self.segments.is_some() || self.queue.is_holding()
    }

    fn flush(&mut self) {
        self.push();
        self.queue.flush();
    }

    fn offloads(&self) -> TransmitOffloads {
        self.queue.offloads().or(self.may_need)
    }

    fn counters(&self) -> QueueCountersView {
        self.queue.counters().with_drops_of(&self.counters.view())
    }

    crate::as_inner_queue!(offloads_change, is_costly_to_call, is_lossless, event, status, own_counters);
}

impl Drop for OnTransmit {
    fn drop(&mut self) {
        self.push();
        self.counters.drops().count_packets(SoftwareDrop::Unsent, &self.ready);
        if let Some(segments) = &self.segments {
            segments.drop_rest(self.counters.drops(), SoftwareDrop::Unsent);
        }
    }
}
