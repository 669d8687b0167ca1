//! Rings.
//!
//! As our own benches: the second lane puts elements in, the first takes them out and counts.

use crossbeam_queue::ArrayQueue;
use std::sync::Arc;
use warmlane_lab::bench::Bench;
use warmlane_lab::error::LabError;
use warmlane_lab::measure::Measure;
use warmlane_lab::partner::{Partner, beside};
use warmlane_lab::ring_shape::{BURSTS, CAPACITY, LONGEST, pause, popping, pushing};
use warmlane_lab::setting::{Lanes, Setting};

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "ring-rtrb",
        unit: "element",
        sentence: "rtrb between two lanes, chunks of 32 copied in and out",
        lanes: Lanes::Two,
        prepare: rtrb,
    },
    Bench {
        name: "ring-array-queue",
        unit: "element",
        sentence: "crossbeam's ArrayQueue between two lanes, one by one: it has no bulk",
        lanes: Lanes::Two,
        prepare: array_queue,
    },
];

fn rtrb(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let size = setting.burst.unwrap_or(32).clamp(1, LONGEST);
    let cpu = setting.second_cpu()?;
    let (mut producer, mut consumer) = rtrb::RingBuffer::<u64>::new(CAPACITY);
    let push = move |values: &[u64]| {
        let Ok(mut chunk) = producer.write_chunk(values.len()) else { return false };
        let (first, second) = chunk.as_mut_slices();
        let middle = first.len();
        first.copy_from_slice(&values[..middle]);
        second.copy_from_slice(&values[middle..]);
        chunk.commit_all();
        true
    };
    let partner = Partner::start(cpu, move || Ok(pushing(size, push)));
    let producer = partner.map_err(LabError::setup)?;
    let pop = popping(size, move |values| {
        let Ok(chunk) = consumer.read_chunk(values.len()) else { return false };
        let (first, second) = chunk.as_slices();
        let middle = first.len();
        values[..middle].copy_from_slice(first);
        values[middle..].copy_from_slice(second);
        chunk.commit_all();
        true
    });
    Ok(beside(producer, pop))
}

fn array_queue(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let cpu = setting.second_cpu()?;
    let queue = Arc::new(ArrayQueue::<u64>::new(CAPACITY));
    let consumer = Arc::clone(&queue);
    let partner = Partner::start(cpu, move || {
        Ok(move || {
            for stamp in 0..BURSTS {
                if queue.push(stamp).is_err() {
                    pause();
                }
            }
        })
    });
    let producer = partner.map_err(LabError::setup)?;
    let pop = move || {
        let (mut sum, mut done) = (0_u64, 0);
        for _ in 0..BURSTS {
            if let Some(value) = consumer.pop() {
                sum = sum.wrapping_add(value);
                done += 1;
            } else {
                pause();
            }
        }
        std::hint::black_box(sum);
        done
    };
    Ok(beside(producer, pop))
}
