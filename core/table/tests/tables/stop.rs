//! Ends threads that work until they are told to stop, also when a check fails: a test must not hang instead of being red

use std::sync::atomic::{AtomicBool, Ordering};

/// Says stop when it goes out of scope
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
