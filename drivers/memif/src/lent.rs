//! Buffers of our pool that the other side has, of a client without copies.
//!
//! Which buffer is in which slot of the ring is remembered here. What the other side writes in a descriptor says only how much
//! data there is; unless buffers [change hands](crate::exchange), when it also says which buffer came instead.

use crate::drops::{LONGEST_PACKET, ReceiveDrop, Wrong};
use crate::exchange::NotTheirs;
use crate::link::Connection;
use crate::ring::{Descriptor, NEXT, Ring};
use std::sync::Arc;
use warmlane_driver_common::FillLevel;
use warmlane_mem::{Burst, Packet, Region, Span};
use warmlane_port::{CountDropped as _, QueueCounters};
use warmlane_sys::prefetch::prefetch_write_at;

/// The region that is the pool.
pub(crate) const POOL_REGION: u16 = 1;

/// Why connections are broken off.
pub(crate) const BAD_INDEX: &str = "impossible ring index";
pub(crate) const NOT_THEIRS: &str = "a buffer that it does not have";

/// Buffers posted at least, and after a pause.
const LEVEL_MINIMUM: u32 = 128;
const LEVEL_INITIAL: u32 = 512;

/// Buffers are posted at least this many at a time, as long as a quarter of the level is not needed at once.
const REFILL: u32 = 32;

/// The parts of a ring's slots from index `first` on: two where it begins anew.
fn parts(slots: &mut [u32], first: u16, count: u16) -> [&mut [u32]; 2] {
    let start = usize::from(first) & (slots.len() - 1);
    let now = usize::from(count).min(slots.len() - start);
    let (before, from) = slots.split_at_mut(start);
    [&mut from[..now], &mut before[..usize::from(count) - now]]
}

/// Empty buffers that the other side is to fill.
pub(crate) struct Posted {
    region: Region,
    start: u16,
    room: u32,
    slots: Box<[u32]>,
    /// The other side has those from here to `head`.
    next: u16,
    head: u16,
    level: FillLevel,
    connection: Arc<Connection>,
}

impl Posted {
    pub(crate) fn new(region: &Region, start: u16, size: u16, connection: &Arc<Connection>) -> Self {
        // A pool is there for all queues and both directions.
        let fair = (region.buffers() / 8).max(1);
        Self {
            start,
            room: (region.end() - usize::from(start)) as u32,
            slots: vec![0; usize::from(size)].into(),
            next: 0,
            head: 0,
            level: FillLevel::new(LEVEL_MINIMUM.min(fair), LEVEL_INITIAL.min(fair), u32::from(size)),
            region: region.clone(),
            connection: Arc::clone(connection),
        }
    }

    /// How many buffers the other side has.
    #[inline(always)]
    pub(crate) const fn under_way(&self) -> u16 {
        self.head.wrapping_sub(self.next)
    }

    /// The next slot to look at.
    #[inline(always)]
    pub(crate) const fn next(&self) -> u16 {
        self.next
    }

    /// A poll found nothing.
    #[inline(always)]
    pub(crate) fn nothing(&mut self) {
        self.level.empty_poll();
    }

    /// Posts buffers up to the level.
    #[inline]
    pub(crate) fn fill(&mut self, ring: Ring) {
        let target = self.level.target();
        let missing = target.saturating_sub(u32::from(self.under_way()));
        if missing >= REFILL.min(target / 4).max(1) {
            self.post(ring, missing as u16);
        }
    }

    fn post(&mut self, ring: Ring, missing: u16) {
        let offsets = self.region.offsets();
        for part in parts(&mut self.slots, self.head, missing) {
            let taken = self.region.take_raw(part);
            for &buffer in &part[..taken] {
                if let Some(exchange) = &self.connection.exchange {
                    exchange.give(buffer);
                }
                // Zero-copy pools are below 4 GiB (`port::open`).
                let offset = offsets.of(buffer) as u32 + u32::from(self.start);
                let descriptor = Descriptor { flags: 0, region: POOL_REGION, length: self.room, offset };
                ring.write(self.head, descriptor);
                self.head = self.head.wrapping_add(1);
            }
            if taken < part.len() {
                break;
            }
        }
        ring.publish_head(self.head);
    }

    /// Takes packets out of `waiting` buffers that were filled.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        burst: &mut Burst,
        ring: Ring,
        mut waiting: u16,
        counters: &QueueCounters<ReceiveDrop>,
    ) {
        let before = burst.len();
        let mut bytes = 0;
        self.level.found(u32::from(waiting), u32::from(waiting).min(burst.space() as u32));
        if let Some(exchange) = &self.connection.exchange {
            let dropped = |reason, found: Option<&Packet>| counters.drops().count_found(reason, found);
            match exchange.receive_as_client(burst, ring, self.next, waiting, dropped) {
                Ok((done, taken)) => {
                    self.next = self.next.wrapping_add(done);
                    bytes = taken;
                }
                Err(NotTheirs) => self.connection.break_off(NOT_THEIRS),
            }
            counters.count((burst.len() - before) as u64, bytes);
            return;
        }
        while waiting > 0 && burst.space() > 0 {
            let (plain, plain_bytes) = self.take_plain(burst, ring, waiting);
            bytes += plain_bytes;
            waiting -= plain;
            if waiting == 0 || burst.space() == 0 {
                break;
            }
            let first = self.next;
            match self.take_pieces(ring, waiting) {
                Ok(packet) => {
                    bytes += packet.packet_length() as u64;
                    // There is room.
                    drop(burst.push(packet));
                }
                Err((reason, found)) => counters.drops().count_found(reason, found.as_ref()),
            }
            waiting -= self.next.wrapping_sub(first);
        }
        counters.count((burst.len() - before) as u64, bytes);
    }

    /// Packets of one buffer, up to the first that isn't so. Returns how many, and their bytes.
    #[inline(always)]
    fn take_plain(&mut self, burst: &mut Burst, ring: Ring, waiting: u16) -> (u16, u64) {
        let Self { region, start, room, slots, next, .. } = self;
        let (base, offsets, mask) = (region.address().as_ptr(), region.offsets(), slots.len() - 1);
        let count = burst.space().min(usize::from(waiting)) as u16;
        let mut bytes = 0;
        let spans = (0..count).map_while(|number| {
            let index = next.wrapping_add(number);
            let descriptor = ring.read(index);
            if descriptor.flags & NEXT != 0 || descriptor.length > *room {
                return None;
            }
            let buffer = slots[usize::from(index) & mask];
            // The headers are read and rewritten soon.
            prefetch_write_at(base.wrapping_add(offsets.of(buffer) as usize + usize::from(*start)));
            bytes += u64::from(descriptor.length);
            Some(Span { index: buffer, offset: *start, length: descriptor.length as u16 })
        });
        // SAFETY: the buffers from `next` to `head` were taken by `post`, and each is named once because `next` moves on behind them;
        // the other side is done with those below the index that it published. Spans are inside.
        let taken = unsafe { region.packets_from_raw(spans, burst) } as u16;
        *next = next.wrapping_add(taken);
        (taken, bytes)
    }

    /// The next packet, of several buffers or with a length that can't be.
    #[cold]
    fn take_pieces(&mut self, ring: Ring, waiting: u16) -> Result<Packet, Wrong> {
        let mut whole: Option<Packet> = None;
        let mut wrong = None;
        for number in 1..=waiting {
            let descriptor = ring.read(self.next);
            let index = self.slots[ring.slot(self.next)];
            self.next = self.next.wrapping_add(1);
            if descriptor.length > self.room {
                wrong.get_or_insert(ReceiveDrop::BadDescriptor);
            }
            let length = descriptor.length.min(self.room) as u16;
            let mut piece = Burst::with_limit(1);
            let span = Span { index, offset: self.start, length };
            // SAFETY: as in `take_plain`.
            unsafe { self.region.packets_from_raw(std::iter::once(span), &mut piece) };
            match (&mut whole, piece.pop()) {
                (Some(whole), Some(piece)) => {
                    let is_too_long = whole.packet_length() + piece.len() > LONGEST_PACKET;
                    if is_too_long || wrong.is_some() || whole.chain(piece).is_err() {
                        wrong.get_or_insert(ReceiveDrop::TooLarge);
                    }
                }
                (none, piece) => *none = piece,
            }
            if descriptor.flags & NEXT == 0 {
                break;
            }
            if number == waiting {
                wrong.get_or_insert(ReceiveDrop::Incomplete);
            }
        }
        match (whole, wrong) {
            (Some(whole), None) => Ok(whole),
            (found, wrong) => Err((wrong.unwrap_or(ReceiveDrop::Incomplete), found)),
        }
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        // The server may go on with what it has; it is free when that is gone.
        if self.connection.exchange.is_some() {
            return;
        }
        for part in parts(&mut self.slots, self.next, self.head.wrapping_sub(self.next)) {
            // SAFETY: taken by `post` and not made packets since. The connection is over.
            unsafe { self.region.free_raw(part) };
        }
    }
}

/// Full buffers that the other side is to take.
pub(crate) struct Sent {
    region: Region,
    slots: Box<[u32]>,
    /// The other side has those from here to `head`.
    reclaimed: u16,
    head: u16,
    connection: Arc<Connection>,
}

impl Sent {
    pub(crate) fn new(region: &Region, size: u16, connection: &Arc<Connection>) -> Self {
        let (region, connection) = (region.clone(), Arc::clone(connection));
        Self { region, slots: vec![0; usize::from(size)].into(), reclaimed: 0, head: 0, connection }
    }

    /// Frees what the other side has taken, or has given for it.
    ///
    /// # Errors
    /// What the connection is broken off for.
    #[inline]
    pub(crate) fn reclaim(&mut self, ring: Ring) -> Result<(), &'static str> {
        let taken = ring.tail().wrapping_sub(self.reclaimed);
        if taken > self.head.wrapping_sub(self.reclaimed) {
            return Err(BAD_INDEX);
        }
        if let Some(exchange) = &self.connection.exchange {
            let first = self.reclaimed;
            self.reclaimed = first.wrapping_add(taken);
            return exchange.take_back(ring, first, taken).map_err(|NotTheirs| NOT_THEIRS);
        }
        for part in parts(&mut self.slots, self.reclaimed, taken) {
            // SAFETY: made raw by `send`, and passed once, because `reclaimed` moves on behind them; the other side is done with
            // what is below the index that it published.
            unsafe { self.region.free_raw(part) };
        }
        self.reclaimed = self.reclaimed.wrapping_add(taken);
        Ok(())
    }

    /// Descriptors that are free.
    #[inline(always)]
    pub(crate) fn room(&self) -> usize {
        self.slots.len() - usize::from(self.head.wrapping_sub(self.reclaimed))
    }

    /// Writes packets of one of the pool's buffers each into the ring, from the front of the burst up to the first that isn't so or has
    /// more than `longest` bytes; no more than `limit`, for which there is room. Returns how many, and their bytes.
    #[inline(always)]
    pub(crate) fn send(
        &mut self,
        burst: &mut Burst,
        ring: Ring,
        limit: usize,
        longest: u32,
        flags: u16,
    ) -> (usize, u64) {
        let Self { region, slots, head, connection, .. } = self;
        let (offsets, mask) = (region.offsets(), slots.len() - 1);
        let exchange = connection.exchange.as_ref();
        let mut bytes = 0;
        let count = region.packets_into_raw(burst, limit, |_, span| {
            if u32::from(span.length) > longest {
                return false;
            }
            slots[usize::from(*head) & mask] = span.index;
            if let Some(exchange) = exchange {
                exchange.give(span.index);
            }
            let offset = offsets.of(span.index) as u32 + u32::from(span.offset);
            let descriptor =
                Descriptor { flags, region: POOL_REGION, length: u32::from(span.length), offset };
            ring.write(*head, descriptor);
            *head = head.wrapping_add(1);
            bytes += u64::from(span.length);
            true
        });
        (count, bytes)
    }

    /// Where the next descriptor goes.
    #[inline(always)]
    pub(crate) const fn head(&self) -> u16 {
        self.head
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        // As for `Posted`.
        if self.connection.exchange.is_some() {
            return;
        }
        for part in parts(&mut self.slots, self.reclaimed, self.head.wrapping_sub(self.reclaimed)) {
            // SAFETY: made raw by `send` and not freed since. The connection is over.
            unsafe { self.region.free_raw(part) };
        }
    }
}
