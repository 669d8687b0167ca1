//! Network devices of virtio on PCI (virtio 1.2, sections 4.1 and 5.1).

mod capabilities;
mod device;
mod port;
mod queues;
mod registers;

#[cfg(test)]
mod model;

pub use capabilities::{Location, Locations};
pub(crate) use port::open;

/// The vendor of virtio devices (section 4.1.2).
pub(crate) const VENDOR: u16 = 0x1af4;

/// Network devices: since virtio 1.0, and those that speak the older form, too.
pub(crate) const DEVICES: [u16; 2] = [0x1041, 0x1000];

/// What is wrong with a device that doesn't go by the IOMMU that is there.
pub(crate) const BYPASSES_IOMMU: &str = "it bypasses the IOMMU (no VIRTIO_F_ACCESS_PLATFORM), so it would write to other memory than it is given: QEMU has it go through with \
     iommu_platform=on,disable-legacy=on";
