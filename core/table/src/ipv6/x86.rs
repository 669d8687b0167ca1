//! The walk with the vector instructions of x86

use std::arch::asm;
use std::arch::x86_64::{
    __m256i, __m512i, _mm_setr_epi8, _mm_storeu_si128, _mm256_castsi256_ps, _mm256_cmpeq_epi16,
    _mm256_cmpeq_epi32, _mm256_loadu_si256, _mm256_max_epu16, _mm256_max_epu32, _mm256_movemask_epi8,
    _mm256_movemask_ps, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_srli_epi32, _mm512_add_epi32,
    _mm512_and_si512, _mm512_broadcast_i32x4, _mm512_castsi512_si256, _mm512_cmpeq_epi32_mask,
    _mm512_cmplt_epu16_mask, _mm512_cmplt_epu32_mask, _mm512_cvtepi32_epi8, _mm512_inserti64x4,
    _mm512_loadu_si512, _mm512_mask_add_epi32, _mm512_or_si512, _mm512_permutex2var_epi32, _mm512_set1_epi16,
    _mm512_set1_epi32, _mm512_setr_epi32, _mm512_shuffle_epi8, _mm512_slli_epi32, _mm512_sllv_epi32,
    _mm512_srli_epi32, _mm512_srlv_epi32, _mm512_storeu_si512, _mm512_sub_epi32,
};

use warmlane_sys::prefetch::prefetch_read;
use warmlane_sys::simd;

use super::node::{FAN_LINKS, LEAF_HOPS, LINKS, Line, Link, Node, ROOT_BITS};
use super::walk::{self, Burst, Search, TOGETHER};
use crate::NextHopId;

/// Addresses in a vector
const LANES: usize = 16;

/// # Safety
/// As for [`walk::lookup`]; the processor must have what [`Level::Avx2`](warmlane_sys::simd::Level::Avx2) stands for.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn lookup_burst_avx2(lines: &[Line], addresses: &[[u8; 16]], answers: &mut [NextHopId]) {
    // SAFETY: as the caller promises.
    unsafe { walk::lookup_burst::<Avx2>(lines, addresses, answers) };
}

/// # Safety
/// As for [`walk::lookup`]; the processor must have what [`Level::Avx512`](warmlane_sys::simd::Level::Avx512) stands for.
pub(super) unsafe fn lookup_burst_avx512(lines: &[Line], addresses: &[[u8; 16]], answers: &mut [NextHopId]) {
    // SAFETY: as the caller promises.
    unsafe {
        if simd::gathers_pay() {
            lookup_burst_by::<true>(lines, addresses, answers);
        } else {
            lookup_burst_by::<false>(lines, addresses, answers);
        }
    }
}

/// # Safety
/// As for [`lookup_burst_avx512`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn lookup_burst_by<const GATHERS: bool>(
    lines: &[Line],
    addresses: &[[u8; 16]],
    answers: &mut [NextHopId],
) {
    // SAFETY: as the caller promises.
    unsafe { walk::lookup_burst::<Avx512<GATHERS>>(lines, addresses, answers) };
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

/// A whole node in a vector, and with `GATHERS` the first steps of 16 addresses; only the functions above use it
struct Avx512<const GATHERS: bool>;

impl<const GATHERS: bool> Avx512<GATHERS> {
    #[inline(always)]
    fn below(node: &Node, key: u16) -> u32 {
        // SAFETY: a node has 64 bytes, and who uses this has AVX-512 F and BW.
        unsafe {
            let lasts = _mm512_loadu_si512(std::ptr::from_ref(node).cast::<__m512i>());
            _mm512_cmplt_epu16_mask(lasts, _mm512_set1_epi16(key.cast_signed()))
        }
    }
}

impl<const GATHERS: bool> Search for Avx512<GATHERS> {
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

    #[inline(always)]
    unsafe fn enter(lines: &[Line], addresses: &[[u8; 16]], burst: &mut Burst) {
        let mut done = 0;
        if GATHERS {
            let vectors = addresses.as_chunks().0;
            if let Some(all) = vectors.first_chunk::<{ TOGETHER / LANES }>() {
                // SAFETY: as the caller promises; whoever uses this has AVX-512.
                unsafe { enter_vectors(lines, all, burst, 0) };
                done = TOGETHER;
            } else {
                for vector in vectors {
                    // SAFETY: as before.
                    unsafe { enter_vectors(lines, std::array::from_ref(vector), burst, done) };
                    done += LANES;
                }
            }
        }
        // SAFETY: as the caller promises.
        unsafe { walk::enter(lines, addresses, burst, done) };
    }
}

/// As [`walk::enter`] for `VECTORS` times 16 indices from `first` on, which `burst` must have, and one field further. Each step is
/// taken by all before the next, so that no step waits for lines that could have been asked for earlier.
///
/// # Safety
/// As for [`walk::lookup`].
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
unsafe fn enter_vectors<const VECTORS: usize>(
    lines: &[Line],
    addresses: &[[[u8; 16]; LANES]; VECTORS],
    burst: &mut Burst,
    first: usize,
) {
    for address in addresses.as_flattened().iter().step_by(4) {
        prefetch_read(address);
    }
    // The first 64 bits of each address, of which a root and two fields leave 16 at least
    let halves = addresses.each_ref().map(|addresses| first_half(addresses));
    let set1 = |value: u32| _mm512_set1_epi32(value.cast_signed());
    let mut used = [set1(ROOT_BITS); VECTORS];
    let mut link = halves.map(|(head, _)| {
        let root = _mm512_srli_epi32::<ROOT_BITS>(head);
        // SAFETY: the root is complete (caller).
        unsafe { gather(lines, root, root, u16::MAX) }
    });
    for _ in 0..2 {
        for ((link, used), (head, tail)) in link.iter_mut().zip(&mut used).zip(halves) {
            let fields =
                _mm512_cmpeq_epi32_mask(_mm512_srli_epi32::<{ Link::KIND_SHIFT }>(*link), set1(Link::FIELD));
            let stride =
                _mm512_and_si512(_mm512_srli_epi32::<{ Link::STRIDE_SHIFT }>(*link), set1(Link::STRIDE_MASK));
            let line = _mm512_and_si512(*link, set1(Link::LINE_MASK));
            let index =
                _mm512_srlv_epi32(bits_after(*used, head, tail), _mm512_sub_epi32(set1(u32::BITS), stride));
            let slot = _mm512_add_epi32(_mm512_slli_epi32::<{ LINKS.ilog2() }>(line), index);
            // SAFETY: fields have a link for each value of `stride` bits (caller).
            *link = unsafe { gather(lines, slot, *link, fields) };
            *used = _mm512_mask_add_epi32(*used, fields, *used, stride);
        }
    }
    for (index, ((link, used), (head, tail))) in link.into_iter().zip(used).zip(halves).enumerate() {
        let indices = first + index * LANES..first + (index + 1) * LANES;
        // SAFETY: 16 indices of 32 and of 8 bits.
        unsafe {
            _mm512_storeu_si512(burst.found[indices.clone()].as_mut_ptr().cast(), link);
            _mm512_storeu_si512(
                burst.next[indices.clone()].as_mut_ptr().cast(),
                bits_after(used, head, tail),
            );
            _mm_storeu_si128(burst.used[indices].as_mut_ptr().cast(), _mm512_cvtepi32_epi8(used));
        }
    }
}

/// The first 32 bits of 16 addresses, and the second
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn first_half(addresses: &[[u8; 16]; LANES]) -> (__m512i, __m512i) {
    // SAFETY: 16 addresses are four vectors.
    let quarters = unsafe {
        let quarter: *const __m512i = addresses.as_ptr().cast();
        [
            _mm512_loadu_si512(quarter),
            _mm512_loadu_si512(quarter.add(1)),
            _mm512_loadu_si512(quarter.add(2)),
            _mm512_loadu_si512(quarter.add(3)),
        ]
    };
    (nth_word::<0>(quarters), nth_word::<1>(quarters))
}

/// The `N`th 32 bits of 16 addresses, four in each vector
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn nth_word<const N: i32>([a, b, c, d]: [__m512i; 4]) -> __m512i {
    let nth =
        _mm512_setr_epi32(N, 4 + N, 8 + N, 12 + N, 16 + N, 20 + N, 24 + N, 28 + N, 0, 0, 0, 0, 0, 0, 0, 0);
    let (low, high) = (_mm512_permutex2var_epi32(a, nth, b), _mm512_permutex2var_epi32(c, nth, d));
    let network = _mm512_inserti64x4::<1>(low, _mm512_castsi512_si256(high));
    let reversed =
        _mm512_broadcast_i32x4(_mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
    _mm512_shuffle_epi8(network, reversed)
}

/// The 32 bits after those `used` of the 64 in `head` and `tail`, with zeros after the last
#[target_feature(enable = "avx512f")]
#[inline]
fn bits_after(used: __m512i, head: __m512i, tail: __m512i) -> __m512i {
    // A shift by more bits than there are, as one by a negative number is, leaves none.
    let word = _mm512_set1_epi32(u32::BITS.cast_signed());
    let of_head = _mm512_sllv_epi32(head, used);
    let before = _mm512_srlv_epi32(tail, _mm512_sub_epi32(word, used));
    let after = _mm512_sllv_epi32(tail, _mm512_sub_epi32(used, word));
    _mm512_or_si512(_mm512_or_si512(of_head, before), after)
}

/// The links at `slots` in the lanes of `mask`, in others those in `links`
///
/// # Safety
/// In these lanes there must be so many links in `lines`.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn gather(lines: &[Line], slots: __m512i, mut links: __m512i, mask: u16) -> __m512i {
    // SAFETY: in bounds (caller). Changes the registers named. Written in assembly because the owner may change links meanwhile,
    // which for a load of the language would be a data race; for the processor each aligned element is one load, in order
    // with what comes before and after (Intel SDM volume 3, sections 9.1.1 and 9.2.2, and volume 2, VPGATHERDD; AMD APM
    // volume 2, sections 7.1.1 and 7.3.2).
    unsafe {
        asm!(
            "vpgatherdd {links}{{{mask}}}, [{lines} + {slots} * 4]",
            mask = inout(kreg) mask => _,
            links = inout(zmm_reg) links,
            slots = in(zmm_reg) slots,
            lines = in(reg) lines.as_ptr(),
            options(nostack, preserves_flags, readonly),
        );
    }
    links
}

#[cfg(test)]
mod tests {
    use warmlane_sys::simd::Level;

    use super::*;
    use crate::{Ipv6Prefix, Ipv6Table};

    #[test]
    fn both_ways_to_load_agree() {
        if !Level::available().contains(&Level::Avx512) {
            return;
        }
        let mut number = 1u64;
        let mut random = |below: u64| {
            number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            ((u128::from(number) * u128::from(below)) >> 64) as u64
        };
        // Dense below 2001:db8::/32 and sparse elsewhere, with lengths that need all kinds of nodes, fields in fields among them.
        let mut address = || {
            let start = [0x2001_0db8, 0x2001_0db8, 0x2a00_0000 | random(64)][random(3) as usize];
            let site = u128::from(start) << 96 | u128::from(random(1 << 12)) << 84;
            site | u128::from(random(16)) << 64 | u128::from(random(4)) << 32 | u128::from(random(4))
        };
        let lengths = [16, 29, 32, 40, 44, 48, 48, 48, 52, 64, 64, 96, 112, 127, 128];
        let routes: Vec<_> = (0..40_000u32)
            .map(|route| {
                let length = lengths[route as usize % lengths.len()];
                (Ipv6Prefix::containing(address(), length), NextHopId::new(route).unwrap())
            })
            .collect();
        let table = Ipv6Table::from_routes(routes).unwrap();
        let addresses: Vec<_> = (0..1 << 15).map(|_| address()).collect();
        let longest = |address: &u128| table.longest_match(*address).map_or(NextHopId::NONE, |(_, hop)| hop);
        let expected: Vec<_> = addresses.iter().map(longest).collect();
        let addresses: Vec<_> = addresses.into_iter().map(u128::to_be_bytes).collect();
        for size in [1, 15, 16, 33, 64, 100, 1000] {
            for (addresses, expected) in addresses.chunks(size).zip(expected.chunks(size)) {
                let check = |look_up: unsafe fn(&[Line], &[[u8; 16]], &mut [NextHopId])| {
                    let mut answers = vec![NextHopId::new(60_000).unwrap(); addresses.len()];
                    // SAFETY: the processor has AVX-512, and the lines are those of a table.
                    unsafe { look_up(table.lines.memory(), addresses, &mut answers) };
                    assert_eq!(answers, expected, "{addresses:x?}");
                };
                check(lookup_burst_by::<false>);
                check(lookup_burst_by::<true>);
            }
        }
    }
}
