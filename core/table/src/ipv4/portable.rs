//! Lookups in plain Rust

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use warmlane_sys::prefetch::prefetch_read_at;

use super::{DIVIDED, HOST_WORDS, ROOT_BITS, ROOT_WORDS};
use crate::NextHopId;

/// Addresses that are under way together
const TOGETHER: usize = 64;

/// Acquire, pairs with the release when a word is published: what it leads to is there as well. On x86 a plain load.
#[inline(always)]
pub(super) fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Acquire)
}

/// Acquire, pairs with the release when a hop is written in place: whoever finds it finds what its user made it stand for. On
/// x86 a plain load.
#[inline(always)]
pub(super) fn hop(stored: &AtomicU16) -> u16 {
    stored.load(Ordering::Acquire)
}

/// Where the run of a word starts
#[inline(always)]
fn base(word: u64) -> u32 {
    (word >> 32) as u32
}

/// The bits of a word's bitmap up to that of a unit, moved to the upper end
#[inline(always)]
fn up_to(word: u64, unit: u32) -> u32 {
    // Shifts go by the lowest five bits, so this one leaves `unit` + 1 bits.
    (word as u32).wrapping_shl(!unit)
}

/// The place of the next hop of a unit
#[inline(always)]
pub(super) fn place(word: u64, unit: u32) -> usize {
    (base(word) + up_to(word, unit).count_ones()) as usize
}

#[inline(always)]
pub(super) fn root_word(root: &[AtomicU64; ROOT_WORDS], address: u32) -> &AtomicU64 {
    &root[(address >> (32 - ROOT_BITS)) as usize]
}

#[inline(always)]
fn hop_at(hops: &[AtomicU16], place: usize) -> u16 {
    hops.get(place).map_or(NextHopId::NONE.stored(), hop)
}

/// The block of the /24 for which the run of `word` has [`DIVIDED`] at `place`
pub(super) fn block(hops: &[AtomicU16], word: u64, place: usize) -> u32 {
    let first = base(word) as usize;
    let count = (word as u32).count_ones() as usize + 1;
    let earlier = (first..place).filter(|earlier| hop_at(hops, *earlier) == DIVIDED).count();
    let at = first + count + 2 * earlier;
    u32::from(hop_at(hops, at)) | u32::from(hop_at(hops, at + 1)) << 16
}

/// The next hop of an address in a /24 with longer routes
#[cold]
fn hop_in_block(words: &[AtomicU64], hops: &[AtomicU16], word: u64, address: u32) -> NextHopId {
    let block = block(hops, word, place(word, address >> 8)) as usize;
    let word = words.get(block + (address >> 5) as usize % HOST_WORDS).map_or(0, load);
    NextHopId::from_stored(hop_at(hops, place(word, address)))
}

#[inline(always)]
pub(super) fn lookup(words: &[AtomicU64], hops: &[AtomicU16], address: u32) -> NextHopId {
    // A table always has its root.
    let Some(root) = words.first_chunk() else { return NextHopId::NONE };
    let word = load(root_word(root, address));
    match hop_at(hops, place(word, address >> 8)) {
        DIVIDED => hop_in_block(words, hops, word, address),
        hop => NextHopId::from_stored(hop),
    }
}

/// Loads all words, then asks for all hops, and only then for the answers: the processor waits for many lines at once
///
/// # Safety
/// `words` and `hops` must be those of a table: each base plus its bitmap's population is the index of one of `hops`.
#[inline(always)]
pub(super) unsafe fn lookup_burst(
    words: &[AtomicU64],
    hops: &[AtomicU16],
    addresses: &[u32],
    answers: &mut [NextHopId],
) {
    let Some(root) = words.first_chunk() else { return };
    for (addresses, answers) in addresses.chunks(TOGETHER).zip(answers.chunks_mut(TOGETHER)) {
        let (mut places, mut bits) = ([0u32; TOGETHER], [0u32; TOGETHER]);
        for ((place, bits), &address) in places.iter_mut().zip(&mut bits).zip(addresses) {
            let word = load(root_word(root, address));
            (*place, *bits) = (base(word), up_to(word, address >> 8));
        }
        // By itself, so that compilers make vector instructions of it.
        for (place, bits) in places.iter_mut().zip(&bits) {
            *place += bits.count_ones();
        }
        for &place in &places[..addresses.len()] {
            prefetch_read_at(hops.as_ptr().wrapping_add(place as usize).cast());
        }
        for (answer, &place) in answers.iter_mut().zip(&places[..addresses.len()]) {
            // SAFETY: a place that a word gives is the index of a hop (caller).
            *answer = NextHopId::from_stored(hop(unsafe { hops.get_unchecked(place as usize) }));
        }
        // Without a branch for each, so that compilers make vector instructions of this as well.
        if answers.iter().fold(false, |any, answer| any | (answer.stored() == DIVIDED)) {
            for (answer, &address) in answers.iter_mut().zip(addresses) {
                if answer.stored() == DIVIDED {
                    *answer = lookup(words, hops, address);
                }
            }
        }
    }
}

/// The same, compiled for processors that count bits in one instruction
///
/// # Safety
/// As for [`lookup_burst`]; the processor must have what [`Level::Avx2`](warmlane_sys::simd::Level::Avx2) stands for.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn lookup_burst_x86_v3(
    words: &[AtomicU64],
    hops: &[AtomicU16],
    addresses: &[u32],
    answers: &mut [NextHopId],
) {
    // SAFETY: as the caller promises.
    unsafe { lookup_burst(words, hops, addresses, answers) };
}
