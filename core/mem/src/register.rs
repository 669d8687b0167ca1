//! The process-wide register of pools: what turns a 32-bit [`BufferId`] back into an address.
//!
//! One table for the process is what makes a buffer's name fit 32 bits, and what lets any thread free any packet
//! without carrying its pool along.

use crate::header::Header;
use crate::id::BufferId;
use crate::shared::Shared;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
#[cfg(not(loom))]
use warmlane_sys::prefetch::prefetch_read_at;

/// Pools that can exist at the same time: the slot has 8 bits.
pub const MAXIMUM_POOLS: usize = 256;

/// One pool's entry. Written while the pool is made, before its first buffer can be named, and constant until the
/// last buffer is returned: whoever holds a [`BufferId`] got it from a thread that had seen the entry, so plain
/// (relaxed) reads are enough.
struct Entry {
    used: AtomicBool,
    base: AtomicPtr<u8>,
    stride: AtomicUsize,
    /// Where data starts in a buffer just taken, from the header.
    start: AtomicUsize,
    shared: AtomicPtr<Shared>,
}

static ENTRIES: [Entry; MAXIMUM_POOLS] = [const {
    Entry {
        used: AtomicBool::new(false),
        base: AtomicPtr::new(std::ptr::null_mut()),
        stride: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        shared: AtomicPtr::new(std::ptr::null_mut()),
    }
}; MAXIMUM_POOLS];

/// Claims a free slot; `None` if [`MAXIMUM_POOLS`] pools exist.
pub(crate) fn claim() -> Option<u8> {
    let free = |entry: &Entry| {
        // Acquire pairs with the release in `vacate`: the former pool's last use of the slot is over.
        entry.used.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    ENTRIES.iter().position(free).map(|slot| slot as u8)
}

/// Makes the pool in `slot` findable.
pub(crate) fn publish(slot: u8, base: NonNull<u8>, stride: usize, start: u16, shared: NonNull<Shared>) {
    let entry = &ENTRIES[usize::from(slot)];
    entry.base.store(base.as_ptr(), Ordering::Relaxed);
    entry.stride.store(stride, Ordering::Relaxed);
    entry.start.store(usize::from(start), Ordering::Relaxed);
    entry.shared.store(shared.as_ptr(), Ordering::Release);
}

/// Frees `slot`.
pub(crate) fn vacate(slot: u8) {
    let entry = &ENTRIES[usize::from(slot)];
    entry.shared.store(std::ptr::null_mut(), Ordering::Relaxed);
    // Release pairs with the acquire in `claim`.
    entry.used.store(false, Ordering::Release);
}

/// The header of buffer `id`.
///
/// # Safety
/// The pool in `id`'s slot must be alive and have a buffer of that index.
#[inline(always)]
pub(crate) unsafe fn header(id: BufferId) -> NonNull<Header> {
    let entry = &ENTRIES[usize::from(id.slot())];
    let offset = id.index() as usize * entry.stride.load(Ordering::Relaxed);
    // SAFETY: the caller vouches for slot and index, so base + index × stride lies inside the pool's mapping, and
    // a mapping is never at address zero.
    unsafe { NonNull::new_unchecked(entry.base.load(Ordering::Relaxed).add(offset).cast()) }
}

/// Asks for the lines that somebody who gets the packet looks at first: its header and, where data usually starts, its
/// first data. Two at once, and not the second when the first has said where it is.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn prefetch(id: BufferId) {
    let entry = &ENTRIES[usize::from(id.slot())];
    let offset = id.index() as usize * entry.stride.load(Ordering::Relaxed);
    let header = entry.base.load(Ordering::Relaxed).wrapping_add(offset);
    prefetch_read_at(header);
    prefetch_read_at(header.wrapping_add(entry.start.load(Ordering::Relaxed)));
}

/// The shared part of the pool in `slot`; dangling or null once the pool is gone.
#[inline(always)]
pub(crate) fn pointer(slot: u8) -> *mut Shared {
    ENTRIES[usize::from(slot)].shared.load(Ordering::Relaxed)
}
