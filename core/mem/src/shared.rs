//! The part of a pool that all its handles, lanes and packets share: its memory, its books, its end.

use crate::error::PoolError;
use crate::header::{APPLICATION_BYTES, HEADER_BYTES, Header, Identity, Volatile, clean};
use crate::home::Home;
use crate::id::BufferId;
use crate::ledger::{LaneCounters, Ledger};
use crate::pool::PoolConfig;
use crate::register;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};
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
    pub(crate) home: Home,
    /// For each buffer that a shared packet starts with: how many hold it.
    pub(crate) holders: Box<[AtomicU32]>,
    lanes: Mutex<Vec<Arc<LaneCounters>>>,
}

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
        let home = Home::new(config, stride)?;
        let slot = register::claim().ok_or(PoolError::TooManyPools)?;
        let start_offset = (HEADER_BYTES + config.headroom) as u16;
        let clean = clean(start_offset, start_offset + config.room as u16);
        let base = mapping.as_ptr();
        for index in 0..config.buffers {
            let header = Header {
                volatile: clean,
                identity: Identity::single(BufferId::new(slot, index)),
                application: [0; APPLICATION_BYTES],
            };
            // SAFETY: index < buffers, so the header lies inside the mapping of buffers × stride bytes, aligned
            // to 64 because mapping and stride are; nobody else knows the mapping yet.
            unsafe { base.add(index as usize * stride).cast::<Header>().write(header) };
        }
        let holders = (0..buffers).map(|_| AtomicU32::new(0)).collect();
        let lanes = Mutex::new(Vec::with_capacity(MAXIMUM_LANES as usize));
        let shared = Self { config: config.clone(), slot, stride, clean, mapping, home, holders, lanes };
        let shared = NonNull::from(Box::leak(Box::new(shared)));
        register::publish(slot, base, stride, start_offset, shared);
        Ok(shared)
    }

    /// Frees buffers for a thread without a lane cache; takes the pool down if they were the last of an orphaned one.
    ///
    /// By pointer and not by reference, as in `Arc`'s drop: once the lock is released another thread may bring the
    /// last buffer home and unmap the pool, while a reference would have to stay good until the return.
    ///
    /// # Safety
    /// Each index is a buffer of the pool `this` that its caller owned and gives up here; at least one.
    pub(crate) unsafe fn free_unattached(this: *mut Self, indices: &[u32]) {
        let last = {
            // SAFETY: the pool lives until its last buffer is home, and this thread's are not before the lock is
            // released; after that nothing here is touched.
            let home = unsafe { &(*this).home };
            let mut loose = home.loose.lock();
            home.put_unattached(&mut loose, indices);
            loose.freed += indices.len() as u64;
            loose.orphaned && loose.taken == loose.freed
        };
        if last {
            // SAFETY: the pool is orphaned and all its buffers are home, as only one thread finds.
            unsafe { Self::destroy(this) };
        }
    }

    /// Called when the last handle goes: takes the pool down if all buffers are home; otherwise who brings the last
    /// one home does.
    ///
    /// # Safety
    /// `this` is alive, and no handle or lane cache of it is left.
    pub(crate) unsafe fn orphan(this: NonNull<Self>) {
        let this = this.as_ptr();
        let last = {
            // SAFETY: the pool lives until this call marks it, and after the lock is released nothing here is touched.
            let mut loose = unsafe { &(*this).home }.loose.lock();
            loose.orphaned = true;
            loose.taken == loose.freed
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
    /// thread that finds, under the lock, an orphaned pool's books even says so.
    unsafe fn destroy(this: *mut Self) {
        // SAFETY: the caller vouches that this is the last pointer to what Box::leak gave.
        let shared = unsafe { Box::from_raw(this) };
        register::vacate(shared.slot);
    }

    /// Opens the books of a lane; `None` if there are [`MAXIMUM_LANES`] already.
    pub(crate) fn enrol(&self) -> Option<Arc<LaneCounters>> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        (lanes.len() < MAXIMUM_LANES as usize).then(|| {
            let counters = Arc::new(LaneCounters::default());
            lanes.push(Arc::clone(&counters));
            counters
        })
    }

    /// Moves a leaving lane's counts to the pool's own.
    pub(crate) fn settle(&self, counters: &Arc<LaneCounters>) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|lane| !Arc::ptr_eq(lane, counters));
        let mut loose = self.home.loose.lock();
        loose.taken += counters.taken.get();
        loose.freed += counters.freed.get();
        loose.refused += counters.refused.get();
    }

    pub(crate) fn ledger(&self) -> Ledger {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let loose = self.home.loose.lock();
        let (mut taken, mut freed) = (loose.taken, loose.freed);
        drop(loose);
        for lane in lanes.iter() {
            // Freed first: a packet taken and freed in between then counts as out and not as minus one.
            freed += lane.freed.get();
            taken += lane.taken.get();
        }
        Ledger { buffers: self.config.buffers, taken, freed }
    }

    /// Packets that were wanted and not to be had.
    pub(crate) fn refused(&self) -> u64 {
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let settled = self.home.loose.lock().refused;
        settled + lanes.iter().map(|lane| lane.refused.get()).sum::<u64>()
    }
}
