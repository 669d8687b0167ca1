//! The memory of a ring: a power of two of slots, addressed by positions that only grow.

use crate::prefetch::{prefetch_read_at, prefetch_write_at};
use crate::primitive::UnsafeCell;
use crate::ring::{self, RingError};
use std::alloc::{Layout, alloc, dealloc};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;

/// Memory for one element.
type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// What a burst should not straddle: a pair of lines, as in [`CachePadded`](crate::padded::CachePadded).
const ALIGNMENT: usize = 128;

/// Bytes in a line that moves between cores.
const LINE_BYTES: usize = 64;

/// How far ahead of the position lines are fetched, in bytes: far enough that eight bursts of 8 elements of 8 bytes, or
/// two of 32, cover the time that a line takes from the other core (70 to 400 cycles, measured on a Zen 4 EPYC).
const FETCH_AHEAD_BYTES: usize = 1024;

/// Slots that come without any protection: who may touch which when is the ring's business.
///
/// A position is a count of all elements since the start; the slot is its low bits.
pub(crate) struct Slots<T> {
    cells: NonNull<Slot<T>>,
    capacity: usize,
}

// SAFETY: plain memory, owned. What is in the slots is sent by whoever uses them (see the rings).
unsafe impl<T: Send> Send for Slots<T> {}

impl<T> Slots<T> {
    pub(crate) fn new(capacity: usize) -> Result<Self, RingError> {
        ring::check(capacity)?;
        let no_memory = RingError::OutOfMemory { capacity, element_bytes: size_of::<T>() };
        let layout = Self::layout(capacity).ok_or(no_memory)?;
        let cells = if layout.size() == 0 {
            NonNull::dangling()
        } else {
            // SAFETY: the size is not zero.
            NonNull::new(unsafe { alloc(layout) }.cast::<Slot<T>>()).ok_or(no_memory)?
        };
        for index in 0..capacity {
            // SAFETY: inside the memory, which is ours and aligned.
            unsafe { cells.add(index).write(UnsafeCell::new(MaybeUninit::uninit())) };
        }
        touch_pages(cells.cast(), layout.size());
        Ok(Self { cells, capacity })
    }

    fn layout(capacity: usize) -> Option<Layout> {
        Layout::array::<Slot<T>>(capacity).ok()?.align_to(ALIGNMENT).ok()
    }

    #[inline(always)]
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The slots of `count` elements from `position` on: those up to the end of the memory, and the rest from
    /// its start.
    #[inline(always)]
    fn pieces(&self, position: u64, count: usize) -> (&[Slot<T>], &[Slot<T>]) {
        debug_assert!(count <= self.capacity);
        let start = self.index(position);
        let first = count.min(self.capacity - start);
        // SAFETY: start < capacity because of the mask, start + first <= capacity because of the minimum, and
        // count - first <= start <= capacity because count <= capacity, which the callers require. The cells live
        // as long as self.
        unsafe {
            (
                slice::from_raw_parts(self.cells.as_ptr().add(start), first),
                slice::from_raw_parts(self.cells.as_ptr(), count - first),
            )
        }
    }

    #[inline(always)]
    fn index(&self, position: u64) -> usize {
        (position & (self.capacity as u64 - 1)) as usize
    }

    /// Copies `values` to the slots from `position` on.
    ///
    /// # Safety
    /// At most [`capacity`](Self::capacity) values, and no other thread reads or writes these slots meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn write(&self, position: u64, values: &[T])
    where
        T: Copy,
    {
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
    pub(crate) unsafe fn read(&self, position: u64, values: &mut [T])
    where
        T: Copy,
    {
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

    /// The element at `position`.
    ///
    /// # Safety
    /// It was written before, and no other thread writes this slot meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn read_one(&self, position: u64) -> T
    where
        T: Copy,
    {
        // SAFETY: the index is below the capacity because of the mask; the rest is the caller's promise.
        unsafe { self.cells.add(self.index(position)).as_ref().with(|cell| (*cell).assume_init()) }
    }

    /// The slots of `count` elements from `position` on, in the two pieces that they lie in.
    ///
    /// # Safety
    /// At most [`capacity`](Self::capacity) elements, all of them written before, and no other thread writes these
    /// slots during `'a`.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) unsafe fn slices<'a>(&self, position: u64, count: usize) -> (&'a [T], &'a [T]) {
        let (first, second) = self.pieces(position, count);
        // SAFETY: cells are transparent, so this is the memory of so many elements; that they are written and stay as
        // they are, and that the memory outlives 'a, is the caller's promise.
        unsafe {
            (
                slice::from_raw_parts(first.as_ptr().cast(), first.len()),
                slice::from_raw_parts(second.as_ptr().cast(), second.len()),
            )
        }
    }

    /// The same, to write to.
    ///
    /// # Safety
    /// As for [`slices`](Self::slices), and no other thread reads these slots during `'a` either.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) unsafe fn slices_mut<'a>(&self, position: u64, count: usize) -> (&'a mut [T], &'a mut [T]) {
        let (first, second) = self.pieces(position, count);
        // SAFETY: as in `slices`; each element is inside an UnsafeCell, and the two pieces don't overlap.
        unsafe {
            (
                slice::from_raw_parts_mut(first.as_ptr().cast_mut().cast(), first.len()),
                slice::from_raw_parts_mut(second.as_ptr().cast_mut().cast(), second.len()),
            )
        }
    }

    /// Fetches the lines of `count` slots that are to be written in a moment, if this side has space as far as that:
    /// `space` slots from `position` on.
    #[inline(always)]
    pub(crate) fn fetch_to_write(&self, position: u64, count: usize, space: usize) {
        self.fetch(position, count, space, prefetch_write_at);
    }

    /// Fetches the lines of `count` slots that are to be read in a moment, if there are elements as far as that: `space`
    /// elements from `position` on.
    #[inline(always)]
    pub(crate) fn fetch_to_read(&self, position: u64, count: usize, space: usize) {
        self.fetch(position, count, space, prefetch_read_at);
    }

    #[inline(always)]
    fn fetch(&self, position: u64, count: usize, space: usize, prefetch: impl Fn(*const u8)) {
        if size_of::<T>() == 0 || size_of::<T>() > LINE_BYTES {
            return;
        }
        let ahead = FETCH_AHEAD_BYTES / size_of::<T>();
        // Not in a ring that is no longer than that, and not lines that the other side is still at.
        if space >= ahead + count && self.capacity > ahead {
            for offset in (0..count).step_by(LINE_BYTES / size_of::<T>()) {
                let index = self.index(position + (ahead + offset) as u64);
                prefetch(self.cells.as_ptr().wrapping_add(index).cast());
            }
        }
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        if std::mem::needs_drop::<Slot<T>>() {
            // Loom's cells only: what a MaybeUninit holds is not dropped.
            for index in 0..self.capacity {
                // SAFETY: written in `new`, and nobody has a reference any more.
                unsafe { self.cells.add(index).drop_in_place() };
            }
        }
        if let Some(layout) = Self::layout(self.capacity).filter(|layout| layout.size() > 0) {
            // SAFETY: allocated in `new` with this layout.
            unsafe { dealloc(self.cells.as_ptr().cast(), layout) };
        }
    }
}

/// Writes to every page of the memory now, so that its first use is not a page fault on the data path.
#[cfg(not(loom))]
fn touch_pages(start: NonNull<u8>, bytes: usize) {
    /// The smallest page that Linux has.
    const PAGE_BYTES: usize = 4096;
    for offset in (0..bytes).step_by(PAGE_BYTES) {
        // SAFETY: the offset is below the size in bytes, the memory is not shared yet, and any byte is a valid part
        // of a MaybeUninit. Volatile, because the compiler would remove a store that nothing reads.
        unsafe { start.add(offset).write_volatile(0) };
    }
}

/// loom's cells hold more than the element.
#[cfg(loom)]
fn touch_pages(_: NonNull<u8>, _: usize) {}

#[cfg(not(loom))]
#[inline(always)]
unsafe fn copy_in<T: Copy>(cells: &[Slot<T>], values: *const T) {
    // SAFETY: cells are transparent, so this is the memory of cells.len() elements, inside an UnsafeCell each;
    // the caller has them for itself, and `values` points to as many elsewhere.
    unsafe { crate::copy::copy_in(values, cells.as_ptr().cast_mut().cast(), cells.len()) };
}

#[cfg(not(loom))]
#[inline(always)]
unsafe fn copy_out<T: Copy>(cells: &[Slot<T>], values: *mut T) {
    // SAFETY: as in `copy_in`, the other way round; the caller vouches that the elements are written.
    unsafe { crate::copy::copy_out(cells.as_ptr().cast(), values, cells.len()) };
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Miri would take an hour for what others do at once.
    const SLOTS: usize = if cfg!(miri) { 8 } else { 64 };

    fn what_goes_in_comes_out<T: Copy + PartialEq + std::fmt::Debug>(element: impl Fn(usize) -> T) {
        let slots = Slots::<T>::new(SLOTS).unwrap();
        for count in 0..=SLOTS {
            for position in (0..2 * SLOTS + 2).step_by(7) {
                let values: Vec<_> = (0..count).map(|index| element(index + position)).collect();
                let mut read: Vec<_> = (0..count).map(|_| element(usize::MAX)).collect();
                // SAFETY: not more than the capacity, one thread, and written before they are read.
                unsafe {
                    slots.write(position as u64, &values);
                    slots.read(position as u64, &mut read);
                }
                assert_eq!(read, values, "{count} at {position}");
            }
        }
    }

    #[test]
    fn elements_of_any_size_are_copied_round_the_end() {
        what_goes_in_comes_out(|number| number as u8);
        what_goes_in_comes_out(|number| number as u32);
        what_goes_in_comes_out(|number| number as u64);
        what_goes_in_comes_out(|number| [number as u32, !number as u32, 7]);
        what_goes_in_comes_out(|number| (number as u32, number as u16));
        what_goes_in_comes_out(|number| number as u128);
        what_goes_in_comes_out(|_| ());
    }

    #[test]
    fn the_memory_starts_with_a_pair_of_lines() {
        assert_eq!(Slots::<u32>::new(1).unwrap().cells.as_ptr().addr() % ALIGNMENT, 0);
    }
}
