//! What comes in: the card fills buffers in the order of their descriptors, and is given each again as soon as its frame is copied; or another one of the pool, if it
//! fills those.

use super::counters::CardCountersView;
use super::descriptor::{HEADER_BYTES, Received};
use super::drops::ReceiveDrop;
use super::lent::{AT_ONCE, Lent, are_all_there, before_none};
use super::look::{DescriptorWords, plain_frames};
use super::memory::{BUFFER_BYTES, RingMemory, Side};
use super::queue::Queue;
use super::rings::{Broken, PortEnd, Rings};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use warmlane_counters::Source;
use warmlane_driver_common::SharedPool;
use warmlane_driver_common::peer::shared;
use warmlane_driver_common::{Gather, Ungathered};
use warmlane_mem::{BURST_CAPACITY, Burst, Checksum, Packet, Region, Span, bytes_of};
use warmlane_port::{QueueCounters, ReceiveQueue, queue_report};
use warmlane_sys::prefetch::{prefetch_read_at, prefetch_write_at};
use warmlane_sys::simd::{self, Level};
use warmlane_sys::vector::{self, Vector, Work};

/// The card is told of descriptors that it has again when there are this many: a register is far away.
const REFILL: u16 = 32;

/// How many frames ahead data is fetched.
const AHEAD: usize = 8;

/// Buffers of one frame at most: the 82574 receives none of more than 16,384 bytes (10.2.5.1), the 82576 none of more than 9,728.
const MAXIMUM_PIECES: usize = 16_384 / BUFFER_BYTES as usize + 1;

const BAD_LENGTH: Broken = Broken("a frame with more bytes than its buffer has");
const ENDLESS: Broken = Broken("a frame in more buffers than there can be");

/// The ring that the card fills.
#[derive(Debug)]
pub(crate) struct ReceiveRing<Q> {
    memory: Arc<RingMemory>,
    queue: Q,
    /// The next that the card is to be done with.
    next: u16,
    /// The first behind it that is not ready for the card.
    end: u16,
    /// The buffers are the pool's, and these are the card's.
    lent: Option<Lent>,
    /// The first that isn't the card's, as far as it knows: one is always left out, or a full ring would look like an empty one.
    tail: u16,
    /// The instructions by which descriptors are looked at.
    pub(crate) level: Level,
}

/// What became of a frame that is not plain.
enum Slow {
    Packet(Packet),
    Dropped(ReceiveDrop),
    /// The pool is empty: the frame waits.
    NoBuffer,
    /// It isn't there, or not all of it.
    Nothing,
}

/// Where packets are copied to.
pub(crate) struct Intake {
    region: Region,
    indices: Box<[u32; BURST_CAPACITY]>,
    heads: Box<[Received; BURST_CAPACITY]>,
    counters: QueueCounters<ReceiveDrop>,
}

impl Intake {
    pub(crate) fn new(region: Region) -> Self {
        Self {
            region,
            indices: Box::new([0; BURST_CAPACITY]),
            heads: Box::new([Received::default(); BURST_CAPACITY]),
            counters: QueueCounters::new(),
        }
    }
}

impl<Q: Queue> ReceiveRing<Q> {
    /// Gives the card, which receives and has nothing yet, all descriptors; with buffers of the pool, if it is to fill those.
    pub(crate) fn new(memory: &Arc<RingMemory>, queue: Q, pool: Option<&Arc<SharedPool>>) -> Self {
        let lent = pool.map(|pool| Lent::new(pool, memory.size()));
        let (memory, level) = (Arc::clone(memory), simd::detected());
        let mut ring = Self { memory, queue, next: 0, end: 0, lent, tail: 0, level };
        ring.fill(1);
        ring.tell(1);
        ring
    }

    /// Buffers of the pool that the card has.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn lent(&self) -> usize {
        self.lent.as_ref().map_or(0, Lent::count)
    }

    /// How many the card has, as far as it knows.
    #[inline(always)]
    fn posted(&self) -> u16 {
        self.tail.wrapping_sub(self.next) & self.memory.mask()
    }

    /// Makes descriptors ready whose buffers are taken, if there are so many, and as far as the pool has other ones.
    #[inline]
    fn fill(&mut self, least: u16) {
        let mask = self.memory.mask();
        // One is left out.
        let mut missing = mask - (self.end.wrapping_sub(self.next) & mask);
        if missing < least {
            return;
        }
        let Some(mut lent) = self.lent.take() else {
            for ahead in 0..missing {
                let position = self.end.wrapping_add(ahead);
                let address = self.memory.buffer_address(Side::Receive, position);
                renew(self.memory.words(Side::Receive, position), address);
            }
            self.end = self.next.wrapping_sub(1) & mask;
            return;
        };
        let mut indices = [0; AT_ONCE];
        let (region, mut slots) = lent.parts();
        let start = region.start();
        while missing > 0 {
            let wanted = usize::from(missing).min(AT_ONCE);
            let taken = region.take_raw(&mut indices[..wanted]);
            slots.lend_all(self.end, &indices[..taken]);
            let [ahead, behind] = self.memory.descriptors_from(Side::Receive, self.end, taken);
            let (first, rest) = indices[..taken].split_at(ahead.len());
            for (descriptors, indices) in [(ahead, first), (behind, rest)] {
                for (words, &index) in descriptors.iter().zip(indices) {
                    renew(words, slots.address(index, start));
                }
            }
            self.end = self.end.wrapping_add(taken as u16) & mask;
            if taken < wanted {
                break;
            }
            missing -= taken as u16;
        }
        self.lent = Some(lent);
    }

    /// Takes so many back from the card, whose frames are copied or dropped.
    #[inline]
    fn skip(&mut self, count: u16) {
        if let Some(lent) = &mut self.lent {
            lent.free(self.next, count);
        }
        self.next = self.next.wrapping_add(count) & self.memory.mask();
    }

    /// Gives the card all that are ready, if there are so many.
    #[inline]
    fn tell(&mut self, least: u16) {
        if self.end.wrapping_sub(self.tail) & self.memory.mask() >= least {
            // Behind all that was stored: registers are in order with memory.
            self.queue.set_receive_tail(self.end);
            self.tail = self.end;
        }
    }

    /// The next but so many, if the card had it and is done with it. Read once: what is decided on is a copy.
    #[inline(always)]
    fn done(&self, ahead: u16) -> Option<Received> {
        if ahead >= self.posted() {
            return None;
        }
        let position = self.next.wrapping_add(ahead);
        // Acquire: the frame is read behind it.
        let word = self.memory.status(Side::Receive, position).load(Ordering::Acquire);
        Some(Received(word)).filter(|received| received.is_done())
    }

    /// Finds frames that are one buffer each and need no closer look, up to the first that isn't so.
    #[inline]
    fn plain(&self, room: u16, heads: &mut [Received]) -> usize {
        let most = heads.len().min(self.posted().into());
        let (behind, ahead) = self.memory.descriptors(Side::Receive).split_at(self.next.into());
        // Up to the ring's end, and from its start.
        let to_end = ahead.len().min(most);
        let mut found = plain_frames(self.level, &ahead[..to_end], room, &mut heads[..to_end]);
        if found == to_end {
            found += plain_frames(self.level, &behind[..most - to_end], room, &mut heads[to_end..most]);
        }
        found
    }

    /// Takes what there is, as far as the burst has space and the pool buffers.
    #[inline]
    pub(crate) fn receive(&mut self, burst: &mut Burst, intake: &mut Intake) -> Result<(), Broken> {
        let room = intake.region.data_size().min(usize::from(BUFFER_BYTES)) as u16;
        while burst.space() > 0 {
            let wanted = burst.space().min(BURST_CAPACITY);
            let found = self.plain(room, &mut intake.heads[..wanted]);
            if found == 0 {
                match self.slowly(&intake.region)? {
                    // There is space.
                    Slow::Packet(packet) => drop(burst.push(packet)),
                    Slow::Dropped(reason) => intake.counters.drops().count(reason, 1),
                    Slow::NoBuffer | Slow::Nothing => break,
                }
                continue;
            }
            let before = burst.len();
            let taken = if let Some(lent) = &mut self.lent {
                take_lent(lent, self.next, &intake.heads[..found], &mut *intake.indices, burst)
            } else {
                let taken = intake.region.take_raw(&mut intake.indices[..found]);
                vector::run(Copies {
                    region: &intake.region,
                    memory: &self.memory,
                    first: self.next,
                    heads: &intake.heads[..taken],
                    indices: &intake.indices[..taken],
                    burst,
                });
                taken
            };
            for (packet, head) in burst[before..].iter_mut().zip(&intake.heads[..taken]) {
                if head.checksum() == Checksum::Good {
                    packet.set_checksum(Checksum::Good);
                }
            }
            // No more than a burst has.
            self.next = self.next.wrapping_add(taken as u16) & self.memory.mask();
            if taken < found {
                break;
            }
        }
        let least = REFILL.max(self.memory.size() / 8).min(self.memory.size() / 4);
        self.fill(least);
        self.tell(least);
        Ok(())
    }

    /// Takes the next frame, whatever it looks like.
    #[inline(never)]
    fn slowly(&mut self, region: &Region) -> Result<Slow, Broken> {
        let mut lengths = [0; MAXIMUM_PIECES];
        let mut pieces = 0;
        let last = loop {
            let Some(received) = self.done(pieces as u16) else { return Ok(Slow::Nothing) };
            if received.length() > BUFFER_BYTES {
                return Err(BAD_LENGTH);
            }
            lengths[pieces] = received.length();
            pieces += 1;
            if received.is_end() {
                break received;
            }
            if pieces == MAXIMUM_PIECES {
                return Err(ENDLESS);
            }
        };
        let result = self.gather(region, &lengths[..pieces], last);
        if !matches!(result, Slow::NoBuffer) {
            self.skip(pieces as u16);
        }
        Ok(result)
    }

    /// Makes a packet of the next buffers, which have so many bytes each.
    fn gather(&self, region: &Region, lengths: &[u16], last: Received) -> Slow {
        if last.is_damaged() {
            return Slow::Dropped(ReceiveDrop::Damaged);
        }
        if lengths.iter().map(|length| u32::from(*length)).sum::<u32>() < u32::from(HEADER_BYTES) {
            return Slow::Dropped(ReceiveDrop::Runt);
        }
        let Some(mut packet) = Gather::new(region.pool()) else { return Slow::NoBuffer };
        for (ahead, &length) in lengths.iter().enumerate() {
            let position = self.next.wrapping_add(ahead as u16);
            let buffer = match &self.lent {
                None => self.memory.buffer(Side::Receive, position),
                Some(lent) => match lent.data(position) {
                    Some(buffer) => buffer,
                    // That can't be: each descriptor that the card was told of has one.
                    None => return Slow::Dropped(ReceiveDrop::TooLarge),
                },
            };
            // SAFETY: a buffer has BUFFER_BYTES (`lent::is_possible`), and `slowly` saw that the length is no more; the ring holds the memory.
            let data = unsafe { shared(buffer, usize::from(length)) };
            match packet.append(data) {
                Ok(()) => {}
                Err(Ungathered::NoBuffer) => return Slow::NoBuffer,
                Err(Ungathered::TooLarge) => return Slow::Dropped(ReceiveDrop::TooLarge),
            }
        }
        match packet.finish() {
            Ok(mut packet) => {
                packet.set_checksum(last.checksum());
                Slow::Packet(packet)
            }
            Err(_) => Slow::Dropped(ReceiveDrop::TooLarge),
        }
    }

    /// Has the card interrupt when it receives something from now on. Says whether something waits already, of which it won't.
    fn arm(&mut self) -> bool {
        self.fill(1);
        self.tell(1);
        // What the card receives before it hears of it interrupts nobody, so only then is it looked for.
        self.queue.arm();
        self.done(0).is_some()
    }

    fn disarm(&self) {
        self.queue.disarm();
    }
}

/// Makes a descriptor what the card reads: where its buffer is.
#[inline(always)]
fn renew([first, second]: &DescriptorWords, address: u64) {
    // Relaxed: `tell` is in order with all of them.
    first.store(address, Ordering::Relaxed);
    second.store(0, Ordering::Relaxed);
}

/// Makes packets of frames that are one buffer of the pool each. Returns how many.
#[inline]
fn take_lent(
    lent: &mut Lent,
    first: u16,
    heads: &[Received],
    indices: &mut [u32],
    burst: &mut Burst,
) -> usize {
    let (region, mut slots) = lent.parts();
    let (start, base, offsets) = (region.start(), region.address().as_ptr(), region.offsets());
    // The headers are read and rewritten soon.
    let fetch =
        |index: u32| prefetch_write_at(base.wrapping_add(offsets.of(index) as usize + usize::from(start)));
    let indices = &mut indices[..heads.len()];
    slots.take_back(first, indices);
    let count = if are_all_there(indices) { indices.len() } else { before_none(indices) };
    let (indices, others) = indices.split_at(count);
    slots.lend_all(first.wrapping_add(count as u16), others);
    indices.iter().copied().for_each(fetch);
    let spans =
        indices.iter().zip(heads).map(|(&index, head)| Span { index, offset: start, length: head.length() });
    // SAFETY: the buffers were taken, and lent until now, each to one descriptor, which the card is done with; the frames are plain, and so no longer than there is
    // behind `start` (`lent::is_possible`), and no more than there is space for in the burst.
    unsafe { region.packets_from_raw(spans, burst) }
}

/// Copies frames that are one buffer each.
struct Copies<'a> {
    region: &'a Region,
    memory: &'a RingMemory,
    first: u16,
    heads: &'a [Received],
    indices: &'a [u32],
    burst: &'a mut Burst,
}

impl Work for Copies<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) -> usize {
        let Self { region, memory, first, heads, indices, burst } = self;
        let (base, offsets, start) = (region.address(), region.offsets(), region.start());
        let source = |number: usize| memory.buffer(Side::Receive, first.wrapping_add(number as u16));
        let fetch = |number: usize| {
            if number < heads.len() {
                let data = source(number).as_ptr();
                prefetch_read_at(data);
                prefetch_read_at(data.wrapping_add(64));
            }
        };
        (0..AHEAD).for_each(fetch);
        let spans = heads.iter().zip(indices).enumerate().map(|(number, (head, &index))| {
            fetch(number + AHEAD);
            let length = usize::from(head.length());
            // SAFETY: the frame is plain (`plain`), so its length is no more than its buffer has, and no more than there is behind `start` in a buffer of the pool,
            // which was taken by this queue, so nobody else uses it. The two are in different mappings.
            unsafe {
                let target = base.add(offsets.of(index) as usize + usize::from(start));
                let target = std::slice::from_raw_parts_mut(target.as_ptr(), length);
                vector.copy(target, shared(source(number), length));
            }
            Span { index, offset: start, length: head.length() }
        });
        // SAFETY: the buffers were taken and each is named once; spans are inside, and no more than there is space for in the burst.
        unsafe { region.packets_from_raw(spans, burst) }
    }
}

/// The queue of a port. The ring behind it comes and goes with the card.
pub(crate) struct CardReceive<Q> {
    rings: Arc<Rings<Q>>,
    intake: Intake,
    /// What the card counts, by one of its queues.
    card: Option<CardCountersView>,
    /// The card interrupts when it receives something, since somebody may wait.
    is_armed: bool,
    /// Dropped last: the port's end.
    _end: PortEnd,
}

impl<Q: Queue> CardReceive<Q> {
    pub(crate) fn new(
        rings: Arc<Rings<Q>>,
        region: Region,
        card: Option<CardCountersView>,
        end: PortEnd,
    ) -> Self {
        Self { rings, intake: Intake::new(region), card, is_armed: false, _end: end }
    }

    #[cold]
    fn disarm(&mut self) {
        self.is_armed = false;
        if let Some(ring) = &*self.rings.receive.lock() {
            ring.disarm();
        }
        self.rings.received.clear();
    }
}

impl<Q: Queue> ReceiveQueue for CardReceive<Q> {
    #[inline]
    fn receive(&mut self, burst: &mut Burst) -> usize {
        if self.is_armed {
            self.disarm();
        }
        // Not while the card is being changed.
        let Some(mut place) = self.rings.receive.try_lock() else { return 0 };
        let Some(ring) = &mut *place else { return 0 };
        let before = burst.len();
        if let Err(broken) = ring.receive(burst, &mut self.intake) {
            self.rings.break_off(&mut *place, broken);
        }
        drop(place);
        let received = burst.len() - before;
        if received > 0 {
            let bytes = bytes_of(&burst[before..]);
            self.intake.counters.count(received as u64, bytes);
        }
        received
    }

    fn event(&mut self) -> Option<BorrowedFd<'_>> {
        self.is_armed = true;
        // While there is no ring, the event is signalled when there is one.
        let waits = self.rings.receive.lock().as_mut().is_some_and(ReceiveRing::arm);
        (!waits).then(|| self.rings.received.fd().as_fd())
    }

    queue_report!(always running, intake.counters);

    fn own_counters(&self) -> Vec<Box<dyn Source>> {
        self.card.iter().map(|card| Box::new(card.clone()) as Box<dyn Source>).collect()
    }
}
