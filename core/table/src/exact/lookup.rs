//! Looking up, by any lane, while the table changes

use std::fmt;
use std::hint::select_unpredictable;
use std::sync::Arc;

use super::bucket::{Header, Layout};
use super::kernel::{Detected, Kernel};
use super::key::{ExactKey, KeyWords};
use super::primitive::Ordering;
use super::{NO_VALUE, Places, Shared};

/// Lookups that are under way at once
const BURST: usize = 64;
/// Keys that are hashed together
const BLOCK: usize = 8;

type BucketOf<K> = <<K as ExactKey>::Words as KeyWords>::Bucket;

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
        let value = self.shared.lookup(self.kernel, &words, self.shared.places(self.kernel, &words));
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
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "aes,avx2,bmi1,bmi2,popcnt,lzcnt")]
    fn burst_x86(&self, kernel: super::kernel::X86, keys: &[K], values: &mut [u32]) {
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
        // SAFETY: all places come from `find_places` for this table, which has buckets beyond them.
        let bucket = |place: u32| unsafe { buckets.get_unchecked(place as usize) };
        let (mut homes, mut others, mut tags) = ([0; BURST], [0; BURST], [0; BURST]);
        let blocks = homes.chunks_mut(BLOCK).zip(others.chunks_mut(BLOCK)).zip(tags.chunks_mut(BLOCK));
        for (keys, ((homes, others), tags)) in keys.chunks(BLOCK).zip(blocks) {
            self.find_places(kernel, keys, homes, others, tags);
            for home in &homes[..keys.len()] {
                kernel.prefetch(bucket(*home));
                if MARK {
                    self.prefetch_ages(kernel, *home);
                }
            }
        }
        if B::TAGGED {
            for (home, tag) in homes[..keys.len()].iter().zip(&tags) {
                bucket(*home).prefetch_key(kernel, *tag);
            }
        }
        // Which keys are not done with, and the headers of all homes
        let (mut open, mut open_count) = ([0_u8; BURST], 0);
        let mut headers = [Header::EMPTY; BURST];
        let places = homes.iter().zip(&others).zip(&tags).zip(&mut headers);
        for (index, ((key, value), (((home, other), tag), header))) in
            keys.iter().zip(&mut *values).zip(places).enumerate()
        {
            let probe = bucket(*home).probe(kernel, &key.to_words(), *tag);
            (*value, *header) = (probe.value, probe.header);
            if MARK && probe.is_stable() & probe.found() {
                self.mark(*home, probe.slot);
            }
            // Without a branch: one key in four or five is elsewhere, and nobody can foresee which.
            let is_open = probe.leaves_open();
            open[open_count % BURST] = index as u8;
            open_count += usize::from(is_open);
            kernel.prefetch(bucket(select_unpredictable(is_open, *other, *home)));
        }
        let open = open.iter().take(open_count).map(|index| usize::from(*index) % BURST);
        if B::TAGGED {
            for index in open.clone() {
                bucket(others[index]).prefetch_key(kernel, tags[index]);
            }
        }
        for index in open {
            let (Some(key), Some(value)) = (keys.get(index), values.get_mut(index)) else { continue };
            let places = Places { home: homes[index], other: others[index], tag: tags[index] };
            let probe = bucket(places.other).probe(kernel, &key.to_words(), places.tag);
            *value = probe.value;
            // If the home has changed, the key may have come home meanwhile, or what was read there means nothing.
            if !probe.is_stable() | (bucket(places.home).changed_since(headers[index]) != 0) {
                *value = self.lookup(kernel, &key.to_words(), places);
            } else if MARK && probe.found() {
                self.mark(places.other, probe.slot);
            }
        }
    }

    /// The places of up to [`BLOCK`] keys: so many that the compiler computes them side by side
    #[inline(always)]
    fn find_places<K: ExactKey<Words = B::Words>>(
        &self,
        kernel: impl Kernel,
        keys: &[K],
        homes: &mut [u32],
        others: &mut [u32],
        tags: &mut [u8],
    ) {
        let mut hashes = [[0; 2]; BLOCK];
        for (key, hash) in keys.iter().zip(&mut hashes) {
            *hash = kernel.hash(&self.seed, key.to_words().as_slice());
        }
        let count = self.count();
        for (((hash, home), other), tag) in hashes.iter().zip(homes).zip(others).zip(tags) {
            let places = Places::new(*hash, count);
            (*home, *other) = (places.home, places.other);
            if B::TAGGED {
                *tag = places.tag;
            }
        }
    }

    /// One lookup, repeated as long as what it reads changes
    #[inline(never)]
    pub(super) fn lookup(&self, kernel: impl Kernel, key: &B::Words, places: Places) -> u32 {
        let (home, other) = (self.bucket(places.home), self.bucket(places.other));
        loop {
            let first = home.probe(kernel, key, places.tag);
            if !first.is_stable() {
                continue;
            }
            if first.found() {
                self.mark(places.home, first.slot);
                return first.value;
            }
            if first.header.away() == 0 {
                return NO_VALUE;
            }
            let second = other.probe(kernel, key, places.tag);
            if second.is_stable() && second.found() {
                self.mark(places.other, second.slot);
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
