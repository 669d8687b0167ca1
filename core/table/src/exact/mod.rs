//! Exact match: keys of 8 to 40 bytes to values of 32 bits
//!
//! A cuckoo table with buckets (Pagh and Rodler, "Cuckoo hashing", Journal of Algorithms 51(2), 2004; Dietzfelbinger and
//! Weidling, "Balanced allocation and dictionaries with tightly packed constant size bins", TCS 380, 2007): a key
//! stands in one of two buckets, which a keyed hash chooses. The first of them is its *home*. A key goes
//! elsewhere only when its home is full, and a bucket counts how many of those it is home to did; so most lookups, found
//! or not, end in one bucket. An insertion that finds both buckets full moves others, along a shortest way
//! to a free slot (Li, Andersen, Kaminsky, Freedman: "Algorithmic improvements for fast concurrent cuckoo hashing", EuroSys 2014).
//!
//! Keys stand in the buckets themselves, not behind an index. Three keys of two words with their values and a header fill one
//! cache line, so the usual lookup waits for one line; DPDK's rte_hash reads a line of signatures and then a key
//! elsewhere.
//!
//! There is one writer, the [`ExactTable`], and any number of [`ExactReader`]s, which wait for nobody and write nothing but
//! marks for aging. [`bucket`] says how a bucket is read while it changes. Between buckets it goes like this: an entry that
//! moves is written to its new bucket before it is taken from the old one, so it is always in one of the two. A reader
//! who found it in neither looks whether its home has changed since, and begins again if so. It is enough to look at the home:
//! if the key was missing there all the time, it was in the other bucket all the time, and was seen there. The count of entries away
//! changes in the same store that takes an entry from its home or puts it back, so nobody relies on a count of zero
//! wrongly. Memory is never given back while a reader exists, and slots that are used again are told apart by
//! versions; so there is nothing for RCU to do here. What values stand for is another matter: whoever gives a number
//! to something new after removing its entry must first wait until no reader can have the old answer in hand.

#[cfg(target_arch = "aarch64")]
mod arm;
mod bucket;
mod candidates;
mod displace;
mod error;
mod hash;
mod insert;
mod kernel;
mod key;
#[cfg(all(test, not(loom)))]
mod load_tests;
mod lookup;
mod memory;
mod occupancy;
mod primitive;
mod table;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use error::{ExactBurstError, ExactError};
pub use key::{ExactKey, KeyWords};
pub use lookup::ExactReader;
pub use table::{ExactTable, Sweep};

use bucket::Layout;
use candidates::{BurstCandidates, Candidates};
use hash::Seed;
use kernel::Kernel;
use memory::{Ages, Buckets};

/// What a lookup answers where there is no entry; no entry has this value
pub const NO_VALUE: u32 = u32::MAX;

/// Keys of a burst that are under way at once: more than a core can wait for lines
const BURST: usize = 64;

type BucketOf<K> = <<K as ExactKey>::Words as KeyWords>::Bucket;

/// What the writer and the readers have in common
struct Shared<B> {
    buckets: Buckets<B>,
    seed: Seed,
    /// How many sweeps ago each slot was last hit, if entries age: those of a bucket side by side
    ages: Option<Ages>,
}

impl<B: Layout> Shared<B> {
    #[inline(always)]
    fn candidates(&self, kernel: impl Kernel, key: &B::Words) -> Candidates {
        Candidates::new(kernel.hash(&self.seed, key.as_slice()), self.count())
    }

    /// How many buckets there are: 2 to 2^31
    #[inline(always)]
    fn count(&self) -> u32 {
        self.buckets.len() as u32
    }

    /// One of the candidate buckets of a key
    #[inline(always)]
    fn bucket(&self, candidate: u32) -> &B {
        debug_assert!(candidate < self.count());
        // SAFETY: `candidate` comes from `Candidates::new` with this table's count, which is above it.
        unsafe { self.buckets.get_unchecked(candidate as usize) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashMap;

    use super::kernel::Detected;
    use super::occupancy::Occupancy;
    use super::*;

    type Key = [u8; 16];

    fn table(seed: u64) -> ExactTable<Key> {
        ExactTable::with_buckets(1000, Seed::from_number(seed), false).unwrap()
    }

    /// Finds keys by trying that all have the same home and the same other bucket under a seed, as an attacker could who
    /// knew it.
    fn colliding(seed: u64, count: usize) -> Vec<Key> {
        let table = table(seed);
        let mut by_candidates = HashMap::<_, Vec<Key>>::new();
        (0_u128..)
            .find_map(|number| {
                let key = number.to_le_bytes();
                let candidates = table.candidates_of(&key);
                let keys = by_candidates.entry((candidates.home, candidates.other)).or_default();
                keys.push(key);
                (keys.len() == count).then(|| keys.clone())
            })
            .unwrap()
    }

    #[test]
    fn keys_that_collide_under_one_seed_do_not_under_another() {
        let keys = colliding(1, 10);
        let mut flooded = table(1);
        let accepted = keys.iter().filter(|key| flooded.insert(key, 1).is_ok()).count();
        assert_eq!(accepted, 6, "two buckets of three");
        let mut fresh = ExactTable::<Key>::new(1000).unwrap();
        for other in [&mut table(2), &mut table(3), &mut fresh] {
            let candidates: std::collections::HashSet<_> = keys
                .iter()
                .map(|key| (other.candidates_of(key).home, other.candidates_of(key).other))
                .collect();
            assert!(candidates.len() >= 9, "{candidates:?}");
            for key in &keys {
                other.insert(key, 1).unwrap();
            }
        }
    }

    #[test]
    fn a_refused_key_leaves_the_table_as_it_was() {
        let keys = colliding(1, 7);
        let mut table = table(1);
        for (value, key) in keys[..6].iter().enumerate() {
            table.insert(key, value as u32).unwrap();
        }
        let mut before: Vec<_> = table.iter().collect();
        let slots = table.slots();
        assert_eq!(table.insert(&keys[6], 6), Err(ExactError::Full { entries: 6, slots }));
        let mut after: Vec<_> = table.iter().collect();
        before.sort_unstable();
        after.sort_unstable();
        assert_eq!((after, table.len()), (before, 6));
        // With the others in place, replacing still works, and one that leaves makes space.
        assert_eq!(table.insert(&keys[0], 9), Ok(Some(0)));
        table.remove(&keys[3]).unwrap();
        assert_eq!(table.insert(&keys[6], 6), Ok(None));
    }

    #[test]
    fn a_burst_inserts_as_one_by_one_does() {
        let keys: Vec<Key> = (0..2500_u128).map(u128::to_le_bytes).collect();
        let values: Vec<u32> = (0..2500).collect();
        let (mut one_by_one, mut at_once) = (table(1), table(1));
        for (key, value) in keys.iter().zip(&values) {
            one_by_one.insert(key, *value).unwrap();
        }
        at_once.insert_burst(&keys, &values).unwrap();
        assert!(one_by_one.iter().eq(at_once.iter()));
        assert_eq!(at_once.len(), 2500);
        // Again, with other values, and a key twice: the last value counts.
        at_once.insert_burst(&[keys[3], keys[4], keys[3]], &[7, 8, 9, 10]).unwrap();
        assert_eq!((at_once.get(&keys[3]), at_once.get(&keys[4]), at_once.len()), (Some(9), Some(8), 2500));
    }

    #[test]
    fn a_burst_that_does_not_fit_says_how_far_it_came() {
        let keys = colliding(1, 7);
        let mut table = table(1);
        let slots = table.slots();
        let error = table.insert_burst(&keys, &[1; 7]).unwrap_err();
        let cause = ExactError::Full { entries: 6, slots };
        assert_eq!((error, table.len()), (ExactBurstError { inserted: 6, cause }, 6));
        let other: Vec<Key> = (1..70_u128).map(|number| (number << 64).to_le_bytes()).collect();
        let mut values = [5; 69];
        values[65] = NO_VALUE;
        let error = table.insert_burst(&other, &values).unwrap_err();
        assert_eq!(
            error.to_string(),
            "after 65 of a burst: the value 0xffffffff means that there is no entry: give another, or remove the entry"
        );
        assert_eq!((table.len(), table.get(&other[64]), table.get(&other[65])), (6 + 65, Some(5), None));
    }

    #[test]
    fn all_kernels_find_the_same() {
        for seed in 0..4 {
            for kernel in Detected::available() {
                let mut table = table(seed);
                table.use_kernel(kernel);
                let keys: Vec<Key> =
                    (0..3000_u128).map(|number| (number << (seed * 9)).to_le_bytes()).collect();
                for (value, key) in keys.iter().enumerate().take(1200) {
                    table.insert(key, value as u32).unwrap();
                }
                let values: Vec<u32> = (0..2500).collect();
                table.insert_burst(&keys[1200..2500], &values[1200..]).unwrap();
                for other in Detected::available() {
                    table.use_kernel(other);
                    let mut found = vec![0; keys.len()];
                    table.reader().lookup_burst(&keys, &mut found);
                    assert_eq!(found[..2500], values, "filled by {kernel:?}, looked up by {other:?}");
                    assert!(found[2500..].iter().all(|value| *value == NO_VALUE));
                }
            }
        }
    }

    #[test]
    fn all_kernels_put_keys_of_all_lengths_in_the_same_candidates() {
        fn check<K: ExactKey + From<[u8; N]>, const N: usize>() {
            for kernel in Detected::available() {
                for count in [1_u8, 3, 7, 8] {
                    let keys: Vec<K> = (0..count)
                        .map(|key| {
                            K::from(std::array::from_fn(|byte| {
                                key.wrapping_mul(91) ^ (byte as u8).wrapping_mul(7)
                            }))
                        })
                        .collect();
                    let mut table = ExactTable::<K>::with_buckets(999, Seed::from_number(3), false).unwrap();
                    table.use_kernel(Detected::Portable(kernel::Portable));
                    let want: Vec<_> = keys.iter().map(|key| table.candidates_of(key)).collect();
                    table.use_kernel(kernel);
                    for (have, want) in table.candidates_of_burst(&keys).iter().zip(want) {
                        let compared =
                            |candidates: &Candidates| (candidates.home, candidates.other, candidates.tag());
                        assert_eq!(compared(have), compared(&want), "{kernel:?}, {N} bytes");
                    }
                }
            }
        }
        check::<[u8; 8], 8>();
        check::<[u8; 16], 16>();
        check::<[u8; 24], 24>();
        check::<[u8; 32], 32>();
        check::<[u8; 40], 40>();
    }

    #[test]
    fn the_writer_knows_what_is_taken_of_each_bucket() {
        let mut table = table(1);
        let check = |table: &ExactTable<Key>| {
            for (bucket, header) in (0..).zip(table.headers()) {
                // SAFETY: it goes on to the next bucket with the headers.
                let known = unsafe { table.occupancies.of(bucket) };
                assert_eq!(known, Occupancy::of(header), "bucket {bucket}: {header:?}");
                let is_crowded = header.taken() == 0b10101 || header.away() > 0;
                assert_eq!(known.is_crowded::<BucketOf<Key>>(), is_crowded, "bucket {bucket}: {header:?}");
            }
        };
        let keys: Vec<Key> = (0..2850_u128).map(u128::to_le_bytes).collect();
        let (one_by_one, at_once) = keys.split_at(1500);
        for key in one_by_one {
            assert_eq!(table.insert(key, 1), Ok(None));
        }
        check(&table);
        table.insert_burst(at_once, &[1; 1350]).unwrap();
        check(&table);
        for key in keys.iter().step_by(3) {
            table.remove(key).unwrap();
        }
        check(&table);
        table.clear();
        check(&table);
        assert_eq!(table.insert(&keys[0], 1), Ok(None));
        check(&table);
    }

    #[test]
    fn without_entries_no_home_sends_lookups_elsewhere() {
        let mut table = table(1);
        let keys: Vec<Key> = (0..2800_u128).map(u128::to_le_bytes).collect();
        for key in &keys {
            table.insert(key, 1).unwrap();
        }
        let away: u32 = table.headers().map(bucket::Header::away).sum();
        assert!(away > 300, "{away}");
        for key in &keys {
            table.remove(key).unwrap();
        }
        assert!(table.headers().all(|header| header.away() == 0 && header.taken() == 0));
    }
}

/// Model checking: loom runs each model through all interleavings up to a number of preemptions, and all values that the memory
/// model lets a load return.
///
/// ```text
/// RUSTFLAGS="--cfg loom" cargo test -p warmlane-table --release --lib exact
/// ```
///
/// The models can fail: each of these changes, made alone, turned at least one of them red.
///
/// | changed | what loom found |
/// |---|---|
/// | R1 or A1 relaxed | a slot taken and not yet its words: a missed key, another key's value |
/// | R2 or A2 left out | the next owner's words under the old header: another key's value |
/// | a value replaced by a relaxed store, or A2 left out | a value, and not yet what it stands for |
/// | the home not looked at again | a key missed that came home meanwhile |
/// | an entry taken from its old bucket first | a key missed in between |
/// | the version not advanced | another key's value, a missed key |
#[cfg(all(test, loom))]
mod loom_tests {
    use loom::thread;

    use super::*;

    type Key = [u8; 8];

    fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(preemptions);
        builder.check(body);
    }

    fn key(number: u64) -> Key {
        number.to_le_bytes()
    }

    /// Moves an entry away from home, back, and away again while another thread looks it up.
    fn an_entry_that_moves_is_never_missed(
        preemptions: usize,
        look_up: impl Fn(&ExactReader<Key>) -> u32 + Copy + Send + Sync + 'static,
    ) {
        model(preemptions, move || {
            let mut table = ExactTable::<Key>::with_buckets(2, Seed::from_number(1), false).unwrap();
            table.insert(&key(1), 11).unwrap();
            let reader = table.reader();
            let lookup = thread::spawn(move || assert_eq!(look_up(&reader), 11));
            for _ in 0..3 {
                table.shift(&key(1));
            }
            lookup.join().unwrap();
        });
    }

    #[test]
    fn an_entry_that_moves_is_never_missed_by_one_lookup() {
        an_entry_that_moves_is_never_missed(3, |reader| reader.lookup(&key(1)).unwrap_or(NO_VALUE));
    }

    #[test]
    fn an_entry_that_moves_is_never_missed_by_a_burst() {
        an_entry_that_moves_is_never_missed(3, |reader| {
            let mut values = [0];
            reader.lookup_burst(&[key(1)], &mut values);
            values[0]
        });
    }

    #[test]
    fn a_slot_with_a_tag_and_a_new_owner_is_not_taken_for_the_old_one() {
        // Keys of five words stand in buckets of several lines.
        let key = |number: u8| [number; 40];
        model(2, move || {
            let mut table = ExactTable::<[u8; 40]>::with_buckets(2, Seed::from_number(1), false).unwrap();
            table.insert(&key(1), 11).unwrap();
            let reader = table.reader();
            let lookup = thread::spawn(move || {
                let mut values = [0; 2];
                reader.lookup_burst(&[key(1), key(2)], &mut values);
                assert!([11, NO_VALUE].contains(&values[0]) && [22, NO_VALUE].contains(&values[1]));
            });
            table.remove(&key(1)).unwrap();
            table.insert(&key(2), 22).unwrap();
            lookup.join().unwrap();
        });
    }

    #[test]
    fn a_slot_with_a_new_owner_is_not_taken_for_the_old_one() {
        model(3, || {
            let mut table = ExactTable::<Key>::with_buckets(2, Seed::from_number(1), false).unwrap();
            table.insert(&key(1), 11).unwrap();
            let reader = table.reader();
            let lookup = thread::spawn(move || {
                assert!(matches!(reader.lookup(&key(1)), None | Some(11)));
                assert!(matches!(reader.lookup(&key(2)), None | Some(22)));
            });
            table.remove(&key(1)).unwrap();
            table.insert(&key(2), 22).unwrap();
            lookup.join().unwrap();
        });
    }

    #[test]
    fn an_insertion_into_the_other_bucket_hides_nobody() {
        model(2, || {
            let mut table = ExactTable::<Key>::with_buckets(2, Seed::from_number(1), false).unwrap();
            let home = table.candidates_of(&key(1)).home;
            let keys: Vec<Key> =
                (1..).map(key).filter(|key| table.candidates_of(key).home == home).take(6).collect();
            for key in &keys[..5] {
                table.insert(key, 11).unwrap();
            }
            let (reader, last) = (table.reader(), keys[5]);
            let first = keys[0];
            let lookup = thread::spawn(move || {
                assert_eq!(reader.lookup(&first), Some(11));
                assert!(matches!(reader.lookup(&last), None | Some(22)));
            });
            table.insert(&last, 22).unwrap();
            assert_eq!((table.get(&last), table.get(&first)), (Some(22), Some(11)));
            lookup.join().unwrap();
        });
    }

    #[test]
    fn what_a_value_stands_for_is_seen_with_it() {
        use loom::cell::UnsafeCell;
        use loom::sync::Arc;

        struct Numbered([UnsafeCell<u32>; 2]);
        // SAFETY: the point of the test: loom checks each access.
        unsafe impl Sync for Numbered {}
        // SAFETY: integers.
        unsafe impl Send for Numbered {}

        model(3, || {
            let meaning = Arc::new(Numbered([UnsafeCell::new(0), UnsafeCell::new(0)]));
            let mut table = ExactTable::<Key>::with_buckets(2, Seed::from_number(1), false).unwrap();
            let (reader, read) = (table.reader(), Arc::clone(&meaning));
            let lookup = thread::spawn(move || {
                if let Some(value) = reader.lookup(&key(1)) {
                    // SAFETY: loom checks that it was written before.
                    read.0[value as usize].with(|meaning| assert_eq!(unsafe { *meaning }, 7 + value));
                }
            });
            for value in 0..2 {
                // SAFETY: loom checks that nobody reads it yet.
                meaning.0[value as usize].with_mut(|meaning| unsafe { *meaning = 7 + value });
                table.insert(&key(1), value).unwrap();
            }
            lookup.join().unwrap();
        });
    }
}
