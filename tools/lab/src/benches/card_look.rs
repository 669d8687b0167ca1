//! What a look at a card's descriptors costs: which frames have come.

use crate::bench::Bench;
use crate::setting::Lanes;
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use warmlane_pci::intel::look::{DescriptorWords, Received, plain_frames};

pub(super) const BENCHES: &[Bench] = &[Bench {
    name: "card-look",
    unit: "descriptor",
    sentence: "look which descriptors of Intel's 82574 or 82576 are of whole frames, up to --burst at a time, all of which are",
    lanes: Lanes::One,
    prepare: |setting| {
        let burst = setting.burst.unwrap_or(32).clamp(1, SIZE);
        let descriptors = received();
        let mut found = vec![Received::default(); burst];
        Ok(Box::new(move || {
            let mut frames = 0;
            for _ in 0..ROUNDS {
                for burst in descriptors.chunks(burst) {
                    frames += plain_frames(black_box(burst), ROOM, &mut found) as u64;
                    black_box(&found);
                }
            }
            frames
        }))
    },
}];

/// Descriptors of the ring.
const SIZE: usize = 256;
/// How often a unit of work goes round, so that reading the clock is lost in it.
const ROUNDS: usize = 16;
/// Bytes of a buffer.
const ROOM: u16 = 2048;

/// Descriptors that the card has written back, each of a frame of 60 bytes.
fn received() -> Vec<DescriptorWords> {
    let written = Received::DONE | Received::END | 60 << 32;
    (0..SIZE).map(|_| [AtomicU64::new(0), AtomicU64::new(written)]).collect()
}
