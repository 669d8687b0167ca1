//! Lookups in plain Rust

use super::{CONTINUES, HOST_WORDS, ROOT_BITS, ROOT_WORDS, UNITS};
use crate::NextHopId;

/// The place of the next hop in a word whose units are `unit` bits wide
#[inline(always)]
fn place(word: u64, unit: u32) -> usize {
    // Units up to and including this one. A word that continues never comes here, so bit 0 of its bitmap is 0.
    let up_to = (2u64 << unit) - 1;
    (word >> 32) as usize + (word as u32 & up_to as u32).count_ones() as usize
}

/// Where the next hop of an address stands whose root word continues
#[cold]
fn place_of_long(words: &[u64], root: u64, address: u32) -> usize {
    let at = |base: u64, index: u32, size: usize| {
        words.get((base >> 32) as usize + index as usize % size).copied().unwrap_or_default()
    };
    let word = at(root, address >> 8, UNITS);
    if word & CONTINUES == 0 {
        return place(word, 0);
    }
    place(at(word, address >> 5, HOST_WORDS), address % UNITS as u32)
}

#[inline(always)]
fn place_of(words: &[u64], root: &[u64; ROOT_WORDS], address: u32) -> usize {
    let word = root[(address >> (32 - ROOT_BITS)) as usize];
    if word & CONTINUES == 0 {
        place(word, (address >> 8) % UNITS as u32)
    } else {
        place_of_long(words, word, address)
    }
}

#[inline(always)]
fn hop_at(hops: &[u16], place: usize) -> NextHopId {
    hops.get(place).map_or(NextHopId::NONE, |&hop| NextHopId::from_stored(hop))
}

#[inline(always)]
pub(super) fn lookup(words: &[u64], hops: &[u16], address: u32) -> NextHopId {
    // A table always has its root.
    let Some(root) = words.first_chunk() else { return NextHopId::NONE };
    hop_at(hops, place_of(words, root, address))
}

/// All words first, then all hops: the processor waits for many lines at once
#[inline(always)]
pub(super) fn lookup_burst(words: &[u64], hops: &[u16], addresses: &[u32], answers: &mut [NextHopId]) {
    let Some(root) = words.first_chunk() else { return };
    for (addresses, answers) in addresses.chunks(64).zip(answers.chunks_mut(64)) {
        let mut places = [0usize; 64];
        for (place, &address) in places.iter_mut().zip(addresses) {
            *place = place_of(words, root, address);
        }
        for (answer, &place) in answers.iter_mut().zip(&places) {
            *answer = hop_at(hops, place);
        }
    }
}

/// The same, compiled for processors that count bits in one instruction
///
/// # Safety
/// The processor must have what [`Kernel::X86V3`](crate::Kernel::X86V3) asks for.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn lookup_burst_x86_v3(
    words: &[u64],
    hops: &[u16],
    addresses: &[u32],
    answers: &mut [NextHopId],
) {
    lookup_burst(words, hops, addresses, answers);
}
