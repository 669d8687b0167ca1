//! What a ring between lanes costs.
//!
//! Bursts of 8-byte elements. The second lane puts them in, the first takes them out and counts; both touch the first
//! and the last element of each. On one lane, the first does both in turn.

use crate::bench::{Bench, BenchError, Measure, Options};
use crate::partner::Partner;
use warmlane_sync::mpmc::AnyRing;
use warmlane_sync::side::{Concurrent, HeadTail, Queued, RelaxedTail};
use warmlane_sync::spin::relax;
use warmlane_sync::{mpsc, spsc};

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: "ring-spsc",
        unit: "element",
        sentence: "single-producer single-consumer ring between two lanes, bulk 32",
        prepare: |options| two_lanes_spsc("ring-spsc", 32, options),
    },
    Bench {
        name: "ring-spsc-bulk-8",
        unit: "element",
        sentence: "single-producer single-consumer ring between two lanes, bulk 8",
        prepare: |options| two_lanes_spsc("ring-spsc-bulk-8", 8, options),
    },
    Bench {
        name: "ring-spsc-in-place",
        unit: "element",
        sentence: "single-producer single-consumer ring between two lanes, 32 written and read in place",
        prepare: in_place,
    },
    Bench {
        name: "ring-spsc-one-lane",
        unit: "element",
        sentence: "single-producer single-consumer ring, bulk 32 in and out on one lane",
        prepare: one_lane_spsc,
    },
    Bench {
        name: "ring-mpsc-one-lane",
        unit: "element",
        sentence: "multi-producer single-consumer ring, bulk 32 in and out on one lane",
        prepare: one_lane_mpsc,
    },
    Bench {
        name: "ring-mpmc-one-lane",
        unit: "element",
        sentence: "multi-producer multi-consumer ring, bulk 32 in and out on one lane",
        prepare: one_lane_mpmc,
    },
    Bench {
        name: "ring-mpsc",
        unit: "element",
        sentence: "multi-producer single-consumer ring between two lanes, bulk 32",
        prepare: two_lanes_mpsc,
    },
    Bench {
        name: "ring-mpmc",
        unit: "element",
        sentence: "multi-producer multi-consumer ring between two lanes, bulk 32",
        prepare: |options| two_lanes_mpmc::<Queued>("ring-mpmc", options),
    },
    Bench {
        name: "ring-hts",
        unit: "element",
        sentence: "ring with head and tail synchronised between two lanes, bulk 32",
        prepare: |options| two_lanes_mpmc::<HeadTail>("ring-hts", options),
    },
    Bench {
        name: "ring-rts",
        unit: "element",
        sentence: "ring with a relaxed tail between two lanes, bulk 32",
        prepare: |options| two_lanes_mpmc::<RelaxedTail>("ring-rts", options),
    },
];

/// Elements that the ring holds: 8 KiB, so that it stays in any L1.
const CAPACITY: usize = 1024;

/// The longest burst.
const LONGEST: usize = 256;

/// Bursts between two looks at the clock, or at whether the round is over.
const BURSTS: u64 = 64;

/// Pauses after a look that found too little. An end that looks at once again takes the other's line away before there is
/// more than a burst to see; waiting as long as some bursts take ("temporal slipping", Giacomoni et al., "FastForward
/// for efficient pipeline parallelism", PPoPP 2008) lets it find several at once.
const PAUSES: usize = 16;

fn pause() {
    for _ in 0..PAUSES {
        relax();
    }
}

fn burst(name: &'static str, default: usize, options: &Options) -> Result<usize, BenchError> {
    match options.burst.unwrap_or(default) {
        size @ 1..=LONGEST => Ok(size),
        size => Err(BenchError::setup(name, format!("bursts are of 1 to {LONGEST} elements, not {size}"))),
    }
}

/// A ring between two lanes.
struct TwoLanes<C> {
    /// Fills a burst from the ring, if it can.
    pop: C,
    size: usize,
    producer: Partner,
}

impl<C: FnMut(&mut [u64]) -> bool> Measure for TwoLanes<C> {
    fn work(&mut self) -> u64 {
        let (mut values, mut sum, mut done) = ([0; LONGEST], 0_u64, 0);
        let values = &mut values[..self.size];
        for _ in 0..BURSTS {
            if (self.pop)(values) {
                sum = sum.wrapping_add(values[0]).wrapping_add(values[values.len() - 1]);
                done += values.len() as u64;
            } else {
                pause();
            }
        }
        std::hint::black_box(sum);
        done
    }

    fn begin(&mut self) {
        self.producer.resume();
    }

    fn end(&mut self) {
        self.producer.pause();
    }
}

fn two_lanes(
    name: &'static str,
    size: usize,
    options: &Options,
    mut push: impl FnMut(&[u64]) -> bool + Send + 'static,
    pop: impl FnMut(&mut [u64]) -> bool + 'static,
) -> Result<Box<dyn Measure>, BenchError> {
    let cpu = BenchError::second_cpu(name, options)?;
    let producer = Partner::start(cpu, move || {
        let mut values = [0; LONGEST];
        Ok(move || {
            let values = &mut values[..size];
            for stamp in 0..BURSTS {
                values[0] = stamp;
                values[size - 1] = stamp;
                if !push(values) {
                    pause();
                }
            }
        })
    });
    let producer = producer.map_err(|reason| BenchError::setup(name, reason))?;
    Ok(Box::new(TwoLanes { pop, size, producer }))
}

fn two_lanes_spsc(
    name: &'static str,
    size: usize,
    options: &Options,
) -> Result<Box<dyn Measure>, BenchError> {
    let size = burst(name, size, options)?;
    let (mut producer, mut consumer) =
        spsc::ring(CAPACITY).map_err(|error| BenchError::setup(name, error))?;
    two_lanes(
        name,
        size,
        options,
        move |values| producer.push_bulk(values),
        move |values| consumer.pop_bulk(values),
    )
}

fn two_lanes_mpsc(options: &Options) -> Result<Box<dyn Measure>, BenchError> {
    let name = "ring-mpsc";
    let size = burst(name, 32, options)?;
    let (mut producer, mut consumer) =
        mpsc::ring(CAPACITY).map_err(|error| BenchError::setup(name, error))?;
    two_lanes(
        name,
        size,
        options,
        move |values| producer.push_bulk(values),
        move |values| consumer.pop_bulk(values),
    )
}

fn two_lanes_mpmc<S: Concurrent + 'static>(
    name: &'static str,
    options: &Options,
) -> Result<Box<dyn Measure>, BenchError> {
    let size = burst(name, 32, options)?;
    let ring = AnyRing::<u64, S>::new(CAPACITY).map_err(|error| BenchError::setup(name, error))?;
    let ring = std::sync::Arc::new(ring);
    let producers = ring.clone();
    two_lanes(
        name,
        size,
        options,
        move |values| producers.push_bulk(values),
        move |values| ring.pop_bulk(values),
    )
}

/// All elements are written and read, in the ring's own memory.
fn in_place(options: &Options) -> Result<Box<dyn Measure>, BenchError> {
    let name = "ring-spsc-in-place";
    let size = burst(name, 32, options)?;
    let cpu = BenchError::second_cpu(name, options)?;
    let (mut producer, mut consumer) =
        spsc::ring::<u64>(CAPACITY).map_err(|error| BenchError::setup(name, error))?;
    let partner = Partner::start(cpu, move || {
        Ok(move || {
            for stamp in 0..BURSTS {
                let Some(mut reservation) = producer.reserve_bulk(size) else {
                    pause();
                    continue;
                };
                let (first, second) = reservation.as_mut_slices();
                first.fill(stamp);
                second.fill(stamp);
                reservation.commit();
            }
        })
    });
    let partner = partner.map_err(|reason| BenchError::setup(name, reason))?;
    let work = move |values: &mut [u64]| {
        let Some(peek) = consumer.peek_bulk(values.len()) else { return false };
        let (first, second) = peek.as_slices();
        values[0] = first.iter().chain(second).fold(0, |sum, &value| sum.wrapping_add(value));
        peek.release();
        true
    };
    Ok(Box::new(TwoLanes { pop: work, size, producer: partner }))
}

/// A ring that one lane fills and empties in turns.
fn one_lane(
    size: usize,
    mut push: impl FnMut(&[u64]) -> bool + 'static,
    mut pop: impl FnMut(&mut [u64]) -> bool + 'static,
) -> Box<dyn Measure> {
    Box::new(move || {
        let (mut values, mut sum, mut done) = ([0; LONGEST], 0_u64, 0);
        let values = &mut values[..size];
        for stamp in 0..BURSTS {
            values[0] = stamp;
            values[size - 1] = stamp;
            if push(values) && pop(values) {
                sum = sum.wrapping_add(values[0]).wrapping_add(values[size - 1]);
                done += size as u64;
            }
        }
        std::hint::black_box(sum);
        done
    })
}

fn one_lane_spsc(options: &Options) -> Result<Box<dyn Measure>, BenchError> {
    let name = "ring-spsc-one-lane";
    let size = burst(name, 32, options)?;
    let (mut producer, mut consumer) =
        spsc::ring(CAPACITY).map_err(|error| BenchError::setup(name, error))?;
    Ok(one_lane(size, move |values| producer.push_bulk(values), move |values| consumer.pop_bulk(values)))
}

fn one_lane_mpsc(options: &Options) -> Result<Box<dyn Measure>, BenchError> {
    let name = "ring-mpsc-one-lane";
    let size = burst(name, 32, options)?;
    let (mut producer, mut consumer) =
        mpsc::ring(CAPACITY).map_err(|error| BenchError::setup(name, error))?;
    Ok(one_lane(size, move |values| producer.push_bulk(values), move |values| consumer.pop_bulk(values)))
}

fn one_lane_mpmc(options: &Options) -> Result<Box<dyn Measure>, BenchError> {
    let name = "ring-mpmc-one-lane";
    let size = burst(name, 32, options)?;
    let ring = AnyRing::<u64, Queued>::new(CAPACITY).map_err(|error| BenchError::setup(name, error))?;
    let ring = std::sync::Arc::new(ring);
    let producers = ring.clone();
    Ok(one_lane(size, move |values| producers.push_bulk(values), move |values| ring.pop_bulk(values)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_sys::affinity;

    #[test]
    fn every_ring_moves_elements() {
        let cpus = affinity::allowed_cpus().unwrap();
        let options = Options { second_cpu: Some(cpus[cpus.len() - 1]), ..Options::default() };
        for bench in BENCHES {
            let mut measure = (bench.prepare)(&options).unwrap();
            measure.begin();
            let start = std::time::Instant::now();
            while measure.work() == 0 {
                assert!(start.elapsed().as_secs() < 10, "{} moves nothing", bench.name);
                std::thread::yield_now();
            }
            measure.end();
        }
    }

    #[test]
    fn a_burst_that_cannot_be_is_refused() {
        for bench in BENCHES {
            let options = Options { burst: Some(0), second_cpu: Some(0), ..Options::default() };
            let error = (bench.prepare)(&options).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("bursts are of 1 to 256 elements, not 0"), "{}: {error}", bench.name);
        }
    }
}
