//! Each kernel against the code for single frames.

use super::*;
use crate::burst::protect_one;
use crate::{KeyError, TrafficKey};
use proptest::prelude::*;

/// All kernels that this processor has.
fn kernels() -> Vec<(Kernel, usize)> {
    let levels = Level::available().iter().rev();
    levels.filter_map(|level| kernel(*level)).collect()
}

fn key(seed: usize) -> Result<TrafficKey, KeyError> {
    let bytes: [u8; 16] = std::array::from_fn(|at| (seed * 31 + at * 7) as u8);
    TrafficKey::new(&bytes, bytes.map(|byte| byte.wrapping_mul(11)))
}

fn frame(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| (at * at + seed * 89 + at / 7) as u8).collect()
}

/// Both ways, and that they agree.
fn check(lengths: &[usize], crc: impl Fn(usize) -> bool) {
    let keys: Vec<_> = (0..lengths.len()).map(|seed| key(seed).unwrap()).collect();
    let frames: Vec<_> = lengths.iter().enumerate().map(|(seed, length)| frame(*length, seed)).collect();
    let mut wanted = frames.clone();
    for (number, frame) in wanted.iter_mut().enumerate() {
        protect_one(Protection {
            frame,
            crc: crc(number),
            key: Some(&keys[number]),
            encrypt_from: ADDRESSES,
        });
    }
    for kernel in kernels() {
        let mut came = frames.clone();
        let mut batch = Batch::with(Some(kernel));
        for (number, frame) in came.iter_mut().enumerate() {
            let protection =
                Protection { frame, crc: crc(number), key: Some(&keys[number]), encrypt_from: ADDRESSES };
            assert!(batch.push(protection).is_ok());
        }
        batch.finish();
        for (number, (came, wanted)) in came.iter().zip(&wanted).enumerate() {
            assert_eq!(came, wanted, "frame {number} of {} bytes, {} lanes", came.len(), kernel.1);
        }
    }
}

#[test]
fn every_length_alone_and_with_its_like() {
    for length in SHORTEST..=1_600 {
        check(&[length], |_| true);
        check(&[length; 5], |_| false);
    }
    for length in [SHORTEST, 64, 570, 1_518, ADDRESSES + LONGEST] {
        check(&[length; 64], |_| true);
    }
}

#[test]
fn what_does_not_fit_is_given_back() {
    let (short, long, key) = (SHORTEST - 1, ADDRESSES + LONGEST + 1, key(1).unwrap());
    let long_key = TrafficKey::new(&[1; 32], [2; 16]).unwrap();
    for kernel in kernels() {
        let cases = [(short, 12, &key), (long, 12, &key), (100, 14, &key), (100, 12, &long_key)];
        for (length, encrypt_from, key) in cases {
            let mut bytes = frame(length, 0);
            let mut batch = Batch::with(Some(kernel));
            let protection = Protection { frame: &mut bytes, crc: true, key: Some(key), encrypt_from };
            assert!(batch.push(protection).is_err());
        }
    }
}

proptest! {
    #[test]
    fn frames_of_all_lengths_together(
        lengths in prop::collection::vec(SHORTEST..2_060_usize, 1..150),
        crc in any::<u8>(),
    ) {
        check(&lengths, |number| crc >> (number / 30 % 8) & 1 == 1);
    }
}
