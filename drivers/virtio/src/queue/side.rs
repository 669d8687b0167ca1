//! One side of a ring, as queues see it, whichever of the two it is and whatever the ring's format.
//!
//! A queue looks at buffers that are its to read or to fill, copies, and gives them back to the other side. For a device those are what the driver
//! made available; for a driver what the device has used, and those of its own that are free.

use super::collector::Collector;
use super::receive::Filled;
use crate::ring::Descriptor;
use std::ptr::NonNull;
use warmlane_mem::Burst;

/// Buffers that are looked at together.
pub(crate) const HEADS: usize = 64;

/// Parts that a buffer can have. Linux makes up to 48, for the fragments of a packet; more than these are no packet of ours.
pub(crate) const MAXIMUM_PARTS: usize = 1024;

/// What the other side can't have meant. The ring can't be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken(pub(crate) &'static str);

/// A part of a buffer, in this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) pointer: NonNull<u8>,
    /// By the driver's addresses.
    pub(crate) address: u64,
    pub(crate) length: usize,
}

// SAFETY: an address that is only used while who has it holds the memory; nothing is tied to a thread.
unsafe impl Send for Part {}

/// A whole buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    /// What the other side knows it by.
    pub(crate) id: u16,
    /// Descriptors of the ring.
    pub(crate) slots: u16,
    /// How many of the heads that were looked at belong to it.
    pub(crate) heads: u16,
    /// Whether its parts are where they may be, and no more than there may be.
    pub(crate) is_usable: bool,
}

/// One side of a ring in use.
pub(crate) trait Side {
    /// Looks at buffers that are this side's, by their first descriptors with the names of the buffers, without taking them: as many as fit, but none behind the first of a packed ring that is chained. Returns how
    /// many.
    fn look(&mut self, heads: &mut [Descriptor]) -> Result<usize, Broken>;

    /// Collects all parts of the buffer that is `ahead` descriptors or buffers from the next one. Where a packet is spread over several
    /// buffers, a driver has the parts of all.
    fn chain(&mut self, ahead: Ahead, collector: &mut Collector<'_, '_>) -> Result<Option<Chain>, Broken>;

    /// Gives the next buffer back, with so many bytes written to it. `goes_on`: the packet goes on in the one that is given back next.
    fn give_back(&mut self, id: u16, slots: u16, length: u32, goes_on: bool);

    /// Gives back the next of the buffers that were looked at, with so many bytes written to each. Each is one descriptor.
    fn give_back_whole(&mut self, heads: &[Descriptor], lengths: impl Iterator<Item = u32>);

    /// Whether the other side reaches a pool.
    #[inline(always)]
    fn lends(&self) -> bool {
        false
    }

    /// Makes packets of the buffers of that pool that the other side has filled, up to the first that isn't one buffer. Returns how many,
    /// and whether there is one that isn't so, to be [looked at](Self::look).
    #[inline(always)]
    fn take_packets(&mut self, _filled: Filled<'_>) -> Result<(usize, bool), Broken> {
        Ok((0, true))
    }

    /// Gives the other side packets of the pool that it reaches from the front of the burst where they are, as far as there is space. Returns how many, and their
    /// bytes.
    #[inline(always)]
    fn lend(&mut self, _burst: &mut Burst) -> Result<(usize, u64), Broken> {
        Ok((0, 0))
    }

    /// The other side may see what was given back since the last time. Whether it is to be told is asked afterwards.
    fn publish(&mut self);

    /// Whether something was published since the other side was asked last.
    fn has_news(&self) -> bool;

    /// Whether the other side wants to be told of what was published since it was asked last. With a fence, so not for each packet.
    fn peer_wants_event(&mut self) -> bool;

    /// Says whether the other side is to tell of what it gives back.
    fn want_events(&mut self, wanted: bool);
}

/// How far behind the next buffer another one is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ahead {
    pub(crate) buffers: u16,
    pub(crate) slots: u16,
}
