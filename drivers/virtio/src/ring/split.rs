//! A split ring: a table of descriptors, a ring of those that are available, written by the driver, and a ring of those that are used,
//! written by the device.
//!
//! Indices count up without end and wrap at 2^16.

use super::{DESCRIPTOR_BYTES, Descriptor, word16, word32, word64};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

const FLAGS: usize = 0;
const INDEX: usize = 2;
const ENTRIES: usize = 4;
const AVAILABLE_BYTES: usize = 2;
const USED_BYTES: usize = 8;

/// Flag of the available ring: the driver polls, and wants no events.
const NO_INTERRUPT: u16 = 1;
/// Flag of the used ring: the device polls, and wants no events.
const NO_NOTIFY: u16 = 1;

/// What the parts' addresses are multiples of (section 2.7).
pub const DESCRIPTORS_ALIGNMENT: usize = 16;
/// See [`DESCRIPTORS_ALIGNMENT`].
pub const AVAILABLE_ALIGNMENT: usize = 2;
/// See [`DESCRIPTORS_ALIGNMENT`].
pub const USED_ALIGNMENT: usize = 4;

/// Bytes of the table of descriptors.
pub const fn descriptors_bytes(size: u16) -> usize {
    size as usize * DESCRIPTOR_BYTES
}

/// Bytes of the available ring, with the place of the used event behind it.
pub const fn available_bytes(size: u16) -> usize {
    ENTRIES + size as usize * AVAILABLE_BYTES + 2
}

/// Bytes of the used ring, with the place of the available event behind it.
pub const fn used_bytes(size: u16) -> usize {
    ENTRIES + size as usize * USED_BYTES + 2
}

/// Where the parts of a ring are.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// The table of descriptors.
    pub descriptors: NonNull<u8>,
    /// The available ring.
    pub available: NonNull<u8>,
    /// The used ring.
    pub used: NonNull<u8>,
}

/// A split ring. Who has it sees to it that the memory stays mapped.
#[derive(Clone, Copy, Debug)]
pub struct SplitRing {
    parts: Parts,
    size: u16,
}

// SAFETY: addresses in shared memory, all accesses to which are atomic; nothing is tied to a thread.
unsafe impl Send for SplitRing {}

impl SplitRing {
    /// # Safety
    /// `size` is a power of two of at most [`LONGEST`](super::LONGEST). At each part [`descriptors_bytes`], [`available_bytes`] and
    /// [`used_bytes`] are mapped, at multiples of the alignments above, for as long as the ring or a copy of it is used, and this process
    /// accesses them by atomic operations only.
    pub const unsafe fn new(parts: Parts, size: u16) -> Self {
        debug_assert!(size.is_power_of_two());
        Self { parts, size }
    }

    /// Descriptors.
    #[inline(always)]
    pub const fn size(&self) -> u16 {
        self.size
    }

    #[inline(always)]
    const fn slot(&self, index: u16) -> usize {
        (index & (self.size - 1)) as usize
    }

    /// Reads a descriptor, each half once. `number` is taken modulo the size.
    #[inline(always)]
    pub fn descriptor(&self, number: u16) -> Descriptor {
        let offset = self.slot(number) * DESCRIPTOR_BYTES;
        // SAFETY: inside the table (`new`), and aligned as it is.
        let words =
            unsafe { [word64(self.parts.descriptors, offset), word64(self.parts.descriptors, offset + 8)] };
        // Relaxed: the index was acquired.
        let [address, rest] = words.map(|word| word.load(Ordering::Relaxed));
        Descriptor { address, length: rest as u32, flags: (rest >> 32) as u16, id: (rest >> 48) as u16 }
    }

    /// Writes a descriptor, as a driver. Relaxed: the index that is published later releases it.
    #[inline(always)]
    pub fn set_descriptor(&self, number: u16, descriptor: Descriptor) {
        let Descriptor { address, length, flags, id } = descriptor;
        let rest = u64::from(length) | u64::from(flags) << 32 | u64::from(id) << 48;
        let offset = self.slot(number) * DESCRIPTOR_BYTES;
        // SAFETY: as in `descriptor`.
        let words =
            unsafe { [word64(self.parts.descriptors, offset), word64(self.parts.descriptors, offset + 8)] };
        for (word, value) in words.into_iter().zip([address, rest]) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The driver's index. A1: acquire, pairs with R1: entries and descriptors below it are there.
    #[inline(always)]
    pub fn available_index(&self) -> u16 {
        // SAFETY: inside the available ring, aligned as it is.
        unsafe { word16(self.parts.available, INDEX) }.load(Ordering::Acquire)
    }

    /// R1: release, pairs with A1: all that was written for buffers below the index is there before the device can see it.
    #[inline(always)]
    pub fn publish_available(&self, index: u16) {
        // SAFETY: as above.
        unsafe { word16(self.parts.available, INDEX) }.store(index, Ordering::Release);
    }

    /// Which descriptor the entry at an index names.
    #[inline(always)]
    pub fn available_entry(&self, index: u16) -> u16 {
        // SAFETY: the slot is below the size, so it is inside the ring.
        unsafe { word16(self.parts.available, ENTRIES + self.slot(index) * AVAILABLE_BYTES) }
            .load(Ordering::Relaxed)
    }

    /// Names a descriptor. Relaxed: the index that is published later releases it.
    #[inline(always)]
    pub fn set_available_entry(&self, index: u16, number: u16) {
        // SAFETY: as above.
        unsafe { word16(self.parts.available, ENTRIES + self.slot(index) * AVAILABLE_BYTES) }
            .store(number, Ordering::Relaxed);
    }

    /// The device's index. A2: acquire, pairs with R2: the device no longer touches buffers below it, and has written to them.
    #[inline(always)]
    pub fn used_index(&self) -> u16 {
        // SAFETY: inside the used ring, aligned as it is.
        unsafe { word16(self.parts.used, INDEX) }.load(Ordering::Acquire)
    }

    /// R2: release, pairs with A2.
    #[inline(always)]
    pub fn publish_used(&self, index: u16) {
        // SAFETY: as above.
        unsafe { word16(self.parts.used, INDEX) }.store(index, Ordering::Release);
    }

    #[inline(always)]
    fn used_words(&self, index: u16) -> [&std::sync::atomic::AtomicU32; 2] {
        let offset = ENTRIES + self.slot(index) * USED_BYTES;
        // SAFETY: the slot is below the size, so both words are inside; 4 divides the ring's address.
        unsafe { [word32(self.parts.used, offset), word32(self.parts.used, offset + 4)] }
    }

    /// The buffer that was used, by its first descriptor, and how many bytes were written to it.
    #[inline(always)]
    pub fn used_entry(&self, index: u16) -> (u32, u32) {
        let [id, length] = self.used_words(index).map(|word| word.load(Ordering::Relaxed));
        (id, length)
    }

    /// Says that a buffer was used. Relaxed: the index that is published later releases it.
    #[inline(always)]
    pub fn set_used_entry(&self, index: u16, id: u16, length: u32) {
        for (word, value) in self.used_words(index).into_iter().zip([u32::from(id), length]) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Whether the driver wants to be told of used buffers at all.
    #[inline(always)]
    pub fn driver_wants_events(&self) -> bool {
        // SAFETY: inside the available ring, aligned as it is.
        unsafe { word16(self.parts.available, FLAGS) }.load(Ordering::Relaxed) & NO_INTERRUPT == 0
    }

    /// The driver says whether it wants to be told.
    pub fn set_driver_wants_events(&self, wanted: bool) {
        let flags = if wanted { 0 } else { NO_INTERRUPT };
        // SAFETY: as above.
        unsafe { word16(self.parts.available, FLAGS) }.store(flags, Ordering::Relaxed);
    }

    /// Whether the device wants to be told of available buffers at all.
    #[inline(always)]
    pub fn device_wants_events(&self) -> bool {
        // SAFETY: inside the used ring, aligned as it is.
        unsafe { word16(self.parts.used, FLAGS) }.load(Ordering::Relaxed) & NO_NOTIFY == 0
    }

    /// The device says whether it wants to be told.
    pub fn set_device_wants_events(&self, wanted: bool) {
        let flags = if wanted { 0 } else { NO_NOTIFY };
        // SAFETY: as above.
        unsafe { word16(self.parts.used, FLAGS) }.store(flags, Ordering::Relaxed);
    }

    /// With event indices: behind which used index the driver wants to be told.
    #[inline(always)]
    pub fn used_event(&self) -> u16 {
        // SAFETY: behind the entries of the available ring, inside.
        unsafe { word16(self.parts.available, ENTRIES + self.size as usize * AVAILABLE_BYTES) }
            .load(Ordering::Relaxed)
    }

    /// The driver says behind which used index it wants to be told.
    pub fn set_used_event(&self, index: u16) {
        // SAFETY: as above.
        unsafe { word16(self.parts.available, ENTRIES + self.size as usize * AVAILABLE_BYTES) }
            .store(index, Ordering::Relaxed);
    }

    /// With event indices: behind which available index the device wants to be told.
    #[inline(always)]
    pub fn available_event(&self) -> u16 {
        // SAFETY: behind the entries of the used ring, inside.
        unsafe { word16(self.parts.used, ENTRIES + self.size as usize * USED_BYTES) }.load(Ordering::Relaxed)
    }

    /// The device says behind which available index it wants to be told.
    pub fn set_available_event(&self, index: u16) {
        // SAFETY: as above.
        unsafe { word16(self.parts.used, ENTRIES + self.size as usize * USED_BYTES) }
            .store(index, Ordering::Relaxed);
    }
}
