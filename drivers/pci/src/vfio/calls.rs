//! VFIO's ioctls (`include/uapi/linux/vfio.h`).

use rustix::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::ffi::{CString, c_int, c_ulong};
use std::io;
use warmlane_driver_common::peer::Event;
use warmlane_driver_common::system::check;

/// `VFIO_TYPE` and `VFIO_BASE`: the requests encode neither size nor direction.
const fn number(request: u8) -> c_ulong {
    (b';' as c_ulong) << 8 | (100 + request as c_ulong)
}

/// `VFIO_TYPE1v2_IOMMU`.
pub(super) const TYPE1_V2: c_ulong = 3;
/// `VFIO_NOIOMMU_IOMMU`.
pub(super) const NO_IOMMU: c_ulong = 8;
/// `VFIO_PCI_CONFIG_REGION_INDEX`; those below are of base address registers.
pub(super) const CONFIG_REGION: u32 = 7;
/// `VFIO_PCI_MSIX_IRQ_INDEX`.
pub(super) const MSIX: u32 = 2;
/// `VFIO_PCI_REQ_IRQ_INDEX`.
pub(super) const REQUEST: u32 = 4;

/// A request whose argument is a number.
pub(super) struct Question(u8);

pub(super) const VERSION: Question = Question(0);
pub(super) const HAS: Question = Question(1);
pub(super) const SET_IOMMU: Question = Question(2);
pub(super) const RESET: Question = Question(11);

impl Question {
    pub(super) fn ask(&self, fd: &OwnedFd, argument: c_ulong) -> io::Result<c_int> {
        // SAFETY: the requests above take numbers, so the kernel follows no pointer.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), number(self.0) as libc::Ioctl, argument) })
    }
}

/// An argument that begins with its own length in bytes, which is how far the kernel reads and writes.
///
/// # Safety
/// It is `repr(C)`, plain integers without padding, and its first field is its length.
pub(super) unsafe trait Sized32: Copy {
    /// Says there again how long it is.
    fn set_bytes(&mut self);
}

/// A request whose argument the kernel reads and fills in.
pub(super) struct Exchange(u8);

pub(super) const GROUP_STATUS: Exchange = Exchange(3);
pub(super) const DEVICE_INFO: Exchange = Exchange(7);
pub(super) const REGION_INFO: Exchange = Exchange(8);
pub(super) const INTERRUPT_INFO: Exchange = Exchange(9);
pub(super) const MAP: Exchange = Exchange(13);
pub(super) const UNMAP: Exchange = Exchange(14);

impl Exchange {
    pub(super) fn exchange<T: Sized32>(&self, fd: &OwnedFd, argument: &mut T) -> io::Result<()> {
        // SAFETY: the kernel reads and writes no more than the argument says it has, which is its size (`Sized32`), and any integers are one.
        check(unsafe {
            libc::ioctl(fd.as_raw_fd(), number(self.0) as libc::Ioctl, std::ptr::from_mut(argument))
        })?;
        // The kernel says there how much more it knows, which isn't there for another exchange.
        argument.set_bytes();
        Ok(())
    }
}

macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty,)* })+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            #[repr(C)]
            pub(super) struct $name {
                pub(super) bytes: u32,
                $(pub(super) $field: $kind,)*
            }

            // SAFETY: integers, the offsets of which are multiples of their sizes; `bytes` is set to the size by all constructors.
            unsafe impl Sized32 for $name {
                fn set_bytes(&mut self) {
                    self.bytes = bytes::<Self>();
                }
            }
        )+
    };
}

arguments! {
    /// `struct vfio_group_status`.
    GroupStatus { flags: u32, }
    /// `struct vfio_device_info`, as far as all kernels have it.
    DeviceInfo { flags: u32, regions: u32, interrupts: u32, }
    /// `struct vfio_region_info`.
    RegionInfo { flags: u32, index: u32, capabilities: u32, size: u64, offset: u64, }
    /// `struct vfio_irq_info`.
    InterruptInfo { flags: u32, index: u32, count: u32, }
    /// `struct vfio_iommu_type1_dma_map`.
    MapMemory { flags: u32, process: u64, device: u64, size: u64, }
    /// `struct vfio_iommu_type1_dma_unmap`.
    UnmapMemory { flags: u32, device: u64, size: u64, }
}

const fn bytes<T>() -> u32 {
    size_of::<T>() as u32
}

impl GroupStatus {
    /// `VFIO_GROUP_FLAGS_VIABLE`.
    pub(super) const VIABLE: u32 = 1;

    pub(super) const fn new() -> Self {
        Self { bytes: bytes::<Self>(), flags: 0 }
    }
}

impl DeviceInfo {
    /// `VFIO_DEVICE_FLAGS_RESET`.
    pub(super) const CAN_RESET: u32 = 1;

    pub(super) const fn new() -> Self {
        Self { bytes: bytes::<Self>(), flags: 0, regions: 0, interrupts: 0 }
    }
}

impl RegionInfo {
    /// `VFIO_REGION_INFO_FLAG_MMAP`.
    pub(super) const MAPPABLE: u32 = 4;

    pub(super) const fn new(index: u32) -> Self {
        Self { bytes: bytes::<Self>(), flags: 0, index, capabilities: 0, size: 0, offset: 0 }
    }
}

impl InterruptInfo {
    pub(super) const fn new(index: u32) -> Self {
        Self { bytes: bytes::<Self>(), flags: 0, index, count: 0 }
    }
}

impl MapMemory {
    /// `VFIO_DMA_MAP_FLAG_READ` and `_WRITE`: the device may do both.
    const READ_WRITE: u32 = 3;

    pub(super) const fn new(process: u64, device: u64, size: u64) -> Self {
        Self { bytes: bytes::<Self>(), flags: Self::READ_WRITE, process, device, size }
    }
}

impl UnmapMemory {
    pub(super) const fn new(device: u64, size: u64) -> Self {
        Self { bytes: bytes::<Self>(), flags: 0, device, size }
    }
}

/// `VFIO_GROUP_SET_CONTAINER`.
pub(super) fn set_container(group: &OwnedFd, container: &OwnedFd) -> io::Result<()> {
    let mut descriptor: c_int = container.as_raw_fd();
    // SAFETY: the kernel reads one integer, which lives through the call.
    check(unsafe { libc::ioctl(group.as_raw_fd(), number(4) as libc::Ioctl, &raw mut descriptor) }).map(drop)
}

/// `VFIO_GROUP_GET_DEVICE_FD`.
pub(super) fn device(group: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    // SAFETY: the kernel reads the name up to its end, and it lives through the call.
    let descriptor =
        check(unsafe { libc::ioctl(group.as_raw_fd(), number(6) as libc::Ioctl, name.as_ptr()) })?;
    // SAFETY: the kernel has just made this descriptor for us, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// `VFIO_DEVICE_SET_IRQS`: interrupts of a kind, from the first on, signal events.
pub(super) fn set_events(device: &OwnedFd, kind: u32, events: &[Event]) -> io::Result<()> {
    /// `VFIO_IRQ_SET_DATA_EVENTFD` and `VFIO_IRQ_SET_ACTION_TRIGGER`.
    const TRIGGER_EVENTS: u32 = 4 | 32;
    // `struct vfio_irq_set`: its length, flags, kind, first, count, and the descriptors.
    let length = 5 + events.len();
    let mut words = vec![4 * length as u32, TRIGGER_EVENTS, kind, 0, events.len() as u32];
    words.extend(events.iter().map(|event| event.fd().as_raw_fd().cast_unsigned()));
    // SAFETY: the kernel reads as many bytes as the first word says, which the vector has.
    check(unsafe { libc::ioctl(device.as_raw_fd(), number(10) as libc::Ioctl, words.as_mut_ptr()) }).map(drop)
}

/// `VFIO_IOMMU_GET_INFO`, with what may be behind it: the ranges that devices can address, from first to last. Kernels before 5.4 don't say.
pub(super) fn ranges(container: &OwnedFd) -> io::Result<Vec<(u64, u64)>> {
    /// As far as all kernels have it: length, flags, page sizes (twice), offset of capabilities, padding.
    const FIXED: usize = 24;
    let mut words = vec![0_u32; FIXED / 4];
    loop {
        words[0] = 4 * words.len() as u32;
        // SAFETY: the kernel writes no more bytes than the first word says, which the vector has.
        check(unsafe { libc::ioctl(container.as_raw_fd(), number(12) as libc::Ioctl, words.as_mut_ptr()) })?;
        let needed = words[0] as usize;
        if needed <= 4 * words.len() {
            return Ok(parse_ranges(&words));
        }
        words = vec![0; needed.div_ceil(4)];
    }
}

fn parse_ranges(words: &[u32]) -> Vec<(u64, u64)> {
    /// `VFIO_IOMMU_INFO_CAPS`.
    const HAS_CAPABILITIES: u32 = 2;
    /// `VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE`, version 1.
    const RANGES: u32 = 1 | 1 << 16;
    let mut ranges = Vec::new();
    if words[1] & HAS_CAPABILITIES == 0 {
        return ranges;
    }
    let mut at = words[4] as usize / 4;
    // There are not more capabilities than words.
    for _ in 0..words.len() {
        let Some(&[kind, next, count, _]) = words.get(at..).and_then(|rest| rest.first_chunk()) else {
            break;
        };
        if at == 0 {
            break;
        }
        if kind == RANGES {
            let pairs = words[at + 4..].chunks_exact(4).take(count as usize);
            ranges.extend(pairs.map(|pair| {
                let long = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
                (long(pair[0], pair[1]), long(pair[2], pair[3]))
            }));
        }
        at = next as usize / 4;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_as_long_as_the_kernel_has_them() {
        assert_eq!(bytes::<GroupStatus>(), 8);
        assert_eq!((bytes::<DeviceInfo>(), bytes::<InterruptInfo>()), (16, 16));
        assert_eq!((bytes::<RegionInfo>(), bytes::<MapMemory>(), bytes::<UnmapMemory>()), (32, 32, 24));
        // `VFIO_DEVICE_RESET`.
        assert_eq!(number(11), 0x3b6f);
    }

    #[test]
    fn ranges_are_found_behind_other_capabilities() {
        let mut words = vec![0, 3, 0, 0, 24, 0];
        words.extend([3 | 1 << 16, 40, 0, 0]);
        words.extend([1 | 1 << 16, 0, 2, 0, 0, 0, 0xfedf_ffff, 0, 0xfef0_0000, 0, 0xffff_ffff, 0x7f]);
        assert_eq!(parse_ranges(&words), [(0, 0xfedf_ffff), (0xfef0_0000, 0x7f_ffff_ffff)]);
        for (place, value) in [(1, 1), (4, 0), (4, 4000), (7, 24)] {
            let mut words = words.clone();
            words[place] = value;
            assert_eq!(parse_ranges(&words), [], "{place} {value}");
        }
        words[12] = 1000;
        assert_eq!(parse_ranges(&words).len(), 2);
    }
}
