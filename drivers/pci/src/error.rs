//! What can go wrong with a device.

use crate::address::PciAddress;
use std::io;
use std::path::PathBuf;
use thiserror::Error;
use warmlane_sys::pages::MappingError;

/// Why a device could not be listed, taken, given back or opened.
#[derive(Debug, Error)]
pub enum PciError {
    /// There is no device at this address.
    #[error("there is no PCI device {address}: `warmlane pci` lists the network devices")]
    NoDevice {
        /// What was asked for.
        address: PciAddress,
    },
    /// It is another kind of device.
    #[error("PCI device {address} is no network device (class {class:06x}): `warmlane pci` lists those")]
    NotNetwork {
        /// The device.
        address: PciAddress,
        /// Its class, as the kernel says it.
        class: u32,
    },
    /// Who took it could be cut off.
    #[error(
        "{interface}, which is PCI device {address}, carries the default route: without it this machine may be out of reach, and this session over; \
         `warmlane pci take {address} --force` takes it all the same"
    )]
    DefaultRoute {
        /// The device.
        address: PciAddress,
        /// The interface.
        interface: String,
    },
    /// The kernel's module is not there.
    #[error("there is no driver vfio-pci: load it with `modprobe vfio-pci`")]
    NoVfio,
    /// It is with another driver.
    #[error(
        "PCI device {address} is with {driver}, not with vfio-pci: take it with `warmlane pci take {address}`, or with the option `take` for as long as the \
         port is open"
    )]
    NotTaken {
        /// The device.
        address: PciAddress,
        /// Its driver, or "no driver".
        driver: String,
    },
    /// It was not taken by us.
    #[error("PCI device {address} was not taken: it is with {driver}")]
    NotOurs {
        /// The device.
        address: PciAddress,
        /// Its driver, or "no driver".
        driver: String,
    },
    /// A driver did not take the device.
    #[error(
        "PCI device {address} should be with {wanted} now, and is with {found}: the kernel's log (`dmesg`) says why"
    )]
    NotBound {
        /// The device.
        address: PciAddress,
        /// The driver that it should have.
        wanted: String,
        /// What it has.
        found: String,
    },
    /// A file of the kernel's, or the note of what was taken.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// VFIO doesn't do it.
    #[error("PCI device {address}: cannot {action}: {source}")]
    Vfio {
        /// The device.
        address: PciAddress,
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// Somebody else has it.
    #[error(
        "PCI device {address}, or another one of its IOMMU group, is in use{by}: of each group one program can have one device open{}",
        if by.is_empty() { "; root sees by whom: `warmlane pci`" } else { "" }
    )]
    InUse {
        /// The device.
        address: PciAddress,
        /// " by whom"; empty if that can't be seen.
        by: String,
    },
    /// There is no IOMMU, and the kernel does not pretend.
    #[error(
        "PCI device {address} has no IOMMU group: switch the IOMMU on (`intel_iommu=on` or `amd_iommu=on` on the kernel's command line), or let devices reach all \
         memory (`echo 1 >/sys/module/vfio/parameters/enable_unsafe_noiommu_mode`, then take the device again)"
    )]
    NoGroup {
        /// The device.
        address: PciAddress,
    },
    /// There is no IOMMU, and the kernel can't do without.
    #[error(
        "PCI device {address} has no IOMMU group, and this kernel gives no device to a program without (CONFIG_VFIO_NOIOMMU): switch the IOMMU on (`intel_iommu=on` or \
         `amd_iommu=on` on the kernel's command line); a virtual machine needs a virtual one from its host"
    )]
    NoIommu {
        /// The device.
        address: PciAddress,
    },
    /// Only root changes drivers.
    #[error("taking devices from the kernel and giving them back needs root")]
    NotRoot,
    /// Others of its group are with the kernel.
    #[error(
        "PCI device {address} shares IOMMU group {group} with devices that the kernel drives ({others}): an IOMMU can't tell them apart, so take \
         them, too (`warmlane pci take`)"
    )]
    NotViable {
        /// The device.
        address: PciAddress,
        /// The group.
        group: String,
        /// The other devices, with commas between.
        others: String,
    },
    /// There is no place for so much memory.
    #[error(
        "PCI device {address}: {bytes} bytes of memory have no place in what its IOMMU can address: a smaller ring-size, or fewer queues"
    )]
    NoPlace {
        /// The device.
        address: PciAddress,
        /// How much.
        bytes: usize,
    },
    /// Without an IOMMU a device needs memory in one piece.
    #[error(
        "PCI device {address} has no IOMMU, and so needs {bytes} bytes of memory in one piece: {problem}"
    )]
    Scattered {
        /// The device.
        address: PciAddress,
        /// How much.
        bytes: usize,
        /// What is there instead, and the remedy.
        problem: String,
    },
    /// No driver here knows it.
    #[error(
        "PCI device {address} ({vendor:04x}:{device:04x}) is not supported: supported are virtio network devices (1af4:1041, 1af4:1000), Intel's \
         82574 (8086:10d3, 8086:10f6) and its 82576 (8086:10c9, 8086:10e8, 8086:1526, 8086:150a)"
    )]
    Unknown {
        /// The device.
        address: PciAddress,
        /// Its vendor.
        vendor: u16,
        /// Its kind.
        device: u16,
    },
    /// The device says or does what it can't.
    #[error("PCI device {address}: {problem}")]
    Device {
        /// The device.
        address: PciAddress,
        /// What is wrong, and the remedy if there is one.
        problem: String,
    },
    /// More lanes than it has queues for.
    #[error(
        "PCI device {address} has {there} pair(s) of queues (VIRTIO_NET_F_MQ), and interrupts for {interrupts}; {wanted} lanes need one each: use fewer lanes. QEMU gives \
         it more with mq=on, and with queues={wanted} at the netdev"
    )]
    Queues {
        /// The device.
        address: PciAddress,
        /// Pairs that it has.
        there: u16,
        /// Pairs that it has interrupts for.
        interrupts: u16,
        /// How many are wanted.
        wanted: usize,
    },
    /// No ring can be that long.
    #[error("ring-size={size}: rings have a power of two of descriptors, from 64 to 32768")]
    RingSize {
        /// What was asked for.
        size: u16,
    },
    /// Only virtio devices have packed rings.
    #[error("PCI device {address} has no packed rings, which only virtio devices have: leave packed out")]
    NotPacked {
        /// The device.
        address: PciAddress,
    },
    /// A device needs more buffers of a pool.
    #[error(
        "PCI device {address} takes {needed} buffers of pool {pool:?} with zero-copy, which has not so many left: give the pool more (`--buffers`), take a smaller \
         ring-size, or leave zero-copy out"
    )]
    NoBuffers {
        /// The device.
        address: PciAddress,
        /// The pool.
        pool: String,
        /// How many it needs.
        needed: u32,
    },
    /// The card would write behind a buffer.
    #[error(
        "PCI device {address} writes up to {needed} bytes to a buffer, and those of pool {pool:?} have {there}: give the pool larger ones, or leave zero-copy out"
    )]
    SmallBuffers {
        /// The device.
        address: PciAddress,
        /// The pool.
        pool: String,
        /// Bytes that a buffer has for data.
        there: usize,
        /// Bytes that the card may write.
        needed: u16,
    },
    /// Its frames are shorter.
    #[error(
        "PCI device {address} carries IP packets of up to {largest} bytes, and {mtu} are wanted: set a smaller `mtu`"
    )]
    Mtu {
        /// The device.
        address: PciAddress,
        /// What is wanted, in bytes.
        mtu: u32,
        /// What it can.
        largest: u32,
    },
    /// There is no memory.
    #[error(transparent)]
    Memory(#[from] MappingError),
    /// The kernel refuses a thread or a descriptor.
    #[error("cannot start the thread of the port: {0}")]
    Thread(io::Error),
}
