//! An owned packet: one buffer, or a chain of them.

use crate::error::{NoRoom, TooShort};
use crate::header::{APPLICATION_BYTES, HEADER_BYTES, Header, Identity, NO_NEXT};
use crate::id::BufferId;
use crate::lane_cache;
use crate::register;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, align_of, offset_of, size_of};
use std::ptr::NonNull;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes in a [`Line`].
pub const LINE_BYTES: usize = 64;

/// One cache line of frame data: what frames are stored in that are copied whole-line by [`Packet::fill_lines`].
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Line(pub [u8; LINE_BYTES]);

/// What is known of a packet's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// Nobody looked.
    #[default]
    Unknown,
    /// Who received the packet found it right.
    Good,
    /// Left to hardware by who sent it: the field holds the pseudo-header's sum only, and the packet must not
    /// leave by a wire before it is completed.
    Partial {
        /// Where summing starts, in bytes from the first data byte.
        start: u16,
        /// Where the sum is stored, in bytes from `start`.
        offset: u8,
    },
}

/// A packet that its holder owns: dropping it frees its buffers, and it cannot be cloned.
///
/// Lengths and offsets are in bytes; data starts with the Ethernet header and has no frame check sequence.
///
/// ```compile_fail,E0382
/// # fn transmit(_: warmlane_mem::Packet) {}
/// # fn test(packet: warmlane_mem::Packet) {
/// transmit(packet);
/// packet.data(); // it is gone
/// # }
/// ```
/// ```compile_fail,E0599
/// # fn test(packet: warmlane_mem::Packet) {
/// let copy = packet.clone(); // there is only one
/// # }
/// ```
/// ```compile_fail,E0505
/// # fn test(packet: warmlane_mem::Packet) {
/// let data = packet.data();
/// drop(packet); // while its data is in use
/// println!("{data:?}");
/// # }
/// ```
#[repr(transparent)]
pub struct Packet {
    header: NonNull<Header>,
}

// SAFETY: the packet owns its buffers; nothing in them is tied to a thread.
unsafe impl Send for Packet {}
// SAFETY: a shared packet can only be read.
unsafe impl Sync for Packet {}

impl Drop for Packet {
    fn drop(&mut self) {
        // SAFETY: the packet is not used after its drop.
        unsafe { lane_cache::free(std::slice::from_ref(self)) }
    }
}

impl Packet {
    /// # Safety
    /// `header` is that of a live buffer that nobody else owns, reset or in the state of a whole packet.
    #[inline(always)]
    pub(crate) const unsafe fn from_header(header: NonNull<Header>) -> Self {
        Self { header }
    }

    /// Where the first segment's header is.
    #[inline(always)]
    pub(crate) const fn as_header(&self) -> NonNull<Header> {
        self.header
    }

    /// # Safety
    /// `id` came from [`into_id`](Self::into_id), and is turned back once.
    #[inline(always)]
    pub(crate) unsafe fn from_id(id: BufferId) -> Self {
        // SAFETY: the buffer is owned by the caller, hence its pool is alive.
        Self { header: unsafe { register::header(id) } }
    }

    /// Gives up the packet for its name; the buffers stay taken.
    #[inline(always)]
    pub(crate) fn into_id(self) -> BufferId {
        ManuallyDrop::new(self).header().identity.id()
    }

    #[inline(always)]
    fn header(&self) -> &Header {
        // SAFETY: the packet owns the buffer, so its header is there, and `&self` keeps writers away.
        unsafe { self.header.as_ref() }
    }

    #[inline(always)]
    fn header_mut(&mut self) -> &mut Header {
        // SAFETY: the packet owns the buffer, so its header is there, and `&mut self` keeps all others away.
        unsafe { self.header.as_mut() }
    }

    #[inline(always)]
    pub(crate) fn identity(&self) -> Identity {
        self.header().identity
    }

    /// Where the first segment's data is.
    #[inline(always)]
    pub(crate) fn span(&self) -> crate::Span {
        let header = self.header();
        let volatile = &header.volatile;
        crate::Span {
            index: header.identity.id().index(),
            offset: volatile.data_offset,
            length: volatile.data_length,
        }
    }

    /// Which buffer the packet's first segment is.
    #[inline]
    pub fn id(&self) -> BufferId {
        self.identity().id()
    }

    /// A pointer to the byte `offset` behind the start of the header.
    #[inline(always)]
    fn byte(&self, offset: usize) -> *mut u8 {
        // SAFETY: all callers pass an offset between the header's end and the buffer's, which `end_offset` bounds.
        unsafe { self.header.as_ptr().cast::<u8>().add(offset) }
    }

    /// Bytes of data in the first segment.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.header().volatile.data_length)
    }

    /// Whether the first segment has no data.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of data in all segments.
    #[inline]
    pub fn packet_length(&self) -> usize {
        self.header().volatile.packet_length as usize
    }

    /// The first segment's data.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let volatile = &self.header().volatile;
        let (offset, length) = (usize::from(volatile.data_offset), usize::from(volatile.data_length));
        // SAFETY: header end ≤ offset and offset + length ≤ end_offset ≤ stride always hold (every method that
        // changes them checks); the bytes were mapped zeroed, so they are initialised, and the packet owns them.
        unsafe { std::slice::from_raw_parts(self.byte(offset), length) }
    }

    /// The first segment's data.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let volatile = &self.header().volatile;
        let (offset, length) = (usize::from(volatile.data_offset), usize::from(volatile.data_length));
        // SAFETY: as in `data`; `&mut self` makes the slice the only one.
        unsafe { std::slice::from_raw_parts_mut(self.byte(offset), length) }
    }

    /// Hints that the first bytes of data are about to be read and written.
    #[inline(always)]
    pub fn prefetch(&self) {
        warmlane_sys::prefetch::prefetch_read_at(self.byte(usize::from(self.header().volatile.start_offset)));
    }

    /// Free bytes in front of the data.
    #[inline]
    pub fn headroom(&self) -> usize {
        usize::from(self.header().volatile.data_offset) - HEADER_BYTES
    }

    /// Free bytes behind the first segment's data.
    #[inline]
    pub fn tailroom(&self) -> usize {
        let header = self.header();
        usize::from(header.volatile.end_offset)
            - usize::from(header.volatile.data_offset)
            - usize::from(header.volatile.data_length)
    }

    /// Replaces the contents by a copy of `frame`, behind the usual headroom. Metadata stays; a chain's other
    /// segments are freed.
    ///
    /// # Errors
    /// [`NoRoom`] if the frame is longer than a buffer's room; the packet is then as it was.
    #[inline]
    pub fn fill(&mut self, frame: &[u8]) -> Result<(), NoRoom> {
        let start = self.reset_for(frame.len(), frame.len())?;
        // SAFETY: `reset_for` made sure that frame.len() bytes from `start` are inside the room; the frame can't
        // overlap them, because the packet owns them and is borrowed mutably.
        unsafe { std::ptr::copy_nonoverlapping(frame.as_ptr(), start, frame.len()) };
        Ok(())
    }

    /// The same as [`fill`](Self::fill) from storage that is padded to whole lines, of which `length` bytes are
    /// the frame: whole-line copies have no tail to handle.
    ///
    /// # Errors
    /// [`NoRoom`] if the lines don't fit, or if `length` is more than they hold; the packet is then as it was.
    #[inline]
    pub fn fill_lines(&mut self, lines: &[Line], length: usize) -> Result<(), NoRoom> {
        let bytes = lines.len() * LINE_BYTES;
        if length > bytes {
            return Err(NoRoom { wanted: length, available: bytes });
        }
        let start = self.reset_for(length, bytes)?;
        for (number, line) in lines.iter().enumerate() {
            // SAFETY: `reset_for` made sure that lines.len() whole lines from `start` are inside the room.
            unsafe { start.add(number * LINE_BYTES).cast::<[u8; LINE_BYTES]>().write_unaligned(line.0) };
        }
        Ok(())
    }

    /// Makes the packet one segment of `length` bytes if `space` bytes fit its room; returns where they start.
    #[inline(always)]
    fn reset_for(&mut self, length: usize, space: usize) -> Result<*mut u8, NoRoom> {
        let header = self.header();
        let start = header.volatile.start_offset;
        let room = usize::from(header.volatile.end_offset - start);
        if space > room {
            return Err(NoRoom { wanted: space, available: room });
        }
        if header.identity.next() != NO_NEXT {
            drop(self.split_chain());
        }
        let volatile = &mut self.header_mut().volatile;
        volatile.data_offset = start;
        volatile.data_length = length as u16;
        volatile.packet_length = length as u32;
        Ok(self.byte(usize::from(start)))
    }

    /// Puts `count` bytes in front of the data and returns them, to be overwritten.
    ///
    /// # Errors
    /// [`NoRoom`] if the headroom is shorter.
    #[inline]
    pub fn prepend(&mut self, count: usize) -> Result<&mut [u8], NoRoom> {
        let available = self.headroom();
        if count > available {
            return Err(NoRoom { wanted: count, available });
        }
        let volatile = &mut self.header_mut().volatile;
        volatile.data_offset -= count as u16;
        volatile.data_length += count as u16;
        volatile.packet_length += count as u32;
        Ok(&mut self.data_mut()[..count])
    }

    /// Puts `count` bytes behind a single segment's data and returns them, to be overwritten.
    ///
    /// # Errors
    /// [`NoRoom`] if the tail room is shorter, or if the packet is a chain.
    #[inline]
    pub fn append(&mut self, count: usize) -> Result<&mut [u8], NoRoom> {
        let available = if self.identity().next() == NO_NEXT { self.tailroom() } else { 0 };
        if count > available {
            return Err(NoRoom { wanted: count, available });
        }
        let before = self.len();
        let volatile = &mut self.header_mut().volatile;
        volatile.data_length += count as u16;
        volatile.packet_length += count as u32;
        Ok(&mut self.data_mut()[before..])
    }

    /// Removes `count` bytes from the front of the first segment.
    ///
    /// # Errors
    /// [`TooShort`] if the first segment has fewer.
    #[inline]
    pub fn trim_front(&mut self, count: usize) -> Result<(), TooShort> {
        let available = self.len();
        if count > available {
            return Err(TooShort { wanted: count, available });
        }
        let volatile = &mut self.header_mut().volatile;
        volatile.data_offset += count as u16;
        volatile.data_length -= count as u16;
        volatile.packet_length -= count as u32;
        Ok(())
    }

    /// Cuts the packet to its first `length` bytes, and frees segments that hold none of them. Does nothing if it
    /// is that short already.
    pub fn truncate(&mut self, length: usize) {
        let total = self.packet_length();
        if length >= total {
            return;
        }
        let first = self.len();
        if length > first
            && let Some(mut rest) = self.split_chain()
        {
            rest.truncate(length - first);
            // What was just split off has at most as many segments as before, so it fits again.
            drop(self.chain(rest));
            return;
        }
        drop(self.split_chain());
        let volatile = &mut self.header_mut().volatile;
        volatile.data_length = length as u16;
        volatile.packet_length = length as u32;
    }

    /// The room behind a single segment's data, for drivers that read into it; then [`append`](Self::append) what
    /// came.
    #[inline]
    pub fn spare_mut(&mut self) -> &mut [u8] {
        let (offset, length) = {
            let volatile = &self.header().volatile;
            (usize::from(volatile.data_offset) + usize::from(volatile.data_length), self.tailroom())
        };
        // SAFETY: data end + tail room is the buffer's end; the bytes were mapped zeroed, so they are initialised,
        // and `&mut self` makes the slice the only one.
        unsafe { std::slice::from_raw_parts_mut(self.byte(offset), length) }
    }

    /// Segments in the packet, at least 1.
    #[inline]
    pub fn segments(&self) -> usize {
        usize::from(self.header().volatile.segments)
    }

    /// Hangs `tail` behind this packet's last segment.
    ///
    /// # Errors
    /// The tail, if the chain would have more than 255 segments.
    pub fn chain(&mut self, tail: Self) -> Result<(), Self> {
        let Some(segments) = self.header().volatile.segments.checked_add(tail.header().volatile.segments)
        else {
            return Err(tail);
        };
        let tail_length = tail.packet_length() as u32;
        let link = tail.into_id().bits();
        let mut last = self.header;
        // SAFETY: each link of an owned chain names a live buffer of that chain, and `&mut self` keeps all others
        // away from it.
        unsafe {
            while (*last.as_ptr()).identity.next() != NO_NEXT {
                last = register::header(BufferId::from_bits((*last.as_ptr()).identity.next()));
            }
            let identity = &mut (*last.as_ptr()).identity;
            *identity = identity.with_next(link);
        }
        let volatile = &mut self.header_mut().volatile;
        volatile.segments = segments;
        volatile.packet_length += tail_length;
        Ok(())
    }

    /// Takes all segments but the first off; `None` if there is only one.
    pub fn split_chain(&mut self) -> Option<Self> {
        let own = u32::from(self.header().volatile.data_length);
        let header = self.header_mut();
        let link = header.identity.next();
        if link == NO_NEXT {
            return None;
        }
        header.identity = header.identity.with_next(NO_NEXT);
        let volatile = &mut header.volatile;
        let (segments, length) = (volatile.segments - 1, volatile.packet_length - own);
        volatile.segments = 1;
        volatile.packet_length = own;
        // SAFETY: the link came from `into_id` in `chain`, and was just replaced, so it is turned back once.
        let mut rest = unsafe { Self::from_id(BufferId::from_bits(link)) };
        let volatile = &mut rest.header_mut().volatile;
        volatile.segments = segments;
        volatile.packet_length = length;
        Some(rest)
    }

    /// Which buffers the segments are, in order.
    pub(crate) fn segment_ids(&self) -> impl Iterator<Item = BufferId> {
        std::iter::successors(Some(self.identity()), |identity| {
            (identity.next() != NO_NEXT).then(|| {
                // SAFETY: each link of an owned chain names a live buffer of that chain, and `&self` keeps writers
                // away.
                unsafe { (*register::header(BufferId::from_bits(identity.next())).as_ptr()).identity }
            })
        })
        .map(Identity::id)
    }

    /// The data of each segment, in order.
    pub fn segment_data(&self) -> SegmentData<'_> {
        SegmentData { next: Some(self.header), _packet: PhantomData }
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

    /// The port on which the packet came in.
    #[inline]
    pub fn port(&self) -> u16 {
        self.header().volatile.port
    }

    /// Notes the port on which the packet came in.
    #[inline]
    pub fn set_port(&mut self, port: u16) {
        self.header_mut().volatile.port = port;
    }

    /// When the packet was received, in nanoseconds since the Unix epoch; 0 if unknown.
    #[inline]
    pub fn timestamp(&self) -> u64 {
        self.header().volatile.timestamp
    }

    /// Notes when the packet was received, in nanoseconds since the Unix epoch.
    #[inline]
    pub fn set_timestamp(&mut self, nanoseconds: u64) {
        self.header_mut().volatile.timestamp = nanoseconds;
    }

    /// The flow's hash as the port computed it, 0 if it did not.
    #[inline]
    pub fn rss_hash(&self) -> u32 {
        self.header().volatile.rss_hash
    }

    /// Notes the flow's hash.
    #[inline]
    pub fn set_rss_hash(&mut self, hash: u32) {
        self.header_mut().volatile.rss_hash = hash;
    }

    /// Where layer 3 starts, in bytes from the first data byte, as the last stage that looked has noted.
    #[inline]
    pub fn l3_offset(&self) -> u8 {
        self.header().volatile.l3_offset
    }

    /// Notes where layer 3 starts.
    #[inline]
    pub fn set_l3_offset(&mut self, offset: u8) {
        self.header_mut().volatile.l3_offset = offset;
    }

    /// What is known of the transport checksum.
    #[inline]
    pub fn checksum(&self) -> Checksum {
        let volatile = &self.header().volatile;
        match volatile.checksum_state {
            1 => Checksum::Good,
            2 => Checksum::Partial { start: volatile.checksum_start, offset: volatile.checksum_offset },
            _ => Checksum::Unknown,
        }
    }

    /// Notes what is known of the transport checksum.
    #[inline]
    pub fn set_checksum(&mut self, checksum: Checksum) {
        let volatile = &mut self.header_mut().volatile;
        (volatile.checksum_state, volatile.checksum_start, volatile.checksum_offset) = match checksum {
            Checksum::Unknown => (0, 0, 0),
            Checksum::Good => (1, 0, 0),
            Checksum::Partial { start, offset } => (2, start, offset),
        };
    }

    /// The application's own bytes, viewed as its own type. A packet just taken holds what the buffer's last user
    /// left there.
    ///
    /// A type that is too large does not compile:
    /// ```compile_fail,E0080
    /// let too_large: fn(&warmlane_mem::Packet) -> &[u8; 25] = warmlane_mem::Packet::application;
    /// ```
    #[inline]
    pub fn application<T: FromBytes + KnownLayout + Immutable>(&self) -> &T {
        const { assert_fits::<T>() };
        // SAFETY: T fits the application's bytes and their alignment (checked just above, at compile time), any
        // bytes are a T (FromBytes) without interior mutability (Immutable), and `&self` keeps writers away.
        unsafe { &*self.byte(offset_of!(Header, application)).cast::<T>() }
    }

    /// The application's own bytes, viewed as its own type, to be written.
    #[inline]
    pub fn application_mut<T: FromBytes + IntoBytes + KnownLayout + Immutable>(&mut self) -> &mut T {
        const { assert_fits::<T>() };
        // SAFETY: as in `application`; what is written is plain bytes again (IntoBytes), and `&mut self` makes the
        // reference the only one.
        unsafe { &mut *self.byte(offset_of!(Header, application)).cast::<T>() }
    }
}

const fn assert_fits<T>() {
    assert!(size_of::<T>() <= APPLICATION_BYTES, "the type is larger than the application's bytes");
    assert!(align_of::<T>() <= 8, "the type needs a larger alignment than 8");
}

impl std::fmt::Debug for Packet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Packet")
            .field("id", &self.id())
            .field("packet_length", &self.packet_length())
            .field("segments", &self.segments())
            .field("port", &self.port())
            .finish_non_exhaustive()
    }
}

/// Iterator over the data of a packet's segments.
#[derive(Debug)]
pub struct SegmentData<'a> {
    next: Option<NonNull<Header>>,
    _packet: PhantomData<&'a Packet>,
}

impl<'a> Iterator for SegmentData<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let header = self.next?;
        // SAFETY: the chain is owned by the packet that `'a` borrows, so each of its segments lives and is only
        // read for that long; offset and length are inside the buffer, as in `Packet::data`.
        unsafe {
            let (volatile, next) = (&(*header.as_ptr()).volatile, (*header.as_ptr()).identity.next());
            self.next = (next != NO_NEXT).then(|| register::header(BufferId::from_bits(next)));
            let start = header.as_ptr().cast::<u8>().add(usize::from(volatile.data_offset));
            Some(std::slice::from_raw_parts(start, usize::from(volatile.data_length)))
        }
    }
}
