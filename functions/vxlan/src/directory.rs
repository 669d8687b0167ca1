//! Small numbers by key, in a table that is made once and read by every packet.

use std::net::IpAddr;

/// What can be looked up.
pub(crate) trait Key: Copy + Eq {
    /// All that tells it from others, in 64 bits.
    fn bits(self) -> u64;
}

impl Key for u64 {
    #[inline(always)]
    fn bits(self) -> u64 {
        self
    }
}

impl Key for IpAddr {
    #[inline(always)]
    fn bits(self) -> u64 {
        match self {
            Self::V4(address) => address.to_bits().into(),
            Self::V6(address) => {
                let bits = address.to_bits();
                // A product, so that no two parts of an address cancel each other.
                (bits as u64) ^ ((bits >> 64) as u64).wrapping_mul(MULTIPLIER)
            }
        }
    }
}

/// An odd constant with as many ones as zeros, from the fraction of the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The place of each key in a list, by open addressing. At least half of the slots are empty, so a look at two of them is usually enough.
#[derive(Debug)]
pub(crate) struct Directory<K> {
    slots: Box<[Option<(K, u16)>]>,
    /// Bits of the hash that are not used.
    shift: u32,
}

impl<K: Key> Directory<K> {
    /// A key that is there twice has its first place. Those beyond the 65,536th are left out.
    pub(crate) fn new(keys: impl ExactSizeIterator<Item = K>) -> Self {
        let size = (keys.len() * 2).next_power_of_two().max(2);
        let mut directory = Self { slots: vec![None; size].into(), shift: 64 - size.trailing_zeros() };
        for (number, key) in (0..=u16::MAX).zip(keys) {
            let slot = &mut directory.slots[directory.slot(key)];
            if slot.is_none() {
                *slot = Some((key, number));
            }
        }
        directory
    }

    /// The slot of this key, or the empty one where it would be.
    #[inline(always)]
    fn slot(&self, key: K) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = (key.bits().wrapping_mul(MULTIPLIER) >> self.shift) as usize & mask;
        while self.slots[slot].is_some_and(|(there, _)| there != key) {
            slot = (slot + 1) & mask;
        }
        slot
    }

    /// The place of this key.
    #[inline(always)]
    pub(crate) fn get(&self, key: K) -> Option<u16> {
        self.slots[self.slot(key)].map(|(_, number)| number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::net::{Ipv4Addr, Ipv6Addr};

    proptest! {
        #[test]
        fn it_finds_what_a_map_finds(keys: Vec<(bool, u16, u8)>, others: Vec<(bool, u16, u8)>) {
            let address = |(is_ipv6, high, low): &(bool, u16, u8)| -> IpAddr {
                if *is_ipv6 {
                    Ipv6Addr::from_bits(u128::from(*high) << 64 | u128::from(*low)).into()
                } else {
                    Ipv4Addr::from_bits(u32::from(*high) << 8 | u32::from(*low)).into()
                }
            };
            let keys: Vec<_> = keys.iter().map(address).collect();
            let mut map = HashMap::new();
            for (number, key) in (0..).zip(&keys) {
                map.entry(*key).or_insert(number);
            }
            let directory = Directory::new(keys.iter().copied());
            for key in keys.iter().copied().chain(others.iter().map(address)) {
                prop_assert_eq!(directory.get(key), map.get(&key).copied());
            }
        }
    }

    #[test]
    fn nothing_is_found_in_an_empty_one() {
        assert_eq!(Directory::<u64>::new([].into_iter()).get(7), None);
    }
}
