//! Memory that a device may access.

use super::calls;
use super::{Reach, VfioDevice};
use crate::error::PciError;
use std::os::unix::fs::FileExt as _;
use std::ptr::NonNull;
use warmlane_mem::Region;
use warmlane_sys::pages::{Mapping, PageSize};

/// Where memory is put for a device, if that is among its addresses: above the 4 GiB in which machines have other things.
const PREFERRED: u64 = 1 << 32;

/// What its place is a multiple of: a huge page, so that the IOMMU can have huge ones, too.
const ALIGNMENT: u64 = 2 << 20;

/// Bytes of a page in `/proc/self/pagemap`.
const PAGE: usize = 4096;

/// Memory that a device has, for as long as this is kept.
#[derive(Debug)]
pub struct DeviceMemory {
    device: VfioDevice,
    address: u64,
    bytes: u64,
}

impl DeviceMemory {
    /// Gives all of a mapping to a device. That it stays mapped is up to the caller: the kernel keeps its pages in memory, so a device never reaches what
    /// somebody else has there later; without an IOMMU, the device must be reset first.
    ///
    /// # Errors
    /// [`PciError`]: there is no place for it, the kernel refuses, or without an IOMMU it is not in one piece.
    pub fn new(device: &VfioDevice, mapping: &Mapping) -> Result<Self, PciError> {
        Self::give(device, mapping.as_ptr(), mapping.length(), mapping.page_size())
    }

    /// The same with all of a pool's memory.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_pool(device: &VfioDevice, region: &Region) -> Result<Self, PciError> {
        Self::give(device, region.address(), region.length(), region.pool().page_size())
    }

    fn give(
        device: &VfioDevice,
        start: NonNull<u8>,
        bytes: usize,
        pages: PageSize,
    ) -> Result<Self, PciError> {
        let (pci, whole) = (device.address(), bytes as u64);
        if device.reach() == Reach::All {
            let scattered = |problem| PciError::Scattered { address: pci, bytes, problem };
            if !matches!(pages, PageSize::Huge2M | PageSize::Huge1G) {
                let problem = "it is on pages that the kernel may move: reserve huge pages (`sysctl vm.nr_hugepages=64`)";
                return Err(scattered(problem.to_owned()));
            }
            let address = physical(start.addr().get(), bytes).map_err(scattered)?;
            return Ok(Self { device: device.clone(), address, bytes: whole });
        }
        let failed = |action| move |source| PciError::Vfio { address: pci, action, source };
        let ranges = calls::ranges(device.container()).map_err(failed("ask what its IOMMU can address"))?;
        let mut given = device.given();
        let address = choose(&ranges, &given, whole).ok_or(PciError::NoPlace { address: pci, bytes })?;
        let mut request = calls::MapMemory::new(start.addr().get() as u64, address, whole);
        calls::MAP
            .exchange(device.container(), &mut request)
            .map_err(failed("give it memory (enough of that must be allowed to be locked: `ulimit -l`)"))?;
        given.push((address, address + (whole - 1)));
        drop(given);
        Ok(Self { device: device.clone(), address, bytes: whole })
    }

    /// Where the device finds it.
    pub const fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.device.reach() == Reach::Given {
            let mut request = calls::UnmapMemory::new(self.address, self.bytes);
            let mut given = self.device.given();
            // If the kernel refuses, it happens when the container is closed, and until then nothing else is there.
            if calls::UNMAP.exchange(self.device.container(), &mut request).is_ok() {
                given.retain(|(first, _)| *first != self.address);
            }
        }
    }
}

/// A place for so many bytes, in ranges that are given by their first and last addresses, where nothing is of what was `given` already.
fn choose(ranges: &[(u64, u64)], given: &[(u64, u64)], bytes: u64) -> Option<u64> {
    // Kernels that don't say can address what all IOMMUs can.
    let ranges = if ranges.is_empty() { &[(PREFERRED, (1 << 39) - 1)] } else { ranges };
    let place = |from: u64, (first, last): (u64, u64)| {
        let mut start = first.max(from).checked_next_multiple_of(ALIGNMENT)?;
        loop {
            let end = start.checked_add(bytes - 1)?;
            if end > last {
                return None;
            }
            let Some((_, behind)) = given.iter().find(|(first, last)| *first <= end && start <= *last) else {
                return Some(start);
            };
            start = behind.checked_add(1)?.checked_next_multiple_of(ALIGNMENT)?;
        }
    };
    let any = |from: u64| ranges.iter().find_map(|range| place(from, *range));
    // Never at 0, which some devices take for none.
    any(PREFERRED).or_else(|| any(ALIGNMENT))
}

/// The physical address of so many bytes, if they are one piece.
fn physical(start: usize, bytes: usize) -> Result<u64, String> {
    let file =
        std::fs::File::open("/proc/self/pagemap").map_err(|error| format!("/proc/self/pagemap: {error}"))?;
    let mut entries = vec![0_u8; bytes / PAGE * 8];
    let place = (start / PAGE * 8) as u64;
    file.read_exact_at(&mut entries, place).map_err(|error| format!("/proc/self/pagemap: {error}"))?;
    one_piece(entries.chunks_exact(8).map(|entry| u64::from_ne_bytes(entry.try_into().unwrap_or_default())))
}

/// From entries of `/proc/self/pagemap` (`Documentation/admin-guide/mm/pagemap.rst`).
fn one_piece(entries: impl Iterator<Item = u64>) -> Result<u64, String> {
    /// The page is in memory.
    const PRESENT: u64 = 1 << 63;
    /// Its number; 0 for who may not know.
    const NUMBER: u64 = (1 << 55) - 1;
    let mut first = None;
    for (page, entry) in entries.enumerate() {
        let number = entry & NUMBER;
        if entry & PRESENT == 0 || number == 0 {
            return Err("the kernel doesn't say where it is, which takes CAP_SYS_ADMIN".to_owned());
        }
        let first = *first.get_or_insert(number);
        if number != first + page as u64 {
            let problem = "its huge pages don't follow each other: take a smaller ring-size or pool, or reserve pages of 1 GiB at boot (`hugepagesz=1G hugepages=1`)";
            return Err(problem.to_owned());
        }
    }
    first.map(|number| number * PAGE as u64).ok_or_else(|| "it has no pages".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_inside_what_can_be_addressed() {
        let bytes = 3 << 20;
        let choose = |ranges: &[_]| choose(ranges, &[], bytes);
        assert_eq!(choose(&[]), Some(PREFERRED));
        assert_eq!(choose(&[(0, 0xfedf_ffff), (0xfef0_0000, 0x7f_ffff_ffff)]), Some(PREFERRED));
        assert_eq!(choose(&[(0, 0xfedf_ffff)]), Some(ALIGNMENT));
        assert_eq!(choose(&[(5, ALIGNMENT + bytes - 1)]), Some(ALIGNMENT));
        assert_eq!(choose(&[(5, ALIGNMENT + bytes - 2), (u64::MAX - bytes, u64::MAX)]), None);
    }

    #[test]
    fn no_two_are_in_the_same_place() {
        let (all, bytes) = ([(0, PREFERRED + 8 * ALIGNMENT - 1)], 3 << 20);
        let mut given = Vec::new();
        while let Some(start) = choose(&all, &given, bytes) {
            let end = start + bytes - 1;
            assert!(given.iter().all(|(first, last)| *last < start || end < *first), "{start:x}");
            given.push((start, end));
            if start == PREFERRED {
                assert_eq!(given.len(), 1);
            }
        }
        // Above the preferred place four, and as many below it as there is space for.
        let fit = |from: u64, to: u64| (to - from) / (2 * ALIGNMENT);
        assert_eq!(given.len() as u64, 4 + fit(ALIGNMENT, PREFERRED));
        // One that is gone leaves its place.
        let (gone, _) = given.remove(2);
        assert_eq!(choose(&all, &given, bytes), Some(gone));
    }

    #[test]
    fn pages_are_one_piece_if_they_follow_each_other() {
        let entry = |number: u64| 1 << 63 | 1 << 55 | number;
        assert_eq!(one_piece([entry(7), entry(8), entry(9)].into_iter()), Ok(7 * 4096));
        for entries in [&[entry(7), entry(9)][..], &[entry(7), entry(8) & !(1 << 63)], &[entry(0)], &[]] {
            assert!(one_piece(entries.iter().copied()).is_err(), "{entries:x?}");
        }
    }
}
