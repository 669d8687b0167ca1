//! Both ends of a ring, with one-way barriers or with full fences at the same places.

use std::sync::atomic::{Ordering, fence};
use warmlane_virtio::ring::packed::{PackedRing, Position, Tail};
use warmlane_virtio::ring::split::SplitRing;
use warmlane_virtio::ring::{Descriptor, WRITE};

/// Bytes of each buffer.
const BUFFER: u64 = 2048;

/// One end of a ring. Buffers are used in the order in which they were made available.
pub(super) trait End: Send + 'static {
    /// Takes used buffers back, and makes up to `batch` available; returns how many of either.
    fn drive(&mut self, batch: u16) -> u16;

    /// Looks for up to `batch` buffers, reads where they are and gives them back; returns how many.
    fn serve(&mut self, batch: u16) -> u16;

    /// Buffers that were not where they should be.
    fn wrong(&self) -> u64;
}

/// What an end has counted.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// Buffers made available, by the driver, or found so, by the device. Wraps.
    available: u16,
    /// Buffers taken back or given back.
    used: u16,
    wrong: u64,
}

impl Counts {
    /// Where the buffer is that is found next, and which it is.
    fn next(self, size: u16) -> (u16, u64) {
        let number = self.available % size;
        (number, u64::from(number) * BUFFER)
    }
}

/// An end of a packed ring; `FULL`: with full fences.
pub(super) struct Packed<const FULL: bool> {
    ring: PackedRing,
    counts: Counts,
    /// Where the next buffer is made available or found so, and where the next used one is.
    available: Position,
    used: Position,
}

impl<const FULL: bool> Packed<FULL> {
    /// A driver, and a device.
    pub(super) fn ends(ring: PackedRing) -> (Self, Self) {
        let end =
            || Self { ring, counts: Counts::default(), available: Position::START, used: Position::START };
        (end(), end())
    }

    /// Behind flags that were read.
    fn acquire() {
        if FULL {
            // In place of A1.
            fence(Ordering::SeqCst);
        } else {
            PackedRing::acquire();
        }
    }

    /// Writes the descriptor with which the other side sees those behind it.
    fn publish(&self, position: Position, tail: Tail) {
        if FULL {
            // In place of R1 and R2.
            fence(Ordering::SeqCst);
            self.ring.set_tail(position, tail);
        } else {
            self.ring.release_tail(position, tail);
        }
    }

    /// Writes so many descriptors from `first` on, the first one last.
    fn write(&self, first: Position, count: u16, flags: impl Fn(Position) -> u16) {
        let tail =
            |position: Position| Tail { length: BUFFER as u32, id: position.slot, flags: flags(position) };
        let mut position = first;
        for _ in 1..count {
            position = position.advanced(1, self.ring.size());
            self.ring.set_tail(position, tail(position));
        }
        self.publish(first, tail(first));
    }
}

impl<const FULL: bool> End for Packed<FULL> {
    fn drive(&mut self, batch: u16) -> u16 {
        let size = self.ring.size();
        let mut back = 0;
        while back < batch
            && self.used.is_used(self.ring.tail(self.used).flags)
            && self.counts.available != self.counts.used
        {
            self.used = self.used.advanced(1, size);
            self.counts.used = self.counts.used.wrapping_add(1);
            back += 1;
        }
        if back > 0 {
            Self::acquire();
        }
        let count = batch.min(size - self.counts.available.wrapping_sub(self.counts.used));
        let mut position = self.available;
        for _ in 0..count {
            let (_, address) = self.counts.next(size);
            self.ring.set_address(position, address);
            position = position.advanced(1, size);
            self.counts.available = self.counts.available.wrapping_add(1);
        }
        if count > 0 {
            self.write(self.available, count, |position| position.available_flags() | WRITE);
            self.available = position;
        }
        back.max(count)
    }

    fn serve(&mut self, batch: u16) -> u16 {
        let size = self.ring.size();
        let (mut end, mut count) = (self.available, 0);
        while count < batch && end.is_available(self.ring.tail(end).flags) {
            end = end.advanced(1, size);
            count += 1;
        }
        if count == 0 {
            return 0;
        }
        Self::acquire();
        while self.available != end {
            let (_, address) = self.counts.next(size);
            self.counts.wrong += u64::from(self.ring.address(self.available) != address);
            self.counts.available = self.counts.available.wrapping_add(1);
            self.available = self.available.advanced(1, size);
        }
        self.write(self.used, count, |position| position.used_flags() | WRITE);
        self.used = end;
        count
    }

    fn wrong(&self) -> u64 {
        self.counts.wrong
    }
}

/// An end of a split ring; `FULL`: with full fences.
pub(super) struct Split<const FULL: bool> {
    ring: SplitRing,
    counts: Counts,
}

impl<const FULL: bool> Split<FULL> {
    /// A driver, and a device.
    pub(super) fn ends(ring: SplitRing) -> (Self, Self) {
        let end = || Self { ring, counts: Counts::default() };
        (end(), end())
    }

    /// Beside the acquire of an index that was read, and the release of one that is written.
    fn order() {
        if FULL {
            fence(Ordering::SeqCst);
        }
    }
}

impl<const FULL: bool> End for Split<FULL> {
    fn drive(&mut self, batch: u16) -> u16 {
        let size = self.ring.size();
        let back = self.ring.used_index().wrapping_sub(self.counts.used).min(batch);
        if back > 0 {
            Self::order();
        }
        for _ in 0..back {
            let (id, _) = self.ring.used_entry(self.counts.used);
            self.counts.wrong += u64::from(id != u32::from(self.counts.used % size));
            self.counts.used = self.counts.used.wrapping_add(1);
        }
        let count = batch.min(size - self.counts.available.wrapping_sub(self.counts.used));
        for _ in 0..count {
            let (number, address) = self.counts.next(size);
            let descriptor = Descriptor { address, length: BUFFER as u32, flags: WRITE, id: 0 };
            self.ring.set_descriptor(number, descriptor);
            self.ring.set_available_entry(self.counts.available, number);
            self.counts.available = self.counts.available.wrapping_add(1);
        }
        if count > 0 {
            Self::order();
            self.ring.publish_available(self.counts.available);
        }
        back.max(count)
    }

    fn serve(&mut self, batch: u16) -> u16 {
        let size = self.ring.size();
        let count = self.ring.available_index().wrapping_sub(self.counts.available).min(batch);
        if count == 0 {
            return 0;
        }
        Self::order();
        for _ in 0..count {
            let (expected, address) = self.counts.next(size);
            let number = self.ring.available_entry(self.counts.available);
            let found = self.ring.descriptor(number);
            self.counts.wrong += u64::from((number, found.address) != (expected, address));
            self.ring.set_used_entry(self.counts.available, number, BUFFER as u32);
            self.counts.available = self.counts.available.wrapping_add(1);
        }
        Self::order();
        self.ring.publish_used(self.counts.available);
        count
    }

    fn wrong(&self) -> u64 {
        self.counts.wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_go_round<E: End>((mut driver, mut device): (E, E)) {
        for batch in [1, 3, 32, 64] {
            let mut served = 0;
            for step in 0..200 {
                driver.drive(batch);
                // The device is behind at times, and then it is not.
                if step % 5 > 1 {
                    served += u32::from(device.serve(batch) + device.serve(batch));
                }
            }
            assert!(served >= 100 * u32::from(batch), "{batch}: {served}");
        }
        assert_eq!((driver.wrong(), device.wrong()), (0, 0));
    }

    #[test]
    fn buffers_go_round_in_order() {
        let size = 64;
        all_go_round(Packed::<false>::ends(PackedRing::leaked(size)));
        all_go_round(Packed::<true>::ends(PackedRing::leaked(size)));
        all_go_round(Split::<false>::ends(SplitRing::leaked(size)));
        all_go_round(Split::<true>::ends(SplitRing::leaked(size)));
    }
}
