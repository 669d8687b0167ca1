//! What an exact-match table can be asked for

use super::bucket::{Bucket, Layout};

mod sealed {
    /// Which arrays of words there are buckets for
    pub trait Sealed {}
}

/// A key as tables compare and hash it: one to five words of 64 bits
pub trait KeyWords: sealed::Sealed + Copy + Eq + Send + Sync + 'static {
    #[doc(hidden)]
    type Bucket: Layout<Words = Self>;
    /// All bits zero
    #[doc(hidden)]
    const ZERO: Self;
    #[doc(hidden)]
    fn as_slice(&self) -> &[u64];
    #[doc(hidden)]
    fn as_mut_slice(&mut self) -> &mut [u64];
}

macro_rules! key_words {
    ($($words:literal: $slots:literal slots, $tags:literal tag words;)*) => { $(
        impl sealed::Sealed for [u64; $words] {}
        impl KeyWords for [u64; $words] {
            type Bucket = Bucket<$words, $slots, $tags>;
            const ZERO: Self = [0; $words];

            #[inline(always)]
            fn as_slice(&self) -> &[u64] {
                self
            }

            #[inline(always)]
            fn as_mut_slice(&mut self) -> &mut [u64] {
                self
            }
        }
    )* };
}
// As many slots as fill one line, or the next two or three if one line had fewer than three: the fewer slots in a
// bucket, the lower the load that a table can reach.
key_words! {
    1: 5 slots, 0 tag words;
    2: 3 slots, 0 tag words;
    3: 4 slots, 1 tag words;
    4: 5 slots, 2 tag words;
    5: 4 slots, 1 tag words;
}

/// What a table can be keyed by: byte arrays of 8 to 40 bytes, and any type that says how it turns into words and back
///
/// ```
/// use warmlane_table::ExactKey;
///
/// /// A MAC address in a VLAN
/// #[derive(Clone, Copy, PartialEq, Eq, Debug)]
/// struct Station {
///     mac: [u8; 6],
///     vlan: u16,
/// }
///
/// impl ExactKey for Station {
///     type Words = [u64; 1];
///
///     fn to_words(&self) -> [u64; 1] {
///         let [a, b, c, d, e, f] = self.mac;
///         let [g, h] = self.vlan.to_le_bytes();
///         [u64::from_le_bytes([a, b, c, d, e, f, g, h])]
///     }
///
///     fn from_words(words: &[u64; 1]) -> Self {
///         let [a, b, c, d, e, f, g, h] = words[0].to_le_bytes();
///         Self { mac: [a, b, c, d, e, f], vlan: u16::from_le_bytes([g, h]) }
///     }
/// }
///
/// let station = Station { mac: [2, 0, 0, 0, 0, 1], vlan: 12 };
/// assert_eq!(Station::from_words(&station.to_words()), station);
/// ```
pub trait ExactKey: Copy + Send + Sync + 'static {
    /// `[u64; 1]` to `[u64; 5]`. Lookups are fastest with up to two words, of which several keys fill one cache line.
    type Words: KeyWords;

    /// The key as words: different for different keys, the same for equal ones
    fn to_words(&self) -> Self::Words;

    /// The key that these words came from
    fn from_words(words: &Self::Words) -> Self;
}

macro_rules! byte_keys {
    ($($words:literal: $($length:literal)*;)*) => { $( $(
        impl ExactKey for [u8; $length] {
            type Words = [u64; $words];

            #[inline(always)]
            fn to_words(&self) -> [u64; $words] {
                let mut bytes = [0; $words * 8];
                bytes[..$length].copy_from_slice(self);
                std::array::from_fn(|word| {
                    u64::from_le_bytes(std::array::from_fn(|byte| bytes[word * 8 + byte]))
                })
            }

            #[inline(always)]
            fn from_words(words: &[u64; $words]) -> Self {
                std::array::from_fn(|byte| words[byte / 8].to_le_bytes()[byte % 8])
            }
        }
    )* )* };
}
byte_keys! {
    1: 8;
    2: 9 10 11 12 13 14 15 16;
    3: 17 18 19 20 21 22 23 24;
    4: 25 26 27 28 29 30 31 32;
    5: 33 34 35 36 37 38 39 40;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<K: ExactKey + PartialEq + std::fmt::Debug>(key: K) {
        assert_eq!(K::from_words(&key.to_words()), key);
    }

    #[test]
    fn byte_arrays_come_back() {
        round_trip::<[u8; 8]>(std::array::from_fn(|i| i as u8 + 1));
        round_trip::<[u8; 13]>(std::array::from_fn(|i| i as u8 + 1));
        round_trip::<[u8; 16]>(std::array::from_fn(|i| i as u8 + 1));
        round_trip::<[u8; 37]>(std::array::from_fn(|i| i as u8 + 1));
        round_trip::<[u8; 40]>(std::array::from_fn(|i| i as u8 + 1));
    }

    #[test]
    fn every_byte_counts() {
        let zero = [0_u8; 37].to_words();
        for byte in 0..37 {
            let mut key = [0_u8; 37];
            key[byte] = 1;
            assert_ne!(key.to_words(), zero, "{byte}");
        }
    }
}
