//! Lookups in plain Rust

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use warmlane_sys::prefetch::prefetch_read;

use super::{CONTINUES, HOST_WORDS, ROOT_BITS, ROOT_WORDS, UNITS};
use crate::NextHopId;

/// Addresses that are under way together
const TOGETHER: usize = 64;

/// Acquire, pairs with the release when a word is published: what it leads to is there as well. On x86 a plain load.
#[inline(always)]
fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Acquire)
}

/// The place of the next hop in a word whose units are `unit` bits wide
#[inline(always)]
fn place(word: u64, unit: u32) -> usize {
    // Units up to and including this one. A word that continues never comes here, so bit 0 of its bitmap is 0.
    let up_to = (2u64 << unit) - 1;
    (word >> 32) as usize + (word as u32 & up_to as u32).count_ones() as usize
}

/// Where the next hop of an address stands whose root word continues
#[cold]
fn place_of_long(words: &[AtomicU64], root: u64, address: u32) -> usize {
    let at = |base: u64, index: u32, size: usize| {
        words.get((base >> 32) as usize + index as usize % size).map(load).unwrap_or_default()
    };
    let word = at(root, address >> 8, UNITS);
    if word & CONTINUES == 0 {
        return place(word, 0);
    }
    place(at(word, address >> 5, HOST_WORDS), address % UNITS as u32)
}

#[inline(always)]
fn root_word(root: &[AtomicU64; ROOT_WORDS], address: u32) -> &AtomicU64 {
    &root[(address >> (32 - ROOT_BITS)) as usize]
}

#[inline(always)]
fn place_of(words: &[AtomicU64], root: &[AtomicU64; ROOT_WORDS], address: u32) -> usize {
    let word = load(root_word(root, address));
    if word & CONTINUES == 0 {
        place(word, (address >> 8) % UNITS as u32)
    } else {
        place_of_long(words, word, address)
    }
}

#[inline(always)]
fn hop_at(hops: &[AtomicU16], place: usize) -> NextHopId {
    // Relaxed: the word that leads here was loaded with acquire.
    hops.get(place).map_or(NextHopId::NONE, |hop| NextHopId::from_stored(hop.load(Ordering::Relaxed)))
}

#[inline(always)]
pub(super) fn lookup(words: &[AtomicU64], hops: &[AtomicU16], address: u32) -> NextHopId {
    // A table always has its root.
    let Some(root) = words.first_chunk() else { return NextHopId::NONE };
    hop_at(hops, place_of(words, root, address))
}

/// Asks for all words, then for all hops, and only then for the answers: the processor waits for many lines at once
#[inline(always)]
pub(super) fn lookup_burst(
    words: &[AtomicU64],
    hops: &[AtomicU16],
    addresses: &[u32],
    answers: &mut [NextHopId],
) {
    let Some(root) = words.first_chunk() else { return };
    for (addresses, answers) in addresses.chunks(TOGETHER).zip(answers.chunks_mut(TOGETHER)) {
        for &address in addresses {
            prefetch_read(root_word(root, address));
        }
        let mut places = [0usize; TOGETHER];
        for (place, &address) in places.iter_mut().zip(addresses) {
            *place = place_of(words, root, address);
            if let Some(hop) = hops.get(*place) {
                prefetch_read(hop);
            }
        }
        for (answer, &place) in answers.iter_mut().zip(&places) {
            *answer = hop_at(hops, place);
        }
    }
}

/// The same, compiled for processors that count bits in one instruction
///
/// # Safety
/// The processor must have what [`Level::Avx2`](warmlane_sys::simd::Level::Avx2) stands for.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn lookup_burst_x86_v3(
    words: &[AtomicU64],
    hops: &[AtomicU16],
    addresses: &[u32],
    answers: &mut [NextHopId],
) {
    lookup_burst(words, hops, addresses, answers);
}
