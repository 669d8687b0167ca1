//! What queues get when the other side is there, and how they learn that it is or isn't.

use crate::exchange::Exchange;
use crate::region::PeerMemory;
use crate::ring::{Descriptor, Ring};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use warmlane_driver_common::peer::Event;
use warmlane_sys::pages::Mapping;

/// What the rings of one connection have in common.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Of a server: the client's regions.
    pub(crate) peer: PeerMemory,
    /// Of a client: its own, which is only held here so that it stays mapped.
    _own: Option<Mapping>,
    /// Buffers change hands. Dropped, what the other side has is free again: not before it has gone.
    pub(crate) exchange: Option<Exchange>,
    broken: OnceLock<&'static str>,
    /// Tells the control thread.
    alarm: Event,
}

impl Connection {
    pub(crate) const fn new(
        peer: PeerMemory,
        own: Option<Mapping>,
        exchange: Option<Exchange>,
        alarm: Event,
    ) -> Self {
        Self { peer, _own: own, exchange, broken: OnceLock::new(), alarm }
    }

    /// The other side did what can't be: the connection is over. The first reason counts.
    #[cold]
    pub(crate) fn break_off(&self, reason: &'static str) {
        if self.broken.set(reason).is_ok() {
            self.alarm.signal();
        }
    }

    /// Why it is over, if it is.
    pub(crate) fn broken(&self) -> Option<&'static str> {
        self.broken.get().copied()
    }
}

/// A ring's own buffers: as many as descriptors, one behind the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnBuffers {
    /// The first.
    pub(crate) start: NonNull<u8>,
    /// Where that is in region 0.
    pub(crate) offset: u32,
    /// From one to the next. An odd number of lines, so that they spread over all sets of the caches.
    pub(crate) stride: u32,
    /// Bytes of room in each.
    pub(crate) room: u32,
}

impl OwnBuffers {
    /// Where a slot's buffer is.
    #[inline(always)]
    pub(crate) fn pointer(&self, slot: usize) -> NonNull<u8> {
        // SAFETY: the memory was made for as many buffers as the ring has slots.
        unsafe { self.start.add(slot * self.stride as usize) }
    }

    /// The descriptor of a slot's buffer.
    #[inline(always)]
    pub(crate) const fn descriptor(&self, slot: usize, length: u32, flags: u16) -> Descriptor {
        Descriptor { flags, region: 0, length, offset: self.offset + slot as u32 * self.stride }
    }
}

// SAFETY: addresses of memory that whoever uses them keeps mapped; no thread owns them.
unsafe impl Send for OwnBuffers {}

/// Where the packets of a ring are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Buffers {
    /// In the client's memory, and we are the server.
    Peer,
    /// In our own, made for this ring; we are the client.
    Own(OwnBuffers),
    /// In our pool's, which is region 1; we are the client.
    Pool,
}

/// One ring of a connection.
#[derive(Clone, Debug)]
pub(crate) struct RingLink {
    pub(crate) ring: Ring,
    pub(crate) event: Event,
    pub(crate) buffers: Buffers,
    pub(crate) connection: Arc<Connection>,
}

/// Where the control thread leaves a queue's ring. Only the newest counts.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    generation: AtomicU32,
    link: Mutex<Option<RingLink>>,
}

impl Handover {
    /// Leaves a ring, or takes it away.
    pub(crate) fn replace(&self, link: Option<RingLink>) {
        let mut held = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *held, link);
        // Release, pairs with the acquire in `has_changed`. The lock orders the rest.
        self.generation.fetch_add(1, Ordering::Release);
        drop(held);
        if let Some(old) = old {
            // Its lane may wait for an event that would never come.
            old.event.signal();
        }
    }

    /// Whether there may be something else than at generation `seen`: a look at a line that hardly ever changes.
    #[inline(always)]
    pub(crate) fn has_changed(&self, seen: u32) -> bool {
        self.generation.load(Ordering::Acquire) != seen
    }

    /// What is there now.
    #[cold]
    pub(crate) fn get(&self, seen: &mut u32) -> Option<RingLink> {
        let held = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = self.generation.load(Ordering::Acquire);
        held.clone()
    }
}
