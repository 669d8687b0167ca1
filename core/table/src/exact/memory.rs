//! Where the buckets stand

use std::ops::Deref;

use super::ExactError;
use super::bucket::Layout;

#[cfg(not(loom))]
mod real {
    use std::marker::PhantomData;
    use std::sync::atomic::{AtomicU8, AtomicU64};

    use warmlane_sys::pages::{TableEntry, TableMemory};

    use super::{Deref, ExactError, Layout};

    /// A cache line, as the memory knows it
    type Line = [AtomicU64; 8];

    /// All of its pages are there, so that no reader waits for the kernel to find one, and none finds that there is none.
    fn committed<T: TableEntry>(count: usize) -> Option<TableMemory<T>> {
        let memory = TableMemory::zeroed(count).ok()?;
        memory.commit(0..count).ok()?;
        Some(memory)
    }

    /// Buckets in huge pages. Never moved or given back before all that read them are gone.
    pub(in crate::exact) struct Buckets<B> {
        lines: TableMemory<Line>,
        count: usize,
        /// It owns buckets: threads may share it as they may share a boxed slice of them.
        owned: PhantomData<Box<[B]>>,
    }

    impl<B: Layout> Buckets<B> {
        const FITS: () = assert!(size_of::<B>().is_multiple_of(size_of::<Line>()) && align_of::<B>() == 64);

        /// `count` empty buckets
        pub(in crate::exact) fn new(count: usize) -> Result<Self, ExactError> {
            const { Self::FITS };
            let lines = count.saturating_mul(size_of::<B>() / size_of::<Line>());
            let bytes = lines.saturating_mul(size_of::<Line>());
            let lines = committed(lines).ok_or(ExactError::Memory { bytes })?;
            Ok(Self { lines, count, owned: PhantomData })
        }

        /// Bytes of memory
        pub(in crate::exact) fn bytes(&self) -> usize {
            size_of_val::<[Line]>(&self.lines)
        }
    }

    impl<B: Layout> Deref for Buckets<B> {
        type Target = [B];

        #[inline(always)]
        fn deref(&self) -> &[B] {
            // SAFETY: the memory holds `count` buckets (`new`), starts on a page boundary, and is valid as buckets: zeroed at
            // first (`Layout` promises that this is one), and after that written only as buckets, since nobody uses
            // `lines` as lines after `new`. Buckets change through atomics only.
            unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.count) }
        }
    }

    /// How many sweeps ago each slot was last hit
    pub(in crate::exact) struct Ages(TableMemory<AtomicU8>);

    impl Ages {
        /// `count` ages of 0
        pub(in crate::exact) fn new(count: usize) -> Result<Self, ExactError> {
            committed(count).map(Self).ok_or(ExactError::Memory { bytes: count })
        }
    }

    impl Deref for Ages {
        type Target = [AtomicU8];

        #[inline(always)]
        fn deref(&self) -> &[AtomicU8] {
            &self.0
        }
    }
}
#[cfg(not(loom))]
pub(super) use real::{Ages, Buckets};

/// The model checker's atomics are no plain memory, so each is made by itself.
#[cfg(loom)]
mod model {
    use super::super::primitive::AtomicU8;
    use super::{Deref, ExactError, Layout};

    pub(in crate::exact) struct Buckets<B>(Box<[B]>);

    impl<B: Layout> Buckets<B> {
        pub(in crate::exact) fn new(count: usize) -> Result<Self, ExactError> {
            Ok(Self((0..count).map(|_| B::empty()).collect()))
        }

        pub(in crate::exact) fn bytes(&self) -> usize {
            size_of_val::<[B]>(&self.0)
        }
    }

    impl<B> Deref for Buckets<B> {
        type Target = [B];

        fn deref(&self) -> &[B] {
            &self.0
        }
    }

    pub(in crate::exact) struct Ages(Box<[AtomicU8]>);

    impl Ages {
        pub(in crate::exact) fn new(count: usize) -> Result<Self, ExactError> {
            Ok(Self((0..count).map(|_| AtomicU8::new(0)).collect()))
        }
    }

    impl Deref for Ages {
        type Target = [AtomicU8];

        fn deref(&self) -> &[AtomicU8] {
            &self.0
        }
    }
}
#[cfg(loom)]
pub(super) use model::{Ages, Buckets};
