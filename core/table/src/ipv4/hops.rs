//! Next hops in runs: of one byte each where all of a run fit, else of two
//!
//! Routers have few next hops and tables many runs: bytes let the next hops of the full table lie in 1 MiB rather than 2, so that more
//! of what lookups read stays in the second-level cache. The codes for no route and for a divided /24 are the largest numbers
//! of either width, so a byte becomes a next hop without a table.
//!
//! A run is of one width from when a word leads to it until no reader has that word any more, and is read and written with this
//! width only: atomics of different widths in one place at one time would be a data race.

use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

use super::DIVIDED;
use crate::NextHopId;

/// The first byte that is no next hop's number: the upper half of what it stands for is then all ones
pub(super) const CODES: u8 = DIVIDED as u8;
const _: () = assert!(widen(CODES) == DIVIDED && widen(u8::MAX) == NextHopId::NONE.stored());

/// Bytes at the start whose runs are of one next hop each, for /19s that have a single one
const SINGLE_BYTES: usize = 1 << 8;
/// After these, the same for numbers that need two bytes
const SINGLE_PAIRS: usize = 1 << 16;
/// Pairs of bytes that stand for themselves: the first runs begin after them
pub(super) const SINGLES: usize = SINGLE_BYTES / 2 + SINGLE_PAIRS;

/// The byte for a next hop's number or a code, if there is one
#[inline(always)]
pub(super) const fn narrow(hop: u16) -> Option<u8> {
    if widen(hop as u8) == hop { Some(hop as u8) } else { None }
}

/// What a byte stands for
#[inline(always)]
pub(super) const fn widen(byte: u8) -> u16 {
    if byte >= CODES { 0xff00 | byte as u16 } else { byte as u16 }
}

/// Where a next hop stands: a byte's index, with the upper bit set where there are two for each
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct HopIndex(pub(super) u32);

impl HopIndex {
    /// The bit that tells that each next hop takes two bytes
    pub(super) const WIDE: u32 = 1 << 31;

    #[inline(always)]
    pub(super) fn is_wide(self) -> bool {
        self.0 & Self::WIDE != 0
    }

    /// The index of the first byte
    #[inline(always)]
    pub(super) fn byte(self) -> usize {
        (self.0 & !Self::WIDE) as usize
    }

    /// The index of the pair of bytes that the first byte is in
    #[inline(always)]
    pub(super) fn pair(self) -> usize {
        self.byte() / 2
    }

    /// Where the hops of a run begin that starts at this pair
    pub(super) fn in_run(pair: u32, is_wide: bool) -> Self {
        Self(2 * pair + if is_wide { Self::WIDE } else { 0 })
    }

    /// `rank` next hops further on
    #[inline(always)]
    pub(super) fn after(self, rank: u32) -> Self {
        // Without a shift by a variable, which vectors of old processors don't have.
        let once_more = if self.is_wide() { rank } else { 0 };
        Self(self.0 + rank + once_more)
    }

    /// Of the one next hop of a /19
    pub(super) fn of_single(hop: u16) -> Self {
        match narrow(hop) {
            Some(byte) => Self(u32::from(byte)),
            None => Self(Self::WIDE | (SINGLE_BYTES as u32 + 2 * u32::from(hop))),
        }
    }

    /// Whether this is in a run, and not one that stands for itself
    pub(super) fn is_in_run(self) -> bool {
        self.pair() >= SINGLES
    }
}

/// One byte of the memory
///
/// # Safety
/// It must be in bounds, and for as long as a word leads there, nobody may use the pair that it is in as a whole.
#[inline(always)]
pub(super) unsafe fn byte(hops: &[AtomicU16], index: usize) -> &AtomicU8 {
    // SAFETY: in bounds and used as bytes only (caller), for which any place is aligned.
    unsafe { &*hops.as_ptr().cast::<AtomicU8>().add(index) }
}

/// The next hop at an index
///
/// # Safety
/// The index must be one that a word of this table leads to, in its run.
#[inline(always)]
pub(super) unsafe fn load(hops: &[AtomicU16], index: HopIndex) -> u16 {
    // Acquire, pairs with the release in `store`: whoever finds a hop finds what its user made it stand for. On x86 a plain load.
    if index.is_wide() {
        // SAFETY: a word's index is in bounds (caller).
        unsafe { hops.get_unchecked(index.pair()) }.load(Ordering::Acquire)
    } else {
        // SAFETY: as above, in a run of bytes.
        widen(unsafe { byte(hops, index.byte()) }.load(Ordering::Acquire))
    }
}

/// Writes a next hop, which a narrow index must have a byte for
///
/// # Safety
/// The index must be in bounds and in a run of this width, whether or not a word leads there yet.
pub(super) unsafe fn store(hops: &[AtomicU16], index: HopIndex, hop: u16) {
    // Release: a reader that finds this hop finds what its user made it stand for.
    if index.is_wide() {
        hops[index.pair()].store(hop, Ordering::Release);
    } else {
        // SAFETY: as the caller promises.
        unsafe { byte(hops, index.byte()) }.store(hop as u8, Ordering::Release);
    }
}

/// Makes the indices before the first run stand for themselves
pub(super) fn fill_singles(hops: &[AtomicU16]) {
    for hop in 0..=u16::MAX {
        // Nobody's number; so that the one who finds it in a run knows that there is a block.
        let stored = if hop == DIVIDED { NextHopId::NONE.stored() } else { hop };
        let pair = HopIndex(HopIndex::WIDE | (SINGLE_BYTES as u32 + 2 * u32::from(hop)));
        // SAFETY: these bytes are of this width for good.
        unsafe { store(hops, pair, stored) };
        if narrow(hop).is_some() {
            // SAFETY: as above.
            unsafe { store(hops, HopIndex::of_single(hop), stored) };
        }
    }
}

/// Bytes of a block's number
pub(super) const NUMBER: usize = size_of::<u32>();

/// The number of a block
///
/// # Safety
/// It must stand at this byte and after it, in a run that a word leads to.
pub(super) unsafe fn load_number(hops: &[AtomicU16], at: usize) -> u32 {
    // SAFETY: in bounds, and numbers are used as bytes (caller). Relaxed: the word that led here was loaded with acquire.
    let load = |index| unsafe { byte(hops, at + index) }.load(Ordering::Relaxed);
    u32::from_ne_bytes(std::array::from_fn(load))
}

/// Writes the number of a block
///
/// # Safety
/// There must be space for it at this byte, in a run that no reader knows of yet.
pub(super) unsafe fn store_number(hops: &[AtomicU16], at: usize, number: u32) {
    for (index, part) in number.to_ne_bytes().into_iter().enumerate() {
        // SAFETY: as the caller promises. Relaxed: the word that leads here is published with release.
        unsafe { byte(hops, at + index) }.store(part, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stand_for_small_numbers_and_codes() {
        for hop in 0..=u16::MAX {
            let expected = hop < u16::from(CODES) || hop >= DIVIDED;
            assert_eq!(narrow(hop).map(widen), expected.then_some(hop));
        }
    }

    #[test]
    fn an_index_counts_in_its_own_width() {
        assert_eq!(HopIndex::in_run(150, false).after(5).byte(), 305);
        let wide = HopIndex::in_run(150, true);
        assert_eq!((wide.after(5), wide.after(5).byte()), (HopIndex::in_run(155, true), 310));
    }

    #[test]
    fn singles_stand_for_themselves() {
        let hops: Vec<_> = (0..SINGLES).map(|_| AtomicU16::new(0)).collect();
        fill_singles(&hops);
        for hop in (0..=u16::MAX).filter(|hop| *hop != DIVIDED) {
            let index = HopIndex::of_single(hop);
            assert!(!index.is_in_run());
            // SAFETY: an index of a single.
            assert_eq!(unsafe { load(&hops, index) }, hop);
        }
        assert!(HopIndex::in_run(SINGLES as u32, false).is_in_run());
    }
}
