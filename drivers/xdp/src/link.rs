//! What the kernel knows of an interface, by rtnetlink (rtnetlink(7)) and ethtool.

use crate::error::XdpError;
use crate::system::{self, Plain};
use std::ffi::{CString, c_int};
use std::io;
use std::net::IpAddr;

/// Message types, attributes and lengths (`include/uapi/linux/rtnetlink.h`, `if_link.h`, `netlink.h`).
const GET_LINK: u16 = 18;
const NEW_LINK: u16 = 16;
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
const MESSAGE_HEADER: usize = 16;
const LINK_HEADER: usize = 16;
const ADDRESS: u16 = 1;
const NAME: u16 = 3;
const MTU: u16 = 4;
const MASTER: u16 = 10;
const LINK_INFO: u16 = 18;
const XDP: u16 = 43;
const INFO_KIND: u16 = 1;
const INFO_SLAVE_KIND: u16 = 4;
const XDP_ATTACHED: u16 = 2;
const XDP_PROGRAM: u16 = 4;
/// An attribute's type without its flags (`NLA_TYPE_MASK`).
const TYPE_MASK: u16 = 0x3fff;

/// What the kernel tells of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) index: u32,
    /// `ARPHRD_` number.
    pub(crate) hardware: u16,
    pub(crate) is_up: bool,
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: u32,
    /// What kind of virtual interface it is, such as `veth`; empty for others.
    pub(crate) kind: String,
    /// What kind of interface it is enslaved to, such as `bridge`; empty if none.
    master_kind: String,
    pub(crate) master: u32,
    /// The XDP program at work on it: its number (0 if unknown).
    pub(crate) program: Option<u32>,
    /// Receive and transmit queues in use.
    pub(crate) receive_queues: u32,
    pub(crate) transmit_queues: u32,
    /// The hardware takes VLAN tags out of frames before an XDP program sees them.
    pub(crate) strips_tags: bool,
}

impl Link {
    /// Looks the interface up.
    pub(crate) fn find(name: &str) -> Result<Self, XdpError> {
        let error = |source| XdpError::System { action: format!("look up interface {name:?}"), source };
        let missing = || XdpError::NoSuchInterface { name: name.to_owned() };
        // Names have up to 15 bytes.
        let text = CString::new(name).ok().filter(|_| (1..16).contains(&name.len())).ok_or_else(missing)?;
        // SAFETY: a C string that lives through the call.
        let index = unsafe { libc::if_nametoindex(text.as_ptr()) };
        if index == 0 {
            return Err(missing());
        }
        let mut link = Self::ask(index).map_err(error)?.ok_or_else(missing)?;
        link.count_queues(name);
        Ok(link)
    }

    /// What the kernel tells of an interface now; `None` if it is gone. Says nothing of queues and offloads.
    pub(crate) fn ask(index: u32) -> io::Result<Option<Self>> {
        let fd = system::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
        let mut request = Vec::with_capacity(MESSAGE_HEADER + LINK_HEADER);
        request.extend(((MESSAGE_HEADER + LINK_HEADER) as u32).to_ne_bytes());
        request.extend(GET_LINK.to_ne_bytes());
        request.extend(REQUEST.to_ne_bytes());
        request.extend([0; 8]);
        request.extend([0; 4]);
        request.extend(index.to_ne_bytes());
        request.extend([0; 8]);
        let mut link = None;
        let mut failure = None;
        system::ask(&fd, &request, |answer| {
            for (kind, body) in messages(answer) {
                match kind {
                    NEW_LINK => link = Self::parse(body),
                    ERROR => {
                        let number = body.first_chunk().map_or(0, |bytes| c_int::from_ne_bytes(*bytes));
                        failure = Some(io::Error::from_raw_os_error(number.wrapping_neg()));
                    }
                    _ => {}
                }
            }
            link.is_some() || failure.is_some()
        })?;
        match failure {
            Some(error) if error.raw_os_error() != Some(libc::ENODEV) => Err(error),
            _ => Ok(link),
        }
    }

    /// Reads a `RTM_NEWLINK` message's body; `None` if it is too short to be one.
    fn parse(body: &[u8]) -> Option<Self> {
        let (header, rest) = body.split_first_chunk::<LINK_HEADER>()?;
        let mut link = Self {
            hardware: u16::from_ne_bytes([header[2], header[3]]),
            index: u32::from_ne_bytes([header[4], header[5], header[6], header[7]]),
            is_up: u32::from_ne_bytes([header[8], header[9], header[10], header[11]])
                & libc::IFF_UP.cast_unsigned()
                != 0,
            ..Self::default()
        };
        for (kind, value) in attributes(rest) {
            match kind {
                NAME => link.name = text(value),
                ADDRESS => link.mac = value.first_chunk().copied().unwrap_or_default(),
                MTU => link.mtu = number(value),
                MASTER => link.master = number(value),
                LINK_INFO => {
                    for (kind, value) in attributes(value) {
                        match kind {
                            INFO_KIND => link.kind = text(value),
                            INFO_SLAVE_KIND => link.master_kind = text(value),
                            _ => {}
                        }
                    }
                }
                XDP => {
                    let mut attached = false;
                    let mut program = 0;
                    for (kind, value) in attributes(value) {
                        match kind {
                            XDP_ATTACHED => attached = value.first().is_some_and(|way| *way != 0),
                            XDP_PROGRAM => program = number(value),
                            _ => {}
                        }
                    }
                    link.program = attached.then_some(program);
                }
                _ => {}
            }
        }
        Some(link)
    }

    fn count_queues(&mut self, name: &str) {
        let mut channels = Channels { command: GET_CHANNELS, ..Channels::default() };
        // SAFETY: ETHTOOL_GCHANNELS reads and writes a struct ethtool_channels, which this is.
        let known = unsafe { system::ethtool(name, &mut channels) }.is_ok();
        if known {
            self.receive_queues = channels.combined_count.saturating_add(channels.receive_count);
            self.transmit_queues = channels.combined_count.saturating_add(channels.transmit_count);
        }
        if self.receive_queues == 0 {
            self.receive_queues = queues_in_sysfs(name, "rx-");
        }
        if self.transmit_queues == 0 {
            self.transmit_queues = queues_in_sysfs(name, "tx-");
        }
        let mut flags = Flags { command: GET_FLAGS, data: 0 };
        // SAFETY: ETHTOOL_GFLAGS reads and writes a struct ethtool_value, which this is.
        let known = unsafe { system::ethtool(name, &mut flags) }.is_ok();
        self.strips_tags = known && flags.data & STRIPS_TAGS != 0;
    }

    /// What kind of interface takes all that comes in here: a bridge, a bond, a team. A VRF doesn't: its members stay
    /// interfaces of their own.
    pub(crate) fn taker(&self) -> Option<&str> {
        Some(self.master_kind.as_str()).filter(|kind| !["", "vrf"].contains(kind))
    }

    /// The Ethernet address of frames that are for this interface itself. If another one takes them, there is none: that of a group.
    pub(crate) fn station(&self) -> [u8; 6] {
        if self.taker().is_some() { [0xff; 6] } else { self.mac }
    }

    /// The interface that it is enslaved to, by name.
    pub(crate) fn master_name(&self) -> String {
        Self::ask(self.master).ok().flatten().map_or_else(|| self.master.to_string(), |link| link.name)
    }
}

fn queues_in_sysfs(name: &str, prefix: &str) -> u32 {
    let entries = std::fs::read_dir(format!("/sys/class/net/{name}/queues"));
    let count = entries.map_or(0, |entries| {
        entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix)).count()
    });
    count.max(1) as u32
}

/// The addresses of one interface that others can reach it by.
pub(crate) fn reachable_addresses(name: &str) -> io::Result<Vec<IpAddr>> {
    let is_reachable = |address: &IpAddr| match address {
        IpAddr::V4(address) => !address.is_link_local(),
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    let all = system::addresses()?.into_iter().filter(|(owner, _)| owner == name);
    Ok(all.map(|(_, address)| address).filter(is_reachable).collect())
}

/// The messages in an answer: their types and bodies.
fn messages(mut answer: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = answer.first_chunk::<MESSAGE_HEADER>()?;
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let body = answer.get(MESSAGE_HEADER..length)?;
        answer = answer.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

/// The attributes in a message: their types and values.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = rest.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & TYPE_MASK;
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn number(value: &[u8]) -> u32 {
    value.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// Ethtool's commands (`include/uapi/linux/ethtool.h`).
const GET_CHANNELS: u32 = 0x3c;
const GET_FLAGS: u32 = 0x25;
/// `ETH_FLAG_RXVLAN`.
const STRIPS_TAGS: u32 = 1 << 8;

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

// SAFETY: integers only.
unsafe impl Plain for Channels {}

/// `struct ethtool_value`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Flags {
    command: u32,
    data: u32,
}

// SAFETY: integers only.
unsafe impl Plain for Flags {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_loopback_interface_is_known() {
        let lo = Link::find("lo").unwrap();
        assert_eq!((lo.name.as_str(), lo.hardware, lo.program), ("lo", 772, None));
        assert!(lo.index > 0 && lo.mtu > 0 && lo.receive_queues > 0 && lo.transmit_queues > 0);
        assert_eq!((lo.master, lo.kind.as_str()), (0, ""));
    }

    #[test]
    fn a_missing_interface_is_named() {
        for name in ["no-such-link", "", "a-name-that-is-too-long"] {
            let error = Link::find(name).unwrap_err();
            assert!(matches!(&error, XdpError::NoSuchInterface { name: told } if told == name), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_answer_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for (_, body) in messages(&bytes).take(1000) {
                let _ = Link::parse(body);
            }
            let _ = Link::parse(&bytes);
        }
    }
}
