//! The driver on a card that is played by a program.

mod long;
mod setup;

use super::chip::{Chip, Setup};
use super::counters::{CardCounters, collect};
use super::descriptor::Received;
use super::memory::RingMemory;
use super::model::{ADDRESS, Model, START, State};
use super::port::Watch;
use super::receive::{CardReceive, ReceiveRing};
use super::registers::{
    AddressHigh, BusControl, BusControl2, Control, CrcErrors, ExtendedControl, GROUPS, InterruptCause,
    InterruptVectors, ReceiveBaseHigh, ReceiveControl, ReceiveLength, ReceiveReports, ReceiveTail, Register,
    TransmitArbitration, TransmitBaseLow, TransmitControl, TransmitLength, TransmitTail, Typed, phy,
};
use super::rings::{Broken, PortEnd, Rings};
use super::transmit::{CardTransmit, OFFLOADS, TransmitRing};
use crate::vfio::Registers as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warmlane_driver_common::peer::Event;
use warmlane_mem::{Burst, Checksum, Packet, Pool, PoolConfig, Vlan, VlanTci};
use warmlane_port::{ReceiveQueue as _, TransmitQueue as _};
use warmlane_testkit::exchange::contents;
use warmlane_testkit::queues::ShownDrops;

const SETUP: Setup = Setup { is_jumbo: true, is_promiscuous: false, looks_at_checksums: true };

/// Bytes of the longest frame here.
const LONGEST: usize = 9230;

fn chip(model: &Model) -> Chip<Model> {
    Chip { registers: Typed(model.clone()) }
}

fn memory(model: &Model, size: u16) -> Arc<RingMemory> {
    let memory = Arc::new(RingMemory::new("test", size, |_| Ok(START)).unwrap());
    model.give(&memory);
    memory
}

/// A card, and the queues of a port on it.
struct Lab {
    model: Model,
    pool: Pool,
    rings: Arc<Rings<Model>>,
    receive: CardReceive<Model>,
    transmit: CardTransmit<Model>,
    counters: CardCounters,
}

impl Lab {
    fn new(size: u16) -> Self {
        Self::with_pool(size, &PoolConfig { buffers: 2048, ..PoolConfig::default() })
    }

    fn with_pool(size: u16, pool: &PoolConfig) -> Self {
        let (model, pool) = (Model::new(), Pool::new(pool).unwrap());
        let rings = Arc::new(Rings::new(Event::new().unwrap()).unwrap());
        let (counters, end): (_, PortEnd) = (CardCounters::new(), Arc::new(()));
        let receive = CardReceive::new(Arc::clone(&rings), pool.region(), counters.view(), Arc::clone(&end));
        let transmit = CardTransmit::new(Arc::clone(&rings), LONGEST, OFFLOADS, end);
        let lab = Self { model, pool, rings, receive, transmit, counters };
        lab.start(size);
        lab
    }

    /// As the port's thread does.
    fn start(&self, size: u16) {
        let (chip, memory) = (chip(&self.model), memory(&self.model, size));
        chip.reset().unwrap();
        chip.start(&memory, SETUP).unwrap();
        let registers = || chip.registers.clone();
        let transmit = TransmitRing::new(&memory, registers(), true);
        self.rings.start(ReceiveRing::new(&memory, registers()), transmit);
    }

    /// All that has come.
    fn take(&mut self) -> Vec<Packet> {
        let mut all = Vec::new();
        loop {
            let mut burst = Burst::new();
            if self.receive.receive(&mut burst) == 0 {
                return all;
            }
            all.extend(burst.drain());
        }
    }

    /// Sends frames of these lengths. Says how many were taken.
    fn send(&mut self, first: usize, lengths: &[usize]) -> usize {
        let mut burst = Burst::new();
        for (number, &length) in lengths.iter().enumerate() {
            drop(burst.push(packet(&self.pool, &contents(first + number, length))));
        }
        self.transmit.transmit(&mut burst)
    }

    fn progress(&self) -> Option<u64> {
        self.rings.transmit.lock().as_mut().and_then(TransmitRing::progress)
    }

    fn dropped(&self, reason: &str) -> u64 {
        let counted = [self.receive.counters(), self.transmit.counters()];
        let all = counted.iter().flat_map(|view| view.drops().iter().collect::<Vec<_>>());
        all.filter(|(there, _)| there.name == reason).map(|(_, count)| count).sum()
    }
}

/// A packet with these contents, in as many buffers as it takes.
fn packet(pool: &Pool, data: &[u8]) -> Packet {
    let mut gather = warmlane_driver_common::Gather::new(pool).unwrap();
    gather.append(data).unwrap();
    gather.finish().unwrap()
}

fn bytes(packet: &Packet) -> Vec<u8> {
    packet.segment_data().flatten().copied().collect()
}

#[test]
fn frames_of_all_lengths_come_and_go_as_they_are_many_times_round_the_rings() {
    let mut lab = Lab::new(64);
    let lengths: Vec<usize> = (60..1515).step_by(11).chain([14, 1514, 1518, 2047, 2048]).collect();
    for (number, &length) in lengths.iter().cycle().take(2000).enumerate() {
        assert!(lab.model.deliver(&contents(number, length), 0));
        // Some in bursts, some alone.
        if number % 7 == 0 {
            for (place, packet) in lab.take().iter().enumerate() {
                let number = number - number.min(6) + place;
                assert_eq!(bytes(packet), contents(number, lengths[number % lengths.len()]), "{number}");
            }
        }
    }
    lab.take();
    let received = lab.receive.counters();
    assert_eq!((received.packets(), received.drops().total()), (2000, 0));
    assert_eq!(received.bytes(), lengths.iter().cycle().take(2000).sum::<usize>() as u64);
    let told = lab.model.state().tails[0];
    assert!((1..=2 + 2000 / 16).contains(&told), "told {told} times: 16 at a time, a quarter of the ring");
    for (number, lengths) in
        lengths.iter().copied().cycle().take(2000).collect::<Vec<_>>().chunks(40).enumerate()
    {
        assert_eq!(lab.send(number * 40, lengths), lengths.len());
    }
    let state = lab.model.state();
    assert_eq!((state.sent.len(), state.tails[1]), (2000, 1 + 50), "told once for each burst");
    for (number, frame) in state.sent.iter().enumerate() {
        assert_eq!(*frame, contents(number, lengths[number % lengths.len()]), "{number}");
    }
    drop(state);
    assert_eq!(lab.pool.ledger().outstanding(), 0);
}

#[test]
fn frames_in_several_buffers_are_whole() {
    // Also where the pool's buffers are smaller than the card's, and of another number.
    for data_size in [2048, 512] {
        let mut lab = Lab::with_pool(64, &PoolConfig { buffers: 2048, data_size, ..PoolConfig::default() });
        for (number, length) in
            [600, 2049, 4096, 4097, 9000, LONGEST, 60].into_iter().cycle().take(70).enumerate()
        {
            let frame = contents(number, length);
            assert!(lab.model.deliver(&frame, Received::TRANSPORT_SUMMED));
            let packets = lab.take();
            assert_eq!(packets.len(), 1, "{length}");
            assert_eq!(bytes(&packets[0]), frame);
            assert_eq!(packets[0].checksum(), Checksum::Good);
            assert_eq!(lab.send(number, &[length]), 1);
            assert_eq!(lab.model.state().sent.pop(), Some(frame));
        }
        assert_eq!(lab.pool.ledger().outstanding(), 0);
    }
}

#[test]
fn what_the_card_found_out_of_checksums_is_noted() {
    let mut lab = Lab::new(64);
    let wrong = Received::TRANSPORT_SUMMED | Received::TRANSPORT_WRONG;
    for status in [Received::TRANSPORT_SUMMED, wrong, 0] {
        assert!(lab.model.deliver(&contents(0, 100), status));
    }
    let found: Vec<_> = lab.take().iter().map(Packet::checksum).collect();
    assert_eq!(found, [Checksum::Good, Checksum::Unknown, Checksum::Unknown]);
}

#[test]
fn damaged_frames_and_those_too_short_are_dropped_and_counted() {
    let mut lab = Lab::new(64);
    let whole = contents(1, 60);
    for error in [24, 25, 26, 28, 31] {
        assert!(lab.model.deliver(&contents(0, 3000), 1 << error));
        assert!(lab.model.deliver(&contents(0, 60), 1 << error));
    }
    assert!(lab.model.deliver(&contents(0, 13), 0));
    assert!(lab.model.deliver(&whole, 0));
    let packets = lab.take();
    assert_eq!((packets.len(), bytes(&packets[0])), (1, whole));
    assert_eq!((lab.dropped("damaged"), lab.dropped("runt")), (10, 1));
}

#[test]
fn lengths_and_ends_that_cannot_be_break_the_ring() {
    let done = Received::DONE;
    for (reason, words) in [
        ("more bytes", &[done | Received::END | 2049 << 32][..]),
        ("more bytes", &[done | Received::END | 0xffff << 32][..]),
        ("more bytes", &[done | 2048 << 32, done | 0xffff << 32][..]),
        ("more buffers", &[done | 2048 << 32; 9][..]),
    ] {
        let mut lab = Lab::new(64);
        for (ahead, &word) in words.iter().enumerate() {
            lab.model.write_back(ahead as u32, word);
        }
        assert!(lab.take().is_empty());
        let Some(Broken(said)) = lab.rings.broken() else { panic!("{reason}: not broken") };
        assert!(said.contains(reason), "{said}");
        assert_eq!(rustix::io::read(lab.rings.alarm.fd(), &mut [0; 8]), Ok(8), "the thread is told");
        assert!(lab.rings.receive.lock().is_none(), "nobody uses it any more");
        // When the card was started anew, it goes on.
        lab.start(64);
        assert_eq!(lab.rings.broken(), None);
        assert!(lab.model.deliver(&contents(3, 77), 0));
        assert_eq!(lab.take().iter().map(bytes).collect::<Vec<_>>(), [contents(3, 77)]);
        assert_eq!(lab.pool.ledger().outstanding(), 0);
    }
}

#[test]
fn what_is_done_out_of_order_waits_for_what_is_before_it() {
    let mut lab = Lab::new(64);
    let whole = Received::DONE | Received::END | 60 << 32;
    lab.model.write_back(1, whole);
    assert!(lab.take().is_empty());
    // A first part without a second is none yet.
    lab.model.write_back(0, Received::DONE | 2048 << 32);
    lab.model.write_back(1, 0);
    lab.model.write_back(2, whole);
    assert!(lab.take().is_empty());
    lab.model.write_back(0, 0);
    assert!(lab.take().is_empty());
    for length in [100, 200] {
        assert!(lab.model.deliver(&contents(length, length), 0));
    }
    let lengths: Vec<_> = lab.take().iter().map(Packet::packet_length).collect();
    assert_eq!(lengths, [100, 200, 60], "in the order of the ring");
}

#[test]
fn what_the_card_does_not_have_is_not_looked_at() {
    let mut lab = Lab::new(64);
    // The last one is never the card's, and so are no more than 63.
    for ahead in 0..64 {
        lab.model.write_back(ahead, Received::DONE | Received::END | 60 << 32);
    }
    let mut burst = Burst::new();
    assert_eq!(lab.receive.receive(&mut burst), 63);
}

#[test]
fn a_card_without_buffers_loses_frames_and_says_how_many() {
    let mut lab = Lab::with_pool(64, &PoolConfig { buffers: 100, ..PoolConfig::default() });
    let delivered = (0..70).filter(|number| lab.model.deliver(&contents(*number, 60), 0)).count();
    assert_eq!(delivered, 63);
    lab.model.state().set(CrcErrors::new(3));
    for _ in 0..2 {
        collect(&chip(&lab.model).registers, &lab.counters);
    }
    let view = lab.counters.view();
    assert_eq!((view.missed(), view.crc_errors()), (7, 3), "once each");
    // What is gone counts nothing.
    lab.model.state().is_gone = true;
    collect(&chip(&lab.model).registers, &lab.counters);
    assert_eq!(view.missed(), 7);
    lab.model.state().is_gone = false;
    // Without buffers in the pool, frames wait in the card's.
    let kept: Vec<_> = std::iter::from_fn(|| lab.pool.take()).take(90).collect();
    let first = lab.take();
    assert_eq!(first.len(), 10);
    drop((kept, first));
    assert_eq!(lab.take().len(), 53);
    assert_eq!(lab.pool.ledger().outstanding(), 0);
}

#[test]
fn a_full_ring_takes_no_more_until_the_card_is_done() {
    let mut lab = Lab::new(64);
    lab.model.state().is_stuck = true;
    assert_eq!(lab.send(0, &[60; 40]), 40);
    assert_eq!(lab.send(40, &[60; 40]), 23, "one is left out");
    assert_eq!((lab.progress(), lab.send(63, &[60])), (Some(0), 0));
    assert_eq!(lab.progress(), Some(0), "it stays there");
    lab.model.loosen();
    assert_eq!(lab.progress(), None);
    assert_eq!(lab.send(63, &[60; 63]), 63);
    // A frame of several buffers has to fit in whole.
    lab.model.state().is_stuck = true;
    assert_eq!(lab.send(126, &[60; 61]), 61);
    assert_eq!(lab.send(187, &[4097]), 0);
    lab.model.loosen();
    assert_eq!(lab.send(187, &[4097]), 1);
    let state = lab.model.state();
    let frames: Vec<_> = (0..187).map(|number| contents(number, 60)).chain([contents(187, 4097)]).collect();
    assert_eq!(state.sent, frames);
}

#[test]
fn a_card_that_is_a_whole_turn_of_the_ring_further_is_not_stuck() {
    let (mut lab, mut watch, begin) = (Lab::new(64), Watch::default(), Instant::now());
    let mut look = |lab: &Lab, seconds| watch.is_stuck(lab.progress(), begin + Duration::from_secs(seconds));
    for turn in 0..3 {
        lab.model.state().is_stuck = true;
        assert_eq!(lab.send(0, &[60]), 1);
        assert!(!look(&lab, 6 * turn), "{turn}");
        assert_eq!(lab.progress(), Some(64 * turn));
        lab.model.loosen();
        assert_eq!(lab.send(1, &[60; 63]), 63);
    }
    lab.model.state().is_stuck = true;
    assert_eq!(lab.send(0, &[60]), 1);
    assert!(!look(&lab, 18) && look(&lab, 24), "now it is");
}

#[test]
fn frames_that_cannot_be_sent_are_dropped_and_counted() {
    let mut lab = Lab::new(64);
    let lengths = [60, 13, LONGEST + 1, LONGEST, 14];
    let (taken, shown) = ShownDrops::during(None, || lab.send(0, &lengths));
    assert_eq!(taken, 5);
    let shown: Vec<_> = shown.iter().map(|(reason, bytes, _)| (*reason, bytes.len())).collect();
    assert_eq!(shown, [("malformed", 13), ("too-large", LONGEST + 1)]);
    let lengths: Vec<_> = lab.model.state().sent.iter().map(Vec::len).collect();
    assert_eq!(lengths, [60, LONGEST, 14]);
    assert_eq!((lab.dropped("malformed"), lab.dropped("too-large")), (1, 1));
    assert_eq!(lab.transmit.counters().packets(), 3);
}

#[test]
fn checksums_that_are_left_to_the_card_are_completed() {
    let mut lab = Lab::new(64);
    let (tcp, udp) = ((34, 16), (34, 6));
    // The last is farther from the start than the card can count: software does it.
    let far = (250, 6);
    let order = [Some(tcp), None, Some(tcp), Some(udp), Some(udp), None, Some(tcp), Some(far)];
    let mut burst = Burst::new();
    // Also where the frame is in several buffers, and of an odd length.
    let frame = |number: usize| contents(number, 2001 + 99 * number);
    for (number, left) in order.into_iter().enumerate() {
        let mut packet = packet(&lab.pool, &frame(number));
        if let Some((start, offset)) = left {
            packet.set_checksum(Checksum::Partial { start, offset });
        }
        drop(burst.push(packet));
    }
    let mut more = |change: fn(&mut Packet)| {
        let mut packet = packet(&lab.pool, &frame(0));
        change(&mut packet);
        drop(burst.push(packet));
    };
    more(|packet| packet.set_checksum(Checksum::Partial { start: 2000, offset: 6 }));
    more(|packet| packet.set_vlan(Vlan::Insert(VlanTci { control: 7, is_service: false })));
    assert_eq!((lab.transmit.transmit(&mut burst), lab.dropped("offload-not-done")), (10, 2));
    assert_eq!(lab.transmit.counters.software.view().checksums(), 1);
    let state = lab.model.state();
    assert_eq!((state.sent.len(), state.sums), (8, 3), "told when it is another one");
    for (number, (sent, left)) in state.sent.iter().zip(order).enumerate() {
        let mut expected = frame(number);
        if let Some((start, offset)) = left {
            // The sum over all from the start on, the field included, is that of the field before.
            let sum = warmlane_port::software_offload::partial_checksum(&{
                let mut packet = packet(&lab.pool, &expected);
                packet.set_checksum(Checksum::Partial { start, offset });
                packet
            });
            let (field, value) = sum.unwrap();
            expected[field..field + 2].copy_from_slice(&value.to_be_bytes());
        }
        assert_eq!(*sent, expected, "{number}");
    }
}

#[test]
fn while_the_link_flaps_what_is_to_be_sent_is_dropped_or_sent() {
    let mut lab = Lab::new(64);
    for round in 0..100 {
        let is_up = round % 2 == 0;
        lab.model.state().has_link = is_up;
        assert_eq!(chip(&lab.model).is_link_up(), is_up);
        lab.rings.set_link(chip(&lab.model).is_link_up());
        assert_eq!(lab.send(round, &[60; 3]), 3);
    }
    assert_eq!((lab.model.state().sent.len(), lab.dropped("not-connected")), (150, 150));
    // Without a card as well.
    lab.rings.stop();
    assert_eq!((lab.send(0, &[60; 3]), lab.dropped("not-connected")), (3, 153));
    assert!(lab.take().is_empty());
    assert_eq!(lab.pool.ledger().outstanding(), 0);
}

#[test]
fn an_idle_lane_is_woken_by_what_comes_and_by_nothing_else() {
    let mut lab = Lab::new(64);
    assert!(lab.model.deliver(&contents(0, 60), 0));
    assert_eq!(lab.take().len(), 1);
    assert!(lab.receive.event().is_some());
    assert_eq!(lab.model.state().interrupts, 0, "what was polled wakes nobody");
    assert!(lab.model.deliver(&contents(0, 60), 0));
    assert_eq!(lab.model.state().interrupts, 1);
    assert_eq!(lab.take().len(), 1);
    // A lane that polls is left alone.
    assert!(lab.model.deliver(&contents(0, 60), 0));
    assert_eq!(lab.model.state().interrupts, 1);
    assert!(lab.receive.event().is_none(), "something waits already");
    assert_eq!(lab.take().len(), 1);
    // One that sleeps has all descriptors in the card.
    assert!(lab.receive.event().is_some());
    assert_eq!(lab.model.get::<ReceiveTail>().bits(), (3 + 63) % 64);
    // If the card is started anew, it is woken to ask the new one.
    lab.rings.received.clear();
    lab.rings.stop();
    assert!(lab.receive.event().is_some());
    lab.start(64);
    assert_eq!(rustix::io::read(lab.rings.received.fd(), &mut [0; 8]), Ok(8));
}

#[test]
fn what_comes_while_a_lane_falls_asleep_wakes_it() {
    let mut lab = Lab::new(64);
    assert!(lab.model.deliver(&contents(0, 60), 0));
    assert_eq!(lab.take().len(), 1);
    // What is told to the card would come there behind the frame, if the lane did not wait for it.
    lab.model.state().is_far = true;
    assert!(lab.receive.event().is_some());
    assert!(lab.model.deliver(&contents(0, 60), 0));
    assert_eq!(lab.model.state().interrupts, 1);
}
