//! Looking up, by any lane, while the table changes

use std::fmt;
use std::hint::select_unpredictable;
use std::mem::MaybeUninit;
use std::sync::Arc;

use super::bucket::Layout;
use super::kernel::{Detected, Kernel};
use super::key::ExactKey;
use super::primitive::Ordering;
#[cfg(target_arch = "x86_64")]
use super::x86::{Avx512, X86};
use super::{BURST, BucketOf, BurstCandidates, Candidates, NO_VALUE, Shared};

/// Looks keys up in an [`ExactTable`](super::ExactTable); each lane has its own
pub struct ExactReader<K: ExactKey> {
    shared: Arc<Shared<BucketOf<K>>>,
    kernel: Detected,
}

impl<K: ExactKey> ExactReader<K> {
    pub(super) fn new(shared: Arc<Shared<BucketOf<K>>>, kernel: Detected) -> Self {
        Self { shared, kernel }
    }

    /// The value of `key`
    ///
    /// If the table is one whose entries age, this counts as a hit.
    #[inline]
    pub fn lookup(&self, key: &K) -> Option<u32> {
        let words = key.to_words();
        let value = self.shared.lookup(self.kernel, &words, &self.shared.candidates(self.kernel, &words));
        (value != NO_VALUE).then_some(value)
    }

    /// Looks up many keys at once, the way of the data path; `values[i]` becomes the value of `keys[i]`, or
    /// [`NO_VALUE`]
    ///
    /// Of slices of different lengths, only the shorter length is processed. Each answer is right for some moment during
    /// the call. If the table is one whose entries age, each key that is found counts as hit.
    #[inline]
    pub fn lookup_burst(&self, keys: &[K], values: &mut [u32]) {
        for (keys, values) in keys.chunks(BURST).zip(values.chunks_mut(BURST)) {
            let length = keys.len().min(values.len());
            let (keys, values) = (&keys[..length], &mut values[..length]);
            match self.kernel {
                Detected::Portable(kernel) => self.burst(kernel, keys, values),
                // SAFETY: the kernel exists, so the processor has what it was compiled for.
                #[cfg(target_arch = "x86_64")]
                Detected::X86(kernel) => unsafe { self.burst_x86(kernel, keys, values) },
                // SAFETY: as before.
                #[cfg(target_arch = "x86_64")]
                Detected::Avx512(kernel) => unsafe { self.burst_avx512(kernel, keys, values) },
                #[cfg(target_arch = "aarch64")]
                Detected::Arm(kernel) => kernel.run(|| self.burst(kernel, keys, values)),
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "aes,avx2,bmi1,bmi2,popcnt,lzcnt")]
    fn burst_x86(&self, kernel: X86, keys: &[K], values: &mut [u32]) {
        self.burst(kernel, keys, values);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "aes,vaes,avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512dq,avx512vl")]
    fn burst_avx512(&self, kernel: Avx512, keys: &[K], values: &mut [u32]) {
        self.burst(kernel, keys, values);
    }

    #[inline(always)]
    fn burst(&self, kernel: impl Kernel, keys: &[K], values: &mut [u32]) {
        match &self.shared.ages {
            None => self.shared.burst::<K, false>(kernel, keys, values),
            Some(_) => self.shared.burst::<K, true>(kernel, keys, values),
        }
    }
}

impl<B: Layout> Shared<B> {
    /// Up to [`BURST`] lookups, in steps that each ask for what the next one reads
    #[inline(always)]
    fn burst<K: ExactKey<Words = B::Words>, const MARK: bool>(
        &self,
        kernel: impl Kernel,
        keys: &[K],
        values: &mut [u32],
    ) {
        let buckets = &*self.buckets;
        // SAFETY: all candidates come from `candidates_of` for this table, which has buckets beyond them.
        let bucket = |bucket: u32| unsafe { buckets.get_unchecked(bucket as usize) };
        let mut candidates = BurstCandidates::new();
        let candidates = candidates.fill(self, kernel, keys, |candidates| {
            kernel.prefetch(bucket(candidates.home));
            if MARK {
                self.prefetch_ages(kernel, candidates.home);
            }
        });
        if B::TAGGED {
            for candidates in candidates {
                bucket(candidates.home).prefetch_key(kernel, candidates.tag());
            }
        }
        // Which keys are not done with, and the headers of their homes
        let (mut open, mut open_count) = ([const { MaybeUninit::uninit() }; BURST], 0);
        for (index, ((key, value), candidates)) in keys.iter().zip(&mut *values).zip(candidates).enumerate() {
            let probe = bucket(candidates.home).probe(kernel, &key.to_words(), candidates.tag());
            *value = probe.value;
            if MARK && probe.is_stable() & probe.found() {
                self.mark(candidates.home, probe.slot);
            }
            // Without a branch: one key in four or five is elsewhere, and nobody can foresee which.
            let is_open = probe.leaves_open();
            open[open_count % BURST].write((index as u32, probe.header));
            open_count += usize::from(is_open);
            kernel.prefetch(bucket(select_unpredictable(is_open, candidates.other, candidates.home)));
        }
        let open = open.iter().take(open_count).map(|open| {
            // SAFETY: the loop has written the first `open_count`.
            let (index, header) = unsafe { open.assume_init() };
            (index as usize % BURST, header)
        });
        if B::TAGGED {
            for (index, _) in open.clone() {
                bucket(candidates[index].other).prefetch_key(kernel, candidates[index].tag());
            }
        }
        for (index, header) in open {
            let (Some(key), Some(value)) = (keys.get(index), values.get_mut(index)) else { continue };
            let candidates = &candidates[index];
            let probe = bucket(candidates.other).probe(kernel, &key.to_words(), candidates.tag());
            *value = probe.value;
            // If the home has changed, the key may have come home meanwhile, or what was read there means nothing.
            if !probe.is_stable() | (bucket(candidates.home).changed_since(header) != 0) {
                *value = self.lookup_again(kernel, key, candidates);
            } else if MARK && probe.found() {
                self.mark(candidates.other, probe.slot);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn lookup_again<K: ExactKey<Words = B::Words>>(
        &self,
        kernel: impl Kernel,
        key: &K,
        candidates: &Candidates,
    ) -> u32 {
        self.lookup(kernel, &key.to_words(), candidates)
    }

    /// One lookup, repeated as long as what it reads changes
    #[inline]
    pub(super) fn lookup(&self, kernel: impl Kernel, key: &B::Words, candidates: &Candidates) -> u32 {
        let (home, other) = (self.bucket(candidates.home), self.bucket(candidates.other));
        loop {
            let first = home.probe(kernel, key, candidates.tag());
            if !first.is_stable() {
                continue;
            }
            if first.found() {
                self.mark(candidates.home, first.slot);
                return first.value;
            }
            if first.header.away() == 0 {
                return NO_VALUE;
            }
            let second = other.probe(kernel, key, candidates.tag());
            if second.is_stable() && second.found() {
                self.mark(candidates.other, second.slot);
                return second.value;
            }
            if second.is_stable() && home.changed_since(first.header) == 0 {
                return NO_VALUE;
            }
        }
    }

    /// Notes a hit. Only the first in each sweep writes, so that lanes seldom take the line from each other.
    #[inline(always)]
    fn mark(&self, bucket: u32, slot: usize) {
        if let Some(ages) = &self.ages {
            let age = &ages[bucket as usize * B::SLOTS + slot];
            if age.load(Ordering::Relaxed) != 0 {
                age.store(0, Ordering::Relaxed);
            }
        }
    }

    #[inline(always)]
    fn prefetch_ages(&self, kernel: impl Kernel, bucket: u32) {
        if let Some(ages) = &self.ages {
            kernel.prefetch(&ages[bucket as usize * B::SLOTS]);
        }
    }
}

impl<K: ExactKey> Clone for ExactReader<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), kernel: self.kernel }
    }
}

impl<K: ExactKey> fmt::Debug for ExactReader<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ExactReader")
            .field("buckets", &self.shared.buckets.len())
            .finish_non_exhaustive()
    }
}
