//! Freeing what is not plain: chains, and buffers of pools that this thread is not attached to.
//!
//! Slower than what [`Cache::free_plain`] does, but no less in bulk: buffers are gathered by pool, so that a thread without a
//! cache of the pool takes its lock once for many, and one with a cache copies them to its magazine together.

use super::{CACHES, Cache, free_indices};
use crate::header::NO_NEXT;
use crate::id::BufferId;
use crate::packet::Packet;
use crate::register;
use crate::shared_packet;

/// Buffers that are returned together: as many as a chain of a few bursts has, and few enough for the stack.
const GATHERED: usize = 64;

/// Buffers of one pool on their way back to it.
struct Gathered {
    slot: u8,
    count: usize,
    indices: [u32; GATHERED],
}

/// Frees packets from the front of `packets`, at least one if there are any, until the next is one that
/// [`Cache::free_plain`] frees; returns how many.
///
/// # Safety
/// The caller owns the packets, and does not touch those that were freed afterwards.
#[cold]
pub(super) unsafe fn free_gathered(packets: &[Packet]) -> usize {
    let mut gathered = Gathered { slot: 0, count: 0, indices: [0; GATHERED] };
    let mut freed = 0;
    for packet in packets {
        if freed > 0 && is_plain(packet) {
            break;
        }
        // SAFETY: the packet is the caller's, who does not touch it any more.
        unsafe { gathered.add_chain(packet) };
        freed += 1;
    }
    // SAFETY: the packets were the caller's, and each of their buffers was gathered once.
    unsafe { gathered.return_all() };
    freed
}

/// Whether this thread's cache of its pool takes the packet as it is.
fn is_plain(packet: &Packet) -> bool {
    let cache = CACHES.with(|caches| caches[usize::from(packet.id().slot())].get());
    // SAFETY: as in `take`.
    unsafe { cache.as_ref() }.is_some_and(|cache: &Cache| cache.is_single(packet))
}

impl Gathered {
    /// Gathers all segments of a packet, each to be returned to the pool that it came from, but for those that others hold.
    ///
    /// # Safety
    /// The caller owns the packet and does not touch it afterwards.
    unsafe fn add_chain(&mut self, packet: &Packet) {
        let first = packet.id();
        let mut id = first;
        loop {
            // SAFETY: the caller owns the chain, whose links name live buffers that belong to it, so this segment is the
            // caller's, and it is gathered once. A free buffer has no next segment.
            let next = unsafe {
                let header = register::header(id).as_ptr();
                // The first segment is always the packet's own.
                if id != first && (*header).state.known.is_shared() && !shared_packet::release(id) {
                    return;
                }
                let identity = &raw mut (*header).identity;
                let next = (*identity).next();
                if next != NO_NEXT {
                    identity.write((*identity).with_next(NO_NEXT));
                }
                self.add(id);
                next
            };
            if next == NO_NEXT {
                return;
            }
            id = BufferId::from_bits(next);
        }
    }

    /// # Safety
    /// The caller owns the buffer and does not touch it afterwards.
    unsafe fn add(&mut self, id: BufferId) {
        if self.count == GATHERED || self.count > 0 && self.slot != id.slot() {
            // SAFETY: all that was added is ours.
            unsafe { self.return_all() };
        }
        self.slot = id.slot();
        self.indices[self.count] = id.index();
        self.count += 1;
    }

    /// # Safety
    /// What was gathered is owned by nobody else, and not touched afterwards.
    unsafe fn return_all(&mut self) {
        let indices = &self.indices[..std::mem::take(&mut self.count)];
        // SAFETY: the buffers are the caller's, and of one segment since `add_chain`.
        unsafe { free_indices(self.slot, indices) };
    }
}
