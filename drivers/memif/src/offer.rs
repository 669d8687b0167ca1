//! What a client of ours without copies leaves for a server of ours, at the end of region 0: where buffers lie in its pool. A server that also trusts its client
//! answers there, and from then on buffers change hands. Others don't look.

use crate::exchange::Exchange;
use crate::region::PeerMemory;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use warmlane_mem::{LentMemory, Pool, PoolConfig, PoolKind, Region};

/// Bytes of an offer: a cache line.
pub(crate) const BYTES: usize = 64;

/// What it begins with: a name, and a version.
const MARK: [u32; 4] = [0x6D72_6177, 0x656E_616C, 0x6366_7562, 1];

const STRIDE: usize = MARK.len();
const BUFFERS: usize = STRIDE + 1;
const HEADROOM: usize = STRIDE + 2;
const DATA_SIZE: usize = STRIDE + 3;
const ANSWER: usize = STRIDE + 4;

/// The answer that takes it.
const TAKEN: u32 = 1;

/// An offer, in memory that both sides have. Who has it sees to it that the memory stays mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer(NonNull<u8>);

// SAFETY: an address in shared memory, all accesses to which are atomic.
unsafe impl Send for Offer {}

impl Offer {
    /// In the last bytes of a region 0 of so many.
    ///
    /// # Safety
    /// At `start`, whose address 64 divides, so many bytes, a multiple of 64 and not 0, are mapped for as long as this is used, and this process uses the last 64 of them
    /// by offers only.
    pub(crate) unsafe fn at_end(start: NonNull<u8>, length: usize) -> Self {
        debug_assert!(length >= BYTES && length.is_multiple_of(BYTES));
        // SAFETY: inside what is mapped.
        Self(unsafe { start.add(length - BYTES) })
    }

    fn word(&self, number: usize) -> &AtomicU32 {
        debug_assert!(number * 4 < BYTES);
        // SAFETY: inside, aligned, and mapped (`at_end`).
        unsafe { AtomicU32::from_ptr(self.0.cast::<u32>().add(number).as_ptr()) }
    }

    /// Makes it.
    pub(crate) fn make(self, pool: &Region) {
        let config = pool.pool().config();
        // Each of these is less than 2^32.
        let words =
            [pool.stride() as u32, pool.buffers(), config.headroom as u32, config.data_size as u32, 0];
        for (number, word) in MARK.into_iter().chain(words).enumerate() {
            self.word(number).store(word, Ordering::Relaxed);
        }
    }

    /// Whether the server has taken it. Read when it says that it is connected.
    pub(crate) fn is_taken(self) -> bool {
        self.word(ANSWER).load(Ordering::Acquire) == TAKEN
    }

    /// Takes it, if it is one and its buffers lie in the client's memory. `socket` stays open until no packet of ours lies there any more.
    pub(crate) fn take(
        memory: &PeerMemory,
        interface: &str,
        lanes: u32,
        socket: OwnedFd,
    ) -> Option<Exchange> {
        let [rings, pool] = memory.rings_and_pool()?;
        let length = rings.length();
        if length < BYTES
            || !length.is_multiple_of(BYTES)
            || !rings.start().addr().get().is_multiple_of(BYTES)
        {
            return None;
        }
        // SAFETY: so much is mapped, which the caller's memory keeps; rings that a client has there, too, would be its own damage, as they are accessed atomically.
        let offer = unsafe { Self::at_end(rings.start(), length) };
        let words: [u32; ANSWER] = std::array::from_fn(|number| offer.word(number).load(Ordering::Relaxed));
        if words[..STRIDE] != MARK {
            return None;
        }
        let config = PoolConfig {
            name: format!("{interface}, the client's"),
            buffers: words[BUFFERS],
            data_size: words[DATA_SIZE] as usize,
            headroom: words[HEADROOM] as usize,
            stride: Some(words[STRIDE] as usize),
            kind: PoolKind::LockFreeStack,
            lanes,
            ..PoolConfig::default()
        };
        let keep = Box::new((Arc::clone(pool), socket));
        // SAFETY: a mapping starts at a page, and is kept. This process copies to and from regions of a client that made an offer only where the client has
        // posted a buffer. That the client leaves alone what it has passed on is what `mode=zero-copy` of a server trusts it with.
        let memory = unsafe { LentMemory::new(pool.start(), pool.length(), keep) };
        let pool = Pool::over(&config, memory).ok()?;
        offer.word(ANSWER).store(TAKEN, Ordering::Release);
        Some(Exchange::of_server(pool.region()))
    }
}
