//! Insertion

use std::hint::select_unpredictable;

use super::bucket::{Header, Layout};
use super::displace::Move;
use super::kernel::{Detected, Kernel};
use super::key::ExactKey;
#[cfg(target_arch = "x86_64")]
use super::x86::{Avx512, X86};
use super::{BURST, BucketOf, BurstPlaces, ExactBurstError, ExactError, ExactTable, NO_VALUE, Places};
use warmlane_sys::prefetch::prefetch_write;

impl<K: ExactKey> ExactTable<K> {
    /// Adds an entry or gives it another value; returns the value it had before. Readers see the one or the other.
    ///
    /// Usually one or two hundred cycles; in a table as good as full up to a few hundred microseconds.
    ///
    /// # Errors
    /// [`ExactError::ReservedValue`] for [`NO_VALUE`], [`ExactError::Full`]; the table is then unchanged.
    pub fn insert(&mut self, key: &K, value: u32) -> Result<Option<u32>, ExactError> {
        match self.kernel {
            Detected::Portable(kernel) => self.insert_by(kernel, key, value),
            // SAFETY: the kernel exists, so the processor has what it was compiled for.
            #[cfg(target_arch = "x86_64")]
            Detected::X86(kernel) => unsafe { self.insert_x86(kernel, key, value) },
            // SAFETY: as before.
            #[cfg(target_arch = "x86_64")]
            Detected::Avx512(kernel) => unsafe { self.insert_avx512(kernel, key, value) },
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "aes,avx2,bmi1,bmi2,popcnt,lzcnt")]
    fn insert_x86(&mut self, kernel: X86, key: &K, value: u32) -> Result<Option<u32>, ExactError> {
        self.insert_by(kernel, key, value)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "aes,vaes,avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512dq,avx512vl")]
    fn insert_avx512(&mut self, kernel: Avx512, key: &K, value: u32) -> Result<Option<u32>, ExactError> {
        self.insert_by(kernel, key, value)
    }

    #[inline(always)]
    fn insert_by(&mut self, kernel: impl Kernel, key: &K, value: u32) -> Result<Option<u32>, ExactError> {
        self.insert_at(kernel, key, self.shared.places(kernel, &key.to_words()), value)
    }

    /// Adds many entries or gives them other values, one after the other: as [`insert`](Self::insert) does, in a fraction of
    /// the time if the table is larger than the caches, because the buckets of all are asked for at once. Of slices of
    /// different lengths, only the shorter length is processed.
    ///
    /// # Errors
    /// [`ExactBurstError`]: an entry that can't be inserted ends the burst; those before it are in.
    pub fn insert_burst(&mut self, keys: &[K], values: &[u32]) -> Result<(), ExactBurstError> {
        let mut inserted = 0;
        for (keys, values) in keys.chunks(BURST).zip(values.chunks(BURST)) {
            let length = keys.len().min(values.len());
            let (keys, values) = (&keys[..length], &values[..length]);
            let ended = match self.kernel {
                Detected::Portable(kernel) => self.insert_all(kernel, keys, values),
                // SAFETY: the kernel exists, so the processor has what it was compiled for.
                #[cfg(target_arch = "x86_64")]
                Detected::X86(kernel) => unsafe { self.insert_all_x86(kernel, keys, values) },
                // SAFETY: as before.
                #[cfg(target_arch = "x86_64")]
                Detected::Avx512(kernel) => unsafe { self.insert_all_avx512(kernel, keys, values) },
            };
            ended.map_err(|error| ExactBurstError { inserted: inserted + error.inserted, ..error })?;
            inserted += length;
        }
        Ok(())
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "aes,avx2,bmi1,bmi2,popcnt,lzcnt")]
    fn insert_all_x86(&mut self, kernel: X86, keys: &[K], values: &[u32]) -> Result<(), ExactBurstError> {
        self.insert_all(kernel, keys, values)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "aes,vaes,avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512dq,avx512vl")]
    fn insert_all_avx512(
        &mut self,
        kernel: Avx512,
        keys: &[K],
        values: &[u32],
    ) -> Result<(), ExactBurstError> {
        self.insert_all(kernel, keys, values)
    }

    /// Up to [`BURST`] insertions: all lines are asked for before the first is waited for
    #[inline(always)]
    fn insert_all(&mut self, kernel: impl Kernel, keys: &[K], values: &[u32]) -> Result<(), ExactBurstError> {
        let mut places = BurstPlaces::new();
        let places = places.fill(&self.shared, kernel, keys, |places| {
            prefetch_write(self.shared.bucket(places.home));
            // The home once more if it will do
            let next = select_unpredictable(self.is_crowded(places.home), places.other, places.home);
            prefetch_write(self.shared.bucket(next));
        });
        for (inserted, ((key, value), places)) in keys.iter().zip(values).zip(places).enumerate() {
            self.insert_at(kernel, key, *places, *value)
                .map_err(|cause| ExactBurstError { inserted, cause })?;
        }
        Ok(())
    }

    #[inline(always)]
    fn insert_at(
        &mut self,
        kernel: impl Kernel,
        key: &K,
        places: Places,
        value: u32,
    ) -> Result<Option<u32>, ExactError> {
        // Most keys are new. No branch here depends on what comes from the buckets, but for that: while the lines of this
        // insertion are under way, the processor goes on to the next, and the fewer instructions it takes, the more it has under way.
        let words = key.to_words();
        if !self.is_crowded(places.home) {
            let Self { shared, crowded, entries, .. } = self;
            let home = shared.bucket(places.home);
            let header = home.header();
            if home.lacks(kernel, &words, places.tag())
                && value != NO_VALUE
                && let Some(slot) = header.free_slot::<BucketOf<K>>()
            {
                home.fill(slot, &words, places.tag(), value);
                shared.set_age(places.home, slot, 0);
                let after = header.with::<BucketOf<K>>(slot);
                home.publish(after);
                // SAFETY: a place of this table
                unsafe { crowded.set_if(places.home, after.is_full::<BucketOf<K>>()) };
                *entries += 1;
                return Ok(None);
            }
        } else if !self.is_crowded(places.other) {
            let (home, other) = (self.shared.bucket(places.home), self.shared.bucket(places.other));
            let is_new = home.lacks(kernel, &words, places.tag()) & other.lacks(kernel, &words, places.tag());
            if is_new && value != NO_VALUE && self.put(&words, places, value) {
                self.entries += 1;
                return Ok(None);
            }
        }
        self.insert_anywhere(kernel, key, value)
    }

    /// What the writer knows of one of the places of a key
    #[inline(always)]
    fn is_crowded(&self, place: u32) -> bool {
        // SAFETY: places are those of this table's buckets.
        unsafe { self.crowded.has(place) }
    }

    /// The same without any such luck. What it needs it finds out again, so that the usual way is spared it.
    #[inline(never)]
    fn insert_anywhere(
        &mut self,
        kernel: impl Kernel,
        key: &K,
        value: u32,
    ) -> Result<Option<u32>, ExactError> {
        if value == NO_VALUE {
            return Err(ExactError::ReservedValue { value });
        }
        let words = key.to_words();
        let places = self.shared.places(kernel, &words);
        if let Some((bucket, probe)) = self.find(kernel, &words, places) {
            self.shared.bucket(bucket).set_value(probe.slot, value);
            self.shared.set_age(bucket, probe.slot, 0);
            return Ok(Some(probe.value));
        }
        if !self.put(&words, places, value) {
            self.make_room(kernel, places)?;
            self.put(&words, places, value);
        }
        self.entries += 1;
        Ok(None)
    }

    /// Writes a new entry to the first of its buckets that has a free slot. Without a branch, as [`find`](Self::find).
    #[inline(always)]
    fn put(&mut self, words: &K::Words, places: Places, value: u32) -> bool {
        let home = self.shared.bucket(places.home);
        let header = home.header();
        let goes_away = header.is_full::<BucketOf<K>>();
        let place = select_unpredictable(goes_away, places.other, places.home);
        let bucket = self.shared.bucket(place);
        let before = bucket.header();
        let Some(slot) = before.free_slot::<BucketOf<K>>() else { return false };
        bucket.fill(slot, words, places.tag(), value);
        self.shared.set_age(place, slot, 0);
        let after = before.with::<BucketOf<K>>(slot);
        self.publish(place, after);
        // Readers look in the other bucket from now on. If it went home, this writes there once more what was just written.
        self.publish(places.home, Header::select(goes_away, header.one_more_away(), after));
        true
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, kernel: impl Kernel, places: Places) -> Result<(), ExactError> {
        let roots = [places.home, places.other];
        let full = ExactError::Full { entries: self.entries, slots: self.slots() };
        let mut last = self.search.way(&self.shared, &self.crowded, kernel, roots).ok_or(full)?;
        while let Some((step, before)) = self.search.step(last) {
            self.relocate(kernel, step);
            last = before;
        }
        Ok(())
    }

    /// Moves an entry to a bucket that has a free slot: first in there, then out of the old one
    pub(super) fn relocate(&mut self, kernel: impl Kernel, step: Move) {
        let (from, to) = (self.shared.bucket(step.from), self.shared.bucket(step.to));
        let (words, value) = from.entry(step.from_slot);
        let places = self.shared.places(kernel, &words);
        // The search ends at a bucket with a free slot, and each move frees one in the bucket of the next.
        let Some(slot) = to.header().free_slot::<BucketOf<K>>() else { return };
        to.fill(slot, &words, places.tag(), value);
        self.shared.copy_age((step.from, step.from_slot), (step.to, slot));
        let (after_to, after_from) =
            (to.header().with::<BucketOf<K>>(slot), from.header().without::<BucketOf<K>>(step.from_slot));
        // The count of entries away changes with the store of the home, whichever of the two that is.
        if step.to == places.home {
            self.publish(step.to, after_to.one_less_away());
            self.publish(step.from, after_from);
        } else {
            self.publish(step.to, after_to);
            self.publish(step.from, after_from.one_more_away());
        }
    }
}
