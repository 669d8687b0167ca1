//! Memory that descriptors point to: which addresses of the driver are where in this process.

use crate::protocol::MemoryRegion;
use std::ptr::NonNull;
use std::sync::Arc;
use thiserror::Error;
use warmlane_driver_common::SharedPool;
use warmlane_driver_common::peer::PeerMapping;
use warmlane_sys::pages::Mapping;

/// Regions that can be there at once, where each comes in a message of its own. QEMU has no more (`VHOST_USER_MAX_RAM_SLOTS`).
pub const MAXIMUM_SLOTS: usize = 512;

/// Why a region is not taken.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RegionError {
    /// It ends behind the last address there can be.
    #[error("a region of memory that ends behind the last address")]
    Wraps,
    /// It has addresses that another one has.
    #[error("two regions of memory with the same addresses")]
    Overlaps,
    /// There are too many.
    #[error("more than {MAXIMUM_SLOTS} regions of memory")]
    TooMany,
    /// It is not there.
    #[error("a region of memory is to be removed that is not there")]
    Absent,
}

#[derive(Clone, Debug)]
struct Region {
    guest: u64,
    length: u64,
    user: u64,
    start: NonNull<u8>,
    mapping: Arc<Shared>,
    /// How often it was added, and so has to be removed.
    times: u32,
}

// SAFETY: an address in a mapping that no thread owns and that is held beside it; accesses argue for themselves.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

/// Whose memory it is.
#[derive(Debug)]
enum Shared {
    /// The other side's: this side is the device.
    Theirs(PeerMapping),
    /// Lent to the other side: this side is the driver.
    Ours { _mapping: Mapping },
    /// Lent to the other side, too: a pool.
    Pool { _pool: Arc<SharedPool> },
}

impl Region {
    /// Whether a message is about this one.
    fn is(&self, region: &MemoryRegion) -> bool {
        (self.guest, self.length, self.user) == (region.guest, region.length, region.user)
    }

    /// Where `length` bytes from `offset` on are, if they are inside.
    const fn pointer(&self, offset: u64, length: u64) -> Option<NonNull<u8>> {
        if offset > self.length || length > self.length - offset {
            return None;
        }
        // SAFETY: at most the region's length behind its start, and all of it is mapped.
        Some(unsafe { self.start.add(offset as usize) })
    }
}

/// All regions as they are at one time. Who uses an address in them holds this.
#[derive(Clone, Debug, Default)]
pub struct GuestMemory {
    regions: Vec<Region>,
}

impl GuestMemory {
    /// Adds a region once more, if it is there: QEMU does so for each pair of queues. Says whether it is.
    pub fn add_again(&mut self, region: &MemoryRegion) -> bool {
        let there = self.regions.iter_mut().find(|there| there.is(region));
        if let Some(there) = there {
            there.times = there.times.saturating_add(1);
            return true;
        }
        false
    }

    /// One region more. What is mapped is as long as the region says.
    ///
    /// # Errors
    /// [`RegionError`].
    pub fn add(&mut self, region: &MemoryRegion, mapping: PeerMapping) -> Result<(), RegionError> {
        let MemoryRegion { guest, length, user, .. } = *region;
        if guest.checked_add(length).is_none() || user.checked_add(length).is_none() {
            return Err(RegionError::Wraps);
        }
        let overlaps = |other: &Region| {
            let meets = |start: u64, there: u64| start < there + other.length && there < start + length;
            meets(guest, other.guest) || meets(user, other.user)
        };
        if self.regions.iter().any(overlaps) {
            return Err(RegionError::Overlaps);
        }
        if self.regions.len() >= MAXIMUM_SLOTS {
            return Err(RegionError::TooMany);
        }
        debug_assert_eq!(mapping.length() as u64, length);
        let start = mapping.start();
        let mapping = Arc::new(Shared::Theirs(mapping));
        self.regions.push(Region { guest, length, user, start, mapping, times: 1 });
        Ok(())
    }

    /// Memory of this side, all of which is lent from this address on.
    pub(crate) fn ours(address: u64, mapping: Mapping) -> Self {
        let (start, length) = (mapping.as_ptr(), mapping.length() as u64);
        let mapping = Arc::new(Shared::Ours { _mapping: mapping });
        Self { regions: vec![Region { guest: address, length, user: address, start, mapping, times: 1 }] }
    }

    /// With a pool besides, which is lent, too.
    pub(crate) fn with_pool(&self, pool: &Arc<SharedPool>) -> Self {
        let mapping = Arc::new(Shared::Pool { _pool: Arc::clone(pool) });
        let base = pool.region().address();
        let mut all = self.clone();
        all.regions.extend(pool.pages().map(|(guest, offset, length)| Region {
            guest,
            length: length as u64,
            user: guest,
            // SAFETY: inside the region, which is mapped as long as the pool is held.
            start: unsafe { base.add(offset) },
            mapping: Arc::clone(&mapping),
            times: 1,
        }));
        all
    }

    /// One region less, unless it was [added more often](Self::add_again).
    ///
    /// # Errors
    /// [`RegionError::Absent`].
    pub fn remove(&mut self, region: &MemoryRegion) -> Result<(), RegionError> {
        let index = self.regions.iter().position(|there| there.is(region)).ok_or(RegionError::Absent)?;
        let there = &mut self.regions[index];
        there.times -= 1;
        if there.times == 0 {
            self.regions.remove(index);
        }
        Ok(())
    }

    /// How many regions there are.
    pub const fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Whether a part of it was cut short.
    pub fn is_lost(&self) -> bool {
        self.regions.iter().any(|region| match &*region.mapping {
            Shared::Theirs(mapping) => mapping.is_lost(),
            // Its file is sealed.
            Shared::Ours { .. } | Shared::Pool { .. } => false,
        })
    }

    /// Where `length` bytes are, by an address of the front end's process.
    pub fn user(&self, address: u64, length: usize) -> Option<NonNull<u8>> {
        self.regions.iter().find_map(|region| {
            region.pointer(address.checked_sub(region.user)?, length as u64).filter(|_| length > 0)
        })
    }

    /// The driver's address of what has this address in the front end's process.
    pub fn guest(&self, user: u64) -> Option<u64> {
        self.regions.iter().find_map(|region| {
            let offset = user.checked_sub(region.user).filter(|offset| *offset < region.length)?;
            Some(region.guest + offset)
        })
    }

    /// Behind the last of the driver's addresses.
    pub fn end(&self) -> u64 {
        self.regions.iter().map(|region| region.guest + region.length).max().unwrap_or(0)
    }

    /// To look up addresses of the driver.
    #[inline]
    pub fn addresses(&self) -> Addresses<'_> {
        let area = self.regions.first().map_or(Area::NONE, Area::of);
        Addresses { memory: self, area }
    }
}

/// A region, as a lookup needs it.
#[derive(Clone, Copy, Debug)]
struct Area {
    guest: u64,
    length: u64,
    start: NonNull<u8>,
}

impl Area {
    const NONE: Self = Self { guest: 0, length: 0, start: NonNull::dangling() };

    fn of(region: &Region) -> Self {
        Self { guest: region.guest, length: region.length, start: region.start }
    }

    /// As much as there is of `length` bytes from `address` on.
    #[inline(always)]
    fn find(&self, address: u64, length: u64) -> Option<(NonNull<u8>, u64)> {
        let offset = address.wrapping_sub(self.guest);
        if offset >= self.length {
            return None;
        }
        // SAFETY: the offset is below the region's length, which is mapped.
        let pointer = unsafe { self.start.add(offset as usize) };
        Some((pointer, length.min(self.length - offset)))
    }
}

/// Looks up addresses of the driver. It looks first where the last one was.
#[derive(Clone, Copy, Debug)]
pub struct Addresses<'a> {
    memory: &'a GuestMemory,
    area: Area,
}

impl Addresses<'_> {
    /// Where `length` bytes are, if they are in one region.
    #[inline(always)]
    pub fn pointer(&mut self, address: u64, length: u32) -> Option<NonNull<u8>> {
        let offset = address.wrapping_sub(self.area.guest);
        if offset < self.area.length && u64::from(length) <= self.area.length - offset {
            // SAFETY: the offset is below the region's length, which is mapped.
            return Some(unsafe { self.area.start.add(offset as usize) });
        }
        let (pointer, there) = self.search(address, length)?;
        (there == u64::from(length)).then_some(pointer)
    }

    /// Where the first of `length` bytes is, and how many of them are in the same region.
    #[inline(always)]
    pub fn part(&mut self, address: u64, length: u32) -> Option<(NonNull<u8>, u32)> {
        let found = self.area.find(address, length.into());
        let (pointer, there) = match found {
            Some(found) => found,
            None => self.search(address, length)?,
        };
        Some((pointer, there as u32))
    }

    #[cold]
    fn search(&mut self, address: u64, length: u32) -> Option<(NonNull<u8>, u64)> {
        self.memory.regions.iter().map(Area::of).find_map(|area| {
            let found = area.find(address, length.into())?;
            self.area = area;
            Some(found)
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use warmlane_driver_common::peer::{Event, Extent};

    /// Regions of guest addresses and lengths, at user addresses 2^40 above.
    pub(crate) fn memory(regions: &[(u64, u64)]) -> GuestMemory {
        let mut memory = GuestMemory::default();
        for &(guest, length) in regions {
            add(&mut memory, guest, length).unwrap();
        }
        memory
    }

    fn add(memory: &mut GuestMemory, guest: u64, length: u64) -> Result<(), RegionError> {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, length).unwrap();
        let extent = Extent { offset: 0, length };
        let mapping = PeerMapping::new(&file, extent, false, &Event::new().unwrap()).unwrap();
        memory.add(&MemoryRegion { guest, length, user: guest.wrapping_add(1 << 40), offset: 0 }, mapping)
    }

    #[test]
    fn addresses_are_in_a_region_or_nowhere() {
        let memory = memory(&[(4096, 4096), (8192, 8192), (1 << 32, 4096)]);
        let mut addresses = memory.addresses();
        let start = addresses.pointer(4096, 4096).unwrap();
        assert_eq!(
            addresses.pointer(8191, 1).map(|pointer| pointer.addr().get() - start.addr().get()),
            Some(4095)
        );
        assert!(addresses.pointer((1 << 32) + 4000, 96).is_some());
        // In two regions, one behind the other.
        assert_eq!(addresses.part(8000, 300).map(|(_, there)| there), Some(192));
        assert_eq!(addresses.part(8192, 108).map(|(_, there)| there), Some(108));
        for (address, length) in
            [(0, 1), (4095, 1), (8000, 300), (16_384, 1), (16_383, 2), (u64::MAX, 1), (1 << 32, 4097)]
        {
            assert_eq!(addresses.pointer(address, length), None, "{address} {length}");
        }
        assert!(memory.user((1 << 40) + 8192, 8192).is_some());
        assert_eq!(memory.user((1 << 40) + 8192, 8193), None);
        assert_eq!(memory.user(8192, 1), None);
    }

    #[test]
    fn regions_that_cannot_be_are_refused() {
        let mut memory = memory(&[(4096, 8192)]);
        for (guest, length) in [(0, 8192), (8192, 4096), (4096, 8192), (8192, 8192)] {
            assert_eq!(add(&mut memory, guest, length), Err(RegionError::Overlaps));
        }
        assert_eq!(add(&mut memory, u64::MAX - 4095, 8192), Err(RegionError::Wraps));
        add(&mut memory, 0, 4096).unwrap();
        let region = MemoryRegion { guest: 0, length: 4096, user: 1 << 40, offset: 0 };
        assert!(memory.add_again(&region));
        memory.remove(&region).unwrap();
        assert!(memory.addresses().pointer(0, 1).is_some(), "it was added twice");
        memory.remove(&region).unwrap();
        assert_eq!(memory.remove(&region), Err(RegionError::Absent));
        assert_eq!(memory.addresses().pointer(0, 1), None);
        assert!(!memory.add_again(&region));
    }
}
