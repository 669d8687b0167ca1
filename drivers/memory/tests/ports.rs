//! The memory ports, as a lane uses them.

use std::sync::Arc;
use warmlane_mem::{Burst, Pool, PoolConfig};
use warmlane_memory::replay::{self, Frames, ReplayConfig, ReplayError};
use warmlane_memory::{null, ring_pair};
use warmlane_port::QueueStatus;

fn pool(buffers: u32, data_size: usize) -> Pool {
    Pool::new(&PoolConfig { buffers, data_size, ..PoolConfig::default() }).expect("a small pool")
}

fn frames(lengths: &[usize]) -> Arc<Frames> {
    let mut frames = Frames::new();
    for (number, &length) in lengths.iter().enumerate() {
        let frame: Vec<u8> = (0..length).map(|byte| (byte + number) as u8).collect();
        frames.push(&frame).expect("far below 256 GiB");
    }
    Arc::new(frames)
}

/// Receives all there is, a few at a time, and returns the frames.
fn receive_all(frames: &Arc<Frames>, pool: &Pool, rounds: u64, burst: usize) -> (Vec<Vec<u8>>, u64) {
    let config = ReplayConfig { rounds: Some(rounds), queues: 1 };
    let mut port = replay::open("test", frames, pool, config).expect("frames to replay");
    let queue = &mut port.receive[0];
    let mut seen = Vec::new();
    let mut burst = Burst::with_limit(burst);
    while queue.status() == QueueStatus::Running {
        let received = queue.receive(&mut burst);
        assert_eq!(received, burst.len());
        seen.extend(burst.iter().map(|packet| packet.segment_data().collect::<Vec<_>>().concat()));
        burst.clear();
    }
    assert_eq!(queue.receive(&mut burst), 0);
    let counters = queue.counters();
    assert_eq!(counters.packets(), seen.len() as u64);
    assert_eq!(counters.bytes(), seen.iter().map(|frame| frame.len() as u64).sum::<u64>());
    (seen, counters.drops().total())
}

#[test]
fn a_replay_gives_every_frame_in_order_each_round() {
    let lengths: Vec<usize> = (0..300).map(|number| number * 7 % 1_515).collect();
    let frames = frames(&lengths);
    let expected: Vec<Vec<u8>> = (0..3)
        .flat_map(|_| lengths.iter().enumerate())
        .map(|(number, &length)| (0..length).map(|byte| (byte + number) as u8).collect())
        .collect();
    for attached in [false, true] {
        for burst in [1, 7, 64, 256] {
            let pool = pool(512, 2_048);
            let lane = attached.then(|| pool.attach().expect("first attachment"));
            let (seen, lost) = receive_all(&frames, &pool, 3, burst);
            assert!(seen == expected && lost == 0, "attached {attached}, burst {burst}");
            drop(lane);
            assert_eq!(pool.ledger().outstanding(), 0);
        }
    }
}

#[test]
fn frames_longer_than_a_buffer_are_chained() {
    let lengths = [60, 9_000, 100, 2_048, 2_049];
    let pool = pool(64, 2_048);
    let _lane = pool.attach().expect("first attachment");
    let (seen, lost) = receive_all(&frames(&lengths), &pool, 2, 4);
    let expected: Vec<usize> = lengths.iter().chain(&lengths).copied().collect();
    assert_eq!(seen.iter().map(Vec::len).collect::<Vec<_>>(), expected);
    assert_eq!(seen[1], (0..9_000_usize).map(|byte| (byte + 1) as u8).collect::<Vec<_>>());
    assert_eq!((lost, pool.ledger().outstanding()), (0, 0));
}

#[test]
fn a_frame_that_the_pool_is_too_small_for_is_a_counted_drop() {
    let pool = pool(3, 2_048);
    let (seen, lost) = receive_all(&frames(&[60, 9_000, 70]), &pool, 1, 1);
    assert_eq!(seen.iter().map(Vec::len).collect::<Vec<_>>(), [60, 70]);
    assert_eq!((lost, pool.ledger().outstanding()), (1, 0));
}

#[test]
fn nothing_and_too_much_to_replay_are_refused() {
    let error = replay::open("test", &frames(&[]), &pool(4, 2_048), ReplayConfig::default());
    assert!(matches!(error, Err(ReplayError::Empty)));
    let error = replay::open("test", &frames(&[64 * 256]), &pool(4, 64), ReplayConfig::default());
    assert!(matches!(error, Err(ReplayError::FrameTooLong { length: 16_384, data_size: 64 })));
}

#[test]
fn what_one_end_of_a_pair_sends_the_other_receives() {
    let pool = pool(128, 256);
    let [mut left, mut right] = ring_pair::open(["left", "right"], 64).expect("a power of two");
    let mut burst = Burst::with_limit(100);
    pool.take_burst(&mut burst, 100);
    for packet in burst.iter_mut() {
        packet.fill(b"across").expect("fits");
    }
    assert_eq!(left.transmit[0].transmit(&mut burst), 64);
    assert_eq!((burst.len(), left.transmit[0].counters().bytes()), (36, 64 * 6));
    let mut other = Burst::new();
    assert_eq!(right.receive[0].receive(&mut other), 64);
    assert!(other.iter().all(|packet| packet.data() == b"across"));
    assert_eq!(right.receive[0].status(), QueueStatus::Running);
    left.transmit[0].transmit(&mut burst);
    drop(left);
    other.clear();
    // What was sent before the end went is still received.
    assert_eq!(right.receive[0].status(), QueueStatus::Running);
    assert_eq!(right.receive[0].receive(&mut other), 36);
    assert_eq!(right.receive[0].status(), QueueStatus::Finished);
    drop((burst, other));
    assert_eq!(pool.ledger().outstanding(), 0);
    assert!(ring_pair::open(["left", "right"], 3).is_err());
}

#[test]
fn null_counts_what_it_swallows_and_gives() {
    let pool = pool(128, 256);
    let mut source = null::source("source", &pool, 100).expect("fits");
    let mut sink = null::sink("sink", 2);
    let mut burst = Burst::new();
    assert_eq!(source.receive[0].receive(&mut burst), 64);
    assert!(burst.iter().all(|packet| packet.len() == 100));
    assert_eq!(sink.transmit[1].transmit(&mut burst), 64);
    assert_eq!(sink.transmit[1].counters().bytes(), 6_400);
    assert_eq!(pool.ledger().outstanding(), 0);
    assert!(null::source("source", &pool, 257).is_err());
}
