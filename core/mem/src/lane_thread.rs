//! Threads that are lanes: they get a cache of each pool at their first use of it, and need not say which pools these are.

use crate::lane_cache::LaneCache;
use crate::pool::Pool;
use crate::register;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;

thread_local! {
    static IS_LANE: Cell<bool> = const { Cell::new(false) };
    /// The caches that this thread got by itself.
    static CACHES: RefCell<Vec<LaneCache>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, its thread is a lane: the first time that it takes a buffer of a pool or frees one, it is
/// [attached](Pool::attach) to the pool. Dropped, also by a panic, it detaches the thread from all of them.
///
/// Nothing is looked at for this on the way of a packet: only who finds no cache asks whether it should have one.
///
/// ```
/// use warmlane_mem::{LaneThread, Pool, PoolConfig};
///
/// let pool = Pool::new(&PoolConfig { buffers: 512, ..PoolConfig::default() })?;
/// let lane = LaneThread::enter();
/// drop(pool.take());
/// assert_eq!(pool.occupancy().unattached, 0);
/// lane.idle(); // when there was nothing to do
/// # Ok::<(), warmlane_mem::PoolError>(())
/// ```
#[must_use = "the thread is no lane any more when this is dropped"]
#[derive(Debug)]
pub struct LaneThread {
    /// Not the second of one thread.
    is_first: bool,
    _stays_on_its_thread: PhantomData<*mut ()>,
}

impl LaneThread {
    /// Makes this thread a lane. On one that is a lane already this does nothing.
    pub fn enter() -> Self {
        Self { is_first: !IS_LANE.replace(true), _stays_on_its_thread: PhantomData }
    }

    /// To be called when the lane has found nothing to do. It returns what it keeps of each pool of which somebody has
    /// wanted more than there was, and lets go of pools that only lanes still have. Costs two reads a pool if there are none
    /// of either.
    pub fn idle(&self) {
        Self::let_go();
    }

    /// The same on whatever thread calls; on one that is no lane it does nothing. For a driver whose end a pool has come to, so that nobody waits for a busy lane.
    pub fn let_go() {
        let let_go = |caches: &RefCell<Vec<LaneCache>>| {
            caches.borrow_mut().retain_mut(|cache| {
                cache.flush_if_requested();
                !cache.is_last_user()
            });
        };
        // There is none when the thread's own end has dropped it.
        let _ = CACHES.try_with(let_go);
    }

    /// To be called before the lane sleeps, as it could hear no request then: returns all that it keeps of its pools.
    pub fn sleep(&self) {
        self.idle();
        CACHES.with_borrow_mut(|caches| caches.iter_mut().for_each(LaneCache::flush));
    }
}

impl Drop for LaneThread {
    fn drop(&mut self) {
        if self.is_first {
            IS_LANE.set(false);
            // Taken out first: what a cache does when it goes must not find the list in use.
            // There is none when the thread's own end has dropped it.
            drop(CACHES.try_with(RefCell::take));
        }
    }
}

/// Attaches this thread to the pool if it is a lane and not attached. `true`: it is attached now.
#[cold]
pub(crate) fn attach(pool: &Pool) -> bool {
    // As many lanes as there can be: those that came too late work without a cache, and are counted.
    IS_LANE.get()
        && pool.attach().is_ok_and(|cache| CACHES.try_with(|caches| caches.borrow_mut().push(cache)).is_ok())
}

/// The same for the pool in `slot`.
///
/// # Safety
/// The pool is alive.
#[cold]
pub(crate) unsafe fn attach_to_slot(slot: u8) -> bool {
    // SAFETY: the caller's.
    IS_LANE.get() && unsafe { &*register::pointer(slot) }.pool().is_some_and(|pool| attach(&pool))
}
