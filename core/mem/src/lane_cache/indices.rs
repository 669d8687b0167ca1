//! Buffers by their indices, for who has no use for packets: a driver that shows them to the kernel. No header is looked at.

use super::{CACHES, Cache};
use crate::lane_thread;
use crate::pool::Pool;
use crate::register;
use crate::shared::Shared;

/// Takes buffers of `pool` into the front of `target`, as many as fit and are there; returns how many. Their headers are as
/// their last user left them, but for the identity, which says "one segment" as in every free buffer.
#[inline]
pub(crate) fn take_indices(pool: &Pool, target: &mut [u32]) -> usize {
    let shared = pool.shared();
    let cache = CACHES.with(|caches| caches[usize::from(shared.slot)].get());
    // SAFETY: as in `take`.
    if let Some(cache) = unsafe { cache.as_mut() } {
        return cache.take_indices(target);
    }
    if lane_thread::attach(pool) {
        return take_indices(pool, target);
    }
    let mut places = target.iter_mut();
    shared.free_list.take_unattached(places.len(), |index| {
        if let Some(place) = places.next() {
            *place = index;
        }
    })
}

/// Frees buffers of the pool in `slot`.
///
/// # Safety
/// The caller owns the buffers, each of one segment, and does not touch them afterwards.
#[inline]
pub(crate) unsafe fn free_indices(slot: u8, indices: &[u32]) {
    if indices.is_empty() {
        return;
    }
    let cache = CACHES.with(|caches| caches[usize::from(slot)].get());
    // SAFETY: as in `take`.
    if let Some(cache) = unsafe { cache.as_mut() } {
        cache.free_indices(indices);
        return;
    }
    // SAFETY: a pool lives as long as one of its buffers is out, and these are the caller's.
    if unsafe { lane_thread::attach_to_slot(slot) } {
        // SAFETY: the caller's. There is a cache now.
        return unsafe { free_indices(slot, indices) };
    }
    // SAFETY: a pool lives as long as one of its buffers is out, so the pointer is good until the buffers are returned, which
    // are the caller's.
    unsafe { Shared::free_unattached(register::pointer(slot), indices) };
}

impl Cache {
    #[inline(always)]
    fn take_indices(&mut self, target: &mut [u32]) -> usize {
        let mut count = 0;
        while count < target.len() && (self.magazines.loaded.length > 0 || self.refill(target.len() - count))
        {
            let loaded = &mut self.magazines.loaded;
            let chunk = loaded.length.min(target.len() - count);
            loaded.length -= chunk;
            // Nothing of these buffers is wanted in this core's cache, and what is left in the magazine is as far away
            // as before.
            loaded.far = loaded.far.min(loaded.length);
            // SAFETY: `cells` are those of the loaded magazine, which this lane owns, and its length was at most their number.
            let indices =
                unsafe { std::slice::from_raw_parts(self.cells.as_ptr().add(loaded.length), chunk) };
            target[count..count + chunk].copy_from_slice(indices);
            count += chunk;
        }
        // Nothing is refused: whoever takes so wants a store, and asks again.
        self.count_taken(count, count);
        count
    }

    /// Frees buffers of this pool.
    pub(super) fn free_indices(&mut self, indices: &[u32]) {
        let mut rest = indices;
        while !rest.is_empty() {
            if self.magazines.loaded.length == self.capacity {
                self.make_space();
            }
            let loaded = &mut self.magazines.loaded;
            let (now, later) = rest.split_at((self.capacity - loaded.length).min(rest.len()));
            // SAFETY: `cells` are those of the loaded magazine, which this lane owns and which has space for so many.
            let target =
                unsafe { std::slice::from_raw_parts_mut(self.cells.as_ptr().add(loaded.length), now.len()) };
            target.copy_from_slice(now);
            loaded.length += now.len();
            loaded.only_taken_from = false;
            rest = later;
        }
        self.counters.freed().add(indices.len() as u64);
        if self.uncached {
            self.flush();
        }
    }
}
