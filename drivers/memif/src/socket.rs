//! The control socket: packets of 128 bytes, and descriptors with them.

use crate::error::MemifError;
use crate::protocol::{MESSAGE_BYTES, Message};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;

/// Where a socket is.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    text: String,
    address: SocketAddrUnix,
}

impl Address {
    /// Of a path, or of `@` and a name.
    pub(crate) fn new(text: &str) -> Result<Self, MemifError> {
        let address = match text.strip_prefix('@') {
            Some("") => Err(Errno::INVAL),
            Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
            None if text.is_empty() => Err(Errno::INVAL),
            None => SocketAddrUnix::new(text),
        };
        let too_long = |_| MemifError::SocketLength { socket: text.to_owned(), length: text.len() };
        Ok(Self { text: text.to_owned(), address: address.map_err(too_long)? })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    fn path(&self) -> Option<&str> {
        (!self.text.starts_with('@')).then_some(&self.text)
    }
}

fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Connects. It does not wait: a server that is busy refuses.
pub(crate) fn connect(address: &Address) -> Result<OwnedFd, Errno> {
    let socket = socket()?;
    rustix::net::connect(&socket, &address.address)?;
    Ok(socket)
}

/// A socket that listens; its file goes with it.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) fd: OwnedFd,
    pub(crate) address: Address,
}

impl Listener {
    /// Listens. A socket file that nobody listens on is left from a process that is no more, and replaced.
    pub(crate) fn new(address: &Address) -> Result<Self, MemifError> {
        let failed = |errno: Errno| MemifError::System {
            action: format!("listen on socket {:?}", address.text),
            source: errno.into(),
        };
        let fd = socket().map_err(failed)?;
        match rustix::net::bind(&fd, &address.address) {
            Err(Errno::ADDRINUSE) => {
                let in_use = || MemifError::SocketInUse { socket: address.text.clone() };
                let path = address.path().ok_or_else(in_use)?;
                let kind = rustix::fs::lstat(path).map_err(failed)?;
                if FileType::from_raw_mode(kind.st_mode) != FileType::Socket {
                    return Err(MemifError::NoSocket { socket: address.text.clone() });
                }
                if !matches!(connect(address), Err(Errno::CONNREFUSED)) {
                    return Err(in_use());
                }
                rustix::fs::unlink(path).map_err(failed)?;
                rustix::net::bind(&fd, &address.address).map_err(failed)?;
            }
            other => other.map_err(failed)?,
        }
        rustix::net::listen(&fd, BACKLOG).map_err(failed)?;
        Ok(Self { fd, address: address.clone() })
    }

    /// The next connection, if one waits.
    pub(crate) fn accept(&self) -> Option<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::accept_with(&self.fd, flags).ok()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = self.address.path() {
            // If it is gone, so much the better.
            let _ = rustix::fs::unlink(path);
        }
    }
}

/// Sends a message. The other side reads each at once or has to be given up: the kernel holds some hundred.
pub(crate) fn send(socket: &OwnedFd, message: &Message, fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = fd.as_slice();
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    let bytes = message.encode();
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, flags).map(drop)
}

/// What came by a socket.
#[derive(Debug)]
pub(crate) enum Received {
    /// A message's bytes, and its descriptor if it had one.
    Message([u8; MESSAGE_BYTES], Option<OwnedFd>),
    /// Something else than 128 bytes.
    WrongLength,
    /// The other side has closed.
    Closed,
    /// Nothing yet.
    Nothing,
}

/// Takes the next message. Descriptors beyond the first are closed.
pub(crate) fn receive(socket: &OwnedFd) -> Received {
    match receive_once(socket) {
        // Who closes with messages unread says so first; what it said before comes after.
        Err(Errno::CONNRESET) => receive_once(socket),
        other => other,
    }
    .unwrap_or_else(|error| match error {
        Errno::AGAIN | Errno::INTR => Received::Nothing,
        _ => Received::Closed,
    })
}

fn receive_once(socket: &OwnedFd) -> Result<Received, Errno> {
    let mut bytes = [0; MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags)?;
    let fd = ancillary.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(match message.bytes {
        0 => Received::Closed,
        MESSAGE_BYTES if !message.flags.contains(ReturnFlags::TRUNC) => Received::Message(bytes, fd),
        _ => Received::WrongLength,
    })
}
