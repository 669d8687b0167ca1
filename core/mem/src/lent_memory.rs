//! Pools whose buffers lie in the memory of another process.
//!
//! Two processes that trust each other pass packets on without a copy if each has a pool over the same memory. A buffer belongs to one of
//! them at a time. To the other one's pool it is raw, as if a device had it: see [`Region`](crate::Region). Each process keeps its own books, and nothing but the
//! buffers is shared.

use crate::error::PoolError;
use crate::pool::{Pool, PoolConfig};
use std::ptr::NonNull;
use warmlane_sys::pages::Mapping;

/// Memory that another process has made, and what keeps it mapped.
pub struct LentMemory {
    start: NonNull<u8>,
    length: usize,
    /// Dropped when the pool and all its packets are gone.
    _keep: Box<dyn Send + Sync>,
}

// SAFETY: an address of memory that no thread owns; what keeps it is Send.
unsafe impl Send for LentMemory {}
// SAFETY: as above, and Sync.
unsafe impl Sync for LentMemory {}

impl LentMemory {
    /// `keep` is dropped when no packet lies there any more: what the other process waits for before it uses its buffers again can be in it.
    ///
    /// # Safety
    /// From `start`, a multiple of 64, `length` bytes can be read and written until `keep` is dropped, and this process accesses them by one
    /// pool only. The other process leaves a buffer alone, header included, from when it has passed it to this one until it is passed back.
    pub unsafe fn new(start: NonNull<u8>, length: usize, keep: Box<dyn Send + Sync>) -> Self {
        Self { start, length, _keep: keep }
    }
}

impl std::fmt::Debug for LentMemory {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LentMemory").field("length", &self.length).finish_non_exhaustive()
    }
}

/// Where a pool's buffers are.
#[derive(Debug)]
pub(crate) enum Memory {
    Own(Mapping),
    Lent(LentMemory),
}

impl Memory {
    /// The first buffer.
    #[inline(always)]
    pub(crate) fn start(&self) -> NonNull<u8> {
        match self {
            Self::Own(mapping) => mapping.as_ptr(),
            Self::Lent(lent) => lent.start,
        }
    }

    pub(crate) fn length(&self) -> usize {
        match self {
            Self::Own(mapping) => mapping.length(),
            Self::Lent(lent) => lent.length,
        }
    }

    /// Of the pool's own memory.
    pub(crate) const fn mapping(&self) -> Option<&Mapping> {
        match self {
            Self::Own(mapping) => Some(mapping),
            Self::Lent(_) => None,
        }
    }
}

impl Pool {
    /// Makes a pool over memory that another process has made, where buffers lie as `config` says; its `stride` must be given. The other process has
    /// all buffers at first: they count as taken, and come by [`Region::packets_from_other`](crate::Region::packets_from_other) and
    /// [`Region::free_from_other`](crate::Region::free_from_other).
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`PoolError::LentMemory`] if the buffers don't fit.
    pub fn over(config: &PoolConfig, memory: LentMemory) -> Result<Self, PoolError> {
        let fits = config.stride.and_then(|stride| stride.checked_mul(config.buffers as usize));
        if fits.is_none_or(|bytes| bytes > memory.length) {
            return Err(PoolError::LentMemory { pool: config.name.clone(), length: memory.length });
        }
        Self::with_memory(config, Some(memory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Burst, PoolKind, Span};

    const STRIDE: usize = 2_304;
    const BUFFERS: u32 = 64;

    fn config(name: &str) -> PoolConfig {
        PoolConfig { name: name.to_owned(), buffers: BUFFERS, stride: Some(STRIDE), ..PoolConfig::default() }
    }

    /// A pool, and one over the same memory, as another process would have it.
    fn pools() -> (Pool, Pool) {
        let pool = Pool::new(&config("own")).unwrap();
        let region = pool.region();
        // SAFETY: the region keeps the memory mapped; tests pass each buffer from one to the other.
        let memory = unsafe { LentMemory::new(region.address(), region.length(), Box::new(region)) };
        let over = PoolConfig { kind: PoolKind::LockFreeStack, ..config("over") };
        (pool, Pool::over(&over, memory).unwrap())
    }

    #[test]
    fn a_packet_goes_to_the_other_pool_and_another_buffer_comes_back() {
        let (own, over) = pools();
        let (ours, theirs) = (own.region(), over.region());
        assert_eq!((over.ledger().outstanding(), over.available()), (u64::from(BUFFERS), 0));
        assert!(over.take().is_none(), "all are the other one's");
        // One is lent to begin with.
        let mut spare = [0];
        assert_eq!(ours.take_raw(&mut spare), 1);
        // SAFETY: taken just above, and nobody else has it.
        unsafe { theirs.free_from_other(&spare) };
        assert_eq!(over.available(), 1);
        for round in 0..1_000_u32 {
            let mut burst = Burst::new();
            own.take_burst(&mut burst, 1);
            burst[0].fill(&round.to_ne_bytes()).unwrap();
            let mut sent = Span::default();
            let passed = ours.packets_into_raw(&mut burst, 1, |_, span| {
                sent = span;
                true
            });
            assert_eq!(passed, 1);
            // SAFETY: made raw just above.
            unsafe { theirs.packets_from_other(std::iter::once(sent), &mut burst) };
            assert_eq!(
                (burst[0].data(), burst[0].own_pool().unwrap().name()),
                (&round.to_ne_bytes()[..], "over")
            );
            let mut back = [0];
            assert_eq!(theirs.take_raw(&mut back), 1);
            // SAFETY: taken just above.
            unsafe { ours.free_from_other(&back) };
            drop(burst);
            assert_eq!((own.ledger().outstanding(), over.available()), (1, 1), "{round}");
        }
        // Each of them is whole again.
        let mut back = [0];
        assert_eq!(theirs.take_raw(&mut back), 1);
        // SAFETY: taken just above.
        unsafe { ours.free_from_other(&back) };
        let mut all = Burst::new();
        assert!(own.take_bulk(&mut all, BUFFERS as usize));
        assert!(all.iter().all(|packet| packet.own_pool().is_some_and(|pool| pool.name() == "own")));
    }

    #[test]
    fn memory_is_kept_while_a_packet_lies_there() {
        let pool = Pool::new(&config("own")).unwrap();
        let region = pool.region();
        let kept = std::sync::Arc::new(());
        let keep = Box::new((std::sync::Arc::clone(&kept), region.clone()));
        // SAFETY: as above.
        let memory = unsafe { LentMemory::new(region.address(), region.length(), keep) };
        let over = Pool::over(&config("over"), memory).unwrap();
        let theirs = over.region();
        let mut all = vec![0; BUFFERS as usize];
        assert_eq!(region.take_raw(&mut all), BUFFERS as usize);
        let (one, rest) = all.split_first().unwrap();
        let mut burst = Burst::new();
        let span = Span { index: *one, offset: theirs.start(), length: 3 };
        // SAFETY: taken just above.
        unsafe { theirs.packets_from_other(std::iter::once(span), &mut burst) };
        // SAFETY: as above.
        unsafe { theirs.free_from_other(rest) };
        drop((over, theirs));
        assert_eq!(std::sync::Arc::strong_count(&kept), 2, "a packet is out");
        drop(burst);
        assert_eq!(std::sync::Arc::strong_count(&kept), 1);
        // SAFETY: the pool over them is gone.
        unsafe { region.free_from_other(&all) };
        assert_eq!(pool.ledger().outstanding(), 0);
    }

    #[test]
    fn buffers_that_do_not_fit_are_refused() {
        let pool = Pool::new(&config("own")).unwrap();
        let region = pool.region();
        for wrong in [
            PoolConfig { buffers: BUFFERS * 1_000, ..config("over") },
            PoolConfig { stride: None, ..config("over") },
            PoolConfig { buffers: u32::MAX, ..config("over") },
        ] {
            // SAFETY: as above.
            let memory =
                unsafe { LentMemory::new(region.address(), region.length(), Box::new(region.clone())) };
            let error = Pool::over(&wrong, memory).unwrap_err();
            assert!(matches!(error, PoolError::LentMemory { .. }), "{error}");
        }
        // SAFETY: as above.
        let memory = unsafe { LentMemory::new(region.address(), region.length(), Box::new(region.clone())) };
        let error =
            Pool::over(&PoolConfig { stride: Some(STRIDE - 1), ..config("over") }, memory).unwrap_err();
        assert!(matches!(error, PoolError::Stride { .. }), "{error}");
    }
}
