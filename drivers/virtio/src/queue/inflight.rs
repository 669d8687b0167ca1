//! What a device notes of a packed ring in memory that outlives it, so that another one goes on exactly there (the specification of
//! vhost-user, "Inflight I/O tracking").
//!
//! In a split ring the index of used buffers says by itself where to go on, and one store changes it. A packed ring has no such index, and
//! several descriptors change for a burst. So what is given back is noted first, then that it is noted, then it is written to the ring: a
//! device that is killed in between leaves either nothing or all that the next one needs to write it again.
//!
//! The memory is the front end's by then, which can write anything to it. That changes its own ring, and nothing else.

use super::side::Broken;
use crate::ring::packed::{PackedRing, Position, Tail};
use crate::ring::word64;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use warmlane_driver_common::peer::PeerMapping;

/// Bytes in front of the descriptors' states, and of each state, in a packed ring (`QueueRegionPacked`, `DescStatePacked`).
const HEADER_BYTES: usize = 32;
const STATE_BYTES: usize = 32;

/// The same in a split ring (`QueueRegionSplit`, `DescStateSplit`).
const SPLIT_HEADER_BYTES: usize = 16;
const SPLIT_STATE_BYTES: usize = 16;

/// A ring's part begins at a multiple of this, as with DPDK and libvhost-user.
const ALIGNMENT: usize = 64;

/// Words of the header: the version with the number of descriptors, and where to go on.
const VERSION_OFFSET: usize = 8;
const POSITIONS_OFFSET: usize = 16;
const VERSION: u64 = 1;

/// Words of a state: how many descriptors a buffer has, and what is written when it is used.
const COUNT_OFFSET: usize = 0;
const TAIL_OFFSET: usize = 16;

const BAD_NOTE: Broken = Broken("impossible notes of buffers under way");
const FOREIGN: Broken = Broken("another implementation's buffers are under way, in whatever order");

/// Bytes for a ring of so many descriptors.
pub(crate) const fn ring_bytes(size: u16, is_packed: bool) -> usize {
    let (header, state) =
        if is_packed { (HEADER_BYTES, STATE_BYTES) } else { (SPLIT_HEADER_BYTES, SPLIT_STATE_BYTES) };
    (header + state * size as usize).next_multiple_of(ALIGNMENT)
}

/// Checks the part of a split ring, of which nothing is noted: its buffers are used in order, so its own index says all.
///
/// # Errors
/// Another implementation has noted buffers that may be used in any order.
pub(crate) fn check_split(memory: &PeerMapping, offset: u64, size: u16) -> Result<(), Broken> {
    let pointer = memory.pointer(offset, ring_bytes(size, false) as u64).ok_or(BAD_NOTE)?;
    if !pointer.addr().get().is_multiple_of(8) {
        return Err(BAD_NOTE);
    }
    // SAFETY: offsets below `ring_bytes`, which are mapped while the memory is borrowed; 8 divides the address.
    let word = |offset: usize| unsafe { word64(pointer, offset) };
    let state = |slot: usize| word(SPLIT_HEADER_BYTES + slot * SPLIT_STATE_BYTES).load(Ordering::Relaxed);
    if (0..usize::from(size)).any(|slot| state(slot) & 0xff != 0) {
        return Err(FOREIGN);
    }
    word(VERSION_OFFSET).store(VERSION | u64::from(size) << 16, Ordering::Release);
    Ok(())
}

/// The notes of one packed ring.
#[derive(Debug)]
pub(crate) struct Notes {
    start: NonNull<u8>,
    size: u16,
    _memory: Arc<PeerMapping>,
}

// SAFETY: an address in a mapping that no thread owns and that is held beside it; all accesses are atomic.
unsafe impl Send for Notes {}

impl Notes {
    /// The notes at `offset`, if there is room for them at an even address.
    pub(crate) fn new(memory: Arc<PeerMapping>, offset: u64, size: u16) -> Option<Self> {
        let pointer = memory.pointer(offset, ring_bytes(size, true) as u64)?;
        let is_aligned = pointer.addr().get().is_multiple_of(8);
        is_aligned.then_some(Self { start: pointer, size, _memory: memory })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset + 8 <= ring_bytes(self.size, true));
        // SAFETY: so many bytes are mapped (`new`) as long as the memory is held; 8 divides the address.
        unsafe { word64(self.start, offset) }
    }

    fn state(&self, slot: u16, offset: usize) -> &AtomicU64 {
        self.word(HEADER_BYTES + usize::from(slot) * STATE_BYTES + offset)
    }

    /// A buffer of so many descriptors is to be given back here.
    #[inline]
    pub(crate) fn note(&self, position: Position, slots: u16, tail: Tail) {
        let Tail { length, id, flags } = tail;
        let tail = u64::from(id) | u64::from(flags) << 16 | u64::from(length) << 32;
        self.state(position.slot, TAIL_OFFSET).store(tail, Ordering::Relaxed);
        self.state(position.slot, COUNT_OFFSET).store(u64::from(slots) << 48, Ordering::Relaxed);
    }

    /// Gives back all that was noted from `from` to `to`.
    #[inline]
    pub(crate) fn give_back(&self, ring: &PackedRing, from: Position, to: Position) {
        // Release, here and below: a device that is killed has done what stands above, if what stands below is done.
        self.set_positions(from, to);
        // What this device has noted can be given back; if the front end has changed it, that is its own affair.
        let _ = self.replay(ring, from, to);
        self.set_positions(to, to);
    }

    fn set_positions(&self, old: Position, used: Position) {
        let word = u64::from(used.slot)
            | u64::from(old.slot) << 16
            | u64::from(used.wrap) << 32
            | u64::from(old.wrap) << 40;
        self.word(POSITIONS_OFFSET).store(word, Ordering::Release);
    }

    /// Writes notes to the ring, the first of them last: with it the driver sees the others.
    fn replay(&self, ring: &PackedRing, from: Position, to: Position) -> Result<(), Broken> {
        let (mut position, mut first) = (from, None);
        for _ in 0..self.size {
            let noted = self.state(position.slot, TAIL_OFFSET).load(Ordering::Relaxed);
            let slots = (self.state(position.slot, COUNT_OFFSET).load(Ordering::Relaxed) >> 48) as u16;
            if !(1..=self.size).contains(&slots) {
                return Err(BAD_NOTE);
            }
            let tail = Tail { length: (noted >> 32) as u32, id: noted as u16, flags: (noted >> 16) as u16 };
            if first.is_none() {
                first = Some(tail);
            } else {
                ring.set_tail(position, tail);
            }
            position = position.advanced(slots, self.size);
            if position == to {
                break;
            }
        }
        if let Some(tail) = first.filter(|_| position == to) {
            ring.release_tail(from, tail);
            return Ok(());
        }
        Err(BAD_NOTE)
    }

    /// Where to go on: at `base` if there are no notes yet, else where the device was that wrote them. What it had not written to the ring
    /// completely is written now.
    pub(crate) fn resume(&self, ring: &PackedRing, base: Position) -> Result<Position, Broken> {
        let version = self.word(VERSION_OFFSET).load(Ordering::Acquire);
        if version as u16 == 0 {
            self.set_positions(base, base);
            let word = VERSION | u64::from(self.size) << 16;
            self.word(VERSION_OFFSET).store(word, Ordering::Release);
            return Ok(base);
        }
        let is_known = version & 0xffff == VERSION && (version >> 16) as u16 == self.size;
        // Those of another implementation may be used in any order, and some of them wait (`inflight` of a state).
        let is_under_way =
            (0..self.size).any(|slot| self.state(slot, COUNT_OFFSET).load(Ordering::Relaxed) & 0xff != 0);
        if !is_known || is_under_way {
            return Err(FOREIGN);
        }
        let word = self.word(POSITIONS_OFFSET).load(Ordering::Acquire);
        let used = Position { slot: word as u16, wrap: word >> 32 & 1 != 0 };
        let old = Position { slot: (word >> 16) as u16, wrap: word >> 40 & 1 != 0 };
        let (Some(used), Some(old)) = (ring.at(used), ring.at(old)) else { return Err(BAD_NOTE) };
        // If the first was written, all were, and the driver may have used their places again.
        if old != used && old.is_available(ring.tail(old).flags) {
            PackedRing::acquire();
            self.replay(ring, old, used)?;
        }
        self.set_positions(used, used);
        Ok(used)
    }

    /// They are right no longer: the ring goes on at `base`.
    pub(crate) fn restart(&self, base: Position) {
        self.set_positions(base, base);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::packed::Parts;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use warmlane_driver_common::peer::{Event, Extent};

    const SIZE: u16 = 8;

    fn mapping() -> Arc<PeerMapping> {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 4096).unwrap();
        let extent = Extent { offset: 0, length: 4096 };
        Arc::new(PeerMapping::new(&file, extent, false, &Event::new().unwrap()).unwrap())
    }

    struct World {
        ring: PackedRing,
        notes: Notes,
        _memory: Arc<PeerMapping>,
    }

    /// A ring of which all is available from `start` on, once round.
    fn world(start: Position) -> World {
        let memory = mapping();
        let part = |offset| memory.pointer(offset, 256).unwrap();
        let parts = Parts { descriptors: part(0), driver: part(1024), device: part(2048) };
        // SAFETY: 16 bytes for each descriptor and four for either suppression are mapped, at multiples of 16, as long as the memory is held.
        let ring = unsafe { PackedRing::new(parts, SIZE) };
        for count in 0..SIZE {
            let place = start.advanced(count, SIZE);
            ring.set_tail(place, Tail { length: 100, id: count, flags: place.available_flags() });
        }
        World { ring, notes: Notes::new(mapping(), 0, SIZE).unwrap(), _memory: memory }
    }

    /// Buffers of one, two and one descriptors.
    const BATCH: [(u16, u16); 3] = [(0, 1), (1, 2), (3, 1)];

    fn tail(place: Position, id: u16) -> Tail {
        Tail { length: 60, id, flags: place.used_flags() }
    }

    /// Notes the batch, and returns where it ends.
    fn note(world: &World, start: Position) -> Position {
        for (ahead, slots) in BATCH {
            let place = start.advanced(ahead, SIZE);
            world.notes.note(place, slots, tail(place, ahead));
        }
        start.advanced(4, SIZE)
    }

    /// However far a device has come when it is killed: the next one finds either nothing given back, or all.
    #[test]
    fn what_was_noted_is_given_back_whole_or_not_at_all() {
        for start in (0..2 * SIZE).map(|count| Position::START.advanced(count % SIZE, SIZE)) {
            for steps in 0..=6 {
                let world = world(start);
                assert_eq!(world.notes.resume(&world.ring, start), Ok(start));
                let end = note(&world, start);
                if steps > 0 {
                    world.notes.set_positions(start, end);
                }
                // What `replay` writes, one after the other, the first last.
                for (ahead, _) in BATCH.iter().cycle().skip(1).take(steps.clamp(1, 4) - 1) {
                    let place = start.advanced(*ahead, SIZE);
                    world.ring.set_tail(place, tail(place, *ahead));
                }
                if steps > 4 {
                    // The driver has used the first place again.
                    let next = start.advanced(4, SIZE).advanced(4, SIZE);
                    world.ring.set_tail(next, Tail { length: 7, id: 7, flags: next.available_flags() });
                }
                if steps > 5 {
                    world.notes.set_positions(end, end);
                }
                let expected = if steps > 0 { end } else { start };
                assert_eq!(world.notes.resume(&world.ring, Position::START), Ok(expected), "{steps}");
                let tails = BATCH.map(|(ahead, _)| world.ring.tail(start.advanced(ahead, SIZE)));
                let used = BATCH.map(|(ahead, _)| {
                    let place = start.advanced(ahead, SIZE);
                    place.is_used(world.ring.tail(place).flags)
                });
                match steps {
                    0 => assert_eq!(used, [false; 3]),
                    1..=4 => assert_eq!(used, [true; 3], "{steps} {tails:?}"),
                    _ => assert_eq!((tails[0].id, used[1], used[2]), (7, true, true)),
                }
                // And again: nothing more is written.
                assert_eq!(world.notes.resume(&world.ring, Position::START), Ok(expected));
            }
        }
    }

    #[test]
    fn impossible_notes_are_refused() {
        let world = world(Position::START);
        let end = Position::START.advanced(4, SIZE);
        world.notes.resume(&world.ring, Position::START).unwrap();
        // A buffer of no descriptors, one that goes on behind the end, a place that there is not, buffers that wait.
        for (slots, to) in [(0, end), (3, end), (u16::MAX, end), (1, Position { slot: SIZE, wrap: true })] {
            world.notes.note(Position::START, slots, tail(Position::START, 0));
            world.notes.set_positions(Position::START, to);
            assert_eq!(world.notes.resume(&world.ring, Position::START), Err(BAD_NOTE), "{slots}");
        }
        world.notes.set_positions(end, end);
        world.notes.state(3, COUNT_OFFSET).store(1, Ordering::Relaxed);
        assert_eq!(world.notes.resume(&world.ring, Position::START), Err(FOREIGN));
        assert_eq!(Notes::new(mapping(), 4090, SIZE).map(|_| ()), None);
    }
}
