//! A bucket: what a lookup reads at once, and the protocol between its one writer and its readers
//!
//! A header word says which slots are taken; everything else in a bucket means something only in a slot that is. The
//! writer fills a slot while it is free and then takes it with one store of the header, and it frees one with one store
//! too, so a bucket is at no time half changed, and a writer that is stopped in between keeps no reader waiting. A
//! reader that saw a slot taken could still read words of its next owner; so each store of the header changes its
//! version, and the reader takes only what it read under one version. Two edges order it:
//!
//! - **publish**: the header's store (release, R1) after the words of a slot, with the reader's first load of it
//!   (acquire, A1). Without it a reader could see a slot taken and not yet its words.
//! - **reuse**: a fence (release, R2) between the header's store that freed a slot and the words of its next
//!   owner, with the reader's fence (acquire, A2) between the words it read and its second load of the header.
//!   Without it a reader could see the next owner's words and not yet that the slot was freed. (Boehm: "Can seqlocks
//!   get along with programming language memory models?", MSPC 2012, which has the same two fences.)

use std::hint::select_unpredictable;

use super::NO_VALUE;
use super::kernel::{Kernel, holds};
use super::key::KeyWords;
use super::primitive::{AtomicU32, AtomicU64, Ordering, fence};

/// A bucket's header: which slots are taken, how many entries had to go elsewhere, and a version
///
/// ```text
/// bit 31        9 8  5 4   0
///     | version | away | taken |
/// ```
///
/// The version has 23 bits. It comes round after 8 million changes of one bucket, seconds of work for a writer
/// that does nothing else. A reader would take a false answer only if it was stopped that long inside one lookup, and
/// the changes meanwhile were a multiple of that number, and left another entry where it was reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header(u32);

/// Space for a bit for each slot
const TAKEN_BITS: u32 = 5;
const AWAY_BITS: u32 = 4;
/// A count that has come this far stays, since what it missed isn't known. No table but a tiny one gets there.
const MOST_AWAY: u32 = (1 << AWAY_BITS) - 1;
const VERSION: u32 = 1 << (TAKEN_BITS + AWAY_BITS);

impl Header {
    /// Which slots are taken, by [`Layout::SLOT_STEP`]
    #[inline(always)]
    pub(super) fn taken(self) -> u32 {
        self.0 & ((1 << TAKEN_BITS) - 1)
    }

    /// How many entries whose home this is stand elsewhere; 15 may mean more or fewer
    #[inline(always)]
    pub(super) fn away(self) -> u32 {
        self.away_bits() >> TAKEN_BITS
    }

    /// The same, not shifted
    #[inline(always)]
    fn away_bits(self) -> u32 {
        self.0 & MOST_AWAY << TAKEN_BITS
    }

    pub(super) fn has<B: Layout>(self, slot: usize) -> bool {
        self.0 >> (slot * B::SLOT_STEP) & 1 == 1
    }

    /// With a slot that was free
    #[inline(always)]
    pub(super) fn with<B: Layout>(self, slot: usize) -> Self {
        debug_assert!(!self.has::<B>(slot));
        // A sum rather than an or: with that of the version it is one.
        Self(self.0 + (1 << (slot * B::SLOT_STEP)))
    }

    pub(super) fn without<B: Layout>(self, slot: usize) -> Self {
        Self(self.0 & !(1 << (slot * B::SLOT_STEP)))
    }

    #[inline(always)]
    pub(super) fn free_slot<B: Layout>(self) -> Option<usize> {
        let free = !self.0 & B::EVERY_SLOT;
        (free != 0).then_some(free.trailing_zeros() as usize / B::SLOT_STEP)
    }

    #[inline(always)]
    pub(super) fn one_more_away(self) -> Self {
        Self(self.0 + (u32::from(self.away() != MOST_AWAY) << TAKEN_BITS))
    }

    pub(super) fn one_less_away(self) -> Self {
        // Zero isn't met: each entry away was counted.
        if matches!(self.away(), 0 | MOST_AWAY) { self } else { Self(self.0 - (1 << TAKEN_BITS)) }
    }

    /// No slot taken and none away
    pub(super) fn emptied(self) -> Self {
        Self(self.0 & !(VERSION - 1))
    }

    fn next_version(self) -> Self {
        Self(self.0.wrapping_add(VERSION))
    }
}

/// What a reader found in a bucket. Made of numbers rather than choices, so that a burst can go on without branches.
#[derive(Clone, Copy)]
pub struct Probe {
    /// The key's value, or [`NO_VALUE`] if it isn't there
    pub(super) value: u32,
    /// The key's slot, or any if it isn't there
    pub(super) slot: usize,
    /// The header under which all of this was read
    pub(super) header: Header,
    /// Not zero if the bucket changed meanwhile; then the rest means nothing
    changed: u32,
}

impl Probe {
    #[inline(always)]
    pub(super) fn found(&self) -> bool {
        self.value != NO_VALUE
    }

    #[inline(always)]
    pub(super) fn is_stable(&self) -> bool {
        self.changed == 0
    }

    /// After looking at a key's home: whether it may yet be elsewhere, or must be looked for again
    #[inline(always)]
    pub(super) fn leaves_open(&self) -> bool {
        let away = select_unpredictable(self.found(), 0, self.header.away_bits());
        away | self.changed != 0
    }
}

/// A bucket of `SLOTS` entries with keys of `WORDS` words. Buckets of more than one cache line have `TAG_WORDS` words with
/// eight bits of each key's hash in their first line, so that a lookup touches only the line of the key that is likely the one.
#[repr(C, align(64))]
pub struct Bucket<const WORDS: usize, const SLOTS: usize, const TAG_WORDS: usize> {
    header: AtomicU32,
    tags: [AtomicU32; TAG_WORDS],
    values: [AtomicU32; SLOTS],
    keys: [[AtomicU64; WORDS]; SLOTS],
}

/// A bucket, whatever the length of its keys
///
/// # Safety
/// All bits zero must be a valid bucket without entries, its size a multiple of 64 bytes, and its alignment 64.
pub unsafe trait Layout: Send + Sync + 'static {
    /// A key
    type Words: KeyWords<Bucket = Self>;
    /// Entries that it holds
    const SLOTS: usize;
    /// How many bits of the header are between those of two slots. Those of keys of two words are two apart, as in the
    /// result of a vector comparison.
    const SLOT_STEP: usize;
    /// The bits of all slots, by `SLOT_STEP`
    const EVERY_SLOT: u32;
    /// Whether it has more than one cache line, and so tags
    const TAGGED: bool;

    #[cfg(loom)]
    fn empty() -> Self;

    /// The header. Only the writer may conclude from it alone.
    fn header(&self) -> Header;

    /// Zero if this is still the header, after all that was read before
    fn changed_since(&self, header: Header) -> u32;

    /// Looks for a key whose hash has this tag
    fn probe(&self, kernel: impl Kernel, key: &Self::Words, tag: u8) -> Probe;

    /// For the writer, who knows which slots are `taken`: whether none of these has this key
    fn lacks(&self, kernel: impl Kernel, key: &Self::Words, tag: u8, taken: u32) -> bool;

    /// Asks for the line of the key that likely is the one, once the first line is there
    fn prefetch_key(&self, kernel: impl Kernel, tag: u8);

    /// For the writer: the key and value in a taken slot
    fn entry(&self, slot: usize) -> (Self::Words, u32);

    /// For the writer: fills a free slot, which stays free
    fn fill(&self, slot: usize, key: &Self::Words, tag: u8, value: u32);

    /// For the writer: gives the entry in a taken slot another value
    fn set_value(&self, slot: usize, value: u32);

    /// For the writer: makes what was filled or freed visible, all at once
    fn publish(&self, header: Header);
}

// SAFETY: atomic integers of zero bits are zeros, which is a header without taken slots; the compiler pads the size to the
// alignment, which is stated.
unsafe impl<const WORDS: usize, const SLOTS: usize, const TAG_WORDS: usize> Layout
    for Bucket<WORDS, SLOTS, TAG_WORDS>
where
    [u64; WORDS]: KeyWords<Bucket = Self>,
{
    type Words = [u64; WORDS];
    const SLOTS: usize = SLOTS;
    const SLOT_STEP: usize = if TAG_WORDS == 0 { WORDS } else { 1 };
    const EVERY_SLOT: u32 = {
        let (mut slots, mut slot) = (0, 0);
        while slot < SLOTS {
            slots |= 1 << (slot * Self::SLOT_STEP);
            slot += 1;
        }
        slots
    };
    const TAGGED: bool = TAG_WORDS > 0;

    #[cfg(loom)]
    fn empty() -> Self {
        Self {
            header: AtomicU32::new(0),
            tags: std::array::from_fn(|_| AtomicU32::new(0)),
            values: std::array::from_fn(|_| AtomicU32::new(0)),
            keys: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
        }
    }

    #[inline(always)]
    fn header(&self) -> Header {
        // A1, pairs with R1 in `publish`.
        Header(self.header.load(Ordering::Acquire))
    }

    #[inline(always)]
    fn changed_since(&self, header: Header) -> u32 {
        // A2, pairs with R2 in `fill`.
        fence(Ordering::Acquire);
        self.header.load(Ordering::Relaxed) ^ header.0
    }

    #[inline(always)]
    fn probe(&self, kernel: impl Kernel, key: &[u64; WORDS], tag: u8) -> Probe {
        let header = self.header();
        let matching = header.taken() & self.matching(kernel, key, header.taken(), tag);
        // The last slot if there is none, so that no branch is needed.
        let last = 1 << ((SLOTS - 1) * Self::SLOT_STEP);
        let slot = (matching | last).trailing_zeros() as usize / Self::SLOT_STEP;
        let missing = u32::from(matching == 0).wrapping_neg();
        let value = self.values[slot].load(Ordering::Relaxed) | missing;
        Probe { value, slot, header, changed: self.changed_since(header) }
    }

    #[inline(always)]
    fn lacks(&self, kernel: impl Kernel, key: &[u64; WORDS], tag: u8, taken: u32) -> bool {
        taken & self.matching(kernel, key, taken, tag) == 0
    }

    #[inline(always)]
    fn prefetch_key(&self, kernel: impl Kernel, tag: u8) {
        let candidates = self.header().taken() & self.tagged(tag);
        let slot = (candidates | 1 << (SLOTS - 1)).trailing_zeros() as usize;
        kernel.prefetch(&self.keys[slot]);
        // A key may begin in one line and end in the next.
        kernel.prefetch(&self.keys[slot][WORDS - 1]);
    }

    fn entry(&self, slot: usize) -> ([u64; WORDS], u32) {
        let key = std::array::from_fn(|word| self.keys[slot][word].load(Ordering::Relaxed));
        (key, self.values[slot].load(Ordering::Relaxed))
    }

    #[inline]
    fn fill(&self, slot: usize, key: &[u64; WORDS], tag: u8, value: u32) {
        // R2, pairs with A2 in `changed_since`: who sees one of these words sees that the slot was freed.
        fence(Ordering::Release);
        for (stored, word) in self.keys[slot].iter().zip(key) {
            stored.store(*word, Ordering::Relaxed);
        }
        self.values[slot].store(value, Ordering::Relaxed);
        if Self::TAGGED {
            let (word, shift) = (&self.tags[slot / 4], slot % 4 * 8);
            let others = word.load(Ordering::Relaxed) & !(0xff << shift);
            word.store(others | u32::from(tag) << shift, Ordering::Relaxed);
        }
    }

    #[inline]
    fn set_value(&self, slot: usize, value: u32) {
        // Release, with A2: who reads the value also sees what the writer did before, for example to what it numbers.
        self.values[slot].store(value, Ordering::Release);
    }

    #[inline]
    fn publish(&self, header: Header) {
        // R1, pairs with A1 in `header`.
        self.header.store(header.next_version().0, Ordering::Release);
    }
}

impl<const WORDS: usize, const SLOTS: usize, const TAG_WORDS: usize> Bucket<WORDS, SLOTS, TAG_WORDS> {
    /// A bit for each slot whose tag is this one; all slots if there are no tags
    #[inline(always)]
    fn tagged(&self, tag: u8) -> u32 {
        if TAG_WORDS == 0 {
            return u32::MAX;
        }
        let mut equal = 0;
        for slot in 0..SLOTS {
            let stored = self.tags[slot / 4].load(Ordering::Relaxed) >> (slot % 4 * 8);
            equal |= u32::from(stored as u8 == tag) << slot;
        }
        equal
    }

    /// Which slots have the key, of the taken ones at least, by `SLOT_STEP`
    #[inline(always)]
    fn matching(&self, kernel: impl Kernel, key: &[u64; WORDS], taken: u32, tag: u8) -> u32 {
        if TAG_WORDS == 0 {
            // The model checker's atomics are larger, and it reads them one by one.
            const { assert!(TAG_WORDS > 0 || Self::IS_ONE_LINE || cfg!(loom)) };
            // SAFETY: the bucket is one line of atomics which ends with the keys, as asserted.
            return unsafe { kernel.matching(self, &self.keys, key) };
        }
        let mut candidates = taken & self.tagged(tag);
        // Usually there is one at most.
        while candidates != 0 {
            let slot = candidates.trailing_zeros() as usize;
            if holds(&self.keys[slot % SLOTS], key) {
                return 1 << slot;
            }
            candidates &= candidates - 1;
        }
        0
    }

    const IS_ONE_LINE: bool =
        size_of::<Self>() == 64 && std::mem::offset_of!(Self, keys) + 8 * WORDS * SLOTS == 64 && WORDS <= 2;
}
