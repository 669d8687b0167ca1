//! Sixteen lookups in a vector

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_and_si512, _mm512_castsi512_si256, _mm512_extracti64x4_epi64,
    _mm512_i32gather_epi32, _mm512_i32gather_epi64, _mm512_loadu_si512, _mm512_maskz_add_epi32,
    _mm512_permutex2var_epi32, _mm512_popcnt_epi32, _mm512_set1_epi32, _mm512_setr_epi32,
    _mm512_setzero_si512, _mm512_sllv_epi32, _mm512_srli_epi32, _mm512_storeu_si512, _mm512_sub_epi32,
    _mm512_test_epi32_mask,
};

use super::{CONTINUES, ROOT_BITS, ROOT_WORDS, UNITS, portable};

use crate::NextHopId;

/// Addresses in a vector
const LANES: usize = 16;
/// As a mask of the unit number
const LAST_UNIT: i32 = 31;
const _: () = assert!(LAST_UNIT as usize + 1 == UNITS);

/// # Safety
/// The processor must have what [`Kernel::Avx512`](crate::Kernel::Avx512) asks for. `words` and `hops` must be those of a
/// table: each base plus its bitmap's population is the index of one of `hops`, with at least one more slot after it.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn lookup_burst(words: &[u64], hops: &[u16], addresses: &[u32], answers: &mut [NextHopId]) {
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
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
unsafe fn look_up<const VECTORS: usize>(
    words: &[u64],
    hops: &[u16],
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
        // place has the sign bit: the arena of hops ends before.
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
    words: &[u64],
    hops: &[u16],
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
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
unsafe fn places_of(words: &[u64], addresses: &[u32; LANES]) -> (__m512i, u16) {
    // SAFETY: 16 addresses of 32 bits.
    let address = unsafe { _mm512_loadu_si512(addresses.as_ptr().cast()) };
    let index = _mm512_srli_epi32::<{ 32 - ROOT_BITS }>(address);
    // SAFETY: an index of 19 bits lies in the root, which `words` holds (caller).
    let (first, second) = unsafe {
        (
            _mm512_i32gather_epi64::<8>(_mm512_castsi512_si256(index), words.as_ptr().cast()),
            _mm512_i32gather_epi64::<8>(_mm512_extracti64x4_epi64::<1>(index), words.as_ptr().cast()),
        )
    };
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
    let rank = _mm512_popcnt_epi32(_mm512_and_si512(bitmap, up_to));
    (_mm512_maskz_add_epi32(!long, base, rank), long)
}
