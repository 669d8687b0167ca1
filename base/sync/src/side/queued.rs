//! A side with any number of threads that publish in the order in which they reserved.

use super::{Concurrent, Reserved, Side};
use crate::backoff::Backoff;
use crate::padded::CachePadded;
use crate::primitive::{AtomicU32, AtomicU64, Ordering};

/// A thread reserves by moving the *head*, works, waits until those who reserved earlier have published, and publishes by
/// moving the *tail*: the side of DPDK's rte_ring in its multi-producer, multi-consumer mode. Two things differ. The
/// side keeps the other's tail as somebody last saw it beside its own head, and looks again only when that is not
/// enough. And head and tail lie on lines of their own, so that the other side, polling for the next tail, does not
/// take the head away.
///
/// Among more threads than cores such a queue turns into a convoy: who publishes at last and goes on reserves behind all
/// the others, which have lost their CPUs while they wait, so that each turn takes as many switches as there are threads.
/// So once a thread has waited until it gave its CPU away, threads reserve only when nobody else is in the queue, for the
/// next 1,024 times: then only one that loses its CPU in the middle of its copy holds up others, as in
/// [`HeadTail`](crate::extra::HeadTail).
pub struct Queued {
    reserve: CachePadded<Reserve>,
    /// Slots up to here are given to the other side.
    tail: CachePadded<AtomicU64>,
}

/// What one side alone writes and reads.
struct Reserve {
    /// Slots up to here are reserved.
    head: AtomicU64,
    /// How far the head may go, as somebody last saw it.
    limit: AtomicU64,
    /// How many times more a thread waits for an empty queue before it reserves.
    crowded: AtomicU32,
}

/// Reservations until a queue that was crowded is tried again: so many that the switches of one more convoy don't count,
/// and few enough that a crowd that has gone is forgotten within a millisecond.
const CROWDED: u32 = 1024;

/// Waits for an empty queue before a thread reserves all the same: it may be the thread's own reservation that stands
/// there (of a clone of a [`Stage`](crate::extra::staged::Stage), say).
const WAITS: u32 = if cfg!(loom) { 2 } else { 256 };

impl Side for Queued {
    fn new(limit: u64, _: usize) -> Self {
        Self {
            reserve: CachePadded::new(Reserve {
                head: AtomicU64::new(0),
                limit: AtomicU64::new(limit),
                crowded: AtomicU32::new(0),
            }),
            tail: CachePadded::new(AtomicU64::new(0)),
        }
    }

    #[inline(always)]
    fn tail_word(&self) -> &AtomicU64 {
        &self.tail
    }

    #[inline(always)]
    unsafe fn reserve(&self, look: impl Fn() -> u64, wanted: usize, minimum: usize) -> Option<Reserved> {
        // Relaxed, as all that concerns the crowd: it decides when to reserve, and no more.
        if self.reserve.crowded.load(Ordering::Relaxed) > 0 {
            self.wait_for_an_empty_queue();
        }
        // A3: acquire, pairs with R3 of whoever moved the head here. It had seen the other side's tail far enough
        // for its own slots; without this edge the look at that tail below could give an older one, behind the
        // head, and there would seem to be no space where there is.
        let mut head = self.reserve.head.load(Ordering::Acquire);
        loop {
            // A4: acquire, pairs with R4 of whoever left the hint. It had acquired the tail; without this edge the
            // slots could be touched while the other side still is.
            let limit = self.reserve.limit.load(Ordering::Acquire);
            // An old hint may be behind the head, by any distance, if who left it had lost its CPU in between. A head that
            // is out of date may be behind the hint by more than the capacity, but then the exchange fails.
            let mut space = space_to(head, limit);
            if space < wanted {
                let seen = look();
                space = space_to(head, seen);
                // Only if it is news, or pollers of a ring that is empty would fight over the line.
                if seen != limit {
                    // R4: release, pairs with A4. Two threads may leave theirs in the wrong order; an old one only
                    // costs another look.
                    self.reserve.limit.store(seen, Ordering::Release);
                }
            }
            let count = wanted.min(space);
            if count < minimum {
                return None;
            }
            // R3: release, pairs with A3. A failure loads a newer head, hence acquire as there.
            match self.reserve.head.compare_exchange_weak(
                head,
                head + count as u64,
                Ordering::Release,
                Ordering::Acquire,
            ) {
                Ok(position) => return Some(Reserved { position, count, space }),
                Err(newer) => head = newer,
            }
        }
    }

    #[inline(always)]
    unsafe fn publish(&self, reserved: Reserved, count: usize) {
        let mut backoff = Backoff::default();
        // A2: acquire, pairs with R1 of the thread before on this side. The store below ends the release sequence
        // of that one's, so without this edge the other side would acquire only this thread's slots.
        loop {
            let tail = self.tail.load(Ordering::Acquire);
            if tail == reserved.position {
                break;
            }
            backoff.wait_for_change(&*self.tail, tail);
        }
        // R1: release, pairs with A1 and with A2 of the thread behind on this side.
        self.tail.store(reserved.position + count as u64, Ordering::Release);
        if backoff.has_yielded() {
            self.reserve.crowded.store(CROWDED, Ordering::Relaxed);
        }
    }
}

impl Queued {
    #[cold]
    fn wait_for_an_empty_queue(&self) {
        // Two threads may count one time as one. It is an estimate.
        let crowded = self.reserve.crowded.load(Ordering::Relaxed);
        self.reserve.crowded.store(crowded.saturating_sub(1), Ordering::Relaxed);
        let mut backoff = Backoff::default();
        for _ in 0..WAITS {
            let tail = self.tail.load(Ordering::Relaxed);
            if tail == self.reserve.head.load(Ordering::Relaxed) {
                break;
            }
            backoff.wait_for_change(&*self.tail, tail);
        }
    }
}

impl Concurrent for Queued {}

/// Positions from `head` to `limit`, 0 if the head is ahead. All 64 bits count, unlike in [`distance`](super::distance): a
/// hint may be older than 2³¹ positions. The other side of a ring with this one counts in 64 bits too.
#[inline(always)]
#[expect(clippy::cast_sign_loss, reason = "not below 0")]
fn space_to(head: u64, limit: u64) -> usize {
    (limit.wrapping_sub(head).cast_signed()).max(0) as usize
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_hint_however_old_is_no_space() {
        for behind in [1, 1 << 31, (1 << 31) + 1, 3 << 30, 1 << 32, 1 << 40] {
            assert_eq!(space_to(behind, 0), 0, "{behind}");
        }
        assert_eq!((space_to(5, 5), space_to(5, 12)), (0, 7));
        let side = Queued::new(1, 8);
        side.reserve.head.store(3 << 30, Ordering::Relaxed);
        // SAFETY: the side is not `Single`.
        assert!(unsafe { side.reserve(|| 3 << 30, 1, 1) }.is_none());
    }

    /// A side whose threads have published, one after it had to wait for the other for about so long; `None` if it left no word of it.
    fn waited_for(time: Duration) -> Option<Queued> {
        let side = Queued::new(8, 8);
        let (first, second) = (reserve(&side), reserve(&side));
        std::thread::scope(|scope| {
            // SAFETY: what one call of `reserve` gave, once.
            scope.spawn(|| unsafe { side.publish(second, 1) });
            std::thread::sleep(time);
            assert_eq!((side.tail(), crowded(&side)), (0, 0));
            // SAFETY: as above.
            unsafe { side.publish(first, 1) };
        });
        assert_eq!(side.tail(), 2);
        (crowded(&side) > 0).then_some(side)
    }

    fn reserve(side: &Queued) -> Reserved {
        // SAFETY: the side is not `Single`.
        unsafe { side.reserve(|| 8, 1, 1) }.unwrap()
    }

    fn crowded(side: &Queued) -> u32 {
        side.reserve.crowded.load(Ordering::Relaxed)
    }

    #[test]
    fn who_waited_long_leaves_word_and_nobody_waits_for_ever() {
        // On a busy machine the other thread may not have had a CPU to wait on: then it is given more time.
        let mut times = (0..14).map(|doubled| Duration::from_millis(10) * (1 << doubled));
        let side = times.find_map(waited_for).expect("it has waited");
        assert_eq!(crowded(&side), CROWDED);
        let third = reserve(&side);
        assert_eq!(crowded(&side), CROWDED - 1);
        // The third is never published while this one waits for it.
        let fourth = reserve(&side);
        assert_eq!((third.position, fourth.position, crowded(&side)), (2, 3, CROWDED - 2));
    }
}
