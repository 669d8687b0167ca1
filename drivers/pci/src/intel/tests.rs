//! The driver on cards that are played by a program: what all kinds do alike.

mod long;
mod shared;

use super::descriptor::Received;
use super::memory::Side;
use super::model::lab::{LONGEST, Lab, packet, with_zero_copy};
use super::model::{Model, Played};
use super::port::Watch;
use super::registers::{CrcErrors, Register as _};
use super::rings::Broken;
use crate::e1000e::E1000e;
use crate::igb::Igb;
use std::time::{Duration, Instant};
use warmlane_mem::{Burst, Checksum, Packet, Pool, PoolConfig, Vlan, VlanTci};
use warmlane_port::{ReceiveQueue as _, TransmitQueue as _};
use warmlane_testkit::exchange::contents;
use warmlane_testkit::queues::ShownDrops;

/// Runs these as tests, on each kind of card.
macro_rules! on_all_cards {
    ($($name:ident),+ $(,)?) => {
        mod e1000e {
            $(
                #[test]
                fn $name() {
                    super::$name::<super::E1000e<super::Model>>();
                }
            )+
        }

        mod igb {
            $(
                #[test]
                fn $name() {
                    super::$name::<super::Igb<super::Model>>();
                }
            )+
        }
    };
    // And those in front with cards that reach the pool.
    (also_with_zero_copy: $($name:ident),+; others: $($other:ident),+ $(,)?) => {
        on_all_cards! { $($name,)+ $($other),+ }

        mod zero_copy {
            $(
                #[test]
                fn $name() {
                    super::with_zero_copy(super::$name::<super::E1000e<super::Model>>);
                    super::with_zero_copy(super::$name::<super::Igb<super::Model>>);
                }
            )+
        }
    };
}

use on_all_cards;

impl<C: Played> Lab<C> {
    /// Sends frames of these lengths. Says how many were taken.
    fn send(&mut self, first: usize, lengths: &[usize]) -> usize {
        let frames = lengths.iter().enumerate();
        self.send_frames(frames.map(|(number, &length)| contents(first + number, length)))
    }
}

fn bytes(packet: &Packet) -> Vec<u8> {
    packet.segment_data().flatten().copied().collect()
}

fn frames_of_all_lengths_come_and_go_as_they_are_many_times_round_the_rings<C: Played>() {
    let mut lab = Lab::<C>::new(64);
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
    let before = lab.model.state().tails[1];
    for (number, lengths) in
        lengths.iter().copied().cycle().take(2000).collect::<Vec<_>>().chunks(40).enumerate()
    {
        assert_eq!(lab.send(number * 40, lengths), lengths.len());
    }
    let state = lab.model.state();
    assert_eq!((state.sent.len(), state.tails[1] - before), (2000, 50), "told once for each burst");
    for (number, frame) in state.sent.iter().enumerate() {
        assert_eq!(*frame, contents(number, lengths[number % lengths.len()]), "{number}");
    }
    drop(state);
    assert_eq!(lab.missing(), 0);
}

fn frames_in_several_buffers_are_whole<C: Played>() {
    // Also where the pool's buffers are smaller than the card's, and of another number.
    for data_size in [2048, 512] {
        let mut lab =
            Lab::<C>::with_pool(64, &PoolConfig { buffers: 2048, data_size, ..PoolConfig::default() });
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
        assert_eq!(lab.missing(), 0);
    }
}

fn what_the_card_found_out_of_checksums_is_noted<C: Played>() {
    let mut lab = Lab::<C>::new(64);
    let wrong = Received::TRANSPORT_SUMMED | Received::TRANSPORT_WRONG;
    for status in [Received::TRANSPORT_SUMMED, wrong, 0] {
        assert!(lab.model.deliver(&contents(0, 100), status));
    }
    let found: Vec<_> = lab.take().iter().map(Packet::checksum).collect();
    assert_eq!(found, [Checksum::Good, Checksum::Unknown, Checksum::Unknown]);
}

fn damaged_frames_and_those_too_short_are_dropped_and_counted<C: Played>() {
    let mut lab = Lab::<C>::new(64);
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

fn lengths_and_ends_that_cannot_be_break_the_ring<C: Played>() {
    let done = Received::DONE;
    for (reason, words) in [
        ("more bytes", &[done | Received::END | 2049 << 32][..]),
        ("more bytes", &[done | Received::END | 0xffff << 32][..]),
        ("more bytes", &[done | 2048 << 32, done | 0xffff << 32][..]),
        ("more buffers", &[done | 2048 << 32; 9][..]),
    ] {
        let mut lab = Lab::<C>::new(64);
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
        assert_eq!(lab.missing(), 0);
    }
}

fn what_is_done_out_of_order_waits_for_what_is_before_it<C: Played>() {
    let mut lab = Lab::<C>::new(64);
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

fn what_the_card_does_not_have_is_not_looked_at<C: Played>() {
    let mut lab = Lab::<C>::new(64);
    // The last one is never the card's, and so are no more than 63.
    for ahead in 0..64 {
        lab.model.write_back(ahead, Received::DONE | Received::END | 60 << 32);
    }
    let mut burst = Burst::new();
    assert_eq!(lab.receive.receive(&mut burst), 63);
}

fn a_card_without_buffers_loses_frames_and_says_how_many<C: Played>() {
    let mut lab = Lab::<C>::with_pool(64, &PoolConfig { buffers: 100, ..PoolConfig::default() });
    let delivered = (0..70).filter(|number| lab.model.deliver(&contents(*number, 60), 0)).count();
    assert_eq!(delivered, 63);
    lab.model.state().set(CrcErrors::new(3));
    for _ in 0..2 {
        lab.chip.collect(1, &lab.counters);
    }
    let view = lab.counters.view();
    assert_eq!((view.missed(), view.crc_errors()), (7, 3), "once each");
    // What is gone counts nothing.
    lab.model.state().is_gone = true;
    lab.chip.collect(1, &lab.counters);
    assert_eq!(view.missed(), 7);
    lab.model.state().is_gone = false;
    // Without buffers in the pool, frames wait in the card's.
    let kept: Vec<_> = std::iter::from_fn(|| lab.pool.take()).take(90).collect();
    let first = lab.take();
    assert_eq!(first.len(), 10);
    drop((kept, first));
    assert_eq!(lab.take().len(), 53);
    assert_eq!(lab.missing(), 0);
}

fn a_full_ring_takes_no_more_until_the_card_is_done<C: Played>() {
    let mut lab = Lab::<C>::new(64);
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

fn a_card_that_is_a_whole_turn_of_the_ring_further_is_not_stuck<C: Played>() {
    let (mut lab, mut watch, begin) = (Lab::<C>::new(64), Watch::default(), Instant::now());
    let mut look =
        |lab: &Lab<C>, seconds| watch.is_stuck(lab.progress(), begin + Duration::from_secs(seconds));
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

fn frames_that_cannot_be_sent_are_dropped_and_counted<C: Played>() {
    let mut lab = Lab::<C>::new(64);
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

fn checksums_that_are_left_to_the_card_are_completed<C: Played>() {
    let mut lab = Lab::<C>::new(64);
    let (tcp, udp) = ((34, 16), (34, 6));
    // The last is farther from the start than the card can count: software does it.
    let far = (600, 6);
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

fn while_the_link_flaps_what_is_to_be_sent_is_dropped_or_sent<C: Played>() {
    let mut lab = Lab::<C>::new(64);
    for round in 0..100 {
        let is_up = round % 2 == 0;
        lab.model.state().has_link = is_up;
        assert_eq!(lab.chip.registers().is_link_up(), is_up);
        lab.rings.set_link(lab.chip.registers().is_link_up());
        assert_eq!(lab.send(round, &[60; 3]), 3);
    }
    assert_eq!((lab.model.state().sent.len(), lab.dropped("not-connected")), (150, 150));
    // Without a card as well.
    lab.rings.stop();
    assert_eq!((lab.send(0, &[60; 3]), lab.dropped("not-connected")), (3, 153));
    assert!(lab.take().is_empty());
    lab.model.state().has_link = true;
    lab.start(64);
    assert_eq!(lab.missing(), 0);
}

fn an_idle_lane_is_woken_by_what_comes_and_by_nothing_else<C: Played>() {
    let mut lab = Lab::<C>::new(64);
    assert!(lab.model.deliver(&contents(0, 60), 0));
    assert_eq!(lab.take().len(), 1);
    assert!(lab.receive.event().is_some());
    assert_eq!(lab.model.state().all_interrupts(), 0, "what was polled wakes nobody");
    assert!(lab.model.deliver(&contents(0, 60), 0));
    assert_eq!(lab.model.state().all_interrupts(), 1);
    assert_eq!(lab.take().len(), 1);
    // A lane that polls is left alone.
    assert!(lab.model.deliver(&contents(0, 60), 0));
    assert_eq!(lab.model.state().all_interrupts(), 1);
    assert!(lab.receive.event().is_none(), "something waits already");
    assert_eq!(lab.take().len(), 1);
    // One that sleeps has all descriptors in the card.
    assert!(lab.receive.event().is_some());
    assert_eq!(lab.model.tail(Side::Receive), (3 + 63) % 64);
    // If the card is started anew, it is woken to ask the new one.
    lab.rings.received.clear();
    lab.rings.stop();
    assert!(lab.receive.event().is_some());
    lab.start(64);
    assert_eq!(rustix::io::read(lab.rings.received.fd(), &mut [0; 8]), Ok(8));
}

fn what_comes_while_a_lane_falls_asleep_wakes_it<C: Played>() {
    let mut lab = Lab::<C>::new(64);
    assert!(lab.model.deliver(&contents(0, 60), 0));
    assert_eq!(lab.take().len(), 1);
    // What is told to the card would come there behind the frame, if the lane did not wait for it.
    lab.model.state().is_far = true;
    assert!(lab.receive.event().is_some());
    assert!(lab.model.deliver(&contents(0, 60), 0));
    assert_eq!(lab.model.state().all_interrupts(), 1);
}

on_all_cards! {
    also_with_zero_copy:
    frames_of_all_lengths_come_and_go_as_they_are_many_times_round_the_rings,
    what_the_card_found_out_of_checksums_is_noted,
    damaged_frames_and_those_too_short_are_dropped_and_counted,
    lengths_and_ends_that_cannot_be_break_the_ring,
    what_is_done_out_of_order_waits_for_what_is_before_it,
    what_the_card_does_not_have_is_not_looked_at,
    a_full_ring_takes_no_more_until_the_card_is_done,
    a_card_that_is_a_whole_turn_of_the_ring_further_is_not_stuck,
    frames_that_cannot_be_sent_are_dropped_and_counted,
    checksums_that_are_left_to_the_card_are_completed,
    while_the_link_flaps_what_is_to_be_sent_is_dropped_or_sent,
    an_idle_lane_is_woken_by_what_comes_and_by_nothing_else,
    what_comes_while_a_lane_falls_asleep_wakes_it;
    others:
    frames_in_several_buffers_are_whole,
    a_card_without_buffers_loses_frames_and_says_how_many,
}
