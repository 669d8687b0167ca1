//! What an access of the cache model costs. A workload of some seconds makes hundreds of millions.

use crate::bench::Bench;
use crate::cache_model::{Geometry, Hierarchy, Inclusion, LINE_BYTES, Machine, Replacement};
use crate::error::LabError;
use crate::measure::Measure;
use crate::random::Xorshift;
use crate::setting::{Lanes, Setting};

pub(super) const BENCHES: &[Bench] = &[Bench {
    name: "cache-model",
    unit: "access",
    sentence: "accesses of a modelled Xeon Gold 6148: a card and a core pass over frames of 1,520 bytes in 750 buffers",
    lanes: Lanes::One,
    prepare,
}];

const fn level(kib: u64, ways: u32, slices: u32, replacement: Replacement) -> Geometry {
    Geometry { bytes: kib << 10, ways, slices, replacement }
}

/// A Xeon Gold 6148.
const MACHINE: Machine = Machine {
    cores: 20,
    first: level(32, 8, 1, Replacement::Tree),
    second: level(1_024, 16, 1, Replacement::Tree),
    shared: level(28_160, 11, 20, Replacement::Lru),
    inclusion: Inclusion::NonInclusive,
    device_ways: Some(2),
};

/// Buffers that go round, and from one to the next.
const BUFFERS: u64 = 750;
const STRIDE: u64 = 2_368;
const FRAME: u64 = 1_520;

/// Lines of tables, of which a packet uses some.
const TABLES: usize = 4_096;

/// Frames in a unit of work.
const FRAMES: u64 = 32;

fn prepare(_setting: &Setting) -> Result<Box<dyn Measure>, LabError> {
    let mut levels = Hierarchy::new(&MACHINE).map_err(LabError::setup)?;
    let mut random = Xorshift(Xorshift::SEED);
    let mut number = 0;
    Ok(Box::new(move || {
        for _ in 0..FRAMES {
            let buffer = number % BUFFERS * STRIDE;
            number += 1;
            levels.device_write(buffer, FRAME);
            // As a pipeline: a header, tables, and each byte some times.
            levels.read(0, buffer, 64);
            for _ in 0..8 {
                levels.access(0, 1 << 30 | random.below(TABLES) as u64, true);
            }
            for line in 0..FRAME / LINE_BYTES {
                for write in [false, true, false] {
                    levels.access(0, buffer / LINE_BYTES + line, write);
                }
            }
        }
        let accesses = levels.devices().accesses + levels.core(0).map_or(0, |core| core.accesses);
        levels.forget_counts();
        accesses
    }))
}
