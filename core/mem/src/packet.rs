//! An owned packet: one buffer, or a chain of them.

use crate::error::{NoSpace, TooShort};
use crate::header::{APPLICATION_BYTES, HEADER_BYTES, Header, Identity, NO_NEXT};
use crate::id::BufferId;
use crate::lane_cache;
use crate::register;
use std::mem::{ManuallyDrop, align_of, offset_of, size_of};
use std::ptr::NonNull;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes in a [`Line`].
pub const LINE_BYTES: usize = 64;

/// One cache line of frame data: what frames are stored in that are copied whole-line by [`Packet::fill_lines`].
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Line(pub [u8; LINE_BYTES]);

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
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the packet owns the buffer, so its header is there, and `&self` keeps writers away.
        unsafe { self.header.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn header_mut(&mut self) -> &mut Header {
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
        let state = &header.state;
        crate::Span {
            index: header.identity.id().index(),
            offset: state.data_offset,
            length: state.data_length,
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
        usize::from(self.header().state.data_length)
    }

    /// Whether the first segment has no data.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of data in all segments.
    #[inline]
    pub fn packet_length(&self) -> usize {
        self.header().state.packet_length as usize
    }

    /// The first segment's data.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let state = &self.header().state;
        let (offset, length) = (usize::from(state.data_offset), usize::from(state.data_length));
        // SAFETY: header end ≤ offset and offset + length ≤ end_offset ≤ stride always hold (every method that
        // changes them checks); the bytes were mapped zeroed, so they are initialised, and the packet owns them.
        unsafe { std::slice::from_raw_parts(self.byte(offset), length) }
    }

    /// The first segment's data.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let state = &self.header().state;
        let (offset, length) = (usize::from(state.data_offset), usize::from(state.data_length));
        // SAFETY: as in `data`; `&mut self` makes the slice the only one.
        unsafe { std::slice::from_raw_parts_mut(self.byte(offset), length) }
    }

    /// Hints that the first bytes of data are about to be read and written.
    #[inline(always)]
    pub fn prefetch(&self) {
        warmlane_sys::prefetch::prefetch_read_at(self.byte(usize::from(self.header().state.start_offset)));
    }

    /// Free bytes in front of the data.
    #[inline]
    pub fn headroom(&self) -> usize {
        usize::from(self.header().state.data_offset) - HEADER_BYTES
    }

    /// Free bytes behind the first segment's data.
    #[inline]
    pub fn tailroom(&self) -> usize {
        let header = self.header();
        usize::from(header.state.end_offset)
            - usize::from(header.state.data_offset)
            - usize::from(header.state.data_length)
    }

    /// Replaces the contents by a copy of `frame`, behind the usual headroom. What was known of the former contents is
    /// [forgotten](Self::forget_contents), and a chain's other segments are freed.
    ///
    /// # Errors
    /// [`NoSpace`] if the frame is longer than a buffer; the packet is then as it was.
    #[inline]
    pub fn fill(&mut self, frame: &[u8]) -> Result<(), NoSpace> {
        let start = self.reset_for(frame.len(), frame.len())?;
        // SAFETY: `reset_for` made sure that frame.len() bytes from `start` are inside the buffer; the frame can't
        // overlap them, because the packet owns them and is borrowed mutably.
        unsafe { std::ptr::copy_nonoverlapping(frame.as_ptr(), start, frame.len()) };
        Ok(())
    }

    /// The same as [`fill`](Self::fill) from storage that is padded to whole lines, of which `length` bytes are
    /// the frame: whole-line copies have no tail to handle.
    ///
    /// # Errors
    /// [`NoSpace`] if the lines don't fit, or if `length` is more than they hold; the packet is then as it was.
    #[inline]
    pub fn fill_lines(&mut self, lines: &[Line], length: usize) -> Result<(), NoSpace> {
        let bytes = lines.len() * LINE_BYTES;
        if length > bytes {
            return Err(NoSpace { wanted: length, available: bytes });
        }
        let start = self.reset_for(length, bytes)?;
        for (number, line) in lines.iter().enumerate() {
            // SAFETY: `reset_for` made sure that lines.len() whole lines from `start` are inside the buffer.
            unsafe { start.add(number * LINE_BYTES).cast::<[u8; LINE_BYTES]>().write_unaligned(line.0) };
        }
        Ok(())
    }

    /// Makes the packet one segment of `length` bytes if `needed` bytes fit its buffer; returns where they start.
    #[inline(always)]
    fn reset_for(&mut self, length: usize, needed: usize) -> Result<*mut u8, NoSpace> {
        let header = self.header();
        let start = header.state.start_offset;
        let space = usize::from(header.state.end_offset - start);
        if needed > space {
            return Err(NoSpace { wanted: needed, available: space });
        }
        if header.identity.next() != NO_NEXT {
            self.free_tail();
        }
        self.forget_contents();
        let state = &mut self.header_mut().state;
        state.data_offset = start;
        state.data_length = length as u16;
        state.packet_length = length as u32;
        Ok(self.byte(usize::from(start)))
    }

    /// Puts `count` bytes in front of the data and returns them, to be overwritten.
    ///
    /// # Errors
    /// [`NoSpace`] if the headroom is shorter.
    #[inline]
    pub fn prepend(&mut self, count: usize) -> Result<&mut [u8], NoSpace> {
        let available = self.headroom();
        if count > available {
            return Err(NoSpace { wanted: count, available });
        }
        let state = &mut self.header_mut().state;
        state.data_offset -= count as u16;
        state.data_length += count as u16;
        state.packet_length += count as u32;
        Ok(&mut self.data_mut()[..count])
    }

    /// Puts `count` bytes behind a single segment's data and returns them, to be overwritten.
    ///
    /// # Errors
    /// [`NoSpace`] if the tailroom is shorter, or if the packet is a chain.
    #[inline]
    pub fn append(&mut self, count: usize) -> Result<&mut [u8], NoSpace> {
        let available = if self.identity().next() == NO_NEXT { self.tailroom() } else { 0 };
        if count > available {
            return Err(NoSpace { wanted: count, available });
        }
        let before = self.len();
        let state = &mut self.header_mut().state;
        state.data_length += count as u16;
        state.packet_length += count as u32;
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
        let state = &mut self.header_mut().state;
        state.data_offset += count as u16;
        state.data_length -= count as u16;
        state.packet_length -= count as u32;
        Ok(())
    }

    /// The space behind a single segment's data, for drivers that read into it; then [`append`](Self::append) what
    /// came.
    #[inline]
    pub fn spare_mut(&mut self) -> &mut [u8] {
        let (offset, length) = {
            let state = &self.header().state;
            (usize::from(state.data_offset) + usize::from(state.data_length), self.tailroom())
        };
        // SAFETY: data end + tailroom is the buffer's end; the bytes were mapped zeroed, so they are initialised,
        // and `&mut self` makes the slice the only one.
        unsafe { std::slice::from_raw_parts_mut(self.byte(offset), length) }
    }

    /// The port on which the packet came in.
    #[inline]
    pub fn port(&self) -> u16 {
        self.header().state.port
    }

    /// Notes the port on which the packet came in.
    #[inline]
    pub fn set_port(&mut self, port: u16) {
        self.header_mut().state.port = port;
    }

    /// When the packet was received, in nanoseconds since the Unix epoch; 0 if unknown.
    #[inline]
    pub fn timestamp(&self) -> u64 {
        self.header().state.timestamp
    }

    /// Notes when the packet was received, in nanoseconds since the Unix epoch.
    #[inline]
    pub fn set_timestamp(&mut self, nanoseconds: u64) {
        self.header_mut().state.timestamp = nanoseconds;
    }

    /// The application's own bytes, viewed as its own type. A packet just taken holds what the buffer's last user
    /// left there.
    ///
    /// ```
    /// use warmlane_mem::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
    ///
    /// #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
    /// #[zerocopy(crate = "warmlane_mem::zerocopy")]
    /// #[repr(C)]
    /// struct Mine {
    ///     flow: u32,
    ///     class: u32,
    /// }
    /// # let pool = warmlane_mem::Pool::new(&warmlane_mem::PoolConfig { buffers: 1, ..Default::default() })?;
    /// let mut packet = pool.take().ok_or("a buffer")?;
    /// packet.application_mut::<Mine>().class = 7;
    /// assert_eq!(packet.application::<Mine>().class, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A type that is too large does not compile:
    /// ```compile_fail,E0080
    /// let too_large: fn(&warmlane_mem::Packet) -> &[u8; 13] = warmlane_mem::Packet::application;
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
