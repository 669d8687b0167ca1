//! The driver's side of a ring, with buffers of its own in memory that it lends to the device.
//!
//! There are as many buffers as the ring has descriptors, and each is this side's or the device's. In their place the device can have buffers of a [pool](PoolBuffers). Which ones is remembered here: what the
//! device says of a buffer is believed if it has that buffer, and no longer than the buffer is.

mod packed;
mod pool;
mod restart;
mod split;

use super::collector::Collector;
use super::receive::Filled;
use super::side::{Ahead, Broken, Chain, HEADS, MAXIMUM_PARTS, Part, Side};
use crate::memory::Addresses;
use crate::ring::{Descriptor, NEXT, WRITE};
pub(crate) use packed::PackedDriverRing;
pub(crate) use pool::PoolBuffers;
pub(crate) use split::SplitDriverRing;
use warmlane_mem::Burst;

const BAD_NUMBER: Broken = Broken("a used buffer that the ring doesn't have");
const NOT_LENT: Broken = Broken("a used buffer that was not available");
const BAD_LENGTH: Broken = Broken("more bytes written than a buffer has");
const BAD_COUNT: Broken = Broken("a packet in more buffers than there can be");

/// Where the number of buffers is in the header of a packet that may be spread (section 5.1.6).
const BUFFERS_OFFSET: usize = 10;
const NUMBERED_HEADER: u32 = 12;

/// The ring itself, of either format.
pub(crate) trait DriverRing {
    /// Takes used buffers, at most so many, as long as `take` says of each that it is one descriptor, and taken. Each is given by its name,
    /// and how many bytes were written to it.
    fn take_used(&mut self, most: u16, take: impl FnMut(u32, u32) -> bool) -> Result<(), Broken>
    where
        Self: Sized;

    /// The next buffer that was used, by its name, and how many bytes were written to it; it stays the next one.
    fn next_used(&mut self) -> Result<Option<(u32, u32)>, Broken>;

    /// Goes on behind so many used buffers, which had so many descriptors together.
    fn skip_used(&mut self, buffers: u16, descriptors: u16) -> Result<(), Broken>;

    /// What the device wrote before it said that buffers were used is there.
    fn acquire(&self);

    /// Makes a part of a buffer available.
    fn post(&mut self, post: Post);

    /// Makes several available.
    fn post_all(&mut self, posts: impl Iterator<Item = Post>)
    where
        Self: Sized;

    /// Makes several available that are whole, and elsewhere than they were before.
    fn post_fresh(&mut self, posts: impl Iterator<Item = Post>)
    where
        Self: Sized;

    /// The device may see what was posted.
    fn publish(&mut self);

    /// Whether something was published since the device was asked last.
    fn has_news(&self) -> bool;

    /// Whether the device wants to be told of it.
    fn device_wants_event(&mut self) -> bool;

    /// Says whether the device is to tell of used buffers.
    fn want_events(&mut self, wanted: bool);
}

/// A part of a buffer that is made available.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Post {
    /// Which buffer of ours it is.
    pub(crate) number: u16,
    /// The number of the first part, which is the buffer's name.
    pub(crate) name: u16,
    /// Where it is.
    pub(crate) address: u64,
    /// Bytes.
    pub(crate) length: u32,
    /// [`NEXT`], [`WRITE`].
    pub(crate) flags: u16,
    /// With [`NEXT`]: the number of the part that is posted next.
    pub(crate) next: u16,
}

/// Where a ring's buffers are, and what they are for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buffers {
    /// The address of the first.
    pub(crate) address: u64,
    /// From one to the next.
    pub(crate) stride: u32,
    /// Bytes that each holds.
    pub(crate) room: u32,
    /// How many; a power of two.
    pub(crate) count: u16,
    /// The device fills them; else this side does.
    pub(crate) is_filled_by_device: bool,
    /// A packet for this side may be spread over several.
    pub(crate) is_mergeable: bool,
    /// The device uses them in order, and may leave out all but the last of several.
    pub(crate) is_in_order: bool,
}

impl Buffers {
    /// Where a buffer is.
    #[inline(always)]
    const fn place(&self, number: u16) -> u64 {
        self.address + number as u64 * self.stride as u64
    }
}

/// A buffer that is this side's.
#[derive(Clone, Copy, Debug, Default)]
struct Mine {
    number: u16,
    length: u32,
}

/// A part of a buffer that the device has, and what is known of the buffer if it is the first.
#[derive(Clone, Copy, Debug, Default)]
struct Lent {
    /// How many parts there are. 0: the device has no buffer of this name.
    parts: u16,
    /// Counts up with each buffer, and wraps.
    stamp: u16,
    /// Which part is behind this one, if one is.
    next: u16,
    /// Of this part.
    length: u16,
}

/// A driver at a ring.
#[derive(Debug)]
pub(crate) struct Driver<R> {
    ring: R,
    buffers: Buffers,
    /// A circle of all. From `first` to `end` are those that are this side's: filled ones, or free ones. If the device uses them in order, the
    /// others are those that it has, by their parts, the oldest first: so they stay where they are when they come back.
    mine: Box<[Mine]>,
    first: u16,
    end: u16,
    /// By numbers; a buffer's name is the number of its first part.
    lent: Box<[Lent]>,
    /// The stamp of the next one that is lent.
    stamp: u16,
    /// The packet under way: its name, and how many parts were posted.
    open: Option<(u16, u16)>,
    /// So many have to be there before anything goes on.
    needed: u16,
    /// What the device has in place of the ring's own buffers: always where it fills them, and else of what is not copied.
    pool: Option<PoolBuffers>,
}

impl<R: DriverRing> Driver<R> {
    pub(crate) fn new(ring: R, buffers: Buffers) -> Self {
        Self::with(ring, buffers, None)
    }

    /// With a pool that the device reaches. `None`: that has too few buffers left.
    pub(crate) fn lending(ring: R, mut buffers: Buffers, mut pool: PoolBuffers) -> Option<Self> {
        if buffers.is_filled_by_device {
            buffers.room = pool.room();
            if !pool.fill() {
                return None;
            }
        }
        Some(Self::with(ring, buffers, Some(pool)))
    }

    fn with(ring: R, buffers: Buffers, pool: Option<PoolBuffers>) -> Self {
        let count = usize::from(buffers.count);
        let mine = (0..buffers.count).map(|number| Mine { number, length: buffers.room }).collect();
        let mut driver = Self {
            ring,
            buffers,
            mine,
            first: 0,
            end: buffers.count,
            lent: vec![Lent::default(); count].into(),
            stamp: 0,
            open: None,
            needed: 0,
            pool,
        };
        driver.want_events(false);
        if buffers.is_filled_by_device {
            driver.give_back(0, buffers.count, 0, false);
            driver.publish();
        }
        driver
    }

    #[inline(always)]
    const fn count_mine(&self) -> u16 {
        self.end.wrapping_sub(self.first)
    }

    /// Where in the circle an index is.
    #[inline(always)]
    fn place(&self, index: u16) -> usize {
        usize::from(index) & (self.mine.len() - 1)
    }

    #[inline(always)]
    fn at(&self, ahead: u16) -> Mine {
        self.mine[self.place(self.first.wrapping_add(ahead))]
    }

    /// The pool, if the device fills its buffers.
    #[inline(always)]
    fn filled_pool(&self) -> Option<&PoolBuffers> {
        self.pool.as_ref().filter(|_| self.buffers.is_filled_by_device)
    }

    #[inline(always)]
    fn address(&self, number: u16) -> u64 {
        match self.filled_pool() {
            None => self.buffers.place(number),
            Some(pool) => pool.address(number),
        }
    }

    /// Takes used buffers back until there are so many, or no more of them.
    #[inline]
    fn reap(&mut self, wanted: u16) -> Result<(), Broken> {
        let before = self.end;
        loop {
            self.reap_whole(wanted.saturating_sub(self.count_mine()))?;
            if self.count_mine() >= wanted {
                break;
            }
            let Some((name, length)) = self.ring.next_used()? else { break };
            self.take_several(name, length)?;
        }
        if self.end != before {
            self.ring.acquire();
            if !self.buffers.is_filled_by_device {
                self.free_back(before);
            }
        }
        Ok(())
    }

    /// Frees buffers of the pool that were sent, of those that are this side's from an index on.
    #[inline(always)]
    fn free_back(&mut self, from: u16) {
        let Self { pool: Some(pool), mine, end, .. } = self else { return };
        let count = end.wrapping_sub(from);
        let place = |ahead| usize::from(from.wrapping_add(ahead)) & (mine.len() - 1);
        pool.free((0..count).map(|ahead| mine[place(ahead)].number));
    }

    /// Takes back buffers of one part, at most so many, up to the first that is not so, or not the next in order.
    #[inline(always)]
    fn reap_whole(&mut self, most: u16) -> Result<(), Broken> {
        let Self { ring, mine, lent, buffers, .. } = self;
        let Buffers { room, is_in_order, is_filled_by_device, .. } = *buffers;
        let mut end = self.end;
        let result = ring.take_used(most, |name, length| {
            let place = usize::from(end) & (mine.len() - 1);
            let (Some(lent), Some(mine)) = (lent.get_mut(name as usize), mine.get_mut(place)) else {
                return false;
            };
            let is_next = !is_in_order || u32::from(mine.number) == name;
            if lent.parts != 1 || !is_next || length > room {
                return false;
            }
            lent.parts = 0;
            *mine = Mine { number: name as u16, length: if is_filled_by_device { length } else { room } };
            end = end.wrapping_add(1);
            true
        });
        self.end = end;
        result
    }

    /// What is not one buffer of one part, the next in order; or nothing that can be.
    #[cold]
    fn take_several(&mut self, name: u32, length: u32) -> Result<(), Broken> {
        if name >= u32::from(self.buffers.count) {
            return Err(BAD_NUMBER);
        }
        if length > self.buffers.room {
            return Err(BAD_LENGTH);
        }
        let name = name as u16;
        let (buffers, descriptors) = if self.buffers.is_in_order {
            self.take_up_to(name, length)?
        } else {
            (1, self.take_back(name, length)?)
        };
        self.ring.skip_used(buffers, descriptors)
    }

    /// All that were made available before this one, and this one. Those that were left out were used whole (sections 2.7.9 and 2.8.9).
    fn take_up_to(&mut self, last: u16, length: u32) -> Result<(u16, u16), Broken> {
        let (mut buffers, mut descriptors) = (0, 0);
        while self.count_mine() < self.buffers.count {
            let name = self.mine[self.place(self.end)].number;
            let length = if name == last { length } else { self.buffers.room };
            buffers += 1;
            descriptors += self.take_back(name, length)?;
            if name == last {
                return Ok((buffers, descriptors));
            }
        }
        Err(NOT_LENT)
    }

    /// One buffer with all its parts. Returns how many those are.
    fn take_back(&mut self, name: u16, length: u32) -> Result<u16, Broken> {
        let parts = std::mem::take(&mut self.lent[usize::from(name)].parts);
        if parts == 0 {
            return Err(NOT_LENT);
        }
        let mut number = name;
        for _ in 0..parts {
            self.put_back(number, length);
            number = self.lent[usize::from(number)].next;
        }
        Ok(parts)
    }

    /// A part is this side's again. The device has written `length` bytes to it, if it fills any.
    fn put_back(&mut self, number: u16, length: u32) {
        let length = if self.buffers.is_filled_by_device { length } else { self.buffers.room };
        let place = self.place(self.end);
        self.mine[place] = Mine { number, length };
        self.end = self.end.wrapping_add(1);
    }

    /// Posts the next of this side's as whole buffers: these numbers and lengths.
    #[inline(always)]
    fn post_whole(&mut self, buffers: impl Iterator<Item = (u16, u32)>, flags: u16) {
        let own = self.buffers;
        let pool = self.pool.as_ref().filter(|_| own.is_filled_by_device);
        let (lent, before) = (&mut *self.lent, self.stamp);
        let mut stamp = before;
        let mut post = |address, number, length| {
            let lent = &mut lent[usize::from(number)];
            // A buffer has less than 2^16 bytes; and nothing is behind its only part.
            (lent.parts, lent.stamp, lent.length) = (1, stamp, length as u16);
            stamp = stamp.wrapping_add(1);
            Post { number, name: number, address, length, flags, next: 0 }
        };
        match pool {
            None => {
                self.ring.post_all(buffers.map(|(number, length)| post(own.place(number), number, length)));
            }
            Some(pool) => {
                let posts = buffers.map(|(number, length)| post(pool.address(number), number, length));
                self.ring.post_fresh(posts);
            }
        }
        self.first = self.first.wrapping_add(stamp.wrapping_sub(before));
        self.stamp = stamp;
    }

    /// Posts the next of this side's as a part of a buffer.
    #[inline(never)]
    fn post_part(&mut self, length: u32, flags: u16, goes_on: bool) {
        let Mine { number, .. } = self.at(0);
        self.first = self.first.wrapping_add(1);
        let next = if goes_on { self.at(0).number } else { 0 };
        self.lent[usize::from(number)] = Lent { parts: 0, stamp: 0, next, length: length as u16 };
        let (name, parts) = self.open.take().map_or((number, 1), |(name, parts)| (name, parts + 1));
        let flags = flags | if goes_on { NEXT } else { 0 };
        self.ring.post(Post { number, name, address: self.address(number), length, flags, next });
        if goes_on {
            self.open = Some((name, parts));
            return;
        }
        self.lend(name, parts);
    }

    /// The device has this buffer, of so many parts.
    fn lend(&mut self, name: u16, parts: u16) {
        let lent = &mut self.lent[usize::from(name)];
        (lent.parts, lent.stamp) = (parts, self.stamp);
        self.stamp = self.stamp.wrapping_add(1);
    }

    /// Over how many buffers the packet is spread that starts so many behind the next one.
    fn spread(&self, ahead: u16, addresses: &mut Addresses<'_>) -> Result<u16, Broken> {
        let Mine { number, length } = self.at(ahead);
        if !self.buffers.is_mergeable || length < NUMBERED_HEADER {
            return Ok(1);
        }
        let pointer = addresses.pointer(self.address(number), NUMBERED_HEADER).ok_or(BAD_NUMBER)?;
        // SAFETY: inside what was found, which stays mapped while the addresses are borrowed.
        let count = unsafe { pointer.add(BUFFERS_OFFSET).cast::<[u8; 2]>().read_volatile() };
        let count = u16::from_ne_bytes(count);
        let is_possible = (1..=self.buffers.count.min(MAXIMUM_PARTS as u16)).contains(&count);
        if is_possible { Ok(count) } else { Err(BAD_COUNT) }
    }
}

impl<R: DriverRing> Side for Driver<R> {
    #[inline(always)]
    fn look(&mut self, heads: &mut [Descriptor]) -> Result<usize, Broken> {
        let wanted = heads.len().min(HEADS) as u16;
        if self.count_mine() < wanted.max(self.needed) {
            self.reap(wanted.max(self.needed))?;
        }
        let count = wanted.min(self.count_mine());
        let own = self.buffers;
        let flags = if own.is_filled_by_device { 0 } else { WRITE };
        // Up to the circle's end, and from its start.
        let (start, end) = self.mine.split_at(self.place(self.first));
        let (now, later) = heads[..count.into()].split_at_mut(end.len().min(count.into()));
        for (heads, mine) in [(now, end), (later, start)] {
            for (head, &Mine { number, length }) in heads.iter_mut().zip(mine) {
                // Where a pool's buffer is in its place, the name says so.
                *head = Descriptor { address: own.place(number), length, flags, id: number };
            }
        }
        Ok(count.into())
    }

    fn chain(&mut self, ahead: Ahead, collector: &mut Collector<'_, '_>) -> Result<Option<Chain>, Broken> {
        let slots = if self.buffers.is_filled_by_device && self.count_mine() > 0 {
            self.spread(0, collector.addresses)?
        } else {
            1
        };
        let needed = ahead.buffers + slots;
        if self.count_mine() < needed {
            self.reap(needed)?;
        }
        if self.count_mine() < needed {
            // Looked for again when more was used.
            self.needed = needed;
            return Ok(None);
        }
        self.needed = 0;
        for number in ahead.buffers..needed {
            let Mine { number, length } = self.at(number);
            if length > 0 {
                let address = self.address(number);
                let pointer = collector.addresses.pointer(address, length).ok_or(BAD_NUMBER)?;
                collector.parts.push(Part { pointer, address, length: length as usize });
            }
        }
        Ok(Some(Chain { id: self.at(ahead.buffers).number, slots, heads: slots, is_usable: true }))
    }

    #[inline(always)]
    fn give_back(&mut self, _id: u16, slots: u16, length: u32, goes_on: bool) {
        if self.buffers.is_filled_by_device {
            for _ in 0..slots {
                self.post_whole(std::iter::once((self.at(0).number, self.buffers.room)), WRITE);
            }
        } else if goes_on || self.open.is_some() {
            self.post_part(length, 0, goes_on);
        } else {
            self.post_whole(std::iter::once((self.at(0).number, length)), 0);
        }
    }

    #[inline(always)]
    fn give_back_whole(&mut self, heads: &[Descriptor], lengths: impl Iterator<Item = u32>) {
        let Buffers { room, is_filled_by_device, .. } = self.buffers;
        let lengths = lengths.map(|length| if is_filled_by_device { room } else { length });
        let flags = if is_filled_by_device { WRITE } else { 0 };
        self.post_whole(heads.iter().map(|head| head.id).zip(lengths), flags);
    }

    #[inline(always)]
    fn lends(&self) -> bool {
        self.pool.is_some()
    }

    #[inline(always)]
    fn take_packets(&mut self, filled: Filled<'_>) -> Result<(usize, bool), Broken> {
        Driver::take_packets(self, filled)
    }

    #[inline(always)]
    fn lend(&mut self, burst: &mut Burst) -> Result<(usize, u64), Broken> {
        self.lend_front(burst)
    }

    #[inline(always)]
    fn publish(&mut self) {
        self.ring.publish();
    }

    #[inline(always)]
    fn has_news(&self) -> bool {
        self.ring.has_news()
    }

    #[inline(always)]
    fn peer_wants_event(&mut self) -> bool {
        self.ring.device_wants_event()
    }

    fn want_events(&mut self, wanted: bool) {
        self.ring.want_events(wanted);
    }
}
