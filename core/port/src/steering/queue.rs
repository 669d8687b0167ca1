//! The two sides of a steered queue: where packets come in, and where those come out that were steered elsewhere.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use warmlane_counters::drop_reasons;
use warmlane_mem::{BURST_CAPACITY, Burst, Packet, PacketReceiver, PacketSender};

use super::classifier::{Classifier, GROUP, NO_RULE};
use super::headers::Headers;
use super::rss::{Hashing, Rss};
use super::rule::Action;
use crate::offloads::TransmitOffloads;
use crate::queue::{QueueCounters, QueueCountersView, QueueStatus, ReceiveQueue};
use crate::watched::CountDropped as _;

drop_reasons! {
    /// Why a packet was dropped on its way to the queue that it was steered to.
    pub enum SteeringDrop {
        /// A rule of the port says so.
        Rule: "rule", Notice;
        /// The lane that it was steered to had ended, or this one did first.
        LaneEnded: "lane-ended", Loss;
    }
}

/// Where a packet goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Here,
    To(u16),
    Drop,
}

/// The way to another queue.
struct Other {
    sender: PacketSender,
    /// What found no space there yet.
    waiting: Burst,
}

impl Other {
    /// Passes on what waits. Says whether that is all of it.
    fn send(&mut self, counters: &QueueCounters<SteeringDrop>) -> bool {
        if self.waiting.is_empty() {
            return true;
        }
        self.sender.send(&mut self.waiting);
        if self.sender.is_disconnected() {
            drop_all(&mut self.waiting, counters);
        }
        self.waiting.is_empty()
    }
}

fn drop_all(burst: &mut Burst, counters: &QueueCounters<SteeringDrop>) {
    for packet in burst.drain() {
        counters.drops().count_packet(SteeringDrop::LaneEnded, &packet);
    }
}

/// In front of a queue: keeps what is for its own lane, and passes the rest on. While another lane has no space, nothing is received:
/// what waits then waits in the device, as if all its queues were full.
pub(super) struct Steered {
    queue: Box<dyn ReceiveQueue>,
    classifier: Arc<Classifier>,
    rss: Option<Arc<Rss>>,
    own: u16,
    /// By queue; `None` for this one.
    others: Box<[Option<Other>]>,
    is_waiting: bool,
    intake: Box<Burst>,
    hashing: Box<Hashing>,
    counters: QueueCounters<SteeringDrop>,
}

impl Steered {
    pub(super) fn new(
        queue: Box<dyn ReceiveQueue>,
        classifier: Arc<Classifier>,
        rss: Option<Arc<Rss>>,
        own: u16,
        senders: Vec<Option<PacketSender>>,
    ) -> Self {
        let other = |sender| Other { sender, waiting: Burst::with_limit(BURST_CAPACITY) };
        Self {
            queue,
            classifier,
            rss,
            own,
            others: senders.into_iter().map(|sender| sender.map(other)).collect(),
            is_waiting: false,
            intake: Box::new(Burst::with_limit(BURST_CAPACITY)),
            hashing: Box::new(Hashing::new()),
            counters: QueueCounters::new(),
        }
    }

    /// Finds out where up to [`GROUP`] packets go, and marks them.
    fn find_ways(&mut self, packets: &mut [Packet]) -> [Way; GROUP] {
        let (mut headers, mut found) = ([Headers::default(); GROUP], [NO_RULE; GROUP]);
        let mut flows = [const { None }; GROUP];
        for ((packet, headers), flow) in packets.iter().zip(&mut headers).zip(&mut flows) {
            (*headers, *flow) = Headers::of(packet);
        }
        if !self.classifier.is_empty() {
            self.classifier.classify(&headers[..packets.len().min(GROUP)], &mut found);
        }
        let mut ways = [Way::Here; GROUP];
        for (index, packet) in packets.iter_mut().enumerate().take(GROUP) {
            let queue = match self.classifier.action(found[index]) {
                Some(Action::Drop) => {
                    ways[index] = Way::Drop;
                    continue;
                }
                Some(Action::Receive { queue, mark }) => {
                    if let Some(mark) = mark {
                        packet.set_mark(mark);
                    }
                    queue
                }
                None => None,
            };
            match (queue, flows[index]) {
                (Some(queue), _) if queue == self.own => {}
                (Some(queue), _) => ways[index] = Way::To(queue),
                (None, Some(flow)) if self.rss.is_some() => self.hashing.add(index, &flow),
                (None, _) => {}
            }
        }
        if let Some(rss) = &self.rss {
            self.hashing.finish(rss, |index, queue| {
                if queue != self.own {
                    ways[index] = Way::To(queue);
                }
            });
        }
        ways
    }

    fn pass_on_waiting(&mut self) -> bool {
        let counters = &self.counters;
        // All are asked, and not only until one has no space.
        let full = self.others.iter_mut().flatten().filter_map(|other| (!other.send(counters)).then_some(()));
        self.is_waiting = full.count() > 0;
        !self.is_waiting
    }
}

impl ReceiveQueue for Steered {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        if burst.space() == 0 || self.is_waiting && !self.pass_on_waiting() {
            return 0;
        }
        let mut intake = std::mem::take(&mut self.intake);
        *intake = Burst::with_limit(burst.space());
        self.queue.receive(&mut intake);
        let (mut count, mut bytes) = (0, 0);
        let mut at = 0;
        let mut ways = [Way::Here; BURST_CAPACITY];
        while at < intake.len() {
            let end = (at + GROUP).min(intake.len());
            ways[at..end].copy_from_slice(&self.find_ways(&mut intake[at..end])[..end - at]);
            at = end;
        }
        for (packet, way) in intake.drain().zip(ways) {
            let other = match way {
                Way::Here => None,
                Way::To(queue) => self.others.get_mut(usize::from(queue)).and_then(Option::as_mut),
                Way::Drop => {
                    self.counters.drops().count_packet(SteeringDrop::Rule, &packet);
                    continue;
                }
            };
            if other.is_none() {
                count += 1;
                bytes += packet.packet_length() as u64;
            }
            // There is space: no more came in than there was, and nothing waits elsewhere.
            let _ = other.map_or(&mut *burst, |other| &mut other.waiting).push(packet);
        }
        self.intake = intake;
        self.pass_on_waiting();
        self.counters.count(count, bytes);
        count as usize
    }

    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        // Nobody would tell of space in another lane.
        if self.is_waiting { None } else { self.queue.event() }
    }

    fn status(&self) -> QueueStatus {
        if self.is_waiting { QueueStatus::Running } else { self.queue.status() }
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view().with_drops_of(&self.queue.counters())
    }

    crate::as_inner_queue!(leaves, own_counters);
}

impl Drop for Steered {
    fn drop(&mut self) {
        for other in self.others.iter_mut().flatten() {
            other.send(&self.counters);
            drop_all(&mut other.waiting, &self.counters);
            // What was sent when the other lane had ended nobody received.
            if other.sender.is_disconnected() {
                let counts = other.sender.counters();
                let lost = counts.sent.get().saturating_sub(counts.received.get());
                self.counters.drops().count(SteeringDrop::LaneEnded, lost);
            }
        }
    }
}

/// What the queues of other lanes received for this one.
pub(super) struct FromOther {
    receiver: PacketReceiver,
    /// As those queues leave them.
    leaves: TransmitOffloads,
    counters: QueueCounters<SteeringDrop>,
}

impl FromOther {
    pub(super) fn new(receiver: PacketReceiver, leaves: TransmitOffloads) -> Self {
        Self { receiver, leaves, counters: QueueCounters::new() }
    }
}

impl ReceiveQueue for FromOther {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let before = burst.bytes();
        let count = self.receiver.receive(burst);
        if count > 0 {
            self.counters.count(count as u64, burst.bytes() - before);
        }
        count
    }

    fn leaves(&self) -> TransmitOffloads {
        self.leaves
    }

    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        self.receiver.event()
    }

    fn status(&self) -> QueueStatus {
        if self.receiver.is_finished() { QueueStatus::Finished } else { QueueStatus::Running }
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view()
    }
}

impl Drop for FromOther {
    fn drop(&mut self) {
        let mut burst = Burst::with_limit(BURST_CAPACITY);
        while self.receiver.receive(&mut burst) > 0 {
            drop_all(&mut burst, &self.counters);
        }
    }
}
