//! Memory that a device may access.

use super::calls;
use super::{Reach, VfioDevice};
use crate::error::PciError;
use std::os::unix::fs::FileExt as _;
use std::ptr::NonNull;
use std::sync::Arc;
use warmlane_driver_common::SharedPool;
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

    /// The same with all of a pool's memory, which need not be in one piece: without an IOMMU, buffers that lie across two of its pages are not to be given to the
    /// device ([`Crossing`](super::Crossing)).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn of_pool(device: &VfioDevice, region: &Region) -> Result<(Self, Arc<SharedPool>), PciError> {
        let (start, bytes, pages) = (region.address(), region.length(), region.pool().page_size());
        if device.reach() == Reach::Given {
            let memory = Self::give(device, start, bytes, pages)?;
            let pool = SharedPool::new(region.clone(), memory.address);
            return Ok((memory, pool));
        }
        let places = on_huge_pages(pages).and_then(|()| physical(start.addr().get(), bytes, pages.bytes()));
        let places =
            places.map_err(|problem| PciError::Scattered { address: device.address(), bytes, problem })?;
        let pool = SharedPool::in_pages(region.clone(), &places, pages.bytes());
        Ok((Self { device: device.clone(), address: 0, bytes: bytes as u64 }, pool))
    }

    fn give(
        device: &VfioDevice,
        start: NonNull<u8>,
        bytes: usize,
        pages: PageSize,
    ) -> Result<Self, PciError> {
        let (pci, whole) = (device.address(), bytes as u64);
        if device.reach() == Reach::All {
            let places =
                on_huge_pages(pages).and_then(|()| physical(start.addr().get(), bytes, pages.bytes()));
            let address = places.and_then(|places| one_piece(&places, pages.bytes()));
            let address = address.map_err(|problem| PciError::Scattered { address: pci, bytes, problem })?;
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

fn on_huge_pages(pages: PageSize) -> Result<(), String> {
    if matches!(pages, PageSize::Huge2M | PageSize::Huge1G) {
        return Ok(());
    }
    Err("it is on pages that the kernel may move: reserve huge pages (`sysctl vm.nr_hugepages=64`)"
        .to_owned())
}

/// The physical addresses of the pages of so many bytes that memory is on.
fn physical(start: usize, bytes: usize, page_bytes: usize) -> Result<Vec<u64>, String> {
    let unknown = |error| format!("/proc/self/pagemap: {error}");
    let file = std::fs::File::open("/proc/self/pagemap").map_err(unknown)?;
    let page = |offset: usize| {
        let mut entry = [0; size_of::<u64>()];
        let position = (start + offset) / PAGE * size_of::<u64>();
        file.read_exact_at(&mut entry, position as u64).map_err(unknown)?;
        place(u64::from_ne_bytes(entry))
    };
    (0..bytes).step_by(page_bytes).map(page).collect()
}

/// From an entry of `/proc/self/pagemap` (`Documentation/admin-guide/mm/pagemap.rst`).
fn place(entry: u64) -> Result<u64, String> {
    /// The page is in memory.
    const PRESENT: u64 = 1 << 63;
    /// Its number; 0 for who may not know.
    const NUMBER: u64 = (1 << 55) - 1;
    let number = entry & NUMBER;
    if entry & PRESENT == 0 || number == 0 {
        return Err("the kernel doesn't say where it is, which takes CAP_SYS_ADMIN".to_owned());
    }
    Ok(number * PAGE as u64)
}

/// Where pages of so many bytes begin, if they follow each other.
fn one_piece(places: &[u64], page_bytes: usize) -> Result<u64, String> {
    let follow = places.windows(2).all(|pair| pair[0] + page_bytes as u64 == pair[1]);
    let first = places.first().filter(|_| follow);
    first.copied().ok_or_else(|| {
        "its huge pages don't follow each other: take a smaller ring-size, or reserve pages of 1 GiB at boot (`hugepagesz=1G hugepages=1`)".to_owned()
    })
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
    fn pages_are_where_the_kernel_says() {
        let entry = |number: u64| 1 << 63 | 1 << 55 | number;
        assert_eq!(place(entry(7)), Ok(7 * 4096));
        assert!(place(entry(8) & !(1 << 63)).is_err() && place(entry(0)).is_err());
    }

    #[test]
    fn pages_are_one_piece_if_they_follow_each_other() {
        let page = 2 << 20;
        assert_eq!(one_piece(&[7 * page, 8 * page, 9 * page], page as usize), Ok(7 * page));
        for places in [&[7 * page, 9 * page][..], &[8 * page, 7 * page], &[]] {
            assert!(one_piece(places, page as usize).is_err(), "{places:x?}");
        }
    }
}
