//! Table memory in runs of slots: what a lookup reads, allotted and taken back by the writer
//!
//! Readers on other threads hold on to the memory, so it never moves: addresses are reserved once, and memory is taken in
//! steps as the end grows. A run is written while no reader knows of it, comes into sight with one store of a word
//! that leads to it, and is not given to another use before it has been out of sight for a grace period. So what a
//! reader finds in a run is what it was looking for, whether or not a slot of it is replaced meanwhile.
//!
//! Freed runs wait in a list for their own size. When many do, neighbours are merged into extents, which then serve all
//! sizes, and the end moves back over what is free before it.

use std::collections::VecDeque;
use std::sync::Arc;

use warmlane_sync::rcu::{Domain, Token};
use warmlane_sys::pages::{TableEntry, TableMemory};

use crate::work;

/// Slots after the last one that belong to the memory, for vector loads that are wider than a slot
const PADDING: usize = 16;

/// Memory is taken in steps of this many bytes, the size of a huge page
const STEP: usize = 2 << 20;

/// Free slots that are not worth a merge
const TOLERATED: usize = 1 << 14;

/// Runs that wait for the same grace period. Each period costs every reader a cache miss, so they are few.
const BATCH: usize = 512;

/// Why there is no run
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSpace {
    /// The system gave no memory
    Memory { bytes: usize },
    /// The addresses reserved for it are used up
    Full { bytes: usize },
}

/// Slots side by side
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: u32,
    size: u32,
}

#[derive(Debug)]
pub(crate) struct Arena<T: TableEntry> {
    memory: Arc<TableMemory<T>>,
    /// Slots at the start that are never given back
    fixed: usize,
    /// Slots that have been handed out so far, the freed ones included
    end: usize,
    /// Slots that have memory
    committed: usize,
    /// Slots it may grow to
    limit: usize,
    /// By size: where freed runs start
    free: Vec<Vec<u32>>,
    /// Merged runs; the lowest last
    extents: Vec<Run>,
    free_slots: usize,
    /// Slots that were freed since the last merge
    freed_since: usize,
    /// Out of sight, but perhaps still read
    retired: Vec<Run>,
    waiting: VecDeque<(Token, Vec<Run>)>,
    /// Whose readers must have reported before a run is used again; none before the table is shared
    domain: Option<Domain>,
    #[cfg(test)]
    refuses: bool,
}

impl<T: TableEntry> Arena<T> {
    /// An arena whose first `fixed` slots are taken for good and which can grow to `limit` slots, or fewer if the system
    /// has no space for so many. It costs address space, and memory only when used.
    pub(crate) fn new(fixed: usize, limit: usize) -> Result<Self, NoSpace> {
        let mut limit = limit.min(u32::MAX as usize);
        let memory = loop {
            match TableMemory::zeroed(limit + PADDING) {
                Ok(memory) => break memory,
                Err(_) if limit / 2 > fixed => limit /= 2,
                Err(_) => return Err(NoSpace::Memory { bytes: fixed * size_of::<T>() }),
            }
        };
        let mut arena = Self {
            memory: Arc::new(memory),
            fixed,
            end: fixed,
            committed: 0,
            limit,
            free: Vec::new(),
            extents: Vec::new(),
            free_slots: 0,
            freed_since: 0,
            retired: Vec::new(),
            waiting: VecDeque::new(),
            domain: None,
            #[cfg(test)]
            refuses: false,
        };
        arena.commit(fixed)?;
        Ok(arena)
    }

    /// What lookups read; it stays where it is
    pub(crate) fn memory(&self) -> &Arc<TableMemory<T>> {
        &self.memory
    }

    /// From now on, runs are used again only when all readers of `domain` have reported
    pub(crate) fn share(&mut self, domain: &Domain) {
        self.domain = Some(domain.clone());
    }

    /// A run of `size` slots with any contents, which no reader knows of
    pub(crate) fn take(&mut self, size: usize) -> Result<u32, NoSpace> {
        work::add(size);
        if let Some(start) = self.take_freed(size) {
            return Ok(start);
        }
        if self.free_slots > TOLERATED.max(self.end / 4) && self.freed_since > self.free_slots / 2 {
            self.merge();
            if let Some(start) = self.take_freed(size) {
                return Ok(start);
            }
        }
        match self.grow(size) {
            Err(no_space) => {
                // The last resort, which costs time.
                self.reclaim();
                self.merge();
                self.take_freed(size).map_or_else(|| self.grow(size).map_err(|_| no_space), Ok)
            }
            taken => taken,
        }
    }

    fn take_freed(&mut self, size: usize) -> Option<u32> {
        if let Some(start) = self.free.get_mut(size).and_then(Vec::pop) {
            self.free_slots -= size;
            return Some(start);
        }
        while let Some(extent) = self.extents.pop() {
            let rest = extent.size as usize;
            if rest >= size {
                if rest > size {
                    // A run's size and the arena's end fit 32 bits.
                    self.extents
                        .push(Run { start: extent.start + size as u32, size: extent.size - size as u32 });
                }
                self.free_slots -= size;
                return Some(extent.start);
            }
            self.list(rest).push(extent.start);
        }
        None
    }

    fn grow(&mut self, size: usize) -> Result<u32, NoSpace> {
        let (start, end) = (self.end, self.end + size);
        if end > self.limit {
            return Err(NoSpace::Full { bytes: end * size_of::<T>() });
        }
        if end > self.committed {
            self.reclaim();
            self.commit(end)?;
        }
        self.end = end;
        // `limit` is at most `u32::MAX`.
        Ok(start as u32)
    }

    fn commit(&mut self, end: usize) -> Result<(), NoSpace> {
        let bytes = (end * size_of::<T>()).next_multiple_of(STEP);
        #[cfg(test)]
        if self.refuses {
            return Err(NoSpace::Memory { bytes });
        }
        let target = (bytes / size_of::<T>()).min(self.memory.len());
        let result = self.memory.commit(self.committed..target);
        result.map_err(|_| NoSpace::Memory { bytes })?;
        self.committed = target;
        Ok(())
    }

    /// Gives a run back that nothing leads to any more, though readers may still be in it
    pub(crate) fn retire(&mut self, start: u32, size: usize) {
        let run = Run { start, size: size as u32 };
        let Some(domain) = &self.domain else {
            return self.give(run);
        };
        self.retired.push(run);
        if self.retired.len() >= BATCH {
            let batch = std::mem::replace(&mut self.retired, Vec::with_capacity(BATCH));
            self.waiting.push_back((domain.start(), batch));
            self.free_what_is_over();
        }
    }

    /// Gives a run back that no reader ever knew of
    pub(crate) fn give_unused(&mut self, start: u32, size: usize) {
        self.give(Run { start, size: size as u32 });
    }

    fn give(&mut self, run: Run) {
        let size = run.size as usize;
        self.list(size).push(run.start);
        self.free_slots += size;
        self.freed_since += size;
    }

    fn list(&mut self, size: usize) -> &mut Vec<u32> {
        if self.free.len() <= size {
            self.free.resize_with(size + 1, Vec::new);
        }
        &mut self.free[size]
    }

    /// Takes back all that readers are done with, the last batch included
    pub(crate) fn reclaim(&mut self) {
        if let Some(domain) = &self.domain
            && !self.retired.is_empty()
        {
            self.waiting.push_back((domain.start(), std::mem::take(&mut self.retired)));
        }
        self.free_what_is_over();
    }

    fn free_what_is_over(&mut self) {
        while let Some((token, _)) = self.waiting.front()
            && self.domain.as_ref().is_none_or(|domain| domain.is_over(*token))
            && let Some((_, batch)) = self.waiting.pop_front()
        {
            for run in batch {
                self.give(run);
            }
        }
    }

    /// Joins free neighbours
    fn merge(&mut self) {
        let mut runs = std::mem::take(&mut self.extents);
        for (size, list) in self.free.iter_mut().enumerate() {
            runs.extend(list.drain(..).map(|start| Run { start, size: size as u32 }));
        }
        work::add(runs.len());
        runs.sort_unstable_by_key(|run| std::cmp::Reverse(run.start));
        for run in runs {
            match self.extents.last_mut() {
                Some(above) if run.start + run.size == above.start => {
                    *above = Run { start: run.start, size: run.size + above.size };
                }
                _ => self.extents.push(run),
            }
        }
        if let Some(&last) = self.extents.first()
            && (last.start + last.size) as usize == self.end
        {
            self.end = last.start as usize;
            self.free_slots -= last.size as usize;
            self.extents.remove(0);
        }
        self.freed_since = 0;
    }

    /// When no run is out, everything goes back to the system but the fixed slots
    pub(crate) fn shrink_if_unused(&mut self) {
        if self.end == self.fixed || self.used() > self.fixed {
            return;
        }
        (self.end, self.free_slots, self.freed_since) = (self.fixed, 0, 0);
        (self.free, self.extents) = (Vec::new(), Vec::new());
        let kept = (self.fixed * size_of::<T>()).next_multiple_of(STEP) / size_of::<T>();
        if kept < self.committed {
            // SAFETY: no run is out and none is retired, so nobody refers to a slot after the fixed ones.
            unsafe { self.memory.discard(kept..self.committed) };
            self.committed = kept;
        }
    }

    /// Slots in use, or perhaps still read
    pub(crate) fn used(&self) -> usize {
        self.end - self.free_slots
    }

    /// Bytes handed out so far, in use or free
    pub(crate) fn extent_bytes(&self) -> usize {
        self.end * size_of::<T>()
    }

    /// Bytes taken from the system, with the lists that say what is free
    pub(crate) fn memory_bytes(&self) -> usize {
        let waiting = self.waiting.iter().map(|(_, batch)| batch.capacity()).sum::<usize>();
        let runs = self.extents.capacity() + self.retired.capacity() + waiting;
        self.committed * size_of::<T>()
            + self.free.capacity() * size_of::<Vec<u32>>()
            + self.free.iter().map(|list| list.capacity() * size_of::<u32>()).sum::<usize>()
            + runs * size_of::<Run>()
            + self.waiting.capacity() * size_of::<(Token, Vec<Run>)>()
    }

    #[cfg(test)]
    pub(crate) fn set_limit(&mut self, slots: usize) {
        self.limit = slots.min(self.memory.len() - PADDING);
    }

    /// From now on, the system gives no more memory
    #[cfg(test)]
    pub(crate) fn refuse_memory(&mut self, refuses: bool) {
        self.refuses = refuses;
    }

    #[cfg(test)]
    pub(crate) fn end(&self) -> usize {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

    use super::*;

    #[test]
    fn freed_runs_come_back_for_their_size() {
        let mut arena = Arena::<AtomicU16>::new(10, 1 << 20).unwrap();
        let (a, b) = (arena.take(3).unwrap(), arena.take(5).unwrap());
        assert_eq!((a, b, arena.used()), (10, 13, 18));
        arena.memory()[17].store(4, Ordering::Relaxed);
        arena.retire(a, 3);
        assert_eq!(arena.take(2).unwrap(), 18);
        assert_eq!(arena.take(3).unwrap(), 10);
        for _ in 0..1000 {
            arena.take(7).unwrap();
        }
        assert_eq!(arena.memory()[17].load(Ordering::Relaxed), 4, "growing keeps the contents");
    }

    #[test]
    fn the_limit_holds_until_something_is_free() {
        let mut arena = Arena::<AtomicU64>::new(0, 20).unwrap();
        let first = arena.take(16).unwrap();
        assert_eq!(arena.take(5), Err(NoSpace::Full { bytes: 21 * 8 }));
        assert_eq!(arena.take(4), Ok(16));
        arena.retire(first, 16);
        assert_eq!((arena.take(9), arena.take(7)), (Ok(0), Ok(9)), "a merged run serves any size");
        assert!(arena.take(1).is_err());
    }

    #[test]
    fn neighbours_become_one_and_the_end_moves_back() {
        let mut arena = Arena::<AtomicU64>::new(0, 1 << 20).unwrap();
        let runs: Vec<_> = (0..20_000).map(|_| arena.take(3).unwrap()).collect();
        for start in &runs[5000..] {
            arena.retire(*start, 3);
        }
        assert_eq!(arena.end(), 60_000);
        assert_eq!(arena.take(100), Ok(15_000));
        assert_eq!(arena.end(), 15_100);
        for start in &runs[..5000] {
            arena.retire(*start, 3);
        }
        arena.retire(15_000, 100);
        arena.shrink_if_unused();
        assert_eq!((arena.end(), arena.memory_bytes()), (0, 0));
    }

    #[test]
    fn a_run_waits_for_the_readers() {
        let domain = Domain::new(1).unwrap();
        let mut reader = domain.reader("lane 0").unwrap();
        let mut arena = Arena::<AtomicU64>::new(0, 1 << 20).unwrap();
        arena.share(&domain);
        let run = arena.take(3).unwrap();
        arena.retire(run, 3);
        arena.reclaim();
        assert_ne!(arena.take(3).unwrap(), run);
        reader.quiescent();
        arena.reclaim();
        assert_eq!(arena.take(3).unwrap(), run);
    }
}
