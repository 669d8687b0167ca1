//! What the other side sends.

use super::collector::Collector;
use super::drops::{LONGEST_PACKET, ReceiveDrop};
use super::notify::Notify;
use super::ring::{Active, PortEnd, Ring, with_side};
use super::side::{Ahead, Broken, HEADS, MAXIMUM_PARTS, Part, Side};
use super::sides::RingSide;
use crate::features::{HASH_REPORT, MERGEABLE, header_length};
use crate::log::RingLog;
use crate::memory::Addresses;
use crate::ring::Descriptor;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use warmlane_driver_common::peer::shared;
use warmlane_driver_common::virtio_net::{self, HASH_REPORT_LENGTH, HEADER_LENGTH, NOTHING_LEFT};
use warmlane_driver_common::{Gather, Ungathered};
use warmlane_mem::{Burst, Packet, Region, Span, bytes_of};
use warmlane_port::{CountDropped as _, QueueCounters, ReceiveQueue, TransmitOffloads, queue_report};
use warmlane_sys::prefetch::prefetch_read_at;
use warmlane_sys::vector::{self, Vector, Work};

/// How many packets ahead data is fetched. It comes from the other side's cache.
const AHEAD: usize = 8;

pub(crate) struct RingReceive {
    intake: Intake,
    ring: Arc<Ring>,
    ring_side: RingSide,
    leaves: TransmitOffloads,
    /// The other side tells of new buffers, since somebody may wait.
    armed: AtomicBool,
    /// Dropped last: the port's end.
    _end: PortEnd,
}

impl RingReceive {
    pub(crate) fn new(
        region: Region,
        ring: Arc<Ring>,
        (ring_side, leaves): (RingSide, TransmitOffloads),
        end: PortEnd,
    ) -> Self {
        let intake = Intake::new(region);
        Self { intake, ring, ring_side, leaves, armed: AtomicBool::new(false), _end: end }
    }

    #[cold]
    fn disarm(&mut self) {
        *self.armed.get_mut() = false;
        self.ring.want_events(false);
        self.ring.doorbell.clear();
    }
}

/// What stands in front of a packet.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// Bytes.
    header: usize,
    /// It says over how many buffers the packet is spread.
    pub(crate) is_numbered: bool,
    /// It reports a hash.
    pub(crate) is_hashed: bool,
}

/// Where packets go that come in buffers of the pool.
pub(crate) struct Filled<'a> {
    pub(crate) burst: &'a mut Burst,
    pub(crate) layout: Layout,
    pub(crate) noted: &'a mut Noted,
    pub(crate) hashes: &'a mut [[u8; HASH_REPORT_LENGTH]; HEADS],
}

/// Where the report of a hash is in a header.
pub(crate) const HASH: usize = 12;

/// The longest header, in bytes.
const LONGEST_HEADER: usize = HASH + HASH_REPORT_LENGTH;

/// Where packets are copied to.
struct Intake {
    region: Region,
    indices: Box<[u32; HEADS]>,
    heads: Box<[Descriptor; HEADS]>,
    /// Reports of the packets in hand.
    hashes: Box<[[u8; HASH_REPORT_LENGTH]; HEADS]>,
    noted: Box<Noted>,
    parts: Vec<Part>,
    counters: QueueCounters<ReceiveDrop>,
}

/// Why a packet is dropped, and what has been put together of it.
type Wrong = (ReceiveDrop, Option<Packet>);

/// What became of a buffer that is not plain.
enum Slow {
    /// With the number of heads that it took.
    Packet(Packet, u16),
    Dropped(Wrong, u16),
    /// The pool is empty: it waits.
    NoBuffer,
    /// It isn't there any more.
    Nothing,
}

impl Intake {
    fn new(region: Region) -> Self {
        Self {
            region,
            indices: Box::new([0; HEADS]),
            heads: Box::new([Descriptor::default(); HEADS]),
            hashes: Box::new([[0; HASH_REPORT_LENGTH]; HEADS]),
            noted: Box::default(),
            parts: Vec::with_capacity(MAXIMUM_PARTS),
            counters: QueueCounters::new(),
        }
    }

    /// Takes what there is, as far as the burst has space and the pool buffers.
    #[inline]
    fn receive<S: Side>(
        &mut self,
        burst: &mut Burst,
        side: &mut S,
        layout: Layout,
        addresses: &mut Addresses<'_>,
    ) -> Result<(), Broken> {
        while burst.space() > 0 {
            let wanted = burst.space().min(HEADS);
            if side.lends() {
                let before = burst.len();
                self.noted.count = 0;
                let (noted, hashes) = (&mut *self.noted, &mut *self.hashes);
                let (packets, has_other) = side.take_packets(Filled { burst, layout, noted, hashes })?;
                self.note(burst, before, layout);
                if packets == wanted {
                    continue;
                }
                if !has_other {
                    break;
                }
            }
            let found = side.look(&mut self.heads[..wanted])?;
            if found == 0 {
                break;
            }
            let mut taken = self.region.take_raw(&mut self.indices[..found]);
            let (mut used, mut done) = (0, 0);
            let (mut goes_on, mut result) = (taken == found, Ok(()));
            while used < taken && done < found {
                let before = burst.len();
                self.noted.count = 0;
                let packets = if side.lends() {
                    // Others were looked at above.
                    0
                } else {
                    vector::run(Plain {
                        region: &self.region,
                        start: self.region.start(),
                        room: self.region.data_size() as u32,
                        burst,
                        heads: &self.heads[done..found],
                        indices: &self.indices[used..taken],
                        layout,
                        addresses,
                        noted: &mut self.noted,
                        hashes: &mut self.hashes,
                    })
                };
                side.give_back_whole(&self.heads[done..done + packets], std::iter::repeat(0));
                (used, done) = (used + packets, done + packets);
                self.note(burst, before, layout);
                if used == taken || done >= found {
                    break;
                }
                // The next one brings its own buffers, so one of those that were taken is left.
                match slowly(&self.region, &mut self.parts, side, layout, addresses) {
                    Ok(Slow::Packet(packet, heads)) => {
                        taken -= 1;
                        // SAFETY: taken above and not used.
                        unsafe { self.region.free_raw(&self.indices[taken..=taken]) };
                        // There is room: no more buffers were taken than there were free places.
                        drop(burst.push(packet));
                        done += usize::from(heads);
                    }
                    Ok(Slow::Dropped((reason, found), heads)) => {
                        self.counters.drops().count_found(reason, found.as_ref());
                        done += usize::from(heads);
                    }
                    Ok(Slow::NoBuffer | Slow::Nothing) => {
                        goes_on = false;
                        break;
                    }
                    Err(broken) => {
                        result = Err(broken);
                        break;
                    }
                }
            }
            // SAFETY: taken above and not used.
            unsafe { self.region.free_raw(&self.indices[used..taken]) };
            result?;
            if !goes_on || found < wanted {
                break;
            }
        }
        Ok(())
    }

    /// Notes what is said of packets from `before` on.
    #[inline(always)]
    fn note(&self, burst: &mut Burst, before: usize, layout: Layout) {
        if layout.is_hashed {
            for (packet, report) in burst[before..].iter_mut().zip(&*self.hashes) {
                virtio_net::note_hash(packet, *report);
            }
        }
        if self.noted.count > 0 {
            note(burst, before, &self.noted, &self.counters);
        }
    }

    /// Takes what there is and drops it, as a ring that is not enabled asks for.
    #[cold]
    fn discard<S: Side>(&mut self, side: &mut S, addresses: &mut Addresses<'_>) -> Result<(), Broken> {
        for _ in 0..HEADS {
            if side.look(&mut self.heads[..1])? == 0 {
                break;
            }
            self.parts.clear();
            let mut collector = Collector::new(0, addresses, &mut self.parts);
            let Some(chain) = side.chain(Ahead::default(), &mut collector)? else { break };
            side.give_back(chain.id, chain.slots, 0, false);
            self.counters.drops().count(ReceiveDrop::Disabled, 1);
        }
        Ok(())
    }

    /// One burst.
    #[inline(always)]
    fn run<S: Side>(
        &mut self,
        burst: &mut Burst,
        side: &mut S,
        (memory, is_enabled, layout): (Addresses<'_>, bool, Layout),
    ) -> Result<(), Broken> {
        let mut addresses = memory;
        let result = if is_enabled {
            self.receive(burst, side, layout, &mut addresses)
        } else {
            self.discard(side, &mut addresses)
        };
        side.publish();
        result
    }
}

/// Headers that say something, and which packets of a burst they belong to.
pub(crate) struct Noted {
    count: usize,
    headers: [(u8, [u8; HEADER_LENGTH]); HEADS],
}

impl Default for Noted {
    #[inline(always)]
    fn default() -> Self {
        Self { count: 0, headers: [(0, NOTHING_LEFT); HEADS] }
    }
}

impl Noted {
    /// Keeps the header of the packet with this number.
    #[cold]
    pub(crate) fn note(&mut self, number: usize, start: u64, rest: u16) {
        let (mut header, number) = ([0; HEADER_LENGTH], number as u8);
        header[..size_of::<u64>()].copy_from_slice(&start.to_ne_bytes());
        header[size_of::<u64>()..].copy_from_slice(&rest.to_ne_bytes());
        if let Some(place) = self.headers.get_mut(self.count) {
            *place = (number, header);
            self.count += 1;
        }
    }
}

/// Notes what headers say of packets from `first` on. Packets whose headers lie are dropped.
#[inline(never)]
fn note(burst: &mut Burst, first: usize, noted: &Noted, counters: &QueueCounters<ReceiveDrop>) {
    let mut refused = [false; HEADS];
    for &(number, header) in &noted.headers[..noted.count] {
        let Some(packet) = burst.get_mut(first + usize::from(number)) else { continue };
        if let Err(reason) = virtio_net::note(packet, header, 0) {
            counters.drops().count_packet(reason.into(), packet);
            refused[usize::from(number)] = true;
        }
    }
    if refused.contains(&true) {
        let mut number = 0;
        burst.retain(|_| {
            number += 1;
            number <= first || !refused.get(number - 1 - first).copied().unwrap_or(false)
        });
    }
}

/// Takes the next buffer, whatever it looks like.
#[inline(never)]
fn slowly<S: Side>(
    region: &Region,
    parts: &mut Vec<Part>,
    side: &mut S,
    layout: Layout,
    addresses: &mut Addresses<'_>,
) -> Result<Slow, Broken> {
    parts.clear();
    let mut collector = Collector::new(0, addresses, parts);
    let Some(chain) = side.chain(Ahead::default(), &mut collector)? else { return Ok(Slow::Nothing) };
    let result =
        if chain.is_usable { gather(region, parts, layout) } else { Err((ReceiveDrop::BadDescriptor, None)) };
    let slow = match result {
        Ok(Some(packet)) => Slow::Packet(packet, chain.heads),
        Ok(None) => return Ok(Slow::NoBuffer),
        Err(wrong) => Slow::Dropped(wrong, chain.heads),
    };
    side.give_back(chain.id, chain.slots, 0, false);
    Ok(slow)
}

/// Makes a packet of the parts of a buffer. `None`: the pool is empty.
fn gather(region: &Region, parts: &[Part], layout: Layout) -> Result<Option<Packet>, Wrong> {
    let Layout { header: header_bytes, is_hashed, .. } = layout;
    let total: usize = parts.iter().map(|part| part.length).sum();
    if total <= header_bytes {
        return Err((ReceiveDrop::Runt, None));
    }
    if total - header_bytes > LONGEST_PACKET {
        return Err((ReceiveDrop::TooLarge, None));
    }
    let Some(mut packet) = Gather::new(region.pool()) else { return Ok(None) };
    let (mut header, mut skipped) = ([0; LONGEST_HEADER], 0);
    for part in parts {
        // SAFETY: a part is mapped memory (`Addresses::part`), and the ring's lock keeps it so.
        let mut data = unsafe { shared(part.pointer, part.length) };
        if skipped < header_bytes {
            let (now, rest) = data.split_at(data.len().min(header_bytes - skipped));
            header[skipped..skipped + now.len()].copy_from_slice(now);
            skipped += now.len();
            data = rest;
        }
        match packet.append(data) {
            Ok(()) => {}
            Err(Ungathered::NoBuffer) => return Ok(None),
            Err(Ungathered::TooLarge) => return Err((ReceiveDrop::TooLarge, packet.finish().ok())),
        }
    }
    let mut whole = packet.finish().map_err(|_| (ReceiveDrop::TooLarge, None))?;
    let said = header.first_chunk::<HEADER_LENGTH>().copied().unwrap_or(NOTHING_LEFT);
    if let Err(reason) = virtio_net::note(&mut whole, said, 0) {
        return Err((reason.into(), Some(whole)));
    }
    if is_hashed && let Some(report) = header[HASH..].first_chunk() {
        virtio_net::note_hash(&mut whole, *report);
    }
    Ok(Some(whole))
}

/// Copies packets that are one descriptor each and fit a buffer, up to the first that isn't so.
struct Plain<'a, 'b> {
    region: &'a Region,
    start: u16,
    room: u32,
    burst: &'a mut Burst,
    heads: &'a [Descriptor],
    indices: &'a [u32],
    layout: Layout,
    addresses: &'a mut Addresses<'b>,
    noted: &'a mut Noted,
    hashes: &'a mut [[u8; HASH_REPORT_LENGTH]; HEADS],
}

impl Work for Plain<'_, '_> {
    type Output = usize;

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) -> usize {
        let Self { region, start, room, burst, heads, indices, layout, addresses, noted, hashes } = self;
        let Layout { header, is_numbered, is_hashed } = layout;
        let (base, offsets) = (region.address(), region.offsets());
        // Descriptors are checked in a loop of their own, so that the loop that copies needs fewer registers.
        let mut pointers = [NonNull::dangling(); HEADS + AHEAD];
        let mut count = 0;
        for (head, pointer) in heads.iter().zip(&mut pointers).take(indices.len()) {
            // Of what isn't longer than the header, a large number.
            let length = head.length.wrapping_sub(header as u32 + 1);
            let Some(found) = addresses.pointer(head.address, head.length) else { break };
            if !head.is_plain(0) || length >= room {
                break;
            }
            *pointer = found;
            count += 1;
        }
        let fetch = |pointer: NonNull<u8>| {
            prefetch_read_at(pointer.as_ptr());
            // The header is in front: also a short packet takes two lines.
            prefetch_read_at(pointer.as_ptr().wrapping_add(64));
        };
        for &pointer in pointers.iter().take(count.min(AHEAD)) {
            fetch(pointer);
        }
        // Behind the last packet the first one is fetched again, which is in the cache: so no packet needs a check for the end.
        let first = pointers[0];
        pointers[count..count + AHEAD].fill(first);
        let packets =
            heads.iter().zip(indices).zip(&pointers).zip(&pointers[AHEAD..]).take(count).enumerate();
        let spans = packets.map_while(|(number, (((head, &buffer), &pointer), &ahead))| {
            fetch(ahead);
            let length = head.length as usize - header;
            // SAFETY: `pointer` says that the descriptor's length is mapped there, of which the header is a part, and the ring's lock keeps it so.
            let said = unsafe { read_once::<u64>(pointer) };
            if is_numbered {
                // SAFETY: as above; a numbered header has 12 bytes.
                let buffers = unsafe { read_once::<u16>(pointer.add(HEADER_LENGTH)) };
                if buffers != 1 {
                    return None;
                }
            }
            // SAFETY: as above. The buffer was taken by this queue, so nobody else uses it, and has `room` bytes from `start`; the two are in
            // different mappings.
            unsafe {
                let target = base.add(offsets.of(buffer) as usize + usize::from(start));
                let target = std::slice::from_raw_parts_mut(target.as_ptr(), length);
                vector.copy(target, shared(pointer.add(header), length));
            }
            if is_hashed {
                // SAFETY: as above; the header has 20 bytes then.
                hashes[number] = unsafe { read_once::<u64>(pointer.add(HASH)) }.to_ne_bytes();
            }
            // Flags and the kind of segmentation.
            if said.to_le() as u16 != 0 {
                // SAFETY: as above.
                let rest = unsafe { read_once::<u16>(pointer.add(size_of::<u64>())) };
                noted.note(number, said, rest);
            }
            Some(Span { index: buffer, offset: start, length: length as u16 })
        });
        // SAFETY: the buffers were taken and each is named once, as the loop ends at the first that is not used; spans are inside, and
        // no more than there is room for in the burst.
        unsafe { region.packets_from_raw(spans, burst) }
    }
}

/// Reads a number from shared memory once, whatever its alignment.
///
/// # Safety
/// Its bytes are mapped there.
#[inline(always)]
pub(crate) unsafe fn read_once<T: Copy>(pointer: NonNull<u8>) -> T {
    /// One load, also where it isn't aligned.
    #[repr(C, packed)]
    struct Unaligned<T>(T);
    // SAFETY: the caller's; a packed type is aligned anywhere.
    unsafe { pointer.cast::<Unaligned<T>>().read_volatile() }.0
}

impl ReceiveQueue for RingReceive {
    #[inline]
    fn receive(&mut self, burst: &mut Burst) -> usize {
        if *self.armed.get_mut() {
            self.disarm();
        }
        let Some(mut state) = self.ring.try_lock() else { return 0 };
        let Some(active) = &mut state.active else { return 0 };
        let before = burst.len();
        let Active { side, memory, features, is_enabled, call, log } = active;
        let is_numbered = self.ring_side == RingSide::Driver && *features & MERGEABLE != 0;
        let is_hashed = self.ring_side == RingSide::Driver && *features & HASH_REPORT != 0;
        let layout = Layout { header: header_length(*features), is_numbered, is_hashed };
        let how = (memory.addresses(), *is_enabled, layout);
        let result = with_side!(side, side => {
            let result = self.intake.run(burst, side, how);
            tell(side, call.as_deref(), log.as_ref());
            result
        });
        if let Err(broken) = result {
            state.break_off(broken, &self.ring.alarm);
        }
        drop(state);
        let received = burst.len() - before;
        if received > 0 {
            self.intake.counters.packets().add(received as u64);
            let bytes = bytes_of(&burst[before..]);
            self.intake.counters.bytes().add(bytes);
        }
        received
    }

    fn leaves(&self) -> TransmitOffloads {
        self.leaves
    }

    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        self.armed.store(true, Ordering::Relaxed);
        // What came before the other side could know that it is to tell is not told of.
        (!self.ring.want_events(true)).then(|| self.ring.doorbell.fd())
    }

    queue_report!(always running, intake.counters);
}

/// Tells the other side of what was published, if it wants to know.
#[inline(always)]
pub(crate) fn tell<S: Side>(side: &mut S, call: Option<&dyn Notify>, log: Option<&RingLog>) {
    if let Some(log) = log.filter(|_| side.has_news()) {
        log.ring();
    }
    if let Some(call) = call
        && side.has_news()
        && side.peer_wants_event()
    {
        call.notify();
    }
}
