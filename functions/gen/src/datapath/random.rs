//! Numbers that look random, at the price of one multiplication.

/// A generator by multiply and fold (wyrand: Wang Yi, 2019): a Weyl sequence whose 128-bit product's halves are mixed.
/// Good enough for addresses and gaps between packets; not for secrets.
#[derive(Clone, Debug)]
pub struct WyRand(u64);

impl WyRand {
    /// The same seed gives the same numbers.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 bits.
    #[inline(always)]
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0xa076_1d64_78bd_642f);
        let product = (self.0 as u128) * ((self.0 ^ 0xe703_7ed1_a0b4_28db) as u128);
        (product >> 64) as u64 ^ product as u64
    }

    /// A number below `bound`, which is at most 2^32: the high half of a product, without a division.
    #[inline(always)]
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() >> 32) * bound) >> 32
    }

    /// As many numbers from 0 to `last` as there are places, for one draw.
    ///
    /// The draw's lower half starts a Weyl sequence, whose numbers are mixed one by one (with the constants of lowbias32:
    /// Wellons, 2018), so that vectors do it; its upper half goes into all of them.
    #[inline(always)]
    pub const fn fill(&mut self, last: u32, numbers: &mut [u32]) {
        let drawn = self.next();
        let (start, also) = (drawn as u32, (drawn >> 32) as u32);
        let mut place = 0;
        while place < numbers.len() {
            let mut number = start.wrapping_add((place as u32).wrapping_mul(0x9e37_79b9));
            number = (number ^ number >> 16).wrapping_mul(0x7feb_352d);
            number = (number ^ number >> 15).wrapping_mul(0x846c_a68b);
            number ^= number >> 16 ^ also;
            // The upper half of the product with `last` + 1.
            let product = number as u64 * last as u64 + number as u64;
            numbers[place] = (product >> 32) as u32;
            place += 1;
        }
    }

    /// A number from the half-open interval (0, 1].
    #[inline]
    pub const fn fraction(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 * (1.0 / (1_u64 << 53) as f64)
    }
}

/// Draws numbers 0, 1, 2, ... of which the one with rank *r* (from 1) has a probability proportional to 1 / *r*^s.
///
/// By the alias method (Walker 1977; Vose 1991): one table entry a draw, whatever the exponent.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// For each number: the chance, of 2^32, that it stands when its entry is drawn, and who takes over else.
    entries: Box<[(u32, u32)]>,
}

impl Zipf {
    /// Numbers that a table may have.
    pub const MAXIMUM: usize = 1 << 20;

    /// Of `count` numbers (brought into 1..=[`Zipf::MAXIMUM`]) with this exponent.
    #[expect(clippy::cast_sign_loss, reason = "probabilities are not negative")]
    pub fn new(count: usize, exponent: f64) -> Self {
        let count = count.clamp(1, Self::MAXIMUM);
        let weights: Vec<f64> = (1..=count).map(|rank| (rank as f64).powf(-exponent)).collect();
        let total: f64 = weights.iter().sum();
        let mut scaled: Vec<f64> = weights.iter().map(|weight| weight / total * count as f64).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..count).partition(|&number| scaled[number] < 1.0);
        let mut entries: Vec<(u32, u32)> = (0..count).map(|number| (u32::MAX, number as u32)).collect();
        while let (Some(less), Some(&more)) = (small.pop(), large.last()) {
            entries[less] = ((scaled[less] * 4_294_967_296.0) as u32, more as u32);
            scaled[more] -= 1.0 - scaled[less];
            if scaled[more] < 1.0 {
                large.pop();
                small.push(more);
            }
        }
        Self { entries: entries.into() }
    }

    /// The next number.
    #[inline]
    pub fn draw(&self, random: &mut WyRand) -> u64 {
        let drawn = random.next();
        let number = ((drawn >> 32) * self.entries.len() as u64) >> 32;
        // The number is below the length, so there is an entry.
        let (chance, alias) = self.entries.get(number as usize).copied().unwrap_or((u32::MAX, 0));
        if (drawn as u32) < chance { number } else { u64::from(alias) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn uniform_numbers_are_even() {
        let mut random = WyRand::new(1);
        let mut counts = [0_u32; 16];
        for _ in 0..160_000 {
            counts[random.below(16) as usize] += 1;
        }
        // Standard deviation 97: six of them.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 600), "{counts:?}");
    }

    #[test]
    fn numbers_for_one_draw_are_even_and_independent() {
        let mut random = WyRand::new(3);
        let (mut counts, mut pairs) = ([0_u32; 16], [0_u32; 256]);
        let mut seen = HashSet::new();
        let mut numbers = [0; 32];
        for _ in 0..10_000 {
            random.fill(15, &mut numbers);
            for (place, &number) in numbers.iter().enumerate() {
                counts[number as usize] += 1;
                // Neighbours, and those at the same place of either half.
                pairs[(number * 16 + numbers[(place + 1 + place % 16) % 32]) as usize] += 1;
            }
            random.fill(u32::MAX, &mut numbers);
            seen.extend(numbers);
        }
        // Standard deviations 137 and 35: six of them.
        assert!(counts.iter().all(|count| count.abs_diff(20_000) < 822), "{counts:?}");
        assert!(pairs.iter().all(|count| count.abs_diff(1_250) < 212), "{pairs:?}");
        // Of 320,000 draws from 2^32 some 12 meet another.
        assert!(seen.len() > 319_900 && seen.len() < 320_000, "{}", seen.len());
        random.fill(0, &mut numbers);
        assert_eq!(numbers, [0; 32]);
    }

    #[test]
    fn zipf_has_its_probabilities() {
        let zipf = Zipf::new(100, 1.0);
        let mut random = WyRand::new(2);
        let mut counts = [0_u32; 100];
        for _ in 0..1_000_000 {
            counts[zipf.draw(&mut random) as usize] += 1;
        }
        let harmonic: f64 = (1..=100).map(|rank| 1.0 / f64::from(rank)).sum();
        for (place, &count) in counts.iter().enumerate() {
            let expected = 1e6 / ((place + 1) as f64 * harmonic);
            let error = (f64::from(count) - expected).abs();
            assert!(error < 6.0 * expected.sqrt(), "rank {}: {count}, expected {expected}", place + 1);
        }
    }
}
