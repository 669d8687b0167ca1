//! Where a key may stand: a keyed hash that nobody can choose collisions for who doesn't know the seed
//!
//! A key is cut into blocks of 128 bits. Each block is XORed into the state, which then goes through four rounds of AES,
//! each with a secret round key of its own; the state starts as one more secret. The difference of two keys survives
//! two such rounds in any form chosen in advance for at most one in 2^28 seeds, and four rounds for at most one in 2^113
//! (Keliher and Sui, "Exact maximum expected differential and linear probability for two-round Advanced Encryption
//! Standard", IET Information Security 1(2), 2007). So keys that collide under one seed don't under another. That isn't so for a
//! CRC: it is linear, and two keys whose CRCs agree do so whatever is XORed into both.
//!
//! The rounds are those of FIPS 197 (2001), section 5.1, without its key schedule: `AESENC` on x86_64, which is SubBytes,
//! ShiftRows, MixColumns and AddRoundKey, `AESE` and `AESMC` on aarch64, and the same from a table for other processors.

use warmlane_sys::random;

/// Rounds after each block
pub(super) const ROUNDS: usize = 4;

/// What makes a table's hash its own
#[derive(Clone)]
pub struct Seed {
    /// Where the state starts, then the key of each round
    pub(super) keys: [[u64; 2]; 1 + ROUNDS],
}

impl Seed {
    /// One that nobody can guess
    pub(super) fn random() -> Self {
        Self::from_words(random::system_seed)
    }

    /// The same again for the same number
    #[cfg(test)]
    pub(super) fn from_number(number: u64) -> Self {
        let mut random = random::Random::new(number);
        Self::from_words(|| random.bits())
    }

    fn from_words(mut word: impl FnMut() -> u64) -> Self {
        Self { keys: std::array::from_fn(|_| [word(), word()]) }
    }
}

/// 128 bits, the lower half first
pub(super) type Hash = [u64; 2];

/// The hash in plain Rust
pub(super) fn by_table(seed: &Seed, key: &[u64]) -> Hash {
    let mut state = seed.keys[0];
    for block in key.chunks(2) {
        state = [state[0] ^ block[0], state[1] ^ block.get(1).copied().unwrap_or(0)];
        for round in 1..=ROUNDS {
            state = round_by_table(state, seed.keys[round]);
        }
    }
    state
}

/// One round. The state's bytes stand column by column, the first byte of the first column lowest.
fn round_by_table(state: [u64; 2], key: [u64; 2]) -> [u64; 2] {
    let byte = |column: usize, row: usize| {
        // ShiftRows: row r comes from r columns further on.
        let from = (column + row) % 4;
        (state[from / 2] >> (from % 2 * 32 + row * 8)) as u8
    };
    let column = |column: usize| {
        let mixed = (0..4).fold(0, |mixed: u32, row| {
            mixed ^ SUBSTITUTED_AND_MIXED[usize::from(byte(column, row))].rotate_left(row as u32 * 8)
        });
        u64::from(mixed)
    };
    [(column(0) | column(1) << 32) ^ key[0], (column(2) | column(3) << 32) ^ key[1]]
}

/// For each byte in row 0 of a column: what SubBytes and MixColumns make of that column. For the other rows it is the same,
/// rotated.
static SUBSTITUTED_AND_MIXED: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let once = substitute(byte as u8);
        let twice = double(once);
        // FIPS 197, section 5.1.3: the first column of the matrix is 2, 1, 1, 3.
        table[byte] = u32::from_le_bytes([twice, once, once, twice ^ once]);
        byte += 1;
    }
    table
};

/// Times x in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1 (FIPS 197, section 4.2)
const fn double(byte: u8) -> u8 {
    (byte << 1) ^ ((byte >> 7) * 0x1b)
}

/// SubBytes: the inverse in GF(2^8), then an affine map (FIPS 197, section 5.1.1)
const fn substitute(byte: u8) -> u8 {
    // The inverse is the 254th power, since a^255 = 1 for all but 0, whose inverse is said to be 0.
    let mut inverse = 1;
    let mut power = 0;
    while power < 254 {
        inverse = multiply(inverse, byte);
        power += 1;
    }
    inverse
        ^ inverse.rotate_left(1)
        ^ inverse.rotate_left(2)
        ^ inverse.rotate_left(3)
        ^ inverse.rotate_left(4)
        ^ 0x63
}

const fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        a = double(a);
        b >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(not(loom))]
    use crate::exact::kernel::{Detected, Kernel as _};

    #[test]
    fn substitution_is_that_of_the_standard() {
        // FIPS 197, figure 7.
        for (byte, substituted) in [(0x00, 0x63), (0x01, 0x7c), (0x53, 0xed), (0x9a, 0xb8), (0xff, 0x16)] {
            assert_eq!(substitute(byte), substituted, "{byte:#x}");
        }
    }

    #[test]
    fn a_round_is_that_of_the_standard() {
        // FIPS 197, appendix B: the start of round 1, its round key, and the start of round 2.
        let words = |text: &str| {
            let number = u128::from_str_radix(text, 16).unwrap().swap_bytes();
            [number as u64, (number >> 64) as u64]
        };
        let start = words("193de3bea0f4e22b9ac68d2ae9f84808");
        let key = words("a0fafe1788542cb123a339392a6c7605");
        assert_eq!(round_by_table(start, key), words("a49c7ff2689f352b6b5bea43026a5049"));
    }

    #[test]
    #[cfg(not(loom))]
    fn instructions_and_table_agree() {
        for kernel in Detected::available() {
            for number in 0..1000 {
                let seed = Seed::from_number(number);
                let key: [u64; 5] = std::array::from_fn(|word| Seed::from_number(!number).keys[word][0]);
                for words in 1..=5 {
                    assert_eq!(
                        kernel.hash(&seed, &key[..words]),
                        by_table(&seed, &key[..words]),
                        "{kernel:?}, {number}, {words}"
                    );
                }
            }
        }
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(Seed::random().keys, Seed::random().keys);
        assert_ne!(Seed::from_number(1).keys, Seed::from_number(2).keys);
    }

    #[test]
    fn every_bit_of_a_key_changes_half_of_the_hash() {
        let seed = Seed::from_number(7);
        for words in 1..=5 {
            for bit in 0..words * 64 {
                let changed: u32 = (0..16)
                    .map(|sample| {
                        let mut key: [u64; 5] = std::array::from_fn(|word| (sample * 5 + word) as u64);
                        let before = by_table(&seed, &key[..words]);
                        key[bit / 64] ^= 1 << (bit % 64);
                        let after = by_table(&seed, &key[..words]);
                        (before[0] ^ after[0]).count_ones() + (before[1] ^ after[1]).count_ones()
                    })
                    .sum();
                // 16 samples of 128 bits: 1024 expected, with a standard deviation of 23.
                assert!((864..1184).contains(&changed), "{words} words, bit {bit}: {changed}");
            }
        }
    }
}
