//! Who owns a buffer, from the outside: every buffer is in one place, and comes home from wherever it was.

#![cfg(not(loom))]

use std::collections::HashSet;
use warmlane_mem::plan::{Demands, PlanError};
use warmlane_mem::{
    BURST_CAPACITY, Burst, Checksum, Cursor, Frames, MAXIMUM_BUFFERS, Packet, Pool, PoolConfig, PoolError,
    PoolKind, channel,
};
use warmlane_sys::pages::PagePreference;

const KINDS: [PoolKind; 4] = [PoolKind::Depot, PoolKind::Stack, PoolKind::LockFreeStack, PoolKind::Ring];

fn config(kind: PoolKind, buffers: u32) -> PoolConfig {
    PoolConfig {
        name: format!("test {kind:?}"),
        buffers,
        kind,
        magazine: 8,
        pages: PagePreference::Plain,
        ..PoolConfig::default()
    }
}

fn pool(kind: PoolKind, buffers: u32) -> Pool {
    Pool::new(&config(kind, buffers)).expect("plain pages are always to be had")
}

fn take_all(pool: &Pool) -> Vec<Packet> {
    std::iter::from_fn(|| pool.take()).collect()
}

#[test]
fn every_buffer_is_given_out_once_and_comes_home() {
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
            assert_eq!(take_all(&pool).len(), 61, "what the lane held is home");
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
        assert!(!pool.take_bulk(&mut Burst::with_limit(4), 5), "the burst has no room");
        assert_eq!(pool.ledger().outstanding(), 0);
    }
}

#[test]
fn a_lane_takes_what_it_freed_last_and_a_ring_beyond_the_lane_does_not() {
    let pool_of = |kind, magazine| {
        Pool::new(&PoolConfig { magazine, ..config(kind, 64) }).expect("plain pages are always to be had")
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

#[test]
fn a_buffer_is_clean_when_taken_again() {
    let pool = pool(PoolKind::Depot, 1);
    let mut packet = pool.take().expect("one buffer");
    packet.fill(&[7; 100]).expect("it fits");
    packet.trim_front(50).expect("100 bytes are there");
    packet.set_port(3);
    packet.set_timestamp(1);
    packet.set_rss_hash(2);
    packet.set_l3_offset(14);
    packet.set_checksum(Checksum::Partial { start: 34, offset: 16 });
    let id = packet.id();
    drop(packet);
    let packet = pool.take().expect("it is home");
    assert_eq!(packet.id(), id);
    assert_eq!((packet.len(), packet.packet_length(), packet.segments()), (0, 0, 1));
    assert_eq!((packet.headroom(), packet.tailroom()), (128, 2_048));
    assert_eq!((packet.port(), packet.timestamp(), packet.rss_hash(), packet.l3_offset()), (0, 0, 0, 0));
    assert_eq!(packet.checksum(), Checksum::Unknown);
}

#[test]
fn room_is_bounded_at_both_ends() {
    let pool = pool(PoolKind::Depot, 2);
    let mut packet = pool.take().expect("a buffer");
    assert!(packet.fill(&[0; 2_049]).is_err());
    packet.fill(&[1; 2_048]).expect("it fits exactly");
    assert!(packet.append(1).is_err());
    packet.prepend(128).expect("the headroom is 128").fill(2);
    assert!(packet.prepend(1).is_err());
    assert_eq!(packet.len(), 2_176);
    assert_eq!((packet.data()[127], packet.data()[128]), (2, 1));
    assert!(packet.trim_front(2_177).is_err());
    packet.trim_front(2_176).expect("all of it");
    assert!(packet.is_empty());
    // A neighbour's header was not touched by any of this.
    assert_eq!(pool.take().expect("the other").len(), 0);
}

#[test]
fn chains_are_freed_whole_and_cut_where_asked() {
    for attached in [false, true] {
        let pool = pool(PoolKind::Depot, 8);
        let lane = attached.then(|| pool.attach().expect("first attachment"));
        let mut packet = pool.take().expect("a buffer");
        packet.fill(b"one").expect("fits");
        for text in [b"two".as_slice(), b"three", b"four"] {
            let mut segment = pool.take().expect("a buffer");
            segment.fill(text).expect("fits");
            packet.chain(segment).expect("far below 255 segments");
        }
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
        burst.push(pool.take().expect("a buffer")).expect("room");
        burst.push(packet).expect("room");
        burst.push(pool.take().expect("a buffer")).expect("room");
        burst.clear();
        assert_eq!(pool.ledger().outstanding(), 0);
        drop(lane);
    }
}

#[test]
fn chains_over_two_pools_among_plain_packets_come_home_once() {
    // More segments than are brought home together, of pools that the thread is attached to, or not, or only to one.
    for (first_attached, second_attached) in [(false, false), (true, false), (false, true), (true, true)] {
        let pools = [pool(PoolKind::Depot, 400), pool(PoolKind::Depot, 400)];
        let lanes: Vec<_> = pools
            .iter()
            .zip([first_attached, second_attached])
            .filter(|(_, attached)| *attached)
            .map(|(pool, _)| pool.attach().expect("first attachment"))
            .collect();
        for round in 0..20 {
            let mut burst = Burst::new();
            for number in 0..6 {
                let mut packet = pools[number % 2].take().expect("a buffer");
                let segments = [0, 1, 90, 3, 0, 30][(number + round) % 6];
                for segment in 0..segments {
                    // Runs of one pool, and changes within a chain.
                    let from = &pools[segment / 5 % 2];
                    packet.chain(from.take().expect("a buffer")).expect("below 255 segments");
                }
                burst.push(packet).expect("room");
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
fn packets_of_several_pools_in_one_burst_go_home_each() {
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
    for _ in 0..1_000 {
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
    assert!(Burst::with_limit(0).limit() == 1 && Burst::with_limit(9_999).limit() == BURST_CAPACITY);
    drop(other);
    assert_eq!(pool.ledger().outstanding(), 0);
}

const PACKETS: usize = 20_000;

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
    for (sent, limit) in [(1, 33), (31, 1), (33, 64), (200, 7), (256, 256), (97, 32), (64, 65)].repeat(9) {
        pool.take_burst(&mut burst, sent);
        for packet in burst.iter_mut() {
            packet.fill(&stamped.to_le_bytes()).expect("fits");
            stamped += 1;
        }
        // What finds no room stays behind and goes with the next burst.
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
        while sent < 100_000 {
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
fn a_lane_that_panics_gives_its_buffers_back() {
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
fn bad_wishes_get_clear_errors() {
    let refused = |change: fn(&mut PoolConfig)| {
        let mut config = config(PoolKind::Depot, 16);
        change(&mut config);
        Pool::new(&config).expect_err("must be refused")
    };
    assert!(matches!(refused(|c| c.buffers = 0), PoolError::NoBuffers { .. }));
    assert!(matches!(refused(|c| c.buffers = MAXIMUM_BUFFERS + 1), PoolError::TooManyBuffers { .. }));
    assert!(matches!(refused(|c| c.room = 0), PoolError::NoRoom { .. }));
    assert!(matches!(refused(|c| c.room = 65_536), PoolError::BufferTooLarge { .. }));
    assert!(matches!(refused(|c| c.room = usize::MAX), PoolError::BufferTooLarge { .. }));
    assert!(matches!(refused(|c| c.magazine = 4_097), PoolError::Magazine { .. }));
    assert!(matches!(refused(|c| c.stride = Some(2_239)), PoolError::Stride { .. }));
    assert!(matches!(refused(|c| c.stride = Some(64)), PoolError::Stride { .. }));
    assert!(matches!(refused(|c| c.stride = Some(65_600)), PoolError::Stride { .. }));
    let error = refused(|c| c.demands = Demands::XDP_UNALIGNED);
    assert!(
        matches!(error, PoolError::Plan { source: PlanError::Headroom { headroom: 128, demanded: 256 }, .. }),
        "{error}"
    );
    let error = refused(|c| {
        (c.headroom, c.demands) = (256, Demands::xdp_aligned(2_048).expect("a chunk of the kernel's"));
    });
    assert!(matches!(error, PoolError::Plan { source: PlanError::NoStride { .. }, .. }), "{error}");
    let error = refused(|c| {
        (c.headroom, c.stride) = (256, Some(4_160));
        c.demands = Demands::xdp_aligned(4_096).expect("a chunk of the kernel's");
    });
    assert!(matches!(error, PoolError::Plan { .. }), "{error}");
    let error = refused(|c| (c.buffers, c.room, c.demands) = (100_000, 60_000, Demands::MEMIF));
    assert!(matches!(error, PoolError::Plan { source: PlanError::Region { .. }, .. }), "{error}");
    let error = refused(|c| (c.buffers, c.room) = (MAXIMUM_BUFFERS, 60_000));
    assert!(matches!(error, PoolError::Memory { .. }), "{error}");

    let pool = pool(PoolKind::Depot, 16);
    let lane = pool.attach().expect("first attachment");
    assert!(matches!(pool.attach(), Err(PoolError::AlreadyAttached { .. })));
    drop(lane);
    drop(pool.attach().expect("free again"));
}

#[test]
fn what_ports_demand_is_met() {
    let aligned = Demands::xdp_aligned(4_096).expect("a chunk of the kernel's").and(Demands::VHOST_USER);
    for (demands, stride) in [(aligned, Some(4_096)), (Demands::XDP_UNALIGNED.and(Demands::MEMIF), None)] {
        let config = PoolConfig { headroom: 256, demands, ..config(PoolKind::Depot, 16) };
        let pool = Pool::new(&config).expect("can be met");
        assert!(stride.is_none_or(|stride| stride == pool.stride()), "{}", pool.stride());
        assert!(pool.stride() >= config.buffer_bytes() && pool.stride() <= 4_096, "{}", pool.stride());
        let region = pool.region();
        assert!(region.place(7).is_multiple_of(demands.alignment as u64));
        assert!(region.address().addr().get().is_multiple_of(demands.alignment));
    }
}

#[test]
fn the_application_has_its_own_bytes() {
    #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable)]
    #[repr(C)]
    struct Mine {
        flow: u64,
        class: u32,
        colour: u32,
    }
    let pool = pool(PoolKind::Depot, 1);
    let mut packet = pool.take().expect("a buffer");
    *packet.application_mut::<Mine>() = Mine { flow: u64::MAX, class: 7, colour: 9 };
    packet.fill(&[0xff; 2_048]).expect("fits");
    let mine: &Mine = packet.application();
    assert_eq!((mine.flow, mine.class, mine.colour), (u64::MAX, 7, 9));
}

#[test]
fn copies_stay_inside_their_buffers() {
    // Buffers without a byte between them, and rooms around one line, the unit of copying.
    for (room, headroom, fits) in [(16, 48, 0), (63, 1, 0), (64, 64, 64), (127, 1, 64), (128, 0, 128)] {
        let buffer = PoolConfig { room, headroom, ..config(PoolKind::Depot, 8) };
        let pool =
            Pool::new(&PoolConfig { stride: Some(buffer.buffer_bytes()), ..buffer }).expect("plain pages");
        let _lane = pool.attach().expect("first attachment");
        for length in [1, 16, 64, 65, 128, 129] {
            let mut burst = Burst::new();
            assert!(pool.take_bulk(&mut burst, 8));
            burst.iter_mut().for_each(|packet| *packet.application_mut::<u64>() = 7);
            burst.clear();
            let mut frames = Frames::new();
            frames.push(&vec![0xff; length]).expect("few frames");
            let copied = pool.take_copies(&mut burst, &frames, &mut Cursor::default(), 8);
            let intact = |packet: &Packet| *packet.application::<u64>() == 7;
            assert!(copied.packets == 8 && burst.iter().all(intact), "{length} bytes into {room}");
            let expected = if length <= fits { length } else { 0 };
            assert!(
                burst.iter().all(|packet| packet.packet_length() == expected),
                "{length} bytes into {room}"
            );
        }
    }
}

#[test]
fn a_shared_packet_goes_home_once_with_its_last_holder() {
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
