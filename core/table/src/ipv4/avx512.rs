//! Sixteen lookups in a vector

use std::arch::asm;
use std::arch::x86_64::{
    __m256i, __m512i, _mm_setr_epi8, _mm512_add_epi8, _mm512_add_epi32, _mm512_and_si512,
    _mm512_broadcast_i32x4, _mm512_castsi512_si256, _mm512_extracti64x4_epi64, _mm512_i32gather_epi32,
    _mm512_loadu_si512, _mm512_madd_epi16, _mm512_maddubs_epi16, _mm512_maskz_add_epi32,
    _mm512_permutex2var_epi32, _mm512_set1_epi8, _mm512_set1_epi16, _mm512_set1_epi32, _mm512_setr_epi32,
    _mm512_setzero_si512, _mm512_shuffle_epi8, _mm512_sllv_epi32, _mm512_srli_epi32, _mm512_storeu_si512,
    _mm512_sub_epi32, _mm512_test_epi32_mask,
};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering, compiler_fence};

use super::{CONTINUES, ROOT_BITS, ROOT_WORDS, UNITS, portable};

use crate::NextHopId;

/// Addresses in a vector
const LANES: usize = 16;
/// As a mask of the unit number
const LAST_UNIT: i32 = 31;
const _: () = assert!(LAST_UNIT as usize + 1 == UNITS);

/// # Safety
/// The processor must have what [`Level::Avx512`](warmlane_sys::simd::Level::Avx512) stands for. `words` and `hops` must be those of a
/// table: each base plus its bitmap's population is the index of one of `hops`, with at least one more slot after it; and no hop
/// that a word leads to may be written meanwhile.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn lookup_burst(
    words: &[AtomicU64],
    hops: &[AtomicU16],
    addresses: &[u32],
    answers: &mut [NextHopId],
) {
    if words.len() < ROOT_WORDS {
        return;
    }
    let count = addresses.len().min(answers.len());
    let (fours, addresses) = addresses[..count].as_chunks::<{ 4 * LANES }>();
    let (four_answers, answers) = answers[..count].as_chunks_mut::<{ 4 * LANES }>();
    for (addresses, answers) in fours.iter().zip(four_answers) {
        // SAFETY: the root is complete (above), the rest is the caller's promise; so it is below.
        unsafe { look_up::<4>(words, hops, addresses.as_chunks().0, answers.as_chunks_mut().0) };
    }
    let (ones, addresses) = addresses.as_chunks();
    let (one_answers, answers) = answers.as_chunks_mut();
    // SAFETY: as above.
    unsafe {
        match ones.len() {
            3 => look_up::<3>(words, hops, ones, one_answers),
            2 => look_up::<2>(words, hops, ones, one_answers),
            1 => look_up::<1>(words, hops, ones, one_answers),
            _ => {}
        }
    }
    if !addresses.is_empty() {
        // Whole vectors only: masked stores cost more than this copy does.
        let mut padded = [0; LANES];
        let mut padded_answers = [NextHopId::NONE; LANES];
        padded[..addresses.len()].copy_from_slice(addresses);
        // SAFETY: as above.
        unsafe { look_up::<1>(words, hops, &[padded], std::slice::from_mut(&mut padded_answers)) };
        answers.copy_from_slice(&padded_answers[..addresses.len()]);
    }
}

/// Looks up `VECTORS` times 16 addresses: all words, then all hops, so that many lines are under way at once
///
/// # Safety
/// As for [`lookup_burst`]; `words` must hold the whole root.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
unsafe fn look_up<const VECTORS: usize>(
    words: &[AtomicU64],
    hops: &[AtomicU16],
    addresses: &[[u32; LANES]],
    answers: &mut [[NextHopId; LANES]],
) {
    let mut places = [_mm512_setzero_si512(); VECTORS];
    let mut long = [0; VECTORS];
    for ((places, long), addresses) in places.iter_mut().zip(&mut long).zip(addresses) {
        // SAFETY: the root is complete (caller).
        (*places, *long) = unsafe { places_of(words, addresses) };
    }
    for (&places, answers) in places.iter().zip(&mut *answers) {
        // SAFETY: each place is the index of a hop and has one more after it, which the 32 bits gathered cover (caller). No
        // place has the sign bit: the arena of hops ends before. The hop is not being written (caller). The one after it
        // may belong to another run that is: those bits are masked out, and each load is of bytes the processor has,
        // whoever writes them.
        let pairs = unsafe { _mm512_i32gather_epi32::<2>(places, hops.as_ptr().cast()) };
        let stored = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff));
        // SAFETY: 16 answers of 32 bits; NextHopId is transparent over u32, of which 0 to 0xffff are its values.
        unsafe { _mm512_storeu_si512(answers.as_mut_ptr().cast(), stored) };
    }
    // One question for all vectors, after all gathers: a branch that waits for each vector's words kept the
    // processor from looking ahead and doubled the time (Zen 4).
    if long.iter().fold(0, |any, &lanes| any | lanes) != 0 {
        for ((&lanes, addresses), answers) in long.iter().zip(addresses).zip(answers) {
            answer_long(words, hops, lanes, addresses, answers);
        }
    }
}

/// Looks up the addresses in `lanes`, whose words continue
#[cold]
#[inline(never)]
fn answer_long(
    words: &[AtomicU64],
    hops: &[AtomicU16],
    mut lanes: u16,
    addresses: &[u32; LANES],
    answers: &mut [NextHopId; LANES],
) {
    while lanes != 0 {
        let lane = lanes.trailing_zeros() as usize % LANES;
        answers[lane] = portable::lookup(words, hops, addresses[lane]);
        lanes &= lanes - 1;
    }
}

/// Where the next hops of 16 addresses stand, and the lanes whose words continue, which get place 0
///
/// # Safety
/// As for [`look_up`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
unsafe fn places_of(words: &[AtomicU64], addresses: &[u32; LANES]) -> (__m512i, u16) {
    // SAFETY: 16 addresses of 32 bits.
    let address = unsafe { _mm512_loadu_si512(addresses.as_ptr().cast()) };
    let index = _mm512_srli_epi32::<{ 32 - ROOT_BITS }>(address);
    // SAFETY: an index of 19 bits lies in the root, which `words` holds (caller).
    let (first, second) = unsafe {
        (gather(words, _mm512_castsi512_si256(index)), gather(words, _mm512_extracti64x4_epi64::<1>(index)))
    };
    // With the processor's own order of loads, this makes them acquire: what is gathered later, from places that these
    // words name, is as it was when they were published.
    compiler_fence(Ordering::Acquire);
    let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    let bitmap = _mm512_permutex2var_epi32(first, even, second);
    let base = _mm512_permutex2var_epi32(first, odd, second);
    let unit = _mm512_and_si512(_mm512_srli_epi32::<8>(address), _mm512_set1_epi32(LAST_UNIT));
    let one = _mm512_set1_epi32(1);
    // 2 << 31 is 0 in 32 bits, and 0 - 1 all ones: the last unit needs no case of its own.
    let up_to = _mm512_sub_epi32(_mm512_sllv_epi32(_mm512_add_epi32(one, one), unit), one);
    const { assert!(CONTINUES == 1) };
    let long = _mm512_test_epi32_mask(bitmap, one);
    let rank = count_ones(_mm512_and_si512(bitmap, up_to));
    (_mm512_maskz_add_epi32(!long, base, rank), long)
}

/// The words at eight places
///
/// Another thread may publish words meanwhile. So the load is none of the compiler's, for which that would be a data
/// race, but the processor's, which loads each aligned element of 8 bytes as a whole (Intel SDM volume 3, section 10.1.1;
/// AMD64 APM volume 2, section 7.3.2): eight relaxed atomic loads.
///
/// # Safety
/// `words` must have a word at each place.
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
#[inline]
unsafe fn gather(words: &[AtomicU64], places: __m256i) -> __m512i {
    let mut gathered = _mm512_setzero_si512();
    // SAFETY: reads 8 bytes at each place, all inside `words` (caller), and changes the two registers named.
    unsafe {
        asm!(
            "vpgatherdq {gathered}{{{mask}}}, [{words} + {places}*8]",
            gathered = inout(zmm_reg) gathered,
            mask = inout(kreg) 0xff_u8 => _,
            words = in(reg) words.as_ptr(),
            places = in(ymm_reg) places,
            options(readonly, nostack, preserves_flags),
        );
    }
    gathered
}

/// Population counts of 32-bit elements. Processors without VPOPCNTDQ have AVX-512 as well, and next to the gathers the
/// difference does not show: nibbles by a table in a register, then sums.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn count_ones(bits: __m512i) -> __m512i {
    let nibble = _mm512_set1_epi8(0x0f);
    let counts = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    let low = _mm512_shuffle_epi8(counts, _mm512_and_si512(bits, nibble));
    let high = _mm512_shuffle_epi8(counts, _mm512_and_si512(_mm512_srli_epi32::<4>(bits), nibble));
    let pairs = _mm512_maddubs_epi16(_mm512_add_epi8(low, high), _mm512_set1_epi8(1));
    _mm512_madd_epi16(pairs, _mm512_set1_epi16(1))
}
