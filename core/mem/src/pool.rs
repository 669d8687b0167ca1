//! Pools: where buffers come from and go back to.

use crate::burst::Burst;
use crate::error::PoolError;
use crate::frames::{Copied, Cursor, Frames};
use crate::header::HEADER_BYTES;
use crate::id::MAXIMUM_BUFFERS;
use crate::lane_cache::{self, LaneCache};
use crate::ledger::Ledger;
use crate::lent_memory::LentMemory;
use crate::packet::Packet;
use crate::plan::{CacheShape, Demands, Plan, PlanError, Request};
use crate::shared::Shared;
use crate::variations::Variations;
use std::ptr::NonNull;
use std::sync::Arc;
use warmlane_sys::pages::{Mapping, PagePreference, PageSize};

/// The farthest that buffers can stand apart: what the offsets inside a buffer reach.
const MAXIMUM_STRIDE: usize = 1 << u16::BITS;

/// Buffers in a magazine of a pool that has enough.
const USUAL_MAGAZINE: u32 = 256;

/// The largest magazine that a pool can be told to have.
const LARGEST_MAGAZINE: u32 = 4_096;

/// In which order a pool's buffers are used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolKind {
    /// Whole magazines, no lock: first in, first out inside a hot set that finds its own size, last in, first out
    /// beyond. The default, and right unless measured otherwise.
    #[default]
    Depot,
    /// Last in, first out, one buffer behind the other, under a lock.
    Stack,
    /// Last in, first out, one buffer behind the other, without a lock.
    LockFreeStack,
    /// First in, first out: every buffer is used before one is used again.
    Ring,
}

/// What a pool should be like.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Shown in errors, statistics and the process's memory map.
    pub name: String,
    /// How many buffers.
    pub buffers: u32,
    /// Bytes for data in each buffer, behind the headroom. Longer packets are chained.
    pub data_size: usize,
    /// Bytes kept free in front of the data, for headers that are put on later.
    pub headroom: usize,
    /// The order of reuse.
    pub kind: PoolKind,
    /// Lanes that will use the pool. All together keep at most a quarter of its buffers to themselves if as many do.
    pub lanes: u32,
    /// Buffers that a lane exchanges with the pool at a time; it keeps up to two times as many. `None` takes as many as
    /// `lanes` allow, up to 256. With 0 or 1 a lane keeps none: each take and each free goes to the pool at once, and a
    /// depot is a lock-free stack. 128 cost two lanes 6 to 15 % more than 256 where 64 bytes of each packet are touched, and
    /// with 8,191 buffers 6 % less (Granite Rapids).
    pub magazine: Option<u32>,
    /// Buffers that a depot keeps going round, in whole magazines; `None` lets it find by trying how many are best, and go on
    /// trying. A number is for experiments.
    pub hot_set: Option<u32>,
    /// What the memory should be made of.
    pub pages: PagePreference,
    /// Bytes from one buffer to the next; `None` lets the planner choose for this machine's caches.
    pub stride: Option<usize>,
    /// What the ports that share the memory demand of it; [`Demands::POOL`] if none does.
    pub demands: Demands,
}

impl Default for PoolConfig {
    /// 16,384 buffers for standard Ethernet frames.
    fn default() -> Self {
        Self {
            name: "packets".to_owned(),
            buffers: 16_384,
            data_size: 2_048,
            headroom: 128,
            kind: PoolKind::default(),
            lanes: 4,
            magazine: None,
            hot_set: None,
            pages: PagePreference::Best,
            stride: None,
            demands: Demands::POOL,
        }
    }
}

impl PoolConfig {
    /// Bytes that one buffer needs at least: header, headroom and data.
    pub const fn buffer_bytes(&self) -> usize {
        HEADER_BYTES + self.headroom + self.data_size
    }

    /// Buffers in a magazine; 0 if lanes keep none.
    pub fn magazine_size(&self) -> u32 {
        let size = self.magazine.unwrap_or_else(|| {
            // Two for each lane are a quarter of all.
            let most = self.buffers / self.lanes.max(1).saturating_mul(8);
            most.checked_ilog2().map_or(0, |log2| (1 << log2).min(USUAL_MAGAZINE))
        });
        if size > 1 { size } else { 0 }
    }

    fn check(&self) -> Result<usize, PoolError> {
        let pool = || self.name.clone();
        if self.buffers == 0 {
            return Err(PoolError::NoBuffers { pool: pool() });
        }
        if self.buffers > MAXIMUM_BUFFERS {
            return Err(PoolError::TooManyBuffers { pool: pool(), buffers: self.buffers });
        }
        if self.data_size == 0 {
            return Err(PoolError::NoSpace { pool: pool() });
        }
        let fits = self
            .data_size
            .checked_add(self.headroom)
            .is_some_and(|sum| sum <= usize::from(u16::MAX) - HEADER_BYTES);
        if !fits {
            return Err(PoolError::BufferTooLarge {
                pool: pool(),
                headroom: self.headroom,
                data_size: self.data_size,
            });
        }
        if let Some(magazine) = self.magazine
            && magazine > LARGEST_MAGAZINE
        {
            return Err(PoolError::Magazine { pool: pool(), magazine });
        }
        let needed = self.buffer_bytes();
        if let Some(stride) = self.stride
            && (!stride.is_multiple_of(HEADER_BYTES) || stride < needed || stride > MAXIMUM_STRIDE)
        {
            return Err(PoolError::Stride { pool: pool(), stride, needed });
        }
        let stride = match self.stride {
            Some(stride) if self.demands == Demands::POOL => stride,
            None if self.demands == Demands::POOL => Plan::for_this_machine(needed, self.headroom).stride,
            _ => self.plan(needed).map_err(|source| PoolError::Plan { pool: pool(), source })?,
        };
        // A port may demand more than the offsets inside a buffer reach.
        if stride > MAXIMUM_STRIDE {
            Err(PoolError::Stride { pool: pool(), stride, needed })
        } else {
            Ok(stride)
        }
    }

    /// The stride that meets what ports demand.
    fn plan(&self, needed: usize) -> Result<usize, PlanError> {
        let caches = CacheShape::of_this_machine();
        let demands = self.demands.and(Demands::POOL);
        let request = Request { needed, headroom: self.headroom, caches: &caches, memory: None, demands };
        let plan = match self.stride {
            Some(stride) => Plan::given(&request, stride)?,
            None => Plan::new(&request)?,
        };
        plan.region_bytes(self.buffers)?;
        Ok(plan.stride)
    }
}

/// How full a pool is and has been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Buffers in the pool: neither in a packet nor held in reserve by a lane. A moment's view.
    pub available: u32,
    /// The low-water mark: the fewest that were available when somebody looked, a lane that went beyond the hot set, or the
    /// caller. That it came near 0 is the time to make the pool larger; [`Pool::attach_with_share`] keeps some for one lane.
    pub lowest: u32,
    /// Buffers that a depot keeps going round, as it has found best by now; 0 for other kinds.
    pub hot_set: u32,
    /// Packets that somebody wanted and that were not to be had, since the pool was made.
    pub refused: u64,
    /// How often a thread without a lane cache has taken buffers or freed some. Each time it takes a lock; if a lane does
    /// so, its packets cost some three times as much.
    pub unattached: u64,
}

/// A handle of a pool: clone it freely, send it anywhere.
///
/// The memory stays mapped until the last handle, lane cache and packet are gone, in whatever order they go.
#[derive(Clone)]
pub struct Pool {
    handle: Arc<Handle>,
}

/// What the clones of a [`Pool`] share; its drop is "the last handle is gone".
pub(crate) struct Handle {
    shared: NonNull<Shared>,
}

// SAFETY: `Shared` is Send and Sync; the pointer is only ever used as a shared reference to it.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the pool is alive: only this starts its end. Lane caches hold a handle each, and the last goes here.
        unsafe { Shared::orphan(self.shared) };
    }
}

impl Pool {
    /// Makes a pool: maps its memory and touches all of it, so that nothing faults later.
    ///
    /// # Errors
    /// [`PoolError`] says which of the wishes cannot be met, and what can.
    pub fn new(config: &PoolConfig) -> Result<Self, PoolError> {
        Self::with_memory(config, None)
    }

    /// In memory of its own if none is lent.
    pub(crate) fn with_memory(config: &PoolConfig, lent: Option<LentMemory>) -> Result<Self, PoolError> {
        let stride = config.check()?;
        let shared = Shared::create(config, stride, lent)?;
        let pool = Self { handle: Arc::new(Handle { shared }) };
        pool.shared().set_handle(Arc::downgrade(&pool.handle));
        Ok(pool)
    }

    pub(crate) const fn from_handle(handle: Arc<Handle>) -> Self {
        Self { handle }
    }

    /// How many handles there are.
    pub(crate) fn handles(&self) -> usize {
        Arc::strong_count(&self.handle)
    }

    #[inline(always)]
    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: this handle keeps the pool alive.
        unsafe { self.handle.shared.as_ref() }
    }

    /// Gives this thread its own cache of the pool's buffers until the guard is dropped. A [lane](crate::LaneThread) gets
    /// one by itself; threads that handle a packet now and then need none.
    ///
    /// # Errors
    /// [`PoolError::AlreadyAttached`], [`PoolError::TooManyLanes`].
    pub fn attach(&self) -> Result<LaneCache, PoolError> {
        LaneCache::attach(self, 0)
    }

    /// The same for a lane that others must not starve: while it is attached, the last `share` buffers in the pool
    /// are left for it, whoever else asks. A lane that cannot get a packet stalls; one whose packets are held up
    /// elsewhere may take all. Threads that are not attached leave everybody's share alone.
    ///
    /// # Errors
    /// As [`attach`](Self::attach), and [`PoolError::Share`] if all shares together are more than half the pool.
    pub fn attach_with_share(&self, share: u32) -> Result<LaneCache, PoolError> {
        LaneCache::attach(self, share)
    }

    /// How full the pool is.
    pub fn occupancy(&self) -> Occupancy {
        let shared = self.shared();
        Occupancy {
            available: self.available(),
            lowest: shared.free_list.lowest(),
            hot_set: shared.free_list.hot_set().min(self.buffers()),
            refused: shared.refused(),
            unattached: shared.free_list.locked.lock().unattached,
        }
    }

    /// [`Occupancy::available`] alone, which takes no lock.
    pub fn available(&self) -> u32 {
        self.shared().free_list.level()
    }

    /// Takes one empty packet; `None` if the pool has none left.
    pub fn take(&self) -> Option<Packet> {
        let mut burst = Burst::with_limit(1);
        lane_cache::take(self, &mut burst, 1);
        burst.pop()
    }

    /// Appends up to `wanted` empty packets to `burst`, and no more than it has space for. Returns how many.
    #[inline]
    pub fn take_burst(&self, burst: &mut Burst, wanted: usize) -> usize {
        lane_cache::take(self, burst, wanted)
    }

    /// Appends up to `wanted` packets to `burst`, and no more than it has space for, each a copy of the frame that
    /// `cursor` comes to in `frames`. A frame longer than a buffer gives an empty packet, for the caller to
    /// make a chain of.
    #[inline]
    pub fn take_copies(
        &self,
        burst: &mut Burst,
        frames: &Frames,
        cursor: &mut Cursor,
        wanted: usize,
    ) -> Copied {
        lane_cache::take_copies(self, burst, frames, cursor, wanted)
    }

    /// Appends up to `wanted` packets to `burst`, and no more than it has space for or there are variations, each a copy of the first of the
    /// `frames` with its own numbers in it. A frame longer than a buffer gives empty packets.
    #[inline]
    pub fn take_variations(
        &self,
        burst: &mut Burst,
        frames: &Frames,
        variations: &Variations<'_>,
        wanted: usize,
    ) -> Copied {
        lane_cache::take_variations(self, burst, frames, variations, wanted)
    }

    /// Appends `wanted` empty packets to `burst`, or none. `false` if the burst has not that much space or the
    /// pool not that many.
    pub fn take_bulk(&self, burst: &mut Burst, wanted: usize) -> bool {
        let before = burst.len();
        if wanted <= burst.space() && lane_cache::take(self, burst, wanted) == wanted {
            return true;
        }
        burst.truncate(before);
        false
    }

    /// How many buffers were taken and freed.
    pub fn ledger(&self) -> Ledger {
        self.shared().ledger()
    }

    /// What the pool was made with.
    pub fn config(&self) -> &PoolConfig {
        &self.shared().config
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        &self.config().name
    }

    /// How many buffers the pool has.
    pub fn buffers(&self) -> u32 {
        self.config().buffers
    }

    /// Bytes for data in each buffer.
    pub fn data_size(&self) -> usize {
        self.config().data_size
    }

    /// Bytes from one buffer to the next.
    pub fn stride(&self) -> usize {
        self.shared().stride
    }

    /// What the memory is made of; [`PageSize::Plain`] if it is another process's, which doesn't say.
    pub fn page_size(&self) -> PageSize {
        self.shared().memory.mapping().map_or(PageSize::Plain, Mapping::page_size)
    }

    /// If the memory is not made of what was preferred: why not, and what that costs.
    pub fn fallback(&self) -> Option<&str> {
        self.shared().memory.mapping()?.fallback()
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pool").field("config", self.config()).field("ledger", &self.ledger()).finish()
    }
}
