//! What the upper MAC tells the lower one of a packet, in the packet's own bytes.

use warmlane_mem::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Fits the application's bytes of a buffer's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[zerocopy(crate = "warmlane_mem::zerocopy")]
#[repr(C)]
pub struct Tag {
    /// The service flow.
    pub flow: u32,
    /// The packet's number in its flow.
    pub sequence: u16,
    /// The channel that it is sent by.
    pub channel: u16,
    /// When it came to the upper MAC, in 16 cycles of the cycle counter.
    pub arrived: u32,
}

/// Cycles that a tick of [`Tag::arrived`] has, as a power of two: 32 bits then last for 20 seconds and more.
const TICK: u32 = 4;

/// A time in cycles as a tag has it.
#[inline]
pub(crate) const fn stamp(cycles: u64) -> u32 {
    (cycles >> TICK) as u32
}

/// Cycles from the time of a stamp to `now`.
#[inline]
pub(crate) const fn cycles_since(stamp: u32, now: u64) -> u64 {
    ((now >> TICK) as u32).wrapping_sub(stamp) as u64 * (1 << TICK)
}
