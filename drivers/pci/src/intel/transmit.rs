//! What goes out: packets are copied to buffers, whose descriptors the card works off in order, or sent where they are, if it reaches the pool. It says of one in many
//! that it is done, which stands for all before it.

use super::counters::CardSoftwareCounters;
use super::descriptor::{Context, DataDescriptor, HEADER_BYTES, Offload, Piece};
use super::drops::TransmitDrop;
use super::lent::{Lent, Slots};
use super::memory::{BUFFER_BYTES, RingMemory, Side};
use super::queue::Queue;
use super::requested::{Requested, requested};
use super::rings::{PortEnd, Rings};
use super::segmentation::{Part, Rest, SoftwareSegments, TsoPacket};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use warmlane_counters::Source;
use warmlane_driver_common::peer::shared_mut;
use warmlane_driver_common::{PoolAddresses, SharedPool};
use warmlane_mem::{Burst, Packet, Region, Segmentation};
use warmlane_port::software_offload::pieces;
use warmlane_port::{
    CountDropped as _, Layered, QueueCounters, TransmitOffloads, TransmitQueue, Transports, queue_report,
};
use warmlane_sys::vector::{self, Vector, Work};

/// Descriptors after which the card is to say that it is done, even within a burst.
const REPORT_EACH: u16 = 32;

/// What the card does for packets: checksums and segmentation over IPv4. It could do the same over IPv6, but not the only one there is to try it on (QEMU 7.2 takes the
/// pseudo header for IPv4's, unless what it sends to completes checksums itself).
pub(crate) const OFFLOADS: TransmitOffloads = TransmitOffloads {
    checksums: Layered {
        outer: Transports { tcp4: true, udp4: true, ..Transports::NONE },
        inner: Transports::NONE,
    },
    segmentation: Layered { outer: Transports { tcp4: true, ..Transports::NONE }, inner: Transports::NONE },
    ..TransmitOffloads::NONE
};

/// The ring that the card empties.
#[derive(Debug)]
pub(crate) struct TransmitRing<Q> {
    memory: Arc<RingMemory>,
    queue: Q,
    /// The next to be filled.
    next: u16,
    /// The first that the card may not be done with.
    oldest: u16,
    /// How many it has been done with so far, modulo 2^64.
    reclaimed: u64,
    /// Those of which the card is to say that it is done, in their order.
    reports: VecDeque<u16>,
    /// How many there are behind the last of those.
    unreported: u16,
    /// What the card was last told of checksums.
    checksum_context: Option<Context>,
    /// Packets of the pool that the card sends where they are.
    lent: Option<Lent>,
    pub(crate) is_link_up: bool,
}

/// What was sent of a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Done {
    /// Packets that are done with, from the front.
    taken: usize,
    sent: u64,
    bytes: u64,
    /// The next one is to be segmented, and not by the card.
    is_for_software: bool,
}

/// What became of a packet.
enum Taken {
    /// The card has it, of so many bytes.
    Sent(usize),
    /// It has to wait for descriptors.
    Full,
    /// It is to be segmented, and not by the card.
    ForSoftware,
}

/// What a queue counts.
pub(crate) struct TransmitCounters {
    queue: QueueCounters<TransmitDrop>,
    pub(crate) software: CardSoftwareCounters,
}

impl<Q: Queue> TransmitRing<Q> {
    /// Of a card that sends, and has nothing to send yet. If it reaches a pool, packets of that are not copied.
    pub(crate) fn new(
        memory: &Arc<RingMemory>,
        queue: Q,
        is_link_up: bool,
        pool: Option<&Arc<SharedPool>>,
    ) -> Self {
        let reports = VecDeque::with_capacity(memory.size().into());
        Self {
            memory: Arc::clone(memory),
            queue,
            next: 0,
            oldest: 0,
            reclaimed: 0,
            reports,
            unreported: 0,
            checksum_context: None,
            lent: pool.map(|pool| Lent::new(pool, memory.size())),
            is_link_up,
        }
    }

    /// Buffers of the pool that the card has.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn lent(&self) -> usize {
        self.lent.as_ref().map_or(0, Lent::count)
    }

    /// How many the card has. One is always left out, or a full ring would look like an empty one.
    #[inline(always)]
    fn pending(&self) -> u16 {
        self.next.wrapping_sub(self.oldest) & self.memory.mask()
    }

    #[inline(always)]
    fn word(&self, position: u16) -> &AtomicU64 {
        self.memory.status(Side::Transmit, position)
    }

    /// Takes back what the card is done with.
    #[inline]
    fn reclaim(&mut self) {
        while let Some(&position) = self.reports.front() {
            // Acquire: the buffers are written to behind it.
            if !DataDescriptor(self.word(position).load(Ordering::Acquire)).is_done() {
                break;
            }
            self.reports.pop_front();
            let oldest = position.wrapping_add(1) & self.memory.mask();
            let done = oldest.wrapping_sub(self.oldest) & self.memory.mask();
            self.reclaimed = self.reclaimed.wrapping_add(done.into());
            if let Some(lent) = &mut self.lent {
                lent.free(self.oldest, done);
            }
            self.oldest = oldest;
        }
    }

    /// How many descriptors the card has been done with so far, if it has more to send. Called from time to time: with one that is stuck, it stays the same. (The
    /// position in the ring would not tell: it may be the same after a whole turn.)
    pub(crate) fn progress(&mut self) -> Option<u64> {
        self.reclaim();
        (self.pending() > 0).then_some(self.reclaimed)
    }

    /// Sends packets from the front of the burst, as far as there is space. Those of more than `limit` bytes can't be sent. Says whether the next one is to be
    /// segmented in software.
    #[inline]
    fn send(&mut self, burst: &mut Burst, limit: usize, counters: &TransmitCounters) -> bool {
        self.reclaim();
        let before = self.next;
        let is_for_software = if let Some(lent) = self.lent.take() {
            let (lent, is_for_software) = self.send_lent(lent, burst, limit, counters);
            self.lent = Some(lent);
            is_for_software
        } else {
            self.send_copies(burst, usize::MAX, limit, counters).is_for_software
        };
        self.tell(before);
        is_for_software
    }

    /// Copies so many packets at most.
    #[inline]
    fn send_copies(
        &mut self,
        burst: &mut Burst,
        most: usize,
        limit: usize,
        counters: &TransmitCounters,
    ) -> Done {
        let done = vector::run(Copies { burst, ring: self, most, limit, counters });
        burst.free_front(done.taken);
        counters.queue.count(done.sent, done.bytes);
        done
    }

    /// Has the card send packets from the front of the burst where they are, which is `address` of their offsets in the region: as many as there is space for, of no more
    /// than `limit` bytes, up to the first that is not of the pool or leaves work to the card. Returns how many, and their bytes.
    #[inline(always)]
    fn lend_front(
        &mut self,
        region: &Region,
        mut slots: Slots<'_>,
        burst: &mut Burst,
        (space, limit): (usize, usize),
        address: impl Fn(u64) -> u64,
    ) -> (usize, u64) {
        let mut bytes = 0;
        let count = region.packets_into_raw(burst, space, |packet, span| {
            let length = usize::from(span.length);
            let fits = usize::from(HEADER_BYTES) <= length && length <= limit;
            if !fits || packet.has_work_left() {
                return false;
            }
            let address = address(slots.lend(self.next, span.index, span.offset));
            let frame = span.length.into();
            let offload = Offload::None;
            self.post(address, Piece { length: span.length, is_first: true, is_end: true, frame, offload });
            bytes += length as u64;
            true
        });
        (count, bytes)
    }

    /// Has the card send packets of the pool where they are; others, and those that leave work to the card, are copied.
    #[inline]
    fn send_lent(
        &mut self,
        mut lent: Lent,
        burst: &mut Burst,
        limit: usize,
        counters: &TransmitCounters,
    ) -> (Lent, bool) {
        loop {
            let space = usize::from(self.memory.mask() - self.pending());
            let (region, slots) = lent.parts();
            // One or the other for all of the burst, so that there is no question at each packet.
            let (count, bytes) = match slots.addresses() {
                PoolAddresses::OnePiece(start) => {
                    self.lend_front(region, slots, burst, (space, limit), |offset| start + offset)
                }
                pages @ PoolAddresses::Pages { .. } => {
                    self.lend_front(region, slots, burst, (space, limit), |offset| pages.of(offset))
                }
            };
            counters.queue.count(count as u64, bytes);
            if burst.is_empty() || count == space {
                return (lent, false);
            }
            let done = self.send_copies(burst, 1, limit, counters);
            if done.is_for_software || done.taken == 0 {
                return (lent, done.is_for_software);
            }
        }
    }

    /// Sends segments that are made in software, as far as there is space. Says whether those are all.
    #[cold]
    fn send_segments(&mut self, segments: &mut SoftwareSegments, counters: &TransmitCounters) -> bool {
        self.reclaim();
        let before = self.next;
        let (mut sent, mut bytes) = (0, 0);
        // A segment is no longer than the longest frame, which any ring has space for.
        while segments.next_buffers().is_some_and(|buffers| self.has_space(buffers)) {
            let part = segments.make_next();
            self.copy_part(segments.packet(), &part, Offload::None);
            sent += 1;
            bytes += part.bytes() as u64;
        }
        self.tell(before);
        counters.queue.count(sent, bytes);
        segments.remaining() == 0
    }

    /// Tells the card of the descriptors that were filled from `before` on.
    #[inline]
    fn tell(&mut self, before: u16) {
        if self.next != before {
            // The last of a burst is reported, or what is idle would never be known to be done.
            self.report(self.next.wrapping_sub(1) & self.memory.mask());
            // Behind all that was stored, see `ReceiveRing::tell`.
            self.queue.set_transmit_tail(self.next);
        }
    }

    /// Has the card say when it is done with the descriptor that was written last. It doesn't know of it yet.
    #[inline(always)]
    fn report(&mut self, position: u16) {
        if self.unreported == 0 {
            return;
        }
        let word = self.word(position);
        // Relaxed, as all stores here: `tell` is in order with them.
        word.store(word.load(Ordering::Relaxed) | DataDescriptor::REPORT, Ordering::Relaxed);
        // As many as there are descriptors at most, for which there is room.
        self.reports.push_back(position);
        self.unreported = 0;
    }

    /// Fills the next descriptor.
    #[inline(always)]
    fn write(&mut self, [first, second]: Context) {
        let words = self.memory.words(Side::Transmit, self.next);
        words[0].store(first, Ordering::Relaxed);
        words[1].store(second, Ordering::Relaxed);
        self.next = self.next.wrapping_add(1) & self.memory.mask();
        self.unreported += 1;
    }

    /// Where the card finds the next descriptor's own buffer.
    #[inline(always)]
    fn own(&self) -> u64 {
        self.memory.buffer_address(Side::Transmit, self.next)
    }

    /// Fills a descriptor for what is at an address of the card's.
    #[inline(always)]
    fn post(&mut self, address: u64, piece: Piece) {
        let position = self.next;
        self.write([address, Q::data(piece)]);
        if piece.is_end && self.unreported >= REPORT_EACH {
            self.report(position);
        }
    }

    /// Whether so many descriptors are free.
    #[inline(always)]
    fn has_space(&self, descriptors: usize) -> bool {
        descriptors <= usize::from(self.memory.mask() - self.pending())
    }

    /// Gives the card a packet, with frames of no more than `limit` bytes.
    #[inline(always)]
    fn take<V: Vector>(
        &mut self,
        packet: &mut Packet,
        limit: usize,
        counters: &TransmitCounters,
        vector: V,
    ) -> Result<Taken, TransmitDrop> {
        let length = packet.packet_length();
        if length < usize::from(HEADER_BYTES) {
            return Err(TransmitDrop::Malformed);
        }
        let context = match requested::<Q>(packet, counters)? {
            Requested::Nothing => None,
            Requested::Checksum(context) => Some(context),
            Requested::Segmentation(how) => return self.take_long(packet, how, limit),
        };
        if length > limit {
            return Err(TransmitDrop::TooLarge);
        }
        let is_new = context.is_some() && context != self.checksum_context;
        if !self.has_space(length.div_ceil(usize::from(BUFFER_BYTES)) + usize::from(is_new)) {
            return Ok(Taken::Full);
        }
        if let Some(context) = context.filter(|_| is_new) {
            self.write(context);
            self.checksum_context = Some(context);
        }
        let offload = if context.is_some() { Offload::Checksum } else { Offload::None };
        self.copy(packet, length, offload, vector);
        Ok(Taken::Sent(length))
    }

    /// Gives the card a packet to be segmented.
    #[inline(never)]
    fn take_long(&mut self, packet: &Packet, how: Segmentation, limit: usize) -> Result<Taken, TransmitDrop> {
        // Looked at only when there is space for about as many as it takes, or one that waits for a full ring would be summed up again at each poll.
        let all = usize::from(self.memory.mask());
        let about = 1 + packet.packet_length().div_ceil(BUFFER_BYTES.into());
        if !self.has_space(about.min(all)) {
            return Ok(Taken::Full);
        }
        let tso = TsoPacket::new::<Q>(packet, how, limit)?;
        // More than the ring has go out segment by segment.
        let Some(tso) = tso.filter(|tso| tso.descriptors() <= all) else { return Ok(Taken::ForSoftware) };
        if !self.has_space(tso.descriptors()) {
            return Ok(Taken::Full);
        }
        if let Some(first) = &tso.first {
            self.copy_part(packet, first, Offload::None);
        }
        if let Some(Rest { context, payload, part }) = &tso.rest {
            self.write(*context);
            // It takes the place of what the card was told of checksums.
            self.checksum_context = None;
            self.copy_part(packet, part, Offload::Segmentation { payload: *payload });
        }
        Ok(Taken::Sent(packet.packet_length()))
    }

    fn copy_part(&mut self, packet: &Packet, part: &Part, offload: Offload) {
        let length = part.bytes();
        let data = std::iter::once(part.headers()).chain(pieces(packet, part.payload.clone()));
        self.copy_pieces(data, length, offload, |target, source| target.copy_from_slice(source));
    }

    /// Copies a packet to as many buffers as it takes, which are free.
    #[inline(always)]
    fn copy<V: Vector>(&mut self, packet: &Packet, length: usize, offload: Offload, vector: V) {
        if packet.segments() == 1 && length <= usize::from(BUFFER_BYTES) {
            // SAFETY: a buffer has BUFFER_BYTES; the ring holds the memory, and nobody else on this side refers to it. Packets are in other memory.
            let target = unsafe { shared_mut(self.memory.buffer(Side::Transmit, self.next), length) };
            vector.copy(target, packet.data());
            let frame = length as u32;
            let piece = Piece { length: length as u16, is_first: true, is_end: true, frame, offload };
            return self.post(self.own(), piece);
        }
        let copy = |target: &mut [u8], source: &[u8]| {
            vector.copy(target, source);
        };
        self.copy_pieces(packet.segment_data(), length, offload, copy);
    }

    /// Copies a frame of so many bytes, which is in pieces, to as many buffers as it takes, which are free.
    #[inline(always)]
    fn copy_pieces<'a>(
        &mut self,
        data: impl Iterator<Item = &'a [u8]>,
        length: usize,
        offload: Offload,
        copy: impl Fn(&mut [u8], &[u8]),
    ) {
        let most = usize::from(BUFFER_BYTES);
        let (mut left, mut filled, mut is_first) = (length, 0, true);
        for mut data in data {
            while !data.is_empty() {
                let (now, later) = data.split_at(data.len().min(most - filled));
                // SAFETY: as above; filled + now.len() is no more than BUFFER_BYTES.
                let target = unsafe {
                    shared_mut(self.memory.buffer(Side::Transmit, self.next).add(filled), now.len())
                };
                copy(target, now);
                (filled, left, data) = (filled + now.len(), left - now.len(), later);
                if filled == most || left == 0 {
                    let (length, frame) = (filled as u16, length as u32);
                    let piece = Piece { length, is_first, is_end: left == 0, frame, offload };
                    self.post(self.own(), piece);
                    (filled, is_first) = (0, false);
                }
            }
        }
    }
}

/// Copies packets to buffers as far as there are some.
struct Copies<'a, Q> {
    burst: &'a mut Burst,
    ring: &'a mut TransmitRing<Q>,
    most: usize,
    limit: usize,
    counters: &'a TransmitCounters,
}

impl<Q: Queue> Work for Copies<'_, Q> {
    type Output = Done;

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) -> Done {
        let Self { burst, ring, most, limit, counters } = self;
        let mut done = Done::default();
        for packet in burst.iter_mut().take(most) {
            match ring.take(packet, limit, counters, vector) {
                Ok(Taken::Sent(length)) => {
                    done.sent += 1;
                    done.bytes += length as u64;
                }
                Ok(Taken::Full) => break,
                Ok(Taken::ForSoftware) => {
                    done.is_for_software = true;
                    break;
                }
                Err(reason) => counters.queue.drops().count_packet(reason, packet),
            }
            done.taken += 1;
        }
        done
    }
}

/// The queue of a port. The ring behind it comes and goes with the card.
pub(crate) struct CardTransmit<Q> {
    rings: Arc<Rings<Q>>,
    /// Bytes of the longest frame.
    limit: usize,
    offloads: TransmitOffloads,
    /// A packet whose segments go out before anything else.
    segments: Option<SoftwareSegments>,
    pub(crate) counters: TransmitCounters,
    /// Dropped last: the port's end.
    _end: PortEnd,
}

impl<Q: Queue> CardTransmit<Q> {
    pub(crate) fn new(rings: Arc<Rings<Q>>, limit: usize, offloads: TransmitOffloads, end: PortEnd) -> Self {
        let counters =
            TransmitCounters { queue: QueueCounters::new(), software: CardSoftwareCounters::new() };
        Self { rings, limit, offloads, segments: None, counters, _end: end }
    }
}

/// Counts segments that are held as dropped.
#[cold]
fn drop_segments(
    held: &mut Option<SoftwareSegments>,
    counters: &QueueCounters<TransmitDrop>,
    reason: TransmitDrop,
) {
    if let Some(segments) = held.take()
        && let Some(others) = segments.remaining().checked_sub(1)
    {
        // The packet that they are all in is shown once.
        counters.drops().count(reason, others as u64);
        counters.drops().count_packet(reason, segments.packet());
    }
}

/// Begins to segment the first packet of a burst.
#[cold]
fn begin_segments(burst: &mut Burst, limit: usize, counters: &TransmitCounters) -> Option<SoftwareSegments> {
    match SoftwareSegments::new(burst.take_first()?, limit) {
        Ok(segments) => {
            counters.software.segmented().add(1);
            Some(segments)
        }
        Err((reason, packet)) => {
            counters.queue.drops().count_packet(reason, &packet);
            None
        }
    }
}

impl<Q: Queue> TransmitQueue for CardTransmit<Q> {
    #[inline]
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        let Self { rings, limit, segments: held, counters, .. } = self;
        // Not while the card is being changed.
        let Some(mut place) = rings.transmit.try_lock() else { return 0 };
        let Some(ring) = place.as_mut().filter(|ring| ring.is_link_up) else {
            drop(place);
            drop_segments(held, &counters.queue, TransmitDrop::NotConnected);
            counters.queue.drops().count_packets(TransmitDrop::NotConnected, burst);
            burst.clear();
            return before;
        };
        loop {
            if let Some(segments) = held {
                if !ring.send_segments(segments, counters) {
                    break;
                }
                *held = None;
            }
            if !ring.send(burst, *limit, counters) {
                break;
            }
            *held = begin_segments(burst, *limit, counters);
        }
        before - burst.len()
    }

    fn is_holding(&self) -> bool {
        self.segments.is_some()
    }

    fn flush(&mut self) {
        if self.segments.is_some() {
            self.transmit(&mut Burst::new());
        }
    }

    fn offloads(&self) -> TransmitOffloads {
        self.offloads
    }

    fn own_counters(&self) -> Vec<Box<dyn Source>> {
        vec![Box::new(self.counters.software.view())]
    }

    queue_report!(always running, counters.queue);
}

impl<Q> Drop for CardTransmit<Q> {
    fn drop(&mut self) {
        drop_segments(&mut self.segments, &self.counters.queue, TransmitDrop::Unsent);
    }
}
