//! For tests of other sides that lie.

mod beside;
mod lies;
mod mutation;

pub use beside::Beside;
pub use lies::Lies;
pub use mutation::mutate;

use crate::exchange::until;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One test of a program at a time: their open descriptors are counted.
pub fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many descriptors this process has open.
///
/// # Panics
/// If `/proc` isn't there.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc is there").count()
}

/// Ends a test: as many lies were told as were to be, all descriptors but so many are closed, and the packets of others went all the time.
///
/// # Panics
/// If that isn't so.
pub fn end(lies: Lies, beside: Beside, before: usize) {
    until("all descriptors are closed", || descriptors() == before);
    lies.end();
    beside.end();
}
