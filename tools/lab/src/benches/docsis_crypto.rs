//! What the CRC and the encryption of DOCSIS take.

use crate::bench::Bench;
use crate::error::LabError;
use crate::measure::Measure;
use crate::setting::Lanes;
use warmlane_crypto::{Protection, TrafficKey, protect};
use warmlane_mem::LINE_BYTES;

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: "docsis-crypto-64",
        unit: "frame",
        sentence: "write CRCs of 64 frames of 64 bytes and encrypt them, each with a key of its own",
        lanes: Lanes::One,
        prepare: |_| prepare(64),
    },
    Bench {
        name: "docsis-crypto-570",
        unit: "frame",
        sentence: "the same, frames of 570 bytes",
        lanes: Lanes::One,
        prepare: |_| prepare(570),
    },
    Bench {
        name: "docsis-crypto",
        unit: "frame",
        sentence: "the same, frames of 1,518 bytes",
        lanes: Lanes::One,
        prepare: |_| prepare(1_518),
    },
];

/// Frames of a burst, and bursts in a unit of work. `peers/docsis_crypto.c` has the same.
const FRAMES: usize = 64;
const BURSTS: u64 = 16;

/// From one frame to the next, as in a pool: an odd number of lines.
const APART: usize = 35 * LINE_BYTES;

/// Where a frame begins in its place: behind the headroom of a buffer and the MAC header.
const FRAME_AT: usize = 145;

fn prepare(length: usize) -> Result<Box<dyn Measure>, LabError> {
    let keys: Vec<_> = (0..FRAMES)
        .map(|number| TrafficKey::new(&[number as u8; 16], [!number as u8; 16]))
        .collect::<Result<_, _>>()
        .map_err(LabError::setup)?;
    let mut memory = vec![0_u8; FRAMES * APART];
    Ok(Box::new(move || {
        for _ in 0..BURSTS {
            let places = memory.chunks_exact_mut(APART).zip(&keys);
            protect(places.map(|(place, key)| Protection {
                frame: &mut place[FRAME_AT..][..length],
                crc: true,
                key: Some(key),
                encrypt_from: 12,
            }));
        }
        BURSTS * FRAMES as u64
    }))
}
