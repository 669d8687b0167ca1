//! When a hash lookup orders the load of its value: before the key is compared, or after.
//!
//! A loop of the lab's own, after the claim's: buckets of eight signatures and key numbers; behind each number a key and, in
//! the same entry, the value that a writer publishes with a release store.

use crate::benches::exact::{Key, key};
use crate::measure::Measure;
use crate::random::Xorshift;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Keys in the table; half of the slots are filled.
const KEYS: usize = 1 << 16;
/// Slots of a bucket.
const SLOTS: usize = 8;
const BUCKETS: usize = 2 * KEYS / SLOTS;
/// No key has this number.
const EMPTY: u32 = 0;
const LOOKUPS: usize = 1 << 14;

#[derive(Default)]
struct Bucket {
    signatures: [u16; SLOTS],
    numbers: [AtomicU32; SLOTS],
}

struct Entry {
    value: AtomicU64,
    key: Key,
}

/// A table that is filled, and the keys that are asked for in turn.
pub(super) struct Lookups {
    buckets: Vec<Bucket>,
    /// The first belongs to nobody.
    entries: Vec<Entry>,
    asked: Vec<Key>,
    /// Whether the value is loaded and ordered only when the key is right.
    late: bool,
}

/// A bucket and a signature.
fn place(key: &Key) -> (usize, u16) {
    let word = |bytes: &[u8]| bytes.iter().fold(0_u64, |word, &byte| word << 8 | u64::from(byte));
    let hash = (word(&key[..8]) ^ word(&key[8..]).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((hash >> 40) as usize % BUCKETS, (hash >> 24) as u16)
}

impl Lookups {
    pub(super) fn new(late: bool) -> Self {
        let mut buckets: Vec<Bucket> = (0..BUCKETS).map(|_| Bucket::default()).collect();
        let mut entries = vec![Entry { value: AtomicU64::new(0), key: key(KEYS as u64) }];
        for index in 0..KEYS as u64 {
            let key = key(index);
            let (bucket, signature) = place(&key);
            let bucket = &mut buckets[bucket];
            // A key whose bucket is full is left out.
            let free = bucket.numbers.iter_mut().position(|number| *number.get_mut() == EMPTY);
            if let Some(slot) = free {
                bucket.signatures[slot] = signature;
                *bucket.numbers[slot].get_mut() = entries.len() as u32;
                entries.push(Entry { value: AtomicU64::new(index), key });
            }
        }
        let mut random = Xorshift(Xorshift::SEED);
        let asked = (0..LOOKUPS).map(|_| entries[1 + random.below(entries.len() - 1)].key);
        Self { asked: asked.collect(), buckets, entries, late }
    }

    #[inline(always)]
    fn find(&self, key: &Key, late: bool) -> Option<u64> {
        let (bucket, signature) = place(key);
        let bucket = &self.buckets[bucket];
        for (slot, &other) in bucket.signatures.iter().enumerate() {
            if other != signature {
                continue;
            }
            let number = bucket.numbers[slot].load(Ordering::Relaxed);
            if number == EMPTY {
                continue;
            }
            let entry = &self.entries[number as usize];
            if late {
                if entry.key == *key {
                    // Acquire, pairs with a writer's release: what the value points to is seen as it was published.
                    return Some(entry.value.load(Ordering::Acquire));
                }
            } else {
                // The same, and the comparison of the key waits for it.
                let value = entry.value.load(Ordering::Acquire);
                if entry.key == *key {
                    return Some(value);
                }
            }
        }
        None
    }

    fn find_all(&self, late: bool) -> u64 {
        self.asked.iter().filter_map(|key| self.find(key, late)).fold(0, u64::wrapping_add)
    }
}

impl Measure for Lookups {
    fn work(&mut self) -> u64 {
        // Chosen outside the loop, so that each way is compiled for itself.
        black_box(if self.late { self.find_all(true) } else { self.find_all(false) });
        LOOKUPS as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_what_is_there_and_nothing_else() {
        let lookups = Lookups::new(true);
        assert!(lookups.entries.len() > KEYS * 9 / 10, "{}", lookups.entries.len());
        for late in [false, true] {
            for entry in &lookups.entries[1..] {
                let value = entry.value.load(Ordering::Relaxed);
                assert_eq!(lookups.find(&entry.key, late), Some(value));
            }
            assert_eq!(lookups.find(&key(KEYS as u64 + 7), late), None);
        }
    }
}
