//! Eight walks through fields in a vector, then each fan by one compare

use std::arch::x86_64::{
    __m512i, _mm256_cmple_epu32_mask, _mm256_loadu_si256, _mm256_set1_epi32, _mm256_storeu_si256,
    _mm512_add_epi64, _mm512_and_si512, _mm512_cvtepi64_epi32, _mm512_cvtepu32_epi64, _mm512_i64gather_epi32,
    _mm512_mask_i64gather_epi32, _mm512_mask_shldv_epi64, _mm512_mask_sllv_epi64, _mm512_maskz_loadu_epi64,
    _mm512_permutex2var_epi64, _mm512_set1_epi64, _mm512_setr_epi64, _mm512_shldi_epi64, _mm512_shuffle_epi8,
    _mm512_slli_epi64, _mm512_srli_epi64, _mm512_srlv_epi64, _mm512_sub_epi64, _mm512_test_epi64_mask,
};

use warmlane_sys::prefetch::prefetch_read_at;

use super::{FAN_KEYS, FIELD, FIRST_LINE, LINKS, Line, NODE, ROOT_BITS, STRIDE_MASK, STRIDE_SHIFT, portable};
use crate::NextHopId;

/// Addresses in a vector
const LANES: usize = 8;
/// Addresses whose fans are on their way before the first is searched
const BATCH: usize = 64;
const _: () = assert!(ROOT_BITS == 16 && LINKS == 16 && size_of::<Line>() == 64);

/// # Safety
/// The processor must have what [`Kernel::Avx512`](crate::Kernel::Avx512) asks for. `lines` must be those of a table: each link
/// to a node must lead to a field or fan that lies in them as a whole.
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx512vpopcntdq,bmi1,bmi2,lzcnt,popcnt"
)]
pub(super) unsafe fn lookup_burst(lines: &[Line], addresses: &[[u8; 16]], answers: &mut [NextHopId]) {
    let count = addresses.len().min(answers.len());
    let (addresses, answers) = (&addresses[..count], &mut answers[..count]);
    for (addresses, answers) in addresses.chunks(BATCH).zip(answers.chunks_mut(BATCH)) {
        let mut links = [0u32; BATCH];
        let mut windows = [0u32; BATCH];
        let lanes = links.as_chunks_mut::<LANES>().0.iter_mut().zip(windows.as_chunks_mut::<LANES>().0);
        for ((links, windows), addresses) in lanes.zip(addresses.chunks(LANES)) {
            // SAFETY: as the caller promises.
            unsafe { through_fields(lines, addresses, links, windows) };
            for &link in &*links {
                prefetch_read_at(lines.as_ptr().wrapping_add(fan_line(link)).cast());
            }
        }
        for (((answer, address), &link), &window) in
            answers.iter_mut().zip(addresses).zip(&links).zip(&windows)
        {
            let line = fan_line(link);
            // SAFETY: a link to a fan has a whole line in `lines` (caller); without one, it is line 0, of the root.
            let fan = unsafe { lines.get_unchecked(line) };
            // SAFETY: a line has 16 times 32 bits.
            let starts = unsafe { _mm256_loadu_si256(fan.as_ptr().cast()) };
            let before = _mm256_cmple_epu32_mask(starts, _mm256_set1_epi32(window.cast_signed()));
            let before = (before & ((1 << FAN_KEYS) - 1)).count_ones() as usize;
            let next = fan[(FAN_KEYS + before) % LINKS];
            let found = if link & NODE == 0 { link } else { next };
            *answer = if found & NODE == 0 {
                NextHopId::from_stored(found as u16)
            } else {
                beyond_a_fan(lines, address)
            };
        }
    }
}

/// The line of the fan that a link leads to, or line 0, which any lookup has in cache, for a next hop
#[inline(always)]
fn fan_line(link: u32) -> usize {
    if link & NODE == 0 { 0 } else { (link & FIRST_LINE) as usize }
}

/// For prefixes that are longer than a fan reaches
#[cold]
fn beyond_a_fan(lines: &[Line], address: &[u8; 16]) -> NextHopId {
    portable::lookup(lines, u128::from_be_bytes(*address))
}

/// Follows up to 8 addresses through fields to the first link that is none, and tells the 32 bits that come then;
/// lanes without an address follow address 0
///
/// # Safety
/// As for [`lookup_burst`].
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi2,avx512vpopcntdq,bmi1,bmi2,lzcnt,popcnt"
)]
#[inline]
unsafe fn through_fields(
    lines: &[Line],
    addresses: &[[u8; 16]],
    links: &mut [u32; LANES],
    windows: &mut [u32; LANES],
) {
    let base = lines.as_ptr().cast::<i32>();
    let halves = u16::MAX.checked_shr(16 - 2 * addresses.len() as u32).unwrap_or(0);
    // SAFETY: `halves` selects the two 64-bit halves of each address and nothing after them.
    let (front, back) = unsafe {
        (
            _mm512_maskz_loadu_epi64(halves as u8, addresses.as_ptr().cast()),
            _mm512_maskz_loadu_epi64((halves >> 8) as u8, addresses.as_ptr().wrapping_add(LANES / 2).cast()),
        )
    };
    // In each half, the byte order of the network becomes that of the processor.
    let (even, odd) = (0x0001_0203_0405_0607, 0x0809_0a0b_0c0d_0e0f);
    let swap = _mm512_setr_epi64(even, odd, even, odd, even, odd, even, odd);
    let high = _mm512_permutex2var_epi64(front, _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), back);
    let low = _mm512_permutex2var_epi64(front, _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15), back);
    let mut high = _mm512_shuffle_epi8(high, swap);
    let mut low = _mm512_shuffle_epi8(low, swap);

    // SAFETY: an index of 16 bits lies in the root, at the start of `lines`.
    let mut link =
        widen(unsafe { _mm512_i64gather_epi32::<4>(_mm512_srli_epi64::<{ 64 - ROOT_BITS }>(high), base) });
    high = _mm512_shldi_epi64::<{ ROOT_BITS.cast_signed() }>(high, low);
    low = _mm512_slli_epi64::<ROOT_BITS>(low);
    loop {
        let field = _mm512_test_epi64_mask(link, _mm512_set1_epi64(i64::from(FIELD)));
        if field == 0 {
            break;
        }
        let stride = _mm512_and_si512(
            _mm512_srli_epi64::<STRIDE_SHIFT>(link),
            _mm512_set1_epi64(i64::from(STRIDE_MASK)),
        );
        let entry = _mm512_srlv_epi64(high, _mm512_sub_epi64(_mm512_set1_epi64(64), stride));
        let first = _mm512_and_si512(link, _mm512_set1_epi64(i64::from(FIRST_LINE)));
        let index = _mm512_add_epi64(_mm512_slli_epi64::<{ LINKS.trailing_zeros() }>(first), entry);
        // SAFETY: in the lanes of `field`, the link leads to a field of 2^stride links in `lines` (caller), and `entry` has
        // `stride` bits; other lanes are not read.
        link = widen(unsafe {
            _mm512_mask_i64gather_epi32::<4>(_mm512_cvtepi64_epi32(link), field, index, base)
        });
        high = _mm512_mask_shldv_epi64(high, field, low, stride);
        low = _mm512_mask_sllv_epi64(low, field, low, stride);
    }
    // SAFETY: both arrays have room for 8 times 32 bits.
    unsafe {
        _mm256_storeu_si256(links.as_mut_ptr().cast(), _mm512_cvtepi64_epi32(link));
        let window = _mm512_cvtepi64_epi32(_mm512_srli_epi64::<32>(high));
        _mm256_storeu_si256(windows.as_mut_ptr().cast(), window);
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn widen(links: std::arch::x86_64::__m256i) -> __m512i {
    _mm512_cvtepu32_epi64(links)
}
