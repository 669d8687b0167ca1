//! How a lane wakes the control side.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes the control side up if it sleeps: a system call at most once for each of its turns.
#[derive(Debug, Clone)]
pub(crate) struct Waker {
    pub(crate) sleeps: Arc<AtomicBool>,
    pub(crate) end: Arc<UnixStream>,
}

impl Waker {
    pub(super) fn wake(&self) {
        if self.sleeps.swap(false, Ordering::SeqCst) {
            // A full socket wakes as well.
            let _ = (&*self.end).write(&[1]);
        }
    }
}
