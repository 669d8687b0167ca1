//! The walk with the vector instructions of x86

use std::arch::x86_64::{
    __m256i, __m512i, _mm256_castsi256_ps, _mm256_cmpeq_epi16, _mm256_cmpeq_epi32, _mm256_loadu_si256,
    _mm256_max_epu16, _mm256_max_epu32, _mm256_movemask_epi8, _mm256_movemask_ps, _mm256_set1_epi16,
    _mm256_set1_epi32, _mm256_srli_epi32, _mm512_cmpeq_epi32_mask, _mm512_cmplt_epu16_mask,
    _mm512_cmplt_epu32_mask, _mm512_loadu_si512, _mm512_set1_epi16, _mm512_set1_epi32, _mm512_srli_epi32,
};

use super::node::{FAN_LINKS, LEAF_HOPS, Line, Link, Node};
use super::walk::{self, Search, TOGETHER};
use crate::NextHopId;

/// # Safety
/// As for [`walk::lookup`]; the processor must have what [`Level::Avx2`](warmlane_sys::simd::Level::Avx2) stands for.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn lookup_burst_avx2(lines: &[Line], addresses: &[[u8; 16]], answers: &mut [NextHopId]) {
    // SAFETY: as the caller promises.
    unsafe { walk::lookup_burst::<Avx2>(lines, addresses, answers) };
}

/// # Safety
/// As for [`walk::lookup`]; the processor must have what [`Level::Avx512`](warmlane_sys::simd::Level::Avx512) stands for.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn lookup_burst_avx512(lines: &[Line], addresses: &[[u8; 16]], answers: &mut [NextHopId]) {
    // SAFETY: as the caller promises.
    unsafe { walk::lookup_burst::<Avx512>(lines, addresses, answers) };
}

/// Half a node in a vector; only the functions above use it
struct Avx2;

impl Avx2 {
    /// How many of the 16 values of half a node are at least `key`
    #[inline(always)]
    fn not_below(node: &Node, half: usize, key: u16) -> usize {
        // SAFETY: a half has 32 bytes, and who uses this has AVX2.
        unsafe {
            let lasts = _mm256_loadu_si256(std::ptr::from_ref(node).cast::<__m256i>().add(half));
            let greater = _mm256_max_epu16(lasts, _mm256_set1_epi16(key.cast_signed()));
            _mm256_movemask_epi8(_mm256_cmpeq_epi16(greater, lasts)).count_ones() as usize / 2
        }
    }
}

impl Search for Avx2 {
    #[inline(always)]
    fn leaf(node: &Node, key: u16) -> usize {
        LEAF_HOPS - Self::not_below(node, 0, key)
    }

    #[inline(always)]
    fn branch(node: &Node, key: u16) -> usize {
        2 * LEAF_HOPS - Self::not_below(node, 0, key) - Self::not_below(node, 1, key)
    }

    #[inline(always)]
    fn fan(node: &Node, key: u32) -> usize {
        // SAFETY: a node has more than 32 bytes, and who uses this has AVX2.
        let not_below = unsafe {
            let lasts = _mm256_loadu_si256(std::ptr::from_ref(node).cast::<__m256i>());
            let greater = _mm256_max_epu32(lasts, _mm256_set1_epi32(key.cast_signed()));
            _mm256_movemask_epi8(_mm256_cmpeq_epi32(greater, lasts)).count_ones() as usize / 4
        };
        FAN_LINKS - not_below
    }

    #[inline(always)]
    fn of_kind(links: &[u32; TOGETHER], kind: u32) -> u64 {
        links.as_chunks::<8>().0.iter().enumerate().fold(0, |all, (index, links)| {
            // SAFETY: 8 links have 32 bytes, and who uses this has AVX2.
            let equal = unsafe {
                let kinds = _mm256_srli_epi32::<{ Link::KIND_SHIFT.cast_signed() }>(_mm256_loadu_si256(
                    links.as_ptr().cast(),
                ));
                let equal = _mm256_cmpeq_epi32(kinds, _mm256_set1_epi32(kind.cast_signed()));
                _mm256_movemask_ps(_mm256_castsi256_ps(equal))
            };
            all | u64::from(equal.cast_unsigned()) << (8 * index)
        })
    }
}

/// A whole node in a vector; only the functions above use it
struct Avx512;

impl Avx512 {
    #[inline(always)]
    fn below(node: &Node, key: u16) -> u32 {
        // SAFETY: a node has 64 bytes, and who uses this has AVX-512 F and BW.
        unsafe {
            let lasts = _mm512_loadu_si512(std::ptr::from_ref(node).cast::<__m512i>());
            _mm512_cmplt_epu16_mask(lasts, _mm512_set1_epi16(key.cast_signed()))
        }
    }
}

impl Search for Avx512 {
    #[inline(always)]
    fn leaf(node: &Node, key: u16) -> usize {
        (Self::below(node, key) as u16).count_ones() as usize
    }

    #[inline(always)]
    fn branch(node: &Node, key: u16) -> usize {
        Self::below(node, key).count_ones() as usize
    }

    #[inline(always)]
    fn fan(node: &Node, key: u32) -> usize {
        // SAFETY: as in `below`.
        let below = unsafe {
            let lasts = _mm512_loadu_si512(std::ptr::from_ref(node).cast::<__m512i>());
            _mm512_cmplt_epu32_mask(lasts, _mm512_set1_epi32(key.cast_signed()))
        };
        (below as u8).count_ones() as usize
    }

    #[inline(always)]
    fn of_kind(links: &[u32; TOGETHER], kind: u32) -> u64 {
        links.as_chunks::<16>().0.iter().enumerate().fold(0, |all, (index, links)| {
            // SAFETY: 16 links have 64 bytes, and who uses this has AVX-512 F.
            let equal = unsafe {
                let kinds =
                    _mm512_srli_epi32::<{ Link::KIND_SHIFT }>(_mm512_loadu_si512(links.as_ptr().cast()));
                _mm512_cmpeq_epi32_mask(kinds, _mm512_set1_epi32(kind.cast_signed()))
            };
            all | u64::from(equal) << (16 * index)
        })
    }
}
