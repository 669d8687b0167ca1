//! Rings in memory of this process that nobody gives back: for experiments and tests, whose ends are both here.

use super::packed::{self, PackedRing};
use super::split::{self, SplitRing};
use super::{DESCRIPTOR_BYTES, LONGEST};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A line of memory.
#[repr(C, align(64))]
struct Line([AtomicU64; 8]);

/// So many bytes, all zero, that stay until the process ends.
fn leaked(bytes: usize) -> NonNull<u8> {
    let lines: Box<[Line]> =
        (0..bytes.div_ceil(size_of::<Line>())).map(|_| Line(Default::default())).collect();
    NonNull::from(Box::leak(lines)).cast()
}

impl PackedRing {
    /// A ring of so many descriptors that is all zero. Its memory is never given back. There is memory for the slots of all positions,
    /// as anybody may ask it about any.
    ///
    /// # Panics
    /// If there are no rings of this size.
    pub fn leaked(size: u16) -> Self {
        assert!((1..=LONGEST).contains(&size.into()), "a ring of {size} descriptors");
        let parts = packed::Parts {
            descriptors: leaked(packed::descriptors_bytes(u16::MAX) + DESCRIPTOR_BYTES),
            driver: leaked(packed::SUPPRESSION_BYTES),
            device: leaked(packed::SUPPRESSION_BYTES),
        };
        // SAFETY: each part has as many bytes or more, at a line, for ever, and is known to this ring alone; every slot that fits into a
        // position has a descriptor.
        unsafe { Self::new(parts, size) }
    }
}

impl SplitRing {
    /// As [`PackedRing::leaked`].
    ///
    /// # Panics
    /// If there are no rings of this size.
    pub fn leaked(size: u16) -> Self {
        assert!(size.is_power_of_two() && u32::from(size) <= LONGEST, "a ring of {size} descriptors");
        let parts = split::Parts {
            descriptors: leaked(split::descriptors_bytes(size)),
            available: leaked(split::available_bytes(size)),
            used: leaked(split::used_bytes(size)),
        };
        // SAFETY: as above.
        unsafe { Self::new(parts, size) }
    }
}
