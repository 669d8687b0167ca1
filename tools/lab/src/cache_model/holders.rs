//! Which cores have a line.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Of each line that is in a core's second level, a bit for each such core: without it, every line would be looked for in all
/// cores.
#[derive(Clone, Debug, Default)]
pub(super) struct Holders(HashMap<u64, u64, BuildHasherDefault<LineHasher>>);

/// Lines are numbers that lie close together; one multiplication spreads them.
#[derive(Clone, Debug, Default)]
pub(super) struct LineHasher(u64);

impl Hasher for LineHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // The map takes its buckets from the low bits and marks them by the high ones.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }
}

/// The cores of a set of bits, from the lowest.
pub(super) struct Cores(u64);

impl Iterator for Cores {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let core = self.0.trailing_zeros();
        (core < u64::BITS).then(|| {
            self.0 &= self.0 - 1;
            core as usize
        })
    }
}

impl Holders {
    pub(super) fn add(&mut self, line: u64, core: usize) {
        *self.0.entry(line).or_default() |= 1 << core;
    }

    pub(super) fn remove(&mut self, line: u64, core: usize) {
        if let Some(cores) = self.0.get_mut(&line) {
            *cores &= !(1 << core);
            if *cores == 0 {
                self.0.remove(&line);
            }
        }
    }

    /// Whether any core has the line.
    pub(super) fn has(&self, line: u64) -> bool {
        self.0.contains_key(&line)
    }

    /// Those that have the line, but for one.
    pub(super) fn without(&self, line: u64, core: usize) -> Cores {
        Cores(self.0.get(&line).copied().unwrap_or(0) & !(1 << core))
    }

    /// Those that had the line; none has it now.
    pub(super) fn take(&mut self, line: u64) -> Cores {
        Cores(self.0.remove(&line).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_line_is_known_until_nobody_has_it() {
        let mut holders = Holders::default();
        holders.add(7, 63);
        holders.add(7, 0);
        assert_eq!(holders.without(7, 0).collect::<Vec<_>>(), [63]);
        assert_eq!(holders.without(8, 0).count(), 0);
        holders.remove(7, 0);
        assert!(holders.has(7));
        assert_eq!(holders.take(7).collect::<Vec<_>>(), [63]);
        assert!(!holders.has(7));
        holders.remove(7, 63);
    }
}
