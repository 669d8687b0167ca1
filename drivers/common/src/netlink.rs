//! Requests to the kernel's network, and its events (rtnetlink(7)).

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Longest datagram: dumps come in pieces of up to 32 KiB (`net/netlink/af_netlink.c: netlink_recvmsg`).
const DATAGRAM: usize = 64 << 10;

/// Bytes of a message's header, which begins with the message's length.
const HEADER: usize = 16;

fn socket(groups: u32) -> io::Result<OwnedFd> {
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// Asks.
#[derive(Debug)]
pub(crate) struct Requests {
    socket: OwnedFd,
    sequence: u32,
}

impl Requests {
    /// In this thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { socket: socket(0)?, sequence: 0 })
    }

    /// Sends a request about one thing, and passes the answers to `each`.
    pub(crate) fn ask(
        &mut self,
        message: RouteNetlinkMessage,
        each: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.exchange(message, NLM_F_REQUEST | NLM_F_ACK, each)
    }

    /// Sends a request for a list, and passes what is in it to `each`.
    pub(crate) fn list(
        &mut self,
        message: RouteNetlinkMessage,
        each: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.exchange(message, NLM_F_REQUEST | NLM_F_DUMP, each)
    }

    fn exchange(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        mut each: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        (header.flags, header.sequence_number) = (flags, self.sequence);
        let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        rustix::net::sendto(&self.socket, &bytes, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut buffer = vec![0; DATAGRAM];
        loop {
            let length = match rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((length, _)) => length,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for message in messages(buffer.get(..length).unwrap_or_default()) {
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::Done(_) => return Ok(()),
                    NetlinkPayload::Error(error) if error.code.is_none() => return Ok(()),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    NetlinkPayload::InnerMessage(answer) => each(answer),
                    _ => {}
                }
            }
        }
    }
}

/// The messages in a datagram. What this library can't read is left out.
fn messages(mut datagram: &[u8]) -> impl Iterator<Item = NetlinkMessage<RouteNetlinkMessage>> {
    let next = move || {
        let length = u32::from_ne_bytes(*datagram.first_chunk()?) as usize;
        let message = datagram.get(..length).filter(|_| length >= HEADER)?;
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(NetlinkMessage::deserialize(message).ok())
    };
    std::iter::from_fn(next).flatten()
}

/// Hears that something changed.
#[derive(Debug)]
pub(crate) struct Changes {
    socket: OwnedFd,
}

impl Changes {
    /// Of interfaces and addresses, in this thread's network namespace.
    pub(crate) fn of_addresses() -> io::Result<Self> {
        let groups = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        Ok(Self { socket: socket(groups.cast_unsigned())? })
    }

    /// What to wait on.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether there were any since the last time.
    pub(crate) fn take(&self) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        let mut any = false;
        loop {
            match rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                // More came than there was space for: that is a change, too.
                Ok(_) | Err(Errno::NOBUFS) => any = true,
                Err(Errno::AGAIN) => return Ok(any),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_datagram_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            assert!(messages(&bytes).count() <= bytes.len() / HEADER);
        }
    }
}
