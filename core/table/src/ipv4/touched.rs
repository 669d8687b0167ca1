//! What a change of a route touches of what lookups read, so that the rest stays without a look at it

use super::{HOST_WORDS, UNITS};
use crate::prefix::Ipv4Prefix;

/// The length of the prefix that a unit of a root word stands for
pub(super) const UNIT_LENGTH: u8 = 24;
/// All units of a /19
pub(super) const ALL_UNITS: u32 = u32::MAX;

/// What a change touches of a /19
#[derive(Clone, Copy)]
pub(super) struct Touched {
    /// Its /24s
    pub(super) units: u32,
    /// The words of the blocks of these
    pub(super) words: u8,
}

impl Touched {
    pub(super) const ALL: Self = Self { units: ALL_UNITS, words: u8::MAX };

    /// By a route to this prefix, no shorter than the /19
    pub(super) fn by(prefix: Ipv4Prefix) -> Self {
        let units = units_of(prefix);
        if prefix.length() <= UNIT_LENGTH {
            return Self { units, ..Self::ALL };
        }
        let word_of = |address: u32| address as usize / UNITS % HOST_WORDS;
        let (first, last) = (word_of(prefix.first()), word_of(prefix.last()));
        Self { units, words: u8::MAX << first & u8::MAX >> (HOST_WORDS - 1 - last) }
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self { units: self.units | other.units, words: self.words | other.words }
    }
}

/// The /24s of its /19 that a prefix, no shorter than that, covers or lies in
fn units_of(prefix: Ipv4Prefix) -> u32 {
    let (first, last) = (unit_of(prefix.first()), unit_of(prefix.last()));
    ALL_UNITS << first & ALL_UNITS >> (UNITS - 1 - last)
}

/// Which /24 of its /19 an address lies in
fn unit_of(address: u32) -> usize {
    (address >> 8) as usize % UNITS
}
