//! A receive queue that loses, repeats, holds back and damages chosen packets of another one: a network that misbehaves
//! in a known way, to see whether a measurement finds out.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use warmlane_counters::drop_reasons;
use warmlane_mem::{Burst, Packet, Pool};

use crate::queue::{QueueCounters, QueueCountersView, QueueStatus, ReceiveQueue};
use crate::watched::CountDropped as _;

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does not arrive.
    Drop,
    /// It arrives twice, one right after the other.
    Duplicate,
    /// It arrives behind the next this many packets.
    HoldPackets(u32),
    /// It arrives this many cycles of the cycle counter later.
    HoldCycles(u64),
    /// The byte at this offset (from the end if negative) is exclusive-ored; one outside the packet is left alone.
    Corrupt {
        /// Where.
        offset: i32,
        /// With what.
        with: u8,
    },
}

/// The faults of a queue: numbers of packets, counted from 0 as they come, and what happens to each.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    faults: Vec<(u64, Fault)>,
}

drop_reasons! {
    /// Why a faulty queue drops.
    pub enum FaultDrop {
        /// The fault plan says that this packet is lost.
        Planned: "planned-fault", Notice;
        /// The pool had no buffer for a planned duplicate.
        NoBuffer: "no-buffer", Loss;
    }
}

impl FaultPlan {
    /// No faults.
    pub const fn new() -> Self {
        Self { faults: Vec::new() }
    }

    /// And this one. Of two for the same packet the first counts.
    #[must_use]
    pub fn with(mut self, packet: u64, fault: Fault) -> Self {
        let index = self.faults.partition_point(|(other, _)| *other <= packet);
        self.faults.insert(index, (packet, fault));
        self
    }

    /// Puts `queue` behind these faults. Duplicates are made in buffers of `pool`. What is held is freed with the queue.
    pub fn wrap(self, queue: Box<dyn ReceiveQueue>, pool: &Pool) -> Box<dyn ReceiveQueue> {
        // As many as can be held at once.
        let held = Vec::with_capacity(self.faults.len());
        Box::new(Faulty {
            queue,
            pool: pool.clone(),
            plan: self.faults,
            next_fault: 0,
            number: 0,
            intake: Burst::new(),
            ready: VecDeque::with_capacity(4 * warmlane_mem::BURST_CAPACITY),
            held,
            counters: QueueCounters::new(),
        })
    }
}

struct Faulty {
    queue: Box<dyn ReceiveQueue>,
    pool: Pool,
    plan: Vec<(u64, Fault)>,
    next_fault: usize,
    number: u64,
    intake: Burst,
    /// In the order in which they arrive.
    ready: VecDeque<Packet>,
    held: Vec<(Until, Packet)>,
    counters: QueueCounters<FaultDrop>,
}

/// When a held packet arrives.
#[derive(Clone, Copy)]
enum Until {
    /// As the packet of this number has arrived.
    Packet(u64),
    /// At this reading of the cycle counter.
    Cycles(u64),
}

impl Faulty {
    fn take_in(&mut self) {
        let mut intake = std::mem::take(&mut self.intake);
        self.queue.receive(&mut intake);
        for packet in intake.drain() {
            let number = self.number;
            self.number += 1;
            let fault = self.fault(number);
            self.apply(number, fault, packet);
            self.release(|until| matches!(until, Until::Packet(last) if last <= number));
        }
        self.intake = intake;
    }

    fn fault(&mut self, number: u64) -> Option<Fault> {
        let mut found = None;
        while let Some(&(packet, fault)) = self.plan.get(self.next_fault)
            && packet <= number
        {
            found = found.or(Some(fault));
            self.next_fault += 1;
        }
        found
    }

    fn apply(&mut self, number: u64, fault: Option<Fault>, mut packet: Packet) {
        match fault {
            None => self.ready.push_back(packet),
            Some(Fault::Drop) => self.counters.drops().count_packet(FaultDrop::Planned, &packet),
            Some(Fault::Duplicate) => {
                let copy = packet.copy_in(&self.pool);
                self.ready.push_back(packet);
                match copy {
                    Some(copy) => self.ready.push_back(copy),
                    None => self.counters.drops().count(FaultDrop::NoBuffer, 1),
                }
            }
            Some(Fault::HoldPackets(packets)) => {
                self.held.push((Until::Packet(number + u64::from(packets)), packet));
            }
            Some(Fault::HoldCycles(cycles)) => {
                let until = warmlane_sys::clock::cycles().saturating_add(cycles);
                self.held.push((Until::Cycles(until), packet));
            }
            Some(Fault::Corrupt { offset, with }) => {
                let length = i64::try_from(packet.len()).unwrap_or(i64::MAX);
                let position = i64::from(offset) + if offset < 0 { length } else { 0 };
                if let Some(byte) =
                    usize::try_from(position).ok().and_then(|position| packet.data_mut().get_mut(position))
                {
                    *byte ^= with;
                }
                self.ready.push_back(packet);
            }
        }
    }

    fn release(&mut self, is_over: impl Fn(Until) -> bool) {
        let mut index = 0;
        while let Some(&(until, _)) = self.held.get(index) {
            if is_over(until) {
                let (_, packet) = self.held.remove(index);
                self.ready.push_back(packet);
            } else {
                index += 1;
            }
        }
    }
}

impl ReceiveQueue for Faulty {
    fn receive(&mut self, burst: &mut Burst) -> usize {
        if self.ready.len() < warmlane_mem::BURST_CAPACITY {
            self.take_in();
        }
        if !self.held.is_empty() {
            let now = warmlane_sys::clock::cycles();
            self.release(|until| matches!(until, Until::Cycles(then) if then <= now));
        }
        let (mut count, mut bytes) = (0, 0);
        while burst.space() > 0
            && let Some(packet) = self.ready.pop_front()
        {
            bytes += packet.packet_length() as u64;
            count += 1;
            // There is space.
            let _ = burst.push(packet);
        }
        self.counters.count(count, bytes);
        count as usize
    }

    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        // Of what is here nobody would tell.
        if self.ready.is_empty() && self.held.is_empty() { self.queue.event() } else { None }
    }

    fn status(&self) -> QueueStatus {
        if self.ready.is_empty() && self.held.is_empty() { self.queue.status() } else { QueueStatus::Running }
    }

    fn counters(&self) -> QueueCountersView {
        self.counters.view().with_drops_of(&self.queue.counters())
    }

    crate::as_inner_queue!(leaves, has_passed_on, stop, own_counters);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_queue::{Numbers, NumbersDrop};
    use warmlane_mem::PoolConfig;

    #[test]
    fn each_fault_happens_to_its_packet() {
        let pool = Pool::new(&PoolConfig { buffers: 256, ..PoolConfig::default() }).unwrap();
        let plan = FaultPlan::new()
            .with(2, Fault::Drop)
            .with(4, Fault::Duplicate)
            .with(6, Fault::HoldPackets(3))
            .with(12, Fault::Corrupt { offset: -1, with: 0x80 })
            .with(14, Fault::HoldCycles(u64::MAX));
        let mut queue = plan.wrap(Box::new(Numbers::new(&pool, 16)), &pool);
        let mut burst = Burst::with_limit(3);
        let mut seen = Vec::new();
        while queue.receive(&mut burst) > 0 {
            seen.extend(burst.drain().map(|packet| packet.data()[0]));
        }
        assert_eq!(seen, [0, 1, 3, 4, 4, 5, 7, 8, 9, 6, 10, 11, 0x8c, 13, 15]);
        assert_eq!(queue.counters().packets(), 15);
        assert_eq!(queue.counters().drops().get(FaultDrop::Planned), 1);
        assert_eq!(queue.status(), QueueStatus::Running, "one is held forever");
        drop(queue);
        assert_eq!(pool.ledger().outstanding(), 0);
    }

    #[test]
    fn drops_of_the_queue_inside_are_shown_too() {
        let pool = Pool::new(&PoolConfig { buffers: 256, ..PoolConfig::default() }).unwrap();
        let plan = FaultPlan::new().with(1, Fault::Drop).with(4, Fault::HoldCycles(u64::MAX));
        let mut queue = plan.wrap(Box::new(Numbers::new(&pool, 5).losing(7)), &pool);
        assert!(queue.event().is_some());
        assert_eq!(queue.receive(&mut Burst::new()), 3);
        let counters = queue.counters();
        assert_eq!((counters.packets(), counters.drops().total()), (3, 8));
        assert_eq!(
            (counters.drops().get(FaultDrop::Planned), counters.drops().get(NumbersDrop::Lost)),
            (1, 7)
        );
        assert!(queue.event().is_none(), "one is held, and its time comes without a sign");
    }
}
