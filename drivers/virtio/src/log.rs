//! Which pages of the driver's memory this side has written: a migration copies them again while the machine runs on (the
//! specification of vhost-user, "Migration").

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use warmlane_driver_common::peer::PeerMapping;

/// Bytes of a page, each of which has a bit.
const PAGE: u64 = 4096;

/// The front end's log: a bit for each page from the driver's address 0 on, which the front end clears when it copies the page.
#[derive(Debug)]
pub(crate) struct DirtyLog {
    mapping: PeerMapping,
}

impl DirtyLog {
    pub(crate) const fn new(mapping: PeerMapping) -> Self {
        Self { mapping }
    }

    /// Whether there are bits for all pages below an address.
    pub(crate) const fn covers(&self, end: u64) -> bool {
        end.div_ceil(PAGE).div_ceil(8) <= self.mapping.length() as u64
    }

    /// Whether the front end has cut it short.
    pub(crate) fn is_lost(&self) -> bool {
        self.mapping.is_lost()
    }

    /// `length` bytes from `address` on were written. To be said afterwards: a page that the front end copies between its bit and what is
    /// written to it would arrive as it was before.
    fn mark(&self, address: u64, length: u64) {
        let Some(last) = length.checked_sub(1) else { return };
        for page in address / PAGE..=address.saturating_add(last) / PAGE {
            // All memory has bits (`covers`), so there is a pointer.
            let Some(pointer) = self.mapping.pointer(page / 8, 1) else { return };
            // SAFETY: a byte that is mapped as long as the log is held; both sides change it by atomic operations.
            let byte = unsafe { AtomicU8::from_ptr(pointer.as_ptr()) };
            // Release: who sees the bit sees what was written to the page.
            byte.fetch_or(1 << (page % 8), Ordering::Release);
        }
    }
}

/// A part of the driver's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// By the driver's addresses.
    pub(crate) address: u64,
    /// Bytes.
    pub(crate) length: u64,
}

/// The log as one ring writes to it.
#[derive(Clone, Debug)]
pub(crate) struct RingLog {
    log: Arc<DirtyLog>,
    /// What the device writes of the ring itself.
    parts: Vec<Range>,
}

impl RingLog {
    pub(crate) const fn new(log: Arc<DirtyLog>, parts: Vec<Range>) -> Self {
        Self { log, parts }
    }

    /// So many bytes were written to a buffer.
    pub(crate) fn buffer(&self, address: u64, length: usize) {
        self.log.mark(address, length as u64);
    }

    /// Something was written to the ring. Where is not told apart: a ring has few pages, and all of them are written soon.
    pub(crate) fn ring(&self) {
        for part in &self.parts {
            self.log.mark(part.address, part.length);
        }
    }
}
