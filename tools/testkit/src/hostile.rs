//! For tests of other sides that lie.

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

/// How many lies a test tells: some, or as many as `WARMLANE_TEST_LIES` says, to be sure.
pub fn lies() -> u64 {
    std::env::var("WARMLANE_TEST_LIES").ok().and_then(|count| count.parse().ok()).unwrap_or(100_000)
}
