//! A first-in, first-out queue of full magazines that gives an empty one back for each.
//!
//! Vyukov's bounded queue ("Bounded MPMC queue", 1024cores.net, 2010) with one change: a slot is never without a
//! magazine. Who puts a full one in takes the empty one out that lies there, and the other way round; so a lane
//! exchanges two numbers with one slot, and neither side touches the line that the other one claims slots on.
//!
//! Nobody waits: a lane that finds a slot half exchanged is told that there is nothing to be had, or no space, and
//! goes elsewhere. A lane that never finishes an exchange costs the pool that slot and the magazine that it holds,
//! and stops no other.

use crate::primitive::{AtomicU64, Ordering, spin_loop};
use warmlane_sync::padded::CachePadded;

/// Who claims slots on one side.
struct Side {
    /// Slots claimed since the start.
    position: AtomicU64,
    /// The other side's position as somebody on this side last saw it: looked up again only when it matters, so
    /// that the other side keeps its line. A hint that is behind makes the queue look emptier to those who take
    /// and fuller to those who put.
    seen: AtomicU64,
}

/// See the module.
pub(crate) struct MagazineQueue {
    takers: CachePadded<Side>,
    putters: CachePadded<Side>,
    /// Turn in the high half, number of the magazine in the low. The turn says what the slot waits for: `position`
    /// to be put into, `position + 1` to be taken from.
    slots: Box<[AtomicU64]>,
}

#[inline(always)]
const fn pack(turn: u64, number: u32) -> u64 {
    turn << 32 | number as u64
}

/// How far the slot is ahead of the turn waited for: 0 is the right one, negative is not yet.
#[inline(always)]
const fn lead(state: u64, turn: u64) -> i32 {
    ((state >> 32) as u32).wrapping_sub(turn as u32).cast_signed()
}

impl MagazineQueue {
    /// A queue without full magazines; `empty` fills the slots, at least two and a power of two.
    pub(crate) fn new(empty: impl ExactSizeIterator<Item = u32>) -> Self {
        debug_assert!(empty.len() >= 2 && empty.len().is_power_of_two());
        let slots =
            empty.enumerate().map(|(turn, number)| AtomicU64::new(pack(turn as u64, number))).collect();
        let side = || CachePadded::new(Side { position: AtomicU64::new(0), seen: AtomicU64::new(0) });
        Self { takers: side(), putters: side(), slots }
    }

    #[inline(always)]
    fn slot(&self, position: u64) -> &AtomicU64 {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }

    /// Puts the full magazine `full` at the end, if no more than `limit` others are in; returns an empty one.
    #[inline]
    pub(crate) fn put(&self, full: u32, limit: u32) -> Option<u32> {
        // Relaxed: only claims slots; what is in a slot is ordered by its own state.
        let mut position = self.putters.position.load(Ordering::Relaxed);
        loop {
            // Relaxed, both: nothing is touched on the strength of this.
            if position.saturating_sub(self.putters.seen.load(Ordering::Relaxed)) >= u64::from(limit) {
                let taken = self.takers.position.load(Ordering::Relaxed);
                self.putters.seen.store(taken, Ordering::Relaxed);
                if position.saturating_sub(taken) >= u64::from(limit) {
                    return None;
                }
            }
            let slot = self.slot(position);
            // A1: acquire, pairs with R2: the taker's reads of the magazine that it left here come before what this
            // lane writes to it.
            let state = slot.load(Ordering::Acquire);
            match lead(state, position) {
                0 => match self.putters.position.compare_exchange_weak(
                    position,
                    position + 1,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        // R1: release, pairs with A2: what this lane wrote to the full magazine and to the buffers
                        // named in it comes before what the taker does with them.
                        slot.store(pack(position + 1, full), Ordering::Release);
                        return Some(state as u32);
                    }
                    Err(newer) => position = newer,
                },
                // Full, or its taker is not done.
                ..0 => return None,
                // Somebody was faster.
                _ => {
                    spin_loop();
                    position = self.putters.position.load(Ordering::Relaxed);
                }
            }
        }
    }

    /// Takes the first full magazine, if at least `minimum` are in, and leaves `empty`. Who must look how many are in,
    /// which costs both sides a line, wants `surplus` more, so that the next ones need not.
    #[inline]
    pub(crate) fn take(&self, empty: u32, minimum: u32, surplus: u32) -> Option<u32> {
        let turns = self.slots.len() as u64;
        let mut position = self.takers.position.load(Ordering::Relaxed);
        loop {
            if self.takers.seen.load(Ordering::Relaxed) < position + u64::from(minimum) {
                let put = self.putters.position.load(Ordering::Relaxed);
                if put < position + u64::from(minimum + surplus) {
                    return None;
                }
                self.takers.seen.store(put, Ordering::Relaxed);
            }
            let slot = self.slot(position);
            // A2: acquire, pairs with R1.
            let state = slot.load(Ordering::Acquire);
            match lead(state, position + 1) {
                0 => match self.takers.position.compare_exchange_weak(
                    position,
                    position + 1,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        // R2: release, pairs with A1.
                        slot.store(pack(position + turns, empty), Ordering::Release);
                        return Some(state as u32);
                    }
                    Err(newer) => position = newer,
                },
                // Empty, or its putter is not done.
                ..0 => return None,
                // Somebody was faster.
                _ => {
                    spin_loop();
                    position = self.takers.position.load(Ordering::Relaxed);
                }
            }
        }
    }

    /// How many full magazines are in, a moment ago.
    pub(crate) fn len(&self) -> u32 {
        let taken = self.takers.position.load(Ordering::Relaxed);
        let put = self.putters.position.load(Ordering::Relaxed);
        (put.saturating_sub(taken) as usize).min(self.slots.len()) as u32
    }
}

#[cfg(all(test, loom))]
impl MagazineQueue {
    /// The first half of [`take`](Self::take): whether a full magazine was claimed that nobody will ever get.
    pub(crate) fn claim_and_die(&self) -> bool {
        let position = self.takers.position.load(Ordering::Relaxed);
        let state = self.slot(position).load(Ordering::Acquire);
        lead(state, position + 1) == 0
            && self
                .takers
                .position
                .compare_exchange(position, position + 1, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn full_ones_come_out_in_order_and_empty_ones_in_exchange() {
        let queue = MagazineQueue::new(0..2);
        assert_eq!((queue.take(9, 1, 0), queue.len()), (None, 0));
        assert_eq!(queue.put(10, 2), Some(0));
        assert_eq!((queue.take(9, 2, 0), queue.len()), (None, 1), "fewer than asked for are in");
        assert_eq!(queue.put(11, 2), Some(1));
        assert_eq!((queue.put(12, 2), queue.put(12, 5)), (None, None), "at the limit, and full");
        assert_eq!((queue.take(20, 2, 0), queue.take(21, 1, 0)), (Some(10), Some(11)));
        assert_eq!((queue.put(12, 1), queue.put(13, 2)), (Some(20), Some(21)));
        assert_eq!(queue.len(), 2);
    }

    #[test]
    fn who_looks_wants_more_and_who_need_not_does_not() {
        let queue = MagazineQueue::new(0..4);
        assert!(queue.put(10, 4).is_some() && queue.put(11, 4).is_some());
        assert_eq!(queue.take(9, 1, 2), None, "two are in, and three are wanted");
        assert!(queue.put(12, 4).is_some());
        assert_eq!((queue.take(20, 2, 1), queue.take(21, 2, 1)), (Some(10), Some(11)));
        assert_eq!(queue.take(22, 2, 1), None, "one is in");
    }

    #[test]
    fn turns_wrap() {
        let queue = MagazineQueue::new(0..2);
        let start = u64::from(u32::MAX) - 3;
        for (number, slot) in queue.slots.iter().enumerate() {
            slot.store(pack(start + number as u64, number as u32), Ordering::Relaxed);
        }
        for side in [&queue.takers, &queue.putters] {
            side.position.store(start, Ordering::Relaxed);
            side.seen.store(start, Ordering::Relaxed);
        }
        for (full, empty) in (100..120).zip(50..) {
            assert!(queue.put(full, 2).is_some());
            assert_eq!(queue.take(empty, 1, 0), Some(full));
        }
    }
}
