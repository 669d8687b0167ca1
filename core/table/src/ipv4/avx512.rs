//! Sixteen lookups in a vector, but for their loads
//!
//! The loads are plain ones, one by one. Instructions that gather take Zen 4 some five steps for each element, which fill
//! the window in which it looks for further loads: with them a lookup took a tenth longer. Loads of Rust's atomics
//! also are what a writer beside them asks for.

use std::arch::asm;
use std::arch::x86_64::{
    __m512i, _mm_setr_epi8, _mm512_add_epi8, _mm512_add_epi32, _mm512_and_si512, _mm512_andnot_si512,
    _mm512_broadcast_i32x4, _mm512_cmpeq_epi32_mask, _mm512_loadu_si512, _mm512_madd_epi16,
    _mm512_maddubs_epi16, _mm512_permutex2var_epi32, _mm512_set1_epi8, _mm512_set1_epi16, _mm512_set1_epi32,
    _mm512_setr_epi32, _mm512_shuffle_epi8, _mm512_sllv_epi32, _mm512_srli_epi32, _mm512_storeu_si512,
};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU16, AtomicU64};

use super::{DIVIDED, ROOT_WORDS, UNITS, portable};

use crate::NextHopId;

/// Addresses in a vector
const LANES: usize = 16;
/// As a mask of the unit number
const LAST_UNIT: i32 = 31;
const _: () = assert!(LAST_UNIT as usize + 1 == UNITS);

/// All words, and the root, which they begin with
type Words<'a> = (&'a [AtomicU64], &'a [AtomicU64; ROOT_WORDS]);

/// For vector loads and stores that stay inside a cache line
#[repr(align(64))]
struct Aligned<T>(T);

/// # Safety
/// The processor must have what [`Level::Avx512`](warmlane_sys::simd::Level::Avx512) stands for. `words` and `hops` must be those of a
/// table: each base plus its bitmap's population is the index of one of `hops`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn lookup_burst(
    words: &[AtomicU64],
    hops: &[AtomicU16],
    addresses: &[u32],
    answers: &mut [NextHopId],
) {
    let Some(root) = words.first_chunk() else { return };
    if is_x86_feature_detected!("avx512vpopcntdq") {
        // SAFETY: as the caller promises, and the processor has the one instruction more.
        unsafe { look_up_all::<true>((words, root), hops, addresses, answers) }
    } else {
        // SAFETY: as the caller promises.
        unsafe { look_up_all::<false>((words, root), hops, addresses, answers) }
    }
}

/// # Safety
/// As for [`lookup_burst`]. With `COUNTS`, the processor must have VPOPCNTDQ.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
unsafe fn look_up_all<const COUNTS: bool>(
    words: Words<'_>,
    hops: &[AtomicU16],
    addresses: &[u32],
    answers: &mut [NextHopId],
) {
    let count = addresses.len().min(answers.len());
    let (fours, addresses) = addresses[..count].as_chunks::<{ 4 * LANES }>();
    let (four_answers, answers) = answers[..count].as_chunks_mut::<{ 4 * LANES }>();
    for (addresses, answers) in fours.iter().zip(four_answers) {
        // SAFETY: as the caller promises; so it is below.
        unsafe { look_up::<4, COUNTS>(words, hops, addresses.as_chunks().0, answers.as_chunks_mut().0) };
    }
    let (ones, addresses) = addresses.as_chunks();
    let (one_answers, answers) = answers.as_chunks_mut();
    // SAFETY: as above.
    unsafe {
        match ones.len() {
            3 => look_up::<3, COUNTS>(words, hops, ones, one_answers),
            2 => look_up::<2, COUNTS>(words, hops, ones, one_answers),
            1 => look_up::<1, COUNTS>(words, hops, ones, one_answers),
            _ => {}
        }
    }
    if !addresses.is_empty() {
        // Whole vectors only: masked stores cost more than this copy does.
        let mut padded = [0; LANES];
        let mut padded_answers = [NextHopId::NONE; LANES];
        padded[..addresses.len()].copy_from_slice(addresses);
        // SAFETY: as above.
        unsafe { look_up::<1, COUNTS>(words, hops, &[padded], std::slice::from_mut(&mut padded_answers)) };
        answers.copy_from_slice(&padded_answers[..addresses.len()]);
    }
}

/// Looks up `VECTORS` times 16 addresses: all words, then all hops, so that many lines are under way at once
///
/// # Safety
/// As for [`look_up_all`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
unsafe fn look_up<const VECTORS: usize, const COUNTS: bool>(
    (words, root): Words<'_>,
    hops: &[AtomicU16],
    addresses: &[[u32; LANES]],
    answers: &mut [[NextHopId; LANES]],
) {
    // Not filled with zeros first: stores wait in a queue of 64 until all loads before them are done (Zen 4).
    let mut found = Aligned([const { MaybeUninit::<[u64; LANES]>::uninit() }; VECTORS]);
    let mut places = Aligned([const { MaybeUninit::<[u32; LANES]>::uninit() }; VECTORS]);
    let (addresses, answers) = (&addresses[..VECTORS], &mut answers[..VECTORS]);
    // Volatile, here and below: else the compiler puts vectors together in registers and takes them apart there, which needs more
    // steps than the way through the first-level cache. And one loop over all, which stays a loop: written out, the same
    // loads took half as long again (Zen 4).
    let first = found.0.as_mut_ptr().cast::<u64>();
    for (index, address) in addresses.as_flattened().iter().enumerate() {
        let word = portable::load(portable::root_word(root, *address));
        // SAFETY: there is a word of the array for each address.
        unsafe { first.add(index).write_volatile(word) };
    }
    for ((places, found), addresses) in places.0.iter_mut().zip(&found.0).zip(addresses) {
        // SAFETY: all words were written above. With `COUNTS` the processor has the instruction (caller). 16 places of 32 bits.
        unsafe {
            let sixteen = places_of::<COUNTS>(found.assume_init_ref(), addresses);
            _mm512_storeu_si512(places.as_mut_ptr().cast(), sixteen);
        }
    }
    let first = places.0.as_ptr().cast::<u32>();
    for (index, answer) in answers.as_flattened_mut().iter_mut().enumerate() {
        // SAFETY: there is a place for each answer, written above.
        let place = unsafe { first.add(index).read_volatile() } as usize;
        // SAFETY: a place that a word gives is the index of a hop (caller).
        let hop = portable::hop(unsafe { hops.get_unchecked(place) });
        // SAFETY: the answer is borrowed.
        unsafe { ptr::from_mut(answer).write_volatile(NextHopId::from_stored(hop)) };
    }
    let mut divided = [0; VECTORS];
    for (divided, answers) in divided.iter_mut().zip(&*answers) {
        // SAFETY: 16 answers of 32 bits; NextHopId is transparent over u32.
        let stored = unsafe { _mm512_loadu_si512(answers.as_ptr().cast()) };
        *divided = _mm512_cmpeq_epi32_mask(stored, _mm512_set1_epi32(i32::from(DIVIDED)));
    }
    // One question for all vectors, after all loads: a branch that waits for each vector's own kept the
    // processor from looking ahead and doubled the time (Zen 4).
    if divided.iter().fold(0, |any, &lanes| any | lanes) != 0 {
        for ((&lanes, addresses), answers) in divided.iter().zip(addresses).zip(answers) {
            answer_divided(words, hops, lanes, addresses, answers);
        }
    }
}

/// Looks up the addresses in `lanes`, which lie in /24s with longer routes
#[cold]
#[inline(never)]
fn answer_divided(
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

/// Where the next hops of 16 addresses stand, whose root words these are
///
/// # Safety
/// With `COUNTS` the processor must have VPOPCNTDQ.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
unsafe fn places_of<const COUNTS: bool>(words: &[u64; LANES], addresses: &[u32; LANES]) -> __m512i {
    let (halves, _) = words.as_chunks::<{ LANES / 2 }>();
    // SAFETY: 16 addresses of 32 bits, and twice 8 words of 64.
    let (address, first, second) = unsafe {
        (
            _mm512_loadu_si512(addresses.as_ptr().cast()),
            _mm512_loadu_si512(halves[0].as_ptr().cast()),
            _mm512_loadu_si512(halves[1].as_ptr().cast()),
        )
    };
    let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    let bitmap = _mm512_permutex2var_epi32(first, even, second);
    let base = _mm512_permutex2var_epi32(first, odd, second);
    // The bits up to the unit's, at the upper end: shifted by 31 less the unit, of which there are 32.
    let above = _mm512_andnot_si512(_mm512_srli_epi32::<8>(address), _mm512_set1_epi32(LAST_UNIT));
    let bits = _mm512_sllv_epi32(bitmap, above);
    // SAFETY: with `COUNTS` the processor has the instruction (caller).
    let rank = if COUNTS { unsafe { count_ones(bits) } } else { count_ones_by_nibbles(bits) };
    _mm512_add_epi32(base, rank)
}

/// Population counts of 32-bit elements
///
/// # Safety
/// The processor must have VPOPCNTDQ.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn count_ones(bits: __m512i) -> __m512i {
    let counts;
    // In assembly, so that the functions around it need not be compiled twice.
    // SAFETY: the processor has the instruction (caller), which changes only the register named.
    unsafe {
        asm!(
            "vpopcntd {counts}, {bits}",
            counts = lateout(zmm_reg) counts,
            bits = in(zmm_reg) bits,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    counts
}

/// The same for processors that have AVX-512 but not that: nibbles by a table in a register, then sums
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn count_ones_by_nibbles(bits: __m512i) -> __m512i {
    let nibble = _mm512_set1_epi8(0x0f);
    let counts = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    let low = _mm512_shuffle_epi8(counts, _mm512_and_si512(bits, nibble));
    let high = _mm512_shuffle_epi8(counts, _mm512_and_si512(_mm512_srli_epi32::<4>(bits), nibble));
    let pairs = _mm512_maddubs_epi16(_mm512_add_epi8(low, high), _mm512_set1_epi8(1));
    _mm512_madd_epi16(pairs, _mm512_set1_epi16(1))
}

#[cfg(test)]
mod tests {
    use warmlane_sys::simd::Level;

    use super::*;

    #[test]
    fn both_ways_to_count_ones_agree() {
        if !Level::available().contains(&Level::Avx512) {
            return;
        }
        for seed in 1..1000u32 {
            let bits: [u32; LANES] =
                std::array::from_fn(|lane| seed.wrapping_mul(0x9e37_79b9).rotate_left(2 * lane as u32));
            let mut counts = [0u32; LANES];
            // SAFETY: the processor has AVX-512; both arrays have 64 bytes.
            unsafe {
                let ones = count_ones_by_nibbles(_mm512_loadu_si512(bits.as_ptr().cast()));
                _mm512_storeu_si512(counts.as_mut_ptr().cast(), ones);
            }
            assert_eq!(counts, bits.map(u32::count_ones));
            if is_x86_feature_detected!("avx512vpopcntdq") {
                // SAFETY: as above, and it has VPOPCNTDQ.
                unsafe {
                    let ones = count_ones(_mm512_loadu_si512(bits.as_ptr().cast()));
                    _mm512_storeu_si512(counts.as_mut_ptr().cast(), ones);
                }
                assert_eq!(counts, bits.map(u32::count_ones));
            }
        }
    }
}
