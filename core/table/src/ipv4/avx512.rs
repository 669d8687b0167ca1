//! Sixteen lookups in a vector

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_and_si512, _mm512_castsi512_si256, _mm512_extracti64x4_epi64,
    _mm512_i32gather_epi32, _mm512_i32gather_epi64, _mm512_mask_storeu_epi32, _mm512_maskz_loadu_epi32,
    _mm512_permutex2var_epi32, _mm512_popcnt_epi32, _mm512_set1_epi32, _mm512_setr_epi32,
    _mm512_setzero_si512, _mm512_sllv_epi32, _mm512_srli_epi32, _mm512_storeu_si512, _mm512_sub_epi32,
    _mm512_test_epi32_mask,
};

use super::portable::place_of_long;
use super::{CONTINUES, ROOT_WORDS, UNITS};

use crate::NextHopId;

/// Addresses in a vector
const LANES: usize = 16;
/// As a mask of the unit number
const LAST_UNIT: i32 = 31;
const _: () = assert!(LAST_UNIT as usize + 1 == UNITS);
/// Vectors between the gathers of words and of hops, so that a whole burst of 64 has its lines under way
const VECTORS: usize = 4;

/// # Safety
/// The processor must have what [`Kernel::Avx512`](crate::Kernel::Avx512) asks for. `words` and `hops` must be those of a
/// table: each base plus its bitmap's population is the index of one of `hops`, with at least one more slot after it.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn lookup_burst(words: &[u64], hops: &[u16], addresses: &[u32], answers: &mut [NextHopId]) {
    if words.len() < ROOT_WORDS {
        return;
    }
    let count = addresses.len().min(answers.len());
    let (addresses, answers) = (&addresses[..count], &mut answers[..count]);
    for (addresses, answers) in addresses.chunks(VECTORS * LANES).zip(answers.chunks_mut(VECTORS * LANES)) {
        let mut places = [_mm512_setzero_si512(); VECTORS];
        for (places, addresses) in places.iter_mut().zip(addresses.chunks(LANES)) {
            // SAFETY: the root is complete (above).
            *places = unsafe { places_of(words, addresses) };
        }
        for (&places, answers) in places.iter().zip(answers.chunks_mut(LANES)) {
            let lanes = u16::MAX >> (LANES - answers.len());
            // SAFETY: each place is the index of a hop and has one more after it, which the 32 bits gathered cover (caller); the
            // lanes without an address were looked up as address 0. No place has the sign bit: the arena of hops ends before.
            let pairs = unsafe { _mm512_i32gather_epi32::<2>(places, hops.as_ptr().cast()) };
            let stored = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff));
            // SAFETY: `lanes` selects `answers.len()` of them; NextHopId is transparent over u32, of which 0 to 0xffff
            // are its values.
            unsafe { _mm512_mask_storeu_epi32(answers.as_mut_ptr().cast(), lanes, stored) };
        }
    }
}

/// Where the next hops of up to 16 addresses stand; address 0 in the lanes that have none
///
/// # Safety
/// As for [`lookup_burst`], and `words` holds at least the root.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
unsafe fn places_of(words: &[u64], addresses: &[u32]) -> __m512i {
    let lanes = u16::MAX >> (LANES - addresses.len());
    // SAFETY: `lanes` selects `addresses.len()` of them.
    let address = unsafe { _mm512_maskz_loadu_epi32(lanes, addresses.as_ptr().cast()) };
    let index = _mm512_srli_epi32::<13>(address);
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
    let places = _mm512_add_epi32(base, _mm512_popcnt_epi32(_mm512_and_si512(bitmap, up_to)));
    const { assert!(CONTINUES == 1) };
    let long = _mm512_test_epi32_mask(bitmap, one);
    if long == 0 { places } else { with_long(words, addresses, long, places) }
}

/// Replaces the places in the lanes of `long`, whose words continue
#[target_feature(enable = "avx512f")]
#[inline]
fn with_long(words: &[u64], addresses: &[u32], long: u16, places: __m512i) -> __m512i {
    let mut each = [0u32; LANES];
    // SAFETY: 16 places of 32 bits fill the array.
    unsafe { _mm512_storeu_si512(each.as_mut_ptr().cast(), places) };
    let mut left = long;
    while left != 0 {
        let lane = left.trailing_zeros() as usize;
        let address = addresses.get(lane).copied().unwrap_or_default();
        // The place fits 32 bits as every base does.
        each[lane] = place_of_long(words, words[(address >> 13) as usize], address) as u32;
        left &= left - 1;
    }
    // SAFETY: an array of 16 times 32 bits.
    unsafe { std::arch::x86_64::_mm512_loadu_si512(each.as_ptr().cast()) }
}
