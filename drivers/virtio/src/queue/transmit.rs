//! What the other side receives.

use super::collector::Collector;
use super::drops::{LONGEST_PACKET, TransmitDrop};
use super::receive::tell;
use super::ring::{Active, PortEnd, Ring, with_side};
use super::side::{Ahead, Broken, Chain, HEADS, MAXIMUM_PARTS, Part, Side};
use super::sides::RingSide;
use crate::features::{HASH_REPORT, MERGEABLE, header_length};
use crate::log::RingLog;
use crate::memory::Addresses;
use crate::ring::{Descriptor, WRITE};
use std::ptr::NonNull;
use std::sync::Arc;
use warmlane_driver_common::peer::shared_mut;
use warmlane_driver_common::virtio_net::{HASH_REPORT_LENGTH, HEADER_LENGTH, hash_report, header_of};
use warmlane_mem::{Burst, Checksum, Packet, SegmentationKind};
use warmlane_port::{CountDropped as _, QueueCounters, TransmitOffloads, TransmitQueue, queue_report};
use warmlane_sys::prefetch::prefetch_write_at;
use warmlane_sys::vector::{self, Vector, Work};

/// How many packets ahead a buffer's first lines are asked for. The other side has them.
const AHEAD: usize = 8;

const BAD_BUFFER: Broken = Broken("a buffer to be filled that is outside the memory, or not to be written");

/// Where the report of a hash is in a header.
const HASH: usize = 12;

/// The longest header, in bytes.
const HEADER: usize = HASH + HASH_REPORT_LENGTH;

/// What a header says that leaves nothing to do: by a device, that all is in one buffer; a driver says nothing (section 5.1.6.2).
const fn plain_header(ring_side: RingSide) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    if matches!(ring_side, RingSide::Device) {
        [header[HEADER_LENGTH], header[HEADER_LENGTH + 1]] = 1_u16.to_ne_bytes();
    }
    header
}

pub(crate) struct RingTransmit {
    ring: Arc<Ring>,
    ring_side: RingSide,
    filler: Filler,
    /// Dropped last: the port's end.
    _end: PortEnd,
}

/// What is needed while buffers are filled.
struct Filler {
    heads: Box<[Descriptor; HEADS]>,
    chains: Vec<Chain>,
    /// How many of the parts are of each chain and those before it.
    ends: Vec<usize>,
    parts: Vec<Part>,
    counters: QueueCounters<TransmitDrop>,
}

/// What both sides have agreed to.
#[derive(Clone, Copy)]
struct Agreed {
    ring_side: RingSide,
    header: usize,
    /// A packet can be spread over several buffers.
    spreads: bool,
    /// Headers report hashes.
    is_hashed: bool,
    offloads: TransmitOffloads,
}

/// Whose buffers are filled.
#[derive(Clone, Copy)]
struct Target<'a> {
    agreed: Agreed,
    /// Where what is written is logged.
    log: Option<&'a RingLog>,
}

/// What became of the first packet of a burst.
enum Slow {
    Sent,
    Dropped(TransmitDrop),
    /// There are not enough buffers now.
    NoSpace,
}

/// Copies packets of one segment that fit a buffer of one descriptor, up to the first that isn't so.
struct Plain<'a, 'b> {
    burst: &'a [Packet],
    heads: &'a [Descriptor],
    header: [u8; HEADER],
    header_length: usize,
    is_hashed: bool,
    addresses: &'a mut Addresses<'b>,
}

impl Work for Plain<'_, '_> {
    type Output = usize;

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) -> usize {
        let Self { burst, heads, header, header_length, is_hashed, addresses } = self;
        // Descriptors are checked in a loop of their own, so that the loop that copies needs fewer registers.
        let mut pointers = [NonNull::dangling(); HEADS + AHEAD];
        let mut count = 0;
        for ((packet, head), pointer) in burst.iter().zip(heads).zip(&mut pointers) {
            let is_plain = head.is_plain(WRITE) && packet.segments() == 1 && !packet.has_work_left();
            let Some(found) = addresses.pointer(head.address, head.length) else { break };
            let fits = (header_length + packet.len()).max(HEADER) <= head.length as usize;
            if !is_plain || !fits {
                break;
            }
            *pointer = found;
            count += 1;
        }
        let fetch = |pointer: NonNull<u8>| {
            prefetch_write_at(pointer.as_ptr());
            prefetch_write_at(pointer.as_ptr().wrapping_add(64));
        };
        for &pointer in pointers.iter().take(count.min(AHEAD)) {
            fetch(pointer);
        }
        // Behind the last packet the first one is fetched again, which is in the cache: so no packet needs a check for the end.
        let first = pointers[0];
        pointers[count..count + AHEAD].fill(first);
        for ((packet, &pointer), &ahead) in burst.iter().zip(&pointers).zip(&pointers[AHEAD..]).take(count) {
            fetch(ahead);
            let data = packet.data();
            // SAFETY: `pointer` says that the descriptor's length is mapped there, and the ring's lock keeps it so; packets are in other memory, and
            // nothing else here refers to the driver's.
            unsafe {
                // Always the longest header, as a copy of constant length is two stores. If it is shorter, the data overwrites the rest.
                shared_mut(pointer, HEADER).copy_from_slice(&header);
                if is_hashed {
                    shared_mut(pointer.add(HASH), HASH_REPORT_LENGTH).copy_from_slice(&hash_report(packet));
                }
                vector.copy(shared_mut(pointer.add(header_length), data.len()), data);
            }
        }
        count
    }
}

impl Filler {
    /// Sends packets from the front of the burst, as far as there are buffers, and the other side sees them.
    #[inline(always)]
    fn send<S: Side>(
        &mut self,
        burst: &mut Burst,
        side: &mut S,
        target: Target<'_>,
        addresses: &mut Addresses<'_>,
    ) -> Result<(), Broken> {
        let result = if side.lends() {
            self.send_lent(burst, side, target, addresses)
        } else {
            self.send_copies(burst, usize::MAX, side, target, addresses)
        };
        side.publish();
        result
    }

    /// Sends packets of the pool that the other side reaches where they are, and copies the others.
    #[inline]
    fn send_lent<S: Side>(
        &mut self,
        burst: &mut Burst,
        side: &mut S,
        target: Target<'_>,
        addresses: &mut Addresses<'_>,
    ) -> Result<(), Broken> {
        loop {
            let (packets, bytes) = side.lend(burst)?;
            self.counters.count(packets as u64, bytes);
            let left = burst.len();
            if left == 0 {
                return Ok(());
            }
            self.send_copies(burst, 1, side, target, addresses)?;
            if burst.len() == left {
                return Ok(());
            }
        }
    }

    /// Copies so many packets at most.
    #[inline(always)]
    fn send_copies<S: Side>(
        &mut self,
        burst: &mut Burst,
        most: usize,
        side: &mut S,
        target: Target<'_>,
        addresses: &mut Addresses<'_>,
    ) -> Result<(), Broken> {
        let Target { agreed, log } = target;
        let (mut done, mut packets, mut bytes) = (0, 0, 0);
        let mut result = Ok(());
        let most = most.min(burst.len());
        while done < most {
            let wanted = (most - done).min(HEADS);
            let found = match side.look(&mut self.heads[..wanted]) {
                Ok(0) => break,
                Ok(found) => found,
                Err(broken) => {
                    result = Err(broken);
                    break;
                }
            };
            let heads = &self.heads[..found];
            let plain = vector::run(Plain {
                burst: &burst[done..done + found],
                heads,
                header: plain_header(agreed.ring_side),
                header_length: agreed.header,
                is_hashed: agreed.is_hashed,
                addresses,
            });
            if let Some(log) = log {
                for (head, packet) in heads[..plain].iter().zip(&burst[done..]) {
                    log.buffer(head.address, agreed.header + packet.len());
                }
            }
            let lengths = burst[done..done + plain].iter().map(|packet| {
                bytes += packet.len() as u64;
                (agreed.header + packet.len()) as u32
            });
            side.give_back_whole(&heads[..plain], lengths);
            packets += plain as u64;
            done += plain;
            if plain == found {
                continue;
            }
            match self.send_slowly(&burst[done], side, target, addresses) {
                Ok(Slow::Sent) => {
                    packets += 1;
                    bytes += burst[done].packet_length() as u64;
                }
                Ok(Slow::Dropped(reason)) => self.counters.drops().count_packet(reason, &burst[done]),
                Ok(Slow::NoSpace) => break,
                Err(broken) => {
                    result = Err(broken);
                    break;
                }
            }
            done += 1;
        }
        burst.free_front(done);
        self.counters.count(packets, bytes);
        result
    }

    /// Sends one packet by as many parts and buffers as it takes.
    #[inline(never)]
    fn send_slowly<S: Side>(
        &mut self,
        packet: &Packet,
        side: &mut S,
        target: Target<'_>,
        addresses: &mut Addresses<'_>,
    ) -> Result<Slow, Broken> {
        let Target { agreed, log } = target;
        let length = packet.packet_length();
        if length > LONGEST_PACKET {
            return Ok(Slow::Dropped(TransmitDrop::TooLarge));
        }
        if packet.has_work_left() && !is_agreed(packet, agreed.offloads) {
            return Ok(Slow::Dropped(TransmitDrop::NotAgreed));
        }
        let needed = agreed.header + length;
        self.parts.clear();
        self.chains.clear();
        self.ends.clear();
        let (mut ahead, mut room) = (Ahead::default(), 0);
        while room < needed {
            if !self.chains.is_empty() && !agreed.spreads || self.chains.len() == MAXIMUM_PARTS {
                return Ok(Slow::Dropped(TransmitDrop::TooLarge));
            }
            let first = self.parts.len();
            let mut collector = Collector::new(WRITE, addresses, &mut self.parts);
            let Some(chain) = side.chain(ahead, &mut collector)? else { return Ok(Slow::NoSpace) };
            if !chain.is_usable {
                return Err(BAD_BUFFER);
            }
            room += self.parts[first..].iter().map(|part| part.length).sum::<usize>();
            ahead.buffers += 1;
            ahead.slots += chain.slots;
            self.chains.push(chain);
            self.ends.push(self.parts.len());
        }
        let mut header = [0; HEADER];
        header[..HEADER_LENGTH].copy_from_slice(&header_of(packet));
        if agreed.ring_side == RingSide::Device {
            header[HEADER_LENGTH..HASH].copy_from_slice(&(self.chains.len() as u16).to_ne_bytes());
        }
        if agreed.is_hashed {
            header[HASH..].copy_from_slice(&hash_report(packet));
        }
        let mut pieces = std::iter::once(&header[..agreed.header]).chain(packet.segment_data());
        let mut piece: &[u8] = &[];
        let (mut part, mut left) = (0, needed);
        for (chain, &end) in self.chains.iter().zip(&self.ends) {
            let mut written = 0;
            while part < end && left > 0 {
                let Part { pointer, address, length: room } = self.parts[part];
                let mut filled = 0;
                while filled < room && left > 0 {
                    if piece.is_empty() {
                        piece = pieces.next().unwrap_or_default();
                        continue;
                    }
                    let (now, later) = piece.split_at(piece.len().min(room - filled));
                    // SAFETY: filled + now.len() is at most the part's length, which is mapped (`Addresses::part`); else as in `Plain`.
                    unsafe { warmlane_sys::copy::copy(shared_mut(pointer.add(filled), now.len()), now) };
                    filled += now.len();
                    left -= now.len();
                    piece = later;
                }
                if let Some(log) = log {
                    log.buffer(address, filled);
                }
                written += filled;
                part += 1;
            }
            part = end;
            side.give_back(chain.id, chain.slots, written as u32, left > 0);
        }
        Ok(Slow::Sent)
    }
}

/// Whether the other side does what the packet needs.
fn is_agreed(packet: &Packet, offloads: TransmitOffloads) -> bool {
    let checksum = !matches!(packet.checksum(), Checksum::Partial { .. })
        || offloads.checksums.outer != warmlane_port::Transports::NONE;
    let kinds = offloads.segmentation.outer;
    checksum
        && match packet.segmentation().map(|segmentation| segmentation.kind) {
            None => true,
            Some(SegmentationKind::Tcp4) => kinds.tcp4,
            Some(SegmentationKind::Tcp6) => kinds.tcp6,
            Some(SegmentationKind::Udp) => kinds.udp4 && kinds.udp6,
        }
}

impl RingTransmit {
    pub(crate) fn new(ring: Arc<Ring>, ring_side: RingSide, end: PortEnd) -> Self {
        let filler = Filler {
            heads: Box::new([Descriptor::default(); HEADS]),
            chains: Vec::with_capacity(MAXIMUM_PARTS),
            ends: Vec::with_capacity(MAXIMUM_PARTS),
            parts: Vec::with_capacity(MAXIMUM_PARTS),
            counters: QueueCounters::new(),
        };
        Self { ring, ring_side, filler, _end: end }
    }
}

impl TransmitQueue for RingTransmit {
    #[inline]
    fn transmit(&mut self, burst: &mut Burst) -> usize {
        let before = burst.len();
        let Some(mut state) = self.ring.try_lock() else { return 0 };
        let active = state.active.as_mut().filter(|active| active.is_enabled);
        let Some(Active { side, memory, features, call, log, .. }) = active else {
            drop(state);
            self.filler.counters.drops().count_packets(TransmitDrop::NotConnected, burst);
            burst.clear();
            return before;
        };
        let agreed = Agreed {
            ring_side: self.ring_side,
            header: header_length(*features),
            spreads: self.ring_side == RingSide::Driver || *features & MERGEABLE != 0,
            // A driver reports none (section 5.1.6.2).
            is_hashed: self.ring_side == RingSide::Device && *features & HASH_REPORT != 0,
            offloads: self.ring_side.peer_does(*features),
        };
        let mut addresses = memory.addresses();
        let result = with_side!(side, side => {
            let target = Target { agreed, log: log.as_ref() };
            let result = self.filler.send(burst, side, target, &mut addresses);
            tell(side, call.as_deref(), log.as_ref());
            result
        });
        if let Err(broken) = result {
            state.break_off(broken, &self.ring.alarm);
        }
        before - burst.len()
    }

    fn offloads(&self) -> TransmitOffloads {
        self.ring_side.peer_does(self.ring.features())
    }

    fn offloads_change(&self) -> bool {
        true
    }

    queue_report!(always running, filler.counters);
}
