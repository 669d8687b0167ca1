//! The part of a pool that all its handles, lanes and packets share: its memory, its counters, its end.

use crate::error::PoolError;
use crate::free_list::FreeList;
use crate::header::{APPLICATION_BYTES, HEADER_BYTES, Header, Identity, PacketState, clean};
use crate::id::BufferId;
use crate::ledger::{LaneCounters, LaneCountersView, Ledger};
use crate::lent_memory::{LentMemory, Memory};
use crate::pool::{Handle, Pool, PoolConfig};
use crate::register;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, Weak};
use warmlane_sys::pages::{Mapping, MappingRequest};

/// Lanes that can be attached to one pool at the same time.
pub const MAXIMUM_LANES: u32 = 64;

/// See the module.
pub(crate) struct Shared {
    pub(crate) config: PoolConfig,
    pub(crate) slot: u8,
    pub(crate) stride: usize,
    pub(crate) clean: PacketState,
    pub(crate) memory: Memory,
    pub(crate) free_list: FreeList,
    /// For each buffer that a shared packet starts with: how many hold it.
    pub(crate) holders: Box<[AtomicU32]>,
    lanes: Mutex<Vec<LaneCountersView>>,
    /// How many are in `lanes`.
    lane_count: AtomicU32,
    /// For lanes that come upon a buffer of the pool without having a handle.
    handle: OnceLock<Weak<Handle>>,
}

impl Shared {
    /// In memory of its own, or in what another process has lent, which has all buffers at first.
    pub(crate) fn create(
        config: &PoolConfig,
        stride: usize,
        lent: Option<LentMemory>,
    ) -> Result<NonNull<Self>, PoolError> {
        let buffers = config.buffers as usize;
        let is_lent = lent.is_some();
        let memory = match lent {
            Some(lent) => Memory::Lent(lent),
            None => Memory::Own(Self::map(config, stride)?),
        };
        let free_list = FreeList::new(config, stride, !is_lent)?;
        let slot = register::claim().ok_or(PoolError::TooManyPools)?;
        let start_offset = (HEADER_BYTES + config.headroom) as u16;
        let clean = clean(start_offset, start_offset + config.data_size as u16);
        let base = memory.start();
        let made = if is_lent { 0 } else { config.buffers };
        for index in 0..made {
            let header = Header {
                state: clean,
                identity: Identity::single(BufferId::new(slot, index)),
                application: [0; APPLICATION_BYTES],
                mark: 0,
                hash: 0,
                vlan: 0,
                segment_size: 0,
            };
            // SAFETY: index < buffers, so the header lies inside the mapping of buffers × stride bytes, aligned
            // to 64 because mapping and stride are; nobody else knows the mapping yet.
            unsafe { base.add(index as usize * stride).cast::<Header>().write(header) };
        }
        let holders = (0..buffers).map(|_| AtomicU32::new(0)).collect();
        let lanes = Mutex::new(Vec::with_capacity(MAXIMUM_LANES as usize));
        let shared = Self {
            config: config.clone(),
            slot,
            stride,
            clean,
            memory,
            free_list,
            holders,
            lanes,
            lane_count: AtomicU32::new(0),
            handle: OnceLock::new(),
        };
        let shared = NonNull::from(Box::leak(Box::new(shared)));
        register::publish(slot, base, stride, start_offset, shared);
        Ok(shared)
    }

    fn map(config: &PoolConfig, stride: usize) -> Result<Mapping, PoolError> {
        let length = (config.buffers as usize)
            .checked_mul(stride)
            .ok_or(PoolError::TooLarge { buffers: config.buffers, stride })?;
        let request = MappingRequest { name: config.name.clone(), length, pages: config.pages };
        Mapping::new(&request).map_err(|source| PoolError::Memory { pool: config.name.clone(), source })
    }

    /// Makes the handle known that all others are cloned from.
    pub(crate) fn set_handle(&self, handle: Weak<Handle>) {
        // Called once.
        let _ = self.handle.set(handle);
    }

    /// A handle of the pool, if somebody has one.
    pub(crate) fn pool(&self) -> Option<Pool> {
        self.handle.get()?.upgrade().map(Pool::from_handle)
    }

    /// Lanes that are attached.
    pub(crate) fn lane_count(&self) -> u32 {
        self.lane_count.load(Ordering::Relaxed)
    }

    /// Frees buffers for a thread without a lane cache; takes the pool down if they were the last of an orphaned one.
    ///
    /// By pointer and not by reference, as in `Arc`'s drop: once the lock is released another thread may return the
    /// last buffer and unmap the pool, while a reference would have to stay good until the return.
    ///
    /// # Safety
    /// Each index is a buffer of the pool `this` that its caller owned and gives up here; at least one.
    pub(crate) unsafe fn free_unattached(this: *mut Self, indices: &[u32]) {
        let last = {
            // SAFETY: the pool lives until its last buffer is returned, and this thread's are not before the lock is
            // released; after that nothing here is touched.
            let free_list = unsafe { &(*this).free_list };
            let mut list = free_list.locked.lock();
            free_list.put_unattached(&mut list, indices);
            list.freed += indices.len() as u64;
            list.orphaned && list.taken == list.freed
        };
        if last {
            // SAFETY: the pool is orphaned and all its buffers are returned, as only one thread finds.
            unsafe { Self::destroy(this) };
        }
    }

    /// Called when the last handle goes: takes the pool down if all buffers are returned; otherwise whoever
    /// returns the last one does.
    ///
    /// # Safety
    /// `this` is alive, and no handle or lane cache of it is left.
    pub(crate) unsafe fn orphan(this: NonNull<Self>) {
        let this = this.as_ptr();
        let last = {
            // SAFETY: the pool lives until this call marks it, and after the lock is released nothing here is touched.
            let mut list = unsafe { &(*this).free_list }.locked.lock();
            list.orphaned = true;
            list.taken == list.freed
        };
        if last {
            // SAFETY: as in `free_unattached`.
            unsafe { Self::destroy(this) };
        }
    }

    /// Unmaps the pool.
    ///
    /// # Safety
    /// `this` came from [`create`](Self::create), and no handle, lane cache or packet of the pool is left: the one
    /// thread that finds, under the lock, an orphaned pool's counts equal says so.
    unsafe fn destroy(this: *mut Self) {
        // SAFETY: the caller vouches that this is the last pointer to what Box::leak gave.
        let shared = unsafe { Box::from_raw(this) };
        register::vacate(shared.slot);
    }

    /// Registers a lane's counters; `None` if there are [`MAXIMUM_LANES`] already.
    pub(crate) fn register_lane(&self) -> Option<LaneCounters> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        (lanes.len() < MAXIMUM_LANES as usize).then(|| {
            let counters = LaneCounters::new();
            lanes.push(counters.view());
            self.lane_count.store(lanes.len() as u32, Ordering::Relaxed);
            counters
        })
    }

    /// Moves a leaving lane's counts to the pool's own.
    pub(crate) fn unregister_lane(&self, counters: &LaneCounters) {
        let leaving = counters.view();
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|lane| !lane.is_same(&leaving));
        self.lane_count.store(lanes.len() as u32, Ordering::Relaxed);
        let mut list = self.free_list.locked.lock();
        list.taken += leaving.taken();
        list.freed += leaving.freed();
        list.refused += leaving.refused();
    }

    pub(crate) fn ledger(&self) -> Ledger {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let list = self.free_list.locked.lock();
        let (mut taken, mut freed) = (list.taken, list.freed);
        drop(list);
        for lane in lanes.iter() {
            // Freed first: a packet taken and freed in between then counts as out and not as minus one.
            freed += lane.freed();
            taken += lane.taken();
        }
        Ledger { buffers: self.config.buffers, taken, freed }
    }

    /// Packets that were wanted and not to be had.
    pub(crate) fn refused(&self) -> u64 {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let settled = self.free_list.locked.lock().refused;
        settled + lanes.iter().map(LaneCountersView::refused).sum::<u64>()
    }
}
