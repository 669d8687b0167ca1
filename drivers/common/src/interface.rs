//! Network interfaces: what the kernel knows of each, by rtnetlink, ethtool and sysfs.

use crate::error::SystemError;
use crate::ethtool::Ethtool;
use crate::name::InterfaceName;
use crate::netlink::Requests;
use crate::sysfs::Sysfs;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, LinkXdp, XdpAttached,
};
use std::io;
use std::net::IpAddr;

/// Hardware types that carry Ethernet frames (`include/uapi/linux/if_arp.h`): the loopback interface does, with
/// addresses of zeros.
const ETHERNET: [u16; 2] = [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK];

/// One network interface, as far as the kernel tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number, unique in the network namespace.
    pub index: u32,
    /// What kind of link it is: an `ARPHRD_` number.
    pub hardware: u16,
    /// What kind of virtual interface it is, such as `veth`; empty for others.
    pub kind: String,
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
    /// The interface that it is a member of.
    pub controller: Option<Controller>,
    /// The XDP program that is attached to it: its number, 0 if that is not known.
    pub xdp_program: Option<u32>,
    /// Receive queues in use.
    pub receive_queues: Option<u32>,
    /// Transmit queues in use.
    pub transmit_queues: Option<u32>,
    /// The hardware takes VLAN tags out of frames before an XDP program sees them.
    pub strips_vlan_tags: bool,
    /// The NUMA node that its device is attached to.
    pub numa_node: Option<u32>,
    /// Its address on the PCI bus.
    pub pci_address: Option<String>,
}

/// The interface that another is a member of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// Its number.
    pub index: u32,
    /// Its kind, such as `bridge`, `bond` or `vrf`; empty if that is not known.
    pub kind: String,
}

impl Interface {
    /// Lists the interfaces of the calling thread's network namespace, by index. Needs no privilege.
    ///
    /// # Errors
    /// The kernel refuses a socket or the list.
    pub fn list() -> io::Result<Vec<Self>> {
        let mut found = links(&mut Requests::open()?, None)?;
        for interface in &mut found {
            interface.ask_driver();
        }
        found.sort_by_key(|interface| interface.index);
        Ok(found)
    }

    /// The interface of this name in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`SystemError`]: there is none, no interface can have this name, or the kernel refuses.
    pub fn find(name: &InterfaceName) -> Result<Self, SystemError> {
        let failed =
            |source| SystemError::Failed { action: format!("look up interface {:?}", name.as_str()), source };
        let all = links(&mut Requests::open().map_err(failed)?, None).map_err(failed)?;
        let names: Vec<String> = all.iter().map(|interface| interface.name.clone()).collect();
        let mut found =
            all.into_iter().find(|interface| interface.name == name.as_str()).ok_or_else(|| {
                let existing = if names.is_empty() { "none at all".to_owned() } else { names.join(", ") };
                SystemError::NoSuchInterface { name: name.as_str().to_owned(), existing }
            })?;
        found.ask_driver();
        Ok(found)
    }

    /// What rtnetlink tells of the interface of this number, without queues, driver and device; `None` if it is gone.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn by_index(index: u32) -> io::Result<Option<Self>> {
        Self::by_index_with(&mut Requests::open()?, index)
    }

    pub(crate) fn by_index_with(requests: &mut Requests, index: u32) -> io::Result<Option<Self>> {
        match links(requests, Some(index)) {
            Ok(found) => Ok(found.into_iter().next()),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Refuses interfaces that carry no Ethernet frames.
    ///
    /// # Errors
    /// [`SystemError::NotEthernet`]
    pub fn check_ethernet(&self) -> Result<(), SystemError> {
        if ETHERNET.contains(&self.hardware) {
            return Ok(());
        }
        Err(SystemError::NotEthernet { name: self.name.clone(), hardware: self.hardware })
    }

    /// The interface that takes all that comes in here: a bridge, a bond, a team. A VRF doesn't: its members stay
    /// interfaces of their own.
    pub fn bridge(&self) -> Option<&Controller> {
        self.controller.as_ref().filter(|controller| !["", "vrf"].contains(&controller.kind.as_str()))
    }

    /// The addresses of this interface.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn addresses(&self) -> io::Result<Vec<IpAddr>> {
        let all = addresses(&mut Requests::open()?)?.into_iter().filter(|(index, _)| *index == self.index);
        Ok(all.map(|(_, address)| address).collect())
    }

    /// Changes the MTU, and sets the interface up.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn configure(index: u32, mtu: Option<u32>, up: bool) -> io::Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes.extend(mtu.map(LinkAttribute::Mtu));
        if up {
            message.header.flags = LinkFlags::Up;
            message.header.change_mask = LinkFlags::Up;
        }
        Requests::open()?.ask(RouteNetlinkMessage::SetLink(message), drop)
    }

    /// What ethtool and sysfs know.
    fn ask_driver(&mut self) {
        let sysfs = Sysfs::of(&self.name, self.index);
        let (mut driver, mut queues) = (None, (0, 0));
        if let (Ok(ethtool), Ok(name)) = (Ethtool::open(), InterfaceName::new(&self.name)) {
            driver = ethtool.driver(&name);
            queues = ethtool.queues(&name);
            self.strips_vlan_tags = ethtool.strips_vlan_tags(&name);
        }
        let count =
            |known: u32, prefix| (known > 0).then_some(known).or_else(|| sysfs.as_ref()?.queues(prefix));
        self.receive_queues = count(queues.0, "rx-");
        self.transmit_queues = count(queues.1, "tx-");
        self.numa_node = sysfs.as_ref().and_then(|sysfs| sysfs.number("device/numa_node"));
        self.pci_address = driver.as_ref().and_then(|(_, bus)| pci_address(bus));
        self.driver = driver.map(|(name, _)| name).or_else(|| sysfs.as_ref()?.target("device/driver"));
    }

    fn of(message: LinkMessage) -> Self {
        let flags = message.header.flags;
        let mut interface = Self {
            index: message.header.index,
            hardware: message.header.link_layer_type.into(),
            up: flags.contains(LinkFlags::Up),
            carrier: flags.contains(LinkFlags::Running),
            ..Self::default()
        };
        let (mut address, mut controller, mut controller_kind) = (None, 0, String::new());
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => interface.name = name,
                LinkAttribute::Address(bytes) => address = bytes.as_slice().try_into().ok(),
                LinkAttribute::Mtu(mtu) => interface.mtu = mtu,
                LinkAttribute::Controller(index) => controller = index,
                LinkAttribute::LinkInfo(infos) => {
                    for info in infos {
                        match info {
                            LinkInfo::Kind(InfoKind::Other(kind)) => interface.kind = kind,
                            LinkInfo::Kind(kind) => interface.kind = kind.to_string(),
                            LinkInfo::PortKind(kind) => controller_kind = kind.to_string(),
                            _ => {}
                        }
                    }
                }
                LinkAttribute::Xdp(parts) => interface.xdp_program = attached_program(&parts),
                _ => {}
            }
        }
        interface.mac = address.filter(|_| ETHERNET.contains(&interface.hardware));
        interface.controller =
            (controller != 0).then_some(Controller { index: controller, kind: controller_kind });
        interface
    }
}

fn attached_program(parts: &[LinkXdp]) -> Option<u32> {
    let (mut is_attached, mut number) = (false, 0);
    for part in parts {
        match part {
            LinkXdp::Attached(how) => is_attached = *how != XdpAttached::None,
            LinkXdp::ProgId(program) => number = *program,
            _ => {}
        }
    }
    is_attached.then_some(number)
}

/// All interfaces, or the one of this number.
fn links(requests: &mut Requests, index: Option<u32>) -> io::Result<Vec<Interface>> {
    let mut message = LinkMessage::default();
    message.header.index = index.unwrap_or(0);
    let message = RouteNetlinkMessage::GetLink(message);
    let mut found = Vec::new();
    let each = |answer| {
        if let RouteNetlinkMessage::NewLink(link) = answer {
            found.push(Interface::of(link));
        }
    };
    match index {
        Some(_) => requests.ask(message, each)?,
        None => requests.list(message, each)?,
    }
    Ok(found)
}

/// The addresses of all interfaces, broadcast addresses included, each with the interface's number.
pub(crate) fn addresses(requests: &mut Requests) -> io::Result<Vec<(u32, IpAddr)>> {
    let mut found = Vec::new();
    requests.list(RouteNetlinkMessage::GetAddress(AddressMessage::default()), |answer| {
        let RouteNetlinkMessage::NewAddress(message) = answer else { return };
        let (mut local, mut other, mut broadcast) = (None, None, None);
        for attribute in message.attributes {
            match attribute {
                AddressAttribute::Local(address) => local = Some(address),
                AddressAttribute::Address(address) => other = Some(address),
                AddressAttribute::Broadcast(address) => broadcast = Some(IpAddr::V4(address)),
                _ => {}
            }
        }
        // On a point-to-point link, "address" is that of the other end.
        let own = local.or(other).into_iter().chain(broadcast);
        found.extend(own.map(|address| (message.header.index, address)));
    })?;
    Ok(found)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_the_loopback_interface() {
        let all = Interface::list().unwrap();
        let lo = all.iter().find(|interface| interface.name == "lo").unwrap();
        assert_eq!((lo.index, lo.mac, lo.hardware), (1, Some([0; 6]), libc::ARPHRD_LOOPBACK));
        assert_eq!((lo.xdp_program, &lo.controller, lo.kind.as_str()), (None, &None, ""));
        assert!(lo.receive_queues > Some(0) && lo.transmit_queues > Some(0));
        assert!(all.iter().all(|interface| interface.mtu > 0));
        assert!(all.is_sorted_by_key(|interface| interface.index));
        assert_eq!(&Interface::find(&InterfaceName::new("lo").unwrap()).unwrap(), lo);
        assert_eq!(Interface::by_index(1).unwrap().unwrap().name, "lo");
        assert_eq!(Interface::by_index(0x7fff_fff0).unwrap(), None);
    }

    #[test]
    fn a_missing_interface_lists_those_that_exist() {
        let error = Interface::find(&InterfaceName::new("no-such-link").unwrap()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("\"no-such-link\"") && text.contains("lo") && text.contains("ip link"),
            "{text}"
        );
    }

    #[test]
    fn knows_a_pci_address_from_other_names() {
        assert_eq!(pci_address("0000:3b:00.1").as_deref(), Some("0000:3b:00.1"));
        assert_eq!(pci_address("tap"), None);
        assert_eq!(pci_address("virtio-0000x"), None);
    }
}
