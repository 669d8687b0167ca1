//! The sending end.

use crate::control::Membership;
use crate::drops::{LONGEST_PACKET, TransmitDrop};
use crate::exchange::AT_ONCE;
use crate::lent::{BAD_INDEX, NOT_THEIRS, Sent};
use crate::link::{Buffers, Connection, Handover, OwnBuffers, RingLink};
use crate::region::PeerMemory;
use crate::ring::{Descriptor, NEXT, Ring};
use std::ptr::NonNull;
use std::sync::Arc;
use warmlane_driver_common::peer::shared_mut;
use warmlane_mem::{BURST_CAPACITY, Burst, LaneThread, Packet, Region};
use warmlane_port::{CountDropped as _, QueueCounters, TransmitQueue, queue_report};
use warmlane_sys::prefetch::prefetch_write_at;
use warmlane_sys::vector::{self, Vector, Work};

/// How many packets ahead a buffer's first line is asked for. The other side has it.
const AHEAD: usize = 8;

const BAD_BUFFER: &str = "a buffer outside all regions";

/// A buffer of the ring that is to be filled.
struct Target {
    pointer: NonNull<u8>,
    /// Its descriptor; the length is the buffer's room.
    descriptor: Descriptor,
}

/// Which buffer a descriptor has.
trait TargetBuffers: Copy {
    fn target(self, ring: Ring, index: u16) -> Option<Target>;
    /// Says what the buffer holds now.
    fn write(self, ring: Ring, index: u16, descriptor: Descriptor);
    /// An address to prefetch, unchecked.
    fn hint(self, ring: Ring, index: u16) -> *const u8;
}

impl TargetBuffers for &PeerMemory {
    #[inline(always)]
    fn target(self, ring: Ring, index: u16) -> Option<Target> {
        let descriptor = ring.read(index);
        let pointer = self.pointer(descriptor.region, descriptor.offset, descriptor.length)?;
        Some(Target { pointer, descriptor })
    }

    #[inline(always)]
    fn write(self, ring: Ring, index: u16, descriptor: Descriptor) {
        ring.write_filled(index, descriptor);
    }

    #[inline(always)]
    fn hint(self, ring: Ring, index: u16) -> *const u8 {
        let descriptor = ring.read(index);
        PeerMemory::hint(self, descriptor.region, descriptor.offset)
    }
}

impl TargetBuffers for OwnBuffers {
    #[inline(always)]
    fn target(self, ring: Ring, index: u16) -> Option<Target> {
        let slot = ring.slot(index);
        Some(Target { pointer: self.pointer(slot), descriptor: self.descriptor(slot, self.room, 0) })
    }

    #[inline(always)]
    fn write(self, ring: Ring, index: u16, descriptor: Descriptor) {
        ring.write(index, descriptor);
    }

    #[inline(always)]
    fn hint(self, ring: Ring, index: u16) -> *const u8 {
        self.pointer(ring.slot(index)).as_ptr()
    }
}

pub(crate) struct MemifTransmit {
    region: Region,
    /// Bytes of a buffer, of a client.
    longest: u32,
    link: Option<Open>,
    handover: Arc<Handover>,
    seen: u32,
    counters: QueueCounters<TransmitDrop>,
    /// Dropped last: the port's end.
    _membership: Arc<Membership>,
}

/// A ring in use.
struct Open {
    link: RingLink,
    /// The next descriptor to be filled.
    next: u16,
    /// Descriptors from there on that may be, as far as was looked.
    room: u16,
    /// In the pool's buffers: those that the other side has.
    sent: Option<Sent>,
}

/// What became of the first packet of a burst.
enum Slow {
    /// It is in so many descriptors.
    Sent(u16),
    Dropped(TransmitDrop),
    /// The ring has no room for all its pieces.
    NoSpace,
}

impl Open {
    /// Looks whether there is room for `wanted` descriptors, unless that is known.
    #[inline(always)]
    fn look(&mut self, wanted: usize) {
        if usize::from(self.room) >= wanted {
            return;
        }
        let ring = self.link.ring;
        let room = match self.link.buffers {
            Buffers::Peer => ring.head().wrapping_sub(self.next),
            // Wraps to more than the ring has if the other side took more than there was.
            Buffers::Own(_) | Buffers::Pool => ring.size().wrapping_sub(self.next.wrapping_sub(ring.tail())),
        };
        self.room = if room <= ring.size() {
            room
        } else {
            self.link.connection.break_off(BAD_INDEX);
            0
        };
    }
}

/// Sends packets from the front of the burst with their buffers, if those may change hands. Returns how many went, and their bytes.
#[inline(always)]
fn pass_on(
    burst: &mut Burst,
    (ring, connection): (Ring, &Connection),
    (next, room): (&mut u16, &mut u16),
) -> (u64, u64) {
    let Some(exchange) = &connection.exchange else { return (0, 0) };
    let (mut packets, mut bytes) = (0, 0);
    loop {
        let Ok((count, length)) = exchange.send(burst, ring, *next, *room) else {
            connection.break_off(NOT_THEIRS);
            break;
        };
        *next = next.wrapping_add(count);
        *room -= count;
        packets += u64::from(count);
        bytes += length;
        if usize::from(count) < AT_ONCE {
            break;
        }
    }
    (packets, bytes)
}

/// Copies packets from the front of the burst. Returns how many went, and their bytes.
#[inline(always)]
fn copy<P: TargetBuffers>(
    burst: &mut Burst,
    (ring, connection): (Ring, &Connection),
    (next, room): (&mut u16, &mut u16),
    counters: &QueueCounters<TransmitDrop>,
    buffers: P,
) -> (u64, u64) {
    let (mut packets, mut bytes, mut done) = (0, 0, 0);
    while done < burst.len() && *room > 0 {
        let limit = usize::from(*room).min(burst.len() - done);
        let plain = vector::run(Plain { burst: &burst[done..done + limit], ring, first: *next, buffers });
        done += plain.packets;
        packets += plain.packets as u64;
        bytes += plain.bytes;
        *next = next.wrapping_add(plain.packets as u16);
        *room -= plain.packets as u16;
        if done == burst.len() || *room == 0 {
            break;
        }
        match copy_slowly(&burst[done], ring, *next, *room, buffers) {
            Some(Slow::Sent(count)) => {
                packets += 1;
                bytes += burst[done].packet_length() as u64;
                *next = next.wrapping_add(count);
                *room -= count;
            }
            Some(Slow::Dropped(reason)) => counters.drops().count_packet(reason, &burst[done]),
            Some(Slow::NoSpace) => {
                // More may be free by now. `look` asks again only where fewer are known than there are packets.
                *room = 0;
                break;
            }
            None => {
                connection.break_off(BAD_BUFFER);
                break;
            }
        }
        done += 1;
    }
    burst.free_front(done);
    (packets, bytes)
}

/// What [`Plain`] did.
struct Copied {
    packets: usize,
    bytes: u64,
}

/// Copies packets of one segment that fit a buffer, up to the first that isn't so.
struct Plain<'a, P> {
    burst: &'a [Packet],
    ring: Ring,
    first: u16,
    buffers: P,
}

impl<P: TargetBuffers> Work for Plain<'_, P> {
    type Output = Copied;

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) -> Copied {
        let Self { burst, ring, first, buffers } = self;
        let mut copied = Copied { packets: 0, bytes: 0 };
        for ahead in 0..AHEAD.min(burst.len()) {
            prefetch_write_at(buffers.hint(ring, first.wrapping_add(ahead as u16)));
        }
        for (number, packet) in burst.iter().enumerate() {
            if number + AHEAD < burst.len() {
                prefetch_write_at(buffers.hint(ring, first.wrapping_add((number + AHEAD) as u16)));
            }
            let index = first.wrapping_add(number as u16);
            let data = packet.data();
            let Some(Target { pointer: address, descriptor }) = buffers.target(ring, index) else { break };
            if packet.segments() > 1 || data.len() > descriptor.length as usize {
                break;
            }
            // SAFETY: `target` says that the descriptor's length is mapped there, and the connection keeps it so; packets are in
            // other memory, and nothing else here refers to the ring's buffers.
            vector.copy(unsafe { shared_mut(address, data.len()) }, data);
            buffers.write(ring, index, Descriptor { flags: 0, length: data.len() as u32, ..descriptor });
            copied.packets += 1;
            copied.bytes += data.len() as u64;
        }
        copied
    }
}

/// Copies a packet into as many buffers as it takes. `None`: the other side named a buffer that isn't one.
#[cold]
fn copy_slowly<P: TargetBuffers>(
    packet: &Packet,
    ring: Ring,
    first: u16,
    room: u16,
    buffers: P,
) -> Option<Slow> {
    if packet.packet_length() > LONGEST_PACKET {
        return Some(Slow::Dropped(TransmitDrop::TooLarge));
    }
    let mut left = packet.packet_length();
    let mut segments = packet.segment_data();
    let mut data: &[u8] = &[];
    for count in 0..room {
        let index = first.wrapping_add(count);
        let Target { pointer: address, descriptor } = buffers.target(ring, index)?;
        let wanted = left.min(descriptor.length as usize);
        let mut filled = 0;
        while filled < wanted {
            if data.is_empty() {
                data = segments.next()?;
                continue;
            }
            let (now, later) = data.split_at(data.len().min(wanted - filled));
            // SAFETY: filled + now.len() is at most the descriptor's length, which `target` says is mapped; else as in `Plain`.
            unsafe { warmlane_sys::copy::copy(shared_mut(address.add(filled), now.len()), now) };
            filled += now.len();
            data = later;
        }
        left -= filled;
        let flags = if left > 0 { NEXT } else { 0 };
        buffers.write(ring, index, Descriptor { flags, length: filled as u32, ..descriptor });
        if left == 0 {
            return Some(Slow::Sent(count + 1));
        }
    }
    // In an empty ring there will never be more.
    let never = room == ring.size();
    Some(if never { Slow::Dropped(TransmitDrop::TooLarge) } else { Slow::NoSpace })
}

impl MemifTransmit {
    pub(crate) fn new(
        region: Region,
        longest: u32,
        handover: Arc<Handover>,
        membership: Arc<Membership>,
    ) -> Self {
        Self {
            region,
            longest,
            link: None,
            handover,
            seen: 0,
            counters: QueueCounters::new(),
            _membership: membership,
        }
    }

    #[cold]
    fn change_link(&mut self) {
        // What the former ring had of the pool is free first, and so is a client's pool.
        self.link = None;
        LaneThread::let_go();
        self.link = self.handover.get(&mut self.seen).map(|link| {
            let sent = matches!(link.buffers, Buffers::Pool)
                .then(|| Sent::new(&self.region, link.ring.size(), &link.connection));
            if matches!(link.buffers, Buffers::Peer) {
                link.ring.publish_tail(0);
            } else {
                link.ring.publish_head(0);
            }
            Open { link, next: 0, room: 0, sent }
        });
    }

    /// Hands packets over without a copy. Returns how many went, and their bytes.
    #[inline]
    fn lend(&mut self, burst: &mut Burst) -> (u64, u64) {
        let (mut packets, mut bytes) = (0, 0);
        let Some(Open { link, sent: Some(sent), .. }) = &mut self.link else { return (0, 0) };
        if let Err(reason) = sent.reclaim(link.ring) {
            link.connection.break_off(reason);
            return (0, 0);
        }
        while !burst.is_empty() && sent.room() > 0 {
            let (count, length) = sent.send(burst, link.ring, sent.room(), self.longest, 0);
            packets += count as u64;
            bytes += length;
            if count > 0 {
                continue;
            }
            let Some(first) = burst.first() else { break };
            let length = first.packet_length() as u64;
            match lend_slowly(burst, sent, link.ring, &self.region, self.longest as usize) {
                Slow::Sent(_) => {
                    packets += 1;
                    bytes += length;
                }
                Slow::Dropped(reason) => {
                    self.counters.drops().count_packets(reason, &burst[..1]);
                    burst.free_front(1);
                }
                Slow::NoSpace => break,
            }
        }
        link.ring.publish_head(sent.head());
        (packets, bytes)
    }
}

/// Handles the first packet of the burst, which can't go into the ring just so. One that is to be dropped stays where it is.
#[cold]
fn lend_slowly(burst: &mut Burst, sent: &mut Sent, ring: Ring, region: &Region, longest: usize) -> Slow {
    let Some(packet) = burst.first() else { return Slow::NoSpace };
    let must_copy = !region.holds_chain(packet)
        || packet.has_shared_data()
        || packet.segment_data().any(|data| data.len() > longest);
    let piece = region.data_size().min(longest);
    let pieces = if must_copy { packet.packet_length().div_ceil(piece).max(1) } else { packet.segments() };
    let reason = (packet.packet_length() > LONGEST_PACKET || pieces > usize::from(ring.size()))
        .then_some(TransmitDrop::TooLarge);
    if let Some(reason) = reason {
        return Slow::Dropped(reason);
    }
    if sent.room() < pieces {
        return Slow::NoSpace;
    }
    let mut chain = Burst::with_limit(BURST_CAPACITY);
    if must_copy && copy_pieces(packet, region, piece, pieces, &mut chain).is_none() {
        return Slow::Dropped(TransmitDrop::NoBuffer);
    }
    let Some(mut packet) = burst.take_first() else { return Slow::NoSpace };
    if !must_copy {
        loop {
            let rest = packet.split_chain();
            // A chain has at most 255 segments.
            drop(chain.push(packet));
            let Some(rest) = rest else { break };
            packet = rest;
        }
    }
    let all = chain.len();
    if all > 1 {
        sent.send(&mut chain, ring, all - 1, u32::MAX, NEXT);
    }
    sent.send(&mut chain, ring, 1, u32::MAX, 0);
    Slow::Sent(all as u16)
}

/// Copies a packet into buffers of the region, each filled with up to `piece` bytes.
fn copy_pieces(
    packet: &Packet,
    region: &Region,
    piece: usize,
    pieces: usize,
    chain: &mut Burst,
) -> Option<()> {
    if !region.pool().take_bulk(chain, pieces) {
        return None;
    }
    let mut targets = chain.iter_mut();
    let mut target = targets.next()?;
    for mut data in packet.segment_data() {
        while !data.is_empty() {
            let count = data.len().min(piece - target.len());
            if count == 0 {
                target = targets.next()?;
                continue;
            }
            let (now, later) = data.split_at(count);
            warmlane_sys::copy::copy(target.append(count).ok()?, now);
            data = later;
        }
    }
    Some(())
}

impl TransmitQueue for MemifTransmit {
    #[inline]
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        if self.handover.has_changed(self.seen) {
            self.change_link();
        }
        let Some(open) = &mut self.link else {
            self.counters.drops().count_packets(TransmitDrop::NotConnected, burst);
            burst.clear();
            return before;
        };
        let (packets, bytes) = match open.link.buffers {
            Buffers::Pool => self.lend(burst),
            Buffers::Own(buffers) => {
                open.look(before);
                let Open { link, next, room, .. } = open;
                let sent = copy(burst, (link.ring, &link.connection), (next, room), &self.counters, buffers);
                link.ring.publish_head(*next);
                sent
            }
            Buffers::Peer => {
                open.look(before);
                let Open { link, next, room, .. } = open;
                let connection = &*link.connection;
                let peer = &connection.peer;
                let (mut packets, mut bytes) = pass_on(burst, (link.ring, connection), (next, room));
                if !burst.is_empty() {
                    let copied = copy(burst, (link.ring, connection), (next, room), &self.counters, peer);
                    (packets, bytes) = (packets + copied.0, bytes + copied.1);
                }
                link.ring.publish_tail(*next);
                (packets, bytes)
            }
        };
        if let Some(open) = &self.link
            && packets > 0
            && open.link.ring.wants_event()
        {
            open.link.event.signal();
        }
        self.counters.count(packets, bytes);
        before - burst.len()
    }

    fn flush(&mut self) {
        if let Some(Open { link, sent: Some(sent), .. }) = &mut self.link
            && let Err(reason) = sent.reclaim(link.ring)
        {
            link.connection.break_off(reason);
        }
    }

    queue_report!(always running, counters);
}
