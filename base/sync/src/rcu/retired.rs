//! What was unlinked, until it is safe.

use super::{Domain, RcuError, StuckReaders};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// A bounded queue of unlinked items (boxes, runs of slots, indices) that hands each back when no reader can refer to
/// it any more, in the order in which they came. Nothing is allocated
/// after construction but when a queue is dropped with items inside.
///
/// [`retire`](Self::retire) only puts an item in; [`reclaim`](Self::reclaim) returns what is safe and starts *one*
/// grace period for all that came since it was called last. So call it after each batch of updates, and when idle.
/// When the queue is full, `retire` gives the item back: reclaim, or wait with [`synchronize`](Self::synchronize).
///
/// A queue that is dropped leaves what is inside to its domain, which drops it when it is safe, at the latest when the
/// last handle of the domain goes: each item is dropped exactly once, never too early.
///
/// ```
/// # use warmlane_sync::rcu::{Domain, Retired};
/// let domain = Domain::new(1)?;
/// let mut reader = domain.reader("lane 0")?;
/// let mut retired = Retired::new(&domain, 2)?;
/// retired.retire(7..9)?; // A run of slots that was just unlinked.
/// assert_eq!(retired.reclaim().count(), 0); // The reader may still look at them;
/// reader.quiescent(); // no more.
/// for run in retired.reclaim() {
///     assert_eq!(run, 7..9); // To be used again.
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Retired<T: Send + 'static> {
    domain: Domain,
    capacity: usize,
    items: VecDeque<T>,
    /// How many of `items`, from the front, wait for which token.
    batches: VecDeque<Batch>,
    /// How many of `items`, from the back, wait for one that is not yet taken.
    open: usize,
}

struct Batch {
    token: u64,
    items: usize,
}

impl<T: Send + 'static> Retired<T> {
    /// An empty queue for `capacity` items.
    ///
    /// # Errors
    /// [`RcuError`], if the capacity is 0 or no memory can be had for it.
    pub fn new(domain: &Domain, capacity: usize) -> Result<Self, RcuError> {
        if capacity == 0 {
            return Err(RcuError::NoCapacity);
        }
        let out_of_memory = |_| RcuError::OutOfMemory { count: capacity, bytes: size_of::<(T, Batch)>() };
        let (mut items, mut batches) = (VecDeque::new(), VecDeque::new());
        items.try_reserve_exact(capacity).map_err(out_of_memory)?;
        batches.try_reserve_exact(capacity).map_err(out_of_memory)?;
        Ok(Self { domain: domain.clone(), capacity, items, batches, open: 0 })
    }

    /// Puts in an item that was unlinked: no reader that comes to look now finds it.
    ///
    /// # Errors
    /// [`Full`] with the item, if there are as many inside as the queue was made for.
    pub fn retire(&mut self, item: T) -> Result<(), Full<T>> {
        if self.is_full() {
            return Err(Full { item, capacity: self.capacity });
        }
        self.put(item);
        Ok(())
    }

    /// Puts in an item that there is space for.
    pub(super) fn put(&mut self, item: T) {
        self.items.push_back(item);
        self.open += 1;
    }

    /// Returns what is safe, oldest first, and starts a grace period for what came in since the last call. Does not
    /// block. What is not taken from the iterator stays inside.
    pub fn reclaim(&mut self) -> Reclaim<'_, T> {
        self.close();
        self.domain.shared.drop_orphans();
        let over = if self.batches.is_empty() { 0 } else { self.domain.shared.oldest_seen() };
        Reclaim { over, retired: self }
    }

    /// Waits until all that is inside is safe, so that [`reclaim`](Self::reclaim) then returns all of it.
    ///
    /// # Errors
    /// [`StuckReaders`], as [`Domain::synchronize`]. What is inside stays.
    pub fn synchronize(&mut self, timeout: Duration) -> Result<(), StuckReaders> {
        self.close();
        match self.batches.back() {
            Some(last) => self.domain.shared.wait(last.token, timeout),
            None => Ok(()),
        }
    }

    /// Takes a token for what has none.
    fn close(&mut self) {
        if self.open > 0 {
            let token = self.domain.shared.advance();
            self.batches.push_back(Batch { token, items: self.open });
            self.open = 0;
        }
    }

    /// Items inside.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is nothing inside.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether there is no space.
    pub fn is_full(&self) -> bool {
        self.items.len() == self.capacity
    }

    /// Items that there is space for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The domain whose readers it waits for.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }
}

impl<T: Send + 'static> Drop for Retired<T> {
    fn drop(&mut self) {
        if !self.items.is_empty() {
            self.domain.shared.adopt(Box::new(std::mem::take(&mut self.items)));
        }
        self.domain.shared.drop_orphans();
    }
}

impl<T: Send + 'static> fmt::Debug for Retired<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retired")
            .field("len", &self.len())
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// The items of a [`Retired`] that are safe.
#[must_use = "what is not taken stays in the queue"]
pub struct Reclaim<'a, T: Send + 'static> {
    /// Tokens up to this are over.
    over: u64,
    retired: &'a mut Retired<T>,
}

impl<T: Send + 'static> Iterator for Reclaim<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let batch = self.retired.batches.front_mut().filter(|batch| batch.token <= self.over)?;
        batch.items -= 1;
        if batch.items == 0 {
            self.retired.batches.pop_front();
        }
        self.retired.items.pop_front()
    }
}

impl<T: Send + 'static> fmt::Debug for Reclaim<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reclaim").field("over", &self.over).finish_non_exhaustive()
    }
}

/// A [`Retired`] queue had no space.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue of {capacity} retired items is full; reclaim, wait for the readers, or make it larger")]
pub struct Full<T> {
    /// What did not fit. It is unlinked, and readers may still refer to it.
    pub item: T,
    /// Items that the queue has space for.
    pub capacity: usize,
}

impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Full").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}
