//! What lookups read: links, and the nodes they lead to

use std::sync::atomic::{AtomicU32, Ordering};

use crate::NextHopId;

/// 32-bit links in a cache line, the unit in which nodes are allotted
pub(super) const LINKS: usize = 16;
/// One cache line: links of a field, or another node as a whole
pub(super) type Line = [AtomicU32; LINKS];

/// Bits that index the root
pub(super) const ROOT_BITS: u32 = 16;
/// Lines of the root, at the start of the memory
pub(super) const ROOT_LINES: usize = (1 << ROOT_BITS) / LINKS;

/// Bits of an address that a leaf or a branch compares
pub(super) const KEY_BITS: u32 = 16;
/// Stretches in a leaf
pub(super) const LEAF_HOPS: usize = 16;
/// Leaves below a branch
pub(super) const BRANCH_LEAVES: usize = 32;
/// Bits of an address that a fan compares, of which it takes up so many or fewer
pub(super) const FAN_BITS: u32 = 32;
/// Links in a fan
pub(super) const FAN_LINKS: usize = 8;

/// A next hop or where to look on: in the upper 3 bits the kind; for a field and a fan its stride in the next 6; in the other
/// 23 the first line of the node, for [`HOP`](Self::HOP) the number of the next hop
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Link(u32);

impl Link {
    /// The end of the way
    pub(super) const HOP: u32 = 0;
    /// 2^stride links, indexed by the next bits of the address
    pub(super) const FIELD: u32 = 1;
    /// A line of 8 last values of the next 32 bits and 8 links, which lead to what comes `stride` bits further on
    pub(super) const FAN: u32 = 2;
    /// A line of 16 last values of the next 16 bits and 16 next hops
    pub(super) const LEAF: u32 = 3;
    /// A line of 32 last values of the next 16 bits, and after it as many leaves for the same bits
    pub(super) const BRANCH: u32 = 4;
    /// As many as there may be
    pub(super) const KINDS: usize = 1 << (u32::BITS - Self::KIND_SHIFT);

    pub(super) const KIND_SHIFT: u32 = 29;
    pub(super) const STRIDE_SHIFT: u32 = 23;
    pub(super) const STRIDE_MASK: u32 = 0x3f;
    pub(super) const LINE_MASK: u32 = 0x007f_ffff;
    /// Lines that links can tell apart
    pub(super) const LINES: usize = Self::LINE_MASK as usize + 1;

    pub(super) fn hop(hop: NextHopId) -> Self {
        Self(u32::from(hop.stored()))
    }

    pub(super) fn node(kind: u32, line: u32) -> Self {
        Self(kind << Self::KIND_SHIFT | line)
    }

    pub(super) fn field(line: u32, stride: u8) -> Self {
        Self(Self::FIELD << Self::KIND_SHIFT | u32::from(stride) << Self::STRIDE_SHIFT | line)
    }

    pub(super) fn fan(line: u32, stride: u8) -> Self {
        Self(Self::FAN << Self::KIND_SHIFT | u32::from(stride) << Self::STRIDE_SHIFT | line)
    }

    #[inline(always)]
    pub(super) fn load(slot: &AtomicU32) -> Self {
        // Acquire, pairs with the release in `store`: without it the node could be read as it was before it was written.
        Self(slot.load(Ordering::Acquire))
    }

    pub(super) fn store(self, slot: &AtomicU32) {
        // Release: what the link leads to comes into sight with it.
        slot.store(self.0, Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn bits(self) -> u32 {
        self.0
    }

    #[inline(always)]
    pub(super) fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    pub(super) fn kind(self) -> u32 {
        self.0 >> Self::KIND_SHIFT
    }

    #[inline(always)]
    pub(super) fn is_hop(self) -> bool {
        self.kind() == Self::HOP
    }

    /// Of a link to a field or a fan: the bits that it takes up
    #[inline(always)]
    pub(super) fn stride(self) -> u32 {
        self.0 >> Self::STRIDE_SHIFT & Self::STRIDE_MASK
    }

    /// Of a link to a node: its first line
    #[inline(always)]
    pub(super) fn line(self) -> usize {
        (self.0 & Self::LINE_MASK) as usize
    }

    /// Of a link to a next hop
    #[inline(always)]
    pub(super) fn next_hop(self) -> NextHopId {
        NextHopId::from_stored(self.0 as u16)
    }
}

/// A line that is a node as a whole, as it is while readers can see it: without changes
///
/// Values that no address is above fill what is left over, so a search needs no count.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Node(pub(super) [u16; 2 * LINKS]);

impl Node {
    pub(super) const EMPTY: Self = Self([u16::MAX; 2 * LINKS]);

    /// The line as 32-bit values
    #[inline(always)]
    pub(super) fn pairs(&self) -> [u32; LINKS] {
        std::array::from_fn(|index| pair(self.0[2 * index], self.0[2 * index + 1]))
    }

    pub(super) fn set_pair(&mut self, index: usize, value: u32) {
        let [a, b, c, d] = value.to_ne_bytes();
        self.0[2 * index] = u16::from_ne_bytes([a, b]);
        self.0[2 * index + 1] = u16::from_ne_bytes([c, d]);
    }

    /// The link at `index` of a fan
    #[inline(always)]
    pub(super) fn link(&self, index: usize) -> Link {
        let index = FAN_LINKS + index % FAN_LINKS;
        Link(pair(self.0[2 * index], self.0[2 * index + 1]))
    }

    /// The next hop at `index` of a leaf
    #[inline(always)]
    pub(super) fn hop(&self, index: usize) -> NextHopId {
        NextHopId::from_stored(self.0[LEAF_HOPS + index % LEAF_HOPS])
    }

    /// Leaves after this line, a branch
    pub(super) fn leaves(&self) -> usize {
        self.0.iter().filter(|last| **last != u16::MAX).count() + 1
    }

    /// Writes the node to a line that no reader knows of yet
    pub(super) fn write(&self, line: &Line) {
        for (slot, value) in line.iter().zip(self.pairs()) {
            // Relaxed: the link that brings the line into sight is stored with release.
            slot.store(value, Ordering::Relaxed);
        }
    }

    /// The node in `line`
    ///
    /// # Safety
    /// The line must be a node as a whole, and must not be written for as long as the reference lives.
    #[inline(always)]
    pub(super) unsafe fn of(line: &Line) -> &Self {
        // SAFETY: the same size; a line of the table's memory starts at a cache line, which the memory's start at a huge page
        // makes sure of; all bit patterns are valid; nobody writes to it (caller).
        unsafe { &*std::ptr::from_ref(line).cast() }
    }
}

#[inline(always)]
fn pair(first: u16, second: u16) -> u32 {
    let ([a, b], [c, d]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u32::from_ne_bytes([a, b, c, d])
}
