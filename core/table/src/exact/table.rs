//! The writer's end

use std::fmt;
use std::hint::select_unpredictable;
use std::num::NonZeroU8;
use std::sync::Arc;

use super::bucket::{Header, Layout, Probe};
use super::displace::{Move, Search};
use super::hash::Seed;
use super::kernel::{BLOCK, Detected, Kernel};
use super::key::{ExactKey, KeyWords};
use super::memory::{Ages, Buckets};
use super::primitive::Ordering;
#[cfg(target_arch = "x86_64")]
use super::x86::{Avx512, X86};
use super::{ExactBurstError, ExactError, ExactReader, NO_VALUE, Places, Shared};
use warmlane_sys::prefetch::prefetch_write;

type BucketOf<K> = <<K as ExactKey>::Words as KeyWords>::Bucket;

/// Of ten slots, how many entries a table is made for. It can hold 9.5, but then four keys in ten are away from home and
/// insertions move many; at 8 it is two in ten, and the table as a whole is faster though it is larger.
const FILLED_OF_TEN: usize = 8;
/// And so many buckets more, because in a small table chance deals unevenly: with 8, none of a million tables for 1 to 300
/// entries failed to take them.
const SPARE_BUCKETS: usize = 8;
/// Insertions whose homes are asked for together: more than a core can wait for lines at once
const BURST: usize = 64;
/// The hash chooses among at most so many buckets.
const MOST_BUCKETS: usize = 1 << 31;

/// Keys and their values, found by exact match; this is the one that changes them
///
/// A table has a fixed size. [Readers](Self::reader) look up while it changes.
///
/// ```
/// use warmlane_table::{ExactTable, NO_VALUE};
///
/// let mut flows = ExactTable::<[u8; 13]>::new(1000)?;
/// let reader = flows.reader();
/// flows.insert(&[7; 13], 42)?;
/// let mut values = [0; 2];
/// reader.lookup_burst(&[[7; 13], [8; 13]], &mut values);
/// assert_eq!(values, [42, NO_VALUE]);
/// # Ok::<(), warmlane_table::ExactError>(())
/// ```
pub struct ExactTable<K: ExactKey> {
    shared: Arc<Shared<BucketOf<K>>>,
    kernel: Detected,
    search: Search,
    entries: usize,
    /// The bucket that the sweep comes to next
    sweep: usize,
}

/// How far a [sweep](ExactTable::sweep) came
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Entries that were removed
    pub removed: usize,
    /// Whether it reached the end of the table, so that the next one begins at the start and time moves on
    pub finished: bool,
}

impl<K: ExactKey> ExactTable<K> {
    /// A table with room for `capacity` entries, and usually for a sixth more. All of its memory is taken at once,
    /// [`memory_bytes`](Self::memory_bytes): for a million keys of 16 bytes 25.4 MiB.
    ///
    /// # Errors
    /// [`ExactError::Capacity`] for none or more than 2^31 buckets hold, [`ExactError::Memory`].
    pub fn new(capacity: usize) -> Result<Self, ExactError> {
        Self::with_seed(capacity, Seed::random(), false)
    }

    /// The same, with entries that age: lookups mark what they find, for [`sweep`](Self::sweep). It takes one byte more for
    /// each slot, and lookups some cycles.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn with_aging(capacity: usize) -> Result<Self, ExactError> {
        Self::with_seed(capacity, Seed::random(), true)
    }

    pub(super) fn with_seed(capacity: usize, seed: Seed, aging: bool) -> Result<Self, ExactError> {
        let slots_of_bucket = BucketOf::<K>::SLOTS;
        let maximum = MOST_BUCKETS / 10 * slots_of_bucket * FILLED_OF_TEN;
        if capacity == 0 || capacity > maximum {
            return Err(ExactError::Capacity { capacity, maximum });
        }
        let buckets = (capacity * 10).div_ceil(slots_of_bucket * FILLED_OF_TEN) + SPARE_BUCKETS;
        Self::with_buckets(buckets, seed, aging)
    }

    pub(super) fn with_buckets(buckets: usize, seed: Seed, aging: bool) -> Result<Self, ExactError> {
        let ages = if aging { Some(Ages::new(buckets * BucketOf::<K>::SLOTS)?) } else { None };
        let shared = Shared { buckets: Buckets::new(buckets)?, seed, ages };
        let (shared, kernel) = (Arc::new(shared), Detected::detect());
        Ok(Self { shared, kernel, search: Search::new(), entries: 0, sweep: 0 })
    }

    /// One that looks up in this table, for another lane
    pub fn reader(&self) -> ExactReader<K> {
        ExactReader::new(Arc::clone(&self.shared), self.kernel)
    }

    /// Adds an entry or gives it another value; returns the value it had before. Readers see the one or the other.
    ///
    /// Usually a few hundred cycles; in a table as good as full up to a few hundred microseconds.
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

    /// Up to [`BURST`] insertions, in steps that each ask for what the next one reads
    #[inline(always)]
    fn insert_all(&mut self, kernel: impl Kernel, keys: &[K], values: &[u32]) -> Result<(), ExactBurstError> {
        let mut places = [[Places::NONE; BLOCK]; BURST / BLOCK];
        for (keys, places) in keys.chunks(BLOCK).zip(&mut places) {
            self.shared.places_of(kernel, keys, places);
            places[..keys.len()].iter().for_each(|places| prefetch_write(self.shared.bucket(places.home)));
        }
        let places = &places.as_flattened()[..keys.len()];
        for places in places {
            let header = self.shared.bucket(places.home).header();
            let elsewhere = (header.away() > 0) | header.is_full::<BucketOf<K>>();
            // Without a branch: nobody can foresee which.
            let next = select_unpredictable(elsewhere, places.other, places.home);
            prefetch_write(self.shared.bucket(next));
        }
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
        // Most keys are new, and their homes have room and sent none away. The fewer instructions this takes, the more insertions
        // the processor has under way: it goes on to the next while the line of this one comes.
        let words = key.to_words();
        let home = self.shared.bucket(places.home);
        let header = home.header();
        if home.lacks(kernel, &words, places.tag())
            && header.away() == 0
            && value != NO_VALUE
            && let Some(slot) = header.free_slot::<BucketOf<K>>()
        {
            home.fill(slot, &words, places.tag(), value);
            self.shared.set_age(places.home, slot, 0);
            home.publish(header.with::<BucketOf<K>>(slot));
            self.entries += 1;
            return Ok(None);
        }
        self.insert_anywhere(kernel, key, value)
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
            self.make_room(places)?;
            self.put(&words, places, value);
        }
        self.entries += 1;
        Ok(None)
    }

    /// Takes an entry away; returns the value it had
    ///
    /// # Errors
    /// [`ExactError::NotFound`].
    pub fn remove(&mut self, key: &K) -> Result<u32, ExactError> {
        let words = key.to_words();
        let places = self.places(&words);
        let (bucket, probe) = self.find(self.kernel, &words, places).ok_or(ExactError::NotFound)?;
        self.take(bucket, probe.slot, places);
        Ok(probe.value)
    }

    /// Removes all entries
    pub fn clear(&mut self) {
        for bucket in &*self.shared.buckets {
            bucket.publish(bucket.header().emptied());
        }
        (self.entries, self.sweep) = (0, 0);
    }

    /// The value of `key`; not a hit for aging
    pub fn get(&self, key: &K) -> Option<u32> {
        let words = key.to_words();
        self.find(self.kernel, &words, self.places(&words)).map(|(_, probe)| probe.value)
    }

    /// All entries, in no order that means anything
    pub fn iter(&self) -> impl Iterator<Item = (K, u32)> + '_ {
        self.shared.buckets.iter().flat_map(|bucket| {
            let header = bucket.header();
            (0..BucketOf::<K>::SLOTS).filter(move |slot| header.has::<BucketOf<K>>(*slot)).map(|slot| {
                let (words, value) = bucket.entry(slot);
                (K::from_words(&words), value)
            })
        })
    }

    /// Goes on to the next `buckets` buckets, from the first again after the last, and ages their entries by one sweep.
    /// Those that were not hit for `idle` whole sweeps are removed and given to `removed`. Stops at the end of the table.
    ///
    /// So time is counted in rounds through the table. To remove entries between 30 and 31 seconds after their last hit, call this
    /// in such steps that a round takes a second, with `idle` 30. Inserting and replacing count as hits. An entry that is moved
    /// to another bucket may miss a sweep or get two in a round, and a hit at that very moment may be lost.
    ///
    /// A table without aging has nothing to go by: nothing is removed.
    pub fn sweep(&mut self, buckets: usize, idle: NonZeroU8, mut removed: impl FnMut(K, u32)) -> Sweep {
        let before = self.entries;
        let end = self.sweep.saturating_add(buckets).min(self.shared.buckets.len());
        for bucket in self.sweep..end {
            self.sweep_bucket(bucket as u32, idle, &mut removed);
        }
        let finished = end == self.shared.buckets.len();
        self.sweep = if finished { 0 } else { end };
        Sweep { removed: before - self.entries, finished }
    }

    fn sweep_bucket(&mut self, index: u32, idle: NonZeroU8, removed: &mut impl FnMut(K, u32)) {
        for slot in 0..BucketOf::<K>::SLOTS {
            let bucket = self.shared.bucket(index);
            if !bucket.header().has::<BucketOf<K>>(slot) || !self.shared.is_idle(index, slot, idle) {
                continue;
            }
            let (words, value) = bucket.entry(slot);
            let places = self.places(&words);
            self.take(index, slot, places);
            removed(K::from_words(&words), value);
        }
    }

    /// Number of entries
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether there is no entry
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Places for entries. Some 95 % of them can be filled.
    pub fn slots(&self) -> usize {
        self.buckets() * BucketOf::<K>::SLOTS
    }

    /// Buckets that a [sweep](Self::sweep) goes through
    pub fn buckets(&self) -> usize {
        self.shared.buckets.len()
    }

    /// Bytes the table takes
    pub fn memory_bytes(&self) -> usize {
        self.shared.buckets.bytes() + self.shared.ages.as_ref().map_or(0, |ages| ages.len())
    }

    fn places(&self, words: &K::Words) -> Places {
        self.shared.places(self.kernel, words)
    }

    /// Where a key is. Without a branch that depends on what is read, but for whether the key is there, which users know
    /// beforehand: while its line is under way, the processor goes on to the next key and asks for that one's.
    #[inline(always)]
    fn find(&self, kernel: impl Kernel, words: &K::Words, places: Places) -> Option<(u32, Probe)> {
        let home = self.shared.bucket(places.home).probe(kernel, words, places.tag());
        // If none is away, at home once more
        let next = select_unpredictable(home.header.away() > 0, places.other, places.home);
        let other = self.shared.bucket(next).probe(kernel, words, places.tag());
        if home.found() {
            return Some((places.home, home));
        }
        other.found().then_some((next, other))
    }

    /// Writes a new entry to the first of its buckets that has a free slot. Without a branch, as [`find`](Self::find).
    #[inline(always)]
    fn put(&self, words: &K::Words, places: Places, value: u32) -> bool {
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
        bucket.publish(after);
        // Readers look in the other bucket from now on. If it went home, this writes there once more what was just written.
        home.publish(Header::select(goes_away, header.one_more_away(), after));
        true
    }

    fn take(&mut self, bucket: u32, slot: usize, places: Places) {
        let (home, holder) = (self.shared.bucket(places.home), self.shared.bucket(bucket));
        holder.publish(holder.header().without::<BucketOf<K>>(slot));
        if bucket != places.home {
            home.publish(home.header().one_less_away());
        }
        self.entries -= 1;
    }

    #[cold]
    fn make_room(&mut self, places: Places) -> Result<(), ExactError> {
        let roots = [places.home, places.other];
        let full = ExactError::Full { entries: self.entries, slots: self.slots() };
        let moves = self.search.moves(&self.shared, self.kernel, roots).ok_or(full)?;
        moves.for_each(|step| self.shared.relocate(self.kernel, step));
        Ok(())
    }
}

#[cfg(test)]
impl<K: ExactKey> ExactTable<K> {
    pub(super) fn places_of(&self, key: &K) -> Places {
        self.places(&key.to_words())
    }

    /// The same of up to eight keys at once
    #[cfg(not(loom))]
    pub(super) fn places_of_burst(&self, keys: &[K]) -> [Places; BLOCK] {
        let mut places = [Places::NONE; BLOCK];
        match self.kernel {
            Detected::Portable(kernel) => self.shared.places_of(kernel, keys, &mut places),
            #[cfg(target_arch = "x86_64")]
            Detected::X86(kernel) => self.shared.places_of(kernel, keys, &mut places),
            #[cfg(target_arch = "x86_64")]
            Detected::Avx512(kernel) => self.shared.places_of(kernel, keys, &mut places),
        }
        places
    }

    #[cfg(not(loom))]
    pub(super) fn use_kernel(&mut self, kernel: Detected) {
        self.kernel = kernel;
    }

    #[cfg(not(loom))]
    pub(super) fn headers(&self) -> impl Iterator<Item = super::bucket::Header> + '_ {
        self.shared.buckets.iter().map(Layout::header)
    }

    /// Moves an entry to its other bucket, as making room does
    #[cfg(loom)]
    pub(super) fn shift(&self, key: &K) {
        let words = key.to_words();
        let places = self.places(&words);
        let Some((from, probe)) = self.find(self.kernel, &words, places) else { return };
        let to = if from == places.home { places.other } else { places.home };
        self.shared.relocate(self.kernel, Move { from, from_slot: probe.slot, to });
    }
}

impl<B: Layout> Shared<B> {
    /// Moves an entry to a bucket that has a free slot: first in there, then out of the old one
    fn relocate(&self, kernel: Detected, step: Move) {
        let (from, to) = (self.bucket(step.from), self.bucket(step.to));
        let (words, value) = from.entry(step.from_slot);
        let places = self.places(kernel, &words);
        // The search ends at a bucket with a free slot, and each move frees one in the bucket of the next.
        let Some(slot) = to.header().free_slot::<B>() else { return };
        to.fill(slot, &words, places.tag(), value);
        self.copy_age((step.from, step.from_slot), (step.to, slot));
        // The count of entries away changes with the store of the home, whichever of the two that is.
        if step.to == places.home {
            to.publish(to.header().with::<B>(slot).one_less_away());
            from.publish(from.header().without::<B>(step.from_slot));
        } else {
            to.publish(to.header().with::<B>(slot));
            from.publish(from.header().without::<B>(step.from_slot).one_more_away());
        }
    }

    #[inline]
    fn set_age(&self, bucket: u32, slot: usize, age: u8) {
        if let Some(ages) = &self.ages {
            ages[bucket as usize * B::SLOTS + slot].store(age, Ordering::Relaxed);
        }
    }

    fn copy_age(&self, from: (u32, usize), to: (u32, usize)) {
        if let Some(ages) = &self.ages {
            let age = ages[from.0 as usize * B::SLOTS + from.1].load(Ordering::Relaxed);
            ages[to.0 as usize * B::SLOTS + to.1].store(age, Ordering::Relaxed);
        }
    }

    /// Whether an entry was not hit for `idle` sweeps; if it was, it is now one sweep older
    fn is_idle(&self, bucket: u32, slot: usize, idle: NonZeroU8) -> bool {
        let Some(ages) = &self.ages else { return false };
        let age = &ages[bucket as usize * B::SLOTS + slot];
        let sweeps = age.load(Ordering::Relaxed);
        if sweeps >= idle.get() {
            return true;
        }
        // Fails if a reader has just marked it, and then leaves the mark.
        let _ = age.compare_exchange(sweeps, sweeps + 1, Ordering::Relaxed, Ordering::Relaxed);
        false
    }
}

impl<K: ExactKey> fmt::Debug for ExactTable<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ExactTable")
            .field("entries", &self.entries)
            .field("slots", &self.slots())
            .finish_non_exhaustive()
    }
}
