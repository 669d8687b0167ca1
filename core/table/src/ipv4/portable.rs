//! Lookups in plain Rust

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use super::hops::{self, HopIndex, NUMBER};
use super::{DIVIDED, HOST_WORDS, ROOT_BITS, ROOT_WORDS};
use crate::NextHopId;

/// Addresses in a step
const TOGETHER: usize = 16;

/// Acquire, pairs with the release when a word is published: what it leads to is there as well. On x86 a plain load.
#[inline(always)]
pub(super) fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Acquire)
}

/// Where the run of a word starts
#[inline(always)]
pub(super) fn base(word: u64) -> HopIndex {
    HopIndex((word >> 32) as u32)
}

#[inline(always)]
const fn upper_half(word: u64) -> u64 {
    word >> 32 << 32
}

/// The bits of a word's bitmap up to that of a unit, moved to the upper end
#[inline(always)]
fn up_to(word: u64, unit: u32) -> u32 {
    // Shifts go by the lowest five bits, so this one leaves `unit` + 1 bits.
    (word as u32).wrapping_shl(!unit)
}

/// The index of the next hop of a unit
#[inline(always)]
pub(super) fn hop_index(word: u64, unit: u32) -> HopIndex {
    base(word).after(up_to(word, unit).count_ones())
}

#[inline(always)]
pub(super) fn root_word(root: &[AtomicU64; ROOT_WORDS], address: u32) -> &AtomicU64 {
    &root[(address >> (32 - ROOT_BITS)) as usize]
}

/// The block of the /24 for which the run of `word` has [`DIVIDED`] at `hop_index`
///
/// # Safety
/// The word must be one of a table, and `hops` that table's.
pub(super) unsafe fn block(hops: &[AtomicU16], word: u64, hop_index: HopIndex) -> u32 {
    let count = (word as u32).count_ones() + 1;
    let ranks = (0..count).map(|rank| base(word).after(rank)).take_while(|earlier| *earlier != hop_index);
    // SAFETY: the word's own indices (caller).
    let earlier = ranks.filter(|earlier| unsafe { hops::load(hops, *earlier) } == DIVIDED).count();
    // SAFETY: there are as many numbers after the hops as of these are DIVIDED.
    unsafe { hops::load_number(hops, base(word).after(count).byte() + earlier * NUMBER) }
}

/// The next hop of an address in a /24 with longer routes
///
/// # Safety
/// As for [`block`].
#[cold]
unsafe fn hop_in_block(words: &[AtomicU64], hops: &[AtomicU16], word: u64, address: u32) -> NextHopId {
    // SAFETY: as the caller promises.
    let block = unsafe { block(hops, word, hop_index(word, address >> 8)) } as usize;
    let Some(word) = words.get(block + (address >> 5) as usize % HOST_WORDS) else { return NextHopId::NONE };
    // SAFETY: as above.
    NextHopId::from_stored(unsafe { hops::load(hops, hop_index(load(word), address)) })
}

/// # Safety
/// `words` and `hops` must be those of a table, so that its words lead to runs in `hops`.
#[inline(always)]
pub(super) unsafe fn lookup(words: &[AtomicU64], hops: &[AtomicU16], address: u32) -> NextHopId {
    // A table always has its root.
    let Some(root) = words.first_chunk() else { return NextHopId::NONE };
    let word = load(root_word(root, address));
    // SAFETY: the index that a word gives (caller).
    match unsafe { hops::load(hops, hop_index(word, address >> 8)) } {
        // SAFETY: as the caller promises.
        DIVIDED => unsafe { hop_in_block(words, hops, word, address) },
        hop => NextHopId::from_stored(hop),
    }
}

/// `SHIFTS`: vector instructions can shift each element by its own count.
///
/// # Safety
/// As for [`lookup`].
#[inline(always)]
pub(super) unsafe fn lookup_burst<const SHIFTS: bool>(
    words: &[AtomicU64],
    hops: &[AtomicU16],
    addresses: &[u32],
    answers: &mut [NextHopId],
) {
    let Some(root) = words.first_chunk() else { return };
    let count = addresses.len().min(answers.len());
    let (bursts, addresses) = addresses[..count].as_chunks::<{ 4 * TOGETHER }>();
    let (burst_answers, answers) = answers[..count].as_chunks_mut();
    for (addresses, answers) in bursts.iter().zip(burst_answers) {
        // SAFETY: as the caller promises; so it is below.
        unsafe { look_up::<SHIFTS, _>(words, root, hops, addresses, answers) };
    }
    let (parts, addresses) = addresses.as_chunks::<TOGETHER>();
    let (part_answers, answers) = answers.as_chunks_mut();
    for (addresses, answers) in parts.iter().zip(part_answers) {
        // SAFETY: as above.
        unsafe { look_up::<SHIFTS, _>(words, root, hops, addresses, answers) };
    }
    for (&address, answer) in addresses.iter().zip(answers) {
        // SAFETY: as above.
        *answer = unsafe { lookup(words, hops, address) };
    }
}

/// Loads all words, and only then the next hops: the processor waits for many lines at once
///
/// These loops do little but load, so that as many loads as possible are under way at once. Prefetches would take the same slots. Unrolled
/// loops with prefetches, which computed each place as its word came, took 12.4 cycles a lookup instead of 7.2 (AVX2, Zen 4).
///
/// # Safety
/// As for [`lookup`]; `root` must be what `words` begin with.
#[inline(always)]
unsafe fn look_up<const SHIFTS: bool, const COUNT: usize>(
    words: &[AtomicU64],
    root: &[AtomicU64; ROOT_WORDS],
    hops: &[AtomicU16],
    addresses: &[u32; COUNT],
    answers: &mut [NextHopId; COUNT],
) {
    let mut found = [const { MaybeUninit::<u64>::uninit() }; COUNT];
    for (found, &address) in found.iter_mut().zip(addresses) {
        let word = load(root_word(root, address));
        let word = if SHIFTS { word } else { upper_half(word) | u64::from(up_to(word, address >> 8)) };
        // Volatile, here and below, so that the compiler neither unrolls the loop nor builds vectors in registers.
        // SAFETY: the place is borrowed.
        unsafe { found.as_mut_ptr().write_volatile(word) };
    }
    // By itself, so that compilers make vector instructions of it.
    let (mut indices, mut widths) = ([0; COUNT], 0);
    for ((index, found), &address) in indices.iter_mut().zip(found).zip(addresses) {
        // SAFETY: every word was written.
        let word = unsafe { found.assume_init() };
        let bits = if SHIFTS { up_to(word, address >> 8) } else { word as u32 };
        widths |= base(word).0;
        *index = base(word).after(bits.count_ones()).0;
    }
    if HopIndex(widths).is_wide() {
        for (answer, index) in answers.iter_mut().zip(indices) {
            // SAFETY: an index that a word gives (caller).
            *answer = NextHopId::from_stored(unsafe { hops::load(hops, HopIndex(index)) });
        }
    } else {
        for (answer, index) in answers.iter_mut().zip(&indices) {
            // SAFETY: as above, and no index is wide. Acquire as in `hops::load`. The index and the answer are borrowed.
            unsafe {
                let index = ptr::from_ref(index).read_volatile();
                let byte = hops::byte(hops, index as usize).load(Ordering::Acquire);
                ptr::from_mut(answer).write_volatile(NextHopId::from_stored(byte.into()));
            }
        }
        for answer in &mut *answers {
            *answer = NextHopId::from_stored(hops::widen(answer.stored() as u8));
        }
    }
    // Without a branch for each, so that compilers make vector instructions of this as well.
    if answers.iter().fold(false, |any, answer| any | (answer.stored() == DIVIDED)) {
        for (answer, &address) in answers.iter_mut().zip(addresses) {
            if answer.stored() == DIVIDED {
                // SAFETY: as the caller promises.
                *answer = unsafe { lookup(words, hops, address) };
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
    unsafe { lookup_burst::<true>(words, hops, addresses, answers) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ipv4Prefix, Ipv4Table};

    /// Whichever way bits come to be counted, also where next hops take two bytes.
    #[test]
    fn bursts_find_what_single_lookups_find() {
        for hops in [200, 40_000] {
            let routes = (0..4_000_u32).map(|number| {
                let address = number.wrapping_mul(0x9e37_79b9);
                let prefix =
                    Ipv4Prefix::containing(address, [12, 19, 22, 24, 24, 26, 32][number as usize % 7]);
                (prefix, NextHopId::new(number % hops).unwrap())
            });
            let table = Ipv4Table::from_routes(routes).unwrap();
            let (words, runs) = (table.words.memory(), table.hops.memory());
            let addresses: Vec<u32> = (0..20_000_u32)
                .map(|number| number.wrapping_mul(0x9e37_79b9) >> 1 << 1 | number & 1)
                .collect();
            for size in [1, 15, 16, 17, 64, 100] {
                for addresses in addresses.chunks(size) {
                    let expected: Vec<_> = addresses.iter().map(|address| table.lookup(*address)).collect();
                    let mut answers = [[NextHopId::NONE; 100]; 2];
                    // SAFETY: both are those of a table.
                    unsafe {
                        lookup_burst::<false>(words, runs, addresses, &mut answers[0]);
                        lookup_burst::<true>(words, runs, addresses, &mut answers[1]);
                    }
                    for answers in answers {
                        assert_eq!(answers[..addresses.len()], expected, "{addresses:x?}");
                    }
                }
            }
        }
    }
}
