//! Where a device goes on in a packed ring when the former one was killed and nobody else knows. QEMU says where that one began (7.2,
//! `virtio_queue_packed_restore_last_avail_idx`).
//!
//! The flags of all descriptors together say it, as long as each buffer has one descriptor, which Linux's driver sees to by tables of
//! descriptors. Seen from where the device is, once round the ring, there are those that are available, and then those that were used in the
//! turn before and are not available again. Descriptors in the middle of a chain are not marked as used, so chains don't look so; then nothing
//! is found.

use crate::ring::WRITE;
use crate::ring::packed::{PackedRing, Position, Tail};

/// Where flags can change from one descriptor to the next in a ring without chains, and some more.
const MOST_CHANGES: usize = 8;

/// What the driver is told of the first buffer of a burst that was not given back completely: no more than a header was written to it, so
/// that it drops the packet.
const HEADER_ONLY: u32 = 12;

/// Where a device was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    position: Position,
    /// Descriptors behind the first that were marked as used, before the first was: so the driver has not seen them.
    pending: u16,
}

/// Finds where the former device was, and gives back what it was just about to. `None`: that can't be told.
pub(crate) fn recover(ring: &PackedRing) -> Option<Position> {
    let size = ring.size();
    let flags = |slot: u16| ring.tail(Position { slot, wrap: true }).flags;
    let Found { position, pending } = find(size, flags)?;
    if pending == 0 {
        return Some(position);
    }
    PackedRing::acquire();
    let Tail { id, flags, .. } = ring.tail(position);
    let written = flags & WRITE;
    let length = if written == 0 { 0 } else { HEADER_ONLY };
    ring.release_tail(position, Tail { length, id, flags: position.used_flags() | written });
    Some(position.advanced(pending + 1, size))
}

/// The only place that the flags fit, if there is one.
fn find(size: u16, flags: impl Fn(u16) -> u16) -> Option<Found> {
    let kind = |slot: u16| [true, false].map(|wrap| Position { slot: 0, wrap }.is_available(flags(slot)));
    let used = |slot: u16| Position { slot: 0, wrap: true }.is_used(flags(slot));
    let changes = (1..size).filter(|&slot| (kind(slot), used(slot)) != (kind(slot - 1), used(slot - 1)));
    let changes: Vec<u16> = changes.take(MOST_CHANGES + 1).collect();
    if changes.len() > MOST_CHANGES {
        return None;
    }
    let slots = std::iter::once(0).chain(changes);
    let places = slots.flat_map(|slot| [true, false].map(|wrap| Position { slot, wrap }));
    let mut found = places.filter_map(|place| fit(size, place, &flags));
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// Whether the flags are such as they are for a device at this place.
fn fit(size: u16, position: Position, flags: &impl Fn(u16) -> u16) -> Option<Found> {
    let at = |count: u16| {
        let place = position.advanced(count, size);
        (place, flags(place.slot))
    };
    let count = |from: u16, is: fn(Position, u16) -> bool| {
        (from..size)
            .take_while(|&count| {
                let (place, flags) = at(count);
                is(place, flags)
            })
            .count() as u16
    };
    let is_rest = |place: Position, flags: u16| Position { wrap: !place.wrap, ..place }.is_used(flags);
    let is_available = |place: Position, flags: u16| place.is_available(flags);
    let is_pending = |place: Position, flags: u16| place.is_used(flags);
    let (first, first_flags) = at(0);
    let pending = if first.is_available(first_flags) { count(1, is_pending) } else { 0 };
    let next = if pending > 0 { pending + 1 } else { 0 };
    let available = next + count(next, is_available);
    let all = available + count(available, is_rest);
    (all == size).then_some(Found { position, pending })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// A ring without chains, and what its sides know.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct World {
        flags: Vec<u16>,
        available: Position,
        device: Position,
        reaped: Position,
        /// How many are available, and how many used ones the driver has not taken back.
        waiting: u16,
        unseen: u16,
    }

    impl World {
        fn size(&self) -> u16 {
            self.flags.len() as u16
        }

        /// All that can happen next: the driver makes one available or takes one back, the device uses some.
        fn next(&self) -> Vec<Self> {
            let size = self.size();
            let mut all = Vec::new();
            if self.waiting + self.unseen < size {
                let mut next = self.clone();
                next.flags[usize::from(next.available.slot)] = next.available.available_flags();
                next.available = next.available.advanced(1, size);
                next.waiting += 1;
                all.push(next);
            }
            if self.unseen > 0 {
                let mut next = self.clone();
                next.reaped = next.reaped.advanced(1, size);
                next.unseen -= 1;
                all.push(next);
            }
            if self.waiting > 0 {
                let mut next = self.clone();
                next.flags[usize::from(next.device.slot)] = next.device.used_flags();
                next.device = next.device.advanced(1, size);
                next.waiting -= 1;
                next.unseen += 1;
                all.push(next);
            }
            all
        }
    }

    /// Every state that rings of all small sizes can come to, and in each of them every burst that was not given back completely.
    #[test]
    fn the_place_is_found_in_every_ring_without_chains() {
        for size in 1..=6_u16 {
            let (start, flags) = (Position::START, vec![0; usize::from(size)]);
            let first =
                World { flags, available: start, device: start, reaped: start, waiting: 0, unseen: 0 };
            let (mut seen, mut open) = (HashSet::from([first.clone()]), vec![first]);
            while let Some(world) = open.pop() {
                for pending in 0..world.waiting.max(1) {
                    let mut flags = world.flags.clone();
                    for count in 1..=pending {
                        let place = world.device.advanced(count, size);
                        flags[usize::from(place.slot)] = place.used_flags();
                    }
                    let found = find(size, |slot| flags[usize::from(slot)]);
                    let expected = Found { position: world.device, pending };
                    assert_eq!(found, Some(expected), "{world:?} {pending}");
                }
                let next = world.next().into_iter().filter(|next| seen.insert(next.clone()));
                open.extend(next.collect::<Vec<_>>());
            }
            assert!(seen.len() > 4, "{size}: {}", seen.len());
        }
    }

    #[test]
    fn many_chains_are_not_taken_for_anything() {
        // Chains of two, used: of each the second descriptor looks available.
        let flags = |slot: u16| {
            let place = Position { slot, wrap: true };
            if slot.is_multiple_of(2) { place.used_flags() } else { place.available_flags() }
        };
        assert_eq!(find(32, flags), None);
    }
}
