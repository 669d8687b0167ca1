//! A side with one thread.

use super::{Exclusive, Reserved, Side, distance};
use crate::padded::CachePadded;
use crate::primitive::{AtomicU64, Ordering, UnsafeCell};

/// Lamport's side ("Specifying Concurrent Program Modules", TOPLAS 5(2), 1983): the thread owns its position and reads
/// the other side's. It keeps the other's position as it last saw it and looks again only when that is not enough, so
/// that a side that is ahead does not touch the other's line at all (the idea is MCRingBuffer's; Maffione et al. compare
/// it with its rivals in "Cache-aware design of general-purpose Single-Producer-Single-Consumer queues", Software:
/// Practice and Experience 49(5), 2019).
pub struct Single {
    tail: CachePadded<AtomicU64>,
    own: CachePadded<UnsafeCell<Own>>,
}

/// What the thread knows, on lines that nobody else writes to.
struct Own {
    /// The tail; the shared one is only a copy for the other side.
    position: u64,
    /// How far it may go, as last seen.
    limit: u64,
}

// SAFETY: `own` is the only part that is not Sync by itself, and it is touched in `reserve`, `publish` and `cancel`
// only, which one thread at a time may call.
unsafe impl Sync for Single {}

impl Side for Single {
    fn new(limit: u64, _: usize) -> Self {
        Self {
            tail: CachePadded::new(AtomicU64::new(0)),
            own: CachePadded::new(UnsafeCell::new(Own { position: 0, limit })),
        }
    }

    #[inline(always)]
    fn tail_word(&self) -> &AtomicU64 {
        &self.tail
    }

    #[inline(always)]
    unsafe fn reserve(&self, look: impl Fn() -> u64, wanted: usize, minimum: usize) -> Option<Reserved> {
        self.own.with_mut(|own| {
            // SAFETY: one thread at a time is in here, as the caller promised.
            let own = unsafe { &mut *own };
            let mut space = distance(own.position, own.limit);
            if space < wanted {
                own.limit = look();
                space = distance(own.position, own.limit);
            }
            let count = wanted.min(space);
            (count >= minimum).then_some(Reserved { position: own.position, count, space })
        })
    }

    #[inline(always)]
    unsafe fn publish(&self, reserved: Reserved, count: usize) {
        let position = reserved.position + count as u64;
        // SAFETY: one thread at a time is in here, as the caller promised.
        self.own.with_mut(|own| unsafe { (*own).position = position });
        // R1: release, pairs with A1. Without it the other side could see the position before what was done to the
        // slots.
        self.tail.store(position, Ordering::Release);
    }
}

impl Exclusive for Single {
    /// Nobody has seen them.
    #[inline(always)]
    unsafe fn cancel(&self, _: Reserved) {}
}
