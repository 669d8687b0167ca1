//! Looking up, by any lane, while the table changes

use std::fmt;
use std::sync::Arc;

use warmlane_sys::prefetch::prefetch_read;

use super::bucket::{Header, Layout};
use super::hash::Hasher;
use super::key::{ExactKey, KeyWords};
use super::primitive::Ordering;
use super::{HashKernel, NO_VALUE, Places, Shared};

/// Lookups that are under way at once
const BURST: usize = 64;

type BucketOf<K> = <<K as ExactKey>::Words as KeyWords>::Bucket;

/// Looks keys up in an [`ExactTable`](super::ExactTable); each lane has its own
pub struct ExactReader<K: ExactKey> {
    shared: Arc<Shared<BucketOf<K>>>,
    kernel: HashKernel,
}

impl<K: ExactKey> ExactReader<K> {
    pub(super) fn new(shared: Arc<Shared<BucketOf<K>>>, kernel: HashKernel) -> Self {
        Self { shared, kernel }
    }

    /// The value of `key`
    ///
    /// If the table is one whose entries age, this counts as a hit.
    #[inline]
    pub fn lookup(&self, key: &K) -> Option<u32> {
        let words = key.to_words();
        let value = match self.kernel {
            HashKernel::Portable(hasher) => self.shared.lookup(&words, self.shared.places(hasher, &words)),
            #[cfg(target_arch = "x86_64")]
            HashKernel::AesNi(hasher) => self.shared.lookup(&words, self.shared.places(hasher, &words)),
        };
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
                HashKernel::Portable(hasher) => self.burst(hasher, keys, values),
                // SAFETY: the hasher exists, so the processor has what it was compiled for.
                #[cfg(target_arch = "x86_64")]
                HashKernel::AesNi(hasher) => unsafe { self.burst_x86(hasher, keys, values) },
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "aes,avx2,bmi1,bmi2,popcnt,lzcnt")]
    fn burst_x86(&self, hasher: super::hash::AesNi, keys: &[K], values: &mut [u32]) {
        self.burst(hasher, keys, values);
    }

    #[inline(always)]
    fn burst(&self, hasher: impl Hasher, keys: &[K], values: &mut [u32]) {
        match &self.shared.ages {
            None => self.shared.burst::<K, false>(hasher, keys, values),
            Some(_) => self.shared.burst::<K, true>(hasher, keys, values),
        }
    }
}

impl<B: Layout> Shared<B> {
    /// Up to [`BURST`] lookups, in steps that each ask for what the next one reads
    #[inline(always)]
    fn burst<K: ExactKey<Words = B::Words>, const MARK: bool>(
        &self,
        hasher: impl Hasher,
        keys: &[K],
        values: &mut [u32],
    ) {
        let buckets = &*self.buckets;
        let nowhere = Places { home: 0, other: 0, tag: 0 };
        let mut places = [nowhere; BURST];
        for (key, places) in keys.iter().zip(&mut places) {
            *places = self.places(hasher, &key.to_words());
            prefetch_read(&buckets[places.home]);
            if MARK {
                self.prefetch_ages(places.home);
            }
        }
        if B::TAGGED {
            for places in &places[..keys.len()] {
                buckets[places.home].prefetch_key(places.tag);
            }
        }
        // Those that may be in their other bucket, and the header of their home
        let mut away = [(0_u8, Header::EMPTY); BURST];
        let mut away_count = 0;
        for (index, ((key, places), value)) in keys.iter().zip(&places).zip(&mut *values).enumerate() {
            let probe = buckets[places.home].probe(&key.to_words(), places.tag);
            if !probe.stable {
                *value = self.lookup(&key.to_words(), *places);
                continue;
            }
            *value = if probe.found { probe.value } else { NO_VALUE };
            if MARK && probe.found {
                self.mark(places.home, probe.slot);
            }
            let elsewhere = !probe.found && probe.header.away() > 0;
            // Without a branch: one key in four or five is elsewhere, and nobody can foresee which.
            away[away_count % BURST] = (index as u8, probe.header);
            away_count += usize::from(elsewhere);
            prefetch_read(&buckets[if elsewhere { places.other } else { places.home }]);
        }
        let away = &away[..away_count];
        if B::TAGGED {
            for (index, _) in away {
                let places = &places[usize::from(*index) % BURST];
                buckets[places.other].prefetch_key(places.tag);
            }
        }
        for (index, home_header) in away {
            let index = usize::from(*index);
            let (key, places) = (&keys[index], &places[index]);
            let probe = buckets[places.other].probe(&key.to_words(), places.tag);
            if probe.stable && probe.found {
                values[index] = probe.value;
                if MARK {
                    self.mark(places.other, probe.slot);
                }
            } else if !probe.stable || !buckets[places.home].is_still(*home_header) {
                values[index] = self.lookup(&key.to_words(), *places);
            }
        }
    }

    /// One lookup, repeated as long as what it reads changes
    pub(super) fn lookup(&self, key: &B::Words, places: Places) -> u32 {
        let (home, other) = (&self.buckets[places.home], &self.buckets[places.other]);
        loop {
            let first = home.probe(key, places.tag);
            if !first.stable {
                continue;
            }
            if first.found {
                self.mark(places.home, first.slot);
                return first.value;
            }
            if first.header.away() == 0 {
                return NO_VALUE;
            }
            let second = other.probe(key, places.tag);
            if second.stable && second.found {
                self.mark(places.other, second.slot);
                return second.value;
            }
            if second.stable && home.is_still(first.header) {
                return NO_VALUE;
            }
        }
    }

    /// Notes a hit. Only the first in each sweep writes, so that lanes seldom take the line from each other.
    #[inline(always)]
    fn mark(&self, bucket: usize, slot: usize) {
        if let Some(ages) = &self.ages {
            let age = &ages[bucket * B::SLOTS + slot];
            if age.load(Ordering::Relaxed) != 0 {
                age.store(0, Ordering::Relaxed);
            }
        }
    }

    #[inline(always)]
    fn prefetch_ages(&self, bucket: usize) {
        if let Some(ages) = &self.ages {
            prefetch_read(&ages[bucket * B::SLOTS]);
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
