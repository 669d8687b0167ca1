//! The device's side of a ring: what is available, and what was used. Buffers are used in the order in which they were made available.

use super::collector::Collector;
use super::inflight::Notes;
use super::recovery::recover;
use super::side::{Ahead, Broken, Chain, Side};
use crate::ring::packed::{PackedRing, Position, Suppression, Tail};
use crate::ring::split::SplitRing;
use crate::ring::{Descriptor, INDIRECT, NEXT, WRITE, wants_event};
use std::sync::atomic::{Ordering, fence};

const BAD_INDEX: Broken = Broken("an impossible index in a ring");
const BAD_NUMBER: Broken = Broken("a descriptor that the ring doesn't have");
const BAD_BASE: Broken = Broken("it is to go on at a place that it doesn't have");
const ENDLESS: Broken = Broken("a chain of descriptors without an end");

/// A device at a split ring.
#[derive(Debug)]
pub(crate) struct SplitDevice {
    ring: SplitRing,
    /// The next available buffer.
    next: u16,
    /// Available buffers below were seen.
    seen: u16,
    /// The next used entry.
    used: u16,
    /// Used entries below were published.
    published: u16,
    /// Used entries below the driver was asked about.
    asked: u16,
    event_index: bool,
}

impl SplitDevice {
    /// Goes on behind the buffers that were used, whatever base the front end says: a ring has no others under way when its back end is
    /// gone, and DPDK's `virtio_user` says 0 each time (22.11).
    pub(crate) fn new(ring: SplitRing, event_index: bool) -> Self {
        let used = ring.used_index();
        let mut device =
            Self { ring, next: used, seen: used, used, published: used, asked: used, event_index };
        device.want_events(false);
        device
    }

    /// Where to go on, as the protocol has it.
    pub(crate) fn base(&self) -> u32 {
        self.next.into()
    }
}

impl SplitDevice {
    /// How many buffers are available; it looks for more only if less than `wanted` are.
    #[inline(always)]
    fn available(&mut self, wanted: u16) -> Result<u16, Broken> {
        if self.seen.wrapping_sub(self.next) < wanted {
            self.seen = self.ring.available_index();
            if self.seen.wrapping_sub(self.next) > self.ring.size() {
                self.seen = self.next;
                return Err(BAD_INDEX);
            }
        }
        Ok(self.seen.wrapping_sub(self.next))
    }
}

impl Side for SplitDevice {
    #[inline(always)]
    fn look(&mut self, heads: &mut [Descriptor]) -> Result<usize, Broken> {
        let size = self.ring.size();
        let wanted = u16::try_from(heads.len()).unwrap_or(u16::MAX);
        let count = usize::from(self.available(wanted)?.min(wanted));
        for (index, head) in heads[..count].iter_mut().enumerate() {
            let id = self.ring.available_entry(self.next.wrapping_add(index as u16));
            if id >= size {
                return Err(BAD_NUMBER);
            }
            let Descriptor { address, length, flags, .. } = self.ring.descriptor(id);
            *head = Descriptor { address, length, id, flags };
        }
        Ok(count)
    }

    fn chain(&mut self, ahead: Ahead, collector: &mut Collector<'_, '_>) -> Result<Option<Chain>, Broken> {
        let (index, size) = (self.next.wrapping_add(ahead.buffers), self.ring.size());
        // More may have come since the first of them was looked at.
        if self.available(ahead.buffers + 1)? <= ahead.buffers {
            return Ok(None);
        }
        let id = self.ring.available_entry(index);
        let (mut number, mut slots) = (id, 0);
        loop {
            if number >= size {
                return Err(BAD_NUMBER);
            }
            if slots == size {
                return Err(ENDLESS);
            }
            slots += 1;
            let descriptor = self.ring.descriptor(number);
            if descriptor.flags & INDIRECT != 0 {
                collector.add_table(descriptor, true);
                // It ends the chain (section 2.7.5.3.1).
                break;
            }
            collector.add(descriptor);
            if descriptor.flags & NEXT == 0 {
                break;
            }
            number = descriptor.id;
        }
        Ok(Some(Chain { id, slots, heads: 1, is_usable: collector.is_usable }))
    }

    #[inline(always)]
    fn give_back(&mut self, id: u16, _slots: u16, length: u32, _goes_on: bool) {
        self.ring.set_used_entry(self.used, id, length);
        self.used = self.used.wrapping_add(1);
        self.next = self.next.wrapping_add(1);
    }

    #[inline(always)]
    fn give_back_whole(&mut self, heads: &[Descriptor], lengths: impl Iterator<Item = u32>) {
        let (mut used, before) = (self.used, self.used);
        for (head, length) in heads.iter().zip(lengths) {
            self.ring.set_used_entry(used, head.id, length);
            used = used.wrapping_add(1);
        }
        self.used = used;
        self.next = self.next.wrapping_add(used.wrapping_sub(before));
    }

    #[inline(always)]
    fn publish(&mut self) {
        if self.published != self.used {
            self.ring.publish_used(self.used);
            self.published = self.used;
        }
    }

    #[inline(always)]
    fn has_news(&self) -> bool {
        self.asked != self.published
    }

    #[inline(always)]
    fn peer_wants_event(&mut self) -> bool {
        // F1: pairs with the driver's fence between saying that it wants events and looking at the index again: either it sees the index, or
        // this side what it wants. One-way barriers can't say that, for on both sides a store stands before a load.
        fence(Ordering::SeqCst);
        let (old, new) = (std::mem::replace(&mut self.asked, self.published), self.published);
        if self.event_index {
            wants_event(self.ring.used_event(), new, old)
        } else {
            self.ring.driver_wants_events()
        }
    }

    fn want_events(&mut self, wanted: bool) {
        if self.event_index {
            // What is not wanted is put as far away as there is; the flag means nothing then (section 2.7.10).
            let at = if wanted { self.seen } else { self.next.wrapping_sub(1) };
            self.ring.set_available_event(at);
        } else {
            self.ring.set_device_wants_events(wanted);
        }
        // F2: pairs with the driver's fence between publishing its index and asking whether that is to be told.
        fence(Ordering::SeqCst);
    }
}

/// Where a device at a packed ring goes on.
#[derive(Debug)]
pub(crate) enum Start {
    /// Where the front end says.
    Base,
    /// Where the former device was, as far as the ring itself says; else where the front end says.
    Flags,
    /// Where the former device has noted; and this one takes notes, too.
    Notes(Notes),
    /// Where the front end says, with notes from there on.
    FreshNotes(Notes),
}

/// A device at a packed ring.
#[derive(Debug)]
pub(crate) struct PackedDevice {
    ring: PackedRing,
    /// The next available buffer.
    next: Position,
    /// Where the next used buffer is written. The same place in the ring: buffers are used in order.
    used: Position,
    /// The first that was given back and is not published: with it the driver sees the others.
    held: Option<(Position, Tail)>,
    /// Up to here the driver was asked.
    asked: Position,
    event_index: bool,
    /// What is given back is noted before.
    notes: Option<Notes>,
}

impl PackedDevice {
    pub(crate) fn new(ring: PackedRing, base: u32, event_index: bool, start: Start) -> Result<Self, Broken> {
        let at = |word: u32| ring.at(Position::decode(word as u16)).ok_or(BAD_BASE);
        let next = at(base)?;
        // What older front ends leave out is the same.
        let used = if base >> 16 == 0 { next } else { at(base >> 16)? };
        let both = |position| (position, position);
        let ((next, used), notes) = match start {
            Start::Base => ((next, used), None),
            Start::Flags => (recover(&ring).map_or((next, used), both), None),
            Start::Notes(notes) => (both(notes.resume(&ring, used)?), Some(notes)),
            Start::FreshNotes(notes) => {
                notes.restart(used);
                ((next, used), Some(notes))
            }
        };
        let mut device = Self { ring, next, used, held: None, asked: used, event_index, notes };
        device.want_events(false);
        Ok(device)
    }

    /// Where to go on, as the protocol has it.
    pub(crate) fn base(&self) -> u32 {
        u32::from(self.next.encode()) | u32::from(self.used.encode()) << 16
    }
}

impl Side for PackedDevice {
    #[inline(always)]
    fn look(&mut self, heads: &mut [Descriptor]) -> Result<usize, Broken> {
        Ok(self.ring.available(self.next, heads))
    }

    fn chain(&mut self, ahead: Ahead, collector: &mut Collector<'_, '_>) -> Result<Option<Chain>, Broken> {
        let size = self.ring.size();
        if ahead.slots >= size {
            return Ok(None);
        }
        let mut position = self.next.advanced(ahead.slots, size);
        let mut tail = self.ring.tail(position);
        if !position.is_available(tail.flags) {
            return Ok(None);
        }
        // The driver makes the first of a chain available last.
        PackedRing::acquire();
        let mut slots = 1;
        loop {
            let Tail { length, id, flags } = tail;
            let descriptor = Descriptor { address: self.ring.address(position), length, flags, id };
            if flags & INDIRECT != 0 {
                collector.add_table(descriptor, false);
            } else {
                collector.add(descriptor);
            }
            if flags & NEXT == 0 {
                return Ok(Some(Chain { id, slots, heads: 1, is_usable: collector.is_usable }));
            }
            if u32::from(ahead.slots) + u32::from(slots) >= u32::from(size) {
                return Err(ENDLESS);
            }
            slots += 1;
            position = position.advanced(1, size);
            tail = self.ring.tail(position);
        }
    }

    #[inline(always)]
    fn give_back(&mut self, id: u16, slots: u16, length: u32, _goes_on: bool) {
        let flags = self.used.used_flags() | if length > 0 { WRITE } else { 0 };
        let tail = Tail { length, id, flags };
        if let Some(notes) = &self.notes {
            notes.note(self.used, slots, tail);
        }
        if self.held.is_none() {
            self.held = Some((self.used, tail));
        } else if self.notes.is_none() {
            self.ring.set_tail(self.used, tail);
        }
        let size = self.ring.size();
        self.used = self.used.advanced(slots, size);
        self.next = self.next.advanced(slots, size);
    }

    #[inline(always)]
    fn give_back_whole(&mut self, heads: &[Descriptor], lengths: impl Iterator<Item = u32>) {
        let mut buffers = heads.iter().zip(lengths);
        // The first of all is held back; and each is noted, if any is.
        while self.held.is_none() || self.notes.is_some() {
            let Some((head, length)) = buffers.next() else { return };
            self.give_back(head.id, 1, length, false);
        }
        let (ring, mut given) = (self.ring, 0);
        self.used = self.used.walk(ring.size(), Position::used_flags, |position, used| {
            let Some((head, length)) = buffers.next() else { return false };
            let flags = used | if length > 0 { WRITE } else { 0 };
            ring.set_tail(position, Tail { length, id: head.id, flags });
            given += 1;
            true
        });
        self.next = self.next.advanced(given, ring.size());
    }

    #[inline(always)]
    fn publish(&mut self) {
        if let Some((position, tail)) = self.held.take() {
            match &self.notes {
                None => self.ring.release_tail(position, tail),
                Some(notes) => notes.give_back(&self.ring, position, self.used),
            }
        }
    }

    #[inline(always)]
    fn has_news(&self) -> bool {
        self.asked != self.used
    }

    #[inline(always)]
    fn peer_wants_event(&mut self) -> bool {
        // F1: as for split rings.
        fence(Ordering::SeqCst);
        let old = std::mem::replace(&mut self.asked, self.used);
        match self.ring.driver_suppression() {
            Suppression::Enabled => true,
            Suppression::Disabled => false,
            // Without event indices nobody says where.
            Suppression::At(event) => !self.event_index || self.used.has_passed(event, old, self.ring.size()),
        }
    }

    fn want_events(&mut self, wanted: bool) {
        let suppression = match (wanted, self.event_index) {
            (false, _) => Suppression::Disabled,
            (true, true) => Suppression::At(self.next),
            (true, false) => Suppression::Enabled,
        };
        self.ring.set_device_suppression(suppression);
        // F2: as for split rings.
        fence(Ordering::SeqCst);
    }
}
