//! What an interface's driver tells, by ethtool ioctls (`include/uapi/linux/ethtool.h`).

use crate::name::InterfaceName;
use crate::system;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::ffi::c_ulong;
use std::io;
use std::os::fd::OwnedFd;

/// Command numbers.
const GET_DRIVER_INFO: u32 = 0x03;
const GET_FLAGS: u32 = 0x25;
const GET_CHANNELS: u32 = 0x3c;

/// `ETH_FLAG_RXVLAN`.
const STRIPS_VLAN_TAGS: u32 = 1 << 8;

/// A socket to ask with. Interface ioctls work on sockets of any family; this one needs no IPv4 in the kernel and no
/// privilege.
pub(crate) struct Ethtool(OwnedFd);

impl Ethtool {
    pub(crate) fn open() -> io::Result<Self> {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self(socket))
    }

    fn ask<T: Command>(&self, name: &InterfaceName, mut command: T) -> Option<T> {
        let mut request = name.request();
        request.ifr_ifru.ifru_data = (&raw mut command).cast();
        // SAFETY: the data is a command of the size and form that its number asks for (Command), and lives through
        // the call.
        unsafe { system::interface_ioctl(&self.0, libc::SIOCETHTOOL as c_ulong, &mut request) }.ok()?;
        Some(command)
    }

    /// The driver's name, and the device's address on its bus.
    pub(crate) fn driver(&self, name: &InterfaceName) -> Option<(String, String)> {
        let info = self.ask(name, DriverInfo::ASK)?;
        Some((text(&info.driver), text(&info.bus)))
    }

    /// Receive and transmit queues in use; 0 if that is not known.
    pub(crate) fn queues(&self, name: &InterfaceName) -> (u32, u32) {
        let ask = Channels { command: GET_CHANNELS, ..Channels::default() };
        let channels = self.ask(name, ask).unwrap_or_default();
        let with = |own: u32| channels.combined_count.saturating_add(own);
        (with(channels.receive_count), with(channels.transmit_count))
    }

    /// Whether the hardware takes VLAN tags out of frames.
    pub(crate) fn strips_vlan_tags(&self, name: &InterfaceName) -> bool {
        self.ask(name, Value { command: GET_FLAGS, data: 0 })
            .is_some_and(|flags| flags.data & STRIPS_VLAN_TAGS != 0)
    }
}

/// An argument of `SIOCETHTOOL`.
///
/// # Safety
/// `repr(C)`, plain integers only, starts with the number of a command that reads and writes exactly this struct.
unsafe trait Command: Copy {}

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
unsafe impl Command for DriverInfo {}

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
unsafe impl Command for Channels {}

/// `struct ethtool_value`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

// SAFETY: `ETHTOOL_GFLAGS` reads and writes a struct ethtool_value, which this is.
unsafe impl Command for Value {}

/// The text up to the first zero byte.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
