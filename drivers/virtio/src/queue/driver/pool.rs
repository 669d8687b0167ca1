//! Buffers of a pool that the device has in place of the ring's own: it fills them, and sends what is in them, where they are. So nothing is copied.

use super::{Driver, DriverRing, Lent, Mine, Post};
use crate::queue::receive::{Filled, HASH, read_once};
use crate::queue::side::{Broken, HEADS};
use crate::ring::WRITE;
use std::ptr::NonNull;
use std::sync::Arc;
use warmlane_driver_common::SharedPool;
use warmlane_driver_common::virtio_net::HEADER_LENGTH;
use warmlane_mem::{Burst, METADATA_BYTES, Region, Span};
use warmlane_sys::prefetch::{prefetch_read_at, prefetch_write_at};

/// No buffer has this number.
const NONE: u32 = u32::MAX;

/// Which buffers of the pool the device has.
#[derive(Debug)]
pub(crate) struct PoolBuffers {
    pool: Arc<SharedPool>,
    /// By the names of the ring's own, in whose place they are. As many as the ring has descriptors, a power of two.
    indices: Box<[u32]>,
    /// Bytes of what stands in front of a packet.
    header: u16,
    /// Those in hand.
    hand: Box<Hand>,
}

/// Buffers between the device and packets, for the length of a burst.
#[derive(Debug)]
struct Hand {
    names: [u16; HEADS],
    spans: [Span; HEADS],
    indices: [u32; HEADS],
}

impl PoolBuffers {
    /// None yet, for a ring of so many descriptors. `None`: fresh buffers have no space for the header in front of their data.
    pub(crate) fn new(pool: &Arc<SharedPool>, size: u16, header: usize) -> Option<Self> {
        let space = usize::from(pool.region().start()) - METADATA_BYTES;
        let span = Span { index: 0, offset: 0, length: 0 };
        (header <= space).then(|| Self {
            pool: Arc::clone(pool),
            indices: vec![NONE; size.into()].into(),
            header: header as u16,
            hand: Box::new(Hand { names: [0; HEADS], spans: [span; HEADS], indices: [0; HEADS] }),
        })
    }

    /// Takes a fresh buffer for each name. Says whether there were so many.
    pub(super) fn fill(&mut self) -> bool {
        let taken = self.pool.region().take_raw(&mut self.indices);
        self.indices[taken..].fill(NONE);
        taken == self.indices.len()
    }

    /// Bytes that a fresh buffer has for a header and a packet.
    pub(super) fn room(&self) -> u32 {
        u32::from(self.header) + self.pool.region().data_size() as u32
    }

    /// Where the device finds the header that it writes to a fresh buffer.
    #[inline(always)]
    pub(super) fn address(&self, name: u16) -> u64 {
        let region = self.pool.region();
        let buffer = region.offsets().of(self.indices[usize::from(name) & (self.indices.len() - 1)]);
        self.pool.addresses().of(buffer + u64::from(region.start() - self.header))
    }

    /// Frees what the device had under these names, and is done with.
    pub(super) fn free(&mut self, names: impl Iterator<Item = u16>) {
        for name in names {
            let index = std::mem::replace(&mut self.indices[usize::from(name)], NONE);
            // What was copied was in a buffer of the ring's own.
            if index != NONE {
                // SAFETY: it was lent under one name, and was taken back just now; the device is done with it.
                unsafe { self.pool.region().free_raw(&[index]) };
            }
        }
    }
}

impl Drop for PoolBuffers {
    fn drop(&mut self) {
        let indices = self.indices.iter().copied().filter(|index| *index != NONE);
        // SAFETY: each was lent under one name, and not taken back.
        unsafe { self.pool.keep(indices) };
    }
}

impl<R: DriverRing> Driver<R> {
    /// Makes packets of what the device has filled, up to the first that isn't one buffer, and has it fill fresh buffers in their places. Returns how many, and whether
    /// there is one that isn't so.
    #[inline]
    pub(super) fn take_packets(&mut self, mut filled: Filled<'_>) -> Result<(usize, bool), Broken> {
        // What was left before comes first.
        if self.count_mine() > 0 {
            return Ok((0, true));
        }
        let most = filled.burst.space().min(HEADS) as u16;
        let Self { ring, mine, end, buffers, pool: Some(pool), .. } = self else { return Ok((0, false)) };
        let PoolBuffers { pool, indices, header, hand } = pool;
        let region = pool.region();
        let (base, offsets, start) = (region.address().as_ptr(), region.offsets(), region.start());
        let (room, is_in_order, first) = (buffers.room, buffers.is_in_order, *end);
        let least = u32::from(*header) + 1;
        let (mut count, mut has_other) = (0, false);
        let result = ring.take_used(most, |name, length| {
            has_other = true;
            let (Some(index), Some(span), Some(kept)) =
                (indices.get_mut(name as usize), hand.spans.get_mut(count), hand.names.get_mut(count))
            else {
                return false;
            };
            if *index == NONE || length.wrapping_sub(least) > room - least {
                return false;
            }
            let place = usize::from(first.wrapping_add(count as u16)) & (mine.len() - 1);
            if is_in_order && u32::from(mine[place].number) != name {
                return false;
            }
            *kept = name as u16;
            *span = Span { index: *index, offset: start, length: (length - least + 1) as u16 };
            // Metadata is written, and data read and rewritten, soon.
            let buffer = base.wrapping_add(offsets.of(*index) as usize);
            prefetch_write_at(buffer);
            prefetch_read_at(buffer.wrapping_add(usize::from(start)));
            *index = NONE;
            count += 1;
            has_other = false;
            true
        });
        if count == 0 {
            return result.map(|()| (0, has_other));
        }
        ring.acquire();
        let plain = plain_packets(region, *header, &hand.spans[..count], &mut filled);
        let taken = if result.is_ok() { region.take_raw(&mut hand.indices[..plain]) } else { 0 };
        let fresh = hand.names[..taken].iter().zip(&hand.indices);
        let (addresses, before) = (pool.addresses(), u64::from(start - *header));
        ring.post_fresh(fresh.map(|(&name, &index)| {
            if let Some(place) = indices.get_mut(usize::from(name)) {
                *place = index;
            }
            let address = addresses.of(offsets.of(index) + before);
            Post { number: name, name, address, length: room, flags: WRITE, next: 0 }
        }));
        // SAFETY: the device is done with the buffers, of which each was lent under one name and is not any more; what was written to them is no longer than they are, and
        // behind the header is data, with space for `data_size` bytes. There are no more than there is space for.
        unsafe { region.packets_from_raw(hand.spans[..taken].iter().copied(), filled.burst) };
        let taken_now = taken as u16;
        (self.first, self.end) = (self.first.wrapping_add(taken_now), self.end.wrapping_add(taken_now));
        self.keep_others(taken, count);
        result.map(|()| (taken, has_other || taken < count))
    }

    /// Puts those in hand from one place to another with what was used and is not taken yet, to be looked at closely.
    #[inline]
    fn keep_others(&mut self, from: usize, to: usize) {
        for number in from..to {
            let Some(pool) = &mut self.pool else { return };
            let (name, Span { index, length, .. }) = (pool.hand.names[number], pool.hand.spans[number]);
            let length = u32::from(pool.header) + u32::from(length);
            pool.indices[usize::from(name)] = index;
            self.lent[usize::from(name)].parts = 0;
            self.put_back(name, length);
        }
    }

    /// Takes back what was sent.
    #[inline]
    fn reap_sent(&mut self) -> Result<(), Broken> {
        loop {
            let Self { ring, mine, lent, end, buffers, pool: Some(pool), .. } = self else { return Ok(()) };
            let PoolBuffers { pool, indices, hand, .. } = pool;
            let (room, is_in_order, mask) = (buffers.room, buffers.is_in_order, mine.len() - 1);
            let (mut taken, mut count, mut place) = (0, 0, *end);
            let result = ring.take_used(HEADS as u16, |name, _| {
                let (Some(lent), Some(index)) = (lent.get_mut(name as usize), indices.get_mut(name as usize))
                else {
                    return false;
                };
                let mine = &mut mine[usize::from(place) & mask];
                if lent.parts != 1 || is_in_order && u32::from(mine.number) != name {
                    return false;
                }
                lent.parts = 0;
                *mine = Mine { number: name as u16, length: room };
                place = place.wrapping_add(1);
                // What was copied was in a buffer of the ring's own.
                hand.indices[count % HEADS] = *index;
                count += usize::from(*index != NONE);
                *index = NONE;
                taken += 1;
                true
            });
            *end = place;
            // SAFETY: each was lent under one name, and was taken back just now; the device is done with it.
            unsafe { pool.region().free_raw(&hand.indices[..count]) };
            result?;
            if taken < HEADS {
                break;
            }
        }
        // What isn't one descriptor.
        if self.ring.next_used()?.is_some() { self.reap(self.buffers.count) } else { Ok(()) }
    }

    /// Gives the device packets from the front of the burst where they are, up to the first that is not in one buffer of the pool, or leaves work to it. Returns how
    /// many, and their bytes.
    #[inline]
    pub(super) fn lend_front(&mut self, burst: &mut Burst) -> Result<(usize, u64), Broken> {
        // All that is done, so that buffers go round that are still in the cache.
        self.reap_sent()?;
        let space = usize::from(self.count_mine()).min(HEADS);
        let Self { ring, mine, lent, first, pool: Some(pool), .. } = self else { return Ok((0, 0)) };
        let PoolBuffers { pool, indices, header, hand } = pool;
        let (region, addresses, header) = (pool.region(), pool.addresses(), *header);
        let (base, offsets) = (region.address(), region.offsets());
        let least = METADATA_BYTES as u16 + header;
        let (mut found, mut bytes) = (0, 0);
        let count = region.packets_into_raw(burst, space, |packet, span| {
            let Some(kept) = hand.spans.get_mut(found) else { return false };
            if packet.has_work_left() || span.offset < least {
                return false;
            }
            let front = offsets.of(span.index) as usize + usize::from(span.offset - header);
            // SAFETY: the header is in the buffer, behind its metadata and in front of the packet's data; whoever has the packet has all of the buffer.
            unsafe { clear(base.add(front), header) };
            bytes += u64::from(span.length);
            *kept = span;
            found += 1;
            true
        });
        let mask = mine.len() - 1;
        let numbers = (0..).map(|ahead| mine[usize::from(first.wrapping_add(ahead)) & mask].number);
        ring.post_fresh(hand.spans[..count].iter().zip(numbers).map(|(span, number)| {
            if let (Some(index), Some(lent)) =
                (indices.get_mut(usize::from(number)), lent.get_mut(usize::from(number)))
            {
                (*index, *lent) = (span.index, Lent { parts: 1, ..Lent::default() });
            }
            let address = addresses.of(offsets.of(span.index) + u64::from(span.offset - header));
            let length = u32::from(header) + u32::from(span.length);
            Post { number, name: number, address, length, flags: 0, next: 0 }
        }));
        *first = first.wrapping_add(count as u16);
        Ok((count, bytes))
    }
}

/// How many packets in front are one buffer each, by their headers. Notes what those leave to do.
#[inline(always)]
fn plain_packets(region: &Region, header: u16, spans: &[Span], filled: &mut Filled<'_>) -> usize {
    let (base, offsets) = (region.address(), region.offsets());
    let layout = filled.layout;
    for (number, span) in spans.iter().enumerate() {
        // SAFETY: the device has had the buffer, and is done with it; so it is one of the pool's, and this side's. A header is in front of its data (`PoolBuffers::new`),
        // and all of it was written, as there is more.
        unsafe {
            let header = base.add(offsets.of(span.index) as usize + usize::from(span.offset - header));
            if layout.is_numbered && read_once::<u16>(header.add(HEADER_LENGTH)) != 1 {
                return number;
            }
            if layout.is_hashed {
                filled.hashes[number] = read_once::<u64>(header.add(HASH)).to_ne_bytes();
            }
            let said: u64 = read_once(header);
            // Flags and the kind of segmentation.
            if said.to_le() as u16 != 0 {
                filled.noted.note(number, said, read_once(header.add(size_of::<u64>())));
            }
        }
    }
    spans.len()
}

/// Writes a header that says: nothing is left to do.
///
/// # Safety
/// So many bytes are there, and nobody else's.
#[inline(always)]
unsafe fn clear(header: NonNull<u8>, length: u16) {
    /// Of a device that knows virtio 1.0 and reports no hash.
    const USUAL: usize = 12;
    // SAFETY: the caller's.
    unsafe {
        if usize::from(length) == USUAL {
            header.cast::<[u8; USUAL]>().write([0; USUAL]);
        } else {
            header.write_bytes(0, length.into());
        }
    }
}
