//! Staged rings between real threads, and more threads than cores: every element passes every stage once, and they come out
//! in the order in which they went in.
#![cfg(not(loom))]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use warmlane_sync::extra::staged;
use warmlane_sync::extra::{HeadTail, RelaxedTail};
use warmlane_sync::side::{Concurrent, Queued, Side, Single};

mod stop;
use stop::Stop;

/// How long each test keeps its threads busy.
const DURATION: Duration = Duration::from_millis(200);
const CAPACITY: usize = 64;
const STAGES: usize = 3;

/// What stage `number` makes of an element: of any two stages, the order matters.
fn change(number: usize, value: u64) -> u64 {
    (value + number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7)
}

fn changed_by_all(value: u64) -> u64 {
    (0..STAGES).fold(value, |value, number| change(number, value))
}

/// Works until told to stop; bursts of 1 to 7 elements, some all or nothing.
fn work<S: Side>(mut stage: staged::Stage<u64, S>, number: usize, stop: &AtomicBool) {
    let mut turn = number;
    while !stop.load(Ordering::Acquire) {
        turn += 1;
        let work = if turn.is_multiple_of(2) {
            stage.work_burst(turn % 7 + 1)
        } else {
            stage.work_bulk(turn % 7 + 1)
        };
        match work {
            Some(mut work) if turn.is_multiple_of(3) => work.update(|value| change(number, value)),
            Some(mut work) => {
                let (first, second) = work.as_mut_slices();
                first.iter_mut().chain(second).for_each(|value| *value = change(number, *value));
            }
            None => thread::yield_now(),
        }
    }
}

/// `workers` are all threads of each stage.
fn elements_pass_all_stages_in_order<S: Side + Send + Sync>(
    workers: impl Fn(staged::Stage<u64, S>) -> Vec<staged::Stage<u64, S>>,
) {
    let (mut producer, stages, mut consumer) = staged::ring::<u64, S>(CAPACITY, STAGES).unwrap();
    let stop = AtomicBool::new(false);
    let received = thread::scope(|scope| {
        let at_the_end = Stop(&stop);
        for (number, stage) in stages.into_iter().enumerate() {
            for worker in workers(stage) {
                let stop = &stop;
                scope.spawn(move || work(worker, number, stop));
            }
        }
        let sender = scope.spawn(move || {
            let (start, mut next) = (Instant::now(), 0);
            while start.elapsed() < DURATION {
                let values: Vec<u64> = (next..=next + next % 9).collect();
                let sent = producer.push_burst(&values);
                next += sent as u64;
                if sent == 0 {
                    thread::yield_now();
                }
            }
            next
        });
        let (mut received, mut values, mut sent) = (0, [0; 8], None);
        let mut sender = Some(sender);
        while sent != Some(received) {
            let count = consumer.pop_burst(&mut values);
            for &value in &values[..count] {
                assert_eq!(value, changed_by_all(received), "the {received}th");
                received += 1;
            }
            if count == 0 {
                thread::yield_now();
            }
            if consumer.is_disconnected()
                && let Some(sender) = sender.take()
            {
                sent = Some(sender.join().unwrap());
            }
        }
        drop(at_the_end);
        received
    });
    assert!(received > 0 && consumer.is_empty());
}

fn several<S: Concurrent>(stage: staged::Stage<u64, S>) -> Vec<staged::Stage<u64, S>> {
    vec![stage.clone(), stage.clone(), stage]
}

#[test]
fn one_thread_a_stage() {
    elements_pass_all_stages_in_order::<Single>(|stage| vec![stage]);
}

#[test]
fn three_threads_a_stage_queued() {
    elements_pass_all_stages_in_order::<Queued>(several);
}

#[test]
fn three_threads_a_stage_head_and_tail_synchronised() {
    elements_pass_all_stages_in_order::<HeadTail>(several);
}

#[test]
fn three_threads_a_stage_relaxed_tail() {
    elements_pass_all_stages_in_order::<RelaxedTail>(several);
}
