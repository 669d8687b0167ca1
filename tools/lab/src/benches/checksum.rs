//! What Internet checksums take, by size.

use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::setting::Lanes;
use std::hint::black_box;
use warmlane_mem::LINE_BYTES;
use warmlane_sys::pages::TableMemory;
use warmlane_wire::checksum::sum;

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: "checksum-64",
        unit: "sum",
        sentence: "sum 64 bytes for an Internet checksum, in the first-level cache",
        lanes: Lanes::One,
        prepare: |_| prepare(64),
    },
    Bench {
        name: "checksum-256",
        unit: "sum",
        sentence: "the same, 256 bytes",
        lanes: Lanes::One,
        prepare: |_| prepare(256),
    },
    Bench {
        name: "checksum",
        unit: "sum",
        sentence: "the same, 1,500 bytes",
        lanes: Lanes::One,
        prepare: |_| prepare(1_500),
    },
    Bench {
        name: "checksum-9000",
        unit: "sum",
        sentence: "the same, 9,000 bytes",
        lanes: Lanes::One,
        prepare: |_| prepare(9_000),
    },
];

/// Where data begins in its buffer: behind an Ethernet and an IPv4 header. `peers/checksum.c` has all of these, too.
const DATA_AT: usize = 34;
const MOST_BUFFERS: usize = 64;
/// All buffers together take no more than so many bytes, or are one.
const CACHE: usize = 16 << 10;
/// Sums in a piece of work, at least.
const SUMS: u64 = 4_096;

fn prepare(bytes: usize) -> Result<Box<dyn Measure>, LabError> {
    let apart = (DATA_AT + bytes).next_multiple_of(LINE_BYTES);
    let buffers = (CACHE / apart).clamp(1, MOST_BUFFERS);
    // It begins at a page.
    let mut memory =
        TableMemory::<[u8; LINE_BYTES]>::zeroed(buffers * apart / LINE_BYTES).map_err(LabError::setup)?;
    for (index, byte) in memory.as_flattened_mut().iter_mut().enumerate() {
        *byte = (index * 31) as u8;
    }
    Ok(Box::new(move || {
        let bytes = black_box(bytes);
        let mut sums = 0;
        while sums < SUMS {
            for buffer in memory.as_flattened().chunks_exact(apart) {
                black_box(sum(&buffer[DATA_AT..][..bytes]));
            }
            sums += buffers as u64;
        }
        sums
    }))
}
