//! Memory that belongs to one thread at a time.

use loom::cell::UnsafeCell;

/// Memory that belongs to whoever has its number; loom reports two who touch it without an order between them.
pub(crate) struct Owned(UnsafeCell<u32>);

// SAFETY: the point of the tests: loom checks each access.
unsafe impl Sync for Owned {}
// SAFETY: an integer.
unsafe impl Send for Owned {}

impl Owned {
    pub(crate) fn new() -> Self {
        Self(UnsafeCell::new(0))
    }

    /// Counts how often it was touched.
    pub(crate) fn touch(&self) -> u32 {
        // SAFETY: loom checks that nobody else has access.
        self.0.with_mut(|value| unsafe {
            *value += 1;
            *value
        })
    }
}
