//! A side with any number of threads that never wait for each other to publish.

use crate::backoff::Backoff;
use crate::padded::CachePadded;
use crate::primitive::{AtomicU64, Ordering};
use crate::side::{Concurrent, Reserved, Side, distance, sealed};

/// The tail is synchronised less strictly, as in DPDK's RTS mode: a thread that is done counts itself off and goes; the
/// one whose count finds all that have reserved done moves the tail, for all of them. So one that has lost its CPU in
/// the middle delays what the others have published, but not the others: not until the head is `AHEAD` of the
/// capacity before the tail, where they wait, since otherwise a tail that always lags would never catch up.
///
/// Head and tail are a position and a count of moves each, 32 bits both, in one word.
pub struct RelaxedTail {
    head: CachePadded<AtomicU64>,
    tail: CachePadded<AtomicU64>,
    /// How far the head may be before the tail when somebody reserves.
    ahead: u32,
}

/// The part of the capacity by which the head may be before the tail: an eighth, as DPDK's default is.
const AHEAD: usize = 8;

/// A position, and how often it was moved.
#[derive(Clone, Copy)]
struct Mark {
    position: u32,
    moves: u32,
}

impl Mark {
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        Self { position: word as u32, moves: (word >> 32) as u32 }
    }

    #[inline(always)]
    fn word(self) -> u64 {
        u64::from(self.moves) << 32 | u64::from(self.position)
    }
}

impl Side for RelaxedTail {
    fn new(_: u64, capacity: usize) -> Self {
        Self {
            head: CachePadded::new(AtomicU64::new(0)),
            tail: CachePadded::new(AtomicU64::new(0)),
            ahead: (capacity / AHEAD) as u32,
        }
    }

    #[inline(always)]
    fn tail_word(&self) -> &AtomicU64 {
        &self.tail
    }

    #[inline(always)]
    fn tail_of(word: u64) -> u64 {
        Mark::from_word(word).position.into()
    }

    #[inline(always)]
    unsafe fn reserve(&self, look: impl Fn() -> u64, wanted: usize, minimum: usize) -> Option<Reserved> {
        let mut backoff = Backoff::default();
        // Relaxed, all that concerns the head: whoever reserves next need not know what those before saw. It may look at an
        // older tail of the other side then, even one behind the head, and find less space than there is, or none. The space
        // that it does find it has acquired itself, by A1.
        let mut word = self.head.load(Ordering::Relaxed);
        loop {
            let head = Mark::from_word(word);
            // Relaxed: only to keep the distance.
            let tail_word = self.tail.load(Ordering::Relaxed);
            let tail = Mark::from_word(tail_word);
            if distance(tail.position.into(), head.position.into()) > self.ahead as usize {
                backoff.wait_for_change(&*self.tail, tail_word);
                word = self.head.load(Ordering::Relaxed);
                continue;
            }
            let space = distance(head.position.into(), look());
            let count = wanted.min(space);
            if count < minimum {
                return None;
            }
            let moved = Mark {
                position: head.position.wrapping_add(count as u32),
                moves: head.moves.wrapping_add(1),
            };
            match self.head.compare_exchange_weak(word, moved.word(), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(Reserved { position: head.position.into(), count, space }),
                Err(newer) => word = newer,
            }
        }
    }

    #[inline(always)]
    unsafe fn publish(&self, _: Reserved, _: usize) {
        // A2: acquire, pairs with R1 of those that have counted themselves off before. Without it the head below could
        // be older than one of theirs, and the counts equal although somebody in between is still at work.
        let mut word = self.tail.load(Ordering::Acquire);
        loop {
            let tail = Mark::from_word(word);
            // Relaxed: at least this thread's own, and with A2 those of all that are counted off.
            let head = Mark::from_word(self.head.load(Ordering::Relaxed));
            let moves = tail.moves.wrapping_add(1);
            let position = if moves == head.moves { head.position } else { tail.position };
            // R1: release, pairs with A1 of the other side and A2 of this one. A failure loads a newer tail, hence
            // acquire as in A2.
            match self.tail.compare_exchange_weak(
                word,
                Mark { position, moves }.word(),
                Ordering::Release,
                Ordering::Acquire,
            ) {
                Ok(_) => return,
                Err(newer) => word = newer,
            }
        }
    }
}

impl Concurrent for RelaxedTail {}

impl sealed::Sealed for RelaxedTail {}
