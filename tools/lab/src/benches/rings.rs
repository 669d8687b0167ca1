//! What a ring between lanes costs.
//!
//! Bursts of 8-byte elements. The second lane puts them in, the first takes them out and counts; both touch the first
//! and the last element of each. On one lane, the first does both in turn.

use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::partner::{Partner, beside};
use crate::ring_shape::{BURSTS, CAPACITY, LONGEST, pause, popping, pushing};
use crate::setting::Lanes;
use crate::setting::Setting;
use std::sync::Arc;
use warmlane_sync::extra::mpsc;
use warmlane_sync::extra::{HeadTail, RelaxedTail};
use warmlane_sync::mpmc::AnyRing;
use warmlane_sync::side::{Concurrent, Queued};
use warmlane_sync::spsc;

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: "ring-spsc",
        unit: "element",
        sentence: "single-producer single-consumer ring between two lanes, bulk 32",
        lanes: Lanes::Two,
        prepare: |setting| two_lanes(32, setting, spsc_ring()?),
    },
    Bench {
        name: "ring-spsc-bulk-8",
        unit: "element",
        sentence: "single-producer single-consumer ring between two lanes, bulk 8",
        lanes: Lanes::Two,
        prepare: |setting| two_lanes(8, setting, spsc_ring()?),
    },
    Bench {
        name: "ring-spsc-in-place",
        unit: "element",
        sentence: "single-producer single-consumer ring between two lanes, 32 written and read in place",
        lanes: Lanes::Two,
        prepare: in_place,
    },
    Bench {
        name: "ring-spsc-one-lane",
        unit: "element",
        sentence: "single-producer single-consumer ring, bulk 32 in and out on one lane",
        lanes: Lanes::One,
        prepare: |setting| one_lane(setting, spsc_ring()?),
    },
    Bench {
        name: "ring-mpsc-one-lane",
        unit: "element",
        sentence: "multi-producer single-consumer ring, bulk 32 in and out on one lane",
        lanes: Lanes::One,
        prepare: |setting| one_lane(setting, mpsc_ring()?),
    },
    Bench {
        name: "ring-mpmc-one-lane",
        unit: "element",
        sentence: "multi-producer multi-consumer ring, bulk 32 in and out on one lane",
        lanes: Lanes::One,
        prepare: |setting| one_lane(setting, mpmc_ring::<Queued>()?),
    },
    Bench {
        name: "ring-mpsc",
        unit: "element",
        sentence: "multi-producer single-consumer ring between two lanes, bulk 32",
        lanes: Lanes::Two,
        prepare: |setting| two_lanes(32, setting, mpsc_ring()?),
    },
    Bench {
        name: "ring-mpmc",
        unit: "element",
        sentence: "multi-producer multi-consumer ring between two lanes, bulk 32",
        lanes: Lanes::Two,
        prepare: |setting| two_lanes(32, setting, mpmc_ring::<Queued>()?),
    },
    Bench {
        name: "ring-hts",
        unit: "element",
        sentence: "ring with head and tail synchronised between two lanes, bulk 32",
        lanes: Lanes::Two,
        prepare: |setting| two_lanes(32, setting, mpmc_ring::<HeadTail>()?),
    },
    Bench {
        name: "ring-rts",
        unit: "element",
        sentence: "ring with a relaxed tail between two lanes, bulk 32",
        lanes: Lanes::Two,
        prepare: |setting| two_lanes(32, setting, mpmc_ring::<RelaxedTail>()?),
    },
];

fn burst(default: usize, setting: &Setting) -> Result<usize, LabError> {
    match setting.burst.unwrap_or(default) {
        size @ 1..=LONGEST => Ok(size),
        size => Err(LabError::setup(format!("bursts are of 1 to {LONGEST} elements, not {size}"))),
    }
}

/// The end of a ring that a burst is put into. All that these do is inlined: a call would be measured, too.
trait Push: Send + 'static {
    /// Puts all of them in; `false`: none, for want of space.
    fn push(&mut self, values: &[u64]) -> bool;
}

/// The end that a burst is taken from.
trait Pop: 'static {
    /// Fills all of them; `false`: none, as fewer are there.
    fn pop(&mut self, values: &mut [u64]) -> bool;
}

macro_rules! ends_in_bulk {
    ($([$($generic:tt)*] $producer:ty, $consumer:ty;)*) => {$(
        impl $($generic)* Push for $producer {
            #[inline(always)]
            fn push(&mut self, values: &[u64]) -> bool {
                self.push_bulk(values)
            }
        }

        impl $($generic)* Pop for $consumer {
            #[inline(always)]
            fn pop(&mut self, values: &mut [u64]) -> bool {
                self.pop_bulk(values)
            }
        }
    )*};
}

ends_in_bulk! {
    [] spsc::Producer<u64>, spsc::Consumer<u64>;
    [] mpsc::Producer<u64>, mpsc::Consumer<u64>;
    [<S: Concurrent + 'static>] Arc<AnyRing<u64, S>>, Arc<AnyRing<u64, S>>;
}

fn spsc_ring() -> Result<(spsc::Producer<u64>, spsc::Consumer<u64>), LabError> {
    spsc::ring(CAPACITY).map_err(LabError::setup)
}

fn mpsc_ring() -> Result<(mpsc::Producer<u64>, mpsc::Consumer<u64>), LabError> {
    mpsc::ring(CAPACITY).map_err(LabError::setup)
}

fn mpmc_ring<S: Concurrent + 'static>() -> Result<(impl Push, impl Pop), LabError> {
    let ring = Arc::new(AnyRing::<u64, S>::new(CAPACITY).map_err(LabError::setup)?);
    Ok((Arc::clone(&ring), ring))
}

fn two_lanes(
    size: usize,
    setting: &Setting,
    (mut producer, mut consumer): (impl Push, impl Pop),
) -> Result<Box<dyn Measure>, LabError> {
    let size = burst(size, setting)?;
    let push = move |values: &[u64]| producer.push(values);
    let partner = Partner::start(setting.second_cpu()?, move || Ok(pushing(size, push)));
    let pop = popping(size, move |values| consumer.pop(values));
    Ok(beside(partner.map_err(LabError::setup)?, pop))
}

/// All elements are written and read, in the ring's own memory.
fn in_place(setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let size = burst(32, setting)?;
    let (mut producer, consumer) = spsc_ring()?;
    let partner = Partner::start(setting.second_cpu()?, move || {
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
    let mut consumer = InPlace(consumer);
    let pop = popping(size, move |values| consumer.pop(values));
    Ok(beside(partner.map_err(LabError::setup)?, pop))
}

/// The end of a ring whose elements are summed up where they lie.
struct InPlace(spsc::Consumer<u64>);

impl Pop for InPlace {
    #[inline(always)]
    fn pop(&mut self, values: &mut [u64]) -> bool {
        let Some(peek) = self.0.peek_bulk(values.len()) else { return false };
        let (first, second) = peek.as_slices();
        values[0] = first.iter().chain(second).fold(0, |sum, &value| sum.wrapping_add(value));
        peek.release();
        true
    }
}

/// A ring that one lane fills and empties in turns.
fn one_lane(
    setting: &Setting,
    (mut producer, mut consumer): (impl Push, impl Pop),
) -> Result<Box<dyn Measure>, LabError> {
    let size = burst(32, setting)?;
    Ok(Box::new(move || {
        let (mut values, mut sum, mut done) = ([0; LONGEST], 0_u64, 0);
        let values = &mut values[..size];
        for stamp in 0..BURSTS {
            values[0] = stamp;
            values[size - 1] = stamp;
            if producer.push(values) && consumer.pop(values) {
                sum = sum.wrapping_add(values[0]).wrapping_add(values[size - 1]);
                done += size as u64;
            }
        }
        std::hint::black_box(sum);
        done
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_sys::affinity;

    #[test]
    fn every_ring_moves_elements() {
        let cpus = affinity::allowed_cpus().unwrap();
        let setting = Setting { second_cpu: Some(cpus[cpus.len() - 1]), ..Setting::default() };
        for bench in BENCHES {
            let mut measure = (bench.prepare)(&setting).unwrap();
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
            let setting = Setting { burst: Some(0), second_cpu: Some(0), ..Setting::default() };
            let error = (bench.prepare)(&setting).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("bursts are of 1 to 256 elements, not 0"), "{}: {error}", bench.name);
        }
    }
}
