//! Packets that others hold as well, and copies: nobody writes to what others read, and all is freed once.

use crate::common::{Everything, KINDS, config, pool, take_all};
use warmlane_mem::{Burst, Packet, Pool, PoolConfig, PoolKind, SharedPacket, channel};

fn filled(pool: &Pool, text: &[u8]) -> Packet {
    let mut packet = pool.take().expect("a buffer");
    packet.fill(text).expect("fits");
    packet
}

fn bytes(packet: &Packet) -> Vec<u8> {
    packet.segment_data().collect::<Vec<_>>().concat()
}

/// "abcdef" in two segments.
fn shared(pool: &Pool) -> SharedPacket {
    let mut packet = filled(pool, b"abc");
    packet.chain(filled(pool, b"def")).expect("two segments");
    packet.share()
}

/// `header`, and the shared packet behind.
fn behind(pool: &Pool, header: &[u8], rest: &SharedPacket) -> Packet {
    let mut packet = filled(pool, header);
    packet.chain_shared(rest.clone()).expect("three segments");
    assert!(packet.has_shared_data());
    packet
}

fn assert_whole(pool: &Pool) {
    assert_eq!(pool.ledger().outstanding(), 0, "{}", pool.name());
    let packets = take_all(pool);
    assert_eq!(packets.len(), pool.buffers() as usize);
    assert!(packets.iter().all(|packet| packet.segments() == 1 && packet.segment_data().count() == 1));
}

#[test]
fn a_shared_packet_travels_behind_headers_to_other_lanes() {
    for kind in KINDS {
        for attached in [false, true] {
            let pool = pool(kind, 64);
            let rest = shared(&pool);
            let lanes: Vec<_> = (0..3_u8)
                .map(|number| {
                    let (mut sender, mut receiver) = channel(16).expect("a power of two");
                    let (mut burst, pool) = (Burst::new(), pool.clone());
                    for _ in 0..8 {
                        burst.push(behind(&pool, &[number], &rest)).expect("space");
                    }
                    assert_eq!(sender.send(&mut burst), 8);
                    std::thread::spawn(move || {
                        let lane = attached.then(|| pool.attach().expect("first attachment"));
                        assert_eq!(receiver.receive(&mut burst), 8);
                        for packet in burst.iter_mut() {
                            packet.data_mut()[0] += b'0';
                            assert_eq!(bytes(packet), [&[number + b'0'], &b"abcdef"[..]].concat());
                        }
                        drop(burst);
                        drop(lane);
                    })
                })
                .collect();
            assert_eq!(bytes(&rest), b"abcdef");
            drop(rest);
            for lane in lanes {
                lane.join().expect("no panic");
            }
            assert_whole(&pool);
        }
    }
}

#[test]
fn who_cuts_or_splits_gets_a_copy_while_others_hold_it() {
    let pool = pool(PoolKind::Depot, 8);
    let rest = shared(&pool);
    let mut cut = behind(&pool, b"1", &rest);
    assert!(cut.truncate(3));
    assert_eq!((bytes(&cut), cut.packet_length(), cut.has_shared_data()), (b"1ab".to_vec(), 3, false));
    let mut split = behind(&pool, b"2", &rest);
    let mut tail = split.split_chain().expect("a tail");
    tail.data_mut().fill(b'x');
    assert_eq!((bytes(&tail), split.segments()), (b"xxxxxx".to_vec(), 1));
    assert_eq!((bytes(&rest), rest.holders()), (b"abcdef".to_vec(), 1));
    drop((cut, tail));
    // What nobody else holds is nobody's copy.
    split.chain_shared(rest).expect("three segments");
    let id = split.split_chain().expect("a tail").id();
    let again = take_all(&pool);
    assert!(again.iter().any(|packet| packet.id() == id));
    drop((again, split));
    assert_whole(&pool);
}

#[test]
fn without_a_buffer_for_a_copy_all_is_as_it_was() {
    let pool = pool(PoolKind::Depot, 3);
    let rest = shared(&pool);
    let mut packet = behind(&pool, b"1", &rest);
    assert!(!packet.truncate(3));
    assert!(packet.split_chain().is_none());
    assert_eq!((bytes(&packet), packet.segments(), packet.packet_length()), (b"1abcdef".to_vec(), 3, 7));
    // Nothing is needed to cut all of it.
    assert!(packet.truncate(1));
    assert_eq!((bytes(&packet), rest.holders()), (b"1".to_vec(), 1));
    packet.chain_shared(rest).expect("three segments");
    packet.fill(b"another").expect("fits");
    assert_eq!((packet.segments(), pool.ledger().outstanding()), (1, 1));
    drop(packet);
    assert_whole(&pool);
}

#[test]
fn nothing_is_hung_behind_what_others_hold() {
    let pool = pool(PoolKind::Depot, 8);
    let rest = shared(&pool);
    let mut packet = behind(&pool, b"1", &rest);
    assert!(packet.chain(filled(&pool, b"2")).is_err());
    assert!(packet.chain_shared(rest.clone()).is_err());
    assert_eq!((bytes(&packet), bytes(&rest), rest.holders()), (b"1abcdef".to_vec(), b"abcdef".to_vec(), 2));
    // In front of it, and shared once more.
    let mut front = filled(&pool, b"0");
    front.chain(packet).expect("four segments");
    let outer = front.share();
    drop(rest);
    assert_eq!(bytes(&outer), b"01abcdef");
    let (one, two) = (behind(&pool, b"x", &outer), behind(&pool, b"y", &outer));
    drop(outer);
    drop(one);
    assert_eq!((bytes(&two), pool.ledger().outstanding()), (b"y01abcdef".to_vec(), 5));
    drop(two);
    assert_whole(&pool);
}

#[test]
fn a_pool_outlives_its_handle_while_packets_share_a_tail() {
    let pool = pool(PoolKind::Depot, 8);
    let rest = shared(&pool);
    let packets = [behind(&pool, b"1", &rest), behind(&pool, b"2", &rest)];
    drop(rest);
    drop(pool);
    for mut packet in packets {
        // There is no handle by which a buffer could be had.
        let cut = packet.truncate(2);
        assert!(cut || bytes(&packet)[1..] == *b"abcdef");
    }
}

#[test]
fn a_copy_is_the_same_in_another_pool() {
    let from = pool(PoolKind::Depot, 8);
    let mut packet = filled(&from, &[1; 2_048]);
    packet.chain(filled(&from, b"")).expect("two segments");
    packet.chain(filled(&from, &[2; 1_000])).expect("three segments");
    packet.set_port(3);
    packet.set_timestamp(4);
    *packet.application_mut::<u64>() = 5;
    Everything::SAMPLE.put(&mut packet);
    for (data_size, buffers, segments) in
        [(2_048, 8, 2), (4_000, 8, 1), (1_524, 2, 2), (100, 31, 31), (8, 255, 0)]
    {
        // A long chain takes an interpreter minutes.
        if cfg!(miri) && buffers > 100 {
            continue;
        }
        let to =
            Pool::new(&PoolConfig { data_size, ..config(PoolKind::Depot, buffers) }).expect("plain pages");
        let Some(copy) = packet.copy_in(&to) else {
            assert_eq!((segments, to.ledger().outstanding()), (0, 0), "{data_size}");
            continue;
        };
        assert_eq!((copy.segments(), to.ledger().outstanding()), (segments, segments as u64), "{data_size}");
        assert_eq!((bytes(&copy), copy.packet_length()), (bytes(&packet), 3_048));
        assert_eq!((copy.port(), copy.timestamp(), *copy.application::<u64>()), (3, 4, 5));
        assert_eq!(Everything::of(&copy), Everything::SAMPLE);
        // One buffer fewer than it takes.
        assert!(packet.copy_in(&to).is_none() || to.buffers() as usize >= 2 * segments);
        drop(copy);
        assert_whole(&to);
    }
    assert_eq!(bytes(&packet.copy_in(&from).expect("five are free")), bytes(&packet));
    assert_eq!(bytes(&filled(&from, b"").copy_in(&from).expect("free")), b"");
    // A copy of a shared packet is nobody else's.
    let shared = packet.share();
    let mut head = filled(&from, b"0");
    head.chain(shared.copy_in(&from).expect("free")).expect("three segments");
    assert!(!head.has_shared_data());
}
