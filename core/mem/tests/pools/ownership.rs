//! Who owns a buffer, from the outside: every buffer is in one place, and returns from wherever it was.

use crate::common::{KINDS, config, pool, take_all, times};
use std::collections::HashSet;
use warmlane_mem::{BURST_CAPACITY, Burst, Packet, Pool, PoolConfig, PoolKind};

#[test]
fn every_buffer_is_taken_once_and_returned() {
    for kind in KINDS {
        for attached in [false, true] {
            // A count that no magazine size divides.
            let pool = pool(kind, 61);
            let lane = attached.then(|| pool.attach().expect("first attachment"));
            for _ in 0..3 {
                let packets = take_all(&pool);
                let distinct: HashSet<_> = packets.iter().map(Packet::id).collect();
                assert_eq!((packets.len(), distinct.len()), (61, 61), "{kind:?} attached {attached}");
                assert!(pool.take().is_none());
                assert_eq!(pool.ledger().outstanding(), 61);
                drop(packets);
                assert_eq!(pool.ledger().outstanding(), 0);
            }
            drop(lane);
            assert_eq!(take_all(&pool).len(), 61, "what the lane held is returned");
        }
    }
}

#[test]
fn a_bulk_is_all_or_nothing() {
    for kind in KINDS {
        let pool = pool(kind, 40);
        let _lane = pool.attach().expect("first attachment");
        let mut burst = Burst::with_limit(64);
        assert!(!pool.take_bulk(&mut burst, 41));
        assert!(burst.is_empty());
        assert!(pool.take_bulk(&mut burst, 40));
        assert!(!pool.take_bulk(&mut burst, 1));
        assert_eq!(burst.len(), 40);
        burst.clear();
        assert!(!pool.take_bulk(&mut Burst::with_limit(4), 5), "the burst has no space");
        assert_eq!(pool.ledger().outstanding(), 0);
    }
}

#[test]
fn a_lane_takes_what_it_freed_last_and_a_ring_beyond_the_lane_does_not() {
    let pool_of = |kind, magazine| {
        Pool::new(&PoolConfig { magazine: Some(magazine), ..config(kind, 64) })
            .expect("plain pages are always to be had")
    };
    for (kind, magazine, warm) in [
        (PoolKind::Depot, 8, true),
        (PoolKind::Stack, 8, true),
        (PoolKind::LockFreeStack, 8, true),
        (PoolKind::Ring, 8, true),
        // Without a lane cache.
        (PoolKind::Depot, 0, true),
        (PoolKind::Stack, 0, true),
        (PoolKind::LockFreeStack, 1, true),
        (PoolKind::Ring, 0, false),
    ] {
        let pool = pool_of(kind, magazine);
        let _lane = pool.attach().expect("first attachment");
        let ids = |burst: &Burst| burst.iter().map(Packet::id).collect::<HashSet<_>>();
        let mut burst = Burst::with_limit(12);
        pool.take_burst(&mut burst, 12);
        let first = ids(&burst);
        burst.clear();
        pool.take_burst(&mut burst, 12);
        if warm {
            assert_eq!(ids(&burst), first, "{kind:?} {magazine}");
        } else {
            assert_ne!(ids(&burst), first, "{kind:?} {magazine}");
        }
    }
}

/// A packet with these segments.
fn chain_of(pool: &Pool, texts: &[&[u8]]) -> Packet {
    let mut segments = texts.iter().map(|text| {
        let mut segment = pool.take().expect("a buffer");
        segment.fill(text).expect("fits");
        segment
    });
    let mut packet = segments.next().expect("a first segment");
    segments.for_each(|segment| packet.chain(segment).expect("far below 255 segments"));
    packet
}

#[test]
fn chains_are_freed_whole_and_cut_where_asked() {
    for attached in [false, true] {
        let pool = pool(PoolKind::Depot, 8);
        let lane = attached.then(|| pool.attach().expect("first attachment"));
        let mut packet = chain_of(&pool, &[b"one", b"two", b"three", b"four"]);
        assert_eq!((packet.segments(), packet.packet_length()), (4, 15));
        assert_eq!(packet.segment_data().collect::<Vec<_>>().concat(), b"onetwothreefour");
        assert_eq!(pool.ledger().outstanding(), 4);
        packet.truncate(8);
        assert_eq!((packet.segments(), packet.packet_length()), (3, 8));
        let mut bytes = [0; 20];
        assert_eq!(packet.copy_to(&mut bytes), 8);
        assert_eq!(&bytes[..8], b"onetwoth");
        assert_eq!(pool.ledger().outstanding(), 3);
        packet.truncate(2);
        assert_eq!((packet.segments(), packet.data()), (1, b"on".as_slice()));
        assert_eq!(pool.ledger().outstanding(), 1);
        packet.chain(pool.take().expect("a buffer")).expect("two segments");
        // A burst with a chain in the middle frees all.
        let mut burst = Burst::new();
        burst.push(pool.take().expect("a buffer")).expect("space");
        burst.push(packet).expect("space");
        burst.push(pool.take().expect("a buffer")).expect("space");
        burst.clear();
        assert_eq!(pool.ledger().outstanding(), 0);
        drop(lane);
    }
}

/// A segment of which nothing is left goes as well, also if the cut is between it and the one before.
#[test]
fn a_cut_between_two_segments_leaves_no_empty_one() {
    let pool = pool(PoolKind::Depot, 4);
    let mut packet = chain_of(&pool, &[b"one", b"two", b"four", b""]);
    // All of it is no cut.
    assert!(packet.truncate(10));
    assert_eq!((packet.segments(), packet.packet_length()), (4, 10));
    for (length, segments, text) in [(6, 2, b"onetwo".as_slice()), (3, 1, b"one")] {
        assert!(packet.truncate(length));
        assert_eq!(packet.segment_data().collect::<Vec<_>>().concat(), text);
        assert_eq!((packet.segments(), packet.segment_data().count()), (segments, segments), "{length}");
        assert_eq!(pool.ledger().outstanding(), segments as u64, "{length}");
    }
    // Now that it is a single segment it can grow.
    packet.append(2).expect("tailroom").copy_from_slice(b"ly");
    assert_eq!(packet.data(), b"onely");
}

#[test]
fn chains_over_two_pools_among_plain_packets_are_freed_once() {
    // More segments than are returned together, of pools that the thread is attached to, or not, or only to one.
    for (first_attached, second_attached) in [(false, false), (true, false), (false, true), (true, true)] {
        let pools = [pool(PoolKind::Depot, 400), pool(PoolKind::Depot, 400)];
        let lanes: Vec<_> = pools
            .iter()
            .zip([first_attached, second_attached])
            .filter(|(_, attached)| *attached)
            .map(|(pool, _)| pool.attach().expect("first attachment"))
            .collect();
        for round in 0..times(20) {
            let mut burst = Burst::new();
            for number in 0..6 {
                let mut packet = pools[number % 2].take().expect("a buffer");
                let segments = [0, 1, 90, 3, 0, 30][(number + round) % 6];
                for segment in 0..segments {
                    // Runs of one pool, and changes within a chain.
                    let from = &pools[segment / 5 % 2];
                    packet.chain(from.take().expect("a buffer")).expect("below 255 segments");
                }
                burst.push(packet).expect("space");
            }
            burst.clear();
            for pool in &pools {
                assert_eq!(pool.ledger().outstanding(), 0, "round {round}");
            }
        }
        drop(lanes);
        // All are there, each once, and none is chained to another.
        for pool in &pools {
            let mut all = Vec::new();
            while let Some(packet) = pool.take() {
                assert_eq!((packet.segments(), packet.segment_data().count()), (1, 1));
                all.push(packet);
            }
            assert_eq!(all.len(), 400);
            all.sort_by_key(|packet| packet.id().index());
            all.dedup_by_key(|packet| packet.id().index());
            assert_eq!(all.len(), 400);
        }
    }
}

#[test]
fn filling_a_chain_frees_its_tail() {
    let pool = pool(PoolKind::Depot, 2);
    let mut packet = pool.take().expect("a buffer");
    packet.chain(pool.take().expect("a buffer")).expect("two segments");
    packet.fill(b"short").expect("fits");
    assert_eq!((packet.segments(), packet.packet_length()), (1, 5));
    assert_eq!(pool.ledger().outstanding(), 1);
}

#[test]
fn packets_of_several_pools_in_one_burst_return_to_their_own() {
    let pools = [pool(PoolKind::Depot, 32), pool(PoolKind::Stack, 32), pool(PoolKind::Ring, 32)];
    let _lane = pools[1].attach().expect("first attachment");
    let mut burst = Burst::with_limit(96);
    for round in 0..30 {
        pools[round % 3].take_burst(&mut burst, round % 4);
    }
    let before: u64 = pools.iter().map(|pool| pool.ledger().outstanding()).sum();
    assert_eq!(before, burst.len() as u64);
    burst.clear();
    for pool in &pools {
        assert_eq!(pool.ledger().outstanding(), 0, "{}", pool.name());
    }
}

#[test]
fn a_pool_outlives_its_handle_while_packets_live() {
    for kind in KINDS {
        let pool = pool(kind, 4);
        let mut packet = pool.take().expect("a buffer");
        let other = pool.take().expect("a buffer");
        let lane = pool.attach().expect("first attachment");
        drop(pool);
        drop(other);
        drop(lane);
        packet.fill(b"still mapped").expect("fits");
        assert_eq!(packet.data(), b"still mapped");
        // From another thread, which never knew the pool.
        std::thread::spawn(move || drop(packet)).join().expect("no panic");
    }
    // Slots come back: far more pools than there are slots, one after the other.
    for _ in 0..times(1_000) {
        drop(pool(PoolKind::Depot, 1).take());
    }
}

#[test]
fn bursts_move_split_and_drain() {
    let pool = pool(PoolKind::Depot, 64);
    let mut burst = Burst::with_limit(32);
    assert_eq!(pool.take_burst(&mut burst, 100), 32);
    for (number, packet) in burst.iter_mut().enumerate() {
        packet.set_port(number as u16);
    }
    let ports = |burst: &Burst| burst.iter().map(Packet::port).collect::<Vec<_>>();
    let mut other = Burst::with_limit(10);
    assert_eq!(burst.move_to(&mut other), 10);
    assert_eq!(ports(&other), (0..10).collect::<Vec<_>>());
    assert_eq!(ports(&burst), (10..32).collect::<Vec<_>>());
    burst.free_front(2);
    burst.retain(|packet| packet.port() % 2 == 0);
    assert_eq!(ports(&burst), (12..32).step_by(2).collect::<Vec<_>>());
    let mut drained = burst.drain();
    assert_eq!(drained.next().map(|packet| packet.port()), Some(12));
    drop(drained);
    assert!(burst.is_empty());
    assert_eq!(other.pop().map(|packet| packet.port()), Some(9));
    drop(other);
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn no_burst_takes_more_than_its_capacity() {
    let pool = pool(PoolKind::Depot, BURST_CAPACITY as u32 + 2);
    for (asked, limit) in [(0, 1), (1, 1), (255, 255), (256, 256), (257, 256), (usize::MAX, 256)] {
        let mut burst = Burst::with_limit(asked);
        assert_eq!((burst.limit(), pool.take_burst(&mut burst, usize::MAX)), (limit, limit), "{asked}");
        let one_more = pool.take().expect("a buffer");
        assert!(burst.push(one_more).is_err());
        assert_eq!(burst.len(), limit, "{asked}");
    }
    assert_eq!(pool.ledger().outstanding(), 0);
}

#[test]
fn a_lane_that_panics_returns_its_buffers() {
    let pool = pool(PoolKind::Depot, 64);
    let lane = {
        let pool = pool.clone();
        std::thread::spawn(move || {
            let _lane = pool.attach().expect("first attachment");
            let mut burst = Burst::new();
            pool.take_burst(&mut burst, 30);
            panic!("on purpose");
        })
    };
    assert!(lane.join().is_err());
    assert_eq!(pool.ledger().outstanding(), 0);
    assert_eq!(take_all(&pool).len(), 64);
}

#[test]
fn a_shared_packet_is_freed_once_with_its_last_holder() {
    let pool = pool(PoolKind::Depot, 8);
    for attached in [false, true] {
        let lane = attached.then(|| pool.attach().expect("first attachment"));
        let mut packet = pool.take().expect("a buffer");
        packet.fill(b"one").expect("fits");
        let mut tail = pool.take().expect("a buffer");
        tail.fill(b"two").expect("fits");
        packet.chain(tail).expect("two segments");
        let first = packet.share();
        let others: Vec<_> = (0..4).map(|_| first.clone()).collect();
        assert_eq!(first.holders(), 5);
        let first = first.try_into_packet().expect_err("there are others");
        std::thread::scope(|scope| {
            for other in others {
                scope.spawn(move || {
                    assert_eq!(other.segment_data().collect::<Vec<_>>().concat(), b"onetwo");
                    drop(other);
                });
            }
        });
        assert_eq!((first.holders(), pool.ledger().outstanding()), (1, 2));
        let mut packet = first.try_into_packet().expect("the last holder");
        packet.data_mut()[0] = b'O';
        let first = packet.share();
        warmlane_mem::SharedPacket::release_all([first.clone(), first.clone(), first]);
        assert_eq!(pool.ledger().outstanding(), 0);
        drop(lane);
        assert_eq!(take_all(&pool).len(), 8);
    }
}

#[test]
fn a_pool_outlives_its_handle_while_a_packet_is_shared() {
    let pool = pool(PoolKind::Depot, 2);
    let shared = pool.take().expect("a buffer").share();
    drop(pool);
    let lanes: Vec<_> = (0..4)
        .map(|_| shared.clone())
        .map(|shared| std::thread::spawn(move || assert!(shared.is_empty())))
        .collect();
    drop(shared);
    for lane in lanes {
        lane.join().expect("no panic");
    }
}
