//! A pool's memory as a driver sees it that shares it with the kernel, a device or another process.
//!
//! Such a driver hands buffers out by their place in the region and gets them back by it. In between nobody here
//! owns them: they count as taken in the pool's [`Ledger`](crate::Ledger), and the driver must remember which they
//! are, because only those may be taken back, once each.

use crate::burst::{BURST_CAPACITY, Burst};
use crate::header::{HEADER_BYTES, NO_NEXT, Volatile};
use crate::id::BufferId;
use crate::packet::Packet;
use crate::pool::Pool;
use crate::register;
use std::ptr::NonNull;

/// Bytes at the start of each buffer that belong to the packet's metadata: nobody but this room may write there.
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

/// One pool's memory. Keeps the pool alive.
#[derive(Clone, Debug)]
pub struct Region {
    pool: Pool,
    stride: usize,
    end: u16,
    /// 2^64 / (stride in lines), rounded up: multiplying by it and keeping the upper half divides exactly, as long
    /// as the dividend is below 2^64 / stride (Granlund and Montgomery, PLDI 1994).
    inverse: u64,
}

impl Pool {
    /// The pool's memory, for a driver that shares it.
    pub fn region(&self) -> Region {
        let stride = self.stride();
        let config = self.config();
        let lines = (stride / HEADER_BYTES) as u64;
        Region {
            pool: self.clone(),
            stride,
            end: (HEADER_BYTES + config.headroom + config.room) as u16,
            // A stride is at least two lines: the header's and the room's.
            inverse: (u64::MAX / lines) + 1,
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
        self.pool.shared().mapping.as_ptr()
    }

    /// Bytes of memory, whole pages.
    pub fn length(&self) -> usize {
        self.pool.shared().mapping.length()
    }

    /// Bytes from one buffer to the next.
    pub const fn stride(&self) -> usize {
        self.stride
    }

    /// First byte behind a buffer's room, counted from the start of the buffer.
    pub const fn end(&self) -> usize {
        self.end as usize
    }

    /// Bytes of room behind the headroom.
    pub fn room(&self) -> usize {
        self.pool.room()
    }

    /// How many buffers there are.
    pub fn buffers(&self) -> u32 {
        self.pool.buffers()
    }

    /// Where the buffer starts, in bytes from the start of the region.
    #[inline(always)]
    pub const fn place(&self, index: u32) -> u64 {
        index as u64 * self.stride as u64
    }

    /// Which buffer the byte at `place` is in, and how far behind its start; `None` if that is no buffer.
    #[inline(always)]
    pub fn locate(&self, place: u64) -> Option<(u32, usize)> {
        // Regions have at most 2^24 buffers of 2^16 bytes.
        if place >> 40 != 0 {
            return None;
        }
        let lines = place / HEADER_BYTES as u64;
        let index = ((u128::from(lines) * u128::from(self.inverse)) >> 64) as u32;
        (index < self.buffers()).then(|| (index, (place - self.place(index)) as usize))
    }

    /// Whether the packet can be [handed out](Self::hand_out): one segment, in one of this pool's buffers.
    #[inline(always)]
    pub fn holds(&self, packet: &Packet) -> bool {
        let identity = packet.identity();
        identity.id().slot() == self.pool.shared().slot && identity.next() == NO_NEXT
    }

    /// Whether all buffers of the packet are this pool's.
    pub fn holds_chain(&self, packet: &Packet) -> bool {
        packet.segment_ids().all(|id| id.slot() == self.pool.shared().slot)
    }

    /// Takes packets from the front of `burst`, up to as many as `spans` has room for, and says where they are. It
    /// stops at the first that it does not [hold](Self::holds). Returns how many.
    ///
    /// Their buffers stay taken until [`take_back`](Self::take_back) or [`free`](Self::free).
    #[inline]
    pub fn hand_out(&self, burst: &mut Burst, spans: &mut [Span]) -> usize {
        let mut count = 0;
        for (packet, span) in burst.iter().zip(spans.iter_mut()) {
            if !self.holds(packet) {
                break;
            }
            *span = packet.span();
            count += 1;
        }
        // SAFETY: count is at most the length; who called holds the names now, and can only turn them into packets
        // again through functions that make it vouch for each.
        unsafe { burst.forget_front(count) };
        count
    }

    /// Appends a packet to `burst` for each of `spans`, with clean metadata.
    ///
    /// Spans beyond the burst's room are left: at most `burst.room()` are taken back. Returns how many.
    ///
    /// # Safety
    /// Each span's buffer was [handed out](Self::hand_out) and not taken back or freed since, and nobody else writes
    /// to it any more; the span lies between [`METADATA_BYTES`] and [`end`](Self::end).
    #[inline]
    pub unsafe fn take_back(&self, spans: &[Span], burst: &mut Burst) -> usize {
        let count = spans.len().min(burst.room());
        let (slot, clean) = (self.pool.shared().slot, self.pool.shared().clean);
        let packets = spans[..count].iter().map(|span| {
            debug_assert!(usize::from(span.offset) >= HEADER_BYTES);
            debug_assert!(usize::from(span.offset) + usize::from(span.length) <= self.end());
            // SAFETY: the pool is alive (we have a handle), and the caller vouches that the index is one of its
            // buffers that nobody owns.
            unsafe {
                let header = register::header(BufferId::new(slot, span.index));
                let volatile = Volatile { data_offset: span.offset, ..clean };
                header.cast::<Volatile>().write(volatile);
                header.cast::<u64>().write(volatile.first_word(span.length));
                Packet::from_header(header)
            }
        });
        // SAFETY: count is at most the room, and the closure does not panic.
        unsafe { burst.extend_unchecked(packets) };
        count
    }

    /// Frees buffers that were handed out.
    ///
    /// # Safety
    /// Each was [handed out](Self::hand_out) and not taken back or freed since, and nobody else writes to it any more.
    #[inline]
    pub unsafe fn free(&self, indices: &[u32]) {
        let slot = self.pool.shared().slot;
        let mut burst = Burst::with_limit(BURST_CAPACITY);
        for chunk in indices.chunks(BURST_CAPACITY) {
            let packets = chunk.iter().map(|&index| {
                // SAFETY: as in `take_back`; the header still says "one segment", as when it was handed out.
                unsafe { Packet::from_header(register::header(BufferId::new(slot, index))) }
            });
            // SAFETY: the burst is empty and has room for a chunk.
            unsafe { burst.extend_unchecked(packets) };
            burst.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PoolConfig;
    use proptest::prelude::*;

    fn pool(stride: Option<usize>) -> Pool {
        Pool::new(&PoolConfig { buffers: 100, stride, ..PoolConfig::default() }).unwrap()
    }

    proptest! {
        #[test]
        fn places_are_found_again(index in 0_u32..100, within in 0_usize..2304, lines in 35_usize..80) {
            let region = pool(Some(lines * 64)).region();
            let within = within % region.stride();
            let place = region.place(index) + within as u64;
            prop_assert_eq!(region.locate(place), Some((index, within)));
        }

        #[test]
        fn other_places_are_none(place in 100_u64 * 2304..) {
            prop_assert_eq!(pool(Some(2304)).region().locate(place), None);
        }
    }

    #[test]
    fn what_is_handed_out_comes_back() {
        let pool = pool(None);
        let region = pool.region();
        let mut burst = Burst::new();
        pool.take_burst(&mut burst, 3);
        burst[1].fill(b"hello").unwrap();
        burst[1].set_rss_hash(7);
        let mut spans = [Span::default(); 8];
        assert_eq!(region.hand_out(&mut burst, &mut spans), 3);
        assert!(burst.is_empty());
        assert_eq!(pool.ledger().outstanding(), 3);
        let back = [Span { length: 4, offset: spans[1].offset + 1, ..spans[1] }];
        // SAFETY: handed out just above; the others are freed below.
        unsafe { region.take_back(&back, &mut burst) };
        assert_eq!((burst[0].data(), burst[0].packet_length()), (&b"ello"[..], 4));
        assert_eq!((burst[0].rss_hash(), burst[0].segments()), (0, 1));
        // SAFETY: as above.
        unsafe { region.free(&[spans[0].index, spans[2].index]) };
        drop(burst);
        assert_eq!(pool.ledger().outstanding(), 0);
    }

    #[test]
    fn chains_and_strangers_stay() {
        let (pool, other) = (pool(None), pool(None));
        let region = pool.region();
        let mut burst = Burst::new();
        pool.take_burst(&mut burst, 2);
        burst[1].chain(pool.take().unwrap()).unwrap();
        let mut spans = [Span::default(); 8];
        assert_eq!(region.hand_out(&mut burst, &mut spans), 1);
        assert_eq!(burst.len(), 1);
        burst.clear();
        assert!(!region.holds(&other.take().unwrap()));
        let mut mixed = pool.take().unwrap();
        assert!(region.holds_chain(&mixed));
        mixed.chain(other.take().unwrap()).unwrap();
        assert!(!region.holds_chain(&mixed));
        drop(mixed);
        // SAFETY: handed out above.
        unsafe { region.free(&[spans[0].index]) };
        assert_eq!(pool.ledger().outstanding(), 0);
    }
}
