//! For tests of other sides that lie.

mod beside;
mod lies;
mod mutation;

pub use beside::Beside;
pub use lies::Lies;
pub use mutation::mutate;

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
