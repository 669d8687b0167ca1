//! A pool's memory as a driver sees it that shares it with the kernel, a device or another process.
//!
//! Such a driver passes buffers on by their offset in the region and gets them back by it. In between they are raw: no
//! packet owns them, they count as taken in the pool's [`Ledger`](crate::Ledger), and the driver must remember which they
//! are, because only those may be made packets again or be freed, once each.
//!
//! All that is done here for each packet is done in one pass, in which the driver's own part is inlined.

use crate::burst::Burst;
use crate::header::{HEADER_BYTES, Header, Identity};
use crate::id::BufferId;
use crate::lane_cache;
use crate::packet::Packet;
use crate::pool::Pool;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use warmlane_sys::pages::Mapping;

/// Bytes at the start of each buffer that belong to the packet's metadata: nobody but this crate may write there.
pub const METADATA_BYTES: usize = HEADER_BYTES;

/// Data in a buffer: which buffer, and where in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The buffer's index in its pool.
    pub index: u32,
    /// First byte of data, counted from the start of the buffer.
    pub offset: u16,
    /// Bytes of data.
    pub length: u16,
}

/// Where a region's buffers start.
#[derive(Clone, Copy, Debug)]
pub struct BufferOffsets {
    stride: u64,
    buffers: u64,
    /// 2^64 / (stride in lines), rounded up: multiplying by it and keeping the upper half divides exactly, as long
    /// as the dividend is below 2^64 / stride (Granlund and Montgomery, PLDI 1994).
    inverse: u64,
}

impl BufferOffsets {
    /// Where the buffer starts, in bytes from the start of the region.
    #[inline(always)]
    pub const fn of(&self, index: u32) -> u64 {
        index as u64 * self.stride
    }

    /// Which buffer the byte at `offset` is in, and how far behind its start; `None` if that is no buffer.
    #[inline(always)]
    pub const fn locate(&self, offset: u64) -> Option<(u32, u64)> {
        let lines = offset / HEADER_BYTES as u64;
        // Regions have at most 2^24 buffers of 2^16 bytes: of any offset that is in there the quotient is exact, and of one
        // behind it is at least the number of buffers.
        let index = ((lines as u128 * self.inverse as u128) >> 64) as u64;
        if index >= self.buffers {
            return None;
        }
        Some((index as u32, offset - index * self.stride))
    }
}

/// One pool's memory. Keeps the pool alive.
#[derive(Clone, Debug)]
pub struct Region {
    pool: Pool,
    offsets: BufferOffsets,
    start: u16,
    end: u16,
    slot: u8,
    /// What the identity of a single buffer of the pool looks like, but for the index.
    single: u64,
}

impl Pool {
    /// The pool's memory, for a driver that shares it.
    pub fn region(&self) -> Region {
        let stride = self.stride() as u64;
        let config = self.config();
        Region {
            pool: self.clone(),
            offsets: BufferOffsets {
                stride,
                buffers: u64::from(self.buffers()),
                // A stride is at least two lines: the header's and the data's.
                inverse: (u64::MAX / (stride / HEADER_BYTES as u64)) + 1,
            },
            start: (HEADER_BYTES + config.headroom) as u16,
            end: (HEADER_BYTES + config.headroom + config.data_size) as u16,
            slot: self.shared().slot,
            single: Identity::single(BufferId::new(self.shared().slot, 0)).bits(),
        }
    }
}

impl Region {
    /// The pool that the memory belongs to.
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Where the memory starts; a multiple of the page size.
    pub fn address(&self) -> NonNull<u8> {
        self.pool.shared().memory.start()
    }

    /// The memory's file, to be mapped by another process: its first byte is that of buffer 0. It is sealed, so that nobody
    /// can cut it short.
    ///
    /// Whoever has the descriptor can write to all buffers at any time, [headers](METADATA_BYTES) included. Pass it only to
    /// a process that is trusted like this one; with any other, share a
    /// [`Mapping`](warmlane_sys::pages::Mapping) of its own and copy.
    ///
    /// There is none if another process has [lent](crate::LentMemory) it.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.pool.shared().memory.mapping().map(Mapping::file)
    }

    /// Bytes of memory, whole pages.
    pub fn length(&self) -> usize {
        self.pool.shared().memory.length()
    }

    /// Where the buffers start. A copy: in a loop that also writes to memory it stays in registers.
    pub const fn offsets(&self) -> BufferOffsets {
        self.offsets
    }

    /// Bytes from one buffer to the next.
    pub const fn stride(&self) -> usize {
        self.offsets.stride as usize
    }

    /// First byte of data in a fresh buffer, behind the headroom, counted from the start of the buffer.
    pub const fn start(&self) -> u16 {
        self.start
    }

    /// First byte behind a buffer's data, counted from the start of the buffer.
    pub const fn end(&self) -> usize {
        self.end as usize
    }

    /// Bytes for data behind the headroom.
    pub const fn data_size(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// How many buffers there are.
    pub const fn buffers(&self) -> u32 {
        self.offsets.buffers as u32
    }

    /// Whether all buffers of the packet are this pool's.
    pub fn holds_chain(&self, packet: &Packet) -> bool {
        packet.segment_ids().all(|id| id.slot() == self.slot)
    }

    /// Takes free buffers and writes their names to the front of `indices`, as many as fit and are there, as if they were
    /// taken as packets and then [made raw](Self::packets_into_raw). Returns how many.
    ///
    /// They stay taken until [`packets_from_raw`](Self::packets_from_raw) or [`free_raw`](Self::free_raw). What isn't there does not count as
    /// refused: no packet waits for it.
    #[inline]
    pub fn take_raw(&self, indices: &mut [u32]) -> usize {
        lane_cache::take_indices(&self.pool, indices)
    }

    /// Takes up to `limit` packets from the front of `burst`, after telling `use_packet` of each where it is. It stops at
    /// the first that is not of one segment in one of this pool's buffers, or that `use_packet` does not want. Returns how
    /// many.
    ///
    /// Their buffers stay taken until [`packets_from_raw`](Self::packets_from_raw) or [`free_raw`](Self::free_raw).
    #[inline(always)]
    pub fn packets_into_raw(
        &self,
        burst: &mut Burst,
        limit: usize,
        mut use_packet: impl FnMut(&Packet, Span) -> bool,
    ) -> usize {
        let single = self.single;
        let mut count = 0;
        for packet in burst.iter().take(limit) {
            if !is_single(single, packet) || !use_packet(packet, packet.span()) {
                break;
            }
            count += 1;
        }
        // SAFETY: count is at most the length; who called holds the names now, and can only turn them into packets
        // again through functions that make it vouch for each.
        unsafe { burst.forget_front(count) };
        count
    }

    /// Appends a packet to `burst` for each of `spans`, with clean metadata. Returns how many.
    ///
    /// # Safety
    /// Each span's buffer was [made raw](Self::packets_into_raw) or [taken](Self::take_raw), not made a packet or freed since, and
    /// nobody else writes to it any more; the span lies between [`METADATA_BYTES`] and [`end`](Self::end). There are no more
    /// than `burst.space()`, and the iterator does not panic.
    #[inline(always)]
    pub unsafe fn packets_from_raw(&self, spans: impl Iterator<Item = Span>, burst: &mut Burst) -> usize {
        // SAFETY: the caller's. Identities are those of one segment, as when they were made raw or free.
        unsafe { self.make_packets::<false>(spans, burst) }
    }

    /// As [`packets_from_raw`](Self::packets_from_raw), of buffers that another process has had, which has a
    /// [pool over the same memory](crate::LentMemory).
    ///
    /// # Safety
    /// As there; and the other process has passed the buffers to this one.
    #[inline(always)]
    pub unsafe fn packets_from_other(&self, spans: impl Iterator<Item = Span>, burst: &mut Burst) -> usize {
        // SAFETY: the caller's.
        unsafe { self.make_packets::<true>(spans, burst) }
    }

    /// `CLAIM`: the headers say that the buffers are of the other process's pool, and have to be told whose they are.
    ///
    /// # Safety
    /// As [`packets_from_raw`](Self::packets_from_raw). Without `CLAIM` each buffer's identity is that of one segment of this pool.
    #[inline(always)]
    unsafe fn make_packets<const CLAIM: bool>(
        &self,
        spans: impl Iterator<Item = Span>,
        burst: &mut Burst,
    ) -> usize {
        let (base, offsets, clean) = (self.address(), self.offsets, self.pool.shared().clean);
        let (end, single) = (self.end, self.single);
        let packets = spans.map(|span| {
            debug_assert!(usize::from(span.offset) >= HEADER_BYTES);
            debug_assert!(u32::from(span.offset) + u32::from(span.length) <= u32::from(end));
            // SAFETY: the pool is alive (we have a handle), and the caller vouches that the index is one of its
            // buffers that nobody owns, so base + index × stride is its header.
            unsafe {
                let header = base.add(offsets.of(span.index) as usize).cast::<Header>();
                clean.write_with(header.cast(), span.offset, span.length);
                if CLAIM {
                    claim(header, single, span.index);
                }
                Packet::from_header(header)
            }
        });
        // SAFETY: the caller's, and nothing here panics.
        unsafe { burst.append_unchecked(packets) }
    }

    /// Frees raw buffers.
    ///
    /// # Safety
    /// Each was [made raw](Self::packets_into_raw) or [taken](Self::take_raw), not made a packet or freed since, and nobody else writes
    /// to it any more.
    #[inline]
    pub unsafe fn free_raw(&self, indices: &[u32]) {
        // SAFETY: the caller's; a raw buffer is of one segment.
        unsafe { lane_cache::free_indices(self.slot, indices) };
    }

    /// As [`free_raw`](Self::free_raw), of buffers that another process has had, which has a
    /// [pool over the same memory](crate::LentMemory).
    ///
    /// # Safety
    /// As there; and the other process has passed the buffers to this one.
    #[inline]
    pub unsafe fn free_from_other(&self, indices: &[u32]) {
        let base = self.address();
        for &index in indices {
            // SAFETY: the caller vouches that it is one of the pool's buffers and nobody's, so that its header is there.
            unsafe { claim(base.add(self.offsets.of(index) as usize).cast(), self.single, index) };
        }
        // SAFETY: the caller's; identities are those of one segment now.
        unsafe { lane_cache::free_indices(self.slot, indices) };
    }

    /// Strikes so many raw buffers off the books: they count as freed, and are never handed out again.
    ///
    /// # Safety
    /// They were raw, and are not made packets or freed any more.
    pub unsafe fn abandon_raw(&self, count: usize) {
        self.pool.shared().free_list.locked.lock().freed += count as u64;
    }
}

/// Writes into a header that its buffer is of one segment, and of the pool whose single buffers are alike in `single`.
///
/// # Safety
/// The header is mapped, and nobody else uses it.
#[inline(always)]
unsafe fn claim(header: NonNull<Header>, single: u64, index: u32) {
    // SAFETY: the caller's; an identity is one word.
    unsafe { (&raw mut (*header.as_ptr()).identity).cast::<u64>().write(single | u64::from(index)) };
}

/// Whether the packet is of one segment, in a buffer of the pool whose single buffers are alike in `single`.
#[inline(always)]
fn is_single(single: u64, packet: &Packet) -> bool {
    (packet.identity().bits() ^ single) & Identity::POOL_MASK == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PoolConfig;
    use proptest::prelude::*;

    /// With a stride that is given, for Miri would plan one for minutes.
    fn pool(stride: usize) -> Pool {
        Pool::new(&PoolConfig { buffers: 100, stride: Some(stride), ..PoolConfig::default() }).unwrap()
    }

    proptest! {
        #[test]
        fn places_are_found_again(index in 0_u32..100, within in 0_usize..2304, lines in 35_usize..80) {
            let region = pool(lines * 64).region();
            let within = within % region.stride();
            let offset = region.offsets().of(index) + within as u64;
            prop_assert_eq!(region.offsets().locate(offset), Some((index, within as u64)));
        }

        #[test]
        fn other_places_are_none(offset in 100_u64 * 2304..) {
            prop_assert_eq!(pool(2304).region().offsets().locate(offset), None);
        }
    }

    #[test]
    fn raw_buffers_become_packets_again() {
        let pool = pool(2304);
        let region = pool.region();
        let mut burst = Burst::new();
        pool.take_burst(&mut burst, 3);
        burst[1].fill(b"hello").unwrap();
        burst[1].set_mark(7);
        assert_eq!(region.packets_into_raw(&mut burst, 8, |_, span| span.index > 1_000), 0, "not wanted");
        let mut spans = Vec::new();
        let mut note = |_: &Packet, span| {
            spans.push(span);
            true
        };
        assert_eq!(region.packets_into_raw(&mut burst, 2, &mut note), 2, "no more than asked for");
        assert_eq!(region.packets_into_raw(&mut burst, 8, &mut note), 1);
        assert!(burst.is_empty());
        assert_eq!(pool.ledger().outstanding(), 3);
        let back = [Span { length: 4, offset: spans[1].offset + 1, ..spans[1] }];
        // SAFETY: made raw just above; the others are freed below.
        unsafe { region.packets_from_raw(back.into_iter(), &mut burst) };
        assert_eq!((burst[0].data(), burst[0].packet_length()), (&b"ello"[..], 4));
        assert_eq!((burst[0].mark(), burst[0].segments()), (0, 1));
        // SAFETY: as above.
        unsafe { region.free_raw(&[spans[0].index, spans[2].index]) };
        drop(burst);
        assert_eq!(pool.ledger().outstanding(), 0);
    }

    #[test]
    fn free_buffers_are_taken_by_name() {
        let pool = pool(2304);
        let region = pool.region();
        for lane in [None, Some(pool.attach().unwrap())] {
            let mut indices = vec![0; 140];
            assert_eq!(region.take_raw(&mut indices[..70]), 70);
            assert_eq!(region.take_raw(&mut indices[70..]), 30, "no more than there are");
            assert_eq!(region.take_raw(&mut []), 0);
            indices.truncate(100);
            indices.sort_unstable();
            assert!(indices.iter().copied().eq(0..100));
            assert_eq!((pool.ledger().outstanding(), pool.take().is_none()), (100, true));
            let whole = Span { index: 5, offset: 64, length: 3 };
            let mut burst = Burst::new();
            // SAFETY: taken just above; the others are freed below.
            assert_eq!(unsafe { region.packets_from_raw([whole].into_iter(), &mut burst) }, 1);
            assert_eq!((burst[0].packet_length(), burst[0].segments()), (3, 1));
            drop(burst);
            indices.remove(5);
            // SAFETY: as above.
            unsafe { region.free_raw(&indices) };
            assert_eq!(pool.ledger().outstanding(), 0);
            drop(lane);
        }
    }

    #[test]
    fn chains_and_strangers_stay() {
        let (pool, other) = (pool(2304), pool(2304));
        let region = pool.region();
        let mut burst = Burst::new();
        pool.take_burst(&mut burst, 2);
        burst[1].chain(pool.take().unwrap()).unwrap();
        let mut indices = Vec::new();
        let mut take = |_: &Packet, span: Span| {
            indices.push(span.index);
            true
        };
        assert_eq!(region.packets_into_raw(&mut burst, 8, &mut take), 1);
        assert_eq!(burst.len(), 1);
        burst.clear();
        let mut strange = Burst::new();
        other.take_burst(&mut strange, 1);
        assert_eq!(region.packets_into_raw(&mut strange, 8, |_, _| true), 0);
        let mut mixed = pool.take().unwrap();
        assert!(region.holds_chain(&mixed));
        mixed.chain(other.take().unwrap()).unwrap();
        assert!(!region.holds_chain(&mixed));
        drop(mixed);
        // SAFETY: made raw above.
        unsafe { region.free_raw(&indices) };
        assert_eq!(pool.ledger().outstanding(), 0);
    }
}
