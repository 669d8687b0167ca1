//! The two sides of a steered queue: where packets come in, and where those come out that were steered elsewhere.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use warmlane_counters::{Entry, Source, counters, drop_reasons};
use warmlane_mem::{BURST_CAPACITY, Burst, PacketReceiver, PacketSender, bytes_of};
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

counters! {
    /// What one rule of a port did, for one queue.
    pub(super) struct RuleCounters => RuleCountersView {
        /// Packets that this rule was the first to fit.
        hits: Note, "packets";
    }
}

/// The counters of the rule with this number, from 1, as people count the rules of a port.
struct OfRule(usize, RuleCountersView);

impl Source for OfRule {
    fn read(&self, each: &mut dyn FnMut(Entry)) {
        self.1.read(each);
    }

    fn label(&self) -> Option<(&'static str, String)> {
        Some(("rule", self.0.to_string()))
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
    /// `Some` until the end.
    sender: Option<PacketSender>,
    /// What found no space there yet.
    waiting: Burst,
}

impl Other {
    /// Passes on what waits. Says whether that is all of it.
    fn send(&mut self, counters: &QueueCounters<SteeringDrop>) -> bool {
        if self.waiting.is_empty() {
            return true;
        }
        if let Some(sender) = self.sender.as_mut().filter(|sender| !sender.is_disconnected()) {
            sender.send(&mut self.waiting);
        } else {
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
    /// Nothing is received any more.
    is_stopped: bool,
    /// The last call of `receive` had packets, none of which was for this lane.
    has_passed_on: bool,
    intake: Burst,
    found: Box<Found>,
    hashing: Box<Hashing>,
    /// Of each rule.
    rules: Box<[RuleCounters]>,
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
        let other = |sender| Other { sender: Some(sender), waiting: Burst::with_limit(BURST_CAPACITY) };
        Self {
            rules: (0..classifier.rules()).map(|_| RuleCounters::new()).collect(),
            queue,
            classifier,
            rss,
            own,
            others: senders.into_iter().map(|sender| sender.map(other)).collect(),
            is_waiting: false,
            is_stopped: false,
            has_passed_on: false,
            intake: Burst::with_limit(BURST_CAPACITY),
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

    /// Finds out where up to [`GROUP`] packets of what was received go, from number `at` on, and marks them.
    #[inline]
    fn find_ways(&mut self, at: usize) {
        let end = (at + GROUP).min(self.intake.len());
        let packets = &mut self.intake[at..end];
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
            let rule = if has_rules { rules[index] } else { NO_RULE };
            if let Some(counters) = self.rules.get(rule as usize) {
                counters.hits().add(1);
            }
            match self.classifier.action(rule) {
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
        self.has_passed_on = false;
        if burst.space() == 0 || self.is_waiting && !self.pass_on_waiting() || self.is_stopped {
            return 0;
        }
        self.intake = Burst::with_limit(burst.space());
        if self.queue.receive(&mut self.intake) == 0 {
            return 0;
        }
        for at in (0..self.intake.len()).step_by(GROUP) {
            self.find_ways(at);
        }
        let (mut count, mut bytes) = (0, 0);
        // There is space: no more came in than there was, and nothing waits elsewhere.
        for (packet, way) in self.intake.drain().zip(&self.found.ways) {
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
        self.has_passed_on = count == 0;
        self.pass_on_waiting();
        self.counters.count(count, bytes);
        count as usize
    }

    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        // Nobody would tell of space in another lane.
        if self.is_waiting { None } else { self.queue.event() }
    }

    fn status(&self) -> QueueStatus {
        match (self.is_waiting, self.is_stopped) {
            (true, _) => QueueStatus::Running,
            (false, true) => QueueStatus::Finished,
            (false, false) => self.queue.status(),
        }
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view().with_drops_of(&self.queue.counters())
    }

    fn has_passed_on(&self) -> bool {
        self.has_passed_on
    }

    fn stop(&mut self) -> bool {
        self.is_stopped = true;
        self.is_waiting
    }

    crate::as_inner_queue!(leaves);

    fn own_counters(&self) -> Vec<Box<dyn Source>> {
        let of_rules = self.rules.iter().enumerate();
        let of_rules =
            of_rules.map(|(number, rule)| Box::new(OfRule(number + 1, rule.view())) as Box<dyn Source>);
        self.queue.own_counters().into_iter().chain(of_rules).collect()
    }
}

impl Drop for Steered {
    fn drop(&mut self) {
        for other in self.others.iter_mut().flatten() {
            other.send(&self.counters);
            drop_all(&mut other.waiting, &self.counters);
            let lost = other.sender.take().map_or(0, PacketSender::close);
            self.counters.drops().count(SteeringDrop::LaneEnded, lost as u64);
        }
    }
}

/// What the queues of other lanes received for this one.
pub(super) struct FromOther {
    /// `Some` until the end.
    receiver: Option<PacketReceiver>,
    /// As those queues leave them.
    leaves: TransmitOffloads,
    counters: QueueCounters<SteeringDrop>,
}

impl FromOther {
    pub(super) fn new(receiver: PacketReceiver, leaves: TransmitOffloads) -> Self {
        Self { receiver: Some(receiver), leaves, counters: QueueCounters::new() }
    }
}

impl ReceiveQueue for FromOther {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        let Some(receiver) = &mut self.receiver else { return 0 };
        let before = burst.len();
        let count = receiver.receive(burst);
        if count > 0 {
            self.counters.count(count as u64, bytes_of(&burst[before..]));
        }
        count
    }

    fn leaves(&self) -> TransmitOffloads {
        self.leaves
    }

    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        self.receiver.as_mut()?.event()
    }

    fn status(&self) -> QueueStatus {
        let is_finished = self.receiver.as_ref().is_none_or(PacketReceiver::is_finished);
        if is_finished { QueueStatus::Finished } else { QueueStatus::Running }
    }

    fn stop(&mut self) -> bool {
        true
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view()
    }
}

impl Drop for FromOther {
    fn drop(&mut self) {
        let lost = self.receiver.take().map_or(0, PacketReceiver::close);
        self.counters.drops().count(SteeringDrop::LaneEnded, lost as u64);
    }
}
