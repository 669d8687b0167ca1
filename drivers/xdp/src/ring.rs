//! The rings that an AF_XDP socket shares with the kernel (`net/xdp/xsk_queue.h`,
//! `Documentation/networking/af_xdp.rst`).
//!
//! Each has one producer and one consumer, one of them us. Both count on without end; an index modulo the ring's size
//! is an entry. The producer writes entries and then (release) its index; the consumer reads that index (acquire) and
//! then entries, and later gives them back by its own index (release), which the producer reads (acquire) before it
//! writes there again.
//!
//! What the kernel writes is checked before use: an index that claims more entries than there are ends the ring.

use std::io;
use std::marker::PhantomData;
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use warmlane_driver_common::system::Plain;

use warmlane_sys::prefetch;

/// A packet in the receive or transmit ring (`struct xdp_desc`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Descriptor {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) options: u32,
}

/// The packet goes on in the next descriptor.
pub(crate) use libc::XDP_PKT_CONTD as CONTINUES;

// SAFETY: integers only.
unsafe impl Plain for Descriptor {}

/// Where the parts of a ring are in its mapping (`struct xdp_ring_offset`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Offsets {
    pub(crate) producer: u64,
    pub(crate) consumer: u64,
    pub(crate) entries: u64,
    pub(crate) flags: u64,
}

/// A mapped ring with entries of type `T`.
struct Shared<T> {
    memory: NonNull<u8>,
    bytes: usize,
    offsets: Offsets,
    entries: Entries<T>,
}

/// Where a ring's entries are: as many as a power of two.
struct Entries<T> {
    first: NonNull<T>,
    mask: u32,
}

impl<T> Clone for Entries<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Entries<T> {}

impl<T> Entries<T> {
    /// The address of an entry, which is inside the mapping while that exists.
    #[inline(always)]
    const fn at(self, number: u32) -> NonNull<T> {
        // SAFETY: `Shared::map` made a mapping that has mask + 1 entries from the first on.
        unsafe { self.first.add((number & self.mask) as usize) }
    }
}

// SAFETY: the mapping is not tied to a thread; its indices are only touched as atomics, its entries only by the one
// owner of our end, in the ranges that are ours.
unsafe impl<T: Plain> Send for Shared<T> {}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: `memory` was mapped with this length in `map`, and nothing borrows from it any more.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

impl<T: Plain> Shared<T> {
    /// Maps the ring of `size` entries that the socket has at `page_offset`.
    fn map(socket: &OwnedFd, page_offset: u64, offsets: Offsets, size: u32) -> io::Result<Self> {
        let bytes = offsets.entries as usize + size as usize * size_of::<T>();
        let inside = |offset: u64| offset.is_multiple_of(4) && offset < offsets.entries;
        let is_possible = inside(offsets.producer)
            && inside(offsets.consumer)
            && inside(offsets.flags)
            && offsets.entries.is_multiple_of(8)
            && size.is_power_of_two();
        if !is_possible {
            return Err(io::Error::other(format!("the kernel describes a ring that can't be: {offsets:?}")));
        }
        // SAFETY: a new mapping at an address of the kernel's choice, of a file that we hold. Populated at once, so
        // that no poll has to wait for a page fault.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                socket.as_raw_fd(),
                page_offset.cast_signed() as libc::off_t,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast::<u8>()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        // SAFETY: the entries are behind this offset in the mapping, which starts with a page, and the offset is a multiple of
        // eight, as no `Plain` type needs more.
        let first = unsafe { memory.add(offsets.entries as usize).cast::<T>() };
        Ok(Self { memory, bytes, offsets, entries: Entries { first, mask: size - 1 } })
    }

    /// How many entries there are.
    #[inline(always)]
    const fn size(&self) -> u32 {
        self.entries.mask + 1
    }

    #[inline(always)]
    #[expect(
        clippy::cast_ptr_alignment,
        reason = "a mapping starts with a page, and `map` checked the offset"
    )]
    fn index(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: `map` checked that the offset is a multiple of 4 in front of the entries, which end with the mapping;
        // that the kernel writes there, too, is what an atomic is for.
        unsafe { &*self.memory.as_ptr().add(offset as usize).cast::<AtomicU32>() }
    }
}

/// The kernel's index can't be true: it has lost count, or somebody else wrote to the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corrupt;

/// Our end of a ring that we fill: the fill ring, the transmit ring.
pub(crate) struct Producer<T> {
    shared: Shared<T>,
    /// Entries written so far; published up to `published`.
    written: u32,
    published: u32,
    /// What the consumer had taken when we last looked.
    taken: u32,
}

impl<T: Plain> Producer<T> {
    pub(crate) fn map(socket: &OwnedFd, page_offset: u64, offsets: Offsets, size: u32) -> io::Result<Self> {
        Ok(Self {
            shared: Shared::map(socket, page_offset, offsets, size)?,
            written: 0,
            published: 0,
            taken: 0,
        })
    }

    /// How many entries are free; looks at the kernel's index only if it must to answer `wanted`.
    #[inline]
    pub(crate) fn free_entries(&mut self, wanted: u32) -> Result<u32, Corrupt> {
        let size = self.shared.size();
        let mut space = size - self.under_way();
        if space < wanted {
            self.look()?;
            space = size - self.under_way();
        }
        Ok(space)
    }

    /// Entries that the consumer has yet to take, for all that we know.
    #[inline(always)]
    pub(crate) const fn under_way(&self) -> u32 {
        self.written.wrapping_sub(self.taken)
    }

    /// Notes that the consumer has taken `count` more entries, of those published, which we know without a look at its index.
    #[inline(always)]
    pub(crate) const fn note_taken(&mut self, count: u32) {
        self.taken = self.taken.wrapping_add(count);
        debug_assert!(self.under_way() <= self.shared.size());
    }

    /// Returns how many entries the consumer has taken since we knew last.
    fn look(&mut self) -> Result<u32, Corrupt> {
        // Acquire pairs with the kernel's release of its index: its reads of those entries are over.
        let taken = self.shared.index(self.shared.offsets.consumer).load(Ordering::Acquire);
        let since = taken.wrapping_sub(self.taken);
        if since.cast_signed() < 0 {
            // It tells us later than somebody else did.
            return Ok(0);
        }
        if since > self.published.wrapping_sub(self.taken) {
            return Err(Corrupt);
        }
        self.taken = taken;
        Ok(since)
    }

    /// Whether the kernel has taken some of the entries since we knew last, but not all.
    pub(crate) fn has_begun(&mut self) -> bool {
        self.look().is_ok_and(|count| count > 0) && self.taken != self.published
    }

    /// Whether the kernel has yet to take entries that were published.
    pub(crate) fn is_pending(&mut self) -> Result<bool, Corrupt> {
        self.look()?;
        Ok(self.taken != self.published)
    }

    /// To write entries with; [`free_entries`](Self::free_entries) must have said that there is space for all.
    #[inline(always)]
    pub(crate) const fn writer(&mut self) -> Writer<'_, T> {
        Writer { written: self.written, entries: self.shared.entries, count: &mut self.written }
    }

    /// Shows the kernel what was written.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        if self.published != self.written {
            self.published = self.written;
            // Release pairs with the kernel's acquire: the entries are written before it sees the index.
            self.shared.index(self.shared.offsets.producer).store(self.written, Ordering::Release);
        }
    }

    /// Whether the kernel wants to be told that something was published.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        // The kernel sets the flag and then looks at our index once more; we write the index and then look at the flag.
        // A store and a later load of another address: only a sequentially consistent fence keeps these in order, and
        // without it the last packet before a pause could wait until the next one.
        fence(Ordering::SeqCst);
        self.shared.index(self.shared.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// Writes entries of a ring, one after the other. Its count goes back to the ring when it is dropped: in between it needs no
/// memory, which a write through a pointer might change for all that the compiler knows.
pub(crate) struct Writer<'a, T: Plain> {
    count: &'a mut u32,
    written: u32,
    entries: Entries<T>,
}

impl<T: Plain> Writer<'_, T> {
    /// Writes the next entry.
    #[inline(always)]
    pub(crate) fn write(&mut self, entry: T) {
        // SAFETY: the ring is borrowed, so it is mapped; the kernel only reads entries between its index and
        // the published one, which this is not. (Without space it would be, and the kernel would read either value:
        // no harm to our memory.)
        unsafe { self.entries.at(self.written).write(entry) };
        self.written = self.written.wrapping_add(1);
    }
}

impl<T: Plain> Drop for Writer<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        *self.count = self.written;
    }
}

/// Our end of a ring that the kernel fills: the receive ring, the completion ring.
pub(crate) struct Consumer<T> {
    shared: Shared<T>,
    /// Entries taken so far.
    taken: u32,
    /// What the producer had written when we last looked.
    written: u32,
}

impl<T: Plain> Consumer<T> {
    pub(crate) fn map(socket: &OwnedFd, page_offset: u64, offsets: Offsets, size: u32) -> io::Result<Self> {
        Ok(Self { shared: Shared::map(socket, page_offset, offsets, size)?, taken: 0, written: 0 })
    }

    /// Entries that wait; looks at the kernel's index only if it must to answer `wanted`. While much waits, the line with
    /// that index, which the kernel writes for each packet, stays with the kernel's CPU.
    #[inline]
    pub(crate) fn ready(&mut self, wanted: u32) -> Result<u32, Corrupt> {
        let known = self.written.wrapping_sub(self.taken);
        if known >= wanted {
            return Ok(known);
        }
        // Acquire pairs with the kernel's release of its index: the entries are written.
        let written = self.shared.index(self.shared.offsets.producer).load(Ordering::Acquire);
        let ready = written.wrapping_sub(self.taken);
        if ready > self.shared.size() {
            return Err(Corrupt);
        }
        self.written = written;
        Ok(ready)
    }

    /// The entries that wait.
    #[inline(always)]
    pub(crate) const fn waiting(&self) -> Waiting<'_, T> {
        Waiting { entries: self.shared.entries, taken: self.taken, _ring: PhantomData }
    }

    /// Gives the next `count` entries back to the kernel.
    #[inline]
    pub(crate) fn release(&mut self, count: u32) {
        self.taken = self.taken.wrapping_add(count);
        // Release pairs with the kernel's acquire: our reads of the entries are over.
        self.shared.index(self.shared.offsets.consumer).store(self.taken, Ordering::Release);
    }
}

/// See [`Consumer::waiting`]. A copy: in a loop that also writes to memory it stays in registers.
pub(crate) struct Waiting<'a, T> {
    entries: Entries<T>,
    taken: u32,
    _ring: PhantomData<&'a T>,
}

impl<T: Plain> Waiting<'_, T> {
    /// The entry that is `ahead` behind the next one; garbage if it is not among those that wait.
    #[inline(always)]
    pub(crate) fn get(&self, ahead: u32) -> T {
        // SAFETY: the ring is borrowed, so it is mapped; any bytes are a T (Plain). The kernel doesn't write to
        // entries that it published until they are released; read once and as a whole, whatever it does.
        unsafe { self.entries.at(self.taken.wrapping_add(ahead)).read_volatile() }
    }

    /// Asks for the cache lines of the next `count` entries.
    #[inline(always)]
    pub(crate) fn prefetch(&self, count: u32) {
        for ahead in (0..count).step_by(64 / size_of::<T>()) {
            prefetch::prefetch_read_at(self.entries.at(self.taken.wrapping_add(ahead)).as_ptr().cast());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    const OFFSETS: Offsets = Offsets { producer: 0, consumer: 64, flags: 128, entries: 192 };
    const SIZE: u32 = 8;

    /// A ring in a file, both ends ours.
    fn ring() -> (Producer<u64>, Consumer<u64>, OwnedFd) {
        // SAFETY: a C string that lives through the call.
        let fd = unsafe { libc::memfd_create(c"ring".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: the descriptor was just made and nobody else has it.
        let fd = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) };
        File::from(fd.try_clone().unwrap()).set_len(4096).unwrap();
        let producer = Producer::map(&fd, 0, OFFSETS, SIZE).unwrap();
        (producer, Consumer::map(&fd, 0, OFFSETS, SIZE).unwrap(), fd)
    }

    #[test]
    fn entries_go_round_and_round() {
        let (mut producer, mut consumer, _fd) = ring();
        let mut next = 0_u64;
        for round in 0..100_u32 {
            let count = 1 + round % SIZE;
            assert_eq!(producer.free_entries(SIZE), Ok(SIZE));
            for number in 0..count {
                producer.writer().write(next + u64::from(number));
            }
            assert_eq!(consumer.ready(SIZE), Ok(0), "not yet published");
            producer.publish();
            assert_eq!(producer.is_pending(), Ok(true));
            assert_eq!(consumer.ready(SIZE), Ok(count));
            for number in 0..count {
                assert_eq!(consumer.waiting().get(number), next + u64::from(number));
            }
            assert_eq!(producer.free_entries(SIZE), Ok(SIZE - count));
            consumer.release(count);
            assert_eq!(producer.is_pending(), Ok(false));
            next += u64::from(count);
        }
    }

    #[test]
    fn what_is_known_is_enough_until_it_is_used_up() {
        let (mut producer, mut consumer, _fd) = ring();
        let mut put = |count: u64| {
            for number in 0..count {
                producer.writer().write(number);
            }
            producer.publish();
        };
        put(3);
        assert_eq!(consumer.ready(1), Ok(3));
        put(2);
        assert_eq!((consumer.ready(3), consumer.ready(4)), (Ok(3), Ok(5)));
        consumer.release(5);
        assert_eq!(consumer.ready(1), Ok(0));
    }

    #[test]
    fn impossible_indices_are_noticed() {
        let (mut producer, mut consumer, _fd) = ring();
        consumer.shared.index(OFFSETS.producer).store(SIZE + 1, Ordering::Relaxed);
        assert_eq!(consumer.ready(SIZE), Err(Corrupt));
        consumer.shared.index(OFFSETS.consumer).store(1, Ordering::Relaxed);
        assert_eq!(producer.is_pending(), Err(Corrupt));
        producer.writer().write(7);
        assert_eq!(producer.is_pending(), Err(Corrupt), "written, but not published");
    }

    #[test]
    fn an_index_that_lags_behind_what_is_known_changes_nothing() {
        let (mut producer, consumer, _fd) = ring();
        for _ in 0..5 {
            producer.writer().write(7);
        }
        producer.publish();
        producer.note_taken(3);
        assert_eq!((producer.under_way(), producer.free_entries(SIZE)), (2, Ok(6)));
        consumer.shared.index(OFFSETS.consumer).store(2, Ordering::Relaxed);
        assert_eq!((producer.has_begun(), producer.free_entries(SIZE)), (false, Ok(6)));
        consumer.shared.index(OFFSETS.consumer).store(4, Ordering::Relaxed);
        assert_eq!((producer.has_begun(), producer.free_entries(SIZE)), (true, Ok(7)));
        consumer.shared.index(OFFSETS.consumer).store(5, Ordering::Relaxed);
        assert_eq!((producer.has_begun(), producer.is_pending()), (false, Ok(false)), "all are taken");
    }

    #[test]
    fn the_wakeup_flag_is_seen() {
        let (producer, consumer, _fd) = ring();
        assert!(!producer.needs_wakeup());
        consumer.shared.index(OFFSETS.flags).store(libc::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
        assert!(producer.needs_wakeup());
    }

    #[test]
    fn impossible_offsets_are_refused() {
        let (_, _, fd) = ring();
        for offsets in [
            Offsets { producer: 192, ..OFFSETS },
            Offsets { consumer: 2, ..OFFSETS },
            Offsets { entries: 12, ..OFFSETS },
        ] {
            assert!(Consumer::<u64>::map(&fd, 0, offsets, SIZE).is_err(), "{offsets:?}");
        }
    }
}
