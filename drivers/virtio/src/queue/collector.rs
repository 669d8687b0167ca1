//! The parts of a buffer, from the descriptors that name them.

use super::side::{MAXIMUM_PARTS, Part};
use crate::memory::Addresses;
use crate::ring::{DESCRIPTOR_BYTES, Descriptor, INDIRECT, NEXT, WRITE, word64};
use std::sync::atomic::Ordering;

/// Collects the parts of one buffer.
pub(crate) struct Collector<'a, 'b> {
    pub(super) addresses: &'a mut Addresses<'b>,
    pub(super) parts: &'a mut Vec<Part>,
    write: u16,
    first: usize,
    /// Whether the parts are where they may be, and no more than there may be.
    pub(super) is_usable: bool,
}

impl<'a, 'b> Collector<'a, 'b> {
    /// Appends parts to `parts`. `write`: as for [`Descriptor::is_plain`].
    pub(super) fn new(write: u16, addresses: &'a mut Addresses<'b>, parts: &'a mut Vec<Part>) -> Self {
        let first = parts.len();
        Self { addresses, parts, write, first, is_usable: true }
    }

    /// One descriptor's part, which can lie in several regions.
    pub(super) fn add(&mut self, descriptor: Descriptor) {
        let Descriptor { mut address, mut length, flags, .. } = descriptor;
        if flags & WRITE != self.write {
            self.is_usable = false;
        }
        while length > 0 && self.is_usable {
            let found = self.addresses.part(address, length);
            match found.filter(|_| self.parts.len() - self.first < MAXIMUM_PARTS) {
                Some((pointer, there)) => {
                    self.parts.push(Part { pointer, address, length: there as usize });
                    length -= there;
                    // Regions don't wrap.
                    address = address.wrapping_add(there.into());
                }
                None => self.is_usable = false,
            }
        }
    }

    /// All descriptors of a table. With `next` they name each other, as those of a split ring; else each follows the last.
    pub(super) fn add_table(&mut self, table: Descriptor, names_next: bool) {
        let count = table.length as usize / DESCRIPTOR_BYTES;
        let is_whole = (table.length as usize).is_multiple_of(DESCRIPTOR_BYTES);
        // A table in two regions, or at an odd address, is none that a driver makes.
        let pointer = self.addresses.pointer(table.address, table.length);
        let pointer = pointer.filter(|pointer| pointer.addr().get().is_multiple_of(8) && is_whole);
        let Some(pointer) = pointer.filter(|_| (1..=MAXIMUM_PARTS).contains(&count)) else {
            self.is_usable = false;
            return;
        };
        let mut number = 0;
        for taken in 0..count {
            let offset = number * DESCRIPTOR_BYTES;
            // SAFETY: `number` is below `count`, and so many descriptors are mapped from `pointer` on, at a multiple of 8.
            let words = unsafe { [word64(pointer, offset), word64(pointer, offset + 8)] };
            let [address, rest] = words.map(|word| word.load(Ordering::Relaxed));
            let (length, upper) = (rest as u32, (rest >> 32) as u32);
            let (flags, next) =
                if names_next { (upper as u16, (upper >> 16) as u16) } else { ((upper >> 16) as u16, 0) };
            if flags & INDIRECT != 0 {
                // Tables don't nest (section 2.7.5.3.1).
                self.is_usable = false;
            }
            // DPDK's net_virtio_user says of the header in such a table that it is to be written (`vring_desc_init_indirect_packed`, 22.11).
            let ignored = if names_next || self.write != 0 { 0 } else { WRITE };
            self.add(Descriptor { address, length, flags: flags & !ignored, id: 0 });
            if !self.is_usable || (names_next && flags & NEXT == 0) {
                return;
            }
            number = if names_next { usize::from(next) } else { taken + 1 };
            if number >= count {
                self.is_usable = !names_next;
                return;
            }
        }
        // As many as there are, and the last names another one: a circle.
        self.is_usable = !names_next;
    }
}
