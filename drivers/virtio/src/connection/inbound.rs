//! Messages as they come by the socket, in whatever pieces.

use crate::protocol::{HEADER_BYTES, Header, MAXIMUM_REGIONS};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;

/// A message that is whole.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) header: Header,
    pub(crate) payload: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// A message that is not whole yet.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    bytes: Vec<u8>,
    header: Option<Header>,
    descriptors: Vec<OwnedFd>,
}

/// What a look at the socket brought.
#[derive(Debug)]
pub(crate) enum Got {
    Message(Message),
    /// Nothing, or not all.
    Nothing,
    Closed,
}

impl Inbound {
    /// Reads what is there of the next message, and nothing of those behind it.
    pub(crate) fn read(&mut self, socket: &OwnedFd) -> Result<Got, String> {
        loop {
            let wanted = self.header.map_or(HEADER_BYTES, |header| HEADER_BYTES + header.length as usize);
            let missing = wanted - self.bytes.len();
            if missing > 0 {
                match self.receive(socket, missing)? {
                    None => return Ok(Got::Nothing),
                    Some(0) => return Ok(Got::Closed),
                    Some(_) => continue,
                }
            }
            let Some(header) = self.header else {
                let bytes = self.bytes.first_chunk().copied().unwrap_or_default();
                self.header = Some(Header::decode(bytes).map_err(|error| error.to_string())?);
                continue;
            };
            let Self { mut bytes, descriptors, .. } = std::mem::take(self);
            let payload = bytes.split_off(HEADER_BYTES);
            return Ok(Got::Message(Message { header, payload, descriptors }));
        }
    }

    /// Receives up to `missing` bytes. `None`: there are none now.
    fn receive(&mut self, socket: &OwnedFd, missing: usize) -> Result<Option<usize>, String> {
        let mut bytes = vec![0; missing];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAXIMUM_REGIONS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received =
            rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags);
        let received = match received {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            // Who closes with messages unread resets.
            Err(Errno::CONNRESET) => return Ok(Some(0)),
            Err(error) => return Err(format!("can't read the control socket: {error}")),
        };
        for part in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = part {
                self.descriptors.extend(fds);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) || self.descriptors.len() > MAXIMUM_REGIONS {
            return Err(format!("more than {MAXIMUM_REGIONS} descriptors with a message"));
        }
        self.bytes.extend(&bytes[..received.bytes]);
        Ok(Some(received.bytes))
    }
}
