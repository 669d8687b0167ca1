//! What all rings are made of: two sides and the slots between them.

use crate::ring::RingError;
use crate::side::{Reserved, Side, distance};
use crate::slots::Slots;

/// Producers `P`, consumers `C`. The slots from the consumers' tail to the producers' belong to the consumers, the
/// others to the producers.
pub(crate) struct Shared<T, P, C> {
    pub(crate) producers: P,
    pub(crate) consumers: C,
    pub(crate) slots: Slots<T>,
}

// SAFETY: the slots are the only part that is not Sync by itself. A slot is touched only by the one thread that has
// reserved its position, and only after that has acquired the tail with which the other side gave it up (see `Side`).
// Elements move from thread to thread: hence T: Send.
unsafe impl<T: Send, P: Sync, C: Sync> Sync for Shared<T, P, C> {}

impl<T, P: Side, C: Side> Shared<T, P, C> {
    pub(crate) fn new(capacity: usize) -> Result<Self, RingError> {
        Ok(Self {
            slots: Slots::new(capacity)?,
            producers: P::new(capacity as u64, capacity),
            consumers: C::new(0, capacity),
        })
    }

    /// Reserves slots to write to: up to `wanted`, at least `minimum`.
    ///
    /// # Safety
    /// As for [`Side::reserve`] of the producers.
    #[inline(always)]
    pub(crate) unsafe fn reserve(&self, wanted: usize, minimum: usize) -> Option<Reserved> {
        let lead = self.slots.capacity() as u64;
        // SAFETY: the caller's promise is passed on.
        unsafe { self.producers.reserve(|| self.consumers.acquire_tail() + lead, wanted, minimum) }
    }

    /// Reserves slots to read from: up to `wanted`, at least `minimum`.
    ///
    /// # Safety
    /// As for [`Side::reserve`] of the consumers.
    #[inline(always)]
    pub(crate) unsafe fn peek(&self, wanted: usize, minimum: usize) -> Option<Reserved> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.consumers.reserve(|| self.producers.acquire_tail(), wanted, minimum) }
    }

    /// [`push`] between the two sides.
    ///
    /// # Safety
    /// As for [`Side::reserve`] of the producers.
    #[inline(always)]
    pub(crate) unsafe fn push(&self, values: &[T], minimum: usize) -> usize
    where
        T: Copy,
    {
        let lead = self.slots.capacity() as u64;
        // SAFETY: the caller's promise is passed on; the sides are those of these slots.
        unsafe {
            push(&self.slots, &self.producers, || self.consumers.acquire_tail() + lead, values, minimum)
        }
    }

    /// [`pop`] between the two sides.
    ///
    /// # Safety
    /// As for [`Side::reserve`] of the consumers.
    #[inline(always)]
    pub(crate) unsafe fn pop(&self, values: &mut [T], minimum: usize) -> usize
    where
        T: Copy,
    {
        // SAFETY: the caller's promise is passed on; the sides are those of these slots.
        unsafe { pop(&self.slots, &self.consumers, || self.producers.acquire_tail(), values, minimum) }
    }

    /// Elements inside, published and not yet given up: a moment's view that may be over when this returns.
    pub(crate) fn len(&self) -> usize {
        // The two may be from different moments.
        let read = self.consumers.tail();
        let written = self.producers.tail();
        distance(read, written).min(self.capacity())
    }

    #[inline(always)]
    pub(crate) fn capacity(&self) -> usize {
        self.slots.capacity()
    }
}

/// Puts in values from the front, as many as there is space for; if that is less than `minimum`, none. Returns how many.
///
/// # Safety
/// As for [`Side::reserve`] of `producers`, and `look` gives the tail of the last side of these slots, plus the capacity.
#[inline(always)]
pub(crate) unsafe fn push<T: Copy>(
    slots: &Slots<T>,
    producers: &impl Side,
    look: impl Fn() -> u64,
    values: &[T],
    minimum: usize,
) -> usize {
    // A store of nothing new would still take a line away from the other side.
    if values.is_empty() {
        return 0;
    }
    // SAFETY: the caller's promise is passed on.
    let Some(reserved) = (unsafe { producers.reserve(look, values.len(), minimum) }) else { return 0 };
    let Reserved { position, count, space } = reserved;
    // SAFETY: `reserve` gave these slots to this thread alone, at most values.len() and at most the capacity; all of
    // them are published, once.
    unsafe {
        slots.write(position, values.get_unchecked(..count));
        producers.publish(reserved, count);
    }
    slots.fetch_to_write(position, count, space);
    count
}

/// Fills `values` from the front, with as many elements as there are; if those are less than `minimum`, with none.
/// Returns how many.
///
/// # Safety
/// As for [`Side::reserve`] of `consumers`, and `look` gives the tail of the side before.
#[inline(always)]
pub(crate) unsafe fn pop<T: Copy>(
    slots: &Slots<T>,
    consumers: &impl Side,
    look: impl Fn() -> u64,
    values: &mut [T],
    minimum: usize,
) -> usize {
    if values.is_empty() {
        return 0;
    }
    // SAFETY: the caller's promise is passed on.
    let Some(reserved) = (unsafe { consumers.reserve(look, values.len(), minimum) }) else { return 0 };
    let Reserved { position, count, space } = reserved;
    slots.fetch_to_read(position, count, space);
    // SAFETY: `reserve` gave these slots to this thread alone, at most values.len(), at most the capacity, and all before
    // the other side's tail, so they hold elements; all of them are published, once.
    unsafe {
        slots.read(position, values.get_unchecked_mut(..count));
        consumers.publish(reserved, count);
    }
    count
}

/// What a ring and its ends tell of how full it is. Each says what holds for who has it; `$shared` is where its [`Shared`] is.
macro_rules! fullness {
    (
        $($shared:ident).+:
        $(#[$len:meta])+ len,
        $(#[$is_empty:meta])+ is_empty,
        $(#[$free:meta])+ free
    ) => {
        $(#[$len])+
        pub fn len(&self) -> usize {
            self.$($shared).+.len()
        }

        $(#[$is_empty])+
        pub fn is_empty(&self) -> bool {
            self.len() == 0
        }

        $(#[$free])+
        pub fn free(&self) -> usize {
            self.capacity() - self.len()
        }

        /// Elements that the ring holds at most.
        #[inline(always)]
        pub fn capacity(&self) -> usize {
            self.$($shared).+.capacity()
        }
    };
}
pub(crate) use fullness;
