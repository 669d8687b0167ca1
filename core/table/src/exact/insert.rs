//! Insertion

use std::hint::select_unpredictable;
use std::mem::MaybeUninit;

use super::bucket::Layout;
use super::displace::Move;
use super::kernel::{BLOCK, BlockCandidates, Detected, Kernel};
use super::key::ExactKey;
use super::occupancy::Occupancy;
#[cfg(target_arch = "x86_64")]
use super::x86::{Avx512, X86};
use super::{
    BURST, BucketOf, BurstCandidates, Candidates, ExactBurstError, ExactError, ExactTable, NO_VALUE,
};
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
            // With vectors of 64 bytes insertions take up to a tenth longer (Intel family 6, model 167), and in bursts no less.
            // SAFETY: the kernel exists, so the processor has what it was compiled for.
            #[cfg(target_arch = "x86_64")]
            Detected::X86(kernel) | Detected::Avx512(Avx512(kernel)) => unsafe {
                self.insert_x86(kernel, key, value)
            },
            #[cfg(target_arch = "aarch64")]
            Detected::Arm(kernel) => kernel.run(move || self.insert_by(kernel, key, value)),
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "aes,avx2,bmi1,bmi2,popcnt,lzcnt")]
    fn insert_x86(&mut self, kernel: X86, key: &K, value: u32) -> Result<Option<u32>, ExactError> {
        self.insert_by(kernel, key, value)
    }

    #[inline(always)]
    fn insert_by(&mut self, kernel: impl Kernel, key: &K, value: u32) -> Result<Option<u32>, ExactError> {
        self.insert_at(kernel, key, self.shared.candidates(kernel, &key.to_words()), value)
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
                // SAFETY: as in `insert`.
                #[cfg(target_arch = "x86_64")]
                Detected::X86(kernel) | Detected::Avx512(Avx512(kernel)) => unsafe {
                    self.insert_all_x86(kernel, keys, values)
                },
                #[cfg(target_arch = "aarch64")]
                Detected::Arm(kernel) => kernel.run(|| self.insert_all(kernel, keys, values)),
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

    /// Up to [`BURST`] insertions: all lines are asked for before the first is waited for
    #[inline(always)]
    fn insert_all(&mut self, kernel: impl Kernel, keys: &[K], values: &[u32]) -> Result<(), ExactBurstError> {
        let mut candidates = BurstCandidates::new();
        let candidates = candidates.fill(&self.shared, kernel, keys, |candidates| {
            prefetch_write(self.shared.bucket(candidates.home));
            // The home once more if it will do
            let next = select_unpredictable(
                self.occupancy(candidates.home).is_crowded::<BucketOf<K>>(),
                candidates.other,
                candidates.home,
            );
            prefetch_write(self.shared.bucket(next));
        });
        for (inserted, ((key, value), candidates)) in keys.iter().zip(values).zip(candidates).enumerate() {
            self.insert_at(kernel, key, *candidates, *value)
                .map_err(|cause| ExactBurstError { inserted, cause })?;
        }
        Ok(())
    }

    #[inline(always)]
    fn insert_at(
        &mut self,
        kernel: impl Kernel,
        key: &K,
        candidates: Candidates,
        value: u32,
    ) -> Result<Option<u32>, ExactError> {
        // Most keys are new. Nothing here but for that is decided by what comes from a bucket, and little waits for it: while
        // its line is under way, the processor goes on to the next insertions.
        let (words, tag) = (key.to_words(), candidates.tag());
        let home = self.occupancy(candidates.home);
        if let Some(slot) = home.free_slot::<BucketOf<K>>()
            && !home.is_crowded::<BucketOf<K>>()
        {
            if self.shared.bucket(candidates.home).lacks(kernel, &words, tag, home.taken())
                && value != NO_VALUE
            {
                self.fill(candidates.home, slot, &words, tag, value);
                self.entries += 1;
                return Ok(None);
            }
        } else {
            let other = self.occupancy(candidates.other);
            if home.is_full::<BucketOf<K>>()
                && !other.is_crowded::<BucketOf<K>>()
                && let Some(slot) = other.free_slot::<BucketOf<K>>()
            {
                let (home_bucket, other_bucket) =
                    (self.shared.bucket(candidates.home), self.shared.bucket(candidates.other));
                let is_new = home_bucket.lacks(kernel, &words, tag, home.taken())
                    & other_bucket.lacks(kernel, &words, tag, other.taken());
                if is_new && value != NO_VALUE {
                    self.fill(candidates.other, slot, &words, tag, value);
                    self.send_away(candidates.home);
                    self.entries += 1;
                    return Ok(None);
                }
            }
        }
        self.insert_anywhere(kernel, key, value)
    }

    /// What the writer knows of one of the candidate buckets of a key
    #[inline(always)]
    fn occupancy(&self, candidate: u32) -> Occupancy {
        // SAFETY: candidates are those of this table's buckets.
        unsafe { self.occupancies.of(candidate) }
    }

    /// Puts an entry into a free slot, and lets readers see it
    #[inline(always)]
    fn fill(&mut self, candidate: u32, slot: usize, words: &K::Words, tag: u8, value: u32) {
        let bucket = self.shared.bucket(candidate);
        bucket.fill(slot, words, tag, value);
        self.shared.set_age(candidate, slot, 0);
        bucket.publish(bucket.header().with::<BucketOf<K>>(slot));
        // SAFETY: a bucket of this table
        unsafe { self.occupancies.take::<BucketOf<K>>(candidate, slot) };
    }

    /// Counts one more entry away from its home: readers look in its other bucket from now on.
    #[inline(always)]
    fn send_away(&mut self, home: u32) {
        let bucket = self.shared.bucket(home);
        bucket.publish(bucket.header().one_more_away());
        // SAFETY: a bucket of this table
        unsafe { self.occupancies.set_away(home) };
    }

    /// The same without any such luck. What it needs it finds out again, so that the usual way is spared it.
    #[inline(never)]
    fn insert_anywhere(
        &mut self,
        kernel: impl Kernel,
        key: &K,
        value: u32,
    ) -> Result<Option<u32>, ExactError> {
        kernel.run(move || self.insert_wherever(kernel, key, value))
    }

    #[inline(always)]
    fn insert_wherever(
        &mut self,
        kernel: impl Kernel,
        key: &K,
        value: u32,
    ) -> Result<Option<u32>, ExactError> {
        if value == NO_VALUE {
            return Err(ExactError::ReservedValue { value });
        }
        let words = key.to_words();
        let candidates = self.shared.candidates(kernel, &words);
        if let Some((bucket, probe)) = self.find(kernel, &words, candidates) {
            self.shared.bucket(bucket).set_value(probe.slot, value);
            self.shared.set_age(bucket, probe.slot, 0);
            return Ok(Some(probe.value));
        }
        if !self.put(&words, candidates, value) {
            if !self.make_space_by_one(kernel, candidates) {
                self.make_space(kernel, candidates)?;
            }
            self.put(&words, candidates, value);
        }
        self.entries += 1;
        Ok(None)
    }

    /// Writes a new entry to the first of its buckets that has a free slot
    #[inline(always)]
    fn put(&mut self, words: &K::Words, candidates: Candidates, value: u32) -> bool {
        if let Some(slot) = self.occupancy(candidates.home).free_slot::<BucketOf<K>>() {
            self.fill(candidates.home, slot, words, candidates.tag(), value);
            return true;
        }
        let Some(slot) = self.occupancy(candidates.other).free_slot::<BucketOf<K>>() else { return false };
        self.fill(candidates.other, slot, words, candidates.tag(), value);
        self.send_away(candidates.home);
        true
    }

    /// Frees a slot in one of two full buckets by moving one entry, if the bits say that one of these can go. Nearly all
    /// ways are as short.
    #[inline(always)]
    fn make_space_by_one(&mut self, kernel: impl Kernel, candidates: Candidates) -> bool {
        for bucket in [candidates.home, candidates.other] {
            if let Some((slot, candidates)) = self.who_can_go(kernel, bucket) {
                self.relocate(Move { from: bucket, from_slot: slot, to: candidates.other }, candidates);
                return true;
            }
        }
        false
    }

    /// An entry of a full bucket whose other bucket has space. All are tried, since nobody can foresee which will do.
    #[inline(always)]
    fn who_can_go(&self, kernel: impl Kernel, bucket: u32) -> Option<(usize, Candidates)> {
        let mut candidates: BlockCandidates = [const { MaybeUninit::uninit() }; BLOCK];
        let mut able = 0;
        for (slot, candidates) in candidates.iter_mut().enumerate().take(BucketOf::<K>::SLOTS) {
            let (words, _) = self.shared.bucket(bucket).entry(slot);
            let candidates = candidates.write(self.shared.candidates(kernel, &words));
            // Who is a guest here can't go: its other bucket is this one, which is full.
            able |= u32::from(!self.occupancy(candidates.other).is_crowded::<BucketOf<K>>()) << slot;
        }
        let slot = able.trailing_zeros() as usize;
        // SAFETY: the loop has written the candidates of all slots.
        (able != 0).then(|| (slot, unsafe { candidates[slot % BLOCK].assume_init() }))
    }

    #[cold]
    #[inline(never)]
    fn make_space(&mut self, kernel: impl Kernel, candidates: Candidates) -> Result<(), ExactError> {
        let roots = [candidates.home, candidates.other];
        let full = ExactError::Full { entries: self.entries, slots: self.slots() };
        let mut last = self.search.way(&self.shared, &self.occupancies, kernel, roots).ok_or(full)?;
        while let Some((step, before)) = self.search.step(last) {
            let (words, _) = self.shared.bucket(step.from).entry(step.from_slot);
            self.relocate(step, self.shared.candidates(kernel, &words));
            last = before;
        }
        Ok(())
    }

    /// Moves an entry, whose candidates are these, to a bucket that has a free slot: first in there, then out of the old one
    #[inline(always)]
    pub(super) fn relocate(&mut self, step: Move, candidates: Candidates) {
        let (from, to) = (self.shared.bucket(step.from), self.shared.bucket(step.to));
        let (words, value) = from.entry(step.from_slot);
        // The search ends at a bucket with a free slot, and each move frees one in the bucket of the next.
        let Some(slot) = to.header().free_slot::<BucketOf<K>>() else { return };
        to.fill(slot, &words, candidates.tag(), value);
        self.shared.copy_age((step.from, step.from_slot), (step.to, slot));
        let (after_to, after_from) =
            (to.header().with::<BucketOf<K>>(slot), from.header().without::<BucketOf<K>>(step.from_slot));
        // The count of entries away changes with the store of the home, whichever of the two that is.
        if step.to == candidates.home {
            self.publish(step.to, after_to.one_less_away());
            self.publish(step.from, after_from);
        } else {
            self.publish(step.to, after_to);
            self.publish(step.from, after_from.one_more_away());
        }
    }
}
