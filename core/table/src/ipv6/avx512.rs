//! Eight walks through fields in a vector, then each fan by one compare

use std::arch::x86_64::{
    __m512i, _mm256_cmple_epu32_mask, _mm256_loadu_si256, _mm256_set1_epi32, _mm256_storeu_si256,
    _mm512_add_epi64, _mm512_and_si512, _mm512_cvtepi64_epi32, _mm512_cvtepu32_epi64, _mm512_i64gather_epi32,
    _mm512_loadu_si512, _mm512_mask_i64gather_epi32, _mm512_mask_shldv_epi64, _mm512_mask_sllv_epi64,
    _mm512_permutex2var_epi64, _mm512_set1_epi64, _mm512_setr_epi64, _mm512_setzero_si512,
    _mm512_shldi_epi64, _mm512_shuffle_epi8, _mm512_slli_epi64, _mm512_srli_epi64, _mm512_srlv_epi64,
    _mm512_sub_epi64, _mm512_test_epi64_mask,
};

use warmlane_sys::prefetch::prefetch_read_at;

use super::{FAN_KEYS, FIELD, FIRST_LINE, LINKS, Line, NODE, ROOT_BITS, STRIDE_MASK, STRIDE_SHIFT, portable};
use crate::NextHopId;

/// Addresses in a vector
const LANES: usize = 8;
/// Vectors that go through the fields together, so that many lines are under way at once
const VECTORS: usize = 8;
const _: () = assert!(ROOT_BITS == 16 && LINKS == 16 && size_of::<Line>() == 64);

/// Up to 8 walks: the link each has come to, and the bits of its address not used yet
#[derive(Clone, Copy)]
struct Walks {
    link: __m512i,
    high: __m512i,
    low: __m512i,
}

/// # Safety
/// The processor must have what [`Kernel::Avx512`](crate::Kernel::Avx512) asks for. `lines` must be those of a table: each link
/// to a node must lead to a field or fan that lies in them as a whole.
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx512vpopcntdq,bmi1,bmi2,lzcnt,popcnt"
)]
pub(super) unsafe fn lookup_burst(lines: &[Line], addresses: &[[u8; 16]], answers: &mut [NextHopId]) {
    let count = addresses.len().min(answers.len());
    let (eights, addresses) = addresses[..count].as_chunks::<{ VECTORS * LANES }>();
    let (eight_answers, answers) = answers[..count].as_chunks_mut::<{ VECTORS * LANES }>();
    for (addresses, answers) in eights.iter().zip(eight_answers) {
        // SAFETY: as the caller promises; so it is below.
        unsafe { look_up::<VECTORS>(lines, addresses.as_chunks().0, answers.as_chunks_mut().0) };
    }
    let (fours, addresses) = addresses.as_chunks::<{ 4 * LANES }>();
    let (four_answers, answers) = answers.as_chunks_mut::<{ 4 * LANES }>();
    for (addresses, answers) in fours.iter().zip(four_answers) {
        // SAFETY: as above.
        unsafe { look_up::<4>(lines, addresses.as_chunks().0, answers.as_chunks_mut().0) };
    }
    let (ones, addresses) = addresses.as_chunks();
    let (one_answers, answers) = answers.as_chunks_mut();
    for (addresses, answers) in ones.iter().zip(one_answers) {
        // SAFETY: as above.
        unsafe { look_up::<1>(lines, std::slice::from_ref(addresses), std::slice::from_mut(answers)) };
    }
    if !addresses.is_empty() {
        let mut padded = [[0; 16]; LANES];
        let mut padded_answers = [NextHopId::NONE; LANES];
        padded[..addresses.len()].copy_from_slice(addresses);
        // SAFETY: as above.
        unsafe { look_up::<1>(lines, &[padded], std::slice::from_mut(&mut padded_answers)) };
        answers.copy_from_slice(&padded_answers[..addresses.len()]);
    }
}

/// Looks up `COUNT` times 8 addresses
///
/// # Safety
/// As for [`lookup_burst`].
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx512vpopcntdq,bmi1,bmi2,lzcnt,popcnt"
)]
#[inline]
unsafe fn look_up<const COUNT: usize>(
    lines: &[Line],
    addresses: &[[[u8; 16]; LANES]],
    answers: &mut [[NextHopId; LANES]],
) {
    let zero = _mm512_setzero_si512();
    let mut walks = [Walks { link: zero, high: zero, low: zero }; COUNT];
    for (walks, addresses) in walks.iter_mut().zip(addresses) {
        // SAFETY: as the caller promises; so it is below.
        *walks = unsafe { from_root(lines, addresses) };
    }
    // One question for all vectors in each round: a branch on each vector's own links, which come from far, keeps
    // the processor from looking ahead (Zen 4: three times the time).
    loop {
        let mut any = 0;
        for walks in &mut walks {
            // SAFETY: as above.
            any |= unsafe { through_field(lines, walks) };
        }
        if any == 0 {
            break;
        }
    }
    let mut links = [[0u32; LANES]; COUNT];
    let mut windows = [[0u32; LANES]; COUNT];
    for ((walks, links), windows) in walks.iter().zip(&mut links).zip(&mut windows) {
        let window = _mm512_cvtepi64_epi32(_mm512_srli_epi64::<32>(walks.high));
        // SAFETY: both arrays have room for 8 times 32 bits.
        unsafe {
            _mm256_storeu_si256(links.as_mut_ptr().cast(), _mm512_cvtepi64_epi32(walks.link));
            _mm256_storeu_si256(windows.as_mut_ptr().cast(), window);
        }
    }
    for &link in links.as_flattened() {
        prefetch_read_at(lines.as_ptr().wrapping_add(fan_line(link)).cast());
    }
    let mut further = 0;
    for (link, &window) in links.as_flattened_mut().iter_mut().zip(windows.as_flattened()) {
        // SAFETY: a link to a fan has a whole line in `lines` (caller); without one, it is line 0, of the root.
        let fan = unsafe { lines.get_unchecked(fan_line(*link)) };
        // SAFETY: a line has 16 times 32 bits.
        let starts = unsafe { _mm256_loadu_si256(fan.as_ptr().cast()) };
        let before = _mm256_cmple_epu32_mask(starts, _mm256_set1_epi32(window.cast_signed()));
        let before = (before & ((1 << FAN_KEYS) - 1)).count_ones() as usize;
        let next = fan[(FAN_KEYS + before) % LINKS];
        *link = if *link & NODE == 0 { *link } else { next };
        further |= *link;
    }
    for (answer, &link) in answers.as_flattened_mut().iter_mut().zip(links.as_flattened()) {
        *answer = NextHopId::from_stored(link as u16);
    }
    if further & NODE != 0 {
        beyond_fans(lines, &links, addresses, answers);
    }
}

/// The line of the fan that a link leads to, or line 0, which any lookup has in cache, for a next hop
#[inline(always)]
fn fan_line(link: u32) -> usize {
    if link & NODE == 0 { 0 } else { (link & FIRST_LINE) as usize }
}

/// Looks up the addresses whose link still leads to a node, for they have prefixes longer than a fan reaches
#[cold]
#[inline(never)]
fn beyond_fans(
    lines: &[Line],
    links: &[[u32; LANES]],
    addresses: &[[[u8; 16]; LANES]],
    answers: &mut [[NextHopId; LANES]],
) {
    let each = links.as_flattened().iter().zip(addresses.as_flattened()).zip(answers.as_flattened_mut());
    for ((link, address), answer) in each {
        if link & NODE != 0 {
            *answer = portable::lookup(lines, u128::from_be_bytes(*address));
        }
    }
}

/// The links of the root for 8 addresses
///
/// # Safety
/// As for [`lookup_burst`].
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx512vpopcntdq,bmi1,bmi2,lzcnt,popcnt"
)]
#[inline]
unsafe fn from_root(lines: &[Line], addresses: &[[u8; 16]; LANES]) -> Walks {
    let (start, end) = addresses.split_at(LANES / 2);
    // SAFETY: 4 addresses are 64 bytes each time.
    let (front, back) =
        unsafe { (_mm512_loadu_si512(start.as_ptr().cast()), _mm512_loadu_si512(end.as_ptr().cast())) };
    // In each half, the byte order of the network becomes that of the processor.
    let (even, odd) = (0x0001_0203_0405_0607, 0x0809_0a0b_0c0d_0e0f);
    let swap = _mm512_setr_epi64(even, odd, even, odd, even, odd, even, odd);
    let high = _mm512_permutex2var_epi64(front, _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), back);
    let low = _mm512_permutex2var_epi64(front, _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15), back);
    let high = _mm512_shuffle_epi8(high, swap);
    let low = _mm512_shuffle_epi8(low, swap);
    // SAFETY: an index of 16 bits lies in the root, at the start of `lines`.
    let links = unsafe {
        _mm512_i64gather_epi32::<4>(_mm512_srli_epi64::<{ 64 - ROOT_BITS }>(high), lines.as_ptr().cast())
    };
    Walks {
        link: _mm512_cvtepu32_epi64(links),
        high: _mm512_shldi_epi64::<{ ROOT_BITS.cast_signed() }>(high, low),
        low: _mm512_slli_epi64::<ROOT_BITS>(low),
    }
}

/// Follows the links that lead to fields; says which did
///
/// # Safety
/// As for [`lookup_burst`].
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx512vpopcntdq,bmi1,bmi2,lzcnt,popcnt"
)]
#[inline]
unsafe fn through_field(lines: &[Line], walks: &mut Walks) -> u8 {
    let Walks { link, high, low } = *walks;
    let field = _mm512_test_epi64_mask(link, _mm512_set1_epi64(i64::from(FIELD)));
    let stride =
        _mm512_and_si512(_mm512_srli_epi64::<STRIDE_SHIFT>(link), _mm512_set1_epi64(i64::from(STRIDE_MASK)));
    let entry = _mm512_srlv_epi64(high, _mm512_sub_epi64(_mm512_set1_epi64(64), stride));
    let first = _mm512_and_si512(link, _mm512_set1_epi64(i64::from(FIRST_LINE)));
    let index = _mm512_add_epi64(_mm512_slli_epi64::<{ LINKS.trailing_zeros() }>(first), entry);
    // SAFETY: in the lanes of `field`, the link leads to a field of 2^stride links in `lines` (caller), and `entry` has `stride`
    // bits; other lanes are not read.
    let links = unsafe {
        _mm512_mask_i64gather_epi32::<4>(_mm512_cvtepi64_epi32(link), field, index, lines.as_ptr().cast())
    };
    walks.link = _mm512_cvtepu32_epi64(links);
    walks.high = _mm512_mask_shldv_epi64(high, field, low, stride);
    walks.low = _mm512_mask_sllv_epi64(low, field, low, stride);
    field
}
