//! A packed ring: one ring of descriptors that both sides write, and for each side a place where it says when it wants to be told.
//!
//! Whose a descriptor is say two of its flags, which are compared with a bit that each side keeps and turns each time it comes to the end of
//! the ring: its wrap counter. The driver makes a descriptor available with `AVAILABLE` as its counter is and `USED` as it is not; the device
//! gives it back with both as its own counter is.

use super::{DESCRIPTOR_BYTES, word32, word64};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const AVAILABLE: u16 = 1 << 7;
pub(crate) const USED: u16 = 1 << 15;

/// What the addresses of the parts are multiples of (section 2.8).
pub const DESCRIPTORS_ALIGNMENT: usize = 16;
/// See [`DESCRIPTORS_ALIGNMENT`].
pub const SUPPRESSION_ALIGNMENT: usize = 4;
/// Bytes of each side's event suppression.
pub const SUPPRESSION_BYTES: usize = 4;

/// Bytes of the ring of descriptors.
pub const fn descriptors_bytes(size: u16) -> usize {
    size as usize * DESCRIPTOR_BYTES
}

/// When a side wants to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suppression {
    /// Of everything.
    Enabled,
    /// Of nothing.
    Disabled,
    /// With event indices: when the other side comes to this place.
    At(Position),
}

impl Suppression {
    const fn encode(self) -> u32 {
        match self {
            Self::Enabled => 0,
            Self::Disabled => 1 << 16,
            Self::At(position) => 2 << 16 | position.encode() as u32,
        }
    }

    const fn decode(word: u32) -> Self {
        match word >> 16 & 3 {
            1 => Self::Disabled,
            2 => Self::At(Position::decode(word as u16)),
            // 3 is reserved: told once too often is better than never.
            _ => Self::Enabled,
        }
    }
}

/// A place in the ring, and in which turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// The descriptor.
    pub slot: u16,
    /// The wrap counter.
    pub wrap: bool,
}

impl Position {
    /// Where both sides begin.
    pub const START: Self = Self { slot: 0, wrap: true };

    /// As the slot, with the wrap counter above it.
    pub const fn encode(self) -> u16 {
        self.slot | (self.wrap as u16) << 15
    }

    /// See [`encode`](Self::encode).
    pub const fn decode(word: u16) -> Self {
        Self { slot: word & 0x7fff, wrap: word >> 15 != 0 }
    }

    /// So many descriptors further, in a ring of `size`; at most once round.
    #[inline(always)]
    #[must_use]
    pub const fn advanced(self, count: u16, size: u16) -> Self {
        // At most 2^15 each.
        let slot = self.slot + count;
        if slot >= size {
            Self { slot: slot - size, wrap: !self.wrap }
        } else {
            Self { slot, wrap: self.wrap }
        }
    }

    /// Goes from here through a ring of `size` as long as `each` says of a place that it is done with, and returns the first that is not.
    /// Places up to the ring's end are of one turn, so `of_turn` is asked once for all of them.
    #[inline(always)]
    pub(crate) fn walk(
        self,
        size: u16,
        of_turn: impl Fn(Self) -> u16,
        mut each: impl FnMut(Self, u16) -> bool,
    ) -> Self {
        let mut position = self;
        let mut flags = of_turn(position);
        while each(position, flags) {
            position.slot += 1;
            if position.slot >= size {
                position = position.next_turn();
                flags = of_turn(position);
            }
        }
        position
    }

    /// The start of the next turn. A call, so that what is needed once a turn doesn't become instructions for each place.
    #[cold]
    #[inline(never)]
    const fn next_turn(self) -> Self {
        Self { slot: 0, wrap: !self.wrap }
    }

    /// Whether a descriptor with these flags is available to the device that is here.
    #[inline(always)]
    pub const fn is_available(self, flags: u16) -> bool {
        flags & (AVAILABLE | USED) == self.available_flags()
    }

    /// Whether a descriptor with these flags was used, for a driver that is here.
    #[inline(always)]
    pub const fn is_used(self, flags: u16) -> bool {
        flags & (AVAILABLE | USED) == self.used_flags()
    }

    /// The flags of a descriptor that a driver makes available here.
    #[inline(always)]
    pub const fn available_flags(self) -> u16 {
        if self.wrap { AVAILABLE } else { USED }
    }

    /// The flags of a descriptor that a device has used here.
    #[inline(always)]
    pub const fn used_flags(self) -> u16 {
        if self.wrap { AVAILABLE | USED } else { 0 }
    }

    /// Whether a side that wants to be told at `event` is to be told by one that has come from `old` to here (as
    /// `vring_need_event` for positions that don't count on: section 2.8.10).
    pub fn has_passed(self, event: Self, old: Self, size: u16) -> bool {
        // Places seen from the turn that this position is in.
        let seen =
            |position: Self| position.slot.wrapping_sub(if position.wrap == self.wrap { 0 } else { size });
        super::wants_event(seen(event), self.slot, seen(old))
    }
}

/// Where the parts of a ring are.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// The ring of descriptors.
    pub descriptors: NonNull<u8>,
    /// What the driver writes: when it wants to be told.
    pub driver: NonNull<u8>,
    /// What the device writes: when it wants to be told.
    pub device: NonNull<u8>,
}

/// A packed ring. Who has it sees to it that the memory stays mapped.
#[derive(Clone, Copy, Debug)]
pub struct PackedRing {
    parts: Parts,
    size: u16,
}

// SAFETY: addresses in shared memory, all accesses to which are atomic; nothing is tied to a thread.
unsafe impl Send for PackedRing {}

/// The half of a descriptor that both sides write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Bytes.
    pub length: u32,
    /// The buffer's name.
    pub id: u16,
    /// Flags.
    pub flags: u16,
}

impl Tail {
    #[inline(always)]
    const fn encode(self) -> u64 {
        self.length as u64 | (self.id as u64) << 32 | (self.flags as u64) << 48
    }

    #[inline(always)]
    const fn decode(word: u64) -> Self {
        Self { length: word as u32, id: (word >> 32) as u16, flags: (word >> 48) as u16 }
    }
}

impl PackedRing {
    /// # Safety
    /// `size` is from 1 to [`LONGEST`](super::LONGEST). At the parts [`descriptors_bytes`] and twice [`SUPPRESSION_BYTES`] are mapped, at
    /// multiples of the alignments above, for as long as the ring or a copy of it is used, and this process accesses them by atomic
    /// operations only. Nobody asks the ring about a position whose slot is not below its size: [`at`](Self::at) checks those that come
    /// from elsewhere, and [`Position::advanced`] stays in the ring.
    pub const unsafe fn new(parts: Parts, size: u16) -> Self {
        Self { parts, size }
    }

    /// Descriptors.
    #[inline(always)]
    pub const fn size(&self) -> u16 {
        self.size
    }

    #[inline(always)]
    fn words(&self, slot: u16) -> [&AtomicU64; 2] {
        debug_assert!(slot < self.size);
        let offset = usize::from(slot) * DESCRIPTOR_BYTES;
        // SAFETY: all positions have slots that are mapped (`new`, `leaked`); 16 divides the ring's address.
        unsafe { [word64(self.parts.descriptors, offset), word64(self.parts.descriptors, offset + 8)] }
    }

    /// A position that may come from elsewhere; `None` if the ring has no such place.
    pub fn at(&self, position: Position) -> Option<Position> {
        (position.slot < self.size).then_some(position)
    }

    /// The half with the flags. Relaxed: [`acquire`](Self::acquire) before anything is done by what it says.
    #[inline(always)]
    pub fn tail(&self, position: Position) -> Tail {
        Tail::decode(self.words(position.slot)[1].load(Ordering::Relaxed))
    }

    /// A1: acquires all that was released before the flags that were read: pairs with R1 and R2.
    #[inline(always)]
    pub fn acquire() {
        std::sync::atomic::fence(Ordering::Acquire);
    }

    /// Where the buffer is, once its flags were acquired.
    #[inline(always)]
    pub fn address(&self, position: Position) -> u64 {
        self.words(position.slot)[0].load(Ordering::Relaxed)
    }

    /// The address of a descriptor in this process: so many behind the position, in the same turn.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[inline(always)]
    pub(crate) fn pointer(&self, position: Position, ahead: usize) -> *const u8 {
        let number = usize::from(position.slot) + ahead;
        self.parts.descriptors.as_ptr().wrapping_add(number * DESCRIPTOR_BYTES).cast_const()
    }

    /// Writes the half without the flags, as a driver.
    #[inline(always)]
    pub fn set_address(&self, position: Position, address: u64) {
        self.words(position.slot)[0].store(address, Ordering::Relaxed);
    }

    /// Writes the half with the flags, of a descriptor that the other side can't come to before one that is released later.
    #[inline(always)]
    pub fn set_tail(&self, position: Position, tail: Tail) {
        self.words(position.slot)[1].store(tail.encode(), Ordering::Relaxed);
    }

    /// R1 of a driver, R2 of a device: release, pairs with A1. All that was written before is there before the other side sees the flags, and
    /// so are the flags of descriptors behind this one.
    #[inline(always)]
    pub fn release_tail(&self, position: Position, tail: Tail) {
        self.words(position.slot)[1].store(tail.encode(), Ordering::Release);
    }

    /// When the driver wants to be told.
    #[inline(always)]
    pub fn driver_suppression(&self) -> Suppression {
        // SAFETY: four bytes are mapped there, aligned (`new`).
        Suppression::decode(unsafe { word32(self.parts.driver, 0) }.load(Ordering::Relaxed))
    }

    /// The driver says when it wants to be told.
    pub fn set_driver_suppression(&self, suppression: Suppression) {
        // SAFETY: as above.
        unsafe { word32(self.parts.driver, 0) }.store(suppression.encode(), Ordering::Relaxed);
    }

    /// When the device wants to be told.
    #[inline(always)]
    pub fn device_suppression(&self) -> Suppression {
        // SAFETY: as above.
        Suppression::decode(unsafe { word32(self.parts.device, 0) }.load(Ordering::Relaxed))
    }

    /// The device says when it wants to be told.
    pub fn set_device_suppression(&self, suppression: Suppression) {
        // SAFETY: as above.
        unsafe { word32(self.parts.device, 0) }.store(suppression.encode(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A driver and a device that go round rings of all small sizes, in all steps: nobody takes what is not his.
    #[test]
    fn wrap_counters_say_whose_a_descriptor_is() {
        for size in 1..=5_u16 {
            for steps in 0..1_u32 << 14 {
                let mut flags = vec![0_u16; usize::from(size)];
                let (mut available, mut device, mut reaped) =
                    (Position::START, Position::START, Position::START);
                let (mut posted, mut used, mut back) = (0_u32, 0_u32, 0_u32);
                for step in 0..14 {
                    // The driver posts or reaps, the device uses.
                    if steps >> step & 1 == 0 {
                        if posted - back < u32::from(size) && steps >> (13 - step) & 1 == 0 {
                            flags[usize::from(available.slot)] = available.available_flags();
                            available = available.advanced(1, size);
                            posted += 1;
                        } else if reaped.is_used(flags[usize::from(reaped.slot)]) {
                            reaped = reaped.advanced(1, size);
                            back += 1;
                        }
                    } else if device.is_available(flags[usize::from(device.slot)]) {
                        flags[usize::from(device.slot)] = device.used_flags();
                        device = device.advanced(1, size);
                        used += 1;
                    }
                    assert!(back <= used && used <= posted, "size {size}, steps {steps:#b}");
                    assert_eq!(device.is_available(flags[usize::from(device.slot)]), used < posted);
                    assert_eq!(reaped.is_used(flags[usize::from(reaped.slot)]), back < used);
                }
            }
        }
    }

    #[test]
    fn who_wants_to_be_told_at_a_place_is_told_once_it_is_passed() {
        let size = 7_u16;
        let place = |count: u16| Position { slot: count % size, wrap: (count / size).is_multiple_of(2) };
        for old in 0..14 {
            for new in old..old + size {
                // An event that lies a turn back or ahead can't be told apart from one in this turn; drivers say the next one.
                for event in old..old + size {
                    let passed = place(new).has_passed(place(event), place(old), size);
                    assert_eq!(passed, event < new, "{old} {new} {event}");
                }
            }
        }
        for suppression in [Suppression::Enabled, Suppression::Disabled, Suppression::At(place(10))] {
            assert_eq!(Suppression::decode(suppression.encode()), suppression);
        }
    }
}
