//! A ring whose elements are worked on in place, by one stage after the other, before they come out, in order.
//!
//! Between the producer and the consumer stand *stages*. What the producer puts in, the first stage may change in place;
//! what that has passed on, the second; what the last has passed on, the consumer takes out, in the order in which it
//! went in. Nothing moves but positions, so a burst that passes through three lanes is copied in once and out once (the
//! idea of LMAX's Disruptor: Thompson et al., "Disruptor: High performance alternative to bounded queues for exchanging data
//! between concurrent threads", 2011; DPDK has it as rte_soring).
//!
//! Each stage is a [side](crate::side) like any other. With [`Single`] each stage has one thread. With
//! [`RelaxedTail`](super::RelaxedTail) a stage has as many as there are clones of its [`Stage`]; they finish in any
//! order without waiting for each other, until an eighth of the capacity waits for one that is late, and the order is
//! kept all the same.

use crate::primitive::{Arc, AtomicBool, Ordering};
use crate::ring::RingError;
use crate::shared;
use crate::side::{Concurrent, Reserved, Side, Single, distance};
use crate::slots::Slots;
use std::fmt;

/// Why a staged ring could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StageError {
    /// Without a stage it is an [`spsc`](crate::spsc) ring.
    #[error("a staged ring has 0 stages; use at least 1, or a single-producer single-consumer ring")]
    NoStage,
    /// As for any ring.
    #[error(transparent)]
    Ring(#[from] RingError),
}

/// The ends of a staged ring, and its stages in the order in which elements pass them.
pub type Parts<T, S> = (Producer<T, S>, Vec<Stage<T, S>>, Consumer<T, S>);

/// Makes a ring for up to `capacity` elements, a power of two, with so many stages.
///
/// ```
/// use warmlane_sync::extra::staged;
/// use warmlane_sync::side::Single;
///
/// let (mut producer, mut stages, mut consumer) = staged::ring::<u32, Single>(8, 2)?;
/// assert!(producer.push_bulk(&[1, 2, 3]));
/// assert_eq!(consumer.pop_burst(&mut [0; 8]), 0);
/// for stage in &mut stages {
///     let mut work = stage.work_burst(8).ok_or("nothing to do")?;
///     let (first, second) = work.as_mut_slices();
///     first.iter_mut().chain(second).for_each(|element| *element *= 10);
/// }
/// let mut values = [0; 3];
/// assert!(consumer.pop_bulk(&mut values));
/// assert_eq!(values, [100, 200, 300]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`StageError`], if there are no stages, or the capacity is zero, not a power of two, too large, or no memory can be had
/// for it.
pub fn ring<T: Copy, S: Side>(capacity: usize, stages: usize) -> Result<Parts<T, S>, StageError> {
    if stages == 0 {
        return Err(StageError::NoStage);
    }
    let ring = Arc::new(Ring {
        slots: Slots::new(capacity)?,
        producer: Single::new(capacity as u64, capacity),
        stages: (0..stages).map(|_| S::new(0, capacity)).collect(),
        consumer: Single::new(0, capacity),
        producer_gone: AtomicBool::new(false),
    });
    let stages = (0..stages).map(|number| Stage { ring: Arc::clone(&ring), number }).collect();
    Ok((Producer { ring: Arc::clone(&ring) }, stages, Consumer { ring }))
}

struct Ring<T, S> {
    producer: Single,
    stages: Box<[S]>,
    consumer: Single,
    producer_gone: AtomicBool,
    /// Those from one side's tail to the tail of the side before belong to that side; from the consumer's to the
    /// producer's it goes round.
    slots: Slots<T>,
}

// SAFETY: the slots are the only part that is not Sync by itself. A slot is touched only by the one thread that has
// reserved its position on some side, and only after that has acquired the tail with which the side before gave it up
// (see `Side`). Elements move from thread to thread: hence T: Send.
unsafe impl<T: Send, S: Sync> Sync for Ring<T, S> {}

impl<T, S: Side> Ring<T, S> {
    /// How far stage `number` may go, or the consumer if it is the number of stages.
    #[inline(always)]
    fn passed_to(&self, number: usize) -> u64 {
        match number.checked_sub(1).and_then(|before| self.stages.get(before)) {
            Some(stage) => stage.acquire_tail(),
            None => self.producer.acquire_tail(),
        }
    }

    fn len(&self) -> usize {
        let read = self.consumer.tail();
        distance(read, self.producer.tail()).min(self.slots.capacity())
    }
}

/// The end that puts elements in. There is only one.
pub struct Producer<T, S: Side> {
    ring: Arc<Ring<T, S>>,
}

impl<T: Copy, S: Side> Producer<T, S> {
    /// Puts in all of `values` or, if there is not space for all, none. `true`: they are in. More values than the capacity
    /// never fit.
    #[inline]
    #[must_use = "the values are not in the ring if this is false"]
    pub fn push_bulk(&mut self, values: &[T]) -> bool {
        self.push(values, values.len()) == values.len()
    }

    /// Puts in `values` from the front, as many as there is space for; returns how many.
    #[inline]
    #[must_use = "only so many of the values are in the ring"]
    pub fn push_burst(&mut self, values: &[T]) -> usize {
        self.push(values, 1)
    }

    #[inline(always)]
    fn push(&mut self, values: &[T], minimum: usize) -> usize {
        let ring = &*self.ring;
        let look = || ring.consumer.acquire_tail() + ring.slots.capacity() as u64;
        // SAFETY: the only producer, by `&mut`; the consumer is the last side.
        unsafe { shared::push(&ring.slots, &ring.producer, look, values, minimum) }
    }

    /// Elements inside, in whatever stage. The consumer may have taken more out by the time this returns.
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether the consumer has taken out all that was put in.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements that the ring holds at most.
    pub fn capacity(&self) -> usize {
        self.ring.slots.capacity()
    }
}

impl<T, S: Side> Drop for Producer<T, S> {
    fn drop(&mut self) {
        // R2: release, pairs with A2. Without it the consumer could see the end before the last elements.
        self.ring.producer_gone.store(true, Ordering::Release);
    }
}

/// Works on elements between the producer and the consumer. Elements that a stage does not work on go no further: if it
/// is dropped, none comes out any more.
pub struct Stage<T, S: Side> {
    ring: Arc<Ring<T, S>>,
    number: usize,
}

impl<T: Copy, S: Side> Stage<T, S> {
    /// The next `count` elements that the stage before has passed on, or `None` if there are not so many. `None` too if
    /// `count` is 0.
    #[inline]
    pub fn work_bulk(&mut self, count: usize) -> Option<Work<'_, T, S>> {
        self.work(count, count.max(1))
    }

    /// The next elements that the stage before has passed on, up to `count`, or `None` if there are none.
    #[inline]
    pub fn work_burst(&mut self, count: usize) -> Option<Work<'_, T, S>> {
        self.work(count, 1)
    }

    #[inline(always)]
    fn work(&mut self, wanted: usize, minimum: usize) -> Option<Work<'_, T, S>> {
        let ring = &*self.ring;
        let side = ring.stages.get(self.number)?;
        // SAFETY: the one thread that has this handle by `&mut`; the only one unless the side is not `Single`.
        let reserved = unsafe { side.reserve(|| ring.passed_to(self.number), wanted, minimum) }?;
        ring.slots.fetch_to_read(reserved.position, reserved.count, reserved.space);
        Some(Work { slots: &ring.slots, side, reserved })
    }
}

impl<T, S: Concurrent> Clone for Stage<T, S> {
    fn clone(&self) -> Self {
        Self { ring: Arc::clone(&self.ring), number: self.number }
    }
}

/// Elements to work on in place. Dropping this passes them on, as they are then, to the next stage: they can't stay behind,
/// because those behind them would have to stay as well. Leaking it (`mem::forget`) stops the stage for good.
///
/// A thread that has several, of clones of one stage, may wait for itself: it has to drop them in the order in which it got
/// them, and with [`HeadTail`](super::HeadTail) it can have one only.
#[must_use = "the elements are passed on as they are"]
pub struct Work<'a, T, S: Side> {
    slots: &'a Slots<T>,
    side: &'a S,
    reserved: Reserved,
}

impl<T: Copy, S: Side> Work<'_, T, S> {
    /// How many elements: at least one.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.reserved.count
    }

    /// The elements. They lie one behind the other, except at the end of the ring's memory, where they go on at its
    /// start.
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn as_mut_slices(&mut self) -> (&mut [T], &mut [T]) {
        // SAFETY: reserved, so they hold elements and are this thread's alone while the guard lives.
        unsafe { self.slots.slices_mut(self.reserved.position, self.reserved.count) }
    }

    /// Replaces each element by what `change` makes of it.
    #[inline(always)]
    pub fn update(&mut self, mut change: impl FnMut(T) -> T) {
        for offset in 0..self.reserved.count as u64 {
            let position = self.reserved.position + offset;
            // SAFETY: reserved, so it holds an element and is this thread's alone while the guard lives.
            unsafe { self.slots.write(position, &[change(self.slots.read_one(position))]) };
        }
    }
}

impl<T, S: Side> Drop for Work<'_, T, S> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: all that were reserved, once, because the guard is gone.
        unsafe { self.side.publish(self.reserved, self.reserved.count) };
    }
}

/// The end that takes elements out, in the order in which they were put in. There is only one.
pub struct Consumer<T, S: Side> {
    ring: Arc<Ring<T, S>>,
}

impl<T: Copy, S: Side> Consumer<T, S> {
    /// Fills all of `values` or, if the last stage has not passed on enough elements, leaves it alone. `true`: it is
    /// filled.
    #[inline]
    #[must_use = "the values are not filled if this is false"]
    pub fn pop_bulk(&mut self, values: &mut [T]) -> bool {
        self.pop(values, values.len()) == values.len()
    }

    /// Fills `values` from the front, with as many elements as the last stage has passed on; returns how many.
    #[inline]
    #[must_use = "only so many of the values are filled"]
    pub fn pop_burst(&mut self, values: &mut [T]) -> usize {
        self.pop(values, 1)
    }

    #[inline(always)]
    fn pop(&mut self, values: &mut [T], minimum: usize) -> usize {
        let ring = &*self.ring;
        let look = || ring.passed_to(ring.stages.len());
        // SAFETY: the only consumer, by `&mut`; the last stage is the side before.
        unsafe { shared::pop(&ring.slots, &ring.consumer, look, values, minimum) }
    }

    /// Elements inside, in whatever stage, at least: the producer only adds.
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether there is nothing inside, in whatever stage.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the producer is gone. When this is `true` and `is_empty` *then* too, nothing will ever come.
    pub fn is_disconnected(&self) -> bool {
        // A2: acquire, pairs with R2. See there.
        self.ring.producer_gone.load(Ordering::Acquire)
    }
}

impl<T, S: Side> fmt::Debug for Producer<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("len", &self.ring.len()).finish_non_exhaustive()
    }
}

impl<T, S: Side> fmt::Debug for Stage<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage").field("number", &self.number).finish_non_exhaustive()
    }
}

impl<T, S: Side> fmt::Debug for Work<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("count", &self.reserved.count).finish_non_exhaustive()
    }
}

impl<T, S: Side> fmt::Debug for Consumer<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("len", &self.ring.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::extra::RelaxedTail;

    #[test]
    fn a_ring_that_cannot_be_is_refused_with_the_reason() {
        assert_eq!(ring::<u32, Single>(8, 0).err(), Some(StageError::NoStage));
        let error = RingError::NotPowerOfTwo { capacity: 6 };
        assert_eq!(ring::<u32, Single>(6, 1).err(), Some(StageError::Ring(error)));
        assert_eq!(StageError::Ring(error).to_string(), error.to_string());
    }

    #[test]
    fn an_element_comes_out_when_all_stages_have_passed_it_on() {
        let (mut producer, mut stages, mut consumer) = ring::<u32, Single>(4, 2).unwrap();
        for round in 0..3 {
            assert_eq!(producer.push_burst(&[1, 2, 3, 4, 5]), 4);
            assert!(!producer.push_bulk(&[5]));
            assert!(stages[1].work_burst(4).is_none());
            let mut work = stages[0].work_burst(3).unwrap();
            work.as_mut_slices().0[0] += 10;
            assert_eq!(work.count(), 3);
            drop(work);
            assert!(stages[1].work_bulk(4).is_none());
            stages[1].work_bulk(2).unwrap().update(|value| value + 100);
            let mut values = [0; 4];
            assert!(!consumer.pop_bulk(&mut values));
            assert_eq!(consumer.pop_burst(&mut values), 2);
            assert_eq!(values, [111, 102, 0, 0], "round {round}");
            assert_eq!((producer.len(), consumer.len()), (2, 2));
            assert_eq!(stages[0].work_burst(9).map(|work| work.count()), Some(1));
            assert_eq!(stages[1].work_burst(9).map(|work| work.count()), Some(2));
            assert_eq!(consumer.pop_burst(&mut values), 2);
            assert_eq!(values[..2], [3, 4]);
        }
        assert!(!consumer.is_disconnected());
        drop(producer);
        assert!(consumer.is_disconnected() && consumer.is_empty());
    }

    #[test]
    fn a_worker_that_is_late_keeps_back_what_others_have_done() {
        let (mut producer, mut stages, mut consumer) = ring::<u32, RelaxedTail>(16, 1).unwrap();
        let mut other = stages[0].clone();
        assert!(producer.push_bulk(&[1, 2, 3]));
        let mut late = stages[0].work_bulk(1).unwrap();
        other.work_bulk(1).unwrap().update(|value| value * 10);
        assert_eq!(consumer.pop_burst(&mut [0; 4]), 0);
        late.update(|value| value * 100);
        drop(late);
        let mut values = [0; 2];
        assert!(consumer.pop_bulk(&mut values));
        assert_eq!(values, [100, 20]);
    }

    /// Elements of no size, so that 2³² positions take no time.
    #[test]
    #[cfg_attr(miri, ignore = "it goes through thousands of millions of elements")]
    fn positions_of_32_bits_wrap() {
        let (mut producer, mut stages, mut consumer) = ring::<(), RelaxedTail>(1 << 30, 1).unwrap();
        let elements = vec![(); (1 << 30) - 1];
        for _ in 0..9 {
            assert!(producer.push_bulk(&elements));
            assert_eq!(stages[0].work_burst(1 << 30).map(|work| work.count()), Some(elements.len()));
            assert!(consumer.pop_bulk(&mut elements.clone()));
            assert!(consumer.is_empty());
        }
    }
}
