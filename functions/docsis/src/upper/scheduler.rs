//! Which packet goes next, by which channel.
//!
//! A flow stands in the list of its group and class while it has packets and its buckets let them pass; otherwise it waits for the time at
//! which they will. Each channel takes from the highest class that one of its groups has: first what flows are
//! reserved at least, then by traffic priority (MULPI annex C.2.2.6.1). Flows of one class take turns of a few packets.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use warmlane_mem::Packet;

use super::bucket::Bucket;
use super::counters::{ChannelCounters, ChannelCountersView, FlowCounters, FlowCountersView};
use super::queues::Queues;
use super::reason::UpperDrop;
use crate::control::{LARGEST_FRAME, PEAK_BURST, ServiceGroup};
use crate::tag::Tag;
use warmlane_wire::docsis::PacketHeader;

/// Bytes of a CRC, which buckets count.
const CRC: usize = 4;

/// Classes: traffic priorities, and above them what is reserved.
const CLASSES: usize = 9;
const RESERVED: usize = 8;

/// Bytes that a flow sends in one turn, about.
const TURN: u32 = 6_088;

/// How long a channel may send at once what it has not sent before: a burst of its bucket.
const CHANNEL_BURST_MICROSECONDS: u64 = 1_000;

#[expect(
    clippy::struct_excessive_bools,
    reason = "four lists a flow may stand in, independent of each other"
)]
struct Flow {
    group: usize,
    class: usize,
    limit: u32,
    maximum: Option<Bucket>,
    peak: Option<Bucket>,
    reserved: Option<Bucket>,
    /// It stands in the list of its class.
    is_listed: bool,
    /// It stands in the list of what is reserved.
    is_listed_as_reserved: bool,
    /// It waits for the time at which its buckets let a packet pass.
    waits: bool,
    /// It waits for the time at which it is reserved something again.
    waits_for_reserved: bool,
    /// Bytes of the longest frame that its buckets ever let pass.
    longest: u32,
    sequence: u16,
    counters: FlowCounters,
}

impl Flow {
    /// Whether it is to stand in the list of what is reserved, and doesn't.
    #[inline]
    const fn lacks_reserved(&self) -> bool {
        self.reserved.is_some() && !self.is_listed_as_reserved && !self.waits_for_reserved
    }
}

struct Group {
    lists: [VecDeque<u32>; CLASSES],
    /// Which lists have flows.
    occupied: u16,
}

struct Channel {
    groups: Box<[usize]>,
    /// Where in `groups` it looks first.
    turn: usize,
    bucket: Bucket,
    counters: ChannelCounters,
}

/// The scheduler of a service group.
pub(crate) struct Scheduler {
    flows: Box<[Flow]>,
    groups: Box<[Group]>,
    channels: Box<[Channel]>,
    queues: Queues,
    /// Flows that wait, by the time they wait for, in cycles, and whether for what they are reserved.
    waiting: BinaryHeap<Reverse<(u64, u32, bool)>>,
    /// Cycles that a packet may wait.
    age: u64,
    /// The channel to begin with next.
    turn: usize,
}

impl Scheduler {
    pub(crate) fn new(group: &ServiceGroup, cycles_per_second: u64) -> Self {
        let flows: Box<[_]> = group
            .flows
            .iter()
            .map(|flow| {
                let bucket = |rate, burst| Bucket::new(rate, burst, cycles_per_second);
                Flow {
                    group: flow.group,
                    class: usize::from(flow.priority).min(RESERVED - 1),
                    limit: flow.queue,
                    maximum: flow.maximum_rate.map(|rate| bucket(rate, flow.maximum_burst)),
                    peak: flow.peak_rate.map(|rate| bucket(rate, PEAK_BURST)),
                    reserved: (flow.minimum_rate > 0).then(|| bucket(flow.minimum_rate, flow.maximum_burst)),
                    longest: flow.longest_frame(),
                    is_listed: false,
                    is_listed_as_reserved: false,
                    waits: false,
                    waits_for_reserved: false,
                    sequence: 0,
                    counters: FlowCounters::new(),
                }
            })
            .collect();
        let groups = group
            .groups
            .iter()
            .map(|_| Group {
                lists: std::array::from_fn(|_| VecDeque::with_capacity(flows.len())),
                occupied: 0,
            })
            .collect();
        let channels = group
            .channels
            .iter()
            .enumerate()
            .map(|(number, channel)| {
                let groups = group.groups.iter().enumerate();
                let groups =
                    groups.filter(|(_, group)| group.channels.contains(&number)).map(|(index, _)| index);
                let burst = channel.rate / 8 * CHANNEL_BURST_MICROSECONDS / 1_000_000;
                Channel {
                    groups: groups.collect(),
                    turn: 0,
                    bucket: Bucket::new(channel.rate, burst.max(2 * LARGEST_FRAME), cycles_per_second),
                    counters: ChannelCounters::new(),
                }
            })
            .collect();
        let age = u128::from(cycles_per_second) * group.limits.age.as_nanos() / 1_000_000_000;
        Self {
            // Each flow waits at most twice: for its buckets, and for what is reserved.
            waiting: BinaryHeap::with_capacity(2 * flows.len()),
            queues: Queues::new(flows.len(), group.limits.packets),
            flows,
            groups,
            channels,
            age: u64::try_from(age).unwrap_or(u64::MAX),
            turn: 0,
        }
    }

    pub(crate) fn flow_counters(&self) -> Vec<FlowCountersView> {
        self.flows.iter().map(|flow| flow.counters.view()).collect()
    }

    pub(crate) fn channel_counters(&self) -> Vec<ChannelCountersView> {
        self.channels.iter().map(|channel| channel.counters.view()).collect()
    }

    /// Packets that wait.
    pub(crate) const fn count(&self) -> usize {
        self.queues.count()
    }

    /// Why a flow wouldn't take a packet of so many bytes now.
    pub(crate) fn refuses(&self, number: u32, bytes: usize) -> Option<UpperDrop> {
        let flow = self.flows.get(number as usize)?;
        if bytes + CRC > flow.longest as usize {
            return Some(UpperDrop::TooLong);
        }
        let is_full = self.queues.len(number) >= flow.limit || self.queues.is_full();
        is_full.then_some(UpperDrop::QueueFull)
    }

    /// Packets that wait in a flow's queue, and that it holds at most.
    pub(crate) fn fill(&self, number: u32) -> (u32, u32) {
        (self.queues.len(number), self.flows.get(number as usize).map_or(0, |flow| flow.limit))
    }

    /// Queues a packet that came at the time `now`, in cycles.
    ///
    /// # Errors
    /// [`UpperDrop::QueueFull`], [`UpperDrop::TooLong`], with the packet.
    #[inline]
    pub(crate) fn push(&mut self, number: u32, packet: Packet, now: u64) -> Result<(), (UpperDrop, Packet)> {
        let Some(flow) = self.flows.get_mut(number as usize) else {
            return Err((UpperDrop::QueueFull, packet));
        };
        if packet.len() + CRC > flow.longest as usize {
            return Err((UpperDrop::TooLong, packet));
        }
        let is_full = self.queues.len(number) >= flow.limit;
        if let Err(packet) = if is_full { Err(packet) } else { self.queues.push(number, packet, now) } {
            flow.counters.tail_drops().add(1);
            return Err((UpperDrop::QueueFull, packet));
        }
        flow.counters.queued().add(1);
        // It may stand in the list of its class for long, and get only what it is reserved meanwhile.
        if !flow.waits && (!flow.is_listed || flow.lacks_reserved()) {
            self.list(number);
        }
        Ok(())
    }

    /// Puts a flow that has packets into the lists.
    #[inline]
    fn list(&mut self, number: u32) {
        let Some(flow) = self.flows.get_mut(number as usize) else { return };
        let Some(group) = self.groups.get_mut(flow.group) else { return };
        if !flow.is_listed {
            flow.is_listed = true;
            group.push(flow.class, number);
        }
        if flow.lacks_reserved() {
            flow.is_listed_as_reserved = true;
            group.push(RESERVED, number);
        }
    }

    /// Sends what may be sent at the time `now`, in cycles, as long as there is `space`, which `send` says it still has. It is given
    /// what has waited for too long, too, with the reason why that is dropped. `ignores_rates` sends what is left at the end.
    pub(crate) fn dispatch(
        &mut self,
        now: u64,
        ignores_rates: bool,
        mut send: impl FnMut(Result<Packet, (UpperDrop, Packet)>) -> bool,
    ) -> usize {
        self.wake(now, ignores_rates);
        let mut sent = 0;
        if self.queues.count() == 0 {
            return 0;
        }
        let count = self.channels.len();
        let (mut idle, mut turn) = (0, self.turn);
        while idle < count {
            let channel = turn % count;
            turn = channel + 1;
            match self.serve(channel, now, ignores_rates, &mut send, &mut sent) {
                Served::Nothing => idle += 1,
                Served::Some => idle = 0,
                Served::NoSpace => break,
            }
        }
        self.turn = turn;
        sent
    }

    /// Flows whose time has come stand in the lists again.
    #[inline]
    fn wake(&mut self, now: u64, all: bool) {
        while let Some(Reverse((time, number, for_reserved))) = self.waiting.peek().copied()
            && (time <= now || all)
        {
            self.waiting.pop();
            let Some(flow) = self.flows.get_mut(number as usize) else { continue };
            *(if for_reserved { &mut flow.waits_for_reserved } else { &mut flow.waits }) = false;
            if self.queues.len(number) > 0 && !flow.waits {
                self.list(number);
            }
        }
    }

    /// One turn of one flow on one channel.
    fn serve(
        &mut self,
        number: usize,
        now: u64,
        ignores_rates: bool,
        send: &mut impl FnMut(Result<Packet, (UpperDrop, Packet)>) -> bool,
        sent: &mut usize,
    ) -> Served {
        let Some(channel) = self.channels.get_mut(number) else { return Served::Nothing };
        if !ignores_rates && channel.bucket.ready_at(LARGEST_FRAME as u32, now) > now {
            return Served::Nothing;
        }
        let Some((group, class)) = channel.choose(&self.groups) else { return Served::Nothing };
        let Some(chosen) = self.groups[group].pop(class) else { return Served::Nothing };
        let flow = &mut self.flows[chosen as usize];
        let is_reserved = class == RESERVED;
        channel.counters.selected().add(1);
        flow.counters.selected().add(1);
        let mut left = TURN;
        let mut again = false;
        let mut result = Served::Some;
        while let Some((length, arrived)) = self.queues.front(chosen) {
            if now.saturating_sub(arrived) > self.age && !ignores_rates {
                let Some(packet) = self.queues.pop(chosen) else { break };
                flow.counters.age_drops().add(1);
                send(Err((UpperDrop::Aged, packet)));
                continue;
            }
            let bytes = (length + CRC) as u32;
            if !ignores_rates {
                if let Some(ready) =
                    flow.reserved.filter(|_| is_reserved).map(|bucket| bucket.ready_at(bytes, now))
                    && ready > now
                {
                    // It has had what it is reserved; more it gets by its priority.
                    flow.waits_for_reserved = true;
                    self.waiting.push(Reverse((ready, chosen, true)));
                    break;
                }
                let ready = [flow.maximum, flow.peak]
                    .into_iter()
                    .flatten()
                    .map(|bucket| bucket.ready_at(bytes, now))
                    .max();
                if let Some(ready) = ready.filter(|ready| *ready > now) {
                    if !flow.waits {
                        flow.waits = true;
                        self.waiting.push(Reverse((ready, chosen, false)));
                    }
                    break;
                }
            }
            if left == 0 || (!ignores_rates && channel.bucket.ready_at(LARGEST_FRAME as u32, now) > now) {
                again = true;
                break;
            }
            let Some(mut packet) = self.queues.pop(chosen) else { break };
            let tag = packet.application_mut::<Tag>();
            (tag.flow, tag.sequence, tag.channel) = (chosen, flow.sequence, number as u16);
            flow.sequence = flow.sequence.wrapping_add(1);
            // What a flow got by its priority is not held against what it is reserved: once others need the channel, it would get
            // nothing for as long as it had more.
            let reserved = flow.reserved.as_mut().filter(|_| is_reserved);
            for bucket in [flow.maximum.as_mut(), flow.peak.as_mut(), reserved].into_iter().flatten() {
                bucket.take(bytes, now);
            }
            let framed = bytes + PacketHeader::LONGEST as u32;
            channel.bucket.take(framed, now);
            channel.counters.packets().add(1);
            channel.counters.bytes().add(framed.into());
            flow.counters.sent().add(1);
            flow.counters.bytes().add(bytes.into());
            left = left.saturating_sub(bytes);
            *sent += 1;
            if !send(Ok(packet)) {
                again = true;
                result = Served::NoSpace;
                break;
            }
        }
        if again && self.queues.len(chosen) > 0 {
            self.groups[group].push(class, chosen);
        } else if is_reserved {
            flow.is_listed_as_reserved = false;
        } else {
            flow.is_listed = false;
        }
        result
    }
}

/// What came of a channel's turn.
enum Served {
    /// The channel is busy, or nobody wants it.
    Nothing,
    /// A flow was looked at.
    Some,
    /// There is no space for more.
    NoSpace,
}

impl Channel {
    /// The group with the highest class, and that class; groups of equal ones take turns.
    #[inline]
    fn choose(&mut self, groups: &[Group]) -> Option<(usize, usize)> {
        let count = self.groups.len();
        let mut best = None;
        for offset in 0..count {
            let index = (self.turn + offset) % count;
            let group = self.groups[index];
            if let Some(class) = groups[group].occupied.checked_ilog2()
                && best.is_none_or(|(_, _, highest)| class > highest)
            {
                best = Some((index, group, class));
            }
        }
        let (index, group, class) = best?;
        self.turn = index + 1;
        Some((group, class as usize))
    }
}

impl Group {
    #[inline]
    fn push(&mut self, class: usize, flow: u32) {
        self.lists[class].push_back(flow);
        self.occupied |= 1 << class;
    }

    #[inline]
    fn pop(&mut self, class: usize) -> Option<u32> {
        let flow = self.lists[class].pop_front();
        if self.lists[class].is_empty() {
            self.occupied &= !(1 << class);
        }
        flow
    }
}

#[cfg(test)]
mod tests;
