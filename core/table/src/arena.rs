//! Table memory in runs of slots: what a lookup reads, allotted and taken back by the writer
//!
//! A run never moves or changes size; a change to a table writes new runs, points to them with one word, and only then gives
//! the old ones back. Freed runs wait in a list for their own size, so that neighbours need no merging; the
//! tables rebuild themselves when more than half of an arena is waiting.

use warmlane_sys::pages::{TableEntry, TableMemory};

/// Slots after the last one that belong to the memory, for vector loads that are wider than a slot
const PADDING: usize = 16;

/// Waiting slots that are not worth a rebuild
const TOLERATED: usize = 1 << 16;

/// The system gave no memory, or the arena's limit is reached
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfMemory {
    pub(crate) bytes: usize,
}

#[derive(Debug)]
pub(crate) struct Arena<T: TableEntry> {
    memory: TableMemory<T>,
    /// Slots at the start that are never given back
    fixed: usize,
    /// Slots that have been handed out so far, the freed ones included
    end: usize,
    /// By size: where freed runs start
    free: Vec<Vec<u32>>,
    free_slots: usize,
    /// Slots it may grow to
    limit: usize,
}

impl<T: TableEntry + Copy> Arena<T> {
    /// An arena whose first `fixed` slots are taken for good, with room for `capacity` slots before it must grow. Room costs
    /// address space, and memory only when used.
    pub(crate) fn new(fixed: usize, capacity: usize, limit: usize) -> Result<Self, OutOfMemory> {
        let memory = zeroed(capacity.max(fixed))?;
        let limit = limit.min(u32::MAX as usize);
        Ok(Self { memory, fixed, end: fixed, free: Vec::new(), free_slots: 0, limit })
    }

    /// A run of `size` slots with any contents
    pub(crate) fn take(&mut self, size: usize) -> Result<u32, OutOfMemory> {
        if let Some(start) = self.free.get_mut(size).and_then(Vec::pop) {
            self.free_slots -= size;
            return Ok(start);
        }
        let start = self.end;
        let end = start + size;
        if end > self.limit {
            return Err(OutOfMemory { bytes: end * size_of::<T>() });
        }
        if end + PADDING > self.memory.len() {
            let mut larger = zeroed(end + end / 2)?;
            larger[..start].copy_from_slice(&self.memory[..start]);
            self.memory = larger;
        }
        self.end = end;
        // `limit` is at most `u32::MAX`.
        Ok(start as u32)
    }

    /// Gives a run back that nothing points to any more
    pub(crate) fn give(&mut self, start: u32, size: usize) {
        if self.free.len() <= size {
            self.free.resize_with(size + 1, Vec::new);
        }
        self.free[size].push(start);
        self.free_slots += size;
    }

    /// Back to the first slots when no run is out, with memory for no more than them
    pub(crate) fn shrink_if_unused(&mut self) {
        if self.used() > self.fixed || self.end == self.fixed {
            return;
        }
        // A few slots more are not worth a copy of the fixed ones. Without memory for that copy, all stays as it is.
        if self.end > self.fixed + self.fixed / 2
            && let Ok(mut smaller) = zeroed(self.fixed)
        {
            smaller[..self.fixed].copy_from_slice(&self.memory[..self.fixed]);
            self.memory = smaller;
        }
        (self.end, self.free, self.free_slots) = (self.fixed, Vec::new(), 0);
    }

    /// Whether a rebuild would shrink it by half or more
    pub(crate) fn is_sparse(&self) -> bool {
        self.free_slots > TOLERATED && self.free_slots * 2 > self.end
    }

    /// All slots that may be read: those handed out and [`PADDING`] more, at least
    pub(crate) fn slots(&self) -> &[T] {
        &self.memory
    }

    pub(crate) fn slots_mut(&mut self) -> &mut [T] {
        &mut self.memory
    }

    /// Slots in use
    pub(crate) fn used(&self) -> usize {
        self.end - self.free_slots
    }

    /// Bytes that have been written to, so take memory
    pub(crate) fn memory_bytes(&self) -> usize {
        self.end * size_of::<T>()
            + self.free.iter().map(|list| list.capacity() * size_of::<u32>()).sum::<usize>()
    }

    #[cfg(test)]
    pub(crate) fn set_limit(&mut self, slots: usize) {
        self.limit = slots;
    }

    #[cfg(test)]
    pub(crate) fn end(&self) -> usize {
        self.end
    }
}

fn zeroed<T: TableEntry>(slots: usize) -> Result<TableMemory<T>, OutOfMemory> {
    TableMemory::zeroed(slots + PADDING)
        .map_err(|_| OutOfMemory { bytes: slots.saturating_mul(size_of::<T>()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_runs_come_back_for_their_size() {
        let mut arena = Arena::<u16>::new(10, 10, usize::MAX).unwrap();
        let (a, b) = (arena.take(3).unwrap(), arena.take(5).unwrap());
        assert_eq!((a, b, arena.used()), (10, 13, 18));
        arena.slots_mut()[17] = 4;
        arena.give(a, 3);
        assert_eq!(arena.take(2).unwrap(), 18);
        assert_eq!(arena.take(3).unwrap(), 10);
        for _ in 0..1000 {
            arena.take(7).unwrap();
        }
        assert_eq!(arena.slots()[17], 4, "growing keeps the contents");
        assert!(arena.slots().len() >= arena.end() + PADDING);
    }

    #[test]
    fn the_limit_holds() {
        let mut arena = Arena::<u64>::new(0, 8, 20).unwrap();
        arena.take(16).unwrap();
        assert_eq!(arena.take(5), Err(OutOfMemory { bytes: 21 * 8 }));
        assert_eq!(arena.take(4), Ok(16));
    }
}
