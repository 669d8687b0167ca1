//! The memory of a ring: a power of two of slots, addressed by positions that only grow.

use crate::primitive::UnsafeCell;
use crate::ring::{MAXIMUM_CAPACITY, RingError};
use std::mem::MaybeUninit;

/// One element's place.
type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// Slots that come without any protection: who may touch which when is the ring's business.
///
/// A position is a 64-bit count of all elements since the start; at 10⁹ elements a second it wraps after 584
/// years, so two positions never look alike. The slot is its low bits.
pub(crate) struct Slots<T> {
    cells: Box<[Slot<T>]>,
}

impl<T: Copy> Slots<T> {
    pub(crate) fn new(capacity: usize) -> Result<Self, RingError> {
        if capacity == 0 {
            return Err(RingError::Zero);
        }
        if capacity > MAXIMUM_CAPACITY {
            return Err(RingError::TooLarge { capacity });
        }
        if !capacity.is_power_of_two() {
            return Err(RingError::NotPowerOfTwo { capacity });
        }
        let mut cells = Vec::new();
        cells
            .try_reserve_exact(capacity)
            .map_err(|_| RingError::OutOfMemory { capacity, element_bytes: size_of::<T>() })?;
        cells.extend((0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())));
        touch_pages(&mut cells);
        Ok(Self { cells: cells.into_boxed_slice() })
    }

    #[inline(always)]
    pub(crate) fn capacity(&self) -> usize {
        self.cells.len()
    }

    /// The slots of `length` elements from `position` on: those up to the end of the memory, and the rest from
    /// its start.
    #[inline(always)]
    fn pieces(&self, position: u64, length: usize) -> (&[Slot<T>], &[Slot<T>]) {
        debug_assert!(length <= self.cells.len());
        let start = (position & (self.cells.len() as u64 - 1)) as usize;
        let first = length.min(self.cells.len() - start);
        // SAFETY: start < capacity because of the mask, start + first <= capacity because of the minimum, and
        // length - first <= start <= capacity because length <= capacity, which both callers require.
        unsafe {
            (self.cells.get_unchecked(start..start + first), self.cells.get_unchecked(..length - first))
        }
    }

    /// Copies `values` to the slots from `position` on.
    ///
    /// # Safety
    /// At most [`capacity`](Self::capacity) values, and no other thread reads or writes these slots meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, position: u64, values: &[T]) {
        let (first, second) = self.pieces(position, values.len());
        // SAFETY: both pieces together are as long as `values`, and the caller has the slots for itself.
        unsafe {
            copy_in(first, values.as_ptr());
            if !second.is_empty() {
                copy_in(second, values.as_ptr().add(first.len()));
            }
        }
    }

    /// Copies the slots from `position` on to `values`.
    ///
    /// # Safety
    /// At most [`capacity`](Self::capacity) values, all of them written before, and no other thread writes these
    /// slots meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn read(&self, position: u64, values: &mut [T]) {
        let (first, second) = self.pieces(position, values.len());
        // SAFETY: both pieces together are as long as `values`, and the caller vouches that the slots hold
        // elements and that nobody writes them.
        unsafe {
            copy_out(first, values.as_mut_ptr());
            if !second.is_empty() {
                copy_out(second, values.as_mut_ptr().add(first.len()));
            }
        }
    }
}

/// Writes to every page of the memory now, so that its first use is not a page fault on the data path.
#[cfg(not(loom))]
fn touch_pages<T>(cells: &mut [Slot<T>]) {
    /// The smallest page that Linux has.
    const PAGE_BYTES: usize = 4096;
    let bytes = size_of_val(cells);
    let start = cells.as_mut_ptr().cast::<u8>();
    for offset in (0..bytes).step_by(PAGE_BYTES) {
        // SAFETY: the offset is below the cells' size in bytes, `&mut` makes them ours, and any byte is a valid
        // part of a MaybeUninit. Volatile, because nobody reads it.
        unsafe { start.add(offset).write_volatile(0) };
    }
}

/// loom's cells hold more than the element.
#[cfg(loom)]
fn touch_pages<T>(_: &mut [Slot<T>]) {}

// Plain memcpy: glibc's, which picks its vectors at run time, takes 19 cycles for a push and a pop of 32 u32 on an
// EPYC of the Zen 4 generation; inlined copies by 16 bytes, all that a build for any x86_64 may use, took 29.

#[cfg(not(loom))]
#[inline(always)]
unsafe fn copy_in<T: Copy>(cells: &[Slot<T>], values: *const T) {
    // SAFETY: cells are transparent, so this is the memory of cells.len() elements, inside an UnsafeCell each;
    // the caller has them for itself, and `values` points to as many elsewhere.
    unsafe { values.copy_to_nonoverlapping(cells.as_ptr().cast_mut().cast(), cells.len()) };
}

#[cfg(not(loom))]
#[inline(always)]
unsafe fn copy_out<T: Copy>(cells: &[Slot<T>], values: *mut T) {
    // SAFETY: as in `copy_in`, the other way round; the caller vouches that the elements are written.
    unsafe { values.copy_from_nonoverlapping(cells.as_ptr().cast(), cells.len()) };
}

/// One by one, so that loom sees each access.
#[cfg(loom)]
unsafe fn copy_in<T: Copy>(cells: &[Slot<T>], values: *const T) {
    for (index, cell) in cells.iter().enumerate() {
        // SAFETY: `values` points to as many elements as there are cells, and the caller has the cells for itself.
        cell.with_mut(|cell| unsafe { (*cell).write(*values.add(index)) });
    }
}

/// One by one, so that loom sees each access.
#[cfg(loom)]
unsafe fn copy_out<T: Copy>(cells: &[Slot<T>], values: *mut T) {
    for (index, cell) in cells.iter().enumerate() {
        // SAFETY: `values` points to as many elements as there are cells, and the caller vouches that the cells
        // are written and that nobody writes them now.
        cell.with(|cell| unsafe { *values.add(index) = (*cell).assume_init() });
    }
}
