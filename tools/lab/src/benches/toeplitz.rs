//! What the hash of receive-side scaling takes.

use crate::bench::Bench;
use crate::measure::Measure;
use crate::setting::Lanes;
use std::hint::black_box;
use warmlane_wire::toeplitz::{MICROSOFT_KEY, Toeplitz};

pub(super) const BENCHES: &[Bench] = &[
    Bench {
        name: "toeplitz",
        unit: "hash",
        sentence: "the hash of receive-side scaling over addresses and ports of IPv4, bursts of 64",
        lanes: Lanes::One,
        prepare: |_| Ok(prepare::<12>()),
    },
    Bench {
        name: "toeplitz-ipv6",
        unit: "hash",
        sentence: "the same over those of IPv6",
        lanes: Lanes::One,
        prepare: |_| Ok(prepare::<36>()),
    },
];

/// Inputs of a burst, and bursts in a unit of work. `peers/toeplitz.c` has the same.
const INPUTS: usize = 64;
const BURSTS: u64 = 16;

fn prepare<const BYTES: usize>() -> Box<dyn Measure> {
    let toeplitz = Toeplitz::new(&MICROSOFT_KEY);
    let input = |number: usize| std::array::from_fn(|at| (number * 89 + at * 31) as u8);
    let inputs: Vec<[u8; BYTES]> = (0..INPUTS).map(input).collect();
    let mut hashes = [0; INPUTS];
    Box::new(move || {
        for _ in 0..BURSTS {
            toeplitz.hash_burst(black_box(&inputs), &mut hashes);
            black_box(&hashes);
        }
        BURSTS * INPUTS as u64
    })
}
