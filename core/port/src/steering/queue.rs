//! The two sides of a steered queue: where packets come in, and where those come out that were steered elsewhere.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use warmlane_counters::drop_reasons;
use warmlane_mem::{BURST_CAPACITY, Burst, Packet, PacketReceiver, PacketSender};
use warmlane_wire::Flow;

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

/// Where packets go that are dropped: beyond all queues.
const DROP: u16 = u16::MAX;

/// What is found out about some packets.
struct Found {
    flows: [Option<(Flow, Option<usize>)>; GROUP],
    headers: [Headers; GROUP],
    rules: [u32; GROUP],
    /// The queues of all packets of a burst, or [`DROP`].
    ways: [u16; BURST_CAPACITY],
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
    found: Box<Found>,
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
            found: Box::new(Found {
                flows: [const { None }; GROUP],
                headers: [Headers::default(); GROUP],
                rules: [NO_RULE; GROUP],
                ways: [DROP; BURST_CAPACITY],
            }),
            hashing: Box::new(Hashing::new()),
            counters: QueueCounters::new(),
        }
    }

    /// Finds out where up to [`GROUP`] packets go, of which the first is number `at` of the burst, and marks them.
    #[inline]
    fn find_ways(&mut self, packets: &mut [Packet], at: usize) {
        let Found { flows, headers, rules, ways } = &mut *self.found;
        let ways = &mut ways[at..][..packets.len()];
        ways.fill(self.own);
        for (packet, flow) in packets.iter().zip(&mut *flows) {
            *flow = Flow::of_front(packet.data());
        }
        let has_rules = !self.classifier.is_empty();
        if has_rules {
            for ((packet, flow), headers) in packets.iter().zip(&*flows).zip(&mut *headers) {
                *headers = Headers::of(packet, flow.as_ref());
            }
            let count = packets.len().min(GROUP);
            self.classifier.classify(&headers[..count], rules);
        }
        for (((index, packet), flow), way) in packets.iter_mut().enumerate().zip(&*flows).zip(&mut *ways) {
            let action = if has_rules { self.classifier.action(rules[index]) } else { None };
            match action {
                Some(Action::Drop) => *way = DROP,
                Some(Action::Receive { queue, mark }) => {
                    if let Some(mark) = mark {
                        packet.set_mark(mark);
                    }
                    match (queue, flow) {
                        (Some(queue), _) => *way = queue,
                        (None, Some((flow, _))) if self.rss.is_some() => self.hashing.add(index, flow),
                        (None, _) => {}
                    }
                }
                None => {
                    if let (Some((flow, _)), true) = (flow, self.rss.is_some()) {
                        self.hashing.add(index, flow);
                    }
                }
            }
        }
        if let Some(rss) = &self.rss {
            self.hashing.finish(rss, |index, queue| ways[index] = queue);
        }
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
        for at in (0..intake.len()).step_by(GROUP) {
            let end = (at + GROUP).min(intake.len());
            self.find_ways(&mut intake[at..end], at);
        }
        let (mut count, mut bytes) = (0, 0);
        // There is space: no more came in than there was, and nothing waits elsewhere.
        for (packet, way) in intake.drain().zip(&self.found.ways) {
            match self.others.get_mut(usize::from(*way)) {
                Some(Some(other)) => drop(other.waiting.push(packet)),
                None if *way == DROP => self.counters.drops().count_packet(SteeringDrop::Rule, &packet),
                _ => {
                    count += 1;
                    bytes += packet.packet_length() as u64;
                    drop(burst.push(packet));
                }
            }
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
