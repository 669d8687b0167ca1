//! Packets on their way from one lane to another: all arrive, in order, and what is left inside is freed.

use crate::common::{KINDS, pool, take_all, times};
use std::collections::HashSet;
use warmlane_mem::{BURST_CAPACITY, Burst, Packet, PoolKind, channel};

const PACKETS: usize = if cfg!(miri) { 500 } else { 20_000 };

#[test]
fn a_channel_carries_packets_to_another_lane() {
    let pool = pool(PoolKind::Depot, 256);
    let (mut sender, mut receiver) = channel(64).expect("a power of two");
    let lane = {
        let pool = pool.clone();
        std::thread::spawn(move || {
            let _lane = pool.attach().expect("first attachment");
            let mut burst = Burst::new();
            let mut next = 0_u32;
            loop {
                if receiver.receive(&mut burst) == 0 && receiver.is_finished() {
                    return next;
                }
                for packet in &*burst {
                    assert_eq!(packet.data(), next.to_le_bytes(), "in order, each once");
                    next += 1;
                }
                burst.clear();
            }
        })
    };
    let cache = pool.attach().expect("first attachment");
    let mut burst = Burst::new();
    let mut stamped = 0_u32;
    while (stamped as usize) < PACKETS || !burst.is_empty() {
        let left = PACKETS - stamped as usize;
        let before = burst.len();
        pool.take_burst(&mut burst, left.min(17));
        for packet in &mut burst[before..] {
            packet.fill(&stamped.to_le_bytes()).expect("fits");
            stamped += 1;
        }
        if sender.send(&mut burst) == 0 {
            std::thread::yield_now();
        }
    }
    assert_eq!(sender.counters().sent.get(), PACKETS as u64);
    drop(sender);
    assert_eq!(lane.join().expect("no panic"), PACKETS as u32);
    drop(cache);
    assert_eq!(pool.ledger().outstanding(), 0);
    assert_eq!(take_all(&pool).len(), 256);
}

#[test]
fn a_channel_carries_bursts_of_any_size_in_order() {
    let pool = pool(PoolKind::Depot, 1_024);
    let (mut sender, mut receiver) = channel(256).expect("a power of two");
    let (mut stamped, mut next) = (0_u32, 0_u32);
    let mut burst = Burst::with_limit(BURST_CAPACITY);
    for (sent, limit) in
        [(1, 33), (31, 1), (33, 64), (200, 7), (256, 256), (97, 32), (64, 65)].repeat(times(9))
    {
        pool.take_burst(&mut burst, sent);
        for packet in burst.iter_mut() {
            packet.fill(&stamped.to_le_bytes()).expect("fits");
            stamped += 1;
        }
        // What finds no space stays behind and goes with the next burst.
        let mut received = Burst::with_limit(limit);
        while !burst.is_empty() {
            sender.send(&mut burst);
            receiver.receive(&mut received);
            for packet in &*received {
                assert_eq!(packet.data(), next.to_le_bytes());
                next += 1;
            }
            received.clear();
        }
        assert_eq!(
            (next as usize + receiver.len(), receiver.counters().received.get()),
            (stamped as usize, next.into())
        );
    }
}

#[test]
fn what_is_left_in_a_channel_is_freed_whichever_end_goes_first() {
    for receiver_first in [false, true] {
        let pool = pool(PoolKind::Depot, 16);
        let (mut sender, receiver) = channel(16).expect("a power of two");
        let mut burst = Burst::new();
        pool.take_burst(&mut burst, 8);
        assert_eq!(sender.send(&mut burst), 8);
        if receiver_first {
            drop(receiver);
            assert!(sender.is_disconnected());
            // Sent into the void, and freed all the same.
            pool.take_burst(&mut burst, 4);
            sender.send(&mut burst);
            drop(sender);
        } else {
            drop(sender);
            drop(receiver);
        }
        burst.clear();
        assert_eq!(pool.ledger().outstanding(), 0, "receiver first: {receiver_first}");
    }
}

#[test]
fn buffers_cross_lanes_under_stress_and_are_all_there_at_the_end() {
    for kind in KINDS {
        let pool = pool(kind, 500);
        let (mut sender, mut receiver) = channel(128).expect("a power of two");
        let freer = {
            let pool = pool.clone();
            std::thread::spawn(move || {
                let _lane = pool.attach().expect("first attachment");
                let mut burst = Burst::with_limit(32);
                loop {
                    if receiver.receive(&mut burst) == 0 && receiver.is_finished() {
                        return;
                    }
                    for packet in &*burst {
                        let stamp = u32::from_le_bytes(packet.data().try_into().expect("four bytes"));
                        assert_eq!(stamp, packet.id().index(), "nobody wrote to a buffer that was under way");
                    }
                    burst.clear();
                }
            })
        };
        let cache = pool.attach().expect("first attachment");
        let mut burst = Burst::with_limit(32);
        let mut sent = 0;
        while sent < 5 * PACKETS {
            pool.take_burst(&mut burst, 32);
            for packet in burst.iter_mut() {
                let stamp = packet.id().index().to_le_bytes();
                packet.fill(&stamp).expect("fits");
            }
            let count = sender.send(&mut burst);
            if count == 0 {
                std::thread::yield_now();
            }
            sent += count;
        }
        burst.clear();
        drop(sender);
        freer.join().expect("no panic");
        drop(cache);
        assert_eq!(pool.ledger().outstanding(), 0, "{kind:?}");
        let ids: HashSet<_> = take_all(&pool).iter().map(Packet::id).collect();
        assert_eq!(ids.len(), 500, "{kind:?}");
    }
}

#[test]
fn bursts_keep_their_order_where_the_ring_begins_anew() {
    let pool = pool(PoolKind::Depot, 64);
    let (mut sender, mut receiver) = channel(4).unwrap();
    let (mut burst, mut received) = (Burst::new(), Burst::new());
    // Three at first, so that the four after them go into the last slot and the first three.
    for (wanted, fit) in [(3, 3), (6, 4)] {
        assert!(pool.take_bulk(&mut burst, wanted));
        let ids: Vec<_> = burst.iter().map(Packet::id).collect();
        assert_eq!(sender.send(&mut burst), fit);
        assert_eq!(burst.iter().map(Packet::id).collect::<Vec<_>>(), ids[fit..], "the rest stays");
        assert_eq!(receiver.receive(&mut received), fit);
        assert_eq!(received.iter().map(Packet::id).collect::<Vec<_>>(), ids[..fit]);
        burst.clear();
        received.clear();
    }
    assert_eq!((sender.send(&mut burst), receiver.receive(&mut received)), (0, 0));
    assert_eq!(pool.ledger().outstanding(), 0);
}
