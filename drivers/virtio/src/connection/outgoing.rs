//! Messages as they go out.

use crate::protocol::{Header, Request};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::IoSlice;
use std::mem::MaybeUninit;

/// A whole message, and the descriptor that goes with it.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) bytes: Vec<u8>,
    pub(crate) file: Option<OwnedFd>,
}

impl Outgoing {
    /// A question or an order, of a front end.
    pub(crate) fn request(request: &Request, file: Option<OwnedFd>) -> Self {
        let payload = request.encode();
        let length = payload.len() as u32;
        let header = Header { request: request.number(), is_reply: false, needs_reply: false, length };
        Self { bytes: [&header.encode()[..], &payload].concat(), file }
    }

    /// Sends it; `false` if that can't be done at once.
    pub(crate) fn send(&self, socket: &OwnedFd) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let files: Vec<_> = self.file.iter().map(|file| file.as_fd()).collect();
        if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&files)) {
            return false;
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let sent = rustix::net::sendmsg(socket, &[IoSlice::new(&self.bytes)], &mut ancillary, flags);
        sent == Ok(self.bytes.len())
    }
}
