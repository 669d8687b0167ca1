//! The driver's side of a ring, with buffers of its own in memory that it lends to the device.
//!
//! There are as many buffers as the ring has descriptors, and each is this side's or the device's. Which ones is remembered here: what the
//! device says of a buffer is believed if it has that buffer, and no longer than the buffer is.

mod names;
mod packed;
mod restart;
mod split;

use super::collector::Collector;
use super::side::{Ahead, Broken, Chain, HEADS, MAXIMUM_PARTS, Part, Side};
use crate::memory::Addresses;
use crate::ring::{Descriptor, NEXT, WRITE};
use names::Names;
pub(crate) use packed::PackedDriverRing;
pub(crate) use split::SplitDriverRing;

const BAD_NUMBER: Broken = Broken("a used buffer that the ring doesn't have");
const NOT_LENT: Broken = Broken("a used buffer that was not available");
const BAD_LENGTH: Broken = Broken("more bytes written than a buffer has");
const BAD_COUNT: Broken = Broken("a packet in more buffers than there can be");

/// Where the number of buffers is in the header of a packet that may be spread (section 5.1.6).
const BUFFERS_OFFSET: usize = 10;
const NUMBERED_HEADER: u32 = 12;

/// The ring itself, of either format.
pub(crate) trait DriverRing {
    /// The next buffer that was used, by its name, and how many bytes were written to it; it stays the next one.
    fn next_used(&mut self) -> Result<Option<(u32, u32)>, Broken>;

    /// Goes on behind so many used buffers, which had so many descriptors together.
    fn skip_used(&mut self, buffers: u16, descriptors: u16) -> Result<(), Broken>;

    /// What the device wrote before it said that buffers were used is there.
    fn acquire(&self);

    /// Makes a part of a buffer available.
    fn post(&mut self, post: Post);

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

/// A buffer that is this side's.
#[derive(Clone, Copy, Debug, Default)]
struct Mine {
    number: u16,
    length: u32,
}

/// What the device has under a buffer's name.
#[derive(Clone, Copy, Debug, Default)]
struct Lent {
    /// How many parts there are. 0: the device doesn't have it.
    parts: u16,
    /// Counts up with each buffer, and wraps.
    stamp: u16,
}

/// A part of a buffer that the device has.
#[derive(Clone, Copy, Debug, Default)]
struct PostedPart {
    /// Which part is behind it, if one is.
    next: u16,
    length: u16,
}

/// A driver at a ring.
#[derive(Debug)]
pub(crate) struct Driver<R> {
    ring: R,
    buffers: Buffers,
    /// Those that are this side's, in a circle: filled ones, or free ones.
    mine: Box<[Mine]>,
    first: u16,
    end: u16,
    /// By names.
    lent: Box<[Lent]>,
    /// The stamp of the next one that is lent.
    stamp: u16,
    /// By numbers.
    posted: Box<[PostedPart]>,
    /// Names of those that the device has, if it is to use them in order.
    order: Names,
    /// The packet under way: its name, and how many parts were posted.
    open: Option<(u16, u16)>,
    /// So many have to be there before anything goes on.
    needed: u16,
}

impl<R: DriverRing> Driver<R> {
    pub(crate) fn new(ring: R, buffers: Buffers) -> Self {
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
            posted: vec![PostedPart::default(); count].into(),
            order: Names::new(buffers.count),
            open: None,
            needed: 0,
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

    #[inline(always)]
    fn at(&self, ahead: u16) -> Mine {
        self.mine[usize::from(self.first.wrapping_add(ahead)) & (self.mine.len() - 1)]
    }

    #[inline(always)]
    const fn address(&self, number: u16) -> u64 {
        self.buffers.address + number as u64 * self.buffers.stride as u64
    }

    /// Takes used buffers back until there are so many, or no more of them.
    #[inline]
    fn reap(&mut self, wanted: u16) -> Result<(), Broken> {
        let before = self.end;
        while self.count_mine() < wanted {
            let Some((name, length)) = self.ring.next_used()? else { break };
            if name >= u32::from(self.buffers.count) {
                return Err(BAD_NUMBER);
            }
            if length > self.buffers.room {
                return Err(BAD_LENGTH);
            }
            let name = name as u16;
            let is_next = !self.buffers.is_in_order || self.order.first() == Some(name);
            let lent = &mut self.lent[usize::from(name)];
            if lent.parts == 1 && is_next {
                lent.parts = 0;
                if self.buffers.is_in_order {
                    self.order.skip();
                }
                self.put_back(name, length);
                self.ring.skip_used(1, 1)?;
            } else {
                self.take_several(name, length)?;
            }
        }
        if self.end != before {
            self.ring.acquire();
        }
        Ok(())
    }

    /// What is not one buffer of one part, the next in order.
    #[cold]
    fn take_several(&mut self, name: u16, length: u32) -> Result<(), Broken> {
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
        loop {
            let name = self.order.first().ok_or(NOT_LENT)?;
            self.order.skip();
            let length = if name == last { length } else { self.buffers.room };
            buffers += 1;
            descriptors += self.take_back(name, length)?;
            if name == last {
                return Ok((buffers, descriptors));
            }
        }
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
            number = self.posted[usize::from(number)].next;
        }
        Ok(parts)
    }

    /// A part is this side's again. The device has written `length` bytes to it, if it fills any.
    #[inline(always)]
    fn put_back(&mut self, number: u16, length: u32) {
        let length = if self.buffers.is_filled_by_device { length } else { self.buffers.room };
        let place = usize::from(self.end) & (self.mine.len() - 1);
        self.mine[place] = Mine { number, length };
        self.end = self.end.wrapping_add(1);
    }

    /// Posts the next of this side's as a whole buffer.
    #[inline(always)]
    fn post_whole(&mut self, length: u32, flags: u16) {
        let Mine { number, .. } = self.at(0);
        self.first = self.first.wrapping_add(1);
        // A buffer has less than 2^16 bytes.
        self.posted[usize::from(number)] = PostedPart { next: 0, length: length as u16 };
        let address = self.address(number);
        self.ring.post(Post { number, name: number, address, length, flags, next: 0 });
        self.lend(number, 1);
    }

    /// Posts the next of this side's as a part of a buffer.
    #[inline(never)]
    fn post_part(&mut self, length: u32, flags: u16, goes_on: bool) {
        let Mine { number, .. } = self.at(0);
        self.first = self.first.wrapping_add(1);
        let next = if goes_on { self.at(0).number } else { 0 };
        self.posted[usize::from(number)] = PostedPart { next, length: length as u16 };
        let (name, parts) = self.open.take().map_or((number, 1), |(name, parts)| (name, parts + 1));
        let flags = flags | if goes_on { NEXT } else { 0 };
        self.ring.post(Post { number, name, address: self.address(number), length, flags, next });
        if goes_on {
            self.open = Some((name, parts));
            return;
        }
        self.lend(name, parts);
    }

    /// The device has this buffer.
    #[inline(always)]
    fn lend(&mut self, name: u16, parts: u16) {
        self.lent[usize::from(name)] = Lent { parts, stamp: self.stamp };
        self.stamp = self.stamp.wrapping_add(1);
        if self.buffers.is_in_order {
            self.order.push(name);
        }
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
        let flags = if self.buffers.is_filled_by_device { 0 } else { WRITE };
        for (ahead, head) in heads[..count.into()].iter_mut().enumerate() {
            let Mine { number, length } = self.at(ahead as u16);
            *head = Descriptor { address: self.address(number), length, flags, id: number };
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
                self.post_whole(self.buffers.room, WRITE);
            }
        } else if goes_on || self.open.is_some() {
            self.post_part(length, 0, goes_on);
        } else {
            self.post_whole(length, 0);
        }
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
