//! The receiving end.

use crate::control::Membership;
use crate::drops::{LONGEST_PACKET, ReceiveDrop, Wrong};
use crate::exchange::NotTheirs;
use crate::lent::{BAD_INDEX, NOT_THEIRS, Posted};
use crate::link::{Buffers, Handover, OwnBuffers, RingLink};
use crate::region::PeerMemory;
use crate::ring::{Descriptor, NEXT, Ring};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use warmlane_driver_common::peer::shared;
use warmlane_driver_common::{Gather, Ungathered};
use warmlane_mem::{BURST_CAPACITY, Burst, LaneThread, Packet, Region, Span};
use warmlane_port::{CountDropped as _, QueueCounters, ReceiveQueue, queue_report};
use warmlane_sys::prefetch::prefetch_read_at;
use warmlane_sys::vector::{self, Vector, Work};

/// How many packets ahead data is fetched. It comes from the other side's cache.
const AHEAD: u16 = 8;

/// Where the data of a descriptor is, if it is anywhere.
trait Locate: Copy {
    fn locate(self, slot: usize, descriptor: Descriptor) -> Option<NonNull<u8>>;
    /// An address to prefetch, unchecked.
    fn hint(self, slot: usize, descriptor: Descriptor) -> *const u8;
    /// Whether some of what was located has been zeros instead.
    fn is_lost(self) -> bool;
}

impl Locate for &PeerMemory {
    #[inline(always)]
    fn locate(self, _slot: usize, descriptor: Descriptor) -> Option<NonNull<u8>> {
        self.pointer(descriptor.region, descriptor.offset, descriptor.length)
    }

    #[inline(always)]
    fn hint(self, _slot: usize, descriptor: Descriptor) -> *const u8 {
        PeerMemory::hint(self, descriptor.region, descriptor.offset)
    }

    #[inline(always)]
    fn is_lost(self) -> bool {
        PeerMemory::is_lost(self)
    }
}

/// Which buffer a slot has is not for the other side to say.
impl Locate for OwnBuffers {
    #[inline(always)]
    fn locate(self, slot: usize, descriptor: Descriptor) -> Option<NonNull<u8>> {
        (descriptor.length <= self.room).then(|| self.pointer(slot))
    }

    #[inline(always)]
    fn hint(self, slot: usize, _descriptor: Descriptor) -> *const u8 {
        self.pointer(slot).as_ptr()
    }

    #[inline(always)]
    fn is_lost(self) -> bool {
        false
    }
}

pub(crate) struct MemifReceive {
    intake: Intake,
    link: Option<Open>,
    handover: Arc<Handover>,
    seen: u32,
    /// The other side sends events, since somebody may wait for them.
    armed: AtomicBool,
    /// Dropped last: the port's end.
    _membership: Arc<Membership>,
}

/// A ring in use.
struct Open {
    link: RingLink,
    /// The next descriptor to look at.
    next: u16,
    /// In the pool's buffers: those that the other side has.
    posted: Option<Posted>,
}

impl Open {
    /// Takes a ring into use, as its receiver.
    fn new(link: RingLink, region: &Region, start: u16) -> Self {
        let ring = link.ring;
        ring.want_events(false);
        let mut posted = None;
        match link.buffers {
            Buffers::Peer => ring.publish_tail(0),
            Buffers::Own(buffers) => {
                post(ring, buffers, 0, ring.size());
                ring.publish_head(ring.size());
            }
            Buffers::Pool => {
                posted.insert(Posted::new(region, start, ring.size(), &link.connection)).fill(ring);
            }
        }
        Self { link, next: 0, posted }
    }

    /// Descriptors that wait.
    #[inline(always)]
    fn waiting(&self) -> u16 {
        let ring = self.link.ring;
        let (waiting, most) = match (&self.link.buffers, &self.posted) {
            (Buffers::Peer, _) => (ring.head().wrapping_sub(self.next), ring.size()),
            (_, Some(posted)) => (ring.tail().wrapping_sub(posted.next()), posted.under_way()),
            (_, None) => (ring.tail().wrapping_sub(self.next), ring.size()),
        };
        if waiting <= most {
            return waiting;
        }
        self.link.connection.break_off(BAD_INDEX);
        0
    }
}

impl MemifReceive {
    pub(crate) fn new(region: Region, handover: Arc<Handover>, membership: Arc<Membership>) -> Self {
        Self {
            intake: Intake::new(region),
            link: None,
            handover,
            seen: 0,
            armed: AtomicBool::new(false),
            _membership: membership,
        }
    }

    #[cold]
    fn change_link(&mut self) {
        // What the former ring had of the pool is free first, and so is a client's pool.
        self.link = None;
        LaneThread::let_go();
        self.link = self
            .handover
            .get(&mut self.seen)
            .map(|link| Open::new(link, &self.intake.region, self.intake.region.start()));
        *self.armed.get_mut() = false;
    }

    #[cold]
    fn disarm(&mut self) {
        *self.armed.get_mut() = false;
        if let Some(open) = &self.link {
            open.link.ring.want_events(false);
            open.link.event.clear();
        }
    }
}

/// Where packets are copied to.
struct Intake {
    region: Region,
    indices: Box<[u32; BURST_CAPACITY]>,
    counters: QueueCounters<ReceiveDrop>,
}

impl Intake {
    fn new(region: Region) -> Self {
        Self { region, indices: Box::new([0; BURST_CAPACITY]), counters: QueueCounters::new() }
    }

    /// Copies packets out of `waiting` descriptors from `next` on. Returns at which it came to an end.
    #[inline]
    fn copy<L: Locate>(&mut self, burst: &mut Burst, ring: Ring, next: u16, waiting: u16, buffers: L) -> u16 {
        let wanted = burst.space().min(usize::from(waiting)).min(BURST_CAPACITY);
        let mut taken = self.region.take_raw(&mut self.indices[..wanted]);
        let (mut used, mut done) = (0, 0);
        let (before, mut bytes) = (burst.len(), 0);
        while used < taken && done < waiting {
            let plain = vector::run(Plain {
                region: &self.region,
                start: self.region.start(),
                room: self.region.data_size() as u32,
                burst,
                ring,
                first: next.wrapping_add(done),
                waiting: waiting - done,
                indices: &self.indices[used..taken],
                buffers,
            });
            used += usize::from(plain.packets);
            done += plain.packets;
            bytes += plain.bytes;
            if used == taken || done == waiting {
                break;
            }
            // The next one is not plain. It brings its own buffers, so one of those that were taken is left.
            let (count, packet) = self.copy_slowly(ring, next.wrapping_add(done), waiting - done, buffers);
            done += count;
            match packet {
                Ok(Some(packet)) => {
                    bytes += packet.packet_length() as u64;
                    taken -= 1;
                    // SAFETY: taken above and not used.
                    unsafe { self.region.free_raw(&self.indices[taken..=taken]) };
                    // There is room: no more buffers were taken than there were free places.
                    drop(burst.push(packet));
                }
                // The pool is empty: the packet waits.
                Ok(None) => break,
                Err((reason, found)) => self.counters.drops().count_found(reason, found.as_ref()),
            }
        }
        // SAFETY: taken above and not used.
        unsafe { self.region.free_raw(&self.indices[used..taken]) };
        if buffers.is_lost() {
            // Nobody knows which of them have zeros instead of data.
            self.counters.drops().count_packets(ReceiveDrop::CutShort, &burst[before..]);
            burst.truncate(before);
        } else {
            self.counters.count((burst.len() - before) as u64, bytes);
        }
        next.wrapping_add(done)
    }

    /// Copies a packet of several descriptors, or of more bytes than a buffer has, or says what is wrong with it. Returns how many
    /// descriptors it took.
    #[cold]
    fn copy_slowly<L: Locate>(
        &self,
        ring: Ring,
        first: u16,
        waiting: u16,
        buffers: L,
    ) -> (u16, Result<Option<Packet>, Wrong>) {
        let Some(mut gather) = Gather::new(self.region.pool()) else { return (0, Ok(None)) };
        let (mut count, mut total, mut wrong) = (0, 0, None);
        loop {
            if count == waiting {
                wrong.get_or_insert(ReceiveDrop::Incomplete);
                break;
            }
            let index = first.wrapping_add(count);
            let descriptor = ring.read(index);
            count += 1;
            total += descriptor.length as usize;
            match buffers.locate(ring.slot(index), descriptor) {
                _ if wrong.is_some() => {}
                None => wrong = Some(ReceiveDrop::BadDescriptor),
                Some(_) if total > LONGEST_PACKET => wrong = Some(ReceiveDrop::TooLarge),
                Some(address) => {
                    // SAFETY: `locate` says that so many bytes are there; the connection keeps them mapped.
                    let data = unsafe { shared(address, descriptor.length as usize) };
                    match gather.append(data) {
                        Ok(()) => {}
                        Err(Ungathered::NoBuffer) => return (0, Ok(None)),
                        Err(Ungathered::TooLarge) => wrong = Some(ReceiveDrop::TooLarge),
                    }
                }
            }
            if descriptor.flags & NEXT == 0 {
                break;
            }
            // DPDK 22.11 sets the flag where a packet goes on, and does not clear it when it uses the descriptor again.
            ring.write_filled(index, Descriptor { flags: 0, ..descriptor });
        }
        let whole = gather.finish().ok();
        let result = match (wrong, whole) {
            (None, Some(whole)) => Ok(Some(whole)),
            (wrong, found) => Err((wrong.unwrap_or(ReceiveDrop::TooLarge), found)),
        };
        (count, result)
    }
}

/// What [`Plain`] did.
struct Copied {
    packets: u16,
    bytes: u64,
}

/// Copies packets that are one descriptor each and fit a buffer, up to the first that isn't so.
struct Plain<'a, L> {
    region: &'a Region,
    start: u16,
    room: u32,
    burst: &'a mut Burst,
    ring: Ring,
    first: u16,
    waiting: u16,
    indices: &'a [u32],
    buffers: L,
}

impl<L: Locate> Work for Plain<'_, L> {
    type Output = Copied;

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) -> Copied {
        let Self { region, start, room, burst, ring, first, waiting, indices, buffers } = self;
        let (base, offsets) = (region.address(), region.offsets());
        let hint = |ahead: u16| {
            let index = first.wrapping_add(ahead);
            prefetch_read_at(buffers.hint(ring.slot(index), ring.read(index)));
        };
        for ahead in 0..AHEAD.min(waiting) {
            hint(ahead);
        }
        let mut bytes = 0;
        let numbers = (0..waiting).zip(indices);
        let spans = numbers.map_while(|(number, &buffer)| {
            if number + AHEAD < waiting {
                hint(number + AHEAD);
            }
            let index = first.wrapping_add(number);
            let descriptor = ring.read(index);
            if descriptor.flags & NEXT != 0 || descriptor.length > room {
                return None;
            }
            let source = buffers.locate(ring.slot(index), descriptor)?;
            let length = descriptor.length as usize;
            // SAFETY: `locate` says that so many bytes are there, and the connection keeps them mapped. The buffer was taken by
            // this queue, so nobody else uses it, and has `room` bytes from `start`; the two are in different mappings.
            unsafe {
                let target = base.add(offsets.of(buffer) as usize + usize::from(start));
                let target = std::slice::from_raw_parts_mut(target.as_ptr(), length);
                vector.copy(target, shared(source, length));
            }
            bytes += u64::from(descriptor.length);
            Some(Span { index: buffer, offset: start, length: length as u16 })
        });
        // SAFETY: the buffers were taken and each is named once, as the loop ends at the first that is not used; spans are inside, and
        // no more than there is room for in the burst.
        let packets = unsafe { region.packets_from_raw(spans, burst) };
        Copied { packets: packets as u16, bytes }
    }
}

/// Gives a ring's own buffers to the other side, from index `first` on.
#[inline]
fn post(ring: Ring, buffers: OwnBuffers, first: u16, count: u16) {
    for number in 0..count {
        let index = first.wrapping_add(number);
        ring.write(index, buffers.descriptor(ring.slot(index), buffers.room, 0));
    }
}

impl ReceiveQueue for MemifReceive {
    #[inline]
    fn receive(&mut self, burst: &mut Burst) -> usize {
        if self.handover.has_changed(self.seen) {
            self.change_link();
        }
        if *self.armed.get_mut() {
            self.disarm();
        }
        let Some(open) = &mut self.link else { return 0 };
        let before = burst.len();
        let (ring, next, waiting) = (open.link.ring, open.next, open.waiting());
        match (open.link.buffers, &mut open.posted) {
            (_, Some(posted)) => {
                if waiting == 0 {
                    posted.nothing();
                } else {
                    posted.receive(burst, ring, waiting, &self.intake.counters);
                }
                posted.fill(ring);
            }
            _ if waiting == 0 => {}
            (Buffers::Own(buffers), None) => {
                let end = self.intake.copy(burst, ring, next, waiting, buffers);
                post(ring, buffers, next, end.wrapping_sub(next));
                // The other side has all of them again.
                ring.publish_head(end.wrapping_add(ring.size()));
                open.next = end;
            }
            (Buffers::Peer | Buffers::Pool, None) if let Some(exchange) = &open.link.connection.exchange => {
                let counters = &self.intake.counters;
                let dropped = |reason, found: Option<&Packet>| counters.drops().count_found(reason, found);
                match exchange.receive_as_server(burst, ring, next, waiting, dropped) {
                    Ok((done, bytes)) => {
                        open.next = next.wrapping_add(done);
                        ring.publish_tail(open.next);
                        counters.count((burst.len() - before) as u64, bytes);
                    }
                    Err(NotTheirs) => open.link.connection.break_off(NOT_THEIRS),
                }
            }
            (Buffers::Peer | Buffers::Pool, None) => {
                let end = self.intake.copy(burst, ring, next, waiting, &open.link.connection.peer);
                ring.publish_tail(end);
                open.next = end;
            }
        }
        burst.len() - before
    }

    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        let open = self.link.as_ref()?;
        self.armed.store(true, Ordering::Relaxed);
        open.link.ring.want_events(true);
        // What came before the other side could know that events are wanted is not told of.
        (open.waiting() == 0).then(|| open.link.event.fd().as_fd())
    }

    queue_report!(always running, intake.counters);
}
