//! Small numbers by key, in a table that every packet reads. Its size is fixed when it is made.

/// What can be looked up.
pub trait Key: Copy + Default + Eq {
    /// All that tells it from others, in 64 bits.
    fn bits(self) -> u64;
}

impl Key for u64 {
    #[inline(always)]
    fn bits(self) -> u64 {
        self
    }
}

impl Key for u128 {
    #[inline(always)]
    fn bits(self) -> u64 {
        // A product, so that no two parts of an address cancel each other.
        (self as u64) ^ ((self >> 64) as u64).wrapping_mul(MULTIPLIER)
    }
}

/// An odd constant with as many ones as zeros, from the fraction of the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number of a slot that has no key.
const EMPTY: u16 = u16::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot<K> {
    key: K,
    number: u16,
}

/// The number of each key, by open addressing. At least half of the slots are empty, so a look at two of them is usually enough.
#[derive(Clone, Debug)]
pub struct Directory<K> {
    slots: Box<[Slot<K>]>,
    /// Bits of the hash that are not used.
    shift: u32,
}

impl<K: Key> Directory<K> {
    /// A key that is there twice has its first number, which has to be less than 65,535.
    pub fn new(entries: impl IntoIterator<Item = (K, u16)>) -> Self {
        let entries: Vec<_> = entries.into_iter().collect();
        let mut directory = Self::with_space_for(entries.len());
        for (key, number) in entries {
            directory.insert(key, number);
        }
        directory
    }

    /// An empty one for so many keys.
    pub(crate) fn with_space_for(keys: usize) -> Self {
        let size = (keys * 2).next_power_of_two().max(2);
        let slots = vec![Slot { key: K::default(), number: EMPTY }; size].into();
        Self { slots, shift: 64 - size.trailing_zeros() }
    }

    /// Adds a key, of which there may not be more than it has space for; one that is there keeps its number.
    pub(crate) fn insert(&mut self, key: K, number: u16) {
        let slot = self.slot(key);
        if self.slots[slot].number == EMPTY {
            self.slots[slot] = Slot { key, number };
        }
    }

    /// Whether so many slots at most are looked at until this key is found, or an empty one in its place.
    pub(crate) fn is_near(&self, key: K, most: usize) -> bool {
        let (mask, home) = (self.slots.len() - 1, self.home(key));
        (self.slot(key).wrapping_sub(home) & mask) < most
    }

    /// Forgets all keys.
    pub(crate) fn clear(&mut self) {
        self.slots.fill(Slot { key: K::default(), number: EMPTY });
    }

    /// Where the search for a key begins.
    #[inline(always)]
    fn home(&self, key: K) -> usize {
        (key.bits().wrapping_mul(MULTIPLIER) >> self.shift) as usize & (self.slots.len() - 1)
    }

    /// The slot of this key, or the empty one where it would be.
    #[inline(always)]
    fn slot(&self, key: K) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = self.home(key);
        while self.slots[slot].number != EMPTY && self.slots[slot].key != key {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// The number of this key.
    #[inline(always)]
    pub fn get(&self, key: K) -> Option<u16> {
        let number = self.slots[self.slot(key)].number;
        (number != EMPTY).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn check<K: Key + std::hash::Hash + std::fmt::Debug>(
        keys: &[K],
        others: &[K],
    ) -> Result<(), TestCaseError> {
        let mut map = HashMap::new();
        for (number, key) in (0..).zip(keys) {
            map.entry(*key).or_insert(number);
        }
        let directory = Directory::new(keys.iter().copied().zip(0..));
        for key in keys.iter().chain(others) {
            prop_assert_eq!(directory.get(*key), map.get(key).copied());
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn it_finds_what_a_map_finds(keys: Vec<(u16, u8)>, others: Vec<(u16, u8)>) {
            let short = |(high, low): &(u16, u8)| u64::from(*high) << 8 | u64::from(*low);
            let long = |(high, low): &(u16, u8)| u128::from(*high) << 64 | u128::from(*low);
            let all = |entries: &[(u16, u8)]| -> (Vec<_>, Vec<_>) {
                (entries.iter().map(short).collect(), entries.iter().map(long).collect())
            };
            let ((short, long), (other_short, other_long)) = (all(&keys), all(&others));
            check(&short, &other_short)?;
            check(&long, &other_long)?;
        }
    }

    #[test]
    fn nothing_is_found_in_an_empty_one() {
        let empty: Directory<u64> = Directory::new([]);
        assert_eq!((empty.get(0), empty.get(7)), (None, None));
    }
}
