//! Rings, as both formats lay them out in memory that device and driver share (virtio 1.2, sections 2.7 and 2.8).
//!
//! The *driver* makes buffers available, the *device* uses them and gives them back. Here are only layouts, each access to which is atomic:
//! the other side can write anything at any time. So each value is read once, and checked by whoever called.

mod own;
pub mod packed;
pub mod split;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

/// The longest ring.
pub const LONGEST: u32 = 1 << 15;

/// Bytes of a descriptor, in both formats.
pub const DESCRIPTOR_BYTES: usize = 16;

/// Flag of a descriptor: the buffer goes on in another one.
pub const NEXT: u16 = 1;
/// Flag of a descriptor: the device writes to it.
pub const WRITE: u16 = 2;
/// Flag of a descriptor: it points at a table of descriptors.
pub const INDIRECT: u16 = 4;

/// A part of a buffer, as it lies in a packed ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Descriptor {
    /// Where it is, by the driver's addresses.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// In a split ring the descriptor that comes next, in a packed one the buffer's name, which of a chain's descriptors the last has.
    pub id: u16,
    /// [`NEXT`], [`WRITE`], [`INDIRECT`]; in a packed ring also whose it is.
    pub flags: u16,
}

impl Descriptor {
    /// Whether it is all of a buffer, and for the direction that is meant: `write` is [`WRITE`] or 0.
    #[inline(always)]
    pub(crate) const fn is_plain(&self, write: u16) -> bool {
        self.flags & (NEXT | INDIRECT | WRITE) == write
    }
}

/// A word of two bytes in shared memory.
///
/// # Safety
/// Two bytes are mapped there as long as the reference is used, and the address is even.
#[inline(always)]
const unsafe fn word16<'a>(base: NonNull<u8>, offset: usize) -> &'a AtomicU16 {
    // SAFETY: the caller's.
    unsafe { AtomicU16::from_ptr(base.as_ptr().add(offset).cast()) }
}

/// A word of four bytes; as [`word16`], and 4 divides the address.
///
/// # Safety
/// As for [`word16`].
#[inline(always)]
const unsafe fn word32<'a>(base: NonNull<u8>, offset: usize) -> &'a AtomicU32 {
    // SAFETY: the caller's.
    unsafe { AtomicU32::from_ptr(base.as_ptr().add(offset).cast()) }
}

/// A word of eight bytes; as [`word16`], and 8 divides the address.
///
/// # Safety
/// As for [`word16`].
#[inline(always)]
pub(crate) const unsafe fn word64<'a>(base: NonNull<u8>, offset: usize) -> &'a AtomicU64 {
    // SAFETY: the caller's.
    unsafe { AtomicU64::from_ptr(base.as_ptr().add(offset).cast()) }
}

/// Whether the other side wants to be told of index `event`, when the index has gone from `old` to `new` (virtio 1.2 section 2.7.7.2).
#[inline]
pub const fn wants_event(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_wanted_once_its_index_is_passed() {
        for start in [0_u16, 65_530] {
            let at = |offset: u16| start.wrapping_add(offset);
            for (event, new, old, wanted) in [
                (0, 1, 0, true),
                (0, 0, 0, false),
                (1, 1, 0, false),
                (1, 2, 0, true),
                (5, 9, 6, false),
                (8, 9, 6, true),
            ] {
                assert_eq!(wants_event(at(event), at(new), at(old)), wanted, "{start} {event} {new} {old}");
            }
        }
    }
}
