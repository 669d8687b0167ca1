//! How a buffer is named in 32 bits.

use crate::header::NO_NEXT;

/// Bits of the index.
const INDEX_BITS: u32 = 24;

/// Buffers that one pool can have at most: the index has 24 bits, and all ones name no buffer, because with the last
/// slot in front that is what ends a chain.
pub const MAXIMUM_BUFFERS: u32 = (1 << INDEX_BITS) - 1;

const _: () = assert!(BufferId::new(u8::MAX, MAXIMUM_BUFFERS - 1).bits() != NO_NEXT);

/// Where a buffer is: the pool's slot in its upper 8 bits, the index in the pool in its lower 24.
///
/// Rings, magazines and lane caches carry this and not a pointer: half the cache lines for the same packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct BufferId(u32);

impl BufferId {
    pub(crate) const fn new(slot: u8, index: u32) -> Self {
        debug_assert!(index < MAXIMUM_BUFFERS);
        Self((slot as u32) << INDEX_BITS | index)
    }

    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// The pool's slot in the process-wide register of pools.
    pub const fn slot(self) -> u8 {
        (self.0 >> INDEX_BITS) as u8
    }

    /// The buffer's index in its pool.
    pub const fn index(self) -> u32 {
        self.0 & ((1 << INDEX_BITS) - 1)
    }
}
