//! Numbers that look random, the same on every run and on both sides of a comparison.

/// xorshift64*, after Marsaglia 2003 and Vigna 2016. The programs in `peers/` make the same numbers.
#[derive(Clone, Debug)]
pub(crate) struct Xorshift(pub(crate) u64);

impl Xorshift {
    pub(crate) const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// The upper half of the next number, which is the better one.
    pub(crate) fn upper(&mut self) -> u64 {
        self.next() >> 32
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((self.upper() * bound as u64) >> 32) as usize
    }
}
