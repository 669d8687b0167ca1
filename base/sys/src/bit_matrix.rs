//! Products of bytes with a matrix of bits, in which additions have no carries: hashes that are linear, such as Toeplitz's.
//!
//! Each bit of an input changes the 32 bits of the product in its own way, and the changes are combined by XOR. Processors with GFNI
//! multiply 64 bytes by matrices of 8 by 8 bits in one instruction. What is to be multiplied by the same matrix has to lie in one group
//! of 8 bytes: the same byte of eight inputs. So 16 inputs are done at a time.

#[cfg(target_arch = "x86_64")]
use crate::simd::{self, Level};

/// Bytes of the longest input.
pub const LONGEST_INPUT: usize = 36;

/// How many inputs are done at a time.
pub const GROUP: usize = 16;

/// Bytes of a vector's lane.
#[cfg(target_arch = "x86_64")]
const LANE: usize = 16;

/// Lanes of a vector.
const LANES: usize = 4;

/// A vector of matrices, one for each of its groups of 8 bytes.
type Matrices = [u64; 8];

/// A matrix with 32 rows and a column for each bit of an input, made ready to multiply with.
#[derive(Clone)]
pub struct BitMatrix {
    /// For four bytes of the input, one in each lane, and for each byte of the product.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "nobody multiplies there"))]
    quads: Box<[[Matrices; 4]; LONGEST_INPUT / LANES]>,
}

impl BitMatrix {
    /// `column` says what a bit of the input changes in the product: the number of the byte, and the bit in it, 0 for the lowest.
    pub fn new(column: impl Fn(usize, u32) -> u32) -> Self {
        // The instruction takes the row of a product's highest bit from the matrix's lowest byte.
        let matrix = |byte: usize, product: usize| {
            (0..8).fold(0_u64, |matrix, row| {
                let bits = (0..8).fold(0, |bits, bit| {
                    bits | u64::from(column(byte, bit) >> (8 * product + row) & 1) << bit
                });
                matrix | bits << (8 * (7 - row))
            })
        };
        let quads = std::array::from_fn(|quad| {
            std::array::from_fn(|product| std::array::from_fn(|at| matrix(quad * LANES + at / 2, product)))
        });
        Self { quads: Box::new(quads) }
    }

    /// Multiplies inputs of 8, 12, 32 or 36 bytes, and returns how many of them were: a multiple of [`GROUP`], and none where the
    /// processor can't, or where inputs have other lengths.
    #[inline]
    pub fn multiply<const BYTES: usize>(&self, inputs: &[[u8; BYTES]], products: &mut [u32]) -> usize {
        const { assert!(BYTES <= LONGEST_INPUT, "inputs are too long") };
        #[cfg(target_arch = "x86_64")]
        if matches!(BYTES, 8 | 12 | 32 | 36) && inputs.len() >= GROUP && is_available() {
            let (groups, _) = inputs.as_chunks::<GROUP>();
            let (results, _) = products.as_chunks_mut::<GROUP>();
            let count = groups.len().min(results.len());
            // SAFETY: the processor has the features.
            unsafe { x86::multiply(&self.quads, &groups[..count], &mut results[..count]) };
            return count * GROUP;
        }
        let _ = (inputs, products);
        0
    }
}

impl std::fmt::Debug for BitMatrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BitMatrix").finish_non_exhaustive()
    }
}

/// Whether the processor has the instructions, and the level allows them.
#[cfg(target_arch = "x86_64")]
#[inline]
fn is_available() -> bool {
    simd::detected() == Level::Avx512
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("gfni")
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m512i, _mm_loadu_si128, _mm512_castsi128_si512, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512,
        _mm512_mask_broadcast_i32x4, _mm512_maskz_loadu_epi8, _mm512_permutexvar_epi8, _mm512_setzero_si512,
        _mm512_shuffle_i64x2, _mm512_storeu_si512, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64,
        _mm512_unpacklo_epi32, _mm512_unpacklo_epi64, _mm512_xor_si512,
    };

    use super::{GROUP, LANE, LANES, LONGEST_INPUT, Matrices};

    /// Where the bytes of a vector come from that has, in lane `l` and there in double word `m`, byte `4 * m + l` of four inputs, which
    /// begin `apart` bytes apart.
    const fn spread(apart: usize) -> [u8; 64] {
        let mut from = [0; 64];
        let mut at = 0;
        while at < 64 {
            let (lane, word, input) = (at / LANE, at % LANE / 4, at % 4);
            from[at] = (input * apart + 4 * word + lane) as u8 % 64;
            at += 1;
        }
        from
    }

    /// Where the bytes of 16 products come from that lie by byte, 16 of each.
    const GATHER: [u8; 64] = {
        let mut from = [0; 64];
        let mut at = 0;
        while at < 64 {
            from[at] = (at % 4 * LANE + at / 4) as u8;
            at += 1;
        }
        from
    };

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,gfni")]
    pub(super) fn multiply<const BYTES: usize>(
        quads: &[[Matrices; 4]; LONGEST_INPUT / LANES],
        groups: &[[[u8; BYTES]; GROUP]],
        products: &mut [[u32; GROUP]],
    ) {
        for (group, products) in groups.iter().zip(products) {
            let mut sums = [_mm512_setzero_si512(); 4];
            if BYTES * 4 <= 64 {
                let (fours, _) = group.as_chunks::<4>();
                let vectors = std::array::from_fn(|index| beside::<BYTES>(&fours[index]));
                add(&mut sums, &vectors, &quads[..BYTES / LANES], 0);
            } else {
                for start in (0..BYTES / LANE * LANE).step_by(LANE) {
                    let quads = &quads[start / LANES..][..LANES];
                    add(&mut sums, &lanes(group, start), quads, 0);
                }
                let rest = BYTES % LANE / LANES;
                if rest > 0 {
                    // The last 16 bytes, some of which were added already.
                    add(
                        &mut sums,
                        &lanes(group, BYTES - LANE),
                        &quads[BYTES / LANES - rest..BYTES / LANES],
                        LANES - rest,
                    );
                }
            }
            store(sums, products);
        }
    }

    /// Four inputs that fit a vector, [spread].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,gfni")]
    #[inline]
    fn beside<const BYTES: usize>(inputs: &[[u8; BYTES]; 4]) -> __m512i {
        let mask = u64::MAX >> (64 - 4 * BYTES);
        // SAFETY: the mask leaves only the bytes of the four inputs.
        let bytes = unsafe { _mm512_maskz_loadu_epi8(mask, inputs.as_ptr().cast()) };
        _mm512_permutexvar_epi8(constant(&const { spread(BYTES) }), bytes)
    }

    /// 16 bytes of each of 16 inputs, [spread].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,gfni")]
    #[inline]
    fn lanes<const BYTES: usize>(inputs: &[[u8; BYTES]; GROUP], start: usize) -> [__m512i; 4] {
        std::array::from_fn(|four| {
            let part = |input: usize| {
                let bytes: &[u8; LANE] =
                    inputs[4 * four + input][start..].first_chunk().unwrap_or(&[0; LANE]);
                // SAFETY: reads the 16 bytes of the array, at any address.
                unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
            };
            let bytes = _mm512_castsi128_si512(part(0));
            let bytes = _mm512_mask_broadcast_i32x4(bytes, 0x00f0, part(1));
            let bytes = _mm512_mask_broadcast_i32x4(bytes, 0x0f00, part(2));
            let bytes = _mm512_mask_broadcast_i32x4(bytes, 0xf000, part(3));
            _mm512_permutexvar_epi8(constant(&const { spread(LANE) }), bytes)
        })
    }

    /// Adds the products of bytes that were [spread]: of each lane's double words from number `first` on, as many as there are `quads`.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,gfni")]
    #[inline]
    fn add(sums: &mut [__m512i; 4], vectors: &[__m512i; 4], quads: &[[Matrices; 4]], first: usize) {
        let [a, b, c, d] = *vectors;
        let (low, high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        let (more_low, more_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
        // Number `m` has in lane `l` byte `4 * m + l` of all 16 inputs.
        let bytes = [
            _mm512_unpacklo_epi64(low, more_low),
            _mm512_unpackhi_epi64(low, more_low),
            _mm512_unpacklo_epi64(high, more_high),
            _mm512_unpackhi_epi64(high, more_high),
        ];
        for (bytes, matrices) in bytes[first..].iter().zip(quads) {
            for (sum, matrices) in sums.iter_mut().zip(matrices) {
                // SAFETY: reads the 64 bytes of the array, at any address.
                let matrices = unsafe { _mm512_loadu_si512(matrices.as_ptr().cast()) };
                *sum = _mm512_xor_si512(*sum, _mm512_gf2p8affine_epi64_epi8::<0>(*bytes, matrices));
            }
        }
    }

    /// Combines the four lanes of each byte's sums, and stores the products.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,gfni")]
    #[inline]
    fn store(sums: [__m512i; 4], products: &mut [u32; GROUP]) {
        let halves = |a, b| {
            _mm512_xor_si512(
                _mm512_shuffle_i64x2::<0b01_00_01_00>(a, b),
                _mm512_shuffle_i64x2::<0b11_10_11_10>(a, b),
            )
        };
        let [a, b, c, d] = sums;
        let (ab, cd) = (halves(a, b), halves(c, d));
        let bytes = _mm512_xor_si512(
            _mm512_shuffle_i64x2::<0b10_00_10_00>(ab, cd),
            _mm512_shuffle_i64x2::<0b11_01_11_01>(ab, cd),
        );
        let whole = _mm512_permutexvar_epi8(constant(&GATHER), bytes);
        // SAFETY: writes the 64 bytes of the array, at any address.
        unsafe { _mm512_storeu_si512(products.as_mut_ptr().cast(), whole) };
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,gfni")]
    #[inline]
    fn constant(bytes: &'static [u8; 64]) -> __m512i {
        // SAFETY: reads the 64 bytes of the array, at any address.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }
}
