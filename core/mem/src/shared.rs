//! The part of a pool that all lanes share: where buffers are when no lane has them.
//!
//! Three orders, one interface. *Depot*: whole magazines (arrays of buffer indices) on a lock-free LIFO, so that
//! a lane exchanges two numbers and copies nothing, and buffers freed last are taken first (Bonwick and Adams,
//! "Magazines and Vmem", USENIX ATC 2001). *Stack*: one LIFO under a lock. *Ring*: one FIFO, which walks through
//! every buffer of the pool before it reuses one. Beside each stands the *loose* list, for threads that have no
//! lane cache and for what a leaving lane brings home.

use crate::error::PoolError;
use crate::header::{Header, Volatile, clean};
use crate::id::BufferId;
use crate::ledger::{LaneCounters, Ledger};
use crate::pool::{PoolConfig, PoolKind};
use crate::register;
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use warmlane_sync::index_stack::IndexStack;
use warmlane_sync::mpmc;
use warmlane_sync::spin::SpinLock;
use warmlane_sys::pages::{Mapping, MappingRequest};

/// Lanes that can be attached to one pool at the same time.
pub const MAXIMUM_LANES: u32 = 64;

/// See the module.
pub(crate) struct Shared {
    pub(crate) config: PoolConfig,
    pub(crate) slot: u8,
    pub(crate) stride: usize,
    pub(crate) clean: Volatile,
    pub(crate) mapping: Mapping,
    /// All magazines of the pool, `config.magazine` indices each. A magazine's number is in exactly one place:
    /// on `empty`, on `full`, or with a lane; who has the number owns the cells.
    magazines: Box<[UnsafeCell<u32>]>,
    empty: IndexStack,
    /// Depot only: magazines with `config.magazine` indices in them.
    full: IndexStack,
    /// Ring only.
    ring: Option<mpmc::Ring<u32>>,
    loose: SpinLock<Loose>,
    /// How many indices `loose` holds, so that an exhausted pool is not polled through its lock.
    loose_length: AtomicU32,
    pub(crate) lanes: Mutex<Vec<Arc<LaneCounters>>>,
}

/// What is kept under the lock. Its vector has room for every buffer of the pool, so it never grows.
struct Loose {
    indices: Vec<u32>,
    taken: u64,
    freed: u64,
    /// The last handle is gone, packets are still out: the last of them takes the pool down.
    orphaned: bool,
}

// SAFETY: the only parts that are not Sync by themselves are the magazine cells, and each is touched only by the
// owner of its magazine's number. Numbers change hands through `IndexStack`, whose push releases and pop acquires.
unsafe impl Sync for Shared {}
// SAFETY: nothing in here is tied to the thread that made it.
unsafe impl Send for Shared {}

impl Shared {
    pub(crate) fn create(config: &PoolConfig, stride: usize) -> Result<NonNull<Self>, PoolError> {
        let buffers = config.buffers as usize;
        let request = MappingRequest {
            name: config.name.clone(),
            length: buffers
                .checked_mul(stride)
                .ok_or(PoolError::TooLarge { buffers: config.buffers, stride })?,
            pages: config.pages,
        };
        let mapping = Mapping::new(&request)
            .map_err(|source| PoolError::Memory { pool: config.name.clone(), source })?;
        let magazine = config.magazine as usize;
        let lane_magazines = 2 * MAXIMUM_LANES;
        // Full magazines hold `magazine` buffers each, so there are never more of them than fit the pool.
        let depot_magazines = match config.kind {
            PoolKind::Depot => config.buffers.div_ceil(config.magazine),
            PoolKind::Stack | PoolKind::Ring => 0,
        };
        let magazine_count = lane_magazines + depot_magazines;
        let empty = IndexStack::new(magazine_count);
        for number in 0..magazine_count {
            let pushed = empty.push(number);
            debug_assert!(pushed.is_ok());
        }
        let ring = match config.kind {
            PoolKind::Ring => Some(
                mpmc::Ring::new(buffers.next_power_of_two())
                    .map_err(|_| PoolError::TooLarge { buffers: config.buffers, stride })?,
            ),
            PoolKind::Depot | PoolKind::Stack => None,
        };
        let slot = register::claim().ok_or(PoolError::TooManyPools)?;
        let start_offset = (crate::header::HEADER_BYTES + config.headroom) as u16;
        let clean = clean(start_offset);
        let base = mapping.as_ptr();
        for index in 0..config.buffers {
            let header = Header {
                volatile: clean,
                id: BufferId::new(slot, index),
                end_offset: start_offset + config.room as u16,
                start_offset,
                application: [0; crate::header::APPLICATION_BYTES],
            };
            // SAFETY: index < buffers, so the header lies inside the mapping of buffers × stride bytes, aligned
            // to 64 because mapping and stride are; nobody else knows the mapping yet.
            unsafe { base.add(index as usize * stride).cast::<Header>().write(header) };
        }
        let shared = Self {
            config: config.clone(),
            slot,
            stride,
            clean,
            mapping,
            magazines: (0..magazine_count as usize * magazine).map(|_| UnsafeCell::new(0)).collect(),
            empty,
            full: IndexStack::new(magazine_count),
            ring,
            loose: SpinLock::new(Loose {
                indices: Vec::with_capacity(buffers),
                taken: 0,
                freed: 0,
                orphaned: false,
            }),
            loose_length: AtomicU32::new(0),
            lanes: Mutex::new(Vec::new()),
        };
        shared.fill();
        let shared = NonNull::from(Box::leak(Box::new(shared)));
        register::publish(slot, base, stride, shared);
        Ok(shared)
    }

    /// Puts every buffer in its first place. Low indices are taken first.
    fn fill(&self) {
        let magazine = self.config.magazine as usize;
        let mut rest: Vec<u32> = (0..self.config.buffers).collect();
        if let Some(ring) = &self.ring {
            let pushed = ring.push_bulk(&rest);
            debug_assert!(pushed);
            return;
        }
        rest.reverse();
        if self.config.kind == PoolKind::Depot {
            let whole = rest.len() - rest.len() % magazine;
            for chunk in rest[..whole].chunks_exact(magazine) {
                let Some(number) = self.empty.pop() else { break };
                // SAFETY: the number was just popped, so this thread owns the magazine.
                unsafe { self.cells(number) }.copy_from_slice(chunk);
                let pushed = self.full.push(number);
                debug_assert!(pushed.is_ok());
            }
            rest.drain(..whole);
        }
        let mut loose = self.loose.lock();
        loose.indices.extend_from_slice(&rest);
        self.loose_length.store(rest.len() as u32, Ordering::Relaxed);
    }

    /// The cells of magazine `number`.
    ///
    /// # Safety
    /// The caller owns the magazine and makes no second slice of it while this one lives.
    #[expect(clippy::mut_from_ref, reason = "each magazine's cells belong to the holder of its number")]
    pub(crate) unsafe fn cells(&self, number: u32) -> &mut [u32] {
        let magazine = self.config.magazine as usize;
        let cells = &self.magazines[number as usize * magazine..][..magazine];
        // SAFETY: `cells` bounds the memory, UnsafeCell<u32> has the layout of u32, and the caller is the owner.
        unsafe { std::slice::from_raw_parts_mut(cells.as_ptr().cast_mut().cast(), magazine) }
    }

    /// An empty magazine for a lane that attaches; `None` if [`MAXIMUM_LANES`] are attached.
    pub(crate) fn lend_magazine(&self) -> Option<u32> {
        self.empty.pop()
    }

    /// Takes a lane's magazine back, with `length` indices in it.
    pub(crate) fn return_magazine(&self, number: u32, length: usize) {
        // SAFETY: the lane gives the number up here, so this thread owns the cells until the push below.
        let indices = &unsafe { self.cells(number) }[..length];
        if length > 0 {
            self.put_loose(indices);
        }
        let pushed = self.empty.push(number);
        debug_assert!(pushed.is_ok());
    }

    /// Exchanges the empty magazine `number` for one with indices in it: `(number, length)`, or `None` if the
    /// pool has no buffer to give.
    pub(crate) fn exchange_for_full(&self, number: u32) -> Option<(u32, usize)> {
        match self.config.kind {
            PoolKind::Depot => {
                if let Some(full) = self.full.pop() {
                    let pushed = self.empty.push(number);
                    debug_assert!(pushed.is_ok());
                    return Some((full, self.config.magazine as usize));
                }
            }
            PoolKind::Ring => {
                // SAFETY: the caller owns the magazine.
                let cells = unsafe { self.cells(number) };
                let count = self.ring.as_ref().map_or(0, |ring| ring.pop_burst(cells));
                return (count > 0).then_some((number, count));
            }
            PoolKind::Stack => {}
        }
        // A stale zero only delays buffers that came home just now; the next call sees them.
        if self.loose_length.load(Ordering::Relaxed) == 0 {
            return None;
        }
        // SAFETY: the caller owns the magazine.
        let cells = unsafe { self.cells(number) };
        let mut loose = self.loose.lock();
        let count = loose.indices.len().min(cells.len());
        let rest = loose.indices.len() - count;
        cells[..count].copy_from_slice(&loose.indices[rest..]);
        loose.indices.truncate(rest);
        self.loose_length.store(rest as u32, Ordering::Relaxed);
        (count > 0).then_some((number, count))
    }

    /// Exchanges the full magazine `number` for an empty one.
    pub(crate) fn exchange_for_empty(&self, number: u32) -> u32 {
        if self.config.kind == PoolKind::Depot
            && let Some(empty) = self.empty.pop()
        {
            let pushed = self.full.push(number);
            debug_assert!(pushed.is_ok());
            return empty;
        }
        // SAFETY: the caller owns the magazine.
        self.put_loose(unsafe { self.cells(number) });
        number
    }

    /// Brings indices home that a lane held; the lane has counted them.
    fn put_loose(&self, indices: &[u32]) {
        if let Some(ring) = &self.ring {
            // The ring has room for every buffer of the pool, so this cannot fail.
            let pushed = ring.push_bulk(indices);
            debug_assert!(pushed);
            return;
        }
        let mut loose = self.loose.lock();
        loose.indices.extend_from_slice(indices);
        self.loose_length.store(loose.indices.len() as u32, Ordering::Relaxed);
    }

    /// Takes up to `wanted` buffers for a thread without a lane cache and hands each to `use_index`.
    pub(crate) fn take_unattached(&self, wanted: usize, mut use_index: impl FnMut(u32)) -> usize {
        let mut loose = self.loose.lock();
        let mut count = 0;
        while count < wanted {
            let index = if let Some(ring) = &self.ring {
                let mut one = [0];
                (ring.pop_burst(&mut one) == 1).then_some(one[0])
            } else {
                if loose.indices.is_empty()
                    && let Some(number) = self.full.pop()
                {
                    // SAFETY: the number was just popped, so this thread owns the magazine until the push.
                    loose.indices.extend_from_slice(unsafe { self.cells(number) });
                    let pushed = self.empty.push(number);
                    debug_assert!(pushed.is_ok());
                }
                loose.indices.pop()
            };
            let Some(index) = index else { break };
            use_index(index);
            count += 1;
        }
        loose.taken += count as u64;
        self.loose_length.store(loose.indices.len() as u32, Ordering::Relaxed);
        count
    }

    /// Frees buffers for a thread without a lane cache. `true`: these were the last of an orphaned pool, and the
    /// caller must [`destroy`](Self::destroy) it.
    ///
    /// # Safety
    /// Each index is a buffer of this pool that its caller owned and gives up here.
    #[must_use]
    pub(crate) unsafe fn free_unattached(&self, indices: &[u32]) -> bool {
        let mut loose = self.loose.lock();
        if let Some(ring) = &self.ring {
            let pushed = ring.push_bulk(indices);
            debug_assert!(pushed);
        } else {
            loose.indices.extend_from_slice(indices);
            self.loose_length.store(loose.indices.len() as u32, Ordering::Relaxed);
        }
        loose.freed += indices.len() as u64;
        loose.orphaned && loose.taken == loose.freed
    }

    /// Called when the last handle goes. `true`: all buffers are home, and the caller must
    /// [`destroy`](Self::destroy) the pool; otherwise who brings the last packet home does.
    #[must_use]
    pub(crate) fn orphan(&self) -> bool {
        let mut loose = self.loose.lock();
        loose.orphaned = true;
        loose.taken == loose.freed
    }

    /// Unmaps the pool.
    ///
    /// # Safety
    /// `this` came from [`create`](Self::create), and no handle, lane cache or packet of the pool is left: the one
    /// call of `orphan` or `free_unattached` that returned `true` says so, because the lock orders the two.
    pub(crate) unsafe fn destroy(this: NonNull<Self>) {
        // SAFETY: the caller vouches that this is the last reference to what Box::leak gave.
        let shared = unsafe { Box::from_raw(this.as_ptr()) };
        register::vacate(shared.slot);
    }

    /// Moves a leaving lane's counts to the pool's own.
    pub(crate) fn settle(&self, counters: &Arc<LaneCounters>) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|lane| !Arc::ptr_eq(lane, counters));
        let mut loose = self.loose.lock();
        loose.taken += counters.taken.get();
        loose.freed += counters.freed.get();
    }

    pub(crate) fn ledger(&self) -> Ledger {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let loose = self.loose.lock();
        let (mut taken, mut freed) = (loose.taken, loose.freed);
        drop(loose);
        for lane in lanes.iter() {
            // Freed first: a packet taken and freed in between then counts as out and not as minus one.
            freed += lane.freed.get();
            taken += lane.taken.get();
        }
        Ledger { buffers: self.config.buffers, taken, freed }
    }
}
