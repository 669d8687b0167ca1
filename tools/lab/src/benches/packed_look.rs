//! What a device's look at a packed ring costs: which descriptors are available.

use crate::bench::Bench;
use crate::measure::Measure;
use crate::setting::Lanes;
use std::hint::black_box;
use warmlane_virtio::ring::packed::{PackedRing, Position, Tail};
use warmlane_virtio::ring::{Descriptor, WRITE};

pub(super) const BENCHES: &[Bench] = &[Bench {
    name: "packed-look",
    unit: "descriptor",
    sentence: "look which descriptors of a packed ring of virtio are available, up to --burst at a time, all of which are",
    lanes: Lanes::One,
    prepare: |setting| {
        let burst = setting.burst.unwrap_or(32);
        Ok(Box::new(looks(burst, PackedRing::available)))
    },
}];

/// Descriptors of the ring.
const SIZE: u16 = 256;
/// How often a unit of work goes round, so that reading the clock is lost in it.
const ROUNDS: usize = 16;

/// Looks at a ring in which all is available, `burst` descriptors at a time, from its start to its end, and takes none.
pub(crate) fn looks(
    burst: usize,
    look: impl Fn(&PackedRing, Position, &mut [Descriptor]) -> usize + 'static,
) -> impl Measure {
    let ring = available();
    let mut found = vec![Descriptor::default(); burst.clamp(1, SIZE.into())];
    move || {
        let mut descriptors = 0;
        for _ in 0..ROUNDS {
            let mut position = Position::START;
            // At the end all is of the turn before, and so not available.
            loop {
                let count = look(&ring, black_box(position), &mut found);
                if count == 0 {
                    break;
                }
                black_box(&found);
                descriptors += count as u64;
                position = position.advanced(count as u16, SIZE);
            }
        }
        descriptors
    }
}

/// A ring in which each descriptor is available, and a buffer by itself.
fn available() -> PackedRing {
    let ring = PackedRing::leaked(SIZE);
    for slot in 0..SIZE {
        let position = Position { slot, wrap: true };
        ring.set_address(position, u64::from(slot) << 11);
        ring.set_tail(position, Tail { length: 2048, id: slot, flags: position.available_flags() | WRITE });
    }
    ring
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_descriptor_is_found_once_a_round() {
        for burst in [1, 3, 32, 1_000] {
            let mut looks = looks(burst, PackedRing::available);
            assert_eq!(looks.work(), (ROUNDS * usize::from(SIZE)) as u64, "{burst}");
        }
    }
}
