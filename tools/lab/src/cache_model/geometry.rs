//! How large a cache is, and how its lines find their sets.

use super::replacement::Replacement;
use thiserror::Error;

/// Bytes of a line.
pub const LINE_BYTES: u64 = 64;

/// A cache's size and kind, as a data sheet says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of data.
    pub bytes: u64,
    /// Lines in a set.
    pub ways: u32,
    /// Parts of equal size that lines are spread over by a hash of their address; 1 for a cache in one piece.
    pub slices: u32,
    /// Which line goes when another comes.
    pub replacement: Replacement,
}

/// A cache that can't be.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum GeometryError {
    /// There are from 1 to 64 ways.
    #[error("a cache of {0} ways: there are from 1 to 64")]
    Ways(u32),
    /// A tree has a power of two of leaves.
    #[error("a tree over {0} ways: it needs a power of two")]
    Tree(u32),
    /// There is no slice.
    #[error("a cache of no slices")]
    Slices,
    /// It isn't made of whole sets.
    #[error("{bytes} bytes are no whole sets of {ways} lines of 64 bytes in {slices} slices")]
    Size {
        /// Bytes of data.
        bytes: u64,
        /// Lines in a set.
        ways: u32,
        /// Slices.
        slices: u32,
    },
    /// Bits of the address choose a set, so there must be a power of two of them in a slice.
    #[error("{0} sets in a slice: it must be a power of two")]
    Sets(u64),
    /// A device may use at least one way and not more than there are.
    #[error("a device may use {device} of {ways} ways")]
    DeviceWays {
        /// What it may use.
        device: u32,
        /// How many there are.
        ways: u32,
    },
    /// There are from 1 to 64 cores.
    #[error("a machine of {0} cores: there are from 1 to 64")]
    Cores(usize),
}

/// How lines of a cache find their sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Sets in a slice, less one.
    mask: u64,
    slices: u64,
    /// Lines in a set.
    pub ways: usize,
}

impl Geometry {
    /// Checks it.
    ///
    /// # Errors
    /// [`GeometryError`].
    pub fn shape(&self) -> Result<Shape, GeometryError> {
        let &Self { bytes, ways, slices, replacement } = self;
        if !(1..=64).contains(&ways) {
            return Err(GeometryError::Ways(ways));
        }
        if replacement == Replacement::Tree && !ways.is_power_of_two() {
            return Err(GeometryError::Tree(ways));
        }
        if slices == 0 {
            return Err(GeometryError::Slices);
        }
        let set = u64::from(ways) * LINE_BYTES * u64::from(slices);
        if bytes == 0 || !bytes.is_multiple_of(set) {
            return Err(GeometryError::Size { bytes, ways, slices });
        }
        let sets = bytes / set;
        if !sets.is_power_of_two() {
            return Err(GeometryError::Sets(sets));
        }
        Ok(Shape { mask: sets - 1, slices: u64::from(slices), ways: ways as usize })
    }
}

impl Shape {
    /// Sets of all slices.
    pub const fn sets(&self) -> usize {
        ((self.mask + 1) * self.slices) as usize
    }

    /// The set of a line, which is an address divided by [`LINE_BYTES`].
    ///
    /// The hash that processors choose a slice by isn't published for all of them. This one (the multiplication of SplitMix64) spreads
    /// lines as evenly; which of them meet in a slice differs.
    #[inline]
    pub const fn set(&self, line: u64) -> usize {
        let within = line & self.mask;
        if self.slices == 1 {
            return within as usize;
        }
        let hash = (line ^ line >> 17).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let slice = (hash * self.slices) >> 32;
        (slice * (self.mask + 1) + within) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const L1: Geometry = Geometry { bytes: 32 << 10, ways: 8, slices: 1, replacement: Replacement::Tree };

    #[test]
    fn what_cannot_be_is_named() {
        assert_eq!(L1.shape().unwrap().sets(), 64);
        let error = |geometry: Geometry| geometry.shape().unwrap_err().to_string();
        assert_eq!(error(Geometry { ways: 0, ..L1 }), "a cache of 0 ways: there are from 1 to 64");
        assert_eq!(error(Geometry { ways: 12, ..L1 }), "a tree over 12 ways: it needs a power of two");
        assert_eq!(error(Geometry { slices: 0, ..L1 }), "a cache of no slices");
        assert!(error(Geometry { bytes: 1000, ..L1 }).starts_with("1000 bytes are no whole sets"));
        assert_eq!(
            error(Geometry { bytes: 48 << 10, ..L1 }),
            "96 sets in a slice: it must be a power of two"
        );
    }

    #[test]
    fn slices_get_equally_many_of_any_lines() {
        let geometry = Geometry { bytes: 27_648 << 10, ways: 11, slices: 18, replacement: Replacement::Lru };
        // 18 slices of 2,048 sets would be 24.75 MiB; 27 MiB are no whole number.
        assert!(geometry.shape().is_err());
        let shape = Geometry { bytes: 28_160 << 10, slices: 20, ..geometry }.shape().unwrap();
        assert_eq!(shape.sets(), 20 * 2048);
        for stride in [1_u64, 33, 2048, 4096 + 1] {
            let mut counts = [0_u32; 20];
            for number in 0..100_000 {
                counts[shape.set(number * stride) / 2048] += 1;
            }
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(*least > 4_500 && *most < 5_500, "{stride}: {counts:?}");
        }
    }
}
