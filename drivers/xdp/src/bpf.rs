//! The BPF programs: loaded, attached, and told what they need to know. They are in `drivers/xdp/bpf/`.

mod steering;

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use warmlane_bpf::{ArrayMap, AttachPoint, Attachment, BpfError, HashMap, Object, SocketMap};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::error::XdpError;
use steering::PROGRAMS;
pub use steering::{LeftFamilies, Steering};

const STEERING: &[u8] = warmlane_bpf::include_object!("../bpf/steering.bpf.o");
const REENTRY: &[u8] = warmlane_bpf::include_object!("../bpf/reentry.bpf.o");

/// The only program of the second.
const REENTER: &str = "warmlane_reenter";

/// Bytes of a program's name that the kernel keeps.
const NAME_BYTES: usize = 15;

/// `struct settings` of the programs.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Settings {
    mac: [u8; 6],
    pass_expiring: u8,
    leave_ipv4: u8,
    leave_ipv6: u8,
}

/// What of packets to an address of the kernel's own comes to sockets all the same: tunnels end there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TunnelEnds {
    /// Datagrams for these UDP ports; 0 is none.
    pub udp_ports: [u16; 2],
    /// IP packets in IPv4 packets, and GRE.
    pub packets: bool,
}

impl TunnelEnds {
    /// As `struct tunnel_ends`.
    const fn to_bytes(self) -> [u8; 8] {
        let [[a, b], [c, d]] = [self.udp_ports[0].to_be_bytes(), self.udp_ports[1].to_be_bytes()];
        [a, b, c, d, self.packets as u8, 0, 0, 0]
    }
}

/// What user space and a program share.
#[derive(Debug)]
struct Maps {
    sockets: SocketMap,
    settings: ArrayMap<Settings>,
    current: Settings,
    /// With `struct tunnel_ends`.
    ipv4: HashMap<[u8; 4], [u8; 8]>,
    ipv6: HashMap<[u8; 16], [u8; 8]>,
}

/// The program of a port. Attached to an interface, it ends when this is dropped, or when the process ends, however it does.
#[derive(Debug)]
pub(crate) struct Program {
    attachment: Option<Attachment>,
    object: Object,
    name: &'static str,
    maps: Mutex<Maps>,
}

impl Program {
    /// The program for an interface of so many receive queues. If it is to pass expiring packets, those whose time to live ends here
    /// stay with the kernel, which answers them; of [`Steering::Transit`].
    pub(crate) fn new(
        steering: Steering,
        pass_expiring: bool,
        queues: u32,
        fragments: bool,
    ) -> Result<Self, XdpError> {
        let mut object = Object::with_entries(STEERING, &[("sockets", queues.max(1))])?;
        let mut maps = Maps {
            sockets: object.sockets("sockets")?,
            settings: object.array("settings")?,
            current: Settings {
                mac: [0; 6],
                pass_expiring: u8::from(pass_expiring),
                leave_ipv4: 0,
                leave_ipv6: 0,
            },
            ipv4: object.hash("own_ipv4")?,
            ipv6: object.hash("own_ipv6")?,
        };
        maps.settings.set(0, maps.current)?;
        let name = steering.program(fragments);
        Ok(Self { attachment: None, object, name, maps: Mutex::new(maps) })
    }

    /// Has the kernel check the program and attach it to the interface.
    pub(crate) fn attach(&mut self, interface: &str, hook: AttachPoint) -> Result<(), BpfError> {
        self.attachment = Some(self.object.attach(self.name, interface, hook)?);
        Ok(())
    }

    /// Packets of this receive queue are redirected to this socket from now on.
    pub(crate) fn set_socket(&self, queue: u32, socket: &OwnedFd) -> io::Result<()> {
        self.change(|maps| maps.sockets.set(queue, socket))
    }

    /// Frames to this Ethernet address are the interface's own from now on, and no others; but those of families that are left.
    pub(crate) fn set_own(&self, mac: [u8; 6], left: LeftFamilies) -> io::Result<()> {
        self.change(|maps| {
            let (leave_ipv4, leave_ipv6) = (u8::from(left.ipv4), u8::from(left.ipv6));
            maps.current = Settings { mac, leave_ipv4, leave_ipv6, ..maps.current };
            maps.settings.set(0, maps.current)
        })
    }

    /// An address that is the kernel's, but for what is of these tunnels. `None`: it no longer is.
    pub(crate) fn set_address(&self, address: IpAddr, ends: Option<TunnelEnds>) -> io::Result<()> {
        let ends = ends.map(TunnelEnds::to_bytes);
        self.change(|maps| match (address, ends) {
            (IpAddr::V4(address), Some(ends)) => maps.ipv4.insert(address.octets(), ends),
            (IpAddr::V4(address), None) => maps.ipv4.remove(address.octets()),
            (IpAddr::V6(address), Some(ends)) => maps.ipv6.insert(address.octets(), ends),
            (IpAddr::V6(address), None) => maps.ipv6.remove(address.octets()),
        })
    }

    fn change(&self, change: impl FnOnce(&mut Maps) -> Result<(), BpfError>) -> io::Result<()> {
        change(&mut self.maps.lock().unwrap_or_else(PoisonError::into_inner)).map_err(io::Error::other)
    }
}

/// Whether a program is one of a port, or was and is gone. Of those that may not be looked at, that is not known: they may be.
pub(crate) fn is_ours(number: u32) -> bool {
    warmlane_bpf::name_of(number).is_none_or(|name| is_name_of_ours(&name))
}

/// Whether the kernel calls one of the programs so.
fn is_name_of_ours(name: &str) -> bool {
    PROGRAMS.iter().any(|ours| &ours[..ours.len().min(NAME_BYTES)] == name)
}

/// A program that leads packets from the entrance of one interface into that of another. It ends when this is dropped, or
/// when the process ends, however it does.
#[derive(Debug)]
pub(crate) struct Redirection {
    _attachment: Attachment,
}

impl Redirection {
    /// From the interface of this name into that of this number.
    pub(crate) fn new(from: &str, into: u32) -> Result<Self, XdpError> {
        let (mut object, _map) = reentry(into)?;
        let attachment = object.attach(REENTER, from, AttachPoint::Tc)?;
        // It would swallow what comes by that interface.
        if attachment.outlives_process() {
            let error = io::Error::from(io::ErrorKind::Unsupported);
            return Err(XdpError::bpf("attach a BPF program that ends with the process".to_owned())(error));
        }
        Ok(Self { _attachment: attachment })
    }
}

/// What leads packets into the interface of this number; the map has to live until the program is loaded.
fn reentry(into: u32) -> Result<(Object, ArrayMap<u32>), BpfError> {
    let mut object = Object::new(REENTRY)?;
    let mut map = object.array("into")?;
    map.set(0, into)?;
    Ok((object, map))
}

#[cfg(test)]
mod tests;
