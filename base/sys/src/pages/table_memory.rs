//! Memory for large lookup tables of plain integers.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use super::address_space::advise_part;
use super::{AddressRange, HUGE_2M_BYTES, MappingError, advise, base_page_bytes};
use crate::memory;

/// What errors call it.
const TABLE: &str = "table";

mod sealed {
    /// What a table may consist of.
    ///
    /// # Safety
    /// All bits zero must be a valid value, and dropping one must do nothing.
    #[expect(unnameable_types, reason = "sealed: nobody outside may add a type")]
    pub unsafe trait Sealed {}
}
use sealed::Sealed;

/// An entry of a table: an integer, an atomic integer, or an array of either. All bits zero is its value 0.
pub trait TableEntry: Sealed {}
impl<T: Sealed> TableEntry for T {}

macro_rules! entries {
    ($($integer:ty),*) => { $(
        // SAFETY: an integer of zero bits is 0, and integers have no drop code.
        unsafe impl Sealed for $integer {}
    )* };
}
entries!(u8, u16, u32, u64, AtomicU8, AtomicU16, AtomicU32, AtomicU64);
// SAFETY: an array of zero bits is one of entries of zero bits, without drop code of its own.
unsafe impl<T: Sealed, const N: usize> Sealed for [T; N] {}

/// A zeroed slice that starts on a 2 MiB boundary and asks for transparent huge pages, so that a table of many MiB
/// needs few entries of the translation cache (TLB). Only what has been written to takes memory (2 MiB at a time where the
/// kernel grants huge pages). Derefs to a slice.
pub struct TableMemory<T: TableEntry> {
    range: AddressRange,
    count: usize,
    /// It owns entries: threads may share it as they may share a boxed slice of them.
    entries: PhantomData<Box<[T]>>,
}

// `AddressRange` is Send and Sync by itself, and `PhantomData<Box<[T]>>` makes both depend on the entries.

impl<T: TableEntry> TableMemory<T> {
    /// Pages are aligned for every entry but one that is over-aligned beyond a page; an empty array is no entry.
    const FITS: () =
        assert!(align_of::<T>() <= 4096 && size_of::<T>() > 0, "an entry has a size and fits a page");

    /// `count` entries of value 0.
    ///
    /// # Errors
    /// [`MappingError::ZeroLength`] for no entries, [`MappingError::TooLarge`] for more than the machine's
    /// memory could ever hold.
    pub fn zeroed(count: usize) -> Result<Self, MappingError> {
        const { Self::FITS };
        if count == 0 {
            return Err(MappingError::ZeroLength { name: TABLE.to_owned() });
        }
        let wanted = count.saturating_mul(size_of::<T>());
        let available = memory::available().unwrap_or(isize::MAX as u64);
        let length = wanted
            .checked_next_multiple_of(base_page_bytes())
            .filter(|length| *length as u64 <= available)
            .ok_or_else(|| MappingError::TooLarge { name: TABLE.to_owned(), length: wanted, available })?;
        let range =
            AddressRange::map_private(length, HUGE_2M_BYTES).map_err(|refusal| refusal.named(TABLE))?;
        // A kernel without transparent huge pages refuses; then the table works as well, on plain pages.
        let _ = advise(&range, libc::MADV_HUGEPAGE);
        Ok(Self { range, count, entries: PhantomData })
    }

    /// Takes memory for these entries now, so that writing to them later can neither fail nor wait for a page. Entries
    /// that have memory keep it and their values. A kernel before Linux 5.14 takes it at the first write after all.
    ///
    /// # Errors
    /// [`MappingError::System`] if there is none.
    ///
    /// # Panics
    /// If the table has no such entries.
    pub fn commit(&self, entries: Range<usize>) -> Result<(), MappingError> {
        let (start, end) = self.bytes(&entries);
        let pages = start / base_page_bytes() * base_page_bytes()..end;
        match advise_part(&self.range, pages, libc::MADV_POPULATE_WRITE) {
            Err(source) if source.raw_os_error() != Some(libc::EINVAL) => {
                let call = "madvise(MADV_POPULATE_WRITE)";
                Err(MappingError::System { name: TABLE.to_owned(), call, source })
            }
            _ => Ok(()),
        }
    }

    /// Returns the memory of these entries to the kernel, up to 2 MiB at the start excepted. What is returned becomes 0 and takes
    /// memory again when it is written to. Without effect where the kernel refuses.
    ///
    /// # Safety
    /// Nobody may read or write these entries while it runs.
    ///
    /// # Panics
    /// If the table has no such entries.
    pub unsafe fn discard(&self, entries: Range<usize>) {
        let (start, end) = self.bytes(&entries);
        let pages = start.next_multiple_of(HUGE_2M_BYTES).min(end)..end;
        let _ = advise_part(&self.range, pages, libc::MADV_DONTNEED);
    }

    /// Where entries start, and where the last page with one of them ends.
    fn bytes(&self, entries: &Range<usize>) -> (usize, usize) {
        assert!(
            entries.start <= entries.end && entries.end <= self.count,
            "{entries:?} of {} entries",
            self.count
        );
        (entries.start * size_of::<T>(), (entries.end * size_of::<T>()).next_multiple_of(base_page_bytes()))
    }
}

impl<T: TableEntry> Deref for TableMemory<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: the range holds `count` entries (`zeroed`), aligned to a page; they are valid as zero bits (`Sealed`) and
        // after that as whatever was written; the range is ours alone until `self` is dropped, and writing through the
        // slice needs `&mut self` or an atomic.
        unsafe { std::slice::from_raw_parts(self.range.start().cast().as_ptr(), self.count) }
    }
}

impl<T: TableEntry> DerefMut for TableMemory<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `&mut self` makes it the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.range.start().cast().as_ptr(), self.count) }
    }
}

impl<T: TableEntry> fmt::Debug for TableMemory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableMemory").field("count", &self.count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    fn resident_bytes(address: usize) -> u64 {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let area = maps.split_once(&format!("{address:x}-")).unwrap().1;
        crate::text::kilobyte_field(area, "Rss").unwrap()
    }

    #[test]
    fn zeroed_aligned_and_writable_to_the_last_entry() {
        let mut table = TableMemory::<u32>::zeroed(3_000_001).unwrap();
        assert_eq!(table.len(), 3_000_001);
        assert_eq!(table.as_ptr().addr() % HUGE_2M_BYTES, 0);
        assert!(table.iter().all(|entry| *entry == 0));
        table[3_000_000] = 7;
        table[0] = 9;
        assert_eq!((table[3_000_000], table[0], table[1]), (7, 9, 0));
    }

    #[test]
    fn only_what_is_touched_takes_memory() {
        let mut table = TableMemory::<u64>::zeroed(8 << 20).unwrap();
        let address = table.as_ptr().addr();
        assert_eq!(resident_bytes(address), 0);
        table[4 << 20] = 1;
        let resident = resident_bytes(address);
        assert!(resident > 0 && resident <= HUGE_2M_BYTES as u64, "{resident}");
    }

    #[test]
    fn committed_entries_have_memory_and_discarded_ones_none() {
        let mut table = TableMemory::<u64>::zeroed(4 << 20).unwrap();
        let address = table.as_ptr().addr();
        table[7] = 3;
        table.commit(0..1 << 20).unwrap();
        let resident = resident_bytes(address);
        assert!((8 << 20..=10 << 20).contains(&resident), "{resident}");
        table[1 << 20] = 5;
        // SAFETY: nobody else has the table.
        unsafe { table.discard(1 << 10..4 << 20) };
        assert_eq!((table[7], table[1 << 20]), (3, 0));
        assert!(resident_bytes(address) <= 4 << 20);
    }

    #[test]
    fn atomics_are_shared_between_threads() {
        let table = TableMemory::<AtomicU32>::zeroed(1000).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| table.iter().for_each(|entry| _ = entry.fetch_add(1, Ordering::Relaxed)));
            }
        });
        assert!(table.iter().all(|entry| entry.load(Ordering::Relaxed) == 2));
    }

    #[test]
    fn arrays_are_entries_too() {
        let mut table = TableMemory::<[u8; 3]>::zeroed(5).unwrap();
        table[4] = [1, 2, 3];
        assert_eq!(table.concat().iter().sum::<u8>(), 6);
    }

    #[test]
    fn no_entries_and_too_many_are_errors() {
        assert!(matches!(TableMemory::<u8>::zeroed(0), Err(MappingError::ZeroLength { .. })));
        for count in [1 << 44, usize::MAX] {
            assert!(
                matches!(TableMemory::<u64>::zeroed(count), Err(MappingError::TooLarge { .. })),
                "{count}"
            );
        }
    }
}
