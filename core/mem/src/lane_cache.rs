//! What stands between a lane and the pool: two magazines of buffer indices that no other lane touches.
//!
//! With two, a lane that alternates between taking and freeing at a magazine's edge exchanges nothing: that is
//! the whole trick of Bonwick's magazine layer, and why there is no threshold to tune.

use crate::burst::Burst;
use crate::error::PoolError;
use crate::frames::{Copied, Cursor, Frames};
use crate::header::{Header, NO_NEXT, Volatile};
use crate::id::BufferId;
use crate::ledger::LaneCounters;
use crate::packet::{LINE_BYTES, Packet};
use crate::pool::Pool;
use crate::register::{self, MAXIMUM_POOLS};
use crate::shared::Shared;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};
use warmlane_sys::prefetch::prefetch_read;
#[cfg(target_arch = "x86_64")]
use warmlane_sys::simd::{self, Level};

/// How many lines of stored frames behind the frame in hand are fetched into the cache.
const LINES_AHEAD: usize = 32;

thread_local! {
    /// This thread's cache of each pool, null where it has none. Constant-initialised and without a destructor,
    /// so that reading an entry is one load.
    static CACHES: [Cell<*mut Cache>; MAXIMUM_POOLS] =
        const { [const { Cell::new(std::ptr::null_mut()) }; MAXIMUM_POOLS] };
}

/// A magazine in the lane's hands: cells `0..length` hold indices.
#[derive(Clone, Copy)]
struct Held {
    number: u32,
    length: usize,
}

/// A lane's private part of a pool.
struct Cache {
    loaded: Held,
    /// Either empty or full, but for what a refill from the loose list brought.
    previous: Held,
    magazine: usize,
    slot: u8,
    base: NonNull<u8>,
    stride: usize,
    room: usize,
    clean: Volatile,
    /// The processor has registers of 32 bytes.
    #[cfg(target_arch = "x86_64")]
    wide: bool,
    counters: Arc<LaneCounters>,
    pool: Pool,
}

/// A thread's attachment to a pool: while it lives, the thread's takes and frees go through its own two magazines.
///
/// It cannot leave its thread, and gives everything back when dropped, also when its thread unwinds.
#[must_use = "the thread is detached when this is dropped"]
pub struct LaneCache {
    cache: NonNull<Cache>,
    _stays_on_its_thread: PhantomData<*mut ()>,
}

impl LaneCache {
    pub(crate) fn attach(pool: &Pool) -> Result<Self, PoolError> {
        let shared = pool.shared();
        let entry = usize::from(shared.slot);
        if CACHES.with(|caches| !caches[entry].get().is_null()) {
            return Err(PoolError::AlreadyAttached { pool: pool.name().to_owned() });
        }
        let too_many = || PoolError::TooManyLanes { pool: pool.name().to_owned() };
        let loaded = shared.lend_magazine().ok_or_else(too_many)?;
        let Some(previous) = shared.lend_magazine() else {
            shared.return_magazine(loaded, 0);
            return Err(too_many());
        };
        let counters = Arc::new(LaneCounters::default());
        shared.lanes.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&counters));
        let cache = NonNull::from(Box::leak(Box::new(Cache {
            loaded: Held { number: loaded, length: 0 },
            previous: Held { number: previous, length: 0 },
            magazine: shared.config.magazine as usize,
            slot: shared.slot,
            base: shared.mapping.as_ptr(),
            stride: shared.stride,
            room: shared.config.room,
            clean: shared.clean,
            #[cfg(target_arch = "x86_64")]
            wide: matches!(simd::detected(), Level::Avx2 | Level::Avx512),
            counters,
            pool: pool.clone(),
        })));
        CACHES.with(|caches| caches[entry].set(cache.as_ptr()));
        Ok(Self { cache, _stays_on_its_thread: PhantomData })
    }
}

impl Drop for LaneCache {
    fn drop(&mut self) {
        // SAFETY: the box was leaked in `attach`, and only this guard and this thread's CACHES entry know it; the
        // guard cannot leave the thread, and no call into the cache is on the stack while safe code runs.
        let cache = unsafe { Box::from_raw(self.cache.as_ptr()) };
        CACHES.with(|caches| caches[usize::from(cache.slot)].set(std::ptr::null_mut()));
        let shared = cache.pool.shared();
        shared.return_magazine(cache.loaded.number, cache.loaded.length);
        shared.return_magazine(cache.previous.number, cache.previous.length);
        shared.settle(&cache.counters);
    }
}

impl std::fmt::Debug for LaneCache {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LaneCache").finish_non_exhaustive()
    }
}

/// Takes up to `wanted` (at most `burst.room()`) clean buffers of `pool` into `burst`.
#[inline]
pub(crate) fn take(pool: &Pool, burst: &mut Burst, wanted: usize) -> usize {
    let shared = pool.shared();
    let wanted = wanted.min(burst.room());
    let cache = CACHES.with(|caches| caches[usize::from(shared.slot)].get());
    // SAFETY: a non-null entry points to the live box of this thread's guard (the guard nulls it when dropped), and
    // nothing else on this thread is in the middle of using it: `take` and `free` never call out to safe code.
    match unsafe { cache.as_mut() } {
        Some(cache) => cache.take(burst, wanted),
        None => shared.take_unattached(wanted, |index| {
            // SAFETY: the index is a buffer of this pool that nobody owns, because it was just taken; the burst
            // has room, because wanted is at most that.
            unsafe {
                let header = register::header(BufferId::new(shared.slot, index));
                header.cast::<Volatile>().write(shared.clean);
                burst.push_unchecked(Packet::from_header(header));
            }
        }),
    }
}

/// Takes up to `wanted` (at most `burst.room()`) buffers of `pool` and copies the frames from `cursor` on into them,
/// one each. A frame that does not fit a buffer gives an empty packet.
#[inline]
pub(crate) fn take_copies(
    pool: &Pool,
    burst: &mut Burst,
    frames: &Frames,
    cursor: &mut Cursor,
    wanted: usize,
) -> Copied {
    let shared = pool.shared();
    let wanted = if frames.is_empty() { 0 } else { wanted.min(burst.room()) };
    // A cursor that comes from a larger set starts this one over.
    cursor.wrap(frames.len());
    let cache = CACHES.with(|caches| caches[usize::from(shared.slot)].get());
    // SAFETY: as in `take`; copying calls no code but this crate's.
    if let Some(cache) = unsafe { cache.as_mut() } {
        return cache.take_copies(burst, frames, cursor, wanted);
    }
    let before = burst.len();
    let packets = take(pool, burst, wanted);
    let mut bytes = 0;
    for packet in &mut burst[before..] {
        if let Some((lines, length)) = frames.get(cursor.next()) {
            bytes += length as u64;
            // What does not fit stays empty, as it should.
            let _ = packet.fill_lines(lines, length);
        }
        cursor.advance(frames.len());
    }
    Copied { packets, bytes }
}

impl Cache {
    /// As [`take`](Self::take), but each header is written once, with its packet's length in it, and the frame behind
    /// it: half the work of taking first and filling then.
    #[inline]
    fn take_copies(
        &mut self,
        burst: &mut Burst,
        frames: &Frames,
        cursor: &mut Cursor,
        wanted: usize,
    ) -> Copied {
        #[cfg(target_arch = "x86_64")]
        if self.wide {
            // SAFETY: `wide` says that this processor has what the function is compiled for.
            return unsafe { self.take_copies_wide(burst, frames, cursor, wanted) };
        }
        self.take_copies_by(burst, frames, cursor, wanted)
    }

    /// The same, compiled for registers of 32 bytes: a line is two stores and not four, a header one and not two.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn take_copies_wide(
        &mut self,
        burst: &mut Burst,
        frames: &Frames,
        cursor: &mut Cursor,
        wanted: usize,
    ) -> Copied {
        self.take_copies_by(burst, frames, cursor, wanted)
    }

    #[inline(always)]
    fn take_copies_by(
        &mut self,
        burst: &mut Burst,
        frames: &Frames,
        cursor: &mut Cursor,
        wanted: usize,
    ) -> Copied {
        let (base, stride, clean) = (self.base, self.stride, self.clean);
        let room_lines = self.room / LINE_BYTES;
        let data_offset = usize::from(clean.data_offset);
        let (stored, entries) = (frames.lines.as_slice(), frames.entries.as_slice());
        let mut copied = Copied::default();
        while copied.packets < wanted {
            if self.loaded.length == 0 && !self.refill() {
                break;
            }
            let chunk = self.loaded.length.min(wanted - copied.packets);
            self.loaded.length -= chunk;
            // SAFETY: this lane owns the magazine numbered in `loaded`.
            let cells = unsafe { self.pool.shared().cells(self.loaded.number) };
            let indices = &cells[self.loaded.length..self.loaded.length + chunk];
            let mut place = *cursor;
            let mut bytes = 0;
            let packets = indices.iter().map(|&index| {
                let entry = entries[place.next()];
                place.advance(entries.len());
                bytes += u64::from(entry.length);
                let range = entry.lines();
                // The set is usually larger than the private caches.
                if let Some(ahead) = stored.get(range.end + LINES_AHEAD) {
                    prefetch_read(ahead);
                }
                let lines = &stored[range];
                let fits = lines.len() <= room_lines;
                let length = if fits { entry.length } else { 0 };
                // SAFETY: cells below a held magazine's length are indices of buffers that this lane owns, so
                // base + index × stride is a header inside the mapping and nobody else's; at most room_lines lines
                // are written behind the headroom, which end inside the buffer.
                unsafe {
                    let header = base.add(index as usize * stride);
                    header.cast::<Volatile>().write(clean);
                    header.cast::<u64>().write(clean.first_word(length as u16));
                    let data = header.add(data_offset);
                    // A buffer's room may be shorter than one line.
                    if let [line] = lines
                        && fits
                    {
                        data.cast::<[u8; LINE_BYTES]>().write_unaligned(line.0);
                    } else if fits {
                        for (number, line) in lines.iter().enumerate() {
                            data.add(number * LINE_BYTES).cast::<[u8; LINE_BYTES]>().write_unaligned(line.0);
                        }
                    }
                    Packet::from_header(header.cast())
                }
            });
            // SAFETY: the burst has room, because wanted is at most that.
            unsafe { burst.extend_unchecked(packets) };
            *cursor = place;
            copied.packets += chunk;
            copied.bytes += bytes;
        }
        self.counters.taken.add(copied.packets as u64);
        copied
    }

    #[inline]
    fn take(&mut self, burst: &mut Burst, wanted: usize) -> usize {
        #[cfg(target_arch = "x86_64")]
        if self.wide {
            // SAFETY: `wide` says that this processor has what the function is compiled for.
            return unsafe { self.take_wide(burst, wanted) };
        }
        self.take_by(burst, wanted)
    }

    /// The same, compiled for registers of 32 bytes: a header is reset by one store.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn take_wide(&mut self, burst: &mut Burst, wanted: usize) -> usize {
        self.take_by(burst, wanted)
    }

    #[inline(always)]
    fn take_by(&mut self, burst: &mut Burst, wanted: usize) -> usize {
        let mut count = 0;
        while count < wanted {
            if self.loaded.length == 0 && !self.refill() {
                break;
            }
            let chunk = self.loaded.length.min(wanted - count);
            self.loaded.length -= chunk;
            // SAFETY: this lane owns the magazine numbered in `loaded`.
            let cells = unsafe { self.pool.shared().cells(self.loaded.number) };
            let (base, stride, clean) = (self.base, self.stride, self.clean);
            let indices = &cells[self.loaded.length..self.loaded.length + chunk];
            let packets = indices.iter().map(|&index| {
                // SAFETY: cells below a held magazine's length are indices of buffers that this lane owns, so
                // base + index × stride is a header inside the mapping and nobody else's.
                unsafe {
                    let header = base.add(index as usize * stride).cast::<Header>();
                    header.cast::<Volatile>().write(clean);
                    Packet::from_header(header)
                }
            });
            // SAFETY: the burst has room, because wanted is at most that.
            unsafe { burst.extend_unchecked(packets) };
            count += chunk;
        }
        self.counters.taken.add(count as u64);
        count
    }

    /// Gets indices into the empty `loaded`; `false` if there are none to be had.
    #[cold]
    fn refill(&mut self) -> bool {
        if self.previous.length > 0 {
            std::mem::swap(&mut self.loaded, &mut self.previous);
            return true;
        }
        let Some((number, length)) = self.pool.shared().exchange_for_full(self.loaded.number) else {
            return false;
        };
        self.loaded = Held { number, length };
        true
    }

    /// Makes room in the full `loaded`.
    #[cold]
    fn make_room(&mut self) {
        std::mem::swap(&mut self.loaded, &mut self.previous);
        if self.loaded.length == self.magazine {
            self.loaded =
                Held { number: self.pool.shared().exchange_for_empty(self.loaded.number), length: 0 };
        }
    }

    /// Frees single-segment packets of this pool from the front of `packets`; returns how many it freed before it
    /// met one that is chained or belongs elsewhere.
    #[inline]
    fn free_plain(&mut self, packets: &[Packet]) -> usize {
        let mut freed = 0;
        while freed < packets.len() {
            if self.loaded.length == self.magazine {
                self.make_room();
            }
            let chunk = (self.magazine - self.loaded.length).min(packets.len() - freed);
            // SAFETY: this lane owns the magazine numbered in `loaded`.
            let cells = unsafe { self.pool.shared().cells(self.loaded.number) };
            let target = &mut cells[self.loaded.length..self.loaded.length + chunk];
            // No branch in the loop: any packet that is not plain shows in `odd`, and then nothing was committed.
            let mut odd = 0;
            for (cell, packet) in target.iter_mut().zip(&packets[freed..freed + chunk]) {
                let (id, next) = packet.id_and_next();
                *cell = id.index();
                odd |= u32::from(id.slot() ^ self.slot) | (next ^ NO_NEXT);
            }
            if odd != 0 {
                let is_plain = |packet: &Packet| {
                    let (id, next) = packet.id_and_next();
                    id.slot() == self.slot && next == NO_NEXT
                };
                let plain = packets[freed..].iter().take(chunk).take_while(|packet| is_plain(packet)).count();
                self.loaded.length += plain;
                freed += plain;
                break;
            }
            self.loaded.length += chunk;
            freed += chunk;
        }
        self.counters.freed.add(freed as u64);
        freed
    }

    fn free_index(&mut self, index: u32) {
        if self.loaded.length == self.magazine {
            self.make_room();
        }
        // SAFETY: this lane owns the magazine numbered in `loaded`.
        let cells = unsafe { self.pool.shared().cells(self.loaded.number) };
        cells[self.loaded.length] = index;
        self.loaded.length += 1;
        self.counters.freed.add(1);
    }
}

/// Frees all of `packets`.
///
/// # Safety
/// The caller owns the packets and does not touch them afterwards.
#[inline]
pub(crate) unsafe fn free(packets: &[Packet]) {
    let mut rest = packets;
    while let Some(first) = rest.first() {
        let slot = first.id_and_next().0.slot();
        let cache = CACHES.with(|caches| caches[usize::from(slot)].get());
        // SAFETY: as in `take`.
        let freed = unsafe { cache.as_mut() }.map_or(0, |cache| cache.free_plain(rest));
        if freed == 0 {
            // SAFETY: the first packet is the caller's, and is skipped below.
            unsafe { free_chain(first) };
            rest = &rest[1..];
        } else {
            rest = &rest[freed..];
        }
    }
}

/// Frees one packet, segment by segment, each to the pool that it came from.
///
/// # Safety
/// The caller owns the packet and does not touch it afterwards.
#[cold]
unsafe fn free_chain(packet: &Packet) {
    let (mut id, mut next) = packet.id_and_next();
    loop {
        // SAFETY: the caller owns the chain, so this segment is a live buffer that is given up here.
        unsafe { free_buffer(id) };
        if next == NO_NEXT {
            return;
        }
        id = BufferId::from_bits(next);
        // SAFETY: a chain's link names a live buffer that belongs to the chain; it has not been freed yet.
        next = unsafe { (*register::header(id).as_ptr()).volatile.next };
    }
}

/// Frees one buffer.
///
/// # Safety
/// The caller owns the buffer and does not touch it afterwards.
unsafe fn free_buffer(id: BufferId) {
    let cache = CACHES.with(|caches| caches[usize::from(id.slot())].get());
    // SAFETY: as in `take`.
    if let Some(cache) = unsafe { cache.as_mut() } {
        cache.free_index(id.index());
        return;
    }
    let shared = register::pointer(id.slot());
    // SAFETY: a pool lives as long as one of its buffers is out, so the pointer is good until the buffer is home;
    // the buffer is the caller's. If it was the last of an orphaned pool, nobody else is left to destroy it.
    unsafe {
        if (*shared).free_unattached(&[id.index()]) {
            Shared::destroy(NonNull::new_unchecked(shared));
        }
    }
}
