//! The one cache line in front of every buffer.
//!
//! A packet's metadata fits one line so that a stage that only looks at metadata, and a driver that only
//! transmits, move one line and not two: the second line of DPDK's mbuf cost its transmit path a quarter of its
//! rate when the pool pointer moved there (Emmerich, dpdk-dev, 2015-05-11).
//!
//! The line has two halves. The first is what a new user of the buffer must find clean; one 32-byte store resets
//! it. The second holds who the buffer is and what is chained behind it, in one word that freeing reads, the
//! application's own bytes, and values that count only if a flag in the first half says so. These are *not* cleaned: nobody
//! pays for a field that they don't use.

use crate::id::{BufferId, MAXIMUM_BUFFERS};
use crate::offload::Known;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m256i, _mm256_load_si256};
use std::mem::{offset_of, size_of};
use std::ptr::NonNull;

/// Bytes in the header, and the line size that the layout is made for.
pub(crate) const HEADER_BYTES: usize = 64;

/// Bytes of the header that belong to the application.
pub const APPLICATION_BYTES: usize = 12;

/// "No next segment" in [`Identity::next`].
pub(crate) const NO_NEXT: u32 = u32::MAX;

/// Which buffer this is, in the lower half, and the next segment's [`BufferId`] or [`NO_NEXT`] in the upper: one word,
/// so that freeing sees with one load and one comparison that a buffer is whole and of its own pool.
///
/// A free buffer has no next segment: freeing a chain sees to that, so that taking need not.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Identity(u64);

impl Identity {
    /// The bits in which single buffers of one pool are alike.
    pub(crate) const POOL_MASK: u64 = !(MAXIMUM_BUFFERS as u64);

    pub(crate) const fn single(id: BufferId) -> Self {
        Self((NO_NEXT as u64) << 32 | id.bits() as u64)
    }

    #[inline(always)]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    #[inline(always)]
    pub(crate) const fn id(self) -> BufferId {
        BufferId::from_bits(self.0 as u32)
    }

    #[inline(always)]
    pub(crate) const fn next(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline(always)]
    pub(crate) const fn with_next(self, next: u32) -> Self {
        Self((next as u64) << 32 | self.0 & u32::MAX as u64)
    }
}

/// The state of the packet in the buffer: the half of the header that is reset when the buffer is taken.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(crate) struct PacketState {
    /// First data byte, counted from the start of the header.
    pub(crate) data_offset: u16,
    /// Bytes of data in this segment.
    pub(crate) data_length: u16,
    /// Bytes of data in the whole chain; kept in the first segment only.
    pub(crate) packet_length: u32,
    /// Segments in the chain; kept in the first segment only.
    pub(crate) segments: u8,
    /// Where layer 3 starts, from the first data byte.
    pub(crate) l3_offset: u8,
    /// Port on which the packet came in.
    pub(crate) port: u16,
    /// What is known of the packet besides its bytes: see [`crate::offload`].
    pub(crate) known: Known,
    /// In a tunnel: bytes from layer 4 to the network header inside.
    pub(crate) tunnel_length: u8,
    /// For a partial checksum: where the sum is stored, from `checksum_start`.
    pub(crate) checksum_offset: u8,
    /// For a partial checksum: where summing starts, from the first data byte.
    pub(crate) checksum_start: u16,
    /// First byte behind the buffer's data, counted from the start of the header. Never changes.
    pub(crate) end_offset: u16,
    /// Where data starts in a buffer just taken. Never changes.
    pub(crate) start_offset: u16,
    /// Nanoseconds since the Unix epoch, 0 if unknown.
    pub(crate) timestamp: u64,
}

impl PacketState {
    /// All of it, to be stored at once.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    pub(crate) fn in_register(&self) -> __m256i {
        // SAFETY: a `PacketState` is 32 bytes without padding, aligned to 32.
        unsafe { _mm256_load_si256(std::ptr::from_ref(self).cast()) }
    }

    /// Writes all of it with data at `offset`, `length` bytes in one segment: as whole words. A struct with fields changed is
    /// written field by field, a dozen stores.
    ///
    /// # Safety
    /// A `PacketState` can be written to `place`.
    #[inline(always)]
    pub(crate) const unsafe fn write_with(&self, place: NonNull<Self>, offset: u16, length: u16) {
        // SAFETY: a `PacketState` is four words without padding.
        let [_, second, third, fourth] = unsafe { std::mem::transmute::<Self, [u64; 4]>(*self) };
        let first = Self { data_offset: offset, ..*self }.first_word(length);
        // SAFETY: the caller's.
        unsafe { place.cast::<[u64; 4]>().write([first, second, third, fourth]) };
    }

    /// It with another [`first_word`](Self::first_word).
    #[inline(always)]
    pub(crate) const fn with_first_word(self, first: u64) -> Self {
        // SAFETY: a `PacketState` is four words without padding, and any bits are one.
        unsafe {
            let [_, second, third, fourth] = std::mem::transmute::<Self, [u64; 4]>(self);
            std::mem::transmute::<[u64; 4], Self>([first, second, third, fourth])
        }
    }

    /// The first eight bytes, which hold all lengths, for a packet of one segment with `length` bytes of data. Written
    /// over a clean header in one store: a struct with two fields changed is written field by field, eleven stores
    /// of which the processor does about one a cycle.
    #[inline(always)]
    pub(crate) const fn first_word(&self, length: u16) -> u64 {
        let [a, b] = self.data_offset.to_ne_bytes();
        u64::from_ne_bytes([a, b, 0, 0, 0, 0, 0, 0]) + length as u64 * FIRST_WORD_PER_BYTE
    }
}

/// What each byte of data adds to the first eight bytes of a header: one to the segment's length and one to the
/// packet's.
pub(crate) const FIRST_WORD_PER_BYTE: u64 = {
    let segment = u64::from_ne_bytes(if cfg!(target_endian = "little") {
        [0, 0, 1, 0, 0, 0, 0, 0]
    } else {
        [0, 0, 0, 1, 0, 0, 0, 0]
    });
    let packet = u64::from_ne_bytes(if cfg!(target_endian = "little") {
        [0, 0, 0, 0, 1, 0, 0, 0]
    } else {
        [0, 0, 0, 0, 0, 0, 0, 1]
    });
    segment + packet
};

/// What a buffer starts with whose data starts at `start_offset` and may go up to `end_offset`; built once per pool.
pub(crate) const fn clean(start_offset: u16, end_offset: u16) -> PacketState {
    PacketState {
        data_offset: start_offset,
        data_length: 0,
        packet_length: 0,
        segments: 1,
        l3_offset: 0,
        port: 0,
        known: Known::NOTHING,
        tunnel_length: 0,
        checksum_offset: 0,
        checksum_start: 0,
        end_offset,
        start_offset,
        timestamp: 0,
    }
}

/// The header. Everything here is plain old data: any bit pattern is a value.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Header {
    pub(crate) state: PacketState,
    pub(crate) identity: Identity,
    /// The application's own bytes; hold what their last user left.
    pub(crate) application: [u8; APPLICATION_BYTES],
    /// A number that one stage leaves for a later one; like all that follows, it counts only if `state.known` says so.
    pub(crate) mark: u32,
    /// The flow's hash.
    pub(crate) hash: u32,
    /// The VLAN tag's last two bytes.
    pub(crate) vlan: u16,
    /// Bytes of payload in each segment that the packet is to be cut into.
    pub(crate) segment_size: u16,
}

const _: () = {
    assert!(size_of::<Header>() == HEADER_BYTES);
    assert!(align_of::<Header>() == HEADER_BYTES);
    assert!(size_of::<PacketState>() == 32);
    assert!(offset_of!(Header, state) == 0);
    assert!(offset_of!(Header, identity) == 32);
    assert!(offset_of!(Header, application) == 40);
    // An application may view its bytes as a type with 8-byte fields.
    assert!(offset_of!(Header, application) % 8 == 0);
    assert!(offset_of!(PacketState, data_offset) == 0);
    assert!(offset_of!(PacketState, data_length) == 2);
    assert!(offset_of!(PacketState, packet_length) == 4);
    assert!(offset_of!(PacketState, segments) == 8);
    assert!(offset_of!(PacketState, port) == 10);
    assert!(offset_of!(PacketState, known) == 12);
    assert!(offset_of!(PacketState, end_offset) == 20);
    assert!(offset_of!(PacketState, timestamp) == 24);
};
