//! Sixteen lookups in a vector
//!
//! Loads come in two ways, of which [`simd::gathers_pay`] chooses one. Processors of AMD load one by one: instructions
//! that gather take Zen 4 some five steps for each element, which fill the window in which it looks for further loads, so with
//! them a lookup took a tenth longer. Those of Intel gather: a vector load of what was stored piece by piece waits until
//! all of these stores are done, so that bursts can't overlap.

use std::arch::asm;
use std::arch::x86_64::{
    __m512i, _mm_setr_epi8, _mm512_add_epi8, _mm512_add_epi32, _mm512_and_si512, _mm512_andnot_si512,
    _mm512_broadcast_i32x4, _mm512_castsi512_si256, _mm512_cmpeq_epi32_mask, _mm512_cmpge_epu32_mask,
    _mm512_extracti64x4_epi64, _mm512_loadu_si512, _mm512_madd_epi16, _mm512_maddubs_epi16,
    _mm512_mask_blend_epi32, _mm512_mask_or_epi32, _mm512_movepi32_mask, _mm512_permutex2var_epi32,
    _mm512_set1_epi8, _mm512_set1_epi16, _mm512_set1_epi32, _mm512_setr_epi32, _mm512_setzero_si512,
    _mm512_shuffle_epi8, _mm512_slli_epi32, _mm512_sllv_epi32, _mm512_srli_epi32, _mm512_srlv_epi32,
    _mm512_storeu_si512,
};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use warmlane_sys::simd;

use super::hops::{self, CODES};
use super::{DIVIDED, ROOT_BITS, ROOT_WORDS, UNITS, portable};
use crate::NextHopId;

/// Addresses in a vector
const LANES: usize = 16;
/// As a mask of the unit number
const LAST_UNIT: i32 = 31;
const _: () = assert!(LAST_UNIT as usize + 1 == UNITS);

/// What lookups read
#[derive(Clone, Copy)]
struct Table<'a> {
    words: &'a [AtomicU64],
    /// What the words begin with
    root: &'a [AtomicU64; ROOT_WORDS],
    hops: &'a [AtomicU16],
}

/// For vector loads and stores that stay inside a cache line
#[repr(align(64))]
struct Aligned<T>(T);

/// # Safety
/// The processor must have what [`Level::Avx512`](warmlane_sys::simd::Level::Avx512) stands for. `words` and `hops` must be those of a
/// table, so that its words lead to runs in `hops`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn lookup_burst(
    words: &[AtomicU64],
    hops: &[AtomicU16],
    addresses: &[u32],
    answers: &mut [NextHopId],
) {
    let Some(root) = words.first_chunk() else { return };
    let table = Table { words, root, hops };
    let counts = is_x86_feature_detected!("avx512vpopcntdq");
    // SAFETY: as the caller promises, and the processor has the one instruction more where it is used.
    unsafe {
        match (simd::gathers_pay(), counts) {
            (true, true) => look_up_all::<true, true>(table, addresses, answers),
            (true, false) => look_up_all::<true, false>(table, addresses, answers),
            (false, true) => look_up_all::<false, true>(table, addresses, answers),
            (false, false) => look_up_all::<false, false>(table, addresses, answers),
        }
    }
}

/// # Safety
/// As for [`lookup_burst`]. With `COUNTS`, the processor must have VPOPCNTDQ.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
unsafe fn look_up_all<const GATHERS: bool, const COUNTS: bool>(
    table: Table<'_>,
    addresses: &[u32],
    answers: &mut [NextHopId],
) {
    let count = addresses.len().min(answers.len());
    let (fours, addresses) = addresses[..count].as_chunks::<{ 4 * LANES }>();
    let (four_answers, answers) = answers[..count].as_chunks_mut::<{ 4 * LANES }>();
    for (addresses, answers) in fours.iter().zip(four_answers) {
        let (addresses, answers) = (addresses.as_chunks().0, answers.as_chunks_mut().0);
        // SAFETY: as the caller promises; so it is below.
        unsafe { look_up::<4, GATHERS, COUNTS>(table, addresses, answers) };
    }
    let (ones, addresses) = addresses.as_chunks();
    let (one_answers, answers) = answers.as_chunks_mut();
    // SAFETY: as above.
    unsafe {
        match ones.len() {
            3 => look_up::<3, GATHERS, COUNTS>(table, ones, one_answers),
            2 => look_up::<2, GATHERS, COUNTS>(table, ones, one_answers),
            1 => look_up::<1, GATHERS, COUNTS>(table, ones, one_answers),
            _ => {}
        }
    }
    if !addresses.is_empty() {
        // Whole vectors only: masked stores cost more than this copy does.
        let mut padded = [0; LANES];
        let mut padded_answers = [NextHopId::NONE; LANES];
        padded[..addresses.len()].copy_from_slice(addresses);
        let one_answer = std::slice::from_mut(&mut padded_answers);
        // SAFETY: as above.
        unsafe { look_up::<1, GATHERS, COUNTS>(table, &[padded], one_answer) };
        answers.copy_from_slice(&padded_answers[..addresses.len()]);
    }
}

/// Looks up `VECTORS` times 16 addresses: all words, then all hops, so that many lines are under way at once
///
/// # Safety
/// As for [`look_up_all`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
unsafe fn look_up<const VECTORS: usize, const GATHERS: bool, const COUNTS: bool>(
    table: Table<'_>,
    addresses: &[[u32; LANES]],
    answers: &mut [[NextHopId; LANES]],
) {
    let (addresses, answers) = (&addresses[..VECTORS], &mut answers[..VECTORS]);
    let mut indices = [_mm512_setzero_si512(); VECTORS];
    if GATHERS {
        for (indices, addresses) in indices.iter_mut().zip(addresses) {
            // SAFETY: 16 addresses of 32 bits; the processor has what `COUNTS` says (caller).
            *indices = unsafe {
                let address = _mm512_loadu_si512(addresses.as_ptr().cast());
                indices_of::<COUNTS>(gather_words(table.root, address), address)
            };
        }
    } else {
        // SAFETY: as above.
        unsafe { indices_one_by_one::<VECTORS, COUNTS>(table.root, addresses, &mut indices) };
    }
    // Of each vector, the lanes whose next hops take two bytes
    let mut wide = [0; VECTORS];
    for (wide, indices) in wide.iter_mut().zip(indices) {
        *wide = _mm512_movepi32_mask(indices);
    }
    let mut divided = [0; VECTORS];
    // Loads one by one are of bytes. Where nobody has more than 254 next hops they are all there is.
    if GATHERS || wide.iter().fold(0, |any, wide| any | wide) != 0 {
        for (((divided, indices), wide), answers) in
            divided.iter_mut().zip(indices).zip(wide).zip(answers.iter_mut())
        {
            // SAFETY: indices that words give (caller).
            let hops = unsafe { gather_hops(table.hops, indices, wide) };
            *divided = store(hops, wide, answers);
        }
    } else {
        bytes_one_by_one(table.hops, &indices, answers);
        for (divided, answers) in divided.iter_mut().zip(answers.iter_mut()) {
            // SAFETY: 16 answers of 32 bits; NextHopId is transparent over u32.
            *divided = store(unsafe { _mm512_loadu_si512(answers.as_ptr().cast()) }, 0, answers);
        }
    }
    // One question for all vectors, after all loads: a branch that waits for each vector's own kept the
    // processor from looking ahead and doubled the time (Zen 4).
    if divided.iter().fold(0, |any, &lanes| any | lanes) != 0 {
        for ((&lanes, addresses), answers) in divided.iter().zip(addresses).zip(answers) {
            // SAFETY: as the caller promises.
            unsafe { answer_divided(table, lanes, addresses, answers) };
        }
    }
}

/// Looks up the addresses in `lanes`, which lie in /24s with longer routes
///
/// # Safety
/// `table` must be one.
#[cold]
#[inline(never)]
unsafe fn answer_divided(
    table: Table<'_>,
    mut lanes: u16,
    addresses: &[u32; LANES],
    answers: &mut [NextHopId; LANES],
) {
    while lanes != 0 {
        let lane = lanes.trailing_zeros() as usize % LANES;
        // SAFETY: as the caller promises.
        answers[lane] = unsafe { portable::lookup(table.words, table.hops, addresses[lane]) };
        lanes &= lanes - 1;
    }
}

/// Where the next hops of 16 addresses stand, as [`HopIndex`](super::hops::HopIndex)s, whose root words these are
///
/// # Safety
/// With `COUNTS` the processor must have VPOPCNTDQ.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
unsafe fn indices_of<const COUNTS: bool>([first, second]: [__m512i; 2], address: __m512i) -> __m512i {
    let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    let bitmap = _mm512_permutex2var_epi32(first, even, second);
    let base = _mm512_permutex2var_epi32(first, odd, second);
    // The bits up to the unit's, at the upper end: shifted by 31 less the unit, of which there are 32.
    let above = _mm512_andnot_si512(_mm512_srli_epi32::<8>(address), _mm512_set1_epi32(LAST_UNIT));
    let bits = _mm512_sllv_epi32(bitmap, above);
    // SAFETY: with `COUNTS` the processor has the instruction (caller).
    let rank = if COUNTS { unsafe { count_ones(bits) } } else { count_ones_by_nibbles(bits) };
    // Twice where the upper bit says so
    let wide = _mm512_srli_epi32::<31>(base);
    _mm512_add_epi32(base, _mm512_sllv_epi32(rank, wide))
}

/// The same, for all addresses of a burst by plain loads
///
/// # Safety
/// As for [`indices_of`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
unsafe fn indices_one_by_one<const VECTORS: usize, const COUNTS: bool>(
    root: &[AtomicU64; ROOT_WORDS],
    addresses: &[[u32; LANES]],
    indices: &mut [__m512i; VECTORS],
) {
    // Not filled with zeros first: stores wait in a queue of 64 until all loads before them are done (Zen 4).
    let mut found = Aligned([const { MaybeUninit::<[u64; LANES]>::uninit() }; VECTORS]);
    // Volatile, here and below: else the compiler puts vectors together in registers and takes them apart there, which needs more
    // steps than the way through the first-level cache. And one loop over all, which stays a loop: written out, the same
    // loads took half as long again (Zen 4).
    let first = found.0.as_mut_ptr().cast::<u64>();
    for (index, address) in addresses[..VECTORS].as_flattened().iter().enumerate() {
        let word = portable::load(portable::root_word(root, *address));
        // SAFETY: there is a word of the array for each address.
        unsafe { first.add(index).write_volatile(word) };
    }
    for ((indices, found), addresses) in indices.iter_mut().zip(&found.0).zip(addresses) {
        // SAFETY: all words were written above: twice 8 of 64 bits; 16 addresses of 32 bits. As the caller promises.
        *indices = unsafe {
            let words: *const __m512i = found.as_ptr().cast();
            let words = [_mm512_loadu_si512(words), _mm512_loadu_si512(words.add(1))];
            indices_of::<COUNTS>(words, _mm512_loadu_si512(addresses.as_ptr().cast()))
        };
    }
}

/// The bytes at indices, none of which is wide, by plain loads
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
#[inline]
fn bytes_one_by_one(hops: &[AtomicU16], indices: &[__m512i], answers: &mut [[NextHopId; LANES]]) {
    // A burst has as many at most.
    let mut stored = Aligned([const { MaybeUninit::<[u32; LANES]>::uninit() }; 4]);
    for (stored, indices) in stored.0.iter_mut().zip(indices) {
        // SAFETY: 16 indices of 32 bits.
        unsafe { _mm512_storeu_si512(stored.as_mut_ptr().cast(), *indices) };
    }
    let first = stored.0.as_ptr().cast::<u32>();
    for (index, answer) in answers.as_flattened_mut().iter_mut().enumerate() {
        // SAFETY: there is an index for each answer, written above.
        let found = unsafe { first.add(index).read_volatile() } as usize;
        // SAFETY: an index that a word gives is the index of a byte (caller). Acquire as in `hops::load`.
        let byte = unsafe { hops::byte(hops, found) }.load(Ordering::Acquire);
        // SAFETY: the answer is borrowed.
        unsafe { ptr::from_mut(answer).write_volatile(NextHopId::from_stored(byte.into())) };
    }
}

/// Writes the answers that these next hops are, those in `wide` lanes of two bytes and the others of one; returns the lanes in
/// which a /24 is divided
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn store(hops: __m512i, wide: u16, answers: &mut [NextHopId; LANES]) -> u16 {
    // As `hops::widen` does: codes become those of two bytes.
    let codes = !wide & _mm512_cmpge_epu32_mask(hops, _mm512_set1_epi32(i32::from(CODES)));
    let hops = _mm512_mask_or_epi32(hops, codes, hops, _mm512_set1_epi32(0xff00));
    // SAFETY: 16 answers of 32 bits; NextHopId is transparent over u32.
    unsafe { _mm512_storeu_si512(answers.as_mut_ptr().cast(), hops) };
    _mm512_cmpeq_epi32_mask(hops, _mm512_set1_epi32(i32::from(DIVIDED)))
}

/// The root words of 16 addresses
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
fn gather_words(root: &[AtomicU64; ROOT_WORDS], address: __m512i) -> [__m512i; 2] {
    let index = _mm512_srli_epi32::<{ 32 - ROOT_BITS }>(address);
    let (first, second);
    // SAFETY: as many bits as remain of an address index a root. Changes the registers named. Written in assembly because
    // the owner may change words meanwhile, which for a load of the language would be a data race; for the processor each
    // aligned element is one load, in order with what comes before and after (Intel SDM volume 3, sections 9.1.1 and
    // 9.2.2, and volume 2, VPGATHERDQ; AMD APM volume 2, sections 7.1.1 and 7.3.2).
    unsafe {
        asm!(
            "kxnorb {all}, {all}, {all}",
            "kxnorb {too}, {too}, {too}",
            "vpgatherdq {first}{{{all}}}, [{root} + {low} * 8]",
            "vpgatherdq {second}{{{too}}}, [{root} + {high} * 8]",
            all = out(kreg) _,
            too = out(kreg) _,
            first = inout(zmm_reg) _mm512_setzero_si512() => first,
            second = inout(zmm_reg) _mm512_setzero_si512() => second,
            low = in(ymm_reg) _mm512_castsi512_si256(index),
            high = in(ymm_reg) _mm512_extracti64x4_epi64::<1>(index),
            root = in(reg) root.as_ptr(),
            options(nostack, preserves_flags, readonly),
        );
    }
    [first, second]
}

/// What 16 indices hold: the two bytes of those in `wide` lanes and the one byte of the others
///
/// # Safety
/// They must be indices that words of the table lead to.
#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
#[inline]
unsafe fn gather_hops(hops: &[AtomicU16], indices: __m512i, wide: u16) -> __m512i {
    // Aligned words of four bytes, which never cross a line, by their index: the upper bit is no part of it.
    let index = _mm512_srli_epi32::<3>(_mm512_slli_epi32::<1>(indices));
    let words;
    // SAFETY: reads words in which there is a byte of the memory (caller), which starts and ends at pages. As in `gather_words`.
    unsafe {
        asm!(
            "kxnorw {all}, {all}, {all}",
            "vpgatherdd {words}{{{all}}}, [{hops} + {index} * 4]",
            all = out(kreg) _,
            words = inout(zmm_reg) _mm512_setzero_si512() => words,
            index = in(zmm_reg) index,
            hops = in(reg) hops.as_ptr(),
            options(nostack, preserves_flags, readonly),
        );
    }
    let above = _mm512_slli_epi32::<3>(_mm512_and_si512(indices, _mm512_set1_epi32(3)));
    let mask = _mm512_mask_blend_epi32(wide, _mm512_set1_epi32(0xff), _mm512_set1_epi32(0xffff));
    _mm512_and_si512(_mm512_srlv_epi32(words, above), mask)
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
    use crate::{Ipv4Prefix, Ipv4Table};

    /// As many routes as have runs of all kinds, with next hops below a bound
    fn table(hops: u32) -> Ipv4Table {
        let mut number = 1u32;
        let mut random = |below: u32| {
            number = number.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
            ((u64::from(number) * u64::from(below)) >> 32) as u32
        };
        let routes = (0..20_000).map(|_| {
            let length = [8, 16, 18, 20, 22, 23, 24, 24, 24, 24, 25, 28, 32][random(13) as usize];
            let prefix = Ipv4Prefix::containing(random(1 << 24) << 2, length);
            (prefix, NextHopId::new(random(hops)).unwrap())
        });
        Ipv4Table::from_routes(routes).unwrap()
    }

    #[test]
    fn both_ways_to_load_agree_whatever_the_widths() {
        if !Level::available().contains(&Level::Avx512) {
            return;
        }
        // Of one byte each, of both widths side by side, and nearly all of two.
        for table in [254, 260, 40_000].map(table) {
            let (words, hops) = (table.words.memory(), table.hops.memory());
            let whole = Table { words, root: words.first_chunk().unwrap(), hops };
            let addresses: Vec<u32> =
                (0..1 << 16).map(|number: u32| number.wrapping_mul(0x0001_0f35)).collect();
            let expected: Vec<_> = addresses.iter().map(|address| table.lookup(*address)).collect();
            let longest =
                |address: &u32| table.longest_match(*address).map_or(NextHopId::NONE, |(_, hop)| hop);
            assert!(addresses.iter().map(longest).eq(expected.iter().copied()));
            for size in [1, 15, 16, 33, 64, 100, 1000] {
                for (addresses, expected) in addresses.chunks(size).zip(expected.chunks(size)) {
                    let mut answers = vec![NextHopId::new(60_000).unwrap(); addresses.len()];
                    let mut check = |look_up: unsafe fn(Table<'_>, &[u32], &mut [NextHopId])| {
                        // SAFETY: the processor has AVX-512, and VPOPCNTDQ where that is asked for.
                        unsafe { look_up(whole, addresses, &mut answers) };
                        assert_eq!(answers, expected, "{addresses:x?}");
                        answers.fill(NextHopId::new(60_000).unwrap());
                    };
                    check(look_up_all::<false, false>);
                    check(look_up_all::<true, false>);
                    if is_x86_feature_detected!("avx512vpopcntdq") {
                        check(look_up_all::<false, true>);
                        check(look_up_all::<true, true>);
                    }
                }
            }
        }
    }

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
