//! Devices through VFIO: the kernel gives a process a device's registers and interrupts, and the memory of the process to the device by the IOMMU, or, where
//! there is none, all memory (`Documentation/driver-api/vfio.rst` of the kernel).

mod bar;
mod calls;
mod config;
mod crossing;
mod memory;

use crate::address::PciAddress;
use crate::bus::{Bus, VFIO};
use crate::error::PciError;
pub(crate) use bar::{Bar, Registers, Window};
pub(crate) use config::{CapabilityIterator, ConfigSpace};
pub(crate) use crossing::Crossing;
pub use memory::DeviceMemory;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use warmlane_driver_common::peer::Event;

/// How devices reach memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Only what they are given: an IOMMU is between.
    Given,
    /// All of it, by its own addresses.
    All,
}

/// A container, with one group in it, of which one device is open. Dropped in this order.
#[derive(Debug)]
struct Files {
    device: OwnedFd,
    _group: OwnedFd,
    container: OwnedFd,
    /// First and last addresses of what the device was given.
    given: Mutex<Vec<(u64, u64)>>,
}

/// An open device. It is reset when it is opened, and by the kernel when it is closed.
#[derive(Clone, Debug)]
pub struct VfioDevice {
    address: PciAddress,
    files: Arc<Files>,
    reach: Reach,
    can_reset: bool,
}

fn open(path: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

impl VfioDevice {
    /// Opens a device that is with vfio-pci.
    ///
    /// # Errors
    /// [`PciError`] says what is missing, and the remedy.
    pub fn open(bus: &Bus, address: PciAddress) -> Result<Self, PciError> {
        let known = bus.device(address)?;
        if known.driver.as_deref() != Some(VFIO) {
            let driver = known.driver.unwrap_or_else(|| "no driver".to_owned());
            return Err(PciError::NotTaken { address, driver });
        }
        let failed = |action| move |source: io::Error| PciError::Vfio { address, action, source };
        let group_number = known.group.ok_or(PciError::NoGroup { address })?;
        let (reach, group_path) = if bus.is_without_iommu(address) {
            (Reach::All, format!("/dev/vfio/noiommu-{group_number}"))
        } else {
            (Reach::Given, format!("/dev/vfio/{group_number}"))
        };
        let container =
            open("/dev/vfio/vfio").map_err(|errno| failed("open /dev/vfio/vfio")(errno.into()))?;
        let kind = match reach {
            Reach::Given => calls::TYPE1_V2,
            Reach::All => calls::NO_IOMMU,
        };
        if calls::VERSION.ask(&container, 0).map_err(failed("ask for the version of VFIO"))? != 0
            || calls::HAS.ask(&container, kind).map_err(failed("ask what VFIO can do"))? == 0
        {
            let source = io::Error::other("it has not what is needed: `modprobe vfio_iommu_type1`");
            return Err(failed("use this kernel's VFIO")(source));
        }
        let group = open(&group_path).map_err(|errno| match errno {
            Errno::BUSY => bus.in_use(address),
            errno => failed("open its group")(errno.into()),
        })?;
        let mut status = calls::GroupStatus::new();
        calls::GROUP_STATUS
            .exchange(&group, &mut status)
            .map_err(failed("ask for the state of its group"))?;
        if status.flags & calls::GroupStatus::VIABLE == 0 {
            let others = bus.in_the_way(address).join(", ");
            return Err(PciError::NotViable { address, group: group_number, others });
        }
        calls::set_container(&group, &container).map_err(failed("add its group to a container"))?;
        calls::SET_IOMMU.ask(&container, kind).map_err(failed("set up the IOMMU"))?;
        let device = calls::device(&group, &address.to_string()).map_err(|error| {
            if error.raw_os_error() == Some(libc::EBUSY) {
                bus.in_use(address)
            } else {
                failed("open it")(error)
            }
        })?;
        let mut info = calls::DeviceInfo::new();
        calls::DEVICE_INFO.exchange(&device, &mut info).map_err(failed("ask what it is"))?;
        let can_reset = info.flags & calls::DeviceInfo::CAN_RESET != 0;
        let files = Arc::new(Files { device, _group: group, container, given: Mutex::default() });
        let device = Self { address, files, reach, can_reset };
        device.reset().map_err(failed("reset it"))?;
        Ok(device)
    }

    /// Where it is.
    pub const fn address(&self) -> PciAddress {
        self.address
    }

    /// How it reaches memory.
    pub const fn reach(&self) -> Reach {
        self.reach
    }

    /// Resets all of it (FLR, where it has that). Does nothing if the kernel can't reset such a device.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn reset(&self) -> io::Result<()> {
        if self.can_reset { calls::RESET.ask(&self.files.device, 0).map(drop) } else { Ok(()) }
    }

    /// Whether the kernel can do that.
    pub const fn can_reset(&self) -> bool {
        self.can_reset
    }

    fn region(&self, number: u32) -> io::Result<calls::RegionInfo> {
        let mut info = calls::RegionInfo::new(number);
        calls::REGION_INFO.exchange(&self.files.device, &mut info)?;
        Ok(info)
    }

    /// Its configuration space.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn config(&self) -> io::Result<ConfigSpace> {
        let info = self.region(calls::CONFIG_REGION)?;
        Ok(ConfigSpace::new(self.clone(), info.offset))
    }

    /// Maps the registers that a base address register leads to.
    ///
    /// # Errors
    /// There are none, or they can't be mapped.
    pub(crate) fn bar(&self, number: u8) -> io::Result<Bar> {
        let info = self.region(number.into())?;
        if info.size == 0 || info.flags & calls::RegionInfo::MAPPABLE == 0 {
            return Err(io::Error::other(format!("BAR {number} has nothing that can be mapped")));
        }
        Bar::map(&self.files.device, info.offset, info.size)
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.files.device
    }

    pub(crate) fn container(&self) -> &OwnedFd {
        &self.files.container
    }

    /// First and last addresses of what it was given, by the IOMMU.
    fn given(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.files.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many interrupts it can tell apart (MSI-X).
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn count_interrupts(&self) -> io::Result<u32> {
        let mut info = calls::InterruptInfo::new(calls::MSIX);
        calls::INTERRUPT_INFO.exchange(&self.files.device, &mut info)?;
        Ok(info.count)
    }

    /// Has the first interrupts (MSI-X) signal these events, one each.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_interrupts(&self, events: &[Event]) -> io::Result<()> {
        calls::set_events(&self.files.device, calls::MSIX, events)
    }

    /// Has the kernel signal this event when it wants the device back, since it is unplugged.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_request(&self, event: &Event) -> io::Result<()> {
        calls::set_events(&self.files.device, calls::REQUEST, std::slice::from_ref(event))
    }
}

/// What is said of a machine without IOMMU.
pub fn warning(address: PciAddress) -> String {
    format!(
        "there is no IOMMU between PCI device {address} and this machine's memory: the device, and whoever can make it misbehave, can read and write ALL \
         memory, the kernel's too, and the kernel marks itself as tainted. Switch the IOMMU on (`intel_iommu=on` or `amd_iommu=on`) if the machine has one"
    )
}
