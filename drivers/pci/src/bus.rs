//! The machine's network devices, as sysfs has them, and whose they are.

mod routes;
mod take;

use crate::address::PciAddress;
use crate::error::PciError;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use take::Note;
pub use take::{Recovered, Taken};

/// The driver that gives devices to processes.
pub const VFIO: &str = "vfio-pci";

/// Network controllers, in the upper byte of a class (PCI Code and ID Assignment, section 1).
const NETWORK: u32 = 0x02;

/// Bridges between PCI buses, in the upper two bytes.
const PCI_BRIDGE: u32 = 0x0604;

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkDevice {
    /// Where it is.
    pub address: PciAddress,
    /// Who made it.
    pub vendor: u16,
    /// Which kind it is.
    pub device: u16,
    /// Its driver's name, if it has one.
    pub driver: Option<String>,
    /// The number of its IOMMU group, if it has one.
    pub group: Option<String>,
    /// The interfaces that its driver has made of it.
    pub interfaces: Vec<String>,
    /// It was taken from this driver, and is to be given back to it.
    pub taken_from: Option<String>,
    /// The process that took it for as long as its port is open, and is to give it back.
    pub holder: Option<u32>,
    /// The process that has it open, or another device of its group, as far as this process may see that.
    pub user: Option<u32>,
}

impl NetworkDevice {
    /// One at this address, of which nothing is known.
    pub const fn at(address: PciAddress) -> Self {
        Self {
            address,
            vendor: 0,
            device: 0,
            driver: None,
            group: None,
            interfaces: Vec::new(),
            taken_from: None,
            holder: None,
            user: None,
        }
    }
}

/// Where the kernel's files are, and our notes.
#[derive(Clone, Debug)]
pub struct Bus {
    sys: PathBuf,
    proc: PathBuf,
    vfio: PathBuf,
    notes: PathBuf,
}

impl Default for Bus {
    fn default() -> Self {
        Self::at(Path::new("/"))
    }
}

/// The text of a small file, without the end of its line.
fn text(path: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim().to_owned())
}

fn number(path: &Path) -> Option<u32> {
    let text = text(path).ok()?;
    u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

/// The last part of what a link points to.
fn target(link: &Path) -> Option<String> {
    Some(fs::read_link(link).ok()?.file_name()?.to_string_lossy().into_owned())
}

/// The names in a folder, in order; none if it isn't there.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

impl Bus {
    /// With `sys`, `proc`, `dev` and `run` below this folder: for tests.
    pub fn at(root: &Path) -> Self {
        let notes = root.join("run/warmlane-pci");
        Self { sys: root.join("sys"), proc: root.join("proc"), vfio: root.join("dev/vfio"), notes }
    }

    fn folder(&self, address: PciAddress) -> PathBuf {
        self.sys.join("bus/pci/devices").join(address.to_string())
    }

    fn drivers(&self) -> PathBuf {
        self.sys.join("bus/pci/drivers")
    }

    /// The driver of a device, if it has one.
    pub fn driver(&self, address: PciAddress) -> Option<String> {
        target(&self.folder(address).join("driver"))
    }

    /// All network devices, by address.
    ///
    /// # Errors
    /// The kernel shows none.
    pub fn devices(&self) -> Result<Vec<NetworkDevice>, PciError> {
        let path = self.sys.join("bus/pci/devices");
        let failed = |source| PciError::File { action: "read", path: path.clone(), source };
        fs::read_dir(&path).map_err(failed)?;
        let addresses = names(&path).into_iter().filter_map(|name| name.parse().ok());
        Ok(addresses.filter_map(|address| self.device(address).ok()).collect())
    }

    /// What is known of a device.
    ///
    /// # Errors
    /// It isn't there, or is no network device.
    pub fn device(&self, address: PciAddress) -> Result<NetworkDevice, PciError> {
        let folder = self.folder(address);
        let class = number(&folder.join("class")).ok_or(PciError::NoDevice { address })?;
        if class >> 16 != NETWORK {
            return Err(PciError::NotNetwork { address, class });
        }
        let id = |file: &str| number(&folder.join(file)).unwrap_or(0) as u16;
        // Unless somebody has given it back by hand.
        let driver = self.driver(address);
        let is_away = driver.as_deref().is_none_or(|driver| driver == VFIO);
        let note = self.note(address).filter(|_| is_away);
        let user = if driver.as_deref() == Some(VFIO) { self.user(address) } else { None };
        Ok(NetworkDevice {
            address,
            user,
            vendor: id("vendor"),
            device: id("device"),
            driver,
            group: target(&folder.join("iommu_group")),
            interfaces: self.interfaces(address),
            holder: note.as_ref().and_then(Note::holder),
            taken_from: note.map(|note| note.driver.unwrap_or_else(|| "no driver".to_owned())),
        })
    }

    /// The interfaces of a device: its own, or those of the virtio device that it carries.
    fn interfaces(&self, address: PciAddress) -> Vec<String> {
        let folder = self.folder(address);
        let carried = names(&folder).into_iter().filter(|name| name.starts_with("virtio"));
        let folders =
            std::iter::once(folder.join("net")).chain(carried.map(|name| folder.join(name).join("net")));
        folders.flat_map(|folder| names(&folder)).collect()
    }

    /// Where its group is opened, if it has one.
    pub(crate) fn group_path(&self, address: PciAddress) -> Option<PathBuf> {
        let group = target(&self.folder(address).join("iommu_group"))?;
        let name = if self.is_without_iommu(address) { format!("noiommu-{group}") } else { group };
        Some(self.vfio.join(name))
    }

    /// The process that has a device's group open, as far as this one may see that.
    pub(crate) fn user(&self, address: PciAddress) -> Option<u32> {
        let path = self.group_path(address)?;
        let has_it_open = |process: &u32| {
            let opened = self.proc.join(process.to_string()).join("fd");
            let links = names(&opened).into_iter().map(|name| fs::read_link(opened.join(name)));
            links.flatten().any(|opened| opened == path)
        };
        let processes = names(&self.proc).into_iter().filter_map(|name| name.parse().ok());
        processes.filter(has_it_open).min()
    }

    /// That it is in use, and by whom.
    pub(crate) fn in_use(&self, address: PciAddress) -> PciError {
        let by = match self.user(address) {
            Some(process) if process == std::process::id() => " by another port of this program".to_owned(),
            Some(process) => {
                let name = text(&self.proc.join(process.to_string()).join("comm")).unwrap_or_default();
                format!(" by process {process} ({name})")
            }
            None => String::new(),
        };
        PciError::InUse { address, by }
    }

    /// The other devices of a device's group that the kernel drives: as long as it does, none of the group can be opened.
    pub fn in_the_way(&self, address: PciAddress) -> Vec<String> {
        let others = self.neighbours(address).into_iter();
        let others = others.filter_map(|(other, driver)| {
            driver.filter(|driver| driver != VFIO).map(|driver| format!("{other} with {driver}"))
        });
        others.collect()
    }

    /// Whether a virtio device that the kernel drives reaches memory by the addresses that an IOMMU gives it (VIRTIO_F_ACCESS_PLATFORM); `None` if the kernel
    /// doesn't say.
    fn goes_by_iommu(&self, address: PciAddress) -> Option<bool> {
        const ACCESS_PLATFORM: usize = 33;
        let folder = self.folder(address);
        let carried = names(&folder).into_iter().find(|name| name.starts_with("virtio"))?;
        // A digit a bit, the lowest first.
        text(&folder.join(carried).join("features")).ok()?.chars().nth(ACCESS_PLATFORM).map(|bit| bit == '1')
    }

    /// The other devices of a device's group, with their drivers. Bridges, which the kernel allows there, are left out.
    fn neighbours(&self, address: PciAddress) -> Vec<(String, Option<String>)> {
        let devices = self.folder(address).join("iommu_group/devices");
        let is_bridge = |name: &String| {
            number(&devices.join(name).join("class")).is_some_and(|class| class >> 8 == PCI_BRIDGE)
        };
        let others = names(&devices).into_iter();
        let others = others.filter(|name| *name != address.to_string() && !is_bridge(name));
        others.map(|name| (name.clone(), target(&devices.join(name).join("driver")))).collect()
    }

    /// Whether the kernel gives devices to processes also where there is no IOMMU; `None` if it can't.
    fn allows_no_iommu(&self) -> Option<bool> {
        let mode = text(&self.sys.join("module/vfio/parameters/enable_unsafe_noiommu_mode"));
        mode.ok().map(|mode| mode == "Y")
    }

    /// Whether the group of a device is one that the kernel made up for want of an IOMMU.
    pub(crate) fn is_without_iommu(&self, address: PciAddress) -> bool {
        text(&self.folder(address).join("iommu_group/name")).is_ok_and(|name| name == "vfio-noiommu")
    }
}

#[cfg(test)]
mod tests;
