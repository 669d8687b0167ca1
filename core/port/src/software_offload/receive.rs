//! Behind a receive queue that brings what the stages behind it can't deal with.

use std::os::fd::BorrowedFd;

use warmlane_mem::{BURST_CAPACITY, Burst};

use super::segments::Segments;
use super::{MAXIMUM_ATTEMPTS, SoftwareDrop, prepare};
use crate::offloads::TransmitOffloads;
use crate::queue::{QueueCounters, QueueCountersView, QueueStatus, ReceiveQueue};
use crate::watched::CountDropped as _;

/// Does what packets of `queue` may need and is in `unwanted`.
pub fn on_receive(queue: Box<dyn ReceiveQueue>, unwanted: TransmitOffloads) -> Box<dyn ReceiveQueue> {
    let unwanted = unwanted.and(queue.leaves());
    if unwanted.is_none() {
        return queue;
    }
    let intake = Box::new(Burst::with_limit(BURST_CAPACITY));
    Box::new(OnReceive {
        queue,
        unwanted,
        intake,
        segments: None,
        fruitless: 0,
        counters: QueueCounters::new(),
    })
}

struct OnReceive {
    queue: Box<dyn ReceiveQueue>,
    /// What is done here.
    unwanted: TransmitOffloads,
    /// What was received and not passed on yet: behind the segments.
    intake: Box<Burst>,
    segments: Option<Segments>,
    /// How often in a row there was no buffer.
    fruitless: u32,
    counters: QueueCounters<SoftwareDrop>,
}

impl OnReceive {
    /// Passes on segments; says whether there are none left.
    fn pass_segments(&mut self, burst: &mut Burst) -> bool {
        let Some(segments) = &mut self.segments else { return true };
        let (before, had_space) = (segments.remaining(), burst.space() > 0);
        segments.make(burst);
        let remaining = segments.remaining();
        self.fruitless = if had_space && remaining == before { self.fruitless + 1 } else { 0 };
        if self.fruitless == MAXIMUM_ATTEMPTS {
            segments.drop_rest(self.counters.drops(), SoftwareDrop::NoBuffer);
        }
        let is_done = remaining == 0 || self.fruitless == MAXIMUM_ATTEMPTS;
        if is_done {
            (self.segments, self.fruitless) = (None, 0);
        }
        is_done
    }
}

impl ReceiveQueue for OnReceive {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        let mut has_asked = false;
        while self.pass_segments(burst) && burst.space() > 0 {
            if self.intake.is_empty() {
                if has_asked {
                    break;
                }
                has_asked = true;
                *self.intake = Burst::with_limit(burst.space());
                self.queue.receive(&mut self.intake);
            }
            let (unwanted, counters) = (&self.unwanted, &self.counters);
            while burst.space() > 0
                && let Some(mut packet) = self.intake.take_first()
            {
                match prepare(&mut packet, unwanted) {
                    // There is space.
                    Ok(false) => drop(burst.push(packet)),
                    Ok(true) => {
                        match Segments::new(packet) {
                            Ok(segments) => self.segments = Some(segments),
                            Err(packet) => counters.drops().count_packet(SoftwareDrop::GsoUnknown, &packet),
                        }
                        break;
                    }
                    Err(reason) => counters.drops().count_packet(reason, &packet),
                }
            }
        }
        burst.len() - before
    }

    fn leaves(&self) -> TransmitOffloads {
        self.queue.leaves().without(self.unwanted)
    }

    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        // Of what is here nobody would tell.
        if self.segments.is_none() && self.intake.is_empty() { self.queue.event() } else { None }
    }

    fn status(&self) -> QueueStatus {
        if self.segments.is_none() && self.intake.is_empty() {
            self.queue.status()
        } else {
            QueueStatus::Running
        }
    }

    fn counters(&self) -> QueueCountersView {
        self.queue.counters().with_drops_of(&self.counters.view())
    }

    crate::as_inner_queue!(has_passed_on, stop, own_counters);
}
