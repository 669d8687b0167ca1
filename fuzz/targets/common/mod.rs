//! What targets share that are another process at a port's socket.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// Waits, for less than an input may take.
///
/// # Panics
/// If it doesn't happen.
pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(8);
    while !happened() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

/// Adds to bytes: `pairs` of a place and what to add there.
pub fn change(bytes: &mut [u8], pairs: &[u8]) {
    for pair in pairs.chunks_exact(2) {
        let place = usize::from(pair[0]) % bytes.len();
        bytes[place] = bytes[place].wrapping_add(pair[1]);
    }
}

/// Sends a message, with a descriptor if it has one.
pub fn send(socket: &OwnedFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fd.as_slice().is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(fd.as_slice()));
    }
    // The port may have closed the connection.
    let _ = rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL);
}

/// The next record of an input: a byte of what to do, a byte of how many bytes follow, and those.
pub fn next<'a>(input: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let [what, length, rest @ ..] = *input else { return None };
    let (data, rest) = rest.split_at(rest.len().min(usize::from(*length)));
    *input = rest;
    Some((*what, data))
}
