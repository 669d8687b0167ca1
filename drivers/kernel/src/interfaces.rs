//! Which interfaces there are, and what a data plane wants to know of each.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::link::{self, EthtoolCommand, LinkName, Links};

/// One network interface, as far as the kernel tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number, unique in the network namespace.
    pub index: u32,
    /// The kernel driver's name, such as `ixgbe`, `veth` or `tun`.
    pub driver: Option<String>,
    /// Its Ethernet address, if it carries Ethernet frames.
    pub mac: Option<[u8; 6]>,
    /// The largest layer-3 packet in bytes, without the Ethernet header.
    pub mtu: u32,
    /// Whether it was set up.
    pub up: bool,
    /// Whether it has a link partner.
    pub carrier: bool,
    /// Receive queues in use.
    pub receive_queues: Option<u32>,
    /// Transmit queues in use.
    pub transmit_queues: Option<u32>,
    /// The NUMA node that its device is attached to.
    pub numa_node: Option<u32>,
    /// Its address on the PCI bus.
    pub pci_address: Option<String>,
}

/// Lists the interfaces of the calling thread's network namespace, by index. Needs no privilege.
///
/// # Errors
/// The kernel refuses a socket or the list.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let links = Links::open()?;
    let mut found: Vec<_> = link::names()?.iter().filter_map(|name| interface(&links, name)).collect();
    found.sort_by_key(|interface| interface.index);
    Ok(found)
}

/// The facts about one interface; `None` if it went away meanwhile.
fn interface(links: &Links, name: &str) -> Option<Interface> {
    let link = LinkName::new(name).ok()?;
    let index = links.index(&link).ok()?.unsigned_abs();
    let flags = links.flags(&link).ok()?;
    let (hardware, mac) = links.hardware(&link).ok()?;
    let sysfs = Sysfs::of(name, index);
    let channels = links.ethtool(&link, Channels { command: GET_CHANNELS, ..Channels::default() }).ok();
    let count = |own: fn(&Channels) -> u32, prefix| {
        let channels = channels.as_ref().map(|channels| channels.combined_count + own(channels));
        channels.filter(|count| *count > 0).or_else(|| sysfs.as_ref()?.queues(prefix))
    };
    Some(Interface {
        name: name.to_owned(),
        index,
        driver: links
            .ethtool(&link, DriverInfo::ASK)
            .ok()
            .map(|info| text(&info.driver))
            .or_else(|| sysfs.as_ref()?.target("device/driver")),
        mac: link::is_ethernet(hardware).then_some(mac),
        mtu: links.mtu(&link).ok()?,
        up: flags & libc::IFF_UP != 0,
        carrier: flags & libc::IFF_RUNNING != 0,
        receive_queues: count(|channels| channels.receive_count, "rx-"),
        transmit_queues: count(|channels| channels.transmit_count, "tx-"),
        numa_node: sysfs.as_ref().and_then(|sysfs| sysfs.number("device/numa_node")),
        pci_address: links
            .ethtool(&link, DriverInfo::ASK)
            .ok()
            .and_then(|info| pci_address(&text(&info.bus))),
    })
}

/// Drivers of other buses write other things there.
fn pci_address(bus: &str) -> Option<String> {
    let shape = |index, byte: u8| match index {
        4 | 7 => byte == b':',
        10 => byte == b'.',
        _ => byte.is_ascii_hexdigit(),
    };
    (bus.len() == 12 && bus.bytes().enumerate().all(|(index, byte)| shape(index, byte)))
        .then(|| bus.to_owned())
}

/// An interface's folder under `/sys/class/net`.
struct Sysfs(PathBuf);

impl Sysfs {
    /// `None` if sysfs isn't mounted, or is that of another network namespace, which then knows no such interface
    /// or has given it another number.
    fn of(name: &str, index: u32) -> Option<Self> {
        let sysfs = Self(Path::new("/sys/class/net").join(name));
        (sysfs.number("ifindex") == Some(index)).then_some(sysfs)
    }

    fn number(&self, file: &str) -> Option<u32> {
        fs::read_to_string(self.0.join(file)).ok()?.trim().parse().ok()
    }

    /// The last part of what a link points to.
    fn target(&self, link: &str) -> Option<String> {
        Some(fs::read_link(self.0.join(link)).ok()?.file_name()?.to_string_lossy().into_owned())
    }

    fn queues(&self, prefix: &str) -> Option<u32> {
        let entries = fs::read_dir(self.0.join("queues")).ok()?.flatten();
        let count = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)).count();
        u32::try_from(count).ok().filter(|count| *count > 0)
    }
}

/// Command numbers (`include/uapi/linux/ethtool.h`).
const GET_DRIVER_INFO: u32 = 0x03;
const GET_CHANNELS: u32 = 0x3c;

/// `struct ethtool_drvinfo`.
#[derive(Clone, Copy)]
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    version: [u8; 32],
    firmware: [u8; 32],
    bus: [u8; 32],
    expansion_rom: [u8; 32],
    reserved: [u8; 12],
    lengths: [u32; 5],
}

impl DriverInfo {
    const ASK: Self = Self {
        command: GET_DRIVER_INFO,
        driver: [0; 32],
        version: [0; 32],
        firmware: [0; 32],
        bus: [0; 32],
        expansion_rom: [0; 32],
        reserved: [0; 12],
        lengths: [0; 5],
    };
}

const _: () = assert!(size_of::<DriverInfo>() == 196);

// SAFETY: `ETHTOOL_GDRVINFO` reads and writes a struct ethtool_drvinfo, which this is.
unsafe impl EthtoolCommand for DriverInfo {}

/// `struct ethtool_channels`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Channels {
    command: u32,
    receive_maximum: u32,
    transmit_maximum: u32,
    other_maximum: u32,
    combined_maximum: u32,
    receive_count: u32,
    transmit_count: u32,
    other_count: u32,
    combined_count: u32,
}

// SAFETY: `ETHTOOL_GCHANNELS` reads and writes a struct ethtool_channels, which this is.
unsafe impl EthtoolCommand for Channels {}

/// The text up to the first zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_the_loopback_interface() {
        let all = interfaces().unwrap();
        let lo = all.iter().find(|interface| interface.name == "lo").unwrap();
        assert_eq!((lo.index, lo.mac), (1, Some([0; 6])));
        assert!(all.iter().all(|interface| interface.mtu > 0));
        assert!(all.is_sorted_by_key(|interface| interface.index));
    }

    #[test]
    fn knows_a_pci_address_from_other_names() {
        assert_eq!(pci_address("0000:3b:00.1").as_deref(), Some("0000:3b:00.1"));
        assert_eq!(pci_address("tap"), None);
        assert_eq!(pci_address("virtio-0000x"), None);
    }
}
