//! Random numbers: reproducible ones for tests and traffic, and seeds that nobody can guess.

use std::hash::{BuildHasher, RandomState};

/// A seed from the system's random numbers, another one on each call.
///
/// For hashes that a sender of packets must not be able to predict, and that should differ from one machine to the
/// next. Not for keys of a cipher: SipHash stretches the numbers that the system gave to this thread.
pub fn system_seed() -> u64 {
    // The standard library takes its hash keys from getrandom(2), or /dev/urandom where that is missing.
    RandomState::new().hash_one(0)
}

/// SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
///
/// The same seed gives the same numbers, on every machine and in every release: tests and recorded measurements rely on
/// it. Not for secrets.
///
/// ```
/// use warmlane_sys::random::Random;
///
/// let mut random = Random::new(1234567);
/// assert_eq!(random.bits(), 6457827717110365317);
/// assert!(random.below(10) < 10);
/// ```
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts at a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 128 random bits.
    pub const fn bits128(&mut self) -> u128 {
        (self.bits() as u128) << 64 | self.bits() as u128
    }

    /// A number below `end`; 0 if that is 0.
    pub const fn below(&mut self, end: usize) -> usize {
        // The bias is at most `end` / 2^64.
        if end == 0 { 0 } else { (self.bits() % end as u64) as usize }
    }

    /// A number from `first` to `last`, both included.
    pub const fn between(&mut self, first: usize, last: usize) -> usize {
        first + self.below(last - first + 1)
    }

    /// Whether an event of this probability, in percent, happens.
    pub const fn percent(&mut self, probability: usize) -> bool {
        self.below(100) < probability
    }

    /// One of these, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Fills bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let random = self.bits().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_that_of_the_paper() {
        // The first numbers of the reference implementation (Vigna, splitmix64.c) for this seed.
        let mut random = Random::new(1_234_567);
        let numbers: [u64; 3] = std::array::from_fn(|_| random.bits());
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn numbers_keep_their_bounds() {
        let mut random = Random::new(1);
        let mut seen = [false; 7];
        for _ in 0..1_000 {
            seen[random.below(7)] = true;
            assert!((3..=5).contains(&random.between(3, 5)));
        }
        assert_eq!((seen, random.below(0)), ([true; 7], 0));
        let mut bytes = [0; 13];
        random.fill(&mut bytes);
        assert!(bytes[8..].iter().any(|&byte| byte != 0));
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(system_seed(), system_seed());
    }
}
