//! Work in the ring's own memory instead of copying in and out.
//!
//! A guard stands for slots that this end has for itself. What is not committed is not put in, what is not released is
//! not taken out; dropping the guard does neither. The slots lie one behind the other, except at the end of the
//! memory, where they go on at its start: hence two slices, of which the second is mostly empty.

use crate::shared::Shared;
use crate::side::{Exclusive, Reserved, Side};
use std::fmt;
use std::marker::PhantomData;

/// Slots to fill. [`commit`](Self::commit) puts them in; dropping this puts nothing in.
#[must_use = "nothing is put in unless it is committed"]
pub struct Reservation<'a, T, P: Exclusive, C> {
    shared: &'a Shared<T, P, C>,
    reserved: Reserved,
}

impl<'a, T: Copy, P: Exclusive, C: Side> Reservation<'a, T, P, C> {
    /// # Safety
    /// As for [`Side::reserve`] of the producers, for as long as the result lives.
    #[inline(always)]
    pub(crate) unsafe fn new(shared: &'a Shared<T, P, C>, wanted: usize, minimum: usize) -> Option<Self>
    where
        T: Default,
    {
        // SAFETY: the caller's promise is passed on.
        let reserved = unsafe { shared.reserve(wanted, minimum.max(1)) }?;
        let mut reservation = Self { shared, reserved };
        let unused = (shared.capacity() as u64).saturating_sub(reserved.position) as usize;
        if unused > 0 {
            reservation.fill(unused);
        }
        Some(reservation)
    }

    /// The first time round there is nothing in the slots yet, of which there are `unused`. Later there are old elements,
    /// which nobody has to clear: they are `Copy`.
    #[cold]
    fn fill(&mut self, unused: usize)
    where
        T: Default,
    {
        let some = [T::default(); 64];
        let count = self.count().min(unused);
        for offset in (0..count).step_by(some.len()) {
            self.write(offset, some.get(..count - offset).unwrap_or(&some));
        }
    }

    /// How many slots: at least one.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.reserved.count
    }

    /// The slots. What is in them is left over from before.
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn as_mut_slices(&mut self) -> (&mut [T], &mut [T]) {
        // SAFETY: reserved, so this thread's alone while the guard lives, and filled the first time round.
        unsafe { self.shared.slots.slices_mut(self.reserved.position, self.reserved.count) }
    }

    /// Copies `values` to the slots from `offset` on, as many as there are slots.
    #[inline(always)]
    pub fn write(&mut self, offset: usize, values: &[T]) {
        let offset = offset.min(self.count());
        let count = values.len().min(self.count() - offset);
        let position = self.reserved.position + offset as u64;
        // SAFETY: reserved, so this thread's alone while the guard lives; at most as many as are reserved.
        unsafe { self.shared.slots.write(position, values.get_unchecked(..count)) };
    }

    /// Puts all of the slots in.
    #[inline(always)]
    pub fn commit(self) {
        let count = self.count();
        self.commit_first(count);
    }

    /// Puts the first `count` slots in, or all if there are not so many. The others stay free.
    #[inline(always)]
    pub fn commit_first(self, count: usize) {
        let (shared, reserved) = (self.shared, self.reserved);
        let count = count.min(reserved.count);
        // Not dropped, because that would put the slots back.
        std::mem::forget(self);
        // SAFETY: the first of those that were reserved, once, because the guard is gone; initialised, see `new`.
        unsafe { shared.producers.publish(reserved, count) };
        shared.slots.fetch_to_write(reserved.position, count, reserved.space);
    }
}

impl<T, P: Exclusive, C> Drop for Reservation<'_, T, P, C> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: reserved and not published, which would have taken the guard.
        unsafe { self.shared.producers.cancel(self.reserved) };
    }
}

impl<T, P: Exclusive, C> fmt::Debug for Reservation<'_, T, P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("count", &self.reserved.count).finish_non_exhaustive()
    }
}

/// Elements to look at. [`release`](Self::release) takes them out; dropping this leaves them inside.
///
/// Threads can share it only if they can share the elements:
///
/// ```compile_fail,E0277
/// fn shared(_: impl Sync) {}
/// let (_producer, mut consumer) = warmlane_sync::spsc::ring::<NotShared>(8).unwrap();
/// #[derive(Clone, Copy)]
/// struct NotShared(std::marker::PhantomData<std::cell::Cell<u8>>);
/// shared(consumer.peek_bulk(1));
/// ```
#[must_use = "nothing is taken out unless it is released"]
pub struct Peek<'a, T, P, C: Exclusive> {
    shared: &'a Shared<T, P, C>,
    reserved: Reserved,
    /// It gives `&T` to whoever has it, so threads may share it only if they may share a T.
    elements: PhantomData<T>,
}

impl<'a, T: Copy, P: Side, C: Exclusive> Peek<'a, T, P, C> {
    /// # Safety
    /// As for [`Side::reserve`] of the consumers, for as long as the result lives.
    #[inline(always)]
    pub(crate) unsafe fn new(shared: &'a Shared<T, P, C>, wanted: usize, minimum: usize) -> Option<Self> {
        // SAFETY: the caller's promise is passed on.
        let reserved = unsafe { shared.peek(wanted, minimum.max(1)) }?;
        shared.slots.fetch_to_read(reserved.position, reserved.count, reserved.space);
        Some(Self { shared, reserved, elements: PhantomData })
    }

    /// How many elements: at least one.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.reserved.count
    }

    /// The elements.
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn as_slices(&self) -> (&[T], &[T]) {
        // SAFETY: reserved by the consumers, so they hold elements, and nobody writes them while the guard lives.
        unsafe { self.shared.slots.slices(self.reserved.position, self.reserved.count) }
    }

    /// Copies the elements from `offset` on to the front of `values`, as many as there are.
    #[inline(always)]
    pub fn read(&self, offset: usize, values: &mut [T]) {
        let offset = offset.min(self.count());
        let count = values.len().min(self.count() - offset);
        // SAFETY: reserved by the consumers, so they hold elements, and nobody writes them while the guard lives.
        unsafe {
            self.shared.slots.read(self.reserved.position + offset as u64, values.get_unchecked_mut(..count));
        }
    }

    /// Takes all of the elements out.
    #[inline(always)]
    pub fn release(self) {
        let count = self.count();
        self.release_first(count);
    }

    /// Takes the first `count` elements out, or all if there are not so many. The others stay inside.
    #[inline(always)]
    pub fn release_first(self, count: usize) {
        let (shared, reserved) = (self.shared, self.reserved);
        let count = count.min(reserved.count);
        // Not dropped, because that would put them back.
        std::mem::forget(self);
        // SAFETY: the first of those that were reserved, once, because the guard is gone.
        unsafe { shared.consumers.publish(reserved, count) };
    }
}

impl<T, P, C: Exclusive> Drop for Peek<'_, T, P, C> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: reserved and not published, which would have taken the guard.
        unsafe { self.shared.consumers.cancel(self.reserved) };
    }
}

impl<T, P, C: Exclusive> fmt::Debug for Peek<'_, T, P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peek").field("count", &self.reserved.count).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::extra::HtsRing;
    use crate::spsc;

    #[test]
    fn a_guard_that_is_dropped_does_nothing() {
        let (mut producer, mut consumer) = spsc::ring::<u32>(4).unwrap();
        let mut reservation = producer.reserve_bulk(3).unwrap();
        reservation.as_mut_slices().0.fill(7);
        drop(reservation);
        assert!(producer.is_empty() && consumer.peek_burst(4).is_none());
        assert!(producer.push_bulk(&[1, 2]));
        drop(consumer.peek_bulk(2));
        assert_eq!(consumer.len(), 2);
        let ring = HtsRing::<u32>::new(4).unwrap();
        drop(ring.reserve_bulk(4));
        assert!(ring.push_bulk(&[1, 2, 3]), "the side is free again");
        drop(ring.peek_bulk(3));
        assert!(ring.pop_bulk(&mut [0; 3]));
    }

    #[test]
    fn slots_go_on_at_the_start_of_the_memory() {
        let (mut producer, mut consumer) = spsc::ring::<u32>(4).unwrap();
        assert!(producer.push_bulk(&[0; 3]) && consumer.pop_bulk(&mut [0; 3]));
        let mut reservation = producer.reserve_burst(9).unwrap();
        let (first, second) = reservation.as_mut_slices();
        assert_eq!((first.len(), second.len()), (1, 3));
        first[0] = 1;
        second.copy_from_slice(&[2, 3, 4]);
        reservation.commit();
        let peek = consumer.peek_burst(9).unwrap();
        assert_eq!(peek.as_slices(), (&[1][..], &[2, 3, 4][..]));
        peek.release_first(2);
        let mut rest = [0; 2];
        consumer.peek_bulk(2).unwrap().read(0, &mut rest);
        assert_eq!(rest, [3, 4]);
        assert!(producer.reserve_bulk(3).is_none());
        assert_eq!(producer.reserve_burst(3).map(|reservation| reservation.count()), Some(2));
    }

    #[test]
    fn part_of_a_reservation_can_be_put_in() {
        let (mut producer, mut consumer) = spsc::ring::<u32>(8).unwrap();
        let mut reservation = producer.reserve_bulk(4).unwrap();
        reservation.write(0, &[1, 2, 3, 4, 5]);
        reservation.write(2, &[9]);
        reservation.write(7, &[5]);
        reservation.commit_first(3);
        let mut values = [0; 8];
        assert_eq!(consumer.pop_burst(&mut values), 3);
        assert_eq!(values[..3], [1, 2, 9]);
        producer.reserve_bulk(1).unwrap().commit_first(0);
        assert!(producer.is_empty());
        producer.reserve_bulk(2).unwrap().commit_first(99);
        assert_eq!(producer.len(), 2);
    }

    #[test]
    fn slots_are_never_uninitialised() {
        let (mut producer, _consumer) = spsc::ring::<u32>(8).unwrap();
        let mut reservation = producer.reserve_bulk(8).unwrap();
        assert_eq!(reservation.as_mut_slices().0, [0; 8]);
        let ring = HtsRing::<u64>::new(8).unwrap();
        assert!(ring.push_bulk(&[1; 6]) && ring.pop_bulk(&mut [0; 6]));
        let mut reservation = ring.reserve_bulk(8).unwrap();
        let (first, second) = reservation.as_mut_slices();
        assert_eq!((first[..].to_vec(), second[..].to_vec()), (vec![0; 2], vec![1; 6]));
    }

    #[test]
    fn nothing_and_too_much_cannot_be_reserved() {
        let (mut producer, mut consumer) = spsc::ring::<u32>(4).unwrap();
        assert!(producer.reserve_bulk(0).is_none() && producer.reserve_burst(0).is_none());
        assert!(producer.reserve_bulk(5).is_none());
        assert!(producer.push_bulk(&[1; 4]));
        assert!(consumer.peek_bulk(0).is_none() && consumer.peek_bulk(5).is_none());
    }
}
