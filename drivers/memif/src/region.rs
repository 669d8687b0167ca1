//! Memory of the other side.

use crate::ring::{self, Ring};
use rustix::fs::{SealFlags, fcntl_get_seals};
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use warmlane_driver_common::peer::{Event, Extent, MappingError, PeerMapping};

/// Regions of one connection, at most.
pub(crate) const MAXIMUM_REGIONS: usize = 256;

/// Why memory is not taken; said to the other side, too.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegionError {
    #[error("a region of {0}")]
    Map(#[from] MappingError),
    #[error("a region that is not sealed against shrinking: seal it (F_SEAL_SHRINK), or set allow-unsealed")]
    Unsealed,
}

/// Why a ring is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RingError {
    #[error("a ring of 2^{0} descriptors")]
    Size(u8),
    #[error("a ring outside its region")]
    Outside,
    #[error("a ring at an address that 16 does not divide")]
    Unaligned,
    #[error("no ring where one should be: the cookie is wrong")]
    Cookie,
}

/// The regions of a connection. The other side can write to them at any time, but not take them away.
#[derive(Debug, Default)]
pub(crate) struct PeerMemory {
    regions: Vec<Arc<PeerMapping>>,
    /// One at least could be cut short.
    has_unsealed: bool,
}

impl PeerMemory {
    /// How many regions there are.
    pub(crate) const fn len(&self) -> usize {
        self.regions.len()
    }

    /// Maps the next region. The file may be closed then.
    ///
    /// # Errors
    /// [`RegionError`].
    pub(crate) fn add(
        &mut self,
        file: &OwnedFd,
        size: u64,
        allow_unsealed: bool,
        alarm: &Event,
    ) -> Result<(), RegionError> {
        // What can't be sealed has no seals at all (EINVAL).
        let is_sealed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if !is_sealed && !allow_unsealed {
            return Err(RegionError::Unsealed);
        }
        let mapping = PeerMapping::new(file, Extent { offset: 0, length: size }, true, alarm)?;
        self.regions.push(Arc::new(mapping));
        self.has_unsealed |= !is_sealed;
        Ok(())
    }

    /// Whether the other side has cut one of them short.
    pub(crate) fn is_lost(&self) -> bool {
        self.regions.iter().any(|region| region.is_lost())
    }

    /// The ring there.
    ///
    /// # Errors
    /// [`RingError`].
    pub(crate) fn ring(&self, region: u16, offset: u32, log2_size: u8) -> Result<Ring, RingError> {
        if !(1..=ring::LONGEST).contains(&log2_size) {
            return Err(RingError::Size(log2_size));
        }
        let length = ring::bytes(log2_size) as u32;
        let start = self.pointer(region, offset, length).ok_or(RingError::Outside)?;
        if !(offset as usize).is_multiple_of(ring::ALIGNMENT) {
            return Err(RingError::Unaligned);
        }
        // SAFETY: `pointer` says that so many bytes are mapped, which they stay as long as this, which the connection holds; the
        // address is aligned because mappings start at pages. Whatever else the other side puts there is only copied.
        let ring = unsafe { Ring::new(start, log2_size) };
        if ring.has_cookie() { Ok(ring) } else { Err(RingError::Cookie) }
    }

    /// The two regions of a client without copies: its rings, and its pool; if they stay as they are.
    pub(crate) fn rings_and_pool(&self) -> Option<[&Arc<PeerMapping>; 2]> {
        let [rings, pool] = &self.regions[..] else { return None };
        (!self.has_unsealed).then_some([rings, pool])
    }

    /// Where `length` bytes are, if they are in a region.
    #[inline(always)]
    pub(crate) fn pointer(&self, region: u16, offset: u32, length: u32) -> Option<NonNull<u8>> {
        self.regions.get(usize::from(region))?.pointer(offset.into(), length.into())
    }

    /// An address to prefetch, of whatever descriptor.
    #[inline(always)]
    pub(crate) fn hint(&self, region: u16, offset: u32) -> *const u8 {
        self.regions.get(usize::from(region)).map_or(std::ptr::null(), |region| {
            region.start().as_ptr().wrapping_add(offset as usize).cast_const()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    fn file(bytes: u64, seals: SealFlags) -> OwnedFd {
        let file = memfd_create("test", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, bytes).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    #[test]
    fn only_sealed_files_that_are_long_enough_are_mapped() {
        let mut memory = PeerMemory::default();
        for size in [0, 8193, u64::MAX] {
            let refused = memory.add(&file(8192, SealFlags::SHRINK), size, true, &Event::new().unwrap());
            assert!(matches!(refused, Err(RegionError::Map(MappingError::TooShort { .. }))), "{size}");
        }
        let unsealed = file(8192, SealFlags::GROW);
        assert!(matches!(
            memory.add(&unsealed, 8192, false, &Event::new().unwrap()),
            Err(RegionError::Unsealed)
        ));
        memory.add(&unsealed, 8192, true, &Event::new().unwrap()).unwrap();
        memory.add(&file(8192, SealFlags::SHRINK), 8192, false, &Event::new().unwrap()).unwrap();
        assert_eq!(memory.len(), 2);
    }

    #[test]
    fn places_are_inside_or_nowhere() {
        let mut memory = PeerMemory::default();
        memory.add(&file(8192, SealFlags::SHRINK), 5000, false, &Event::new().unwrap()).unwrap();
        assert!(memory.pointer(0, 0, 5000).is_some() && memory.pointer(0, 4999, 1).is_some());
        for (region, offset, length) in
            [(0, 0, 5001), (0, 5000, 1), (0, u32::MAX, u32::MAX), (1, 0, 0), (u16::MAX, 0, 0)]
        {
            assert_eq!(memory.pointer(region, offset, length), None, "{region} {offset} {length}");
        }
    }

    #[test]
    fn rings_are_checked() {
        let mut memory = PeerMemory::default();
        memory.add(&file(8192, SealFlags::SHRINK), 8192, false, &Event::new().unwrap()).unwrap();
        assert!(matches!(memory.ring(0, 0, 4), Err(RingError::Cookie)));
        let start = memory.pointer(0, 16, 8000).unwrap();
        // SAFETY: that much is mapped there.
        unsafe { Ring::new(start, 4) }.initialise();
        assert_eq!(memory.ring(0, 16, 4).unwrap().size(), 16);
        assert!(matches!(memory.ring(0, 24, 4), Err(RingError::Unaligned)));
        assert!(matches!(memory.ring(0, 16, 9), Err(RingError::Outside)));
        assert!(matches!(memory.ring(1, 16, 4), Err(RingError::Outside)));
        for size in [0, 15, u8::MAX] {
            assert!(matches!(memory.ring(0, 16, size), Err(RingError::Size(_))));
        }
    }
}
