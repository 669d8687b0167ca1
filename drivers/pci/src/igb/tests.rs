//! Cards that are reset, set up and asked about themselves, and several queues.

use super::chip::Igb;
use super::registers::{
    HASH_IN_DESCRIPTOR, HashKey, InterruptCause, InterruptUnmask, LongestFrame, OtherVectors, QUEUES,
    QueueVectors, ReceiveBaseHigh, ReceiveBuffers, ReceiveDescriptors, ReceiveDropped, ReceiveLength,
    Redirection, SPREAD, TransmitDescriptors, TransmitLength, VectorAutoClear, VectorUnmask,
};
use crate::intel::chip::{Chip as _, Setup};
use crate::intel::model::lab::{Lab, SETUP, packet, take};
use crate::intel::model::{ADDRESS, Model, Played, State};
use crate::intel::registers::{
    ReceiveChecksums, ReceiveControl, ReceiveQueues, Register as _, TransmitControl, phy,
};
use std::collections::BTreeMap;
use warmlane_mem::{Burst, Packet, PoolConfig};
use warmlane_port::{ReceiveQueue as _, TransmitQueue as _};
use warmlane_testkit::exchange::contents;

fn model() -> (Model, Igb<Model>) {
    let model = Model::new(Igb::<Model>::KIND);
    let chip = Igb::new(model.clone());
    (model, chip)
}

#[test]
fn a_link_that_is_gone_with_the_reset_is_negotiated_anew() {
    let (model, chip) = model();
    let memories = model.memories(256, 1);
    chip.reset().unwrap();
    // As QEMU's loses it.
    model.state().has_negotiated = false;
    assert!(!chip.registers().is_link_up());
    chip.start(&memories, SETUP).unwrap();
    assert!(chip.registers().is_link_up());
}

#[test]
fn a_card_is_at_rest_before_it_is_reset_and_set_up_then() {
    let (model, chip) = model();
    {
        // As somebody else has left it.
        let mut state = model.state();
        state.set(ReceiveControl::ENABLE);
        state.set(TransmitControl::ENABLE);
        state.set_at(5, ReceiveDescriptors::ENABLE);
        state.phy[phy::CONTROL as usize] = phy::POWER_DOWN | 0x40;
    }
    let memories = model.memories(256, 1);
    chip.reset().unwrap();
    assert_eq!(model.state().at_reset, [(0, 0, false)], "nothing accessed memory any more");
    assert_eq!(chip.registers().address(), Some(ADDRESS));
    assert!(!model.get::<ReceiveDescriptors>().has(ReceiveDescriptors::ENABLE), "nor does the first queue");
    chip.start(&memories, Setup { is_promiscuous: true, ..SETUP }).unwrap();
    let expected = ReceiveControl::ENABLE
        | ReceiveControl::BROADCAST
        | ReceiveControl::ALL_GROUPS
        | ReceiveControl::ALL_STATIONS
        | ReceiveControl::LONG
        | ReceiveControl::STRIP_CRC;
    assert_eq!(model.get::<ReceiveControl>(), expected);
    assert_eq!(model.get::<LongestFrame>().bits(), 9234);
    assert_eq!(model.get::<ReceiveQueues>(), ReceiveQueues::ONE);
    assert_eq!(model.get::<ReceiveBuffers>().bits(), 1 << 25 | 2, "a single queue waits");
    assert_eq!((model.get::<ReceiveLength>().bits(), model.get::<TransmitLength>().bits()), (4096, 4096));
    assert_eq!(model.get::<QueueVectors>().bits(), 0x81);
    assert_eq!(model.get::<OtherVectors>().bits(), 0x8000);
    assert_eq!(model.get::<VectorAutoClear>().bits(), 0b11);
    assert_eq!((model.get::<InterruptUnmask>().bits(), model.get::<VectorUnmask>().bits()), (4, 1));
    assert_eq!(model.state().phy[0], phy::NEGOTIATE | phy::RESTART | 0x40, "it was asleep");
    assert!(chip.registers().is_running());
}

#[test]
fn several_queues_are_each_at_their_place_and_named_in_turn() {
    for queues in [2, 3, QUEUES] {
        let (model, chip) = model();
        let memories = model.memories(64, queues);
        chip.reset().unwrap();
        chip.start(&memories, SETUP).unwrap();
        let state = model.state();
        assert_eq!(state.get::<ReceiveQueues>().bits(), SPREAD);
        assert!(state.get::<ReceiveChecksums>().has(ReceiveChecksums::new(HASH_IN_DESCRIPTOR)));
        assert_eq!(state.get_at::<HashKey>(0).bits(), 0xda56_5a6d, "the first byte is the lowest");
        let entries = (0..32).flat_map(|number| state.get_at::<Redirection>(number).bits().to_le_bytes());
        assert!(entries.enumerate().all(|(number, queue)| usize::from(queue) == number % queues));
        for queue in 0..QUEUES {
            let is_used = queue < queues;
            let vector = state.get_at::<QueueVectors>(queue % 8).bits() >> (queue / 8 * 16) & 0xffff;
            assert_eq!(vector as usize, if is_used { 0x80 | (1 + queue) } else { 0 }, "of {queue}");
            let receives = state.get_at::<ReceiveDescriptors>(queue).has(ReceiveDescriptors::ENABLE);
            let sends = state.get_at::<TransmitDescriptors>(queue).has(TransmitDescriptors::ENABLE);
            assert_eq!((receives, sends), (is_used, is_used));
            let base = state.get_at::<ReceiveBaseHigh>(queue).bits() as usize;
            assert_eq!(base, if is_used { 1 + queue } else { 0 });
            assert_eq!(state.get_at::<ReceiveBuffers>(queue).has(ReceiveBuffers::DROP), is_used);
        }
    }
}

#[test]
fn cards_that_cannot_be_driven_are_refused_and_old_ones_that_do_not_speak_of_their_nvm_are_not() {
    let result = |change: fn(&mut State)| {
        let (model, chip) = model();
        change(&mut model.state());
        let memories = model.memories(64, 2);
        chip.reset().and_then(|()| chip.start(&memories, SETUP))
    };
    for (said, change) in [
        ("doesn't answer", (|state| state.is_gone = true) as fn(&mut State)),
        ("can't be reset", |state| state.never_resets = true),
        ("PHY doesn't answer", |state| state.has_dead_phy = true),
    ] {
        let error = result(change).unwrap_err();
        assert!(error.contains(said), "{said}: {error}");
    }
    result(|state| state.never_reads = true).unwrap();
}

#[test]
fn changes_interrupt_again_once_they_are_acknowledged() {
    let (model, chip) = model();
    let memories = model.memories(64, 1);
    chip.reset().unwrap();
    chip.start(&memories, SETUP).unwrap();
    let change = || model.state().change_link();
    change();
    change();
    assert_eq!(model.state().interrupts[..2], [1, 0]);
    chip.acknowledge_changes();
    assert_eq!(model.get::<InterruptCause>().bits(), 0);
    change();
    assert_eq!(model.state().interrupts[..2], [2, 0]);
}

fn bytes(packet: &Packet) -> Vec<u8> {
    packet.segment_data().flatten().copied().collect()
}

/// A packet of UDP of a flow.
fn frame(flow: u16, number: usize) -> Vec<u8> {
    let mut frame = contents(number, 60 + number % 1400);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[23] = 17;
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let [high, low] = flow.to_be_bytes();
    frame[34..38].copy_from_slice(&[high, low, 0, 53]);
    frame
}

fn lab(queues: usize) -> Lab<Igb<Model>> {
    Lab::with_queues(64, &PoolConfig { buffers: 4096, ..PoolConfig::default() }, queues)
}

impl Lab<Igb<Model>> {
    /// All that has come, by queues.
    fn take_all(&mut self) -> Vec<Vec<Packet>> {
        let first = take(&mut self.receive);
        std::iter::once(first).chain(self.others.iter_mut().map(|pair| take(&mut pair.receive))).collect()
    }
}

#[test]
fn flows_are_spread_over_queues_and_each_stays_in_its_own_in_order() {
    for queues in [2, 4, QUEUES] {
        let mut lab = lab(queues);
        let mut queue_of = BTreeMap::new();
        let mut counts = vec![0; queues];
        for round in 0..20 {
            let mut sent = BTreeMap::<u16, Vec<_>>::new();
            for number in 0..40 {
                let flow = (number * 7 + round) as u16 % 100;
                let frame = frame(flow, round * 40 + number);
                assert!(lab.model.deliver(&frame, 0));
                sent.entry(flow).or_default().push(frame);
            }
            let mut received = BTreeMap::<u16, Vec<_>>::new();
            for (queue, packets) in lab.take_all().iter().enumerate() {
                counts[queue] += packets.len();
                for packet in packets {
                    let frame = bytes(packet);
                    let flow = u16::from_be_bytes([frame[34], frame[35]]);
                    assert_eq!(*queue_of.entry(flow).or_insert(queue), queue, "flow {flow} stays");
                    received.entry(flow).or_default().push(frame);
                }
            }
            assert_eq!(received, sent);
        }
        assert_eq!(counts.iter().sum::<usize>(), 800);
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
        assert_eq!(lab.pool.ledger().outstanding(), 0);
    }
}

#[test]
fn each_queue_sends_by_its_own_ring_and_knows_its_own_contexts() {
    let mut lab = lab(4);
    let checksum = warmlane_mem::Checksum::Partial { start: 34, offset: 6 };
    for round in 0..100 {
        let pool = lab.pool.clone();
        let senders = std::iter::once(&mut lab.transmit);
        let senders = senders.chain(lab.others.iter_mut().map(|pair| &mut pair.transmit));
        for (queue, sender) in senders.enumerate() {
            let mut burst = Burst::new();
            let mut packet = packet(&pool, &frame(queue as u16, round));
            packet.set_checksum(checksum);
            drop(burst.push(packet));
            assert_eq!(sender.transmit(&mut burst), 1);
        }
    }
    let state = lab.model.state();
    assert_eq!((state.sent.len(), state.sums), (400, 4), "each queue is told once");
    for (frame, queue) in state.sent.iter().zip(&state.sent_by) {
        assert_eq!(usize::from(u16::from_be_bytes([frame[34], frame[35]])), *queue);
    }
}

#[test]
fn a_lane_is_woken_by_its_own_queue() {
    let mut lab = lab(3);
    lab.take_all();
    // Each flow's queue, by trying.
    let flow = |lab: &mut Lab<Igb<Model>>, queue: usize| {
        (0..200).find(|flow| {
            assert!(lab.model.deliver(&frame(*flow, 0), 0));
            lab.take_all()[queue].len() == 1
        })
    };
    let flows = [0, 1, 2].map(|queue| flow(&mut lab, queue).unwrap());
    assert!(lab.others[0].receive.event().is_some());
    for flow in [flows[0], flows[2], flows[1]] {
        assert_eq!(lab.model.state().all_interrupts(), 0);
        assert!(lab.model.deliver(&frame(flow, 1), 0));
    }
    assert_eq!(lab.model.state().interrupts[..4], [0, 0, 1, 0], "by its vector");
    assert!(lab.receive.event().is_none(), "something waits already");
}

#[test]
fn what_finds_no_descriptor_in_its_queue_is_counted() {
    let lab = lab(2);
    lab.model.state().set_at(0, ReceiveDropped::new(3));
    lab.model.state().set_at(1, ReceiveDropped::new(0xf_f000 | 4));
    lab.chip.collect(2, &lab.counters);
    assert_eq!(lab.counters.view().missed(), 7);
    lab.model.state().is_gone = true;
    lab.chip.collect(2, &lab.counters);
    assert_eq!(lab.counters.view().missed(), 7);
}
