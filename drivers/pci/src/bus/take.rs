//! A device is taken from the kernel's driver, and given back.
//!
//! What was taken is noted in a file under `/run` before anything is changed, so that the next program finds it if this one is killed. Programs that take
//! and give back wait for each other.

use super::{Bus, VFIO, text};
use crate::address::PciAddress;
use crate::error::PciError;
use crate::kind::Kind;
use crate::virtio;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a driver may take to take a device: some do that in the background.
const BIND: Duration = Duration::from_secs(10);

/// What was taken.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Note {
    /// From which driver, if it had one.
    pub(super) driver: Option<String>,
    /// For as long as a process runs; else until it is given back.
    holder: Option<Process>,
}

impl Note {
    /// The number of the process that is to give it back.
    pub(super) fn holder(&self) -> Option<u32> {
        self.holder.as_ref().map(|process| process.number)
    }
}

/// A process that can't be mistaken for a later one with its number.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
struct Process {
    number: u32,
    /// When it was started, in the kernel's clock ticks.
    started: u64,
}

/// A device that is given back when this is dropped.
#[derive(Debug)]
pub struct Taken {
    bus: Bus,
    address: PciAddress,
    holder: Process,
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Err(error) = self.bus.give_up(self.address, &self.holder) {
            // Nobody may be there to read it.
            let _ = writeln!(io::stderr(), "warmlane: {error}");
        }
    }
}

/// A device that was found to be taken by a process that is gone.
#[derive(Debug)]
pub struct Recovered {
    /// Which.
    pub address: PciAddress,
    /// Whether it was given back.
    pub result: Result<(), PciError>,
}

fn write(path: &Path, text: &str) -> Result<(), PciError> {
    // Opened as it is: nothing is made in the kernel's trees.
    let result = fs::OpenOptions::new().write(true).open(path);
    result.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|source| PciError::File {
        action: "write to",
        path: path.to_owned(),
        source,
    })
}

fn named(driver: Option<String>) -> String {
    driver.unwrap_or_else(|| "no driver".to_owned())
}

impl Bus {
    fn note_path(&self, address: PciAddress) -> std::path::PathBuf {
        self.notes.join(format!("{address}.json"))
    }

    pub(super) fn note(&self, address: PciAddress) -> Option<Note> {
        serde_json::from_str(&text(&self.note_path(address)).ok()?).ok()
    }

    /// When a process was started; `None` if there is none of that number.
    fn started(&self, number: u32) -> Option<u64> {
        let stat = text(&self.proc.join(number.to_string()).join("stat")).ok()?;
        // Behind the name, which is in parentheses and may have any: the 22nd field (proc(5)).
        stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
    }

    /// Takes a network device from its driver, for programs that drive it themselves, until [`give`](Self::give).
    ///
    /// # Errors
    /// [`PciError`]; the device is with its former driver then, if that can be. `force` takes also an interface that carries the default route, and a device that
    /// no driver here knows.
    pub fn take(&self, address: PciAddress, force: bool) -> Result<(), PciError> {
        self.take_for(address, force, None)
    }

    /// As [`take`](Self::take), until the result is dropped. If this process is killed, [`recover`](Self::recover) gives it back.
    ///
    /// # Errors
    /// As for [`take`](Self::take).
    pub fn take_for_now(&self, address: PciAddress, force: bool) -> Result<Taken, PciError> {
        let number = std::process::id();
        let started = self.started(number).unwrap_or(0);
        let holder = Process { number, started };
        self.take_for(address, force, Some(holder.clone()))?;
        Ok(Taken { bus: self.clone(), address, holder })
    }

    /// Keeps other programs from taking and giving back for as long as the result lives.
    fn lock(&self) -> Result<OwnedFd, PciError> {
        let path = self.notes.with_extension("lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let locked = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).and_then(|file| {
            rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
            Ok(file)
        });
        locked.map_err(|errno| match errno {
            Errno::ACCESS | Errno::PERM => PciError::NotRoot,
            errno => PciError::File { action: "lock", path, source: errno.into() },
        })
    }

    /// Whether a process has a device's group open: the kernel lets one at a time.
    fn is_open(&self, address: PciAddress) -> bool {
        let Some(path) = self.group_path(address) else { return false };
        let opened = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        opened.is_err_and(|errno| errno == Errno::BUSY)
    }

    fn take_for(&self, address: PciAddress, force: bool, holder: Option<Process>) -> Result<(), PciError> {
        let _lock = self.lock()?;
        let device = self.device(address)?;
        if !force {
            let kind = Kind::of(&device)?;
            if kind == Kind::Virtio && device.group.is_some() && self.goes_by_iommu(address) == Some(false) {
                let problem = virtio::BYPASSES_IOMMU.to_owned();
                return Err(PciError::Device { address, problem });
            }
            let carrying = self.default_interfaces()?;
            if let Some(interface) = device.interfaces.iter().find(|interface| carrying.contains(*interface))
            {
                return Err(PciError::DefaultRoute { address, interface: interface.clone() });
            }
        }
        if !self.drivers().join(VFIO).is_dir() {
            return Err(PciError::NoVfio);
        }
        if device.driver.as_deref() == Some(VFIO) {
            // Somebody's already: whoever took it gives it back.
            return Ok(());
        }
        // vfio-pci would refuse it, when its interface is gone.
        match self.allows_no_iommu() {
            _ if device.group.is_some() => {}
            Some(true) => {}
            Some(false) => return Err(PciError::NoGroup { address }),
            None => return Err(PciError::NoIommu { address }),
        }
        let path = self.note_path(address);
        let failed = |source| PciError::File { action: "write", path: path.clone(), source };
        fs::create_dir_all(&self.notes).map_err(failed)?;
        let note = Note { driver: device.driver, holder };
        let text = serde_json::to_string(&note).map_err(|error| failed(error.into()))?;
        fs::write(&path, text).map_err(failed)?;
        let result = self.bind(address, VFIO, VFIO);
        if result.is_err() {
            // What can't be undone stays noted.
            let _ = self.restore(address);
        }
        result
    }

    /// Has a device change to `driver`. `only`: what other drivers are kept out for; empty for none.
    fn bind(&self, address: PciAddress, driver: &str, only: &str) -> Result<(), PciError> {
        let folder = self.folder(address);
        write(&folder.join("driver_override"), &format!("{only}\n"))?;
        if self.driver(address).is_some() {
            write(&folder.join("driver/unbind"), &format!("{address}\n"))?;
            self.wait(address, Option::is_none);
        }
        write(&self.sys.join("bus/pci/drivers_probe"), &format!("{address}\n"))?;
        if self.wait(address, |found| found.as_deref() == Some(driver)) {
            return Ok(());
        }
        Err(PciError::NotBound { address, wanted: driver.to_owned(), found: named(self.driver(address)) })
    }

    /// Waits until a device has such a driver.
    fn wait(&self, address: PciAddress, is_right: impl Fn(&Option<String>) -> bool) -> bool {
        let end = Instant::now() + BIND;
        while !is_right(&self.driver(address)) {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// Gives a device that was taken back to its former driver.
    ///
    /// # Errors
    /// [`PciError`]: it was not taken, a process has it open, or that driver doesn't take it.
    pub fn give(&self, address: PciAddress) -> Result<(), PciError> {
        let _lock = self.lock()?;
        self.restore_unused(address)
    }

    /// As [`restore`](Self::restore), unless a process has the device open: the kernel would wait for that one, and with it everybody who waits for the lock.
    fn restore_unused(&self, address: PciAddress) -> Result<(), PciError> {
        if self.is_open(address) {
            return Err(self.in_use(address));
        }
        self.restore(address)
    }

    /// Gives back what this process took, unless somebody has done that already, and maybe taken it again.
    fn give_up(&self, address: PciAddress, holder: &Process) -> Result<(), PciError> {
        let _lock = self.lock()?;
        if self.note(address).and_then(|note| note.holder).as_ref() != Some(holder) {
            return Ok(());
        }
        self.restore(address)
    }

    fn restore(&self, address: PciAddress) -> Result<(), PciError> {
        let driver = self.driver(address);
        let note = match self.note(address) {
            Some(note) => note,
            // Taken by hand: the kernel finds a driver.
            None if driver.as_deref() == Some(VFIO) => Note { driver: None, holder: None },
            None => return Err(PciError::NotOurs { address, driver: named(driver) }),
        };
        let folder = self.folder(address);
        if !folder.is_dir() {
            // It was pulled out meanwhile.
            return self.forget(address);
        }
        match &note.driver {
            Some(former) if driver.as_ref() == Some(former) => write(&folder.join("driver_override"), "\n")?,
            Some(former) => self.bind(address, former, "")?,
            None => {
                write(&folder.join("driver_override"), "\n")?;
                if driver.is_some() {
                    write(&folder.join("driver/unbind"), &format!("{address}\n"))?;
                }
                // If no driver wants it, it has none, as before.
                write(&self.sys.join("bus/pci/drivers_probe"), &format!("{address}\n"))?;
            }
        }
        self.forget(address)
    }

    fn forget(&self, address: PciAddress) -> Result<(), PciError> {
        let path = self.note_path(address);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(PciError::File { action: "remove", path, source: error })
            }
            _ => Ok(()),
        }
    }

    /// Gives back what processes took that have ended since without giving it back.
    pub fn recover(&self) -> Vec<Recovered> {
        if self.left().is_empty() {
            return Vec::new();
        }
        let lock = self.lock();
        // Another program may just have done it.
        let left = self.left().into_iter();
        match lock {
            Ok(_lock) => {
                left.map(|address| Recovered { address, result: self.restore_unused(address) }).collect()
            }
            Err(error) => {
                // All for the same reason.
                left.take(1)
                    .zip([error])
                    .map(|(address, error)| Recovered { address, result: Err(error) })
                    .collect()
            }
        }
    }

    /// What processes took that have ended.
    fn left(&self) -> Vec<PciAddress> {
        let addresses =
            super::names(&self.notes).into_iter().filter_map(|name| name.strip_suffix(".json")?.parse().ok());
        let is_left = |address: &PciAddress| {
            let holder = self.note(*address).and_then(|note| note.holder);
            holder.is_some_and(|holder| self.started(holder.number) != Some(holder.started))
        };
        addresses.filter(is_left).collect()
    }
}
