//! A pool's free buffers, but for those that lanes keep in their caches.
//!
//! Four orders, one interface: the [`Depot`] of whole magazines, a stack under a lock, a stack without one, a ring.
//! Beside them is a list under a lock, for threads that have no lane cache and for what a leaving or
//! idle lane returns; it is the locked stack itself.

use crate::burst::BURST_CAPACITY;
use crate::depot::Depot;
use crate::error::PoolError;
use crate::hot_bound::HotBound;
use crate::magazines::Held;
use crate::pool::{PoolConfig, PoolKind};
use crate::shared::MAXIMUM_LANES;
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use warmlane_sync::index_stack::IndexStack;
use warmlane_sync::mpmc;
use warmlane_sync::padded::CachePadded;
use warmlane_sync::spin::SpinLock;

/// Magazines that lanes hold at most: two each, and one more during an exchange; and one for
/// threads without a lane cache, which take turns.
const LENT: u32 = 3 * MAXIMUM_LANES + 1;

/// Bytes of buffers that go round at first: more than a private cache of usual size holds, and far less than a shared one.
/// Near the best for whole frames on all machines that were tried; see [`crate::hot_bound`] for how much that matters.
const HOT_BYTES: usize = 4 << 20;

#[expect(clippy::large_enum_variant, reason = "a pool has one, and reaches it without another pointer")]
enum Order {
    Depot(Depot),
    Stack,
    LockFreeStack { indices: IndexStack, length: CachePadded<AtomicU32> },
    Ring(mpmc::Ring<u32>),
}

/// Cells of one magazine that share a pair of cache lines, so that no two lanes ever write to the same one.
#[derive(Default)]
#[repr(C, align(128))]
struct Cells([UnsafeCell<u32>; CELLS]);

/// How many there are in a pair of lines.
const CELLS: usize = 32;

/// What is kept under the lock. Its vector has space for every buffer of the pool, so it never grows.
pub(crate) struct LockedList {
    indices: Vec<u32>,
    /// Counts of threads without a lane cache, and of lanes that have gone.
    pub(crate) taken: u64,
    pub(crate) freed: u64,
    pub(crate) refused: u64,
    /// Calls of threads without a lane cache.
    pub(crate) unattached: u64,
    /// The last handle is gone, packets are still out: the last of them takes the pool down.
    pub(crate) orphaned: bool,
}

/// See the module.
pub(crate) struct FreeList {
    buffers: u32,
    /// Indices that fit a magazine.
    capacity: usize,
    /// Lanes keep nothing: what they free is returned at once.
    uncached: bool,
    /// All magazines, space for `capacity` each; who has the number owns the cells.
    cells: Box<[Cells]>,
    order: Order,
    /// Empty magazines to lend, but for those of a depot, which has its own.
    spare: IndexStack,
    pub(crate) locked: SpinLock<LockedList>,
    /// How many indices `locked` holds, so that an exhausted pool is not polled through its lock.
    locked_length: AtomicU32,
    /// Buffers that lanes have reserved.
    reserved: AtomicU32,
    /// The fewest buffers that were here, of the moments when somebody looked.
    lowest: AtomicU32,
    /// How often a lane got fewer buffers than it wanted: idle lanes return what they hold when it changes.
    shortages: AtomicU32,
    hot_bound: SpinLock<HotBound>,
    /// Cycles that a lane takes to fill a magazine with what it frees; 0 if none has said so since it was last read.
    freeing: CachePadded<AtomicU64>,
}

// SAFETY: the only parts that are not Sync by themselves are the magazine cells, and each is touched only by the
// owner of its magazine's number. Numbers change hands through the depot and `IndexStack`, whose exchanges release
// and acquire.
unsafe impl Sync for FreeList {}
// SAFETY: nothing in here is tied to the thread that made it.
unsafe impl Send for FreeList {}

impl FreeList {
    /// Puts every buffer in its initial position. Unless `filled`, they are all out.
    pub(crate) fn new(config: &PoolConfig, stride: usize, filled: bool) -> Result<Self, PoolError> {
        let magazine = config.magazine_size();
        let uncached = magazine == 0;
        let capacity = if uncached { BURST_CAPACITY } else { magazine as usize };
        let largest = (config.buffers / magazine.max(1)).max(1).next_power_of_two();
        let hot_bound = if let Some(buffers) = config.hot_set {
            HotBound::fixed((buffers / magazine.max(1)).clamp(1, largest))
        } else {
            let first = ((HOT_BYTES / stride / capacity).max(1) as u32).next_power_of_two();
            HotBound::new(1, largest, first)
        };
        let (order, magazines) = match config.kind {
            // A depot of magazines of one is a stack.
            PoolKind::Depot if !uncached => {
                let full = config.buffers / magazine;
                (Order::Depot(Depot::new(full, LENT, hot_bound.bound())), Depot::magazines(full, LENT))
            }
            PoolKind::Depot | PoolKind::LockFreeStack => {
                let indices = IndexStack::new(config.buffers);
                (Order::LockFreeStack { indices, length: CachePadded::default() }, LENT)
            }
            PoolKind::Stack => (Order::Stack, LENT),
            PoolKind::Ring => {
                let slots = (config.buffers as usize).next_power_of_two();
                let ring = mpmc::Ring::new(slots)
                    .map_err(|_| PoolError::TooLarge { buffers: config.buffers, stride })?;
                (Order::Ring(ring), LENT)
            }
        };
        let spare = IndexStack::new(magazines);
        if !matches!(order, Order::Depot(_)) {
            for number in 0..magazines {
                let pushed = spare.push(number);
                debug_assert!(pushed.is_ok());
            }
        }
        let free_list = Self {
            buffers: config.buffers,
            capacity,
            uncached,
            cells: (0..magazines as usize * capacity.div_ceil(CELLS)).map(|_| Cells::default()).collect(),
            order,
            spare,
            locked: SpinLock::new(LockedList {
                indices: Vec::with_capacity(config.buffers as usize),
                taken: if filled { 0 } else { config.buffers.into() },
                freed: 0,
                refused: 0,
                unattached: 0,
                orphaned: false,
            }),
            locked_length: AtomicU32::new(0),
            reserved: AtomicU32::new(0),
            lowest: AtomicU32::new(config.buffers),
            shortages: AtomicU32::new(0),
            hot_bound: SpinLock::new(hot_bound),
            freeing: CachePadded::default(),
        };
        if filled {
            free_list.fill(config.buffers);
        }
        Ok(free_list)
    }

    /// Low indices are taken first, and go round in the hot set.
    fn fill(&self, buffers: u32) {
        match &self.order {
            Order::Depot(depot) => {
                let whole = buffers - buffers % self.capacity as u32;
                // Ascending, as a lane takes the buffers of a burst: what a core fetches of its own accord behind the end of
                // one is the beginning of the next, and not that of one which was passed on just now. Of whole frames
                // between two lanes it saved 2 to 13 % (Granite Rapids, hot sets of 128 to 8,192 buffers).
                let all: Vec<u32> = (0..whole).collect();
                let mut chunks: Vec<&[u32]> = all.chunks_exact(self.capacity).collect();
                // The cold side gives out last what it got first.
                let hot = (depot.most() as usize).min(chunks.len());
                chunks[hot..].reverse();
                for chunk in chunks {
                    let Some(number) = depot.lend() else { break };
                    // SAFETY: the number was just lent, so this thread owns the magazine, and a chunk has as many indices
                    // as a magazine cells.
                    unsafe {
                        self.cells(number).copy_from_nonoverlapping(NonNull::from(chunk).cast(), chunk.len());
                    };
                    if let Some(empty) = depot.exchange_for_empty(number) {
                        depot.return_empty(empty);
                    }
                }
                let rest: Vec<u32> = (whole..buffers).rev().collect();
                self.put_locked(&rest);
            }
            Order::LockFreeStack { .. } | Order::Stack => {
                let indices: Vec<u32> = (0..buffers).rev().collect();
                self.put(&indices);
            }
            Order::Ring(_) => self.put(&(0..buffers).collect::<Vec<_>>()),
        }
    }

    /// Indices that fit a magazine.
    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether lanes keep nothing.
    pub(crate) const fn uncached(&self) -> bool {
        self.uncached
    }

    /// The first of the `capacity` cells of a magazine.
    ///
    /// A pointer and not a slice: a lane keeps that of its loaded magazine while the magazine is flushed or exchanged
    /// here, and a second exclusive slice of the same cells would invalidate it. Only the magazine's owner may use it.
    #[inline(always)]
    pub(crate) fn cells(&self, number: u32) -> NonNull<u32> {
        let lines = self.capacity.div_ceil(CELLS);
        let start = number as usize * lines;
        // The lines have CELLS cells each, one behind the other, so at least `capacity`, and UnsafeCell<u32> has the
        // layout of u32.
        NonNull::from(&self.cells[start..start + lines]).cast()
    }

    /// The first `length` indices in a magazine.
    ///
    /// # Safety
    /// The caller owns the magazine, `length` is at most the capacity, and nobody writes to its cells while the result
    /// is used.
    #[inline(always)]
    pub(crate) unsafe fn indices(&self, number: u32, length: usize) -> &[u32] {
        debug_assert!(length <= self.capacity);
        // SAFETY: a magazine has `capacity` cells; the rest is the caller's.
        unsafe { std::slice::from_raw_parts(self.cells(number).as_ptr(), length) }
    }

    /// Lends a magazine to a lane.
    pub(crate) fn lend(&self) -> Option<u32> {
        match &self.order {
            Order::Depot(depot) => depot.lend(),
            _ => self.spare.pop(),
        }
    }

    /// A lane returns a magazine, with `length` indices in it.
    pub(crate) fn return_magazine(&self, number: u32, length: usize) {
        self.empty(number, length);
        if let Order::Depot(depot) = &self.order {
            depot.return_empty(number);
        } else {
            let pushed = self.spare.push(number);
            debug_assert!(pushed.is_ok());
        }
    }

    /// Returns the `length` indices in a lane's magazine; the lane keeps the magazine.
    pub(crate) fn empty(&self, number: u32, length: usize) {
        if length > 0 {
            // SAFETY: the lane's own thread calls, and writes no cells meanwhile.
            self.put(unsafe { self.indices(number, length) });
        }
    }

    /// Exchanges the empty magazine `number` for one with up to `wanted` indices in it, or with as many as it holds
    /// if that is how this pool is exchanged. `None` if there is no buffer for a lane that has `share` reserved.
    pub(crate) fn exchange_for_full(&self, number: u32, wanted: usize, share: u32) -> Option<Held> {
        let mut wanted = wanted.min(self.capacity);
        let others = self.reserved.load(Ordering::Relaxed).saturating_sub(share);
        if others > 0 {
            wanted = wanted.min(self.level().saturating_sub(others) as usize);
        }
        if wanted == 0 {
            return None;
        }
        // SAFETY: the caller owns the magazine, `wanted` is at most the capacity, and each slice is used up before the
        // next is made.
        let cells = || unsafe { std::slice::from_raw_parts_mut(self.cells(number).as_ptr(), wanted) };
        let count = match &self.order {
            Order::Depot(depot) if wanted == self.capacity => match depot.exchange_for_full(number) {
                Some(full) => {
                    if !full.hot {
                        self.note_level();
                    }
                    return Some(Held {
                        number: full.number,
                        length: self.capacity,
                        far: self.capacity,
                        hot: full.hot,
                        only_taken_from: true,
                    });
                }
                None => 0,
            },
            Order::LockFreeStack { indices, length } => {
                let count = indices.pop_many(cells());
                length.fetch_sub(count as u32, Ordering::Relaxed);
                count
            }
            Order::Ring(ring) => ring.pop_burst(cells()),
            Order::Depot(_) | Order::Stack => 0,
        };
        let count = if count > 0 { count } else { self.take_locked(cells()) };
        self.note_level();
        if count == 0 {
            return None;
        }
        Some(Held { number, length: count, far: count, hot: false, only_taken_from: true })
    }

    /// Notes that a lane has got fewer buffers than it wants.
    #[cold]
    pub(crate) fn note_shortage(&self) {
        self.shortages.fetch_add(1, Ordering::Relaxed);
    }

    /// Exchanges the full magazine `number` for an empty one.
    pub(crate) fn exchange_for_empty(&self, number: u32) -> u32 {
        if let Order::Depot(depot) = &self.order
            && let Some(empty) = depot.exchange_for_empty(number)
        {
            return empty;
        }
        self.empty(number, self.capacity);
        number
    }

    /// Takes in how many cycles a lane takes for a magazine of the hot set; see [`HotBound`].
    pub(crate) fn observe_taking(&self, cycles: u64) {
        // Whoever finds the lock taken has nothing to say that the other doesn't.
        if let Order::Depot(depot) = &self.order
            && let Some(mut hot_bound) = self.hot_bound.try_lock()
        {
            // What counts is the slower side, which the other one follows only when all between them is full or empty.
            let freeing = self.freeing.swap(0, Ordering::Relaxed);
            let under_way = self.buffers.saturating_sub(self.level()) / self.capacity as u32;
            hot_bound.observe(cycles.max(freeing), under_way);
            depot.set_bound(hot_bound.bound(), hot_bound.is_settling());
        }
    }

    /// Takes in how many cycles a lane takes to fill a magazine with what it frees.
    pub(crate) fn observe_freeing(&self, cycles: u64) {
        self.freeing.store(cycles, Ordering::Relaxed);
    }

    /// Returns indices.
    fn put(&self, indices: &[u32]) {
        match &self.order {
            Order::LockFreeStack { indices: stack, length } => {
                // Counted first, so that the count never falls below zero.
                length.fetch_add(indices.len() as u32, Ordering::Relaxed);
                let pushed = stack.push_many(indices);
                debug_assert!(pushed.is_ok());
            }
            Order::Ring(ring) => {
                // The ring has space for every buffer of the pool, so this cannot fail.
                let pushed = ring.push_bulk(indices);
                debug_assert!(pushed);
            }
            Order::Depot(_) | Order::Stack => self.put_locked(indices),
        }
    }

    fn put_locked(&self, indices: &[u32]) {
        let mut list = self.locked.lock();
        list.indices.extend_from_slice(indices);
        self.locked_length.store(list.indices.len() as u32, Ordering::Relaxed);
    }

    fn take_locked(&self, target: &mut [u32]) -> usize {
        // A stale zero only delays buffers that were returned just now; the next call sees them.
        if self.locked_length.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let mut list = self.locked.lock();
        let count = list.indices.len().min(target.len());
        let rest = list.indices.len() - count;
        target[..count].copy_from_slice(&list.indices[rest..]);
        list.indices.truncate(rest);
        self.locked_length.store(rest as u32, Ordering::Relaxed);
        count
    }

    /// Takes up to `wanted` buffers for a thread without a lane cache and passes each to `use_index`.
    pub(crate) fn take_unattached(&self, wanted: usize, mut use_index: impl FnMut(u32)) -> usize {
        let mut list = self.locked.lock();
        let mut count = 0;
        let others = self.reserved.load(Ordering::Relaxed) as usize;
        let wanted_now = match others {
            0 => wanted,
            _ => wanted.min((self.level() as usize).saturating_sub(others)),
        };
        while count < wanted_now {
            let mut one = [0];
            let index = match &self.order {
                Order::LockFreeStack { indices, length } => {
                    let popped = indices.pop();
                    length.fetch_sub(u32::from(popped.is_some()), Ordering::Relaxed);
                    popped
                }
                Order::Ring(ring) => (ring.pop_burst(&mut one) == 1).then_some(one[0]),
                Order::Depot(depot) => {
                    if list.indices.is_empty()
                        && let Some(lent) = depot.lend()
                    {
                        let full = depot.exchange_for_full(lent).map(|full| full.number);
                        if let Some(number) = full {
                            // SAFETY: the exchange gave this thread the magazine.
                            list.indices.extend_from_slice(unsafe { self.indices(number, self.capacity) });
                        }
                        depot.return_empty(full.unwrap_or(lent));
                    }
                    list.indices.pop()
                }
                Order::Stack => list.indices.pop(),
            };
            let Some(index) = index else { break };
            use_index(index);
            count += 1;
        }
        list.taken += count as u64;
        list.unattached += 1;
        self.locked_length.store(list.indices.len() as u32, Ordering::Relaxed);
        if count < wanted {
            self.note_shortage();
        }
        drop(list);
        self.note_level();
        count
    }

    /// Counts packets that a thread without a lane cache wanted and did not get.
    #[cold]
    pub(crate) fn count_refused(&self, packets: usize) {
        self.locked.lock().refused += packets as u64;
    }

    /// Returns buffers that a thread without a lane cache frees. The counters in `list` are the caller's.
    pub(crate) fn put_unattached(&self, list: &mut LockedList, indices: &[u32]) {
        list.unattached += 1;
        match &self.order {
            Order::Depot(_) | Order::Stack => {
                list.indices.extend_from_slice(indices);
                self.locked_length.store(list.indices.len() as u32, Ordering::Relaxed);
            }
            Order::LockFreeStack { .. } | Order::Ring(_) => self.put(indices),
        }
    }

    /// Buffers that are here, and not with a lane or in a packet: a moment's view.
    pub(crate) fn level(&self) -> u32 {
        let list = self.locked_length.load(Ordering::Relaxed);
        match &self.order {
            Order::Depot(depot) => depot.full() * self.capacity as u32 + list,
            Order::Stack => list,
            Order::LockFreeStack { length, .. } => length.load(Ordering::Relaxed),
            Order::Ring(ring) => ring.len() as u32,
        }
    }

    fn note_level(&self) {
        let level = self.level();
        if level < self.lowest.load(Ordering::Relaxed) {
            self.lowest.fetch_min(level, Ordering::Relaxed);
        }
    }

    /// See [`crate::pool::Occupancy::lowest`].
    pub(crate) fn lowest(&self) -> u32 {
        self.note_level();
        self.lowest.load(Ordering::Relaxed)
    }

    /// Buffers that the hot set is to have; 0 without a depot.
    pub(crate) fn hot_set(&self) -> u32 {
        match &self.order {
            Order::Depot(depot) => depot.bound() * self.capacity as u32,
            _ => 0,
        }
    }

    /// How often somebody wanted more than there was.
    #[inline(always)]
    pub(crate) fn shortages(&self) -> u32 {
        self.shortages.load(Ordering::Relaxed)
    }

    /// Reserves `share` buffers for a lane, if no more than `limit` are reserved then.
    pub(crate) fn reserve(&self, share: u32, limit: u32) -> bool {
        self.reserved
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |reserved| {
                reserved.checked_add(share).filter(|&sum| sum <= limit)
            })
            .is_ok()
    }

    /// Gives up what [`reserve`](Self::reserve) reserved.
    pub(crate) fn release(&self, share: u32) {
        self.reserved.fetch_sub(share, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
