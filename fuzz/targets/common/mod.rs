//! What targets share that are another process at a port's socket.

#![allow(dead_code, reason = "not each target uses all")]

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType,
};
use warmlane::mem::{Burst, Pool, PoolConfig};
use warmlane::port::Port;

/// A pool for a port.
pub fn pool() -> Pool {
    let config = PoolConfig { name: "fuzz".to_owned(), buffers: 1024, ..PoolConfig::default() };
    Pool::new(&config).expect("there is memory")
}

/// A name for a port's socket that no other process has, and where it is connected to.
pub fn address(kind: &str) -> (String, SocketAddrUnix) {
    let name = format!("warmlane-fuzz-{kind}-{}", std::process::id());
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("it is short");
    (format!("@{name}"), address)
}

/// A socket that is connected to the port.
pub fn connect(address: &SocketAddrUnix, kind: SocketType) -> OwnedFd {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("there are descriptors");
    rustix::net::connect(&socket, address).expect("the port listens");
    socket
}

/// Receives what there is, no packet of which is longer than `longest`, and sends six packets, each `step` bytes longer than the last.
pub fn work(port: &mut Port, pool: &Pool, longest: usize, step: usize) {
    let (mut came, mut goes) = (Burst::new(), Burst::new());
    port.receive[0].receive(&mut came);
    assert!(came.iter().all(|packet| packet.packet_length() <= longest));
    drop(came);
    pool.take_burst(&mut goes, 6);
    for (number, packet) in goes.iter_mut().enumerate() {
        packet.append(number * step + 1).expect("it fits").fill(7);
    }
    port.transmit[0].transmit(&mut goes);
}

/// Writes the bytes behind the first two to where those say, before `end`.
pub fn write(file: &File, record: &[u8], end: u64) {
    let [low, high, bytes @ ..] = record else { return };
    let place = u64::from(u16::from_le_bytes([*low, *high])) % end;
    file.write_all_at(bytes, place).expect("it is long enough");
}

/// Raises an index.
pub fn raise(file: &File, place: u64, by: u8) {
    let mut index = [0; 2];
    file.read_exact_at(&mut index, place).expect("it is long enough");
    let raised = u16::from_ne_bytes(index).wrapping_add(by.into());
    file.write_all_at(&raised.to_ne_bytes(), place).expect("it is long enough");
}

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
