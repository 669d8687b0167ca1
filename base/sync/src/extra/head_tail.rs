//! A side with any number of threads, of which one at a time has positions reserved.

use crate::backoff::Backoff;
use crate::padded::CachePadded;
use crate::primitive::{AtomicU64, Ordering};
use crate::side::{Concurrent, Exclusive, Reserved, Side, distance, sealed};

/// Head and tail synchronised, as in DPDK's HTS mode: nobody reserves before the one before has published. There the two
/// positions share a word so that both can be compared at once; here one position and a bit say as much.
///
/// A thread that has to wait does so before it has anything reserved, so only one that is in the middle of its copy can
/// hold up others: among queued threads, each that has lost its CPU holds up all behind it.
pub struct HeadTail {
    /// Twice the tail, plus [`TAKEN`] while some thread is between reserving and publishing.
    state: CachePadded<AtomicU64>,
}

const TAKEN: u64 = 1;

impl Side for HeadTail {
    fn new(_: u64, _: usize) -> Self {
        Self { state: CachePadded::new(AtomicU64::new(0)) }
    }

    #[inline(always)]
    fn tail_word(&self) -> &AtomicU64 {
        &self.state
    }

    #[inline(always)]
    fn tail_of(word: u64) -> u64 {
        word / 2
    }

    #[inline(always)]
    unsafe fn reserve(&self, look: impl Fn() -> u64, wanted: usize, minimum: usize) -> Option<Reserved> {
        let mut backoff = Backoff::default();
        // A2: acquire, pairs with R1 of the thread before. It had seen the other side's tail far enough for its own
        // slots; without this edge the look at that tail below could give an older one, behind the position, and
        // there would seem to be no space where there is. And the store in R1 ends the release sequence of the one
        // before, so that the other side would acquire only the last thread's slots.
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            if state & TAKEN == TAKEN {
                backoff.wait_for_change(&*self.state, state);
                state = self.state.load(Ordering::Acquire);
                continue;
            }
            let position = state / 2;
            let space = distance(position, look());
            let count = wanted.min(space);
            if count < minimum {
                return None;
            }
            // Acquire as in A2 if it fails, since that loads a newer state, and if it succeeds, since the state may be
            // the same again after somebody else has reserved, written to the slots, and put them back.
            match self.state.compare_exchange_weak(state, state | TAKEN, Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => return Some(Reserved { position, count, space }),
                Err(newer) => state = newer,
            }
        }
    }

    #[inline(always)]
    unsafe fn publish(&self, reserved: Reserved, count: usize) {
        // R1: release, pairs with A1 and with A2 of the next thread on this side.
        self.state.store(2 * (reserved.position + count as u64), Ordering::Release);
    }
}

impl Exclusive for HeadTail {
    #[inline(always)]
    unsafe fn cancel(&self, reserved: Reserved) {
        // SAFETY: none of them is the first none of them.
        unsafe { self.publish(reserved, 0) };
    }
}

impl Concurrent for HeadTail {}

impl sealed::Sealed for HeadTail {}
