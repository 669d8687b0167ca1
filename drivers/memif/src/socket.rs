//! The control socket: packets of 128 bytes, and descriptors with them.

use crate::protocol::{MESSAGE_BYTES, Message};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

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
