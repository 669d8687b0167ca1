//! The writer's end

use std::fmt;
use std::hint::select_unpredictable;
use std::num::NonZeroU8;
use std::sync::Arc;

use super::bucket::{Header, Layout, Probe};
#[cfg(all(test, loom))]
use super::displace::Move;
use super::displace::Search;
use super::hash::Seed;
use super::kernel::{Detected, Kernel};
use super::key::ExactKey;
use super::memory::{Ages, Buckets};
use super::occupancy::{Occupancies, Occupancy};
use super::primitive::Ordering;
use super::{BucketOf, Candidates, ExactError, ExactReader, Shared};
use warmlane_sys::simd::Level;

/// Of ten slots, how many entries a table is made for. It can hold 9.5, but then four keys in ten are away from home and
/// insertions move many. At 7 it is three in twenty, and one new key in 25 finds both of its buckets full while the table
/// fills, where at 8 it is one in 14: insertions take a quarter less, lookups no more though the table is larger.
const FILLED_OF_TEN: usize = 7;
/// And so many buckets more, because in a small table chance deals unevenly: with 8, none of a million tables for 1 to 300
/// entries failed to take them.
const SPARE_BUCKETS: usize = 8;
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
    pub(super) shared: Arc<Shared<BucketOf<K>>>,
    pub(super) kernel: Detected,
    pub(super) occupancies: Occupancies,
    pub(super) search: Search,
    pub(super) entries: usize,
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
    /// A table with space for `capacity` entries, and usually for a third more. All of its memory is taken at once,
    /// [`memory_bytes`](Self::memory_bytes): for a million keys of 16 bytes 29.1 MiB.
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
        let occupancies = Occupancies::new(buckets)?;
        Ok(Self { shared, kernel, occupancies, search: Search::new(), entries: 0, sweep: 0 })
    }

    /// Chooses the instructions of lookups, to measure or to test; returns false and changes nothing when this machine has not got
    /// them. A new table takes [those detected](warmlane_sys::simd::detected). Readers keep what they have.
    pub fn use_level(&mut self, level: Level) -> bool {
        let available = Level::available().contains(&level);
        if available {
            self.kernel = Detected::of(level);
        }
        available
    }

    /// One that looks up in this table, for another lane
    pub fn reader(&self) -> ExactReader<K> {
        ExactReader::new(Arc::clone(&self.shared), self.kernel)
    }

    /// Takes an entry away; returns the value it had
    ///
    /// # Errors
    /// [`ExactError::NotFound`].
    pub fn remove(&mut self, key: &K) -> Result<u32, ExactError> {
        let words = key.to_words();
        let candidates = self.candidates(&words);
        let (bucket, probe) = self.find(self.kernel, &words, candidates).ok_or(ExactError::NotFound)?;
        self.take(bucket, probe.slot, candidates);
        Ok(probe.value)
    }

    /// Removes all entries
    pub fn clear(&mut self) {
        for bucket in &*self.shared.buckets {
            bucket.publish(bucket.header().emptied());
        }
        self.occupancies.clear();
        (self.entries, self.sweep) = (0, 0);
    }

    /// The value of `key`; not a hit for aging
    pub fn get(&self, key: &K) -> Option<u32> {
        let words = key.to_words();
        self.find(self.kernel, &words, self.candidates(&words)).map(|(_, probe)| probe.value)
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
            let candidates = self.candidates(&words);
            self.take(index, slot, candidates);
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

    /// Slots for entries. Some 95 % of them can be filled.
    pub fn slots(&self) -> usize {
        self.buckets() * BucketOf::<K>::SLOTS
    }

    /// Buckets that a [sweep](Self::sweep) goes through
    pub fn buckets(&self) -> usize {
        self.shared.buckets.len()
    }

    /// Bytes the table takes
    pub fn memory_bytes(&self) -> usize {
        self.shared.buckets.bytes()
            + self.occupancies.bytes()
            + self.shared.ages.as_ref().map_or(0, |ages| ages.len())
    }

    fn candidates(&self, words: &K::Words) -> Candidates {
        self.shared.candidates(self.kernel, words)
    }

    /// Where a key is. Without a branch that depends on what is read, but for whether the key is there, which users know
    /// beforehand: while its line is under way, the processor goes on to the next key and asks for that one's.
    #[inline(always)]
    pub(super) fn find(
        &self,
        kernel: impl Kernel,
        words: &K::Words,
        candidates: Candidates,
    ) -> Option<(u32, Probe)> {
        let home = self.shared.bucket(candidates.home).probe(kernel, words, candidates.tag());
        // If none is away, at home once more
        let next = select_unpredictable(home.header.away() > 0, candidates.other, candidates.home);
        let other = self.shared.bucket(next).probe(kernel, words, candidates.tag());
        if home.found() {
            return Some((candidates.home, home));
        }
        other.found().then_some((next, other))
    }

    /// Makes visible what was filled or freed, and notes what it means for insertions
    #[inline(always)]
    pub(super) fn publish(&mut self, bucket: u32, header: Header) {
        self.shared.bucket(bucket).publish(header);
        // SAFETY: all who call this have the bucket from a key's candidates, the search for space, or a sweep, which stays in the table.
        unsafe { self.occupancies.set(bucket, Occupancy::of(header)) };
    }

    fn take(&mut self, bucket: u32, slot: usize, candidates: Candidates) {
        self.publish(bucket, self.shared.bucket(bucket).header().without::<BucketOf<K>>(slot));
        if bucket != candidates.home {
            self.publish(candidates.home, self.shared.bucket(candidates.home).header().one_less_away());
        }
        self.entries -= 1;
    }
}

#[cfg(test)]
impl<K: ExactKey> ExactTable<K> {
    pub(super) fn candidates_of(&self, key: &K) -> Candidates {
        self.candidates(&key.to_words())
    }

    /// The same of a burst
    #[cfg(not(loom))]
    pub(super) fn candidates_of_burst(&self, keys: &[K]) -> Vec<Candidates> {
        let mut candidates = super::BurstCandidates::new();
        let shared = &self.shared;
        match self.kernel {
            Detected::Portable(kernel) => candidates.fill(shared, kernel, keys, |_| ()),
            #[cfg(target_arch = "x86_64")]
            Detected::X86(kernel) => candidates.fill(shared, kernel, keys, |_| ()),
            #[cfg(target_arch = "x86_64")]
            Detected::Avx512(kernel) => candidates.fill(shared, kernel, keys, |_| ()),
            #[cfg(target_arch = "aarch64")]
            Detected::Arm(kernel) => candidates.fill(shared, kernel, keys, |_| ()),
        }
        .to_vec()
    }

    #[cfg(not(loom))]
    pub(super) fn use_kernel(&mut self, kernel: Detected) {
        self.kernel = kernel;
    }

    #[cfg(not(loom))]
    pub(super) fn headers(&self) -> impl Iterator<Item = super::bucket::Header> + '_ {
        self.shared.buckets.iter().map(Layout::header)
    }

    /// Moves an entry to its other bucket, as making space does
    #[cfg(loom)]
    pub(super) fn shift(&mut self, key: &K) {
        let words = key.to_words();
        let candidates = self.candidates(&words);
        let Some((from, probe)) = self.find(self.kernel, &words, candidates) else { return };
        let to = if from == candidates.home { candidates.other } else { candidates.home };
        self.relocate(Move { from, from_slot: probe.slot, to }, candidates);
    }
}

impl<B: Layout> Shared<B> {
    #[inline]
    pub(super) fn set_age(&self, bucket: u32, slot: usize, age: u8) {
        if let Some(ages) = &self.ages {
            ages[bucket as usize * B::SLOTS + slot].store(age, Ordering::Relaxed);
        }
    }

    pub(super) fn copy_age(&self, from: (u32, usize), to: (u32, usize)) {
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
