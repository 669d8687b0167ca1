//! Owning a range of addresses.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};

use super::Refusal;

/// Mapped addresses that are ours: readable, writable, and unmapped when dropped.
#[derive(Debug)]
pub(super) struct AddressRange {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the range is a number pair that says which addresses to unmap; unmapping works from any thread. It gives
// no access to the memory except through `start`, whose users argue for themselves.
unsafe impl Send for AddressRange {}
// SAFETY: as above; shared references only read the two numbers.
unsafe impl Sync for AddressRange {}

impl AddressRange {
    /// Private zeroed memory, allocated page by page as it is touched.
    pub(super) fn map_private(length: usize, alignment: usize) -> Result<Self, Refusal> {
        Self::reserve(length, alignment)?.replaced(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    /// The first `length` bytes of `file`, shared with everyone who has it.
    pub(super) fn map_shared(file: &OwnedFd, length: usize, alignment: usize) -> Result<Self, Refusal> {
        Self::reserve(length, alignment)?.replaced(libc::MAP_SHARED, file.as_raw_fd())
    }

    /// Memory of the allocator, which is all that an interpreter has; nobody shares it.
    #[cfg(miri)]
    pub(super) fn allocated(length: usize) -> Result<Self, Refusal> {
        let layout = Self::layout(length);
        // SAFETY: a mapping has at least a page.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or_else(|| Refusal::last("alloc"))?;
        Ok(Self { start, length })
    }

    #[cfg(miri)]
    fn layout(length: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(length, super::HUGE_2M_BYTES).expect("a small mapping")
    }

    /// The same for a file of huge pages, whose mappings the kernel aligns by itself.
    pub(super) fn map_huge(file: &OwnedFd, length: usize) -> Result<Self, Refusal> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping where the kernel likes; no existing memory is touched.
        let address =
            unsafe { libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        Ok(Self { start: mapped(address)?, length })
    }

    /// Takes addresses without memory behind them: more than needed, of which the unaligned ends are unmapped.
    fn reserve(length: usize, alignment: usize) -> Result<Self, Refusal> {
        let too_long = || Refusal { call: "mmap", source: io::Error::from_raw_os_error(libc::ENOMEM) };
        let padded = length.checked_add(alignment).ok_or_else(too_long)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping where the kernel likes; no existing memory is touched.
        let address = unsafe { libc::mmap(ptr::null_mut(), padded, libc::PROT_NONE, flags, -1, 0) };
        let whole = Self { start: mapped(address)?, length: padded };
        let head = whole.start.align_offset(alignment);
        // From here on the three parts have one owner each; those of the ends unmap them at once.
        let base = whole.start;
        std::mem::forget(whole);
        // SAFETY: head < alignment, so all three parts lie inside the mapping, and `align_offset` of a byte pointer to a
        // power of two always succeeds.
        let (start, tail) = unsafe { (base.add(head), base.add(head + length)) };
        drop(Self { start: base, length: head });
        drop(Self { start: tail, length: alignment - head });
        Ok(Self { start, length })
    }

    /// Puts memory behind the reserved addresses.
    fn replaced(self, flags: libc::c_int, descriptor: libc::c_int) -> Result<Self, Refusal> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: MAP_FIXED replaces exactly the range that `reserve` took for us, which nobody has a pointer into yet.
        let address = unsafe {
            libc::mmap(
                self.start.as_ptr().cast(),
                self.length,
                protection,
                flags | libc::MAP_FIXED,
                descriptor,
                0,
            )
        };
        if let Err(refusal) = mapped(address) {
            // The kernel may have taken the reservation away before it failed. The addresses may be another thread's
            // by now, so they must not be unmapped; if they are still reserved, addresses are all that is lost.
            std::mem::forget(self);
            return Err(refusal);
        }
        Ok(self)
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        if self.length == 0 {
            return;
        }
        #[cfg(miri)]
        // SAFETY: allocated with this layout.
        unsafe {
            std::alloc::dealloc(self.start.as_ptr(), Self::layout(self.length));
        }
        #[cfg(not(miri))]
        // SAFETY: the range is ours alone, and whoever gave pointers into it away has promised that they are gone.
        // It can fail only for addresses that aren't whole pages, which these are.
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.length);
        }
    }
}

fn mapped(address: *mut libc::c_void) -> Result<NonNull<u8>, Refusal> {
    if address == libc::MAP_FAILED {
        return Err(Refusal::last("mmap"));
    }
    // Never null: the kernel doesn't choose address 0 (`vm.mmap_min_addr`).
    NonNull::new(address.cast()).ok_or_else(|| Refusal::last("mmap"))
}

/// Tells the kernel how the range will be used. Only for advice that leaves the contents alone.
pub(super) fn advise(range: &AddressRange, advice: libc::c_int) -> io::Result<()> {
    advise_part(range, 0..range.length, advice)
}

/// The same for the bytes `part` of the range, which start and end at pages.
pub(super) fn advise_part(range: &AddressRange, part: Range<usize>, advice: libc::c_int) -> io::Result<()> {
    debug_assert!(part.start <= part.end && part.end <= range.length);
    if cfg!(miri) {
        return Ok(());
    }
    let start = range.start.as_ptr().wrapping_add(part.start);
    loop {
        // SAFETY: the part lies in a mapping of ours. The callers' advice (page sizes, populating) keeps its contents, or
        // their own callers promise that nobody uses them (`TableMemory::discard`).
        if unsafe { libc::madvise(start.cast(), part.len(), advice) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        // A signal can interrupt populating; what is done stays done, so going on is right.
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unaligned_ends_are_unmapped() {
        let ranges: Vec<_> = (0..20)
            .map(|_| AddressRange::map_private(4096, 2 << 20).map_err(|r| r.source).unwrap())
            .collect();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let inaccessible: Vec<_> = maps.lines().filter(|line| line.contains(" ---p ")).collect();
        // Another thread's reservation may lie beside one of the ranges, but not beside all.
        let neighbours = |range: &&AddressRange| {
            let start = range.start().addr().get();
            let (below, above) = (format!("-{start:x} "), format!("{:x}-", start + range.length()));
            inaccessible.iter().any(|line| line.contains(&below) || line.starts_with(&above))
        };
        let kept = ranges.iter().filter(neighbours).count();
        assert!(kept < 10, "{kept} of 20 ranges kept the addresses beside them");
    }
}
