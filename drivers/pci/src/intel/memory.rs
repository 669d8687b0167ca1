//! The rings and their buffers, in memory that the card is given.
//!
//! Each descriptor has a buffer of its own, which it keeps.

use super::look::DescriptorWords;
use crate::error::PciError;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use warmlane_sys::pages::{Mapping, MappingRequest, PagePreference};

/// Bytes of each buffer: what the card takes it to have for receiving.
pub(crate) const BUFFER_BYTES: u16 = 2048;

/// Bytes of a descriptor.
pub(crate) const DESCRIPTOR_BYTES: usize = 16;

/// One of the two rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Receive,
    Transmit,
}

/// Both rings, with so many descriptors each, and their buffers behind them.
#[derive(Debug)]
pub(crate) struct RingMemory {
    mapping: Mapping,
    /// A power of two.
    size: u16,
    /// Where the card finds it.
    address: u64,
}

impl RingMemory {
    /// New memory, all zeros. `map` says at which address the card finds it.
    pub(crate) fn new(
        name: &str,
        size: u16,
        map: impl FnOnce(&Mapping) -> Result<u64, PciError>,
    ) -> Result<Self, PciError> {
        let descriptors = 2 * usize::from(size);
        let length = descriptors * (DESCRIPTOR_BYTES + usize::from(BUFFER_BYTES));
        let mapping = Mapping::new(&MappingRequest {
            name: format!("pci {name}"),
            length,
            pages: PagePreference::Best,
        })?;
        let address = map(&mapping)?;
        Ok(Self { mapping, size, address })
    }

    /// Descriptors of each ring.
    #[inline(always)]
    pub(crate) const fn size(&self) -> u16 {
        self.size
    }

    /// What a position in a ring is a position modulo.
    #[inline(always)]
    pub(crate) const fn mask(&self) -> u16 {
        self.size - 1
    }

    /// If it is not on huge pages: what that costs, and the remedy.
    pub(crate) fn fallback(&self) -> Option<&str> {
        self.mapping.fallback()
    }

    /// Where a descriptor is, from the start. Positions are taken modulo the ring's size.
    #[inline(always)]
    fn descriptor_offset(&self, side: Side, position: u16) -> usize {
        let before = side as usize * usize::from(self.size);
        (before + usize::from(position & self.mask())) * DESCRIPTOR_BYTES
    }

    /// Where its buffer is.
    #[inline(always)]
    fn buffer_offset(&self, side: Side, position: u16) -> usize {
        let (size, before) = (usize::from(self.size), side as usize * usize::from(self.size));
        let buffers = 2 * size * DESCRIPTOR_BYTES;
        buffers + (before + usize::from(position & self.mask())) * usize::from(BUFFER_BYTES)
    }

    /// Bytes of the descriptors of each ring.
    pub(crate) fn ring_bytes(&self) -> u32 {
        u32::from(self.size) * DESCRIPTOR_BYTES as u32
    }

    /// Where the card finds a ring.
    pub(crate) fn ring_address(&self, side: Side) -> u64 {
        self.address + self.descriptor_offset(side, 0) as u64
    }

    /// Where the card finds a buffer.
    #[inline(always)]
    pub(crate) fn buffer_address(&self, side: Side, position: u16) -> u64 {
        self.address + self.buffer_offset(side, position) as u64
    }

    /// A descriptor. The card may write to it at any time.
    #[inline(always)]
    pub(crate) fn words(&self, side: Side, position: u16) -> &DescriptorWords {
        let offset = self.descriptor_offset(side, position);
        // SAFETY: a position below the size in one of two rings, which the mapping has room for in front of the buffers (`new`). It is page-aligned, and the
        // offset a multiple of sixteen. All accesses on this side are atomic, as are the card's of eight bytes or less.
        unsafe { self.mapping.as_ptr().add(offset).cast::<DescriptorWords>().as_ref() }
    }

    /// Its second word, by which either side knows whose it is.
    #[inline(always)]
    pub(crate) fn status(&self, side: Side, position: u16) -> &AtomicU64 {
        &self.words(side, position)[1]
    }

    /// So many descriptors from a position on, up to the ring's end and from its start.
    #[inline(always)]
    pub(crate) fn descriptors_from(
        &self,
        side: Side,
        position: u16,
        count: usize,
    ) -> [&[DescriptorWords]; 2] {
        let (behind, ahead) = self.descriptors(side).split_at((position & self.mask()).into());
        let to_end = ahead.len().min(count);
        [&ahead[..to_end], &behind[..behind.len().min(count - to_end)]]
    }

    /// The descriptors of a ring. The card may write to them at any time.
    #[inline(always)]
    pub(crate) fn descriptors(&self, side: Side) -> &[DescriptorWords] {
        let offset = self.descriptor_offset(side, 0);
        // SAFETY: as in `word`: so many of each ring are in front of the buffers, and all accesses are atomic, or of vectors whose words are read again.
        unsafe {
            let first = self.mapping.as_ptr().add(offset).cast::<DescriptorWords>();
            std::slice::from_raw_parts(first.as_ptr(), self.size.into())
        }
    }

    /// A buffer, of [`BUFFER_BYTES`]. The card may write to it at any time.
    #[inline(always)]
    pub(crate) fn buffer(&self, side: Side, position: u16) -> NonNull<u8> {
        // SAFETY: a position below the size in one of two rings, whose buffers the mapping has room for behind the descriptors (`new`).
        unsafe { self.mapping.as_ptr().add(self.buffer_offset(side, position)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn all_of_it_has_a_place_of_its_own_inside() {
        const START: u64 = 1 << 32;
        let memory = RingMemory::new("test", 64, |_| Ok(START)).unwrap();
        let base = memory.mapping.as_ptr().addr().get();
        let mut places = Vec::new();
        for side in [Side::Receive, Side::Transmit] {
            for position in 0..64 {
                let words = memory.words(side, position);
                let descriptor = std::ptr::from_ref(words).addr() - base;
                assert!(std::ptr::eq(&raw const memory.descriptors(side)[usize::from(position)], words));
                assert!(std::ptr::eq(memory.status(side, position), &raw const words[1]));
                let [ahead, behind] = memory.descriptors_from(side, position, 64);
                assert!(std::ptr::eq(&raw const ahead[0], words));
                assert_eq!((ahead.len(), behind.len()), (64 - usize::from(position), position.into()));
                assert_eq!(memory.descriptors_from(side, position, 1).map(<[_]>::len), [1, 0]);
                places.push((descriptor, DESCRIPTOR_BYTES));
                let buffer = memory.buffer(side, position).addr().get() - base;
                assert_eq!(memory.buffer_address(side, position), START + buffer as u64);
                places.push((buffer, usize::from(BUFFER_BYTES)));
                words[1].store(places.len() as u64, Ordering::Relaxed);
            }
            assert_eq!(
                memory.ring_address(side),
                START + (std::ptr::from_ref(memory.words(side, 0)).addr() - base) as u64
            );
        }
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        let (last, bytes) = places[places.len() - 1];
        assert!(last + bytes <= memory.mapping.length());
        // Positions go round.
        assert_eq!(memory.status(Side::Transmit, 64 + 5).load(Ordering::Relaxed), 128 + 2 * 6);
    }
}
