//! A ring in shared memory: a header of two cache lines, one for each side's index, and descriptors of 16 bytes.
//!
//! Indices count up without end and wrap at 2^16. `head` is written by the client and `tail` by the server, whichever way
//! packets go: to the server, the client puts filled buffers at `head` and gets them back at `tail`; to the client, it puts
//! empty buffers at `head`, and the server says by `tail` which of them it has filled.
//!
//! The other side can write anything here at any time. So each value is read once, by an atomic load, and checked by whoever
//! called.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// What each ring starts with.
pub(crate) const COOKIE: u32 = 0x03E3_1F20;

/// Bytes of the header.
pub(crate) const HEADER_BYTES: usize = 128;
/// Bytes of a descriptor.
pub(crate) const DESCRIPTOR_BYTES: usize = 16;
/// What a ring's address must be a multiple of, so that its fields are aligned: rings of others follow each other without gaps.
pub(crate) const ALIGNMENT: usize = 16;

/// The longest ring has 2^14 descriptors, as with DPDK.
pub(crate) const LONGEST: u8 = 14;

const FLAGS: usize = 4;
const HEAD: usize = 6;
const TAIL: usize = 64;

/// Flag of a ring: the receiver polls, and wants no events.
const MASK_INTERRUPT: u16 = 1;

/// Flag of a descriptor: the packet goes on in the next.
pub(crate) const NEXT: u16 = 1;

/// A buffer, and what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// [`NEXT`].
    pub(crate) flags: u16,
    /// The region that the buffer lies in.
    pub(crate) region: u16,
    /// Bytes in the buffer: of data if it is filled, of room if it is empty.
    pub(crate) length: u32,
    /// Where in the region.
    pub(crate) offset: u32,
}

impl Descriptor {
    /// The half that both sides write: everything but the address.
    #[inline(always)]
    const fn first_word(self) -> u64 {
        self.flags as u64 | (self.region as u64) << 16 | (self.length as u64) << 32
    }
}

/// A ring. Who has it sees to it that the memory stays mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    base: NonNull<u8>,
    mask: u16,
}

// SAFETY: a ring is addresses in shared memory, all accesses to which are atomic; nothing is tied to a thread.
unsafe impl Send for Ring {}

/// Bytes that a ring takes.
pub(crate) const fn bytes(log2_size: u8) -> usize {
    HEADER_BYTES + (DESCRIPTOR_BYTES << log2_size)
}

impl Ring {
    /// # Safety
    /// At `base`, a multiple of [`ALIGNMENT`], [`bytes`]`(log2_size)` bytes are mapped for as long as the ring or a copy of it is
    /// used, and this process accesses them by rings only. `log2_size` is at most [`LONGEST`].
    pub(crate) unsafe fn new(base: NonNull<u8>, log2_size: u8) -> Self {
        debug_assert!(base.addr().get().is_multiple_of(ALIGNMENT) && log2_size <= LONGEST);
        Self { base, mask: (1 << log2_size) - 1 }
    }

    /// Descriptors.
    #[inline(always)]
    pub(crate) const fn size(&self) -> u16 {
        self.mask + 1
    }

    /// Which descriptor an index means.
    #[inline(always)]
    pub(crate) const fn slot(&self, index: u16) -> usize {
        (index & self.mask) as usize
    }

    #[inline(always)]
    fn field(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: inside the header, aligned to two bytes, and mapped while the ring is used (`new`).
        unsafe { AtomicU16::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    fn cookie_field(&self) -> &AtomicU32 {
        // SAFETY: as in `field`; aligned to four bytes.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().cast()) }
    }

    #[inline(always)]
    fn words(&self, index: u16) -> (&AtomicU64, &AtomicU64) {
        let offset = HEADER_BYTES + self.slot(index) * DESCRIPTOR_BYTES;
        // SAFETY: the slot is below the ring's size, so both words are inside; aligned to eight bytes, as the base and a
        // descriptor's size are.
        unsafe {
            let first = self.base.as_ptr().add(offset).cast();
            (AtomicU64::from_ptr(first), AtomicU64::from_ptr(first.add(1)))
        }
    }

    /// Writes an empty header.
    pub(crate) fn initialise(&self) {
        self.field(FLAGS).store(0, Ordering::Relaxed);
        self.field(HEAD).store(0, Ordering::Relaxed);
        self.field(TAIL).store(0, Ordering::Relaxed);
        self.cookie_field().store(COOKIE, Ordering::Release);
    }

    /// Whether there is a ring at all.
    pub(crate) fn has_cookie(&self) -> bool {
        self.cookie_field().load(Ordering::Acquire) == COOKIE
    }

    /// The index that the client writes. Acquire, pairs with its release: descriptors and data below it are there.
    #[inline(always)]
    pub(crate) fn head(&self) -> u16 {
        self.field(HEAD).load(Ordering::Acquire)
    }

    /// The index that the server writes. Acquire, pairs with its release: it no longer touches what is below.
    #[inline(always)]
    pub(crate) fn tail(&self) -> u16 {
        self.field(TAIL).load(Ordering::Acquire)
    }

    /// Release: all that was written or read below the index is done before the server can see it.
    #[inline(always)]
    pub(crate) fn publish_head(&self, head: u16) {
        self.field(HEAD).store(head, Ordering::Release);
    }

    /// Release, as [`publish_head`](Self::publish_head), for the client.
    #[inline(always)]
    pub(crate) fn publish_tail(&self, tail: u16) {
        self.field(TAIL).store(tail, Ordering::Release);
    }

    /// Reads a descriptor, each half once.
    #[inline(always)]
    pub(crate) fn read(&self, index: u16) -> Descriptor {
        let (first, second) = self.words(index);
        // Relaxed: the index was acquired.
        let (first, second) = (first.load(Ordering::Relaxed), second.load(Ordering::Relaxed));
        Descriptor {
            flags: first as u16,
            region: (first >> 16) as u16,
            length: (first >> 32) as u32,
            offset: second as u32,
        }
    }

    /// Writes a descriptor. Relaxed: the index that is published later releases it.
    #[inline(always)]
    pub(crate) fn write(&self, index: u16, descriptor: Descriptor) {
        let (first, second) = self.words(index);
        first.store(descriptor.first_word(), Ordering::Relaxed);
        second.store(u64::from(descriptor.offset), Ordering::Relaxed);
    }

    /// Writes what a server may write: all but the buffer's address.
    #[inline(always)]
    pub(crate) fn write_filled(&self, index: u16, descriptor: Descriptor) {
        self.words(index).0.store(descriptor.first_word(), Ordering::Relaxed);
    }

    /// The receiver says whether it wants events. When it wants some, it looks at the index again afterwards.
    pub(crate) fn want_events(&self, wanted: bool) {
        self.field(FLAGS).store(if wanted { 0 } else { MASK_INTERRUPT }, Ordering::Relaxed);
        // Pairs with the fence in `wants_event`: either the sender sees the flag, or the receiver the index. One-way barriers
        // can't say that, for it is a store before a load on both sides.
        fence(Ordering::SeqCst);
    }

    /// The sender asks, after it published its index, whether the receiver wants an event.
    #[inline(always)]
    pub(crate) fn wants_event(&self) -> bool {
        fence(Ordering::SeqCst);
        self.field(FLAGS).load(Ordering::Relaxed) & MASK_INTERRUPT == 0
    }
}
