//! Pools: where buffers come from and go back to.

use crate::burst::Burst;
use crate::error::PoolError;
use crate::frames::{Copied, Cursor, Frames};
use crate::header::HEADER_BYTES;
use crate::id::MAXIMUM_BUFFERS;
use crate::lane_cache::{self, LaneCache};
use crate::ledger::Ledger;
use crate::packet::Packet;
use crate::plan::Plan;
use crate::shared::Shared;
use std::ptr::NonNull;
use std::sync::Arc;
use warmlane_sys::pages::{PagePreference, PageSize};

/// In which order a pool gives out the buffers that came home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolKind {
    /// Last in, first out, in whole magazines; no lock. The default, and right unless measured otherwise.
    #[default]
    Depot,
    /// Last in, first out, one buffer behind the other, under a lock.
    Stack,
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
    pub room: usize,
    /// Bytes kept free in front of the data, for headers that are put on later.
    pub headroom: usize,
    /// The order of reuse.
    pub kind: PoolKind,
    /// Buffers that a lane exchanges with the pool at a time; it holds up to two times as many.
    pub magazine: u32,
    /// What the memory should be made of.
    pub pages: PagePreference,
    /// Bytes from one buffer to the next; `None` lets the planner choose for this machine's caches.
    pub stride: Option<usize>,
}

impl Default for PoolConfig {
    /// 16,384 buffers for standard Ethernet frames.
    fn default() -> Self {
        Self {
            name: "packets".to_owned(),
            buffers: 16_384,
            room: 2_048,
            headroom: 128,
            kind: PoolKind::default(),
            magazine: 128,
            pages: PagePreference::Best,
            stride: None,
        }
    }
}

impl PoolConfig {
    /// Bytes that one buffer needs at least: header, headroom and room.
    pub const fn buffer_bytes(&self) -> usize {
        HEADER_BYTES + self.headroom + self.room
    }

    fn check(&self) -> Result<usize, PoolError> {
        let pool = || self.name.clone();
        if self.buffers == 0 {
            return Err(PoolError::NoBuffers { pool: pool() });
        }
        if self.buffers > MAXIMUM_BUFFERS {
            return Err(PoolError::TooManyBuffers { pool: pool(), buffers: self.buffers });
        }
        if self.room == 0 {
            return Err(PoolError::NoRoom { pool: pool() });
        }
        let fits = self
            .room
            .checked_add(self.headroom)
            .is_some_and(|sum| sum <= usize::from(u16::MAX) - HEADER_BYTES);
        if !fits {
            return Err(PoolError::BufferTooLarge { pool: pool(), headroom: self.headroom, room: self.room });
        }
        if !(1..=4096).contains(&self.magazine) {
            return Err(PoolError::Magazine { pool: pool(), magazine: self.magazine });
        }
        let needed = self.buffer_bytes();
        match self.stride {
            Some(stride) if !stride.is_multiple_of(HEADER_BYTES) || stride < needed => {
                Err(PoolError::Stride { pool: pool(), stride, needed })
            }
            Some(stride) => Ok(stride),
            None => Ok(Plan::for_this_machine(needed, self.headroom).stride),
        }
    }
}

/// A handle of a pool: clone it freely, send it anywhere.
///
/// The memory stays mapped until the last handle, lane cache and packet are gone, in whatever order they go.
#[derive(Clone)]
pub struct Pool {
    handle: Arc<Handle>,
}

/// What the clones of a [`Pool`] share; its drop is "the last handle is gone".
struct Handle {
    shared: NonNull<Shared>,
}

// SAFETY: `Shared` is Send and Sync; the pointer is only ever used as a shared reference to it.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the pool is alive: only `orphan` below starts its end. If that says all buffers are home, no
        // packet is left, and lane caches hold a handle, so this is the last reference.
        unsafe {
            if self.shared.as_ref().orphan() {
                Shared::destroy(self.shared);
            }
        }
    }
}

impl Pool {
    /// Makes a pool: maps its memory and touches all of it, so that nothing faults later.
    ///
    /// # Errors
    /// [`PoolError`] says which of the wishes cannot be met, and what can.
    pub fn new(config: &PoolConfig) -> Result<Self, PoolError> {
        let stride = config.check()?;
        let shared = Shared::create(config, stride)?;
        Ok(Self { handle: Arc::new(Handle { shared }) })
    }

    #[inline(always)]
    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: this handle keeps the pool alive.
        unsafe { self.handle.shared.as_ref() }
    }

    /// Gives this thread its own cache of the pool's buffers until the guard is dropped. Lanes do this once;
    /// threads that handle a packet now and then need not.
    ///
    /// # Errors
    /// [`PoolError::AlreadyAttached`], [`PoolError::TooManyLanes`].
    pub fn attach(&self) -> Result<LaneCache, PoolError> {
        LaneCache::attach(self)
    }

    /// Takes one empty packet; `None` if the pool has none left.
    pub fn take(&self) -> Option<Packet> {
        let mut burst = Burst::with_limit(1);
        lane_cache::take(self, &mut burst, 1);
        burst.pop()
    }

    /// Appends up to `wanted` empty packets to `burst`, and no more than it has room for. Returns how many.
    #[inline]
    pub fn take_burst(&self, burst: &mut Burst, wanted: usize) -> usize {
        lane_cache::take(self, burst, wanted)
    }

    /// Appends up to `wanted` packets to `burst`, and no more than it has room for, each a copy of the frame that
    /// `cursor` comes to in `frames`. A frame longer than a buffer's room gives an empty packet, for the caller to
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

    /// Appends `wanted` empty packets to `burst`, or none. `false` if the burst has not that much room or the
    /// pool not that many.
    pub fn take_bulk(&self, burst: &mut Burst, wanted: usize) -> bool {
        let before = burst.len();
        if wanted <= burst.room() && lane_cache::take(self, burst, wanted) == wanted {
            return true;
        }
        burst.truncate(before);
        false
    }

    /// The pool's books.
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
    pub fn room(&self) -> usize {
        self.config().room
    }

    /// Bytes from one buffer to the next.
    pub fn stride(&self) -> usize {
        self.shared().stride
    }

    /// What the memory is made of.
    pub fn page_size(&self) -> PageSize {
        self.shared().mapping.page_size()
    }

    /// If the memory is not made of what was preferred: why not, and what that costs.
    pub fn fallback(&self) -> Option<&str> {
        self.shared().mapping.fallback()
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Pool").field("config", self.config()).field("ledger", &self.ledger()).finish()
    }
}
