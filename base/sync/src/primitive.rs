//! The one switch between the real primitives and loom's, which a model checker can steer.
//!
//! Everything in this crate whose memory ordering matters takes its atomics and cells from here, so that
//! `--cfg loom` checks the code that runs, not a copy of it.

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence},
    thread::yield_now,
};

#[cfg(not(loom))]
pub(crate) use self::real::UnsafeCell;
#[cfg(not(loom))]
pub(crate) use std::{
    sync::Arc,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence},
    thread::yield_now,
};

#[cfg(not(loom))]
mod real {
    /// `std`'s cell with the interface of loom's: access only inside a closure, so that loom can see from when to
    /// when. `repr(transparent)`, so that a slice of cells is a slice of what they hold.
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with<R>(&self, access: impl FnOnce(*const T) -> R) -> R {
            access(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
            access(self.0.get())
        }
    }
}
