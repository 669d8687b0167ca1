//! Rings.
//!
//! As our own benches: the second lane puts elements in, the first takes them out and counts.

use crossbeam_queue::ArrayQueue;
use std::sync::Arc;
use warmlane_lab::bench::{Bench, BenchError, Measure, Options};
use warmlane_lab::partner::Partner;

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "ring-rtrb",
        unit: "element",
        sentence: "rtrb between two lanes, chunks of 32 copied in and out",
        prepare: rtrb,
    },
    Bench {
        name: "ring-array-queue",
        unit: "element",
        sentence: "crossbeam's ArrayQueue between two lanes, one by one: it has no bulk",
        prepare: array_queue,
    },
];

/// As on our side.
const CAPACITY: usize = 1024;
const BURSTS: u64 = 64;
const PAUSES: usize = 16;
const LONGEST: usize = 256;

fn pause() {
    for _ in 0..PAUSES {
        std::hint::spin_loop();
    }
}

struct TwoLanes<C> {
    pop: C,
    producer: Partner,
}

impl<C: FnMut() -> u64> Measure for TwoLanes<C> {
    fn work(&mut self) -> u64 {
        (self.pop)()
    }

    fn begin(&mut self) {
        self.producer.resume();
    }

    fn end(&mut self) {
        self.producer.pause();
    }
}

fn rtrb(options: &Options) -> Result<Box<dyn Measure>, BenchError> {
    let name = "ring-rtrb";
    let size = options.burst.unwrap_or(32).clamp(1, LONGEST);
    let cpu = BenchError::second_cpu(name, options)?;
    let (mut producer, mut consumer) = rtrb::RingBuffer::<u64>::new(CAPACITY);
    let partner = Partner::start(cpu, move || {
        let mut values = [0; LONGEST];
        Ok(move || {
            let values = &mut values[..size];
            for stamp in 0..BURSTS {
                values[0] = stamp;
                values[size - 1] = stamp;
                let Ok(mut chunk) = producer.write_chunk(size) else {
                    pause();
                    continue;
                };
                let (first, second) = chunk.as_mut_slices();
                let middle = first.len();
                first.copy_from_slice(&values[..middle]);
                second.copy_from_slice(&values[middle..]);
                chunk.commit_all();
            }
        })
    });
    let producer = partner.map_err(|reason| BenchError::setup(name, reason))?;
    let pop = move || {
        let (mut values, mut sum, mut done) = ([0; LONGEST], 0_u64, 0);
        let values = &mut values[..size];
        for _ in 0..BURSTS {
            let Ok(chunk) = consumer.read_chunk(size) else {
                pause();
                continue;
            };
            let (first, second) = chunk.as_slices();
            let middle = first.len();
            values[..middle].copy_from_slice(first);
            values[middle..].copy_from_slice(second);
            chunk.commit_all();
            sum = sum.wrapping_add(values[0]).wrapping_add(values[size - 1]);
            done += size as u64;
        }
        std::hint::black_box(sum);
        done
    };
    Ok(Box::new(TwoLanes { pop, producer }))
}

fn array_queue(options: &Options) -> Result<Box<dyn Measure>, BenchError> {
    let name = "ring-array-queue";
    let cpu = BenchError::second_cpu(name, options)?;
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
    let producer = partner.map_err(|reason| BenchError::setup(name, reason))?;
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
    Ok(Box::new(TwoLanes { pop, producer }))
}
