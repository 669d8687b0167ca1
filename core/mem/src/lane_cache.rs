//! What stands between a lane and the pool: two magazines of buffer indices that no other lane touches.

mod copies;
mod gathered;
mod indices;
mod registers;
mod variations;

pub(crate) use copies::take_copies;
pub(crate) use indices::{free_indices, take_indices};
pub(crate) use variations::take_variations;

use crate::burst::Burst;
use crate::error::PoolError;
use crate::free_list::FreeList;
use crate::header::{Header, Identity, PacketState};
use crate::hot_bound::Pace;
use crate::id::BufferId;
use crate::lane_thread;
use crate::ledger::LaneCounters;
use crate::magazines::{Held, Magazines};
use crate::packet::{LINE_BYTES, Packet};
use crate::pool::Pool;
use crate::register::{self, MAXIMUM_POOLS};
use gathered::free_gathered;
#[cfg(target_arch = "x86_64")]
use registers::Wide;
use registers::{FOUR, Plain, Registers};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;
use warmlane_sys::clock;
use warmlane_sys::prefetch::{prefetch_read_at, prefetch_write_at};
#[cfg(target_arch = "x86_64")]
use warmlane_sys::simd::{self, Level};
use warmlane_sys::tracepoints;

thread_local! {
    /// This thread's cache of each pool, null where it has none. Constant-initialised and without a destructor,
    /// so that reading an entry is one load.
    static CACHES: [Cell<*mut Cache>; MAXIMUM_POOLS] =
        const { [const { Cell::new(std::ptr::null_mut()) }; MAXIMUM_POOLS] };
}

/// A lane's private part of a pool.
struct Cache {
    magazines: Magazines,
    /// The cells of the loaded magazine: [`FreeList::capacity`] of them.
    cells: NonNull<u32>,
    capacity: usize,
    /// What the identity of a single buffer of this pool looks like, but for the index.
    single: u64,
    base: NonNull<u8>,
    stride: u32,
    data_size: usize,
    clean: PacketState,
    /// The processor has registers of 32 bytes.
    #[cfg(target_arch = "x86_64")]
    wide: bool,
    uncached: bool,
    slot: u8,
    /// Buffers that the pool leaves for this lane.
    share: u32,
    /// What [`FreeList::shortages`] was when this lane last flushed what it held.
    shortages_seen: u32,
    /// How long this lane takes for a magazine that it takes from, and for one that it fills.
    taking: Pace,
    freeing: Pace,
    counters: LaneCounters,
    pool: Pool,
}

/// Writes what is new in a buffer that was taken. Not a function: what is in here has to become part of the code that is compiled for wide
/// registers, and closures don't always.
trait Writer {
    /// Of packet number `place`.
    ///
    /// # Safety
    /// The buffer with this header is the caller's. There is something for that place.
    unsafe fn write(&self, header: NonNull<Header>, place: usize);
}

/// Resets headers.
struct Reset<R: Registers>(R::Half);

impl<R: Registers> Writer for Reset<R> {
    #[inline(always)]
    unsafe fn write(&self, header: NonNull<Header>, _place: usize) {
        // SAFETY: the caller's condition.
        unsafe { R::write_half(self.0, header.as_ptr().cast()) };
    }
}

/// A thread's attachment to a pool: while it lives, the thread's takes and frees go through its own two magazines.
///
/// It cannot leave its thread, and returns everything when dropped, also when its thread unwinds.
#[must_use = "the thread is detached when this is dropped"]
pub struct LaneCache {
    cache: NonNull<Cache>,
    _stays_on_its_thread: PhantomData<*mut ()>,
}

impl LaneCache {
    pub(crate) fn attach(pool: &Pool, share: u32) -> Result<Self, PoolError> {
        let shared = pool.shared();
        let entry = usize::from(shared.slot);
        if CACHES.with(|caches| !caches[entry].get().is_null()) {
            return Err(PoolError::AlreadyAttached { pool: pool.name().to_owned() });
        }
        let too_many = || PoolError::TooManyLanes { pool: pool.name().to_owned() };
        let counters = shared.register_lane().ok_or_else(too_many)?;
        let free_list = &shared.free_list;
        // As many magazines as enrolled lanes can hold were made.
        let (Some(loaded), Some(previous)) = (free_list.lend(), free_list.lend()) else {
            shared.unregister_lane(&counters);
            return Err(too_many());
        };
        let limit = pool.buffers() / 2;
        if share > 0 && !free_list.reserve(share, limit) {
            free_list.return_magazine(loaded, 0);
            free_list.return_magazine(previous, 0);
            shared.unregister_lane(&counters);
            return Err(PoolError::Share { pool: pool.name().to_owned(), share, limit });
        }
        let cache = NonNull::from(Box::leak(Box::new(Cache {
            magazines: Magazines::new(loaded, previous),
            cells: free_list.cells(loaded),
            capacity: free_list.capacity(),
            single: Identity::single(BufferId::new(shared.slot, 0)).bits(),
            base: shared.memory.start(),
            stride: shared.stride as u32,
            data_size: shared.config.data_size,
            clean: shared.clean,
            #[cfg(target_arch = "x86_64")]
            wide: matches!(simd::detected(), Level::Avx2 | Level::Avx512),
            uncached: free_list.uncached(),
            slot: shared.slot,
            share,
            shortages_seen: free_list.shortages(),
            taking: Pace::new(),
            freeing: Pace::new(),
            counters,
            pool: pool.clone(),
        })));
        CACHES.with(|caches| caches[entry].set(cache.as_ptr()));
        Ok(Self { cache, _stays_on_its_thread: PhantomData })
    }

    /// Returns all buffers that this lane holds in reserve to the pool, so that others can have them. A lane does
    /// so when it has had nothing to do for a while; its next take fetches a magazine again.
    pub fn flush(&mut self) {
        // SAFETY: the guard keeps the cache alive, and no call into it is on this thread's stack while safe code runs.
        unsafe { self.cache.as_mut() }.flush();
    }

    /// [`flush`](Self::flush), if some lane has asked the pool for more than it had since this lane's last
    /// flush: one read of a line that is written only then, cheap enough for every idle poll. Returns whether it did.
    #[inline]
    pub fn flush_if_requested(&mut self) -> bool {
        // SAFETY: as in `flush`.
        let cache = unsafe { self.cache.as_mut() };
        let requested = cache.is_requested();
        if requested {
            cache.flush();
        }
        requested
    }

    /// Whether nobody but lanes has the pool any more.
    pub(crate) fn is_last_user(&self) -> bool {
        // SAFETY: as in `flush`.
        let pool = unsafe { &self.cache.as_ref().pool };
        pool.handles() <= pool.shared().lane_count() as usize
    }

    /// How many buffers this lane holds in reserve.
    pub fn len(&self) -> usize {
        // SAFETY: as in `flush`.
        let magazines = unsafe { &self.cache.as_ref().magazines };
        magazines.loaded.length + magazines.previous.length
    }

    /// Whether this lane holds no buffers in reserve.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for LaneCache {
    fn drop(&mut self) {
        // SAFETY: the box was leaked in `attach`, and only this guard and this thread's CACHES entry know it; the
        // guard cannot leave the thread, and no call into the cache is on the stack while safe code runs.
        let cache = unsafe { Box::from_raw(self.cache.as_ptr()) };
        CACHES.with(|caches| caches[usize::from(cache.slot)].set(std::ptr::null_mut()));
        let shared = cache.pool.shared();
        for held in [cache.magazines.loaded, cache.magazines.previous] {
            shared.free_list.return_magazine(held.number, held.length);
        }
        shared.free_list.release(cache.share);
        shared.unregister_lane(&cache.counters);
    }
}

impl std::fmt::Debug for LaneCache {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LaneCache").finish_non_exhaustive()
    }
}

/// Takes up to `wanted` (at most `burst.space()`) clean buffers of `pool` into `burst`.
#[inline]
pub(crate) fn take(pool: &Pool, burst: &mut Burst, wanted: usize) -> usize {
    let shared = pool.shared();
    let wanted = wanted.min(burst.space());
    let cache = CACHES.with(|caches| caches[usize::from(shared.slot)].get());
    // SAFETY: a non-null entry points to the live box of this thread's guard (the guard nulls it when dropped), and
    // nothing else on this thread is in the middle of using it: `take` and `free` never call out to safe code.
    if let Some(cache) = unsafe { cache.as_mut() } {
        return cache.take(burst, wanted);
    }
    take_unattached(pool, burst, wanted)
}

/// The same for a thread without a cache of the pool, which gets one now if it is a lane.
#[cold]
fn take_unattached(pool: &Pool, burst: &mut Burst, wanted: usize) -> usize {
    if lane_thread::attach(pool) {
        return take(pool, burst, wanted);
    }
    let shared = pool.shared();
    let count = shared.free_list.take_unattached(wanted, |index| {
        // SAFETY: the index is a buffer of this pool that nobody owns, because it was just taken; the burst
        // has space, because wanted is at most that.
        unsafe {
            let header = register::header(BufferId::new(shared.slot, index));
            header.cast::<PacketState>().write(shared.clean);
            burst.push_unchecked(Packet::from_header(header));
        }
    });
    if count < wanted {
        tracepoints::pool_refused(wanted, count);
        shared.free_list.count_refused(wanted - count);
    }
    count
}

impl Cache {
    #[inline]
    fn take(&mut self, burst: &mut Burst, wanted: usize) -> usize {
        #[cfg(target_arch = "x86_64")]
        if self.wide {
            // SAFETY: `wide` says that this processor has what the function is compiled for.
            return unsafe { self.take_wide(burst, wanted) };
        }
        self.take_by::<Plain>(burst, wanted)
    }

    /// The same, compiled for registers of 32 bytes: a header is reset by one store.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn take_wide(&mut self, burst: &mut Burst, wanted: usize) -> usize {
        self.take_by::<Wide>(burst, wanted)
    }

    #[inline(always)]
    fn take_by<R: Registers>(&mut self, burst: &mut Burst, wanted: usize) -> usize {
        let clean = R::half(&self.clean);
        let mut count = 0;
        while count < wanted
            && let Some(indices) = self.load(wanted - count)
        {
            // SAFETY: the indices were just loaded, and are no more than the burst has space for (caller); each is of a buffer that this lane
            // owns, so its header can be reset.
            unsafe {
                self.append::<R>(burst, indices, &Reset::<R>(clean));
            }
            count += indices.len();
        }
        self.count_taken(count, wanted);
        count
    }

    /// Appends the packets at these indices to `burst`, and has each one's header written by `writer`.
    ///
    /// In one pass: if it had addresses from the burst, reading them would wait wherever a line of the burst has the same place and tag in
    /// the first-level cache as one that is written meanwhile. For AMD's processors a tag there is 8 bits made of the linear address
    /// (which bits: Lipp et al., Take A Way, 2020), so of
    /// two lines with the same place, one pair in 256 has the same tag; with a second pass, taking 32 packets took twice as long in one process of four (Zen 4).
    ///
    /// # Safety
    /// The indices were loaded, and are used once only; the burst has space for them.
    #[inline(always)]
    unsafe fn append<R: Registers>(&self, burst: &mut Burst, indices: &[u32], writer: &impl Writer) {
        let (fours, rest) = indices.as_chunks::<FOUR>();
        // SAFETY: the caller's condition. Cells below a held magazine's length are indices of buffers that this lane owns, so base +
        // index × stride is a header inside the mapping and nobody else's.
        unsafe {
            let packets = burst.end();
            for (number, four) in fours.iter().enumerate() {
                let first = number * FOUR;
                let headers = R::write_packets(self.base, self.stride, four, packets.add(first).cast());
                for (place, header) in headers.into_iter().enumerate() {
                    writer.write(header, first + place);
                }
            }
            for (place, &index) in rest.iter().enumerate() {
                let place = fours.len() * FOUR + place;
                let header = self.base.add(index as usize * self.stride as usize).cast();
                packets.add(place).write(Packet::from_header(header));
                writer.write(header, place);
            }
            burst.grow_unchecked(indices.len());
        }
    }

    #[inline(always)]
    fn count_taken(&self, count: usize, wanted: usize) {
        self.counters.taken().add(count as u64);
        if count < wanted {
            tracepoints::pool_refused(wanted, count);
            self.counters.refused().add((wanted - count) as u64);
        }
    }

    /// Takes up to `wanted` indices from the loaded magazine, at least one; `None` if there are none to be had. They
    /// stay readable until the next call.
    #[inline(always)]
    fn load<'a>(&mut self, wanted: usize) -> Option<&'a [u32]> {
        let loaded = &mut self.magazines.loaded;
        if loaded.length == 0 && !self.refill(wanted) {
            return None;
        }
        let loaded = &mut self.magazines.loaded;
        let chunk = loaded.length.min(wanted);
        loaded.length -= chunk;
        // SAFETY: `cells` are those of the loaded magazine, which this lane owns, and its length was at most their
        // number. Nothing writes them before the next call of `refill`, `make_space` or `free_plain`, and the callers
        // are done with the slice then.
        let (indices, rest) = unsafe {
            let cells = self.cells.as_ptr();
            (
                std::slice::from_raw_parts(cells.add(loaded.length), chunk),
                std::slice::from_raw_parts(cells, loaded.length),
            )
        };
        // Once for each buffer: a lane that takes what it has just freed fetches nothing.
        let below = loaded.length.saturating_sub(chunk);
        let loaded_runs_out = below < chunk && loaded.only_taken_from;
        if below < loaded.far {
            let fetched = loaded.far.min(loaded.length);
            loaded.far = below;
            self.fetch(&rest[below..fetched]);
        }
        if loaded_runs_out {
            self.look_ahead(chunk);
        }
        Some(indices)
    }

    /// Has the lines of buffers that another lane had last under way while the burst before them is worked on: of
    /// each the header and, behind the usual headroom, the first line of data.
    #[inline(always)]
    fn fetch(&self, indices: &[u32]) {
        let data = usize::from(self.clean.start_offset);
        for &index in indices {
            let header = self.base.as_ptr().wrapping_add(index as usize * self.stride as usize);
            prefetch_write_at(header);
            prefetch_write_at(header.wrapping_add(data));
        }
    }

    /// Gets indices into the empty loaded magazine; `false` if there are none to be had.
    #[cold]
    fn refill(&mut self, wanted: usize) -> bool {
        let free_list: &FreeList = &self.pool.shared().free_list;
        let wanted = if self.uncached { wanted } else { self.capacity };
        let mut exchanged = None;
        let refilled = self.magazines.refill(|number| {
            exchanged = free_list.exchange_for_full(number, wanted, self.share);
            exchanged
        });
        self.find_cells();
        if let Some(held) = exchanged {
            self.time(held);
        } else if !refilled {
            self.pool.shared().free_list.note_shortage();
        }
        refilled
    }

    /// Fetches the next magazine while the last but one burst of this one is worked on, and while the last one is, of its
    /// buffers as many as the burst has: without that, the first burst of each magazine waits for every line, and if
    /// both were done at once, the last burst for the indices. Only for a lane that takes and does not free: another
    /// may well live on the two magazines that it has.
    #[cold]
    fn look_ahead(&mut self, burst: usize) {
        if self.uncached {
            return;
        }
        let free_list = &self.pool.shared().free_list;
        if self.magazines.previous.length == 0 {
            let number = self.magazines.previous.number;
            let Some(next) = free_list.exchange_for_full(number, self.capacity, self.share) else { return };
            // SAFETY: the exchange gave this lane the magazine, which it does not write to before it is loaded.
            let cells = unsafe { free_list.indices(next.number, next.length) };
            // The other lane wrote them: they come together, and not two lines a burst.
            for line in cells.chunks(LINE_BYTES / size_of::<u32>()) {
                prefetch_read_at(line.as_ptr().cast());
            }
            self.magazines.previous = next;
            self.time(next);
        }
        let next = self.magazines.previous;
        let first = next.length.saturating_sub(burst);
        if self.magazines.loaded.length < burst && first < next.far {
            // SAFETY: the magazine is this lane's, which does not write to it before it is loaded.
            let cells = unsafe { self.pool.shared().free_list.indices(next.number, next.far) };
            self.fetch(&cells[first..]);
            self.magazines.previous.far = first;
        }
    }

    /// Tells the depot how long this lane takes for a magazine of its hot set; see `hot_bound`.
    fn time(&mut self, next: Held) {
        if !next.hot {
            self.taking.interrupt();
        } else if let Some(cycles) = self.taking.lap(clock::cycles()) {
            self.pool.shared().free_list.observe_taking(cycles);
        }
    }

    /// Makes space in the full loaded magazine.
    #[cold]
    fn make_space(&mut self) {
        let free_list = &self.pool.shared().free_list;
        let freeing = &mut self.freeing;
        self.magazines.make_space(self.capacity, |number| {
            if let Some(cycles) = freeing.lap(clock::cycles()) {
                free_list.observe_freeing(cycles);
            }
            free_list.exchange_for_empty(number)
        });
        self.find_cells();
        // Another lane read them, and a store that finds no space in the store buffer waits for its line.
        for line in (0..self.capacity * size_of::<u32>()).step_by(LINE_BYTES) {
            prefetch_write_at(self.cells.as_ptr().cast::<u8>().wrapping_add(line));
        }
    }

    fn find_cells(&mut self) {
        self.cells = self.pool.shared().free_list.cells(self.magazines.loaded.number);
    }

    #[inline(always)]
    fn is_requested(&self) -> bool {
        self.shortages_seen != self.pool.shared().free_list.shortages()
    }

    #[cold]
    fn flush(&mut self) {
        let free_list = &self.pool.shared().free_list;
        self.shortages_seen = free_list.shortages();
        for held in [&mut self.magazines.loaded, &mut self.magazines.previous] {
            free_list.empty(held.number, held.length);
            *held = Held::empty(held.number);
        }
    }

    /// Frees single-segment packets of this pool from the front of `packets`; returns how many it freed before it
    /// met one that is chained or belongs elsewhere.
    #[inline]
    fn free_plain(&mut self, packets: &[Packet]) -> usize {
        #[cfg(target_arch = "x86_64")]
        if self.wide {
            // SAFETY: `wide` says that this processor has what the function is compiled for.
            return unsafe { self.free_plain_wide(packets) };
        }
        self.free_plain_by::<Plain>(packets)
    }

    /// The same, compiled for registers of 32 bytes: four identities are one.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn free_plain_wide(&mut self, packets: &[Packet]) -> usize {
        self.free_plain_by::<Wide>(packets)
    }

    #[inline(always)]
    fn free_plain_by<R: Registers>(&mut self, packets: &[Packet]) -> usize {
        let mut rest = packets;
        while !rest.is_empty() {
            if self.magazines.loaded.length == self.capacity {
                self.make_space();
            }
            let loaded = &mut self.magazines.loaded;
            let (now, later) = rest.split_at((self.capacity - loaded.length).min(rest.len()));
            // SAFETY: `cells` are those of the loaded magazine, `capacity` of them, which this lane owns.
            let target =
                unsafe { std::slice::from_raw_parts_mut(self.cells.as_ptr().add(loaded.length), now.len()) };
            // No branch in the loop: of a plain packet the difference is the index, and a bit above it in any other
            // shows in `differences`; then nothing was committed.
            // SAFETY: of what writes by vector only `free_plain_wide` makes use, where the processor has it.
            let differences = unsafe { R::write_differences(target, now, self.single) };
            let plain =
                if differences & Identity::POOL_MASK == 0 { now.len() } else { self.count_plain(now) };
            let loaded = &mut self.magazines.loaded;
            loaded.length += plain;
            loaded.only_taken_from = false;
            if plain < now.len() {
                rest = &rest[plain..];
                break;
            }
            rest = later;
        }
        let freed = packets.len() - rest.len();
        self.counters.freed().add(freed as u64);
        if self.uncached {
            self.flush();
        }
        freed
    }

    /// How many packets of this pool and of one segment come first.
    #[cold]
    fn count_plain(&self, packets: &[Packet]) -> usize {
        packets.iter().take_while(|packet| self.is_single(packet)).count()
    }

    /// Whether it is a packet of this pool and of one segment.
    fn is_single(&self, packet: &Packet) -> bool {
        (packet.identity().bits() ^ self.single) & Identity::POOL_MASK == 0
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
        let cache = CACHES.with(|caches| caches[usize::from(first.id().slot())].get());
        // SAFETY: as in `take`.
        let mut freed = unsafe { cache.as_mut() }.map_or(0, |cache| cache.free_plain(rest));
        if freed == 0 {
            // SAFETY: the packets are the caller's, and those that are freed are skipped below.
            freed = unsafe { free_gathered(rest) };
        }
        rest = &rest[freed..];
    }
}
