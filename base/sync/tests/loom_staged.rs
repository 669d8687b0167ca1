//! Model checking of the ring with stages, as [`loom_rings.rs`](loom_rings.rs) has it for the others.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p warmlane-sync --release --test loom_staged
//! ```
#![cfg(loom)]

mod models;

use loom::thread;
use models::model;
use warmlane_sync::extra::{HeadTail, RelaxedTail, staged};
use warmlane_sync::side::{Concurrent, Queued, Single};

#[test]
fn each_stage_sees_what_the_one_before_did() {
    model(3, || {
        let (mut producer, mut stages, mut consumer) = staged::ring::<u32, Single>(2, 1).unwrap();
        let mut stage = stages.pop().unwrap();
        let worker = thread::spawn(move || {
            let mut done = 0;
            for _ in 0..2 {
                if let Some(mut work) = stage.work_burst(2) {
                    work.update(|value| value + 10);
                    done += work.count();
                }
            }
            (stage, done)
        });
        assert!(producer.push_bulk(&[1, 2]));
        let mut received = Vec::new();
        let mut take = |consumer: &mut staged::Consumer<u32, Single>| {
            let mut values = [0; 2];
            let count = consumer.pop_burst(&mut values);
            received.extend_from_slice(&values[..count]);
        };
        take(&mut consumer);
        // If there is space already, the producer writes where the stage has worked and the consumer read.
        let more = producer.push_burst(&[3]);
        let (mut stage, _) = worker.join().unwrap();
        if let Some(mut work) = stage.work_burst(3) {
            work.update(|value| value + 10);
        }
        take(&mut consumer);
        take(&mut consumer);
        assert_eq!(received, [11, 12, 13][..2 + more]);
    });
}

/// Two workers of one stage: what either has done is passed on, in order.
fn workers_of_one_stage_keep_the_order<S: Concurrent + 'static>(capacity: usize) {
    model(2, move || {
        let (mut producer, mut stages, mut consumer) = staged::ring::<u32, S>(capacity, 1).unwrap();
        assert!(producer.push_bulk(&[1, 2]));
        let stage = stages.pop().unwrap();
        let workers = [stage.clone(), stage]
            .map(|mut stage| thread::spawn(move || stage.work_bulk(1).unwrap().update(|value| value + 10)));
        let mut values = [0; 2];
        let mut count = consumer.pop_burst(&mut values);
        for worker in workers {
            worker.join().unwrap();
        }
        count += consumer.pop_burst(&mut values[count..]);
        assert_eq!((count, values), (2, [11, 12]));
    });
}

#[test]
fn workers_keep_the_order_queued() {
    workers_of_one_stage_keep_the_order::<Queued>(2);
}

#[test]
fn workers_keep_the_order_head_and_tail_synchronised() {
    workers_of_one_stage_keep_the_order::<HeadTail>(2);
}

#[test]
fn workers_keep_the_order_relaxed_tail() {
    workers_of_one_stage_keep_the_order::<RelaxedTail>(16);
}

#[test]
fn nothing_is_lost_when_the_producer_leaves() {
    model(4, || {
        let (mut producer, _stages, consumer) = staged::ring::<u32, Single>(2, 1).unwrap();
        let sender = thread::spawn(move || assert!(producer.push_bulk(&[1])));
        if consumer.is_disconnected() {
            assert_eq!(consumer.len(), 1);
        }
        sender.join().unwrap();
        assert!(consumer.is_disconnected());
    });
}
