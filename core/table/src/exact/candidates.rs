//! The buckets that a key may be in

use std::mem::MaybeUninit;

use super::bucket::Layout;
use super::hash::Hash;
use super::kernel::{BLOCK, BlockCandidates, Kernel};
use super::key::ExactKey;
use super::{BURST, Shared};

/// The two buckets of a key, and the tag that it has there. In the order in which vectors come to have them.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub struct Candidates {
    /// The lowest eight bits count
    tag: u32,
    pub(super) home: u32,
    /// Means nothing
    rest: u32,
    pub(super) other: u32,
}

impl Candidates {
    /// Among `count` buckets
    #[inline(always)]
    pub(super) fn new(hash: Hash, count: u32) -> Self {
        // Multiplying and keeping the upper half takes 32 random bits to a range without a division (Lemire: "Fast random
        // integer generation in an interval", TOMACS 29(1), 2019).
        let range = |bits: u64, count: u32| (((bits & 0xffff_ffff) * u64::from(count)) >> 32) as u32;
        let home = range(hash[0], count);
        // From 1 to count - 1, so that the two differ. Their sum is less than 2^32 for the most buckets there can be.
        let other = home + 1 + range(hash[1], count - 1);
        // Less than `count`, or else less than it by wrapping
        let other = other.min(other.wrapping_sub(count));
        Self { tag: (hash[0] >> 32) as u32, home, rest: 0, other }
    }

    #[inline(always)]
    pub(super) fn tag(&self) -> u8 {
        self.tag as u8
    }
}

/// Space for the candidates of a burst of keys
pub(super) struct BurstCandidates([BlockCandidates; BURST / BLOCK]);

impl BurstCandidates {
    /// Nothing is written before it is known, not even zeros.
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self([const { [const { MaybeUninit::uninit() }; BLOCK] }; BURST / BLOCK])
    }

    /// The candidates of up to [`BURST`] keys, each given to `known` as soon as those of a few neighbours are known, too
    #[inline(always)]
    pub(super) fn fill<B: Layout, K: ExactKey<Words = B::Words>>(
        &mut self,
        shared: &Shared<B>,
        kernel: impl Kernel,
        keys: &[K],
        mut known: impl FnMut(&Candidates),
    ) -> &[Candidates] {
        assert!(keys.len() <= BURST);
        for (keys, candidates) in keys.chunks(BLOCK).zip(&mut self.0) {
            kernel.candidates(&shared.seed, shared.count(), keys, candidates);
            for (candidates, _) in candidates.iter().zip(keys) {
                // SAFETY: a kernel writes one for each key.
                known(unsafe { candidates.assume_init_ref() });
            }
        }
        // SAFETY: so many have been written, and there is space for them, as asserted.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), keys.len()) }
    }
}
