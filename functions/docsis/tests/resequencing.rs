//! The order of a bonded flow's packets.

mod common;

use common::pool;
use proptest::prelude::*;
use warmlane_docsis::modem::{Resequenced, Resequencer};
use warmlane_mem::Packet;
use warmlane_wire::docsis::Sequencing;

fn packet(number: u16) -> Packet {
    let mut packet = pool().take().expect("a buffer");
    packet.fill(&number.to_be_bytes()).expect("space");
    packet
}

fn number(packet: &Packet) -> u16 {
    u16::from_be_bytes(packet.data().try_into().expect("two bytes"))
}

const fn sequencing(sequence: u16) -> Sequencing {
    Sequencing { change_count: false, sequence }
}

#[test]
fn a_gap_is_waited_for_and_then_given_up() {
    let (mut order, mut came) = (Resequencer::default(), Vec::new());
    for sequence in [65_534, 65_535, 1, 2] {
        let taken =
            order.push(packet(sequence), sequencing(sequence), 10, |packet| came.push(number(&packet)));
        assert_eq!(taken, Resequenced::Taken { missing: 0 });
    }
    assert_eq!((&came[..], order.waiting()), (&[65_534, 65_535][..], 2));
    assert_eq!(order.expire(10, 11, |_| panic!("it isn't late yet")), 0);
    assert_eq!(order.expire(11, 12, |packet| came.push(number(&packet))), 1);
    assert_eq!((&came[..], order.waiting()), (&[65_534, 65_535, 1, 2][..], 0));
    let late = order.push(packet(0), sequencing(0), 13, |_| panic!("its turn is over"));
    assert_eq!(late, Resequenced::Late);
}

#[test]
fn numbering_begins_anew_where_the_change_count_changes() {
    let (mut order, mut came) = (Resequencer::default(), Vec::new());
    let mut push = |sequence, change_count| {
        let sequencing = Sequencing { change_count, sequence };
        order.push(packet(sequence), sequencing, 0, |packet| came.push(number(&packet)))
    };
    assert_eq!(push(1_005, false), Resequenced::Taken { missing: 0 });
    assert_eq!(push(1_008, false), Resequenced::Taken { missing: 0 });
    assert_eq!(push(0, true), Resequenced::Taken { missing: 2 });
    assert_eq!(came, [1_005, 1_008, 0]);
}

#[test]
fn what_is_far_ahead_moves_the_window() {
    let (mut order, mut came) = (Resequencer::default(), Vec::new());
    let mut push =
        |sequence| order.push(packet(sequence), sequencing(sequence), 0, |packet| came.push(number(&packet)));
    assert_eq!(push(0), Resequenced::Taken { missing: 0 });
    assert_eq!(push(3), Resequenced::Taken { missing: 0 });
    assert_eq!(push(1_000), Resequenced::Taken { missing: 743 }, "1, 2, and 4 to 744");
    assert_eq!(push(3), Resequenced::Late);
    assert_eq!(came, [0, 3]);
}

proptest! {
    #[test]
    fn packets_of_several_channels_come_in_order(
        channels in prop::collection::vec(0..6_usize, 1..400),
        turns in prop::collection::vec(0..6_usize, 1..400),
    ) {
        // Each channel keeps its order; which of them delivers next is anybody's guess, but none is far behind.
        let mut queues = vec![std::collections::VecDeque::new(); 6];
        for (sequence, channel) in channels.iter().enumerate() {
            queues[*channel].push_back(sequence as u16);
        }
        let (mut order, mut came) = (Resequencer::default(), Vec::new());
        let mut push = |sequence| {
            order.push(packet(sequence), sequencing(sequence), 0, |packet| came.push(number(&packet)))
        };
        let mut turn = turns.iter().cycle();
        while let Some(oldest) = queues.iter().filter_map(|queue| queue.front().copied()).min() {
            let chosen = turn.next().copied().unwrap_or(0);
            let chosen = (chosen..chosen + 6).map(|number| number % 6)
                .find(|queue| queues[*queue].front().is_some_and(|next| next - oldest < 200)).unwrap();
            let sequence = queues[chosen].pop_front().unwrap();
            prop_assert_eq!(push(sequence), Resequenced::Taken { missing: 0 });
        }
        prop_assert_eq!(came, (0..channels.len() as u16).collect::<Vec<_>>());
    }
}
