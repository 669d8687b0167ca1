//! Packets of several segments: putting them together, taking them apart, reading and copying them whole.
//!
//! Each segment is a buffer whose header names the next one. All of them are the packet's own, or the last ones are a
//! [`SharedPacket`] that others hold as well; those are read and nothing else.

use crate::header::{Header, NO_NEXT};
use crate::id::BufferId;
use crate::packet::Packet;
use crate::pool::Pool;
use crate::register;
use crate::shared_packet::SharedPacket;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Segments that a packet has at most.
const MOST_SEGMENTS: usize = u8::MAX as usize;

impl Packet {
    /// Segments in the packet, at least 1.
    #[inline]
    pub fn segments(&self) -> usize {
        usize::from(self.header().state.segments)
    }

    /// Hangs `tail` behind this packet's last segment. What is known of a chain is what its first segment says.
    ///
    /// # Errors
    /// The tail, if the chain would have more than 255 segments, or if the last is [shared](SharedPacket).
    pub fn chain(&mut self, tail: Self) -> Result<(), Self> {
        let fits = self.segments() + tail.segments() <= MOST_SEGMENTS;
        let Some(last) = self.last_segment().filter(|_| fits) else { return Err(tail) };
        // SAFETY: the name stands for the tail from now on.
        unsafe { self.link(last, tail.packet_length(), tail.segments(), tail.into_id()) };
        Ok(())
    }

    /// Hangs several behind this packet's last segment, one behind the other, without going through the whole chain for each.
    ///
    /// # Errors
    /// The first that can't be hung there, as for [`chain`](Self::chain); those before it are, and no other is asked for.
    #[inline]
    pub fn chain_all(&mut self, tails: impl IntoIterator<Item = Self>) -> Result<(), Self> {
        let mut last = self.last_segment();
        for tail in tails {
            let Some(before) = last else { return Err(tail) };
            if self.segments() + tail.segments() > MOST_SEGMENTS {
                return Err(tail);
            }
            last = tail.last_segment();
            // SAFETY: `before` is the last segment, and the name stands for the tail from now on.
            unsafe { self.link(before, tail.packet_length(), tail.segments(), tail.into_id()) };
        }
        Ok(())
    }

    /// The same with a packet that others hold as well. The result travels like any other, in bursts, through channels and
    /// transmit queues; what others hold is not written to, and is freed when nobody holds it any more.
    ///
    /// ```
    /// # use warmlane_mem::{Burst, Pool, PoolConfig};
    /// # let pool = Pool::new(&PoolConfig { buffers: 4, ..PoolConfig::default() })?;
    /// let mut frame = pool.take().ok_or("a buffer")?;
    /// frame.fill(b"some header, and the rest that is the same for all")?;
    /// let header = frame.data()[..11].to_vec();
    /// frame.trim_front(11)?;
    /// let rest = frame.share();
    /// let mut burst = Burst::new();
    /// for receiver in [b"your", b"mine"] {
    ///     let mut packet = pool.take().ok_or("a buffer")?;
    ///     packet.fill(&header)?;
    ///     packet.data_mut()[..4].copy_from_slice(receiver);
    ///     packet.chain_shared(rest.clone()).map_err(|_| "too many segments")?;
    ///     burst.push(packet).map_err(|_| "no space")?;
    /// }
    /// assert_eq!((rest.holders(), burst[1].packet_length()), (3, 50));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The tail, as for [`chain`](Self::chain).
    pub fn chain_shared(&mut self, tail: SharedPacket) -> Result<(), SharedPacket> {
        let fits = self.segments() + tail.segments() <= MOST_SEGMENTS;
        let Some(last) = self.last_segment().filter(|_| fits) else { return Err(tail) };
        // SAFETY: the name stands for this hold of the tail from now on.
        unsafe { self.link(last, tail.packet_length(), tail.segments(), tail.into_id()) };
        Ok(())
    }

    /// The last segment, if something can be hung behind it: others may hold it as well.
    #[inline]
    fn last_segment(&self) -> Option<NonNull<Header>> {
        let mut last = self.as_header();
        loop {
            // SAFETY: each link of an owned chain names a live buffer of that chain, and `&self` keeps writers away.
            let next = unsafe { (*last.as_ptr()).identity.next() };
            if next == NO_NEXT {
                return Some(last);
            }
            // SAFETY: as above.
            unsafe {
                last = register::header(BufferId::from_bits(next));
                // The first segment is always the packet's own.
                if (*last.as_ptr()).state.known.is_shared() {
                    return None;
                }
            }
        }
    }

    /// Hangs the segments that start with buffer `id` behind the last one.
    ///
    /// # Safety
    /// `last` is from [`last_segment`](Self::last_segment), the chain has space for so many segments, and `id` is given up by who has it.
    unsafe fn link(&mut self, last: NonNull<Header>, length: usize, segments: usize, id: BufferId) {
        // SAFETY: `last` is a segment of this packet and not shared, and `&mut self` keeps all others away from it.
        unsafe {
            let identity = &mut (*last.as_ptr()).identity;
            *identity = identity.with_next(id.bits());
        }
        let state = &mut self.header_mut().state;
        state.segments += segments as u8;
        state.packet_length += length as u32;
    }

    /// Whether segments of the packet are [shared](SharedPacket): those are not written to, and a driver must not give them
    /// to a device as its own.
    pub fn has_shared_data(&self) -> bool {
        // The first segment is always the packet's own.
        self.segment_headers().skip(1).any(|header| header.state.known.is_shared())
    }

    /// The headers of the segments, in order.
    fn segment_headers(&self) -> impl Iterator<Item = &Header> {
        std::iter::successors(Some(self.header()), |header| {
            let next = header.identity.next();
            // SAFETY: each link of an owned chain names a live buffer of that chain, and `&self` keeps writers away.
            (next != NO_NEXT).then(|| unsafe { register::header(BufferId::from_bits(next)).as_ref() })
        })
    }

    /// Frees all segments but the first. Out of the way of who has only one.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_tail(&mut self) {
        if let Some(shared) = self.take_shared_tail() {
            drop(shared);
        } else {
            drop(self.split_chain());
        }
    }

    /// Takes all segments but the first off if they are a shared packet.
    fn take_shared_tail(&mut self) -> Option<SharedPacket> {
        let link = self.header().identity.next();
        if link == NO_NEXT {
            return None;
        }
        // SAFETY: as in `segment_headers`.
        let header = unsafe { register::header(BufferId::from_bits(link)) };
        // SAFETY: as above.
        if unsafe { !(*header.as_ptr()).state.known.is_shared() } {
            return None;
        }
        let own = self.header_mut();
        own.identity = own.identity.with_next(NO_NEXT);
        own.state.segments = 1;
        own.state.packet_length = u32::from(own.state.data_length);
        // SAFETY: the link stood for one hold of the shared packet, and was just replaced.
        Some(unsafe { SharedPacket::from_id(BufferId::from_bits(link)) })
    }

    /// Takes all segments but the first off; `None` if there is only one. If they are [shared](SharedPacket), what is taken
    /// off is a copy; `None`, too, if there is no buffer for it, and the packet is then as it was.
    pub fn split_chain(&mut self) -> Option<Self> {
        if let Some(shared) = self.take_shared_tail() {
            let shared = match shared.try_into_packet() {
                Ok(packet) => return Some(packet),
                Err(shared) => shared,
            };
            let copy = shared.own_pool().and_then(|pool| shared.copy_in(&pool));
            if copy.is_none() {
                // It was there just before.
                drop(self.chain_shared(shared));
            }
            return copy;
        }
        let own = u32::from(self.header().state.data_length);
        let header = self.header_mut();
        let link = header.identity.next();
        if link == NO_NEXT {
            return None;
        }
        header.identity = header.identity.with_next(NO_NEXT);
        let state = &mut header.state;
        let (segments, length) = (state.segments - 1, state.packet_length - own);
        state.segments = 1;
        state.packet_length = own;
        // SAFETY: the link came from `into_id` in `chain`, and was just replaced, so it is turned back once.
        let mut rest = unsafe { Self::from_id(BufferId::from_bits(link)) };
        let state = &mut rest.header_mut().state;
        state.segments = segments;
        state.packet_length = length;
        Some(rest)
    }

    /// Which buffers the segments are, in order.
    pub(crate) fn segment_ids(&self) -> impl Iterator<Item = BufferId> {
        self.segment_headers().map(|header| header.identity.id())
    }

    /// The pool that the first buffer is of, if somebody has a handle.
    pub fn own_pool(&self) -> Option<Pool> {
        // SAFETY: the pool lives as long as one of its buffers is out.
        unsafe { &*register::pointer(self.id().slot()) }.pool()
    }

    /// A copy of the packet in buffers of `pool`, as few as it fits, with all that is known of it and the application's own
    /// bytes. `None` if the pool has not that many, or if they would be more than 255.
    pub fn copy_in(&self, pool: &Pool) -> Option<Self> {
        let mut copy = pool.take()?;
        // The segment that is being filled behind those of `copy`.
        let mut last: Option<Self> = None;
        for mut data in self.segment_data() {
            while !data.is_empty() {
                let segment = last.as_mut().unwrap_or(&mut copy);
                let (now, later) = data.split_at(data.len().min(segment.tailroom()));
                segment.append(now.len()).ok()?.copy_from_slice(now);
                data = later;
                if !data.is_empty()
                    && let Some(full) = last.replace(pool.take()?)
                {
                    copy.chain(full).ok()?;
                }
            }
        }
        if let Some(last) = last {
            copy.chain(last).ok()?;
        }
        copy.copy_metadata(self);
        Some(copy)
    }

    /// The data of each segment, in order.
    pub fn segment_data(&self) -> SegmentData<'_> {
        SegmentData::at(self.as_header())
    }

    /// Copies up to `target.len()` bytes from the packet's front, over all segments; returns how many.
    pub fn copy_to(&self, target: &mut [u8]) -> usize {
        let mut copied = 0;
        for segment in self.segment_data() {
            let count = segment.len().min(target.len() - copied);
            target[copied..copied + count].copy_from_slice(&segment[..count]);
            copied += count;
        }
        copied
    }

    /// Cuts the packet to its first `length` bytes, and frees segments that hold none of them. Does nothing if it
    /// is that short already. `false`: it is as it was, because a segment to be cut is [shared](SharedPacket) and there is
    /// no buffer for a copy.
    pub fn truncate(&mut self, length: usize) -> bool {
        if length >= self.packet_length() {
            return true;
        }
        let first = self.len();
        if length > first {
            let Some(mut rest) = self.split_chain() else { return false };
            let is_cut = rest.truncate(length - first);
            // What was just split off has at most as many segments as before, so it fits again.
            drop(self.chain(rest));
            return is_cut;
        }
        self.free_tail();
        let state = &mut self.header_mut().state;
        state.data_length = length as u16;
        state.packet_length = length as u32;
        true
    }
}

/// Iterator over the data of a packet's segments.
#[derive(Debug)]
pub struct SegmentData<'a> {
    next: Option<NonNull<Header>>,
    _packet: PhantomData<&'a Packet>,
}

impl SegmentData<'_> {
    /// From a segment of a packet on that lives as long.
    pub(crate) const fn at(segment: NonNull<Header>) -> Self {
        Self { next: Some(segment), _packet: PhantomData }
    }

    /// The segment whose data comes next.
    pub(crate) const fn place(&self) -> Option<NonNull<Header>> {
        self.next
    }
}

impl<'a> Iterator for SegmentData<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let header = self.next?;
        // SAFETY: the chain is owned by the packet that `'a` borrows, so each of its segments lives and is only
        // read for that long; offset and length are inside the buffer, as in `Packet::data`.
        unsafe {
            let (state, next) = (&(*header.as_ptr()).state, (*header.as_ptr()).identity.next());
            self.next = (next != NO_NEXT).then(|| register::header(BufferId::from_bits(next)));
            let start = header.as_ptr().cast::<u8>().add(usize::from(state.data_offset));
            Some(std::slice::from_raw_parts(start, usize::from(state.data_length)))
        }
    }
}
