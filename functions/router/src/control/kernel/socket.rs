//! Netlink sockets: one for events, one for requests.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use netlink_packet_core::{Emitable, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, NLM_F_REQUEST};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage,
};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    self, AddressFamily as Domain, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt,
};

use super::decode::{FLAG_APPEND, decode, kind};
use super::event::{Event, LinkIndex};

/// Space for what the kernel says while we are busy: a full table's worth of changes.
const RECEIVE_BUFFER: usize = 64 << 20;

/// Longest datagram: dumps come in pieces of up to 32 KiB (`net/netlink/af_netlink.c: netlink_recvmsg`).
const DATAGRAM: usize = 64 << 10;

/// Message kinds and flags (`include/uapi/linux/netlink.h`).
const ERROR: u16 = 2;
const DONE: u16 = 3;
const OVERRUN: u16 = 4;
const DUMP_INTERRUPTED: u16 = 0x10;
const HEADER: usize = 16;

/// Multicast groups to join (`include/uapi/linux/rtnetlink.h: RTNLGRP_*`), each as the bit of its number.
const GROUPS: u32 = {
    const LINK: u32 = 1;
    const NEIGHBOUR: u32 = 3;
    const IPV4_ADDRESS: u32 = 5;
    const IPV4_ROUTE: u32 = 7;
    const IPV4_RULE: u32 = 8;
    const IPV6_ADDRESS: u32 = 9;
    const IPV6_ROUTE: u32 = 11;
    const IPV6_RULE: u32 = 19;
    const NEXT_HOP: u32 = 32;
    let all =
        [LINK, NEIGHBOUR, IPV4_ADDRESS, IPV4_ROUTE, IPV4_RULE, IPV6_ADDRESS, IPV6_ROUTE, IPV6_RULE, NEXT_HOP];
    let mut groups = 0;
    let mut index = 0;
    while index < all.len() {
        groups |= 1 << (all[index] - 1);
        index += 1;
    }
    groups
};

/// A socket for one of the kernel's subsystems; `None` is the first, NETLINK_ROUTE.
fn open(protocol: Option<Protocol>, groups: u32) -> io::Result<OwnedFd> {
    let socket = net::socket_with(Domain::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    // Beyond the system's limit needs CAP_NET_ADMIN.
    if sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER)?;
    }
    net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// A message: its kind, flags, sequence number and body.
struct Message<'a> {
    kind: u16,
    flags: u16,
    sequence: u32,
    body: &'a [u8],
}

/// The messages in a datagram, up to the first whose length can't be.
fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let header = datagram.first_chunk::<HEADER>()?;
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *header;
        let length = u32::from_ne_bytes([a, b, c, d]) as usize;
        let body = datagram.get(HEADER..length)?;
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message {
            kind: u16::from_ne_bytes([e, f]),
            flags: u16::from_ne_bytes([g, h]),
            sequence: u32::from_ne_bytes([i, j, k, l]),
            body,
        })
    })
}

/// Receives a datagram of the kernel's; those of others are empty.
fn receive<'a>(socket: &OwnedFd, buffer: &'a mut [u8], flags: RecvFlags) -> Result<&'a [u8], Errno> {
    let (length, _, from) = net::recvfrom(socket, &mut *buffer, flags)?;
    let is_kernel = from
        .and_then(|address| SocketAddrNetlink::try_from(address).ok())
        .is_some_and(|address| address.pid() == 0);
    Ok(if is_kernel { buffer.get(..length).unwrap_or_default() } else { &[] })
}

/// How far receiving got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Nothing more for now.
    Everything,
    /// There is more.
    More,
    /// Something got lost: the kernel had no space for it.
    Lost,
}

/// Hears of changes.
#[derive(Debug)]
pub struct EventSocket {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl EventSocket {
    /// Starts listening, in this thread's network namespace.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new() -> io::Result<Self> {
        Ok(Self { socket: open(None, GROUPS)?, buffer: vec![0; DATAGRAM] })
    }

    /// What to wait on.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Reads up to `datagrams`, without waiting.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn receive(&mut self, datagrams: usize, mut each: impl FnMut(Event)) -> io::Result<Received> {
        for _ in 0..datagrams {
            match receive(&self.socket, &mut self.buffer, RecvFlags::DONTWAIT) {
                Ok(datagram) => messages(datagram)
                    .filter_map(|message| decode(message.kind, message.flags, message.body))
                    .for_each(&mut each),
                Err(Errno::AGAIN) => return Ok(Received::Everything),
                Err(Errno::INTR) => {}
                Err(Errno::NOBUFS) => return Ok(Received::Lost),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Received::More)
    }
}

/// Hears that something of a subsystem has changed, whatever it was.
#[derive(Debug)]
pub struct ChangeSocket {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl ChangeSocket {
    /// Starts listening to a multicast group of a subsystem, in this thread's network namespace.
    ///
    /// # Errors
    /// The kernel refuses, or has no such subsystem.
    pub fn new(protocol: Option<Protocol>, groups: u32) -> io::Result<Self> {
        Ok(Self { socket: open(protocol, groups)?, buffer: vec![0; DATAGRAM] })
    }

    /// What to wait on.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether anything was told since the last time.
    pub fn has_changed(&mut self) -> bool {
        let mut any = false;
        loop {
            match receive(&self.socket, &mut self.buffer, RecvFlags::DONTWAIT) {
                // The kernel had no space for more: that says enough, and the next call goes on.
                Ok(_) | Err(Errno::NOBUFS) => any = true,
                Err(Errno::INTR) => {}
                Err(_) => return any,
            }
        }
    }
}

/// Asks.
#[derive(Debug)]
pub struct RequestSocket {
    socket: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

/// How often a dump that the kernel's own changes interrupted is tried again.
const ATTEMPTS: u32 = 20;

impl RequestSocket {
    /// A socket in this thread's network namespace.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new() -> io::Result<Self> {
        Self::of(None)
    }

    /// The same, to another of the kernel's subsystems than that of routes.
    pub(super) fn of(protocol: Option<Protocol>) -> io::Result<Self> {
        Ok(Self { socket: open(protocol, 0)?, buffer: vec![0; DATAGRAM], sequence: 0 })
    }

    /// Lists all that there is, and says whether that is one moment's state. If not (the kernel changed it meanwhile,
    /// time and again), what came last is the best there is, and events will correct it.
    ///
    /// # Errors
    /// The kernel refuses, or loses part of the answer.
    pub fn list_everything(
        &mut self,
        mut start: impl FnMut(),
        mut each: impl FnMut(Event),
    ) -> io::Result<bool> {
        const ANY: u8 = 0;
        const IPV4: u8 = 2;
        const BRIDGE: u8 = 7;
        const IPV6: u8 = 10;
        for _ in 0..ATTEMPTS {
            start();
            let mut whole = true;
            for (kind, families, header) in [
                (kind::GET_LINK, &[ANY][..], 16),
                (kind::GET_ADDRESS, &[ANY], 8),
                (kind::GET_NEIGHBOUR, &[IPV4, IPV6, BRIDGE], 12),
                (kind::GET_RULE, &[IPV4, IPV6], 12),
                (kind::GET_NEXT_HOP, &[ANY], 8),
                (kind::GET_ROUTE, &[IPV4, IPV6], 12),
            ] {
                for &family in families {
                    whole &= self.dump(kind, family, header, &mut each)?;
                }
            }
            if whole {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lists the links only.
    ///
    /// # Errors
    /// As [`list_everything`](Self::list_everything).
    pub fn list_links(&mut self, mut each: impl FnMut(Event)) -> io::Result<bool> {
        self.dump(kind::GET_LINK, 0, 16, &mut each)
    }

    /// Lists what there is of one kind, and says whether that is one moment's state.
    fn dump(
        &mut self,
        kind: u16,
        family: u8,
        header: usize,
        each: &mut impl FnMut(Event),
    ) -> io::Result<bool> {
        let mut body = vec![0; header];
        body[0] = family;
        let listed = self.list(kind, &body, |kind, body| {
            // What a dump lists is in the kernel's order.
            if let Some(event) = decode(kind, FLAG_APPEND, body) {
                each(event);
            }
        });
        match listed.as_ref().map_err(io::Error::raw_os_error) {
            // Kernels without nexthop objects, or without IPv6.
            Err(Some(libc_error::OPNOTSUPP | libc_error::AFNOSUPPORT)) => Ok(true),
            _ => listed,
        }
    }

    /// Gives each the kind and body of the messages that the kernel answers a request for a list with, and says whether that
    /// is one moment's state.
    pub(super) fn list(
        &mut self,
        kind: u16,
        body: &[u8],
        mut each: impl FnMut(u16, &[u8]),
    ) -> io::Result<bool> {
        self.send(kind, NLM_F_REQUEST | NLM_F_DUMP, body)?;
        let mut whole = true;
        loop {
            let datagram = match receive(&self.socket, &mut self.buffer, RecvFlags::empty()) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            for message in messages(datagram).filter(|message| message.sequence == self.sequence) {
                whole &= message.flags & DUMP_INTERRUPTED == 0;
                match message.kind {
                    DONE => return Ok(whole),
                    OVERRUN => return Err(io::Error::other("the kernel lost part of its answer")),
                    ERROR => {
                        return match error_number(message.body) {
                            0 => Ok(whole),
                            number => Err(io::Error::from_raw_os_error(number)),
                        };
                    }
                    _ => each(message.kind, message.body),
                }
            }
        }
    }

    /// Lets the kernel find out a neighbour's Ethernet address, or check whether it is still right. The answer is an event.
    ///
    /// # Errors
    /// The kernel refuses: it needs `CAP_NET_ADMIN`, and the link must be there.
    pub fn probe(&mut self, link: LinkIndex, address: IpAddr) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = match address {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        message.header.ifindex = link;
        // Treats it as a packet to that neighbour would be (`net/core/neighbour.c: neigh_add`).
        message.header.flags = NeighbourFlags::Use;
        message.attributes.push(NeighbourAttribute::Destination(match address {
            IpAddr::V4(ip) => NeighbourAddress::Inet(ip),
            IpAddr::V6(ip) => NeighbourAddress::Inet6(ip),
        }));
        let mut body = vec![0; message.buffer_len()];
        message.emit(&mut body);
        self.change(kind::NEW_NEIGHBOUR, NLM_F_CREATE | NLM_F_REPLACE, &body)
    }

    /// Asks for one thing, and gives `read` what the kernel answers; `None` if there is no such thing.
    pub(super) fn get<T>(
        &mut self,
        kind: u16,
        body: &[u8],
        read: impl FnOnce(&[u8]) -> T,
    ) -> io::Result<Option<T>> {
        self.send(kind, NLM_F_REQUEST, body)?;
        loop {
            let datagram = match receive(&self.socket, &mut self.buffer, RecvFlags::empty()) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            let answer = messages(datagram).find(|message| message.sequence == self.sequence);
            match answer {
                Some(Message { kind: ERROR, body, .. }) => {
                    return match error_number(body) {
                        number if number == Errno::NOENT.raw_os_error() => Ok(None),
                        number => Err(io::Error::from_raw_os_error(number)),
                    };
                }
                Some(message) => return Ok(Some(read(message.body))),
                None => {}
            }
        }
    }

    /// Asks for a change, and waits until the kernel has made it.
    pub(super) fn change(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.send(kind, NLM_F_REQUEST | NLM_F_ACK | flags, body)?;
        loop {
            let datagram = match receive(&self.socket, &mut self.buffer, RecvFlags::empty()) {
                Err(Errno::INTR) => continue,
                other => other?,
            };
            for message in messages(datagram) {
                if message.sequence == self.sequence && message.kind == ERROR {
                    return match error_number(message.body) {
                        0 => Ok(()),
                        number => Err(io::Error::from_raw_os_error(number)),
                    };
                }
            }
        }
    }

    fn send(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = Vec::with_capacity(HEADER + body.len());
        request.extend(((HEADER + body.len()) as u32).to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend(flags.to_ne_bytes());
        request.extend(self.sequence.to_ne_bytes());
        request.extend(0_u32.to_ne_bytes());
        request.extend(body);
        net::sendto(&self.socket, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        Ok(())
    }
}

/// Error numbers that mean "there is nothing of the kind".
mod libc_error {
    pub(super) const OPNOTSUPP: i32 = rustix::io::Errno::OPNOTSUPP.raw_os_error();
    pub(super) const AFNOSUPPORT: i32 = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
}

/// The number in an `NLMSG_ERROR`; 0 is an acknowledgement.
fn error_number(body: &[u8]) -> i32 {
    body.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes).wrapping_neg())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_datagram_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            for message in messages(&bytes).take(100) {
                let _ = decode(message.kind, message.flags, message.body);
            }
        }

        #[test]
        fn any_body_is_read_without_harm(
            kind in prop::sample::select(&[16_u16, 17, 20, 24, 25, 28, 29, 32, 104, 105][..]),
            bytes in prop::collection::vec(any::<u8>(), 0..120),
        ) {
            let _ = decode(kind, 0, &bytes);
        }
    }
}
