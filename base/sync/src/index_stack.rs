//! A lock-free stack of small numbers: last in, first out.
//!
//! Treiber's stack ("Systems Programming: Coping with Parallelism", IBM RJ 5118, 1986) over an array of links
//! instead of allocated nodes. Against ABA the head carries a tag that each push advances: a thread that read the
//! head before somebody popped and pushed the same number again finds another tag and starts over.

use crate::padded::CachePadded;
use crate::primitive::{AtomicU32, AtomicU64, Ordering};
use std::fmt;

/// The link of the last number in the stack, and the head of an empty one.
const NONE: u32 = u32::MAX;

/// Tries of [`IndexStack::len_estimate`] to count while nobody pushes or pops.
const COUNT_TRIES: u32 = 3;

/// A number that the stack was not made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("index {index} is not one of the stack's 0..{bound}")]
pub struct IndexOutOfRange {
    /// The number.
    pub index: u32,
    /// What it must be below.
    pub bound: u32,
}

/// A stack of the numbers `0..bound`, each in it once or not at all.
///
/// Whatever a thread wrote before it pushed a number, the thread that pops that number can read; so memory that
/// belongs to a number changes hands with it. That holds for each number, however many were pushed or popped in
/// between: those are read-modify-writes of the head, which carry a release on (C++20 \[intro.races\], release
/// sequences).
///
/// Pushing a number that is already in is a mistake of the caller's that is not detected: numbers are then popped
/// twice or lost. Nothing in here breaks; a caller that ties memory to numbers must rule it out.
///
/// The tag has 32 bits: a thread would have to sleep inside `pop` through a multiple of 2³² pushes (minutes at
/// full speed), all but exactly, to be fooled.
pub struct IndexStack {
    /// Tag in the high half, number on top in the low.
    head: CachePadded<AtomicU64>,
    /// What is below each number.
    links: Box<[AtomicU32]>,
}

#[inline(always)]
const fn pack(tag: u32, index: u32) -> u64 {
    (tag as u64) << 32 | index as u64
}

#[inline(always)]
const fn tag(head: u64) -> u32 {
    (head >> 32) as u32
}

#[inline(always)]
const fn top(head: u64) -> u32 {
    head as u32
}

impl IndexStack {
    /// An empty stack for the numbers `0..bound`.
    pub fn new(bound: u32) -> Self {
        Self {
            head: CachePadded::new(AtomicU64::new(pack(0, NONE))),
            links: (0..bound).map(|_| AtomicU32::new(NONE)).collect(),
        }
    }

    /// Puts `index` on top.
    ///
    /// # Errors
    /// [`IndexOutOfRange`], if `index` is not below the stack's bound; the stack is as before.
    #[inline]
    pub fn push(&self, index: u32) -> Result<(), IndexOutOfRange> {
        let Some(link) = self.links.get(index as usize) else {
            return Err(IndexOutOfRange { index, bound: self.bound() });
        };
        // Relaxed: what it says is only written to the link, never followed here.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // Relaxed: R1 publishes it.
            link.store(top(head), Ordering::Relaxed);
            let new = pack(tag(head).wrapping_add(1), index);
            // R1: release, pairs with A1. Without it the popper could read an old link, and what it finds in the
            // memory that belongs to the number could be from before this push.
            match self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(newer) => head = newer,
            }
        }
    }

    /// Puts all of `indices` on top with one exchange, the last of them uppermost.
    ///
    /// # Errors
    /// [`IndexOutOfRange`], if one of them is not below the stack's bound; the stack is as before.
    pub fn push_many(&self, indices: &[u32]) -> Result<(), IndexOutOfRange> {
        let (Some(&first), Some(&last)) = (indices.first(), indices.last()) else { return Ok(()) };
        if let Some(&index) = indices.iter().find(|&&index| index >= self.bound()) {
            return Err(IndexOutOfRange { index, bound: self.bound() });
        }
        // Relaxed, as in `push`: R1 publishes them all.
        for pair in indices.windows(2) {
            self.links[pair[1] as usize].store(pair[0], Ordering::Relaxed);
        }
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            self.links[first as usize].store(top(head), Ordering::Relaxed);
            let new = pack(tag(head).wrapping_add(1), last);
            // R1, as in `push`.
            match self.head.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(newer) => head = newer,
            }
        }
    }

    /// Takes up to `target.len()` numbers from the top with one exchange; returns how many. They are at the front of
    /// `target`, the uppermost last.
    pub fn pop_many(&self, target: &mut [u32]) -> usize {
        // A1, as in `pop`.
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let (mut count, mut next) = (0, top(head));
            while count < target.len()
                && let Some(link) = self.links.get(next as usize)
            {
                target[count] = next;
                count += 1;
                // Relaxed, as in `pop`. While nobody pushes, popped numbers keep their links; after a push the
                // exchange fails. A stale link may lead anywhere below the bound, but not further than `target`.
                next = link.load(Ordering::Relaxed);
            }
            if count == 0 {
                return 0;
            }
            // Relaxed if it succeeds, A1 if it fails, as in `pop`. The numbers below the uppermost were pushed before
            // it, and each push is in the release sequence that A1 read from.
            match self.head.compare_exchange_weak(
                head,
                pack(tag(head), next),
                Ordering::Relaxed,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    target[..count].reverse();
                    return count;
                }
                Err(newer) => head = newer,
            }
        }
    }

    /// Takes the number on top, if there is one.
    #[inline]
    pub fn pop(&self) -> Option<u32> {
        // A1: acquire, pairs with R1 of the push of the number on top, even if others were on top of it since:
        // their pushes and pops are read-modify-writes, which go on with its release sequence.
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            // `None` for an empty stack: NONE is not below any bound.
            let link = self.links.get(top(head) as usize)?;
            // Relaxed: A1 made the link visible that the push wrote. If the number was popped and pushed again
            // since, this may be any later link, but then the tag has moved on and the exchange fails.
            let below = link.load(Ordering::Relaxed);
            // Relaxed: the very head that A1 (here or in the failed exchange) acquired is still in place, since
            // no head comes twice; and a pop has nothing of its own to publish. A failure is A1 again.
            match self.head.compare_exchange_weak(
                head,
                pack(tag(head), below),
                Ordering::Relaxed,
                Ordering::Acquire,
            ) {
                Ok(_) => return Some(top(head)),
                Err(newer) => head = newer,
            }
        }
    }

    /// Numbers are below this.
    pub fn bound(&self) -> u32 {
        self.links.len() as u32
    }

    /// How many numbers are in. Exact if nobody pushes or pops meanwhile, otherwise an estimate of at most the
    /// bound. It walks the stack, so that pushes and pops need not count; not for the data path.
    pub fn len_estimate(&self) -> u32 {
        let mut count = 0;
        for _ in 0..COUNT_TRIES {
            // A1, as in `pop`.
            let head = self.head.load(Ordering::Acquire);
            count = 0;
            let mut next = top(head);
            while count < self.bound()
                && let Some(link) = self.links.get(next as usize)
            {
                count += 1;
                next = link.load(Ordering::Relaxed);
            }
            if self.head.load(Ordering::Relaxed) == head {
                break;
            }
        }
        count
    }
}

impl fmt::Debug for IndexStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexStack").field("bound", &self.bound()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn last_in_first_out() {
        let stack = IndexStack::new(3);
        assert_eq!((stack.pop(), stack.len_estimate(), stack.bound()), (None, 0, 3));
        for index in [2, 0, 1] {
            stack.push(index).unwrap();
        }
        assert_eq!(stack.len_estimate(), 3);
        assert_eq!([stack.pop(), stack.pop(), stack.pop(), stack.pop()], [Some(1), Some(0), Some(2), None]);
    }

    #[test]
    fn many_at_a_time_keep_the_order() {
        let stack = IndexStack::new(5);
        stack.push_many(&[4, 0, 2]).unwrap();
        stack.push(1).unwrap();
        let mut target = [9; 3];
        assert_eq!((stack.pop_many(&mut target), target), (3, [0, 2, 1]));
        assert_eq!((stack.pop_many(&mut target), target[0]), (1, 4));
        assert_eq!(stack.pop_many(&mut target), 0);
        stack.push_many(&[]).unwrap();
        assert_eq!(stack.push_many(&[1, 5]), Err(IndexOutOfRange { index: 5, bound: 5 }));
        assert_eq!((stack.pop(), stack.pop_many(&mut [])), (None, 0));
    }

    #[test]
    fn a_foreign_number_is_refused() {
        let stack = IndexStack::new(3);
        for index in [3, u32::MAX] {
            assert_eq!(stack.push(index), Err(IndexOutOfRange { index, bound: 3 }));
        }
        assert_eq!(
            IndexStack::new(0).push(0).unwrap_err().to_string(),
            "index 0 is not one of the stack's 0..0"
        );
        assert_eq!(stack.pop(), None);
    }

    #[test]
    fn the_tag_wraps() {
        let stack = IndexStack::new(2);
        stack.head.store(pack(u32::MAX, NONE), Ordering::Relaxed);
        stack.push(1).unwrap();
        stack.push(0).unwrap();
        assert_eq!([stack.pop(), stack.pop(), stack.pop()], [Some(0), Some(1), None]);
    }
}
