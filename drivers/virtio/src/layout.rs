//! How a driver's memory is cut: rings, and buffers for each.

use crate::features::{EVENT_INDEX, IN_ORDER, MERGEABLE, header_length};
use crate::memory::GuestMemory;
use crate::protocol::RingAddresses;
use crate::queue::driver::{Buffers, Driver, DriverRing, PackedDriverRing, PoolBuffers, SplitDriverRing};
use crate::queue::ring::AnySide;
use crate::ring::{packed, split, word64};
use std::ops::RangeInclusive;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use warmlane_driver_common::SharedPool;

/// How many descriptors a ring can have. The longest packet has to fit into fewer buffers.
pub(crate) const RING_SIZES: RangeInclusive<u16> = 64..=1 << 15;

/// Parts of rings begin at lines of their own.
const LINE: usize = 64;

/// Bytes of each buffer: a frame of 1,518 bytes and a header, and what there is to the next power of two.
pub(crate) const ROOM: u32 = 2048;

/// From one buffer to the next: an odd number of lines, so that their first lines spread over all sets of the caches.
const STRIDE: u32 = ROOM + LINE as u32;

/// A driver's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) size: u16,
    pub(crate) is_packed: bool,
    pub(crate) rings: usize,
    /// Where the memory is for the device.
    pub(crate) address: u64,
}

impl Layout {
    /// Bytes of the parts of a ring: descriptors, what the driver writes, what the device writes.
    fn parts(self) -> [usize; 3] {
        let parts = if self.is_packed {
            let suppression = packed::SUPPRESSION_BYTES;
            [packed::descriptors_bytes(self.size), suppression, suppression]
        } else {
            [
                split::descriptors_bytes(self.size),
                split::available_bytes(self.size),
                split::used_bytes(self.size),
            ]
        };
        parts.map(|bytes| bytes.next_multiple_of(LINE))
    }

    /// Bytes of a ring, without buffers: whole lines.
    pub(crate) fn ring_bytes(self) -> usize {
        self.parts().iter().sum()
    }

    /// Bytes of all.
    pub(crate) fn bytes(self) -> usize {
        self.rings * (self.ring_bytes() + usize::from(self.size) * STRIDE as usize)
    }

    /// Where the parts of a ring are, as the device is told.
    pub(crate) fn addresses(self, number: usize) -> RingAddresses {
        let [descriptors, available, _] = self.parts();
        let start = self.address + (number * self.ring_bytes()) as u64;
        RingAddresses {
            index: number as u32,
            flags: 0,
            descriptors: start,
            available: start + descriptors as u64,
            used: start + (descriptors + available) as u64,
            log: 0,
        }
    }

    /// Where the parts of a ring are in this process. `None`: the memory is not of this layout.
    fn pointers(self, number: usize, memory: &GuestMemory) -> Option<[NonNull<u8>; 3]> {
        let RingAddresses { descriptors, available, used, .. } = self.addresses(number);
        let [first, second, third] = self.parts();
        Some([memory.user(descriptors, first)?, memory.user(available, second)?, memory.user(used, third)?])
    }

    /// Makes the parts of a ring all zero. `None`: the memory is not of this layout.
    fn clear(self, number: usize, memory: &GuestMemory) -> Option<()> {
        for (pointer, bytes) in self.pointers(number, memory)?.into_iter().zip(self.parts()) {
            for offset in (0..bytes).step_by(size_of::<u64>()) {
                // SAFETY: inside the part, which starts at a line and has whole ones, and which a memory is held for that it was found in.
                unsafe { word64(pointer, offset) }.store(0, Ordering::Relaxed);
            }
        }
        Some(())
    }

    /// A packed ring. `None`: the memory is not of this layout. Who has the ring holds the memory.
    pub(crate) fn packed_ring(self, number: usize, memory: &GuestMemory) -> Option<packed::PackedRing> {
        let [descriptors, driver, device] = self.pointers(number, memory)?;
        let parts = packed::Parts { descriptors, driver, device };
        // SAFETY: the parts are mapped, at multiples of a line, for as long as the memory is held, as who has the ring does; sizes are at most `LONGEST`.
        // Buffers are elsewhere in the memory.
        Some(unsafe { packed::PackedRing::new(parts, self.size) })
    }

    /// A split ring; as above.
    pub(crate) fn split_ring(self, number: usize, memory: &GuestMemory) -> Option<split::SplitRing> {
        let [descriptors, available, used] = self.pointers(number, memory)?;
        let parts = split::Parts { descriptors, available, used };
        // SAFETY: as above, and the size is a power of two.
        Some(unsafe { split::SplitRing::new(parts, self.size) })
    }

    /// The first ring, all zero, without the buffers. `None`: the memory is not of this layout. Who has the ring holds the memory.
    pub(crate) fn bare_ring(self, memory: &GuestMemory, features: u64) -> Option<Box<dyn DriverRing + Send>> {
        let event_index = features & EVENT_INDEX != 0;
        self.clear(0, memory)?;
        Some(if self.is_packed {
            Box::new(PackedDriverRing::new(self.packed_ring(0, memory)?, event_index))
        } else {
            Box::new(SplitDriverRing::new(self.split_ring(0, memory)?, event_index))
        })
    }

    /// The buffers of a ring; those with even numbers are filled by the device.
    fn buffers(self, number: usize, features: u64) -> Buffers {
        let offset = self.rings * self.ring_bytes() + number * usize::from(self.size) * STRIDE as usize;
        Buffers {
            address: self.address + offset as u64,
            stride: STRIDE,
            room: ROOM,
            count: self.size,
            is_filled_by_device: number.is_multiple_of(2),
            is_mergeable: features & MERGEABLE != 0,
            is_in_order: features & IN_ORDER != 0,
        }
    }

    /// A driver for a ring in which no device is, whose device reaches a pool besides the memory. `None`: the memory is not of this layout, or the pool has too few
    /// buffers left, or none with space for headers.
    pub(crate) fn lending_driver(
        self,
        number: usize,
        memory: &GuestMemory,
        features: u64,
        pool: &Arc<SharedPool>,
    ) -> Option<AnySide> {
        let event_index = features & EVENT_INDEX != 0;
        let buffers = self.buffers(number, features);
        let pool = PoolBuffers::new(pool, self.size, header_length(features))?;
        self.clear(number, memory)?;
        Some(if self.is_packed {
            let ring = PackedDriverRing::new(self.packed_ring(number, memory)?, event_index);
            AnySide::PackedDriver(Driver::lending(ring, buffers, pool)?)
        } else {
            let ring = SplitDriverRing::new(self.split_ring(number, memory)?, event_index);
            AnySide::SplitDriver(Driver::lending(ring, buffers, pool)?)
        })
    }

    /// A driver for a ring in which no device is; those with even numbers are filled by the device. It goes on with what the `former`
    /// driver of the same ring knows, unless the former device left nonsense. `None`: the memory is not of this layout.
    pub(crate) fn driver(
        self,
        number: usize,
        memory: &GuestMemory,
        features: u64,
        former: Option<AnySide>,
    ) -> Option<AnySide> {
        let event_index = features & EVENT_INDEX != 0;
        let buffers = self.buffers(number, features);
        let addresses = &mut memory.addresses();
        Some(if self.is_packed {
            let ring = self.packed_ring(number, memory)?;
            let former = former.and_then(|former| match former {
                AnySide::PackedDriver(mut driver) => driver.settle(addresses).is_ok().then_some(driver),
                _ => None,
            });
            self.clear(number, memory)?;
            let ring = PackedDriverRing::new(ring, event_index);
            AnySide::PackedDriver(match former {
                Some(driver) => driver.restart(ring),
                None => Driver::new(ring, buffers),
            })
        } else {
            let ring = self.split_ring(number, memory)?;
            let former = former.and_then(|former| match former {
                AnySide::SplitDriver(mut driver) => driver.settle(addresses).is_ok().then_some(driver),
                _ => None,
            });
            self.clear(number, memory)?;
            let ring = SplitDriverRing::new(ring, event_index);
            AnySide::SplitDriver(match former {
                Some(driver) => driver.restart(ring),
                None => Driver::new(ring, buffers),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_all_is_inside() {
        for is_packed in [false, true] {
            let layout = Layout { size: 64, is_packed, rings: 6, address: 1 << 32 };
            let [descriptors, available, used] = layout.parts();
            let mut parts: Vec<(u64, u64)> = Vec::new();
            for number in 0..6 {
                let addresses = layout.addresses(number);
                assert!(addresses.descriptors.is_multiple_of(64) && addresses.index == number as u32);
                parts.push((addresses.descriptors, descriptors as u64));
                parts.push((addresses.available, available as u64));
                parts.push((addresses.used, used as u64));
            }
            let buffers = 6 * 64 * u64::from(STRIDE);
            parts.push((layout.address + layout.bytes() as u64 - buffers, buffers));
            assert!(parts.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{parts:?}");
        }
    }
}
