//! Memory that another process shares with this one.

use super::Event;
use super::lost_memory::Watch;
use rustix::fs::fstat;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::ptr::NonNull;
use thiserror::Error;

/// Bytes of the next larger pages.
const LARGE_PAGE: usize = 2 << 20;

/// Why memory is not mapped.
#[derive(Debug, Error)]
pub enum MappingError {
    /// The file does not reach that far, or nothing is asked for.
    #[error("{length} bytes from {offset} on in a file of {file}")]
    TooShort {
        /// The first byte asked for.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// Bytes that there are.
        file: u64,
    },
    /// Its file is on huge pages, and there are not enough.
    #[error(
        "{length} bytes on huge pages of {} MiB, and so many are not left: reserve more (/proc/sys/vm/nr_hugepages)",
        page >> 20
    )]
    HugePages {
        /// How many bytes.
        length: u64,
        /// Bytes of a page.
        page: u64,
    },
    /// The kernel refuses.
    #[error("can't map it: {0}")]
    Map(#[from] io::Error),
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its first byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// A part of a file of another process, mapped until it is dropped, with a page that nobody can use on either side. The other side can write to it at any time. If it cuts the file short,
/// what is gone reads as zero from then on, and [`is_lost`](Self::is_lost) says so.
#[derive(Debug)]
pub struct PeerMapping {
    /// First, so that a range that is unmapped is no longer watched.
    watch: Watch,
    /// All that was taken of the address space, with the guards around it.
    reserved: NonNull<u8>,
    reserved_bytes: usize,
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: addresses of a mapping that no thread owns; accesses argue for themselves.
unsafe impl Send for PeerMapping {}
// SAFETY: as above.
unsafe impl Sync for PeerMapping {}

impl PeerMapping {
    /// Maps a part of a file, which may be closed then. With `populate` all its pages are made now, so that none faults later; memory
    /// that its owner has not used yet is taken then. `alarm` is signalled if the memory is lost.
    ///
    /// # Errors
    /// [`MappingError`].
    pub fn new(file: &OwnedFd, part: Extent, populate: bool, alarm: &Event) -> Result<Self, MappingError> {
        let stat = fstat(file).map_err(io::Error::from)?;
        let bytes = u64::try_from(stat.st_size).unwrap_or(0);
        let Extent { offset, length } = part;
        let too_short = MappingError::TooShort { offset, length, file: bytes };
        let Some(end) = offset.checked_add(length).filter(|end| *end <= bytes && length > 0) else {
            return Err(too_short);
        };
        // Huge pages are mapped whole, and st_blksize is their size (`fs/hugetlbfs/inode.c`).
        let page = u64::try_from(stat.st_blksize).unwrap_or(0).next_power_of_two().max(4096);
        let first = offset & !(page - 1);
        let whole = end.checked_next_multiple_of(page).and_then(|end| usize::try_from(end - first).ok());
        let (Some(mapped), Ok(from)) = (whole, libc::off_t::try_from(first)) else { return Err(too_short) };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let populate = if populate { libc::MAP_POPULATE } else { libc::MAP_NORESERVE };
        let flags = libc::MAP_SHARED | populate;
        let fd = file.as_raw_fd();
        // Guards on both sides: nothing of ours is next to what another process knows.
        let guard = page as usize;
        // Where large pages can be mapped as such, if the file has some.
        let alignment = if mapped < LARGE_PAGE { guard } else { guard.max(LARGE_PAGE) };
        let reserved_bytes = (2 * guard + alignment).checked_add(mapped).ok_or(too_short)?;
        let reservation = Reservation::new(reserved_bytes)?;
        let lowest = reservation.start.addr().get() + guard;
        let ahead = (first as usize).wrapping_sub(lowest) & (alignment - 1);
        // SAFETY: less than a guard and the alignment behind the start of what is longer.
        let base = unsafe { reservation.start.add(guard + ahead) };
        // SAFETY: inside what was just reserved, which nobody uses, and a guard before its end.
        let address = unsafe {
            libc::mmap(base.as_ptr().cast(), mapped, protection, flags | libc::MAP_FIXED, fd, from)
        };
        if address == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            let is_huge = page >= LARGE_PAGE as u64 && error.kind() == io::ErrorKind::OutOfMemory;
            return Err(if is_huge { MappingError::HugePages { length, page } } else { error.into() });
        }
        // A child would share the memory, and a core dump would have the other side's secrets.
        for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
            // SAFETY: advice about a mapping of ours, which leaves its contents alone.
            unsafe { libc::madvise(address, mapped, advice) };
        }
        let inside = (offset - first) as usize;
        // SAFETY: less than a page behind the base, and the mapping goes on behind that.
        let start = unsafe { base.add(inside) };
        let watch = Watch::new(base, mapped, alarm);
        let Reservation { start: reserved, .. } = *std::mem::ManuallyDrop::new(reservation);
        let mapping = Self { watch, reserved, reserved_bytes, start, length: length as usize };
        if !mapping.watch.is_registered() {
            return Err(io::Error::other("too many regions of other processes").into());
        }
        Ok(mapping)
    }

    /// The first byte of the part.
    #[inline(always)]
    pub const fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes of the part.
    #[inline(always)]
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Where `length` bytes from `offset` on are, if they are in the part.
    #[inline(always)]
    pub const fn pointer(&self, offset: u64, length: u64) -> Option<NonNull<u8>> {
        let all = self.length as u64;
        if offset > all || length > all - offset {
            return None;
        }
        // SAFETY: at most the part's length behind its start.
        Some(unsafe { self.start.add(offset as usize) })
    }

    /// Whether the other side has cut the file short, and we have met what is gone.
    pub fn is_lost(&self) -> bool {
        self.watch.is_lost()
    }
}

/// A part of the address space where nothing is.
struct Reservation {
    start: NonNull<u8>,
    bytes: usize,
}

impl Reservation {
    fn new(bytes: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping where the kernel likes; no existing memory is touched.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, bytes })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: it is whole, and nobody else knows of it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

impl Drop for PeerMapping {
    fn drop(&mut self) {
        self.watch.end();
        // SAFETY: the range is ours alone; who uses it holds this, which is going. It can't fail for a whole mapping.
        unsafe { libc::munmap(self.reserved.as_ptr().cast(), self.reserved_bytes) };
    }
}

/// The data at `start`, for the moment of a copy.
///
/// # Safety
/// `length` bytes are mapped there, and stay so while the slice is used. The other side may write to them meanwhile: so they
/// are copied and never decided upon.
#[inline(always)]
pub const unsafe fn shared<'a>(start: NonNull<u8>, length: usize) -> &'a [u8] {
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(start.as_ptr(), length) }
}

/// The room at `start`, for the moment of a copy.
///
/// # Safety
/// `length` bytes are mapped there, and stay so while the slice is used, and this process has no other reference to them. The other
/// side may write to them meanwhile: so they are only written.
#[inline(always)]
pub const unsafe fn shared_mut<'a>(start: NonNull<u8>, length: usize) -> &'a mut [u8] {
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    fn file(bytes: u64) -> OwnedFd {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, bytes).unwrap();
        file
    }

    fn map(file: &OwnedFd, offset: u64, length: u64) -> Result<PeerMapping, MappingError> {
        PeerMapping::new(file, Extent { offset, length }, false, &Event::new().unwrap())
    }

    /// What the kernel says of the page at an address: what may be done there, and whether others see it.
    fn permissions(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| {
            let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let [from, to] = [from, to].map(|word| usize::from_str_radix(word, 16).unwrap());
            (from..to).contains(&address)
        });
        line.and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned()
    }

    #[test]
    fn guards_are_on_both_sides() {
        for (offset, length) in [(0, 4096), (8192, 3 << 20), (4096, 5 << 20)] {
            let mapping = map(&file(8 << 20), offset, length).unwrap();
            let start = mapping.start().addr().get();
            let end = start + length as usize;
            assert_eq!([start, end - 1].map(permissions), ["rw-s"; 2]);
            let guards = [start - 4096, start - 1, end, end + 4095].map(permissions);
            assert_eq!(guards, ["---p"; 4], "{offset} {length}");
            assert_eq!(start % LARGE_PAGE, if length > 4096 { offset as usize } else { start % LARGE_PAGE });
        }
    }

    /// A file on huge pages, none of which it has yet; `None` where the kernel has no such files.
    fn file_on_huge_pages(bytes: u64) -> Option<OwnedFd> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        let Ok(file) = memfd_create("test", flags) else {
            eprintln!("SKIPPED: this kernel has no memory files on huge pages");
            return None;
        };
        ftruncate(&file, bytes).unwrap();
        Some(file)
    }

    /// The other side's pages are larger than the parts that it lends.
    #[test]
    fn huge_pages_are_mapped_whole() {
        const HUGE: usize = LARGE_PAGE;
        let Some(file) = file_on_huge_pages(2 * HUGE as u64) else { return };
        for (offset, length) in [(0, 4096), (12_288, 10_000), (HUGE - 4096, 8192), (HUGE + 1, HUGE - 1)] {
            let mapping = map(&file, offset as u64, length as u64).unwrap();
            let start = mapping.start().addr().get();
            assert_eq!((start % HUGE, mapping.length()), (offset % HUGE, length));
            let (first, end) = (start - offset % HUGE, (start + length).next_multiple_of(HUGE));
            assert_eq!([first, start, start + length - 1, end - 1].map(permissions), ["rw-s"; 4]);
            let guards = [first - HUGE, first - 1, end, end + HUGE - 1].map(permissions);
            assert_eq!(guards, ["---p"; 4], "{offset} {length}");
        }
        for (offset, length) in [(2 * HUGE - 4096, 8192), (0, 2 * HUGE + 1), (2 * HUGE, 4096)] {
            let error = map(&file, offset as u64, length as u64).unwrap_err().to_string();
            assert_eq!(error, format!("{length} bytes from {offset} on in a file of {}", 2 * HUGE));
        }
        // More than any machine has, all of which is to be there.
        let whole = Extent { offset: 0, length: 1 << 40 };
        let Some(file) = file_on_huge_pages(whole.length) else { return };
        let error = PeerMapping::new(&file, whole, true, &Event::new().unwrap()).unwrap_err().to_string();
        assert!(error.contains("huge pages of 2 MiB") && error.contains("nr_hugepages"), "{error}");
    }

    #[test]
    fn only_what_a_file_has_is_mapped() {
        let file = file(3 * 4096);
        for (offset, length) in
            [(0, 0), (0, 12_289), (1, 12_288), (12_288, 1), (u64::MAX, 2), (4096, u64::MAX)]
        {
            assert!(matches!(map(&file, offset, length), Err(MappingError::TooShort { .. })), "{offset}");
        }
        let whole = map(&file, 0, 12_288).unwrap();
        let part = map(&file, 5000, 7000).unwrap();
        // SAFETY: both ranges are mapped, and no slice is used after the statement.
        unsafe {
            shared_mut(whole.pointer(5000, 3).unwrap(), 3).copy_from_slice(&[1, 2, 3]);
            assert_eq!(shared(part.start(), 3), [1, 2, 3]);
        }
        assert!(part.pointer(0, 7000).is_some() && part.pointer(7000, 0).is_some());
        for (offset, length) in [(0, 7001), (7000, 1), (1, 7000), (u64::MAX, 1), (1, u64::MAX)] {
            assert_eq!(part.pointer(offset, length), None);
        }
    }

    #[test]
    fn memory_that_is_cut_short_is_lost_and_nothing_else() {
        let (file, other) = (file(2 * 4096), file(4096));
        let alarm = Event::new().unwrap();
        let whole = Extent { offset: 0, length: 8192 };
        let mapping = PeerMapping::new(&file, whole, false, &alarm).unwrap();
        let undisturbed = map(&other, 0, 4096).unwrap();
        // SAFETY: mapped; no slice is used after the statement.
        let byte =
            |mapping: &PeerMapping, offset| unsafe { shared(mapping.pointer(offset, 1).unwrap(), 1)[0] };
        // SAFETY: as above.
        unsafe { shared_mut(undisturbed.start(), 1)[0] = 7 };
        assert!(!mapping.is_lost());
        ftruncate(&file, 4096).unwrap();
        assert_eq!(byte(&mapping, 5000), 0);
        assert!(mapping.is_lost() && !undisturbed.is_lost());
        assert_eq!(rustix::io::read(alarm.fd(), &mut [0; 8]), Ok(8));
        assert_eq!((byte(&undisturbed, 0), byte(&mapping, 0)), (7, 0));
        drop(mapping);
        assert_eq!(byte(&undisturbed, 0), 7);
    }
}
