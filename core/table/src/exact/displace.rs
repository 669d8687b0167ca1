//! Making space: which entries to move so that a full bucket gets a free slot
//!
//! The entries of a full bucket can each go to their other bucket; if that is full, its entries can, and so on. Searched in
//! breadth, this finds a short way to a free slot (Li et al., EuroSys 2014, section 4.3.2), and asks for buckets long
//! before it looks into them.

use warmlane_sys::prefetch::prefetch_write;

use super::Shared;
use super::bucket::Layout;
use super::kernel::Kernel;
use super::occupancy::Occupancies;

/// Buckets that are looked at before the table counts as full. With three slots a bucket, a table with two choices
/// can be filled to 95.9 % in theory (Fernholz and Ramachandran, "The k-orientability thresholds for G(n,p)", SODA
/// 2007); so many let it come to 95 % and more.
const MOST_BUCKETS: usize = 4096;

/// No way to the front
const ROOT: u32 = u32::MAX;

/// A bucket that the search has come to: by moving the entry in `slot` of the bucket at index `from` of the queue
#[derive(Clone, Copy, Debug)]
struct Node {
    bucket: u32,
    from: u32,
    slot: u8,
}

/// The search's memory, which is used again
#[derive(Debug)]
pub(super) struct Search {
    queue: Vec<Node>,
}

/// An entry to be moved to a free slot
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) from: u32,
    pub(super) from_slot: usize,
    pub(super) to: u32,
}

impl Search {
    pub(super) fn new() -> Self {
        Self { queue: Vec::with_capacity(MOST_BUCKETS + 8) }
    }

    /// Finds moves that free a slot in one of two full buckets. The index of the last of them, to [step](Self::step) back from;
    /// none if there is no way.
    pub(super) fn way<B: Layout>(
        &mut self,
        shared: &Shared<B>,
        occupancies: &Occupancies,
        kernel: impl Kernel,
        roots: [u32; 2],
    ) -> Option<usize> {
        self.queue.clear();
        self.queue.extend(roots.map(|bucket| Node { bucket, from: ROOT, slot: 0 }));
        let mut next = 0;
        while let Some(&node) = self.queue.get(next) {
            let bucket = shared.bucket(node.bucket);
            if bucket.header().free_slot::<B>().is_some() {
                return Some(next);
            }
            if self.queue.len() + B::SLOTS <= MOST_BUCKETS {
                for slot in 0..B::SLOTS {
                    let (key, _) = bucket.entry(slot);
                    let candidates = shared.candidates(kernel, &key);
                    let target =
                        if candidates.home == node.bucket { candidates.other } else { candidates.home };
                    // A way that comes twice through a bucket could move what it has moved before.
                    if !self.leads_through(next, target) {
                        prefetch_write(shared.bucket(target));
                        let slot = slot as u8;
                        self.queue.push(Node { bucket: target, from: next as u32, slot });
                        // It has a free slot, and to know it nobody had to look.
                        // SAFETY: a candidate of a key of this table
                        if !unsafe { occupancies.of(target) }.is_crowded::<B>() {
                            return Some(self.queue.len() - 1);
                        }
                    }
                }
            }
            next += 1;
        }
        None
    }

    fn leads_through(&self, mut index: usize, bucket: u32) -> bool {
        loop {
            let node = self.queue[index];
            if node.bucket == bucket {
                return true;
            }
            if node.from == ROOT {
                return false;
            }
            index = node.from as usize;
        }
    }

    /// The move that led to this index of the queue, and the index before it
    pub(super) fn step(&self, index: usize) -> Option<(Move, usize)> {
        let node = self.queue.get(index)?;
        let from = self.queue.get(node.from as usize)?;
        let step = Move { from: from.bucket, from_slot: usize::from(node.slot), to: node.bucket };
        Some((step, node.from as usize))
    }
}
