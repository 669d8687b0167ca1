//! Sums of 16-bit words, of which Internet checksums are made (RFC 1071).
//!
//! Short pieces, such as headers and small packets, are added 64 bits at a time with a carry, in the caller's own code: there a look
//! at the processor, a call and the gathering of a vector's parts would take longer than the sum. Longer ones go to vector kernels.
//! Of AVX-512 only the dot product (VNNI) makes a difference here: it multiplies, adds pairs and accumulates in one instruction.

use std::sync::OnceLock;

use crate::simd::{self, Level};

/// Up to so many bytes are summed by words.
const SHORT: usize = 192;

/// Bytes after which a kernel gathers its 32-bit lanes: 2^15 words of at most 2^15 each stay below 2^31, even in one lane.
const PIECE: usize = 1 << 16;

/// The ones' complement sum of `bytes` as 16-bit words that are little-endian on every machine, not yet folded: an odd last byte is
/// the low half of a word. Fold it to 16 bits and exchange their halves for the sum in network order (RFC 1071 section 2 (B)).
///
/// Only bytes that are all zero have the sum 0.
#[inline]
pub fn little_endian(bytes: &[u8]) -> u64 {
    if bytes.len() <= SHORT { by_words(bytes) } else { long(bytes) }
}

/// The same of bytes that are copied on the way, as many as both have.
#[inline]
pub fn copy(to: &mut [u8], from: &[u8]) -> u64 {
    let count = to.len().min(from.len());
    let (to, from) = (&mut to[..count], &from[..count]);
    if count <= SHORT {
        to.copy_from_slice(from);
        return by_words(from);
    }
    long_copy(to, from)
}

/// A kernel, for more than a few bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Neon,
}

impl Kernel {
    /// The best one of a level.
    fn of(level: Level) -> Self {
        if !Level::available().contains(&level) {
            return Self::Portable;
        }
        match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 if is_x86_feature_detected!("avx512vnni") => Self::Avx512,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx2 => Self::Avx2,
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Level::Neon => Self::Neon,
            _ => Self::Portable,
        }
    }

    #[inline]
    fn sum(self, bytes: &[u8]) -> u64 {
        match self {
            Self::Portable => portable(bytes),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `of` chooses this only where the processor has AVX2. Nothing is copied.
            Self::Avx2 => unsafe { x86::avx2::<false>(bytes, std::ptr::null_mut()) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `of` chooses this only where the processor has AVX-512 F, BW and VNNI. Nothing is copied.
            Self::Avx512 => unsafe { x86::avx512::<false>(bytes, std::ptr::null_mut()) },
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            // SAFETY: `of` chooses this only where the processor has NEON.
            Self::Neon => unsafe { arm::neon(bytes) },
        }
    }

    /// Copies bytes to as many others, and sums them up.
    #[inline]
    fn copy(self, to: &mut [u8], from: &[u8]) -> u64 {
        assert_eq!(to.len(), from.len(), "as many bytes");
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as in `sum`; and there is space for all of them.
            Self::Avx2 => unsafe { x86::avx2::<true>(from, to.as_mut_ptr()) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as in `sum`; and there is space for all of them.
            Self::Avx512 => unsafe { x86::avx512::<true>(from, to.as_mut_ptr()) },
            _ => {
                to.copy_from_slice(from);
                self.sum(to)
            }
        }
    }
}

#[inline(never)]
fn long(bytes: &[u8]) -> u64 {
    detected().sum(bytes)
}

#[inline(never)]
fn long_copy(to: &mut [u8], from: &[u8]) -> u64 {
    detected().copy(to, from)
}

#[inline]
fn detected() -> Kernel {
    static KERNEL: OnceLock<Kernel> = OnceLock::new();
    *KERNEL.get_or_init(|| Kernel::of(simd::detected()))
}

/// 64 bits at a time, in one chain of carries for every 64 bytes.
#[inline(always)]
fn by_words(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<64>();
    let mut total = 0_u64;
    for block in blocks {
        let mut carry = false;
        for word in block.as_chunks::<8>().0 {
            (total, carry) = add_with_carry(total, u64::from_le_bytes(*word), carry);
        }
        // Sum and carry can't both be at their top, so this doesn't overflow.
        total = total.wrapping_add(u64::from(carry));
    }
    let (words, rest) = rest.as_chunks::<8>();
    for word in words {
        total = add(total, u64::from_le_bytes(*word));
    }
    if rest.is_empty() { total } else { add(total, last(bytes, rest)) }
}

/// The `rest` of less than 8 bytes at the end of `bytes`, as a word.
#[inline(always)]
fn last(bytes: &[u8], rest: &[u8]) -> u64 {
    // A whole word is read where there is one, and what was added before shifted out of it.
    if let Some(word) = bytes.last_chunk::<8>() {
        return u64::from_le_bytes(*word) >> (64 - 8 * rest.len());
    }
    let mut word = [0; 8];
    // Not `copy_from_slice`, which would be a call.
    for (to, from) in word.iter_mut().zip(rest) {
        *to = *from;
    }
    u64::from_le_bytes(word)
}

/// Ones' complement addition of 64-bit words: the carry out of the top comes back in at the bottom.
#[inline(always)]
const fn add(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u64
}

/// Addition with a carry in and a carry out.
#[inline(always)]
const fn add_with_carry(a: u64, b: u64, carry: bool) -> (u64, bool) {
    let (sum, first) = a.overflowing_add(b);
    let (sum, second) = sum.overflowing_add(carry as u64);
    (sum, first | second)
}

/// With what every processor of the architecture has. Lanes don't depend on each other, so the compiler makes vectors of them.
#[inline(never)]
fn portable(bytes: &[u8]) -> u64 {
    const LANES: usize = 8;
    let (blocks, rest) = bytes.as_chunks::<{ 8 * LANES }>();
    let mut total = by_words(rest);
    // Lanes of 32-bit words don't carry below 2^32 of them.
    for piece in blocks.chunks(PIECE) {
        let mut lanes = [0_u64; LANES];
        for block in piece {
            for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<8>().0) {
                let word = u64::from_le_bytes(*word);
                *lane += (word & 0xffff_ffff) + (word >> 32);
            }
        }
        // Both halves of a lane are below 2^32, so their sum over all lanes has space.
        total = add(total, lanes.iter().map(|lane| (lane & 0xffff_ffff) + (lane >> 32)).sum());
    }
    total
}

/// A multiplication of pairs is signed, so 2^15 is taken off each word before (its top bit inverted) and added again here, for all
/// `words` that were summed.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
const fn unbiased(lanes: i32, words: usize) -> u64 {
    (lanes as i64).wrapping_add_unsigned((words as u64) << 15).cast_unsigned()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        _mm_add_epi32, _mm_cvtsi128_si32, _mm_shuffle_epi32, _mm256_add_epi32, _mm256_castsi256_si128,
        _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_set1_epi16,
        _mm256_setzero_si256, _mm256_storeu_si256, _mm256_xor_si256, _mm512_add_epi32, _mm512_dpwssd_epi32,
        _mm512_loadu_si512, _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_reduce_add_epi32,
        _mm512_set1_epi16, _mm512_setzero_si512, _mm512_storeu_si512, _mm512_xor_si512,
    };

    use super::{PIECE, add, by_words, unbiased};

    /// # Safety
    /// If it is to `COPY`, the bytes can be written to `to`, and they are elsewhere.
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) unsafe fn avx2<const COPY: bool>(bytes: &[u8], to: *mut u8) -> u64 {
        let (bias, ones) = (_mm256_set1_epi16(i16::MIN), _mm256_set1_epi16(1));
        let place = |at: *const u8| {
            to.wrapping_byte_offset(at.addr().wrapping_sub(bytes.as_ptr().addr()).cast_signed())
        };
        let load = |bytes: &[u8; 32]| {
            // SAFETY: reads the 32 bytes of the array, at any address.
            let vector = unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) };
            if COPY {
                // SAFETY: the caller's; the place is as far from the first as these bytes are.
                unsafe { _mm256_storeu_si256(place(bytes.as_ptr()).cast(), vector) };
            }
            vector
        };
        let pairs = |bytes| _mm256_madd_epi16(_mm256_xor_si256(load(bytes), bias), ones);
        let mut total = 0;
        for piece in bytes.chunks(PIECE) {
            let (words, rest) = piece.as_chunks::<32>();
            let (blocks, single) = words.as_chunks::<4>();
            let mut lanes = [_mm256_setzero_si256(); 4];
            for block in blocks {
                for (lane, word) in lanes.iter_mut().zip(block) {
                    *lane = _mm256_add_epi32(*lane, pairs(word));
                }
            }
            for word in single {
                lanes[0] = _mm256_add_epi32(lanes[0], pairs(word));
            }
            let [a, b, c, d] = lanes;
            let lanes = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
            let half = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256::<1>(lanes));
            let half = _mm_add_epi32(half, _mm_shuffle_epi32::<0b0100_1110>(half));
            let half = _mm_add_epi32(half, _mm_shuffle_epi32::<0b1011_0001>(half));
            total = add(total, unbiased(_mm_cvtsi128_si32(half), words.len() * 16));
            total = add(total, by_words(rest));
            if COPY {
                // SAFETY: as above.
                unsafe { rest.as_ptr().copy_to_nonoverlapping(place(rest.as_ptr()), rest.len()) };
            }
        }
        total
    }

    /// # Safety
    /// As of [`avx2`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) unsafe fn avx512<const COPY: bool>(bytes: &[u8], to: *mut u8) -> u64 {
        // Without the loop, the usual case takes fewer instructions.
        if bytes.len() <= PIECE {
            // SAFETY: the caller's.
            return unsafe { avx512_piece::<COPY>(bytes, to) };
        }
        let pieces = bytes.chunks(PIECE).enumerate();
        // SAFETY: the caller's, for each piece where it is among the bytes.
        let sums = pieces
            .map(|(number, piece)| unsafe { avx512_piece::<COPY>(piece, to.wrapping_add(number * PIECE)) });
        sums.fold(0, add)
    }

    /// Up to [`PIECE`] bytes.
    ///
    /// # Safety
    /// As of [`avx2`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline]
    unsafe fn avx512_piece<const COPY: bool>(bytes: &[u8], to: *mut u8) -> u64 {
        let (bias, ones) = (_mm512_set1_epi16(i16::MIN), _mm512_set1_epi16(1));
        let place = |at: *const u8| {
            to.wrapping_byte_offset(at.addr().wrapping_sub(bytes.as_ptr().addr()).cast_signed())
        };
        let load = |bytes: &[u8; 64]| {
            // SAFETY: reads the 64 bytes of the array, at any address.
            let vector = unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
            if COPY {
                // SAFETY: the caller's; the place is as far from the first as these bytes are.
                unsafe { _mm512_storeu_si512(place(bytes.as_ptr()).cast(), vector) };
            }
            vector
        };
        let accumulate = |lane, words| _mm512_dpwssd_epi32(lane, _mm512_xor_si512(words, bias), ones);
        let (words, rest) = bytes.as_chunks::<64>();
        // Each sum waits for the last in its lane: four of them are under way at once.
        let (blocks, single) = words.as_chunks::<4>();
        let mut lanes = [_mm512_setzero_si512(); 4];
        for block in blocks {
            for (lane, word) in lanes.iter_mut().zip(block) {
                *lane = accumulate(*lane, load(word));
            }
        }
        for (lane, word) in lanes.iter_mut().zip(single) {
            *lane = accumulate(*lane, load(word));
        }
        // Bytes behind the end are not read, and count as zero.
        let mask = (1_u64 << rest.len()) - 1;
        // SAFETY: the mask leaves only bytes of `rest`.
        let masked = unsafe { _mm512_maskz_loadu_epi8(mask, rest.as_ptr().cast()) };
        if COPY {
            // SAFETY: as above, and the mask leaves only as many bytes as `rest` has.
            unsafe { _mm512_mask_storeu_epi8(place(rest.as_ptr()).cast(), mask, masked) };
        }
        lanes[3] = accumulate(lanes[3], masked);
        let [a, b, c, d] = lanes;
        let lanes = _mm512_add_epi32(_mm512_add_epi32(a, b), _mm512_add_epi32(c, d));
        unbiased(_mm512_reduce_add_epi32(lanes), (words.len() + 1) * 32)
    }
}

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod arm {
    use std::arch::aarch64::{vaddlvq_u32, vdupq_n_u32, vld1q_u8, vpadalq_u16, vreinterpretq_u16_u8};

    use super::{PIECE, add, by_words};

    #[target_feature(enable = "neon")]
    pub(super) fn neon(bytes: &[u8]) -> u64 {
        // SAFETY: reads the 16 bytes of the array, at any address.
        let load = |bytes: &[u8; 16]| vreinterpretq_u16_u8(unsafe { vld1q_u8(bytes.as_ptr()) });
        let mut total = 0;
        for piece in bytes.chunks(PIECE) {
            let (words, rest) = piece.as_chunks::<16>();
            let (blocks, single) = words.as_chunks::<4>();
            let mut lanes = [vdupq_n_u32(0); 4];
            for block in blocks {
                for (lane, word) in lanes.iter_mut().zip(block) {
                    *lane = vpadalq_u16(*lane, load(word));
                }
            }
            for word in single {
                lanes[0] = vpadalq_u16(lanes[0], load(word));
            }
            for lane in lanes {
                total = add(total, vaddlvq_u32(lane));
            }
            total = add(total, by_words(rest));
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One word at a time.
    fn reference(bytes: &[u8]) -> u64 {
        let words =
            bytes.chunks(2).map(|pair| u64::from(pair[0]) | u64::from(*pair.get(1).unwrap_or(&0)) << 8);
        words.sum()
    }

    /// Zero and 0xffff are one number, but only one of them is the sum of nothing.
    fn folded(sum: u64) -> (u64, bool) {
        (sum % 0xffff, sum == 0)
    }

    #[test]
    fn all_kernels_sum_alike_at_any_length_and_address() {
        let mut state = 1_u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let contents: [Vec<u8>; 4] = [
            (0..9_100).map(|_| random()).collect(),
            vec![0; 9_100],
            vec![0xff; 9_100],
            (0..9_100).map(|index| if index % 7 == 0 { 0xfe } else { 0xff }).collect(),
        ];
        for bytes in &contents {
            for length in (0..700).chain([1_499, 1_500, 2_048, 8_999, 9_000]) {
                for start in [0, 1, 33] {
                    let bytes = &bytes[start..start + length];
                    let expected = folded(reference(bytes));
                    assert_eq!(folded(little_endian(bytes)), expected, "{length} bytes from {start}");
                    let mut target = vec![0; length];
                    assert_eq!(
                        folded(super::copy(&mut target, bytes)),
                        expected,
                        "{length} bytes from {start}"
                    );
                    assert!(target == *bytes, "{length} bytes from {start}");
                    for level in [Level::Portable, Level::Avx2, Level::Avx512, Level::Neon] {
                        let kernel = Kernel::of(level);
                        let what = format!("{kernel:?}, {length} bytes from {start}");
                        assert_eq!(folded(kernel.sum(bytes)), expected, "{what}");
                        let mut target = vec![0xee; length + 2];
                        let sum = kernel.copy(&mut target[1..=length], bytes);
                        assert_eq!(folded(sum), expected, "{what}");
                        assert!(target[1..=length] == *bytes && target[0] == 0xee, "{what}");
                        assert_eq!(target[length + 1], 0xee, "{what}");
                    }
                }
            }
        }
    }

    #[test]
    fn lanes_do_not_overflow() {
        for byte in [0, 0x7f, 0x80, 0xff] {
            let bytes = vec![byte; 5 * PIECE + 12_345];
            for level in [Level::Portable, Level::Avx2, Level::Avx512, Level::Neon] {
                assert_eq!(
                    folded(Kernel::of(level).sum(&bytes)),
                    folded(reference(&bytes)),
                    "{level} {byte}"
                );
            }
        }
    }

    #[test]
    fn levels_have_kernels_of_their_own() {
        for &level in Level::available() {
            assert_eq!(Kernel::of(level) == Kernel::Portable, level == Level::Portable, "{level}");
        }
    }
}
