//! Buffers that change hands, between a client and a server of ours that have a pool over the same memory each.
//!
//! Then nobody copies: a packet goes to the other side with its buffer, and another buffer comes back in the descriptor. What a server takes
//! it pays for with a buffer that it has, or, until it has as many as it needs, with nothing, on credit. Which buffers the other side has is marked
//! here, so that none has two owners, whatever is in a descriptor.

use crate::drops::{LONGEST_PACKET, ReceiveDrop};
use crate::lent::POOL_REGION;
use crate::ring::{Descriptor, NEXT, Ring};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use warmlane_mem::{Burst, METADATA_BYTES, Packet, Region, Span};
use warmlane_sys::prefetch::prefetch_write_at;

/// In a descriptor's region: the server keeps its buffer, and gives none for it.
const ON_CREDIT: u16 = u16::MAX;

/// A server may owe one of so many buffers of the pool.
const CREDIT: u32 = 4;

/// How many packets ahead headers are fetched.
const AHEAD: u16 = 8;

/// Descriptors that are looked at together. Lists of buffers are no longer, for they are filled with zeros each time.
pub(crate) const AT_ONCE: usize = 64;

/// Segments of a packet, at most.
const MOST_PIECES: u16 = 255;

/// The other side named a buffer that it doesn't have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotTheirs;

/// One side's books.
#[derive(Debug)]
pub(crate) struct Exchange {
    region: Region,
    /// The other side has it, be it in a ring.
    theirs: Box<[AtomicBool]>,
    /// Of a server: buffers that it may still take for nothing.
    credit: AtomicU32,
    is_client: bool,
}

impl Exchange {
    /// Of the client, whose pool it is.
    pub(crate) fn of_client(region: Region) -> Self {
        Self::new(region, true)
    }

    /// Of the server, with a pool over the client's.
    pub(crate) fn of_server(region: Region) -> Self {
        Self::new(region, false)
    }

    fn new(region: Region, is_client: bool) -> Self {
        let theirs = (0..region.buffers()).map(|_| AtomicBool::new(!is_client)).collect();
        Self { theirs, credit: AtomicU32::new(region.buffers() / CREDIT), region, is_client }
    }

    /// The other side has this one, from when it sees the descriptor.
    #[inline(always)]
    pub(crate) fn give(&self, index: u32) {
        if let Some(theirs) = self.theirs.get(index as usize) {
            // Relaxed: the ring's index that is published later releases it, and the queue that gets the buffer back, which may be another
            // one's, has acquired an index that the other side published after that.
            theirs.store(true, Ordering::Relaxed);
        }
    }

    /// The other side gives this one back; `false` if it doesn't have it.
    #[inline(always)]
    fn get(&self, index: u32) -> bool {
        // Not one access: only a side that breaks its word names a buffer in two rings at once, and it is trusted with what is in them anyway.
        self.theirs.get(index as usize).is_some_and(|theirs| {
            let had = theirs.load(Ordering::Relaxed);
            theirs.store(false, Ordering::Relaxed);
            had
        })
    }

    /// Where a descriptor's data are, if they lie in one buffer, behind its metadata.
    #[inline(always)]
    fn locate(&self, descriptor: Descriptor) -> Option<Span> {
        if descriptor.region != POOL_REGION {
            return None;
        }
        let (index, offset) = self.region.offsets().locate(descriptor.offset.into())?;
        let end = offset + u64::from(descriptor.length);
        (offset >= METADATA_BYTES as u64 && end <= self.region.end() as u64).then_some(Span {
            index,
            offset: offset as u16,
            length: descriptor.length as u16,
        })
    }

    /// The same of a buffer that the other side gives back with it.
    #[inline(always)]
    fn accept(&self, descriptor: Descriptor) -> Option<Span> {
        self.locate(descriptor).filter(|span| self.get(span.index))
    }

    /// The descriptor of data in one of the pool's buffers.
    #[inline(always)]
    fn descriptor(&self, span: Span) -> Descriptor {
        // Zero-copy pools are below 4 GiB (`port::settings`).
        let offset = self.region.offsets().of(span.index) as u32 + u32::from(span.offset);
        Descriptor { flags: 0, region: POOL_REGION, length: span.length.into(), offset }
    }

    /// Asks for the header of a descriptor's buffer, which is rewritten soon.
    #[inline(always)]
    fn fetch_header(&self, descriptor: Descriptor) {
        if let Some((index, _)) = self.region.offsets().locate(descriptor.offset.into()) {
            let offset = self.region.offsets().of(index) as usize;
            prefetch_write_at(self.region.address().as_ptr().wrapping_add(offset));
        }
    }

    /// The same of some descriptors.
    #[inline(always)]
    fn fetch_headers(&self, ring: Ring, first: u16, count: u16) {
        for number in 0..count {
            self.fetch_header(ring.read(first.wrapping_add(number)));
        }
    }

    /// Packets out of descriptors of one buffer each that the other side gives, from `first` on up to the first that isn't so, no more than `count`, for
    /// which there is room. `then` is told of each index. Returns how many, and their bytes.
    #[inline(always)]
    fn adopt(
        &self,
        burst: &mut Burst,
        ring: Ring,
        first: u16,
        count: u16,
        mut then: impl FnMut(u16),
    ) -> (u16, u64) {
        self.fetch_headers(ring, first, AHEAD.min(count));
        let mut bytes = 0;
        let spans = (0..count).map_while(|number| {
            let index = first.wrapping_add(number);
            if number + AHEAD < count {
                self.fetch_header(ring.read(index.wrapping_add(AHEAD)));
            }
            let descriptor = ring.read(index);
            if descriptor.flags & NEXT != 0 {
                return None;
            }
            let span = self.accept(descriptor)?;
            then(index);
            bytes += u64::from(span.length);
            Some(span)
        });
        // SAFETY: each was marked as the other side's, which has passed it to us, and is marked no more; `locate` says that spans are
        // inside.
        let taken = unsafe { self.region.packets_from_other(spans, burst) } as u16;
        (taken, bytes)
    }

    /// One packet out of `pieces` descriptors that the other side gives. `then` is told of each index.
    fn adopt_pieces(
        &self,
        ring: Ring,
        first: u16,
        pieces: u16,
        mut then: impl FnMut(u16),
    ) -> Result<Option<Packet>, NotTheirs> {
        let (mut whole, mut fits) = (None::<Packet>, true);
        for number in 0..pieces {
            let index = first.wrapping_add(number);
            let span = self.accept(ring.read(index)).ok_or(NotTheirs)?;
            then(index);
            let mut piece = Burst::with_limit(1);
            // SAFETY: as in `adopt`.
            unsafe { self.region.packets_from_other(std::iter::once(span), &mut piece) };
            match (&mut whole, piece.pop()) {
                (Some(whole), Some(piece)) => fits &= whole.chain(piece).is_ok(),
                (none, piece) => *none = piece,
            }
        }
        Ok(whole.filter(|_| fits))
    }

    /// How many descriptors the packet at `first` has, and what is wrong with it.
    fn measure(ring: Ring, first: u16, waiting: u16) -> (u16, Option<ReceiveDrop>) {
        let (mut pieces, mut bytes) = (0, 0);
        loop {
            let descriptor = ring.read(first.wrapping_add(pieces));
            pieces += 1;
            bytes += u64::from(descriptor.length);
            if descriptor.flags & NEXT == 0 {
                break;
            }
            if pieces == waiting {
                return (pieces, Some(ReceiveDrop::Incomplete));
            }
        }
        let is_too_large = bytes > LONGEST_PACKET as u64 || pieces > MOST_PIECES;
        (pieces, is_too_large.then_some(ReceiveDrop::TooLarge))
    }
}

/// The client's part: its packets come back as buffers, the server's as packets in buffers of its pool.
impl Exchange {
    /// Frees what `count` descriptors of sent packets from `first` on have in them now.
    #[inline]
    pub(crate) fn take_back(&self, ring: Ring, first: u16, count: u16) -> Result<(), NotTheirs> {
        let mut back = [0; AT_ONCE];
        let (mut at, mut left) = (first, count);
        while left > 0 {
            let now = left.min(AT_ONCE as u16);
            self.fetch_headers(ring, at, now);
            let (mut got, mut outcome) = (0, Ok(()));
            for number in 0..now {
                let descriptor = ring.read(at.wrapping_add(number));
                if descriptor.region == ON_CREDIT {
                    continue;
                }
                match self.accept(descriptor) {
                    Some(span) => {
                        back[got] = span.index;
                        got += 1;
                    }
                    None => outcome = Err(NotTheirs),
                }
            }
            // SAFETY: each was marked as the server's, which has passed it back, and is marked no more.
            unsafe { self.region.free_from_other(&back[..got]) };
            outcome?;
            (at, left) = (at.wrapping_add(now), left - now);
        }
        Ok(())
    }

    /// Takes packets out of `waiting` descriptors from `first` on. Returns how many were looked at, and the packets' bytes.
    #[inline]
    pub(crate) fn receive_as_client(
        &self,
        burst: &mut Burst,
        ring: Ring,
        first: u16,
        waiting: u16,
        mut dropped: impl FnMut(ReceiveDrop, Option<&Packet>),
    ) -> Result<(u16, u64), NotTheirs> {
        let (mut done, mut bytes) = (0, 0);
        while done < waiting && burst.space() > 0 {
            let (at, left) = (first.wrapping_add(done), waiting - done);
            let count = (burst.space() as u16).min(left);
            let (plain, plain_bytes) = self.adopt(burst, ring, at, count, |_| ());
            (done, bytes) = (done + plain, bytes + plain_bytes);
            if plain == count {
                continue;
            }
            let at = first.wrapping_add(done);
            let (pieces, wrong) = Self::measure(ring, at, waiting - done);
            // They are taken whatever they are: buffers they are in any case.
            let packet = self.adopt_pieces(ring, at, pieces.min(MOST_PIECES), |_| ())?;
            if pieces > MOST_PIECES {
                self.take_back(ring, at.wrapping_add(MOST_PIECES), pieces - MOST_PIECES)?;
            }
            done += pieces;
            match (packet, wrong) {
                (Some(packet), None) => {
                    bytes += packet.packet_length() as u64;
                    // There is room.
                    drop(burst.push(packet));
                }
                (found, wrong) => dropped(wrong.unwrap_or(ReceiveDrop::TooLarge), found.as_ref()),
            }
        }
        Ok((done, bytes))
    }
}

/// The server's part.
impl Exchange {
    /// Gets buffers to pay with, and credit for the rest. Returns how many of the first and of both there are.
    #[inline]
    fn funds(&self, spare: &mut [u32]) -> (usize, usize) {
        let have = self.region.take_raw(spare);
        let wanted = (spare.len() - have) as u32;
        if wanted == 0 {
            return (have, have);
        }
        let lend = |credit: u32| (credit > 0).then(|| credit - credit.min(wanted));
        let before = self.credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lend).unwrap_or(0);
        (have, have + before.min(wanted) as usize)
    }

    /// Gives back what was not spent.
    #[inline]
    fn refund(&self, spare: &[u32], have: usize, funds: usize, spent: usize) {
        if spent < have {
            // SAFETY: taken raw by `funds`, and not given away.
            unsafe { self.region.free_raw(&spare[spent..have]) };
        }
        let credit = funds - spent.max(have);
        if credit > 0 {
            self.credit.fetch_add(credit as u32, Ordering::Relaxed);
        }
    }

    /// Puts a buffer, if there is one, into a descriptor whose own was taken.
    #[inline(always)]
    fn pay(&self, ring: Ring, index: u16, spare: Option<&u32>) {
        let descriptor =
            spare.map_or(Descriptor { flags: 0, region: ON_CREDIT, length: 0, offset: 0 }, |&spare| {
                self.give(spare);
                self.descriptor(Span { index: spare, offset: self.region.start(), length: 0 })
            });
        ring.write(index, descriptor);
    }

    /// Takes packets out of `waiting` descriptors from `first` on, and pays for their buffers. Returns how many were looked at, and the packets' bytes.
    #[inline]
    pub(crate) fn receive_as_server(
        &self,
        burst: &mut Burst,
        ring: Ring,
        first: u16,
        waiting: u16,
        mut dropped: impl FnMut(ReceiveDrop, Option<&Packet>),
    ) -> Result<(u16, u64), NotTheirs> {
        let mut spare = [0; AT_ONCE];
        let (mut done, mut bytes) = (0, 0);
        while done < waiting && burst.space() > 0 {
            let (at, left) = (first.wrapping_add(done), waiting - done);
            let wanted = burst.space().min(usize::from(left)).min(AT_ONCE);
            let (have, funds) = self.funds(&mut spare[..wanted]);
            let mut paid = spare[..have].iter();
            let pay = |index| self.pay(ring, index, paid.next());
            let (plain, plain_bytes) = self.adopt(burst, ring, at, funds as u16, pay);
            self.refund(&spare, have, funds, plain.into());
            (done, bytes) = (done + plain, bytes + plain_bytes);
            if usize::from(plain) == wanted {
                continue;
            }
            if usize::from(plain) == funds {
                // The rest waits until a buffer is free.
                break;
            }
            let at = first.wrapping_add(done);
            let (pieces, mut wrong) = Self::measure(ring, at, waiting - done);
            if u32::from(pieces) > self.region.buffers() / CREDIT {
                wrong.get_or_insert(ReceiveDrop::TooLarge);
            }
            if let Some(wrong) = wrong {
                // The client gets its own buffers back.
                dropped(wrong, None);
                done += pieces;
                continue;
            }
            let mut spare = [0; MOST_PIECES as usize];
            let (have, funds) = self.funds(&mut spare[..usize::from(pieces)]);
            if funds < usize::from(pieces) {
                self.refund(&spare, have, funds, 0);
                break;
            }
            let mut spent = 0;
            let adopted = self.adopt_pieces(ring, at, pieces, |index| {
                self.pay(ring, index, spare[..have].get(spent));
                spent += 1;
            });
            self.refund(&spare, have, funds, spent);
            match adopted? {
                Some(packet) => {
                    bytes += packet.packet_length() as u64;
                    // There is room.
                    drop(burst.push(packet));
                }
                None => dropped(ReceiveDrop::TooLarge, None),
            }
            done += pieces;
        }
        Ok((done, bytes))
    }

    /// Sends packets that lie in the client's memory with their buffers, from the front of the burst up to the first that isn't of one such buffer, and no
    /// more than `room` or [`AT_ONCE`]; the buffers that were posted are ours now. Returns how many, and their bytes.
    #[inline]
    pub(crate) fn send(
        &self,
        burst: &mut Burst,
        ring: Ring,
        first: u16,
        room: u16,
    ) -> Result<(u16, u64), NotTheirs> {
        let mut posted = [0; AT_ONCE];
        let limit = usize::from(room).min(AT_ONCE).min(burst.len());
        let (mut count, mut bytes, mut outcome) = (0, 0, Ok(()));
        self.fetch_headers(ring, first, limit as u16);
        self.region.packets_into_raw(burst, limit, |_, span| {
            let index = first.wrapping_add(count);
            let Some(there) = self.accept(ring.read(index)) else {
                outcome = Err(NotTheirs);
                return false;
            };
            posted[usize::from(count)] = there.index;
            self.give(span.index);
            ring.write(index, self.descriptor(span));
            count += 1;
            bytes += u64::from(span.length);
            true
        });
        // SAFETY: each was marked as the client's, which has posted it, and is marked no more.
        unsafe { self.region.free_from_other(&posted[..usize::from(count)]) };
        outcome.map(|()| (count, bytes))
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let theirs = self.theirs.iter_mut().zip(0..);
        let theirs = theirs.filter_map(|(theirs, index): (_, u32)| theirs.get_mut().then_some(index));
        let theirs: Vec<u32> = theirs.collect();
        if self.is_client {
            // SAFETY: they were given away and are with nobody now: a server's end is waited for (`worker`).
            unsafe { self.region.free_from_other(&theirs) };
        } else {
            // SAFETY: they were never ours, or were given away; the client keeps them.
            unsafe { self.region.abandon_raw(theirs.len()) };
        }
    }
}

#[cfg(test)]
mod tests;
