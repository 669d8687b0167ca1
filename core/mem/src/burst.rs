//! The packets that move together through a stage.

use crate::lane_cache;
use crate::packet::Packet;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};

/// Packets that a burst holds at most.
pub const BURST_CAPACITY: usize = 256;

/// How many packets a burst gathers unless it is told otherwise: enough to hide a lookup's cache misses behind
/// each other, few enough that their headers and first lines stay in a 32 KiB first-level cache.
pub const BURST_DEFAULT: usize = 64;

/// Up to [`BURST_CAPACITY`] packets, freed in bulk when the burst is dropped.
///
/// It is a slice of packets: iterate, index, sort, swap. `limit` is how many a stage should gather in it.
pub struct Burst {
    length: usize,
    limit: usize,
    packets: [MaybeUninit<Packet>; BURST_CAPACITY],
}

/// Bytes of data in all of `packets` together.
#[inline]
pub fn bytes_of(packets: &[Packet]) -> u64 {
    // Four in each turn: what counts the turns is half the work else.
    let (fours, rest) = packets.as_chunks();
    let length = |packet: &Packet| packet.packet_length() as u64;
    let four =
        |[one, two, three, four]: &[Packet; 4]| length(one) + length(two) + length(three) + length(four);
    let bytes = fours.iter().map(four);
    bytes.sum::<u64>() + rest.iter().map(length).sum::<u64>()
}

impl Default for Burst {
    fn default() -> Self {
        Self::new()
    }
}

impl Burst {
    /// An empty burst that gathers [`BURST_DEFAULT`] packets.
    pub const fn new() -> Self {
        Self::with_limit(BURST_DEFAULT)
    }

    /// An empty burst that gathers up to `limit` packets; a limit outside 1..=[`BURST_CAPACITY`] is brought to the
    /// nearest inside.
    pub const fn with_limit(limit: usize) -> Self {
        let limit = if limit == 0 {
            1
        } else if limit > BURST_CAPACITY {
            BURST_CAPACITY
        } else {
            limit
        };
        Self { length: 0, limit, packets: [const { MaybeUninit::uninit() }; BURST_CAPACITY] }
    }

    /// How many packets the burst gathers.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// How many more packets the burst gathers.
    #[inline]
    pub const fn space(&self) -> usize {
        self.limit.saturating_sub(self.length)
    }

    /// Bytes of data in all packets together.
    #[inline]
    pub fn bytes(&self) -> u64 {
        bytes_of(self)
    }

    /// Appends a packet.
    ///
    /// # Errors
    /// The packet, if the burst has no space.
    #[inline]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        if self.space() == 0 {
            return Err(packet);
        }
        // SAFETY: there is space.
        unsafe { self.push_unchecked(packet) };
        Ok(())
    }

    /// # Safety
    /// `space()` is not zero.
    #[inline(always)]
    pub(crate) unsafe fn push_unchecked(&mut self, packet: Packet) {
        debug_assert!(self.length < self.limit);
        // SAFETY: length < limit ≤ capacity.
        unsafe { self.packets.get_unchecked_mut(self.length) }.write(packet);
        self.length += 1;
    }

    /// Appends packets without touching the length in between: a length in memory that each packet reads and
    /// writes would make every packet wait for the one before it.
    ///
    /// # Safety
    /// `space()` is at least the iterator's length, and the iterator does not panic.
    #[inline(always)]
    pub(crate) unsafe fn extend_unchecked(&mut self, packets: impl ExactSizeIterator<Item = Packet>) {
        let count = packets.len();
        debug_assert!(count <= self.space());
        // SAFETY: length + count ≤ limit ≤ capacity.
        let cells = unsafe { self.packets.get_unchecked_mut(self.length..self.length + count) };
        for (cell, packet) in cells.iter_mut().zip(packets) {
            cell.write(packet);
        }
        self.length += count;
    }

    /// Where the next packet goes, and those behind it.
    #[inline(always)]
    pub(crate) fn end(&mut self) -> *mut Packet {
        // SAFETY: the length is at most the capacity.
        unsafe { self.packets.as_mut_ptr().add(self.length).cast() }
    }

    /// Takes in packets that were written to [`end`](Self::end).
    ///
    /// # Safety
    /// They are as many, and no more than `space()`.
    #[inline(always)]
    pub(crate) unsafe fn grow_unchecked(&mut self, count: usize) {
        debug_assert!(count <= self.space());
        self.length += count;
    }

    /// Appends packets of which it isn't known how many they are; returns how many.
    ///
    /// # Safety
    /// They are no more than `space()`, and the iterator does not panic.
    #[inline(always)]
    pub(crate) unsafe fn append_unchecked(&mut self, packets: impl Iterator<Item = Packet>) -> usize {
        let space = self.space();
        let mut count = 0;
        // SAFETY: the length is at most the capacity.
        let cells = unsafe { self.packets.as_mut_ptr().add(self.length) };
        // The iterator's own loop: it is one without branches for what it leaves out.
        packets.for_each(|packet| {
            debug_assert!(count < space);
            // SAFETY: count < space, so there is a cell.
            unsafe { cells.add(count).write(MaybeUninit::new(packet)) };
            count += 1;
        });
        self.length += count;
        count
    }

    /// Takes the last packet.
    #[inline]
    pub fn pop(&mut self) -> Option<Packet> {
        self.length = self.length.checked_sub(1)?;
        // SAFETY: the cells below the old length hold packets; this one is above the new length now.
        Some(unsafe { self.packets[self.length].assume_init_read() })
    }

    /// Frees all but the first `length` packets.
    pub fn truncate(&mut self, length: usize) {
        if length < self.length {
            let rest = length..std::mem::replace(&mut self.length, length);
            // SAFETY: the cells `rest` held packets, and are above the new length now: nobody else frees them.
            unsafe { lane_cache::free(packets(&self.packets[rest])) };
        }
    }

    /// Frees all packets in bulk.
    #[inline]
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Takes the packets out one by one, from the front; those not taken are freed with the iterator.
    #[inline]
    pub fn drain(&mut self) -> Drain<'_> {
        let end = std::mem::take(&mut self.length);
        Drain { burst: self, next: 0, end }
    }

    /// Frees the first `count` packets in bulk and moves the rest to the front.
    pub fn free_front(&mut self, count: usize) {
        let count = count.min(self.length);
        // SAFETY: the cells held packets; `close_gap` takes them out of the burst before anyone else sees them.
        unsafe {
            lane_cache::free(packets(&self.packets[..count]));
            self.close_gap(count);
        }
    }

    /// Moves up to `other.space()` packets from the front of this burst to the end of `other`; returns how many.
    pub fn move_to(&mut self, other: &mut Self) -> usize {
        self.move_front_to(BURST_CAPACITY, other)
    }

    /// The same, of no more than the first `most` packets.
    pub fn move_front_to(&mut self, most: usize, other: &mut Self) -> usize {
        let count = self.length.min(other.space()).min(most);
        // SAFETY: the first `count` cells hold packets, `other` has space for them, and `close_gap` takes them out
        // here, so each is in one burst only.
        unsafe {
            let target = other.packets.as_mut_ptr().add(other.length);
            std::ptr::copy_nonoverlapping(self.packets.as_ptr(), target, count);
            other.length += count;
            self.close_gap(count);
        }
        count
    }

    /// Takes the first packet; the others move up.
    pub fn take_first(&mut self) -> Option<Packet> {
        if self.length == 0 {
            return None;
        }
        // SAFETY: the first cell holds a packet, and `close_gap` takes it out of the burst here.
        unsafe {
            let packet = self.packets[0].assume_init_read();
            self.close_gap(1);
            Some(packet)
        }
    }

    /// Keeps the packets for which `keep` says `true`, in their order, and frees the others.
    pub fn retain(&mut self, mut keep: impl FnMut(&mut Packet) -> bool) {
        let mut kept = Self::with_limit(self.limit);
        for mut packet in self.drain() {
            if keep(&mut packet) {
                // SAFETY: no more packets come in than were in a burst of the same capacity.
                unsafe { kept.push_unchecked_beyond_limit(packet) };
            }
        }
        std::mem::swap(self, &mut kept);
    }

    /// # Safety
    /// The burst holds fewer than [`BURST_CAPACITY`] packets.
    unsafe fn push_unchecked_beyond_limit(&mut self, packet: Packet) {
        // SAFETY: the caller vouches for the bound.
        unsafe { self.packets.get_unchecked_mut(self.length) }.write(packet);
        self.length += 1;
    }

    /// Moves the packets behind the first `count` to the front.
    ///
    /// # Safety
    /// `count` is at most the length, and the first `count` packets have been moved out.
    unsafe fn close_gap(&mut self, count: usize) {
        self.length -= count;
        // SAFETY: count + new length is the old length, which is at most the capacity.
        unsafe {
            let base = self.packets.as_mut_ptr();
            std::ptr::copy(base.add(count), base, self.length);
        }
    }

    /// Writes the names of the packets from number `start` on to `names`, as many as that has space for, of which there must
    /// be so many; their buffers stay taken.
    #[cfg(not(loom))]
    pub(crate) fn names(&self, start: usize, names: &mut [u32]) {
        debug_assert!(start + names.len() <= self.length);
        for (name, packet) in names.iter_mut().zip(self.iter().skip(start)) {
            *name = packet.id().bits();
        }
    }

    /// Forgets the first `count` packets without freeing them.
    ///
    /// # Safety
    /// `count` is at most the length, and the names of those packets are held by someone who will free them.
    pub(crate) unsafe fn forget_front(&mut self, count: usize) {
        // SAFETY: passed on to the caller.
        unsafe { self.close_gap(count) };
    }
}

/// The packets in cells that hold one each.
///
/// # Safety
/// Every cell holds a packet.
#[inline(always)]
const unsafe fn packets(cells: &[MaybeUninit<Packet>]) -> &[Packet] {
    // SAFETY: MaybeUninit<Packet> has the layout of Packet, and the caller vouches for the contents.
    unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), cells.len()) }
}

impl Deref for Burst {
    type Target = [Packet];

    #[inline(always)]
    fn deref(&self) -> &[Packet] {
        // SAFETY: the cells below the length hold packets, and the length is at most the capacity.
        unsafe { std::slice::from_raw_parts(self.packets.as_ptr().cast(), self.length) }
    }
}

impl DerefMut for Burst {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Packet] {
        // SAFETY: as in `deref`; `&mut self` makes the slice the only one.
        unsafe { std::slice::from_raw_parts_mut(self.packets.as_mut_ptr().cast(), self.length) }
    }
}

impl Drop for Burst {
    #[inline]
    fn drop(&mut self) {
        self.clear();
    }
}

impl std::fmt::Debug for Burst {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Burst")
            .field("limit", &self.limit)
            .field("packets", &&**self)
            .finish_non_exhaustive()
    }
}

/// Iterator that takes the packets out of a [`Burst`].
#[derive(Debug)]
pub struct Drain<'a> {
    burst: &'a mut Burst,
    next: usize,
    end: usize,
}

impl Iterator for Drain<'_> {
    type Item = Packet;

    #[inline(always)]
    fn next(&mut self) -> Option<Packet> {
        if self.next == self.end {
            return None;
        }
        // SAFETY: the cells next..end held packets when the burst's length was set to zero; each is read once.
        let packet = unsafe { self.burst.packets.get_unchecked(self.next).assume_init_read() };
        self.next += 1;
        Some(packet)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.next, Some(self.end - self.next))
    }
}

impl ExactSizeIterator for Drain<'_> {}

impl Drop for Drain<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the cells next..end hold packets that were not taken, and the burst's length is zero.
        unsafe { lane_cache::free(packets(&self.burst.packets[self.next..self.end])) };
    }
}
