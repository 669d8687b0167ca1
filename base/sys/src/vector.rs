//! Vector instructions chosen once for much work.
//!
//! [`run`] looks at the processor once and compiles the work for what it finds: what [`Vector`] offers, and the loops
//! around it, use those instructions without another look or a call.

use crate::copy::by_words;
use crate::simd::{self, Level};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m256i;

/// What can be done with vector instructions, on bytes. There is one for each set of them; [`run`] chooses.
pub trait Vector: Copy + sealed::Sealed {
    /// Whether [`columns`](Self::columns) takes less than it saves those who would look at one row after the other.
    const HAS_COLUMNS: bool = false;

    /// Copies from the front as many bytes as both have, and says how many these were ([`mod@crate::copy`]).
    fn copy(self, destination: &mut [u8], source: &[u8]) -> usize;

    /// Sixteen bytes of which each is the one that `order` names, or 0 where `order` has [`ZERO`].
    fn shuffle(self, bytes: [u8; 16], order: [u8; 16]) -> [u8; 16];

    /// The words of eight rows, column by column: first those that the rows begin with, then the next. The first byte of a word is its lowest.
    #[inline(always)]
    fn columns(self, rows: [&[u8; 32]; 8]) -> [[u32; 8]; 8] {
        let mut columns = [[0; 8]; 8];
        for (index, row) in rows.into_iter().enumerate() {
            for (column, word) in columns.iter_mut().zip(row.as_chunks::<4>().0) {
                column[index] = u32::from_le_bytes(*word);
            }
        }
        columns
    }

    /// The same of rows that are half as long.
    #[inline(always)]
    fn short_columns(self, rows: [&[u8; 16]; 8]) -> [[u32; 8]; 4] {
        let mut columns = [[0; 8]; 4];
        for (index, row) in rows.into_iter().enumerate() {
            for (column, word) in columns.iter_mut().zip(row.as_chunks::<4>().0) {
                column[index] = u32::from_le_bytes(*word);
            }
        }
        columns
    }
}

/// In an order of bytes: no byte but 0.
pub const ZERO: u8 = 0x80;

/// Some work for vector instructions.
///
/// Mark `run` as `#[inline(always)]`: only then is it compiled for what was chosen. It is right in any case.
pub trait Work {
    /// What comes of it.
    type Output;

    /// Does the work.
    fn run<V: Vector>(self, vector: V) -> Self::Output;
}

mod sealed {
    #[expect(unnameable_types, reason = "sealed: nobody outside may add instructions")]
    pub trait Sealed {}
}

/// What every processor of the architecture has; on Arm, words of 16 bytes are the NEON registers.
#[derive(Clone, Copy, Debug)]
struct Portable;

impl sealed::Sealed for Portable {}

impl Vector for Portable {
    #[inline(always)]
    fn copy(self, destination: &mut [u8], source: &[u8]) -> usize {
        by_words::<16>(destination, source)
    }

    #[inline(always)]
    fn shuffle(self, bytes: [u8; 16], order: [u8; 16]) -> [u8; 16] {
        order.map(|index| if index & ZERO == 0 { bytes[usize::from(index & 15)] } else { 0 })
    }
}

/// AVX2 and what comes with it. A value of this exists only inside [`run_avx2`].
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
struct Avx2;

#[cfg(target_arch = "x86_64")]
impl sealed::Sealed for Avx2 {}

#[cfg(target_arch = "x86_64")]
impl Vector for Avx2 {
    const HAS_COLUMNS: bool = true;

    #[inline(always)]
    fn copy(self, destination: &mut [u8], source: &[u8]) -> usize {
        by_words::<32>(destination, source)
    }

    #[inline(always)]
    fn shuffle(self, bytes: [u8; 16], order: [u8; 16]) -> [u8; 16] {
        use std::arch::x86_64::{__m128i, _mm_shuffle_epi8};
        use std::mem::transmute;
        // SAFETY: both types are 16 bytes of plain data.
        let [bytes, order] = [bytes, order].map(|bytes| unsafe { transmute::<[u8; 16], __m128i>(bytes) });
        // SAFETY: `self` exists, so this runs below `run_avx2`, whose caller has seen that the processor has AVX2 and
        // with it SSSE3.
        let shuffled = unsafe { _mm_shuffle_epi8(bytes, order) };
        // SAFETY: as above, both are 16 bytes of plain data.
        unsafe { transmute::<__m128i, [u8; 16]>(shuffled) }
    }

    #[inline(always)]
    fn columns(self, [a, b, c, d, e, f, g, h]: [&[u8; 32]; 8]) -> [[u32; 8]; 8] {
        // SAFETY: `self` exists, so this runs below `run_avx2`, whose caller has seen that the processor has AVX2.
        unsafe { columns_avx2([a, b, c, d, e, f, g, h]) }
    }

    #[inline(always)]
    fn short_columns(self, rows: [&[u8; 16]; 8]) -> [[u32; 8]; 4] {
        // SAFETY: as above.
        unsafe { short_columns_avx2(rows) }
    }
}

/// The first four rows in the lower halves of registers, the others in the upper ones: so the columns come out whole.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn short_columns_avx2([a, b, c, d, e, f, g, h]: [&[u8; 16]; 8]) -> [[u32; 8]; 4] {
    use std::arch::x86_64::{__m128i, _mm256_set_m128i};
    use std::mem::transmute;
    let load = |row: &[u8; 16]| {
        // SAFETY: both types are 16 bytes of plain data.
        unsafe { transmute::<[u8; 16], __m128i>(*row) }
    };
    let both = |low, high| _mm256_set_m128i(load(high), load(low));
    let columns = four_columns([both(a, e), both(b, f), both(c, g), both(d, h)]);
    // SAFETY: both are 128 bytes of plain data.
    unsafe { transmute::<[__m256i; 4], [[u32; 8]; 4]>(columns) }
}

/// The columns of four rows, in both halves of the registers alike: words of two rows in turn, then pairs of these.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn four_columns([a, b, c, d]: [__m256i; 4]) -> [__m256i; 4] {
    use std::arch::x86_64::{
        _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi32, _mm256_unpacklo_epi64,
    };
    let words = |a, b| [_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)];
    let pairs = |a, b| [_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)];
    let ([low_ab, high_ab], [low_cd, high_cd]) = (words(a, b), words(c, d));
    let ([first, second], [third, fourth]) = (pairs(low_ab, low_cd), pairs(high_ab, high_cd));
    [first, second, third, fourth]
}

/// Columns of four rows each, whose halves are then put together.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn columns_avx2([a, b, c, d, e, f, g, h]: [&[u8; 32]; 8]) -> [[u32; 8]; 8] {
    use std::arch::x86_64::_mm256_permute2x128_si256;
    use std::mem::transmute;
    let load = |row: &[u8; 32]| {
        // SAFETY: both types are 32 bytes of plain data.
        unsafe { transmute::<[u8; 32], __m256i>(*row) }
    };
    // Columns 0 to 3 of four rows, with columns 4 to 7 in the upper halves.
    let four = |a, b, c, d| four_columns([load(a), load(b), load(c), load(d)]);
    let ([a, b, c, d], [e, f, g, h]) = (four(a, b, c, d), four(e, f, g, h));
    let lower = |a, b| _mm256_permute2x128_si256::<0x20>(a, b);
    let upper = |a, b| _mm256_permute2x128_si256::<0x31>(a, b);
    let columns = [
        lower(a, e),
        lower(b, f),
        lower(c, g),
        lower(d, h),
        upper(a, e),
        upper(b, f),
        upper(c, g),
        upper(d, h),
    ];
    // SAFETY: both are 256 bytes of plain data.
    unsafe { transmute::<[__m256i; 8], [[u32; 8]; 8]>(columns) }
}

/// NEON. A value of this exists only where the processor was asked for it.
#[cfg(target_arch = "aarch64")]
#[derive(Clone, Copy, Debug)]
struct Neon;

#[cfg(target_arch = "aarch64")]
impl sealed::Sealed for Neon {}

#[cfg(target_arch = "aarch64")]
impl Vector for Neon {
    #[inline(always)]
    fn copy(self, destination: &mut [u8], source: &[u8]) -> usize {
        by_words::<16>(destination, source)
    }

    #[inline(always)]
    fn shuffle(self, bytes: [u8; 16], order: [u8; 16]) -> [u8; 16] {
        use std::arch::aarch64::{uint8x16_t, vqtbl1q_u8};
        use std::mem::transmute;
        // SAFETY: both types are 16 bytes of plain data.
        let [bytes, order] = [bytes, order].map(|bytes| unsafe { transmute::<[u8; 16], uint8x16_t>(bytes) });
        // SAFETY: `self` exists, so the processor has NEON (`run_at`). Places above 15 give 0, as ZERO does.
        let shuffled = unsafe { vqtbl1q_u8(bytes, order) };
        // SAFETY: as above, both are 16 bytes of plain data.
        unsafe { transmute::<uint8x16_t, [u8; 16]>(shuffled) }
    }
}

/// Does the work with the best instructions of this processor, or those that `WARMLANE_SIMD` asks for.
#[inline]
pub fn run<W: Work>(work: W) -> W::Output {
    // Not through `run_at`, which would ask again what the processor has.
    match simd::detected() {
        // SAFETY: only a level that the processor has is detected, and one with AVX-512 has AVX2 and what comes with it, too.
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 => unsafe { run_avx2(work) },
        level => run_at(level, work),
    }
}

/// The instructions that [`run`] uses: those of AVX2 where the processor has AVX-512, too.
pub fn level() -> Level {
    match simd::detected() {
        Level::Avx512 => Level::Avx2,
        level => level,
    }
}

/// The same with those of a level; one that this processor lacks is replaced by the portable one. There is nothing of its own for AVX-512: words of 64
/// bytes were slower ([`mod@crate::copy`]).
#[inline]
pub fn run_at<W: Work>(level: Level, work: W) -> W::Output {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 | Level::Avx512 if Level::available().contains(&Level::Avx2) => {
            // SAFETY: the processor was asked for all of them, in the line above.
            unsafe { run_avx2(work) }
        }
        #[cfg(target_arch = "aarch64")]
        Level::Neon if Level::available().contains(&Level::Neon) => work.run(Neon),
        _ => work.run(Portable),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn run_avx2<W: Work>(work: W) -> W::Output {
    work.run(Avx2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::array::from_fn;

    struct Shuffle([u8; 16]);

    impl Work for Shuffle {
        type Output = [u8; 16];
        #[inline(always)]
        fn run<V: Vector>(self, vector: V) -> [u8; 16] {
            vector.shuffle([10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25], self.0)
        }
    }

    struct Name;

    impl Work for Name {
        type Output = &'static str;
        #[inline(always)]
        fn run<V: Vector>(self, _: V) -> &'static str {
            std::any::type_name::<V>()
        }
    }

    #[test]
    fn the_level_is_that_of_what_runs() {
        let name = run(Name).rsplit("::").next().map(str::to_lowercase);
        assert_eq!(name.as_deref(), Some(level().name()));
    }

    struct Columns<'a>([&'a [u8; 32]; 8]);

    impl Work for Columns<'_> {
        type Output = [[u32; 8]; 8];
        #[inline(always)]
        fn run<V: Vector>(self, vector: V) -> [[u32; 8]; 8] {
            vector.columns(self.0)
        }
    }

    #[test]
    fn all_levels_give_the_same_columns() {
        let rows: [[u8; 32]; 8] = from_fn(|row| from_fn(|byte| (32 * row + byte) as u8));
        let word = |row: usize, column: usize| {
            u32::from_le_bytes(from_fn(|byte| (32 * row + 4 * column + byte) as u8))
        };
        let expected = from_fn(|column| from_fn(|row| word(row, column)));
        for level in [Level::Portable, Level::Avx2, Level::Avx512, Level::Neon] {
            assert_eq!(run_at(level, Columns(rows.each_ref())), expected, "{level}");
        }
    }

    struct ShortColumns<'a>([&'a [u8; 16]; 8]);

    impl Work for ShortColumns<'_> {
        type Output = [[u32; 8]; 4];
        #[inline(always)]
        fn run<V: Vector>(self, vector: V) -> [[u32; 8]; 4] {
            vector.short_columns(self.0)
        }
    }

    #[test]
    fn short_columns_are_the_first_of_longer_ones() {
        let rows: [[u8; 32]; 8] = from_fn(|row| from_fn(|byte| (32 * row + byte) as u8));
        let short = rows.each_ref().map(|row| row.first_chunk().unwrap());
        let [first, second, third, fourth, ..] = run_at(Level::Portable, Columns(rows.each_ref()));
        for level in [Level::Portable, Level::Avx2, Level::Avx512, Level::Neon] {
            assert_eq!(run_at(level, ShortColumns(short)), [first, second, third, fourth], "{level}");
        }
    }

    #[test]
    fn all_levels_shuffle_alike() {
        let order = [6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, ZERO, 13, ZERO, 15];
        for level in [Level::Portable, Level::Avx2, Level::Avx512, Level::Neon] {
            assert_eq!(
                run_at(level, Shuffle(order)),
                [16, 17, 18, 19, 20, 21, 10, 11, 12, 13, 14, 15, 0, 23, 0, 25],
                "{level}"
            );
        }
    }
}
