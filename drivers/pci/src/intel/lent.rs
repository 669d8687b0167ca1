//! Buffers of the pool that the card has: it fills them, and sends what is in them, where they are. So nothing is copied.

use super::memory::BUFFER_BYTES;
use std::ptr::NonNull;
use std::sync::Arc;
use warmlane_driver_common::{PoolAddresses, SharedPool};
use warmlane_mem::{BufferOffsets, Region};

/// No buffer has this number.
const NONE: u32 = u32::MAX;

/// Buffers that are taken or freed at once.
pub(crate) const AT_ONCE: usize = 64;

/// Whether a card, which is told nothing of how long a buffer is, can fill buffers of the region.
pub(crate) fn is_possible(region: &Region) -> bool {
    region.data_size() >= usize::from(BUFFER_BYTES)
}

/// Which of them the card has for a ring, by positions in the ring.
#[derive(Debug)]
pub(crate) struct Lent {
    pool: Arc<SharedPool>,
    /// As many as the ring has descriptors, a power of two.
    indices: Box<[u32]>,
}

impl Lent {
    /// None yet.
    pub(crate) fn new(pool: &Arc<SharedPool>, size: u16) -> Self {
        Self { pool: Arc::clone(pool), indices: vec![NONE; size.into()].into() }
    }

    #[inline(always)]
    pub(crate) fn region(&self) -> &Region {
        self.pool.region()
    }

    /// How many the card has.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn count(&self) -> usize {
        self.indices.iter().filter(|index| **index != NONE).count()
    }

    /// The region, and what the card has of it.
    #[inline(always)]
    pub(crate) fn parts(&mut self) -> (&Region, Slots<'_>) {
        let Self { pool, indices } = self;
        let slots = Slots { indices, offsets: pool.region().offsets(), addresses: pool.addresses() };
        (pool.region(), slots)
    }

    /// Where a packet's data begins in the buffer at a position, if there is one.
    #[inline(always)]
    pub(crate) fn data(&self, position: u16) -> Option<NonNull<u8>> {
        let (region, place) = (self.region(), usize::from(position) & (self.indices.len() - 1));
        let index = Some(self.indices[place]).filter(|index| *index != NONE)?;
        let offset = region.offsets().of(index) as usize + usize::from(region.start());
        // SAFETY: the index is one of the region's buffers, which are all mapped (`lend`).
        Some(unsafe { region.address().add(offset) })
    }

    /// Frees the buffers at so many positions, which the card is done with.
    #[inline]
    pub(crate) fn free(&mut self, first: u16, count: u16) {
        let (region, mut slots) = self.parts();
        let mut all = [0; AT_ONCE];
        let mut done = 0;
        while done < count {
            let now = usize::from(count - done).min(AT_ONCE);
            let indices = &mut all[..now];
            slots.take_back(first.wrapping_add(done), indices);
            // Of a descriptor without a buffer of the pool's there is none.
            let found = if are_all_there(indices) { now } else { move_to_front(indices) };
            // SAFETY: each was lent, and was taken back just now; the card is done with it.
            unsafe { region.free_raw(&indices[..found]) };
            done += now as u16;
        }
    }
}

/// Whether each is one of a buffer. No branch for each: several are looked at together.
#[inline(always)]
pub(crate) fn are_all_there(indices: &[u32]) -> bool {
    indices.iter().fold(0, |missing, &index| missing | u32::from(index == NONE)) == 0
}

/// Moves those of buffers to the front. Returns how many there are.
#[cold]
fn move_to_front(indices: &mut [u32]) -> usize {
    let mut found = 0;
    for place in 0..indices.len() {
        if indices[place] != NONE {
            indices.swap(found, place);
            found += 1;
        }
    }
    found
}

/// How many are in front of the first that is none of a buffer.
#[cold]
pub(crate) fn before_none(indices: &[u32]) -> usize {
    indices.iter().take_while(|index| **index != NONE).count()
}

/// Which buffers the card has, for who passes some to it or takes them back.
#[derive(Debug)]
pub(crate) struct Slots<'a> {
    indices: &'a mut [u32],
    offsets: BufferOffsets,
    addresses: PoolAddresses<'a>,
}

impl<'a> Slots<'a> {
    /// Where the card finds the region.
    #[inline(always)]
    pub(crate) const fn addresses(&self) -> PoolAddresses<'a> {
        self.addresses
    }

    /// Notes that the card has this buffer, which was made raw and is nobody else's. Returns where this byte of it is in the region.
    #[inline(always)]
    pub(crate) const fn lend(&mut self, position: u16, index: u32, offset: u16) -> u64 {
        let place = position as usize & (self.indices.len() - 1);
        self.indices[place] = index;
        self.offsets.of(index) + offset as u64
    }

    /// The places of so many positions, up to the ring's end and from its start.
    #[inline(always)]
    fn places(&mut self, position: u16, count: usize) -> [&mut [u32]; 2] {
        let first = usize::from(position) & (self.indices.len() - 1);
        let (behind, ahead) = self.indices.split_at_mut(first);
        let to_end = ahead.len().min(count);
        let rest = behind.len().min(count - to_end);
        [&mut ahead[..to_end], &mut behind[..rest]]
    }

    /// Notes that the card has these buffers at the positions from this one on. Each was made raw and is nobody else's.
    #[inline(always)]
    pub(crate) fn lend_all(&mut self, position: u16, indices: &[u32]) {
        let [ahead, behind] = self.places(position, indices.len());
        let (first, rest) = indices.split_at(ahead.len());
        ahead.copy_from_slice(first);
        behind.copy_from_slice(&rest[..behind.len()]);
    }

    /// Where the card finds this byte of a buffer.
    #[inline(always)]
    pub(crate) fn address(&self, index: u32, offset: u16) -> u64 {
        self.addresses.of(self.offsets.of(index) + u64::from(offset))
    }

    /// The buffers at the positions from this one on, as many as there is space for: the card has them no more. Where it had none, there is none
    /// ([`are_all_there`]).
    #[inline(always)]
    pub(crate) fn take_back(&mut self, position: u16, indices: &mut [u32]) {
        let [ahead, behind] = self.places(position, indices.len());
        let (first, rest) = indices.split_at_mut(ahead.len());
        first.copy_from_slice(ahead);
        rest[..behind.len()].copy_from_slice(behind);
        ahead.fill(NONE);
        behind.fill(NONE);
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let indices = self.indices.iter().copied().filter(|index| *index != NONE);
        // SAFETY: each was lent to one descriptor, and not taken back.
        unsafe { self.pool.keep(indices) };
    }
}
