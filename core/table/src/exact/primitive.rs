//! The one switch between the real atomics and loom's, which a model checker can steer

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
