//! The kernel of aarch64: its AES instructions

use std::arch::aarch64::{
    uint8x16_t, vaeseq_u8, vaesmcq_u8, vcombine_u64, vcreate_u64, vdupq_n_u8, veorq_u8, vreinterpretq_u8_u64,
};

use super::Candidates;
use super::hash::{Hash, ROUNDS, Seed};
use super::kernel::{BlockCandidates, Kernel, compiled_methods};
use super::key::{ExactKey, KeyWords};

/// NEON and AES. A value of it exists only where the processor has them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arm(());

impl Arm {
    pub(super) fn detect() -> Option<Self> {
        let has_all =
            std::arch::is_aarch64_feature_detected!("neon") && std::arch::is_aarch64_feature_detected!("aes");
        has_all.then_some(Self(()))
    }
}

impl Kernel for Arm {
    compiled_methods!();
}

#[target_feature(enable = "neon,aes")]
fn run<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[target_feature(enable = "neon,aes")]
#[inline]
fn candidates_one_by_one<K: ExactKey>(seed: &Seed, count: u32, keys: &[K], candidates: &mut BlockCandidates) {
    for (key, candidates) in keys.iter().zip(candidates) {
        candidates.write(Candidates::new(hash(seed, key.to_words().as_slice()), count));
    }
}

/// The hash, by the AES instructions
#[target_feature(enable = "neon,aes")]
#[inline]
fn hash(seed: &Seed, key: &[u64]) -> Hash {
    let mut state = pair(seed.keys[0]);
    for block in key.chunks(2) {
        state = veorq_u8(state, pair([block[0], block.get(1).copied().unwrap_or(0)]));
        for round in 1..=ROUNDS {
            // AESE adds a key before its SubBytes and ShiftRows, a round of the standard after its MixColumns.
            state = veorq_u8(vaesmcq_u8(vaeseq_u8(state, vdupq_n_u8(0))), pair(seed.keys[round]));
        }
    }
    // SAFETY: both are 128 bits of integers, the lower half first.
    unsafe { std::mem::transmute::<uint8x16_t, Hash>(state) }
}

/// Two words, the first one lower
#[target_feature(enable = "neon")]
#[inline]
fn pair(words: [u64; 2]) -> uint8x16_t {
    vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(words[0]), vcreate_u64(words[1])))
}
