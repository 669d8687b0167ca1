//! System calls that wake the kernel up.

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::os::fd::OwnedFd;

/// Wakes the kernel's sending side up: a `send` of nothing (`net/xdp/xsk.c: xsk_sendmsg`).
#[inline]
pub(crate) fn sender(fd: &OwnedFd) -> Result<(), Errno> {
    rustix::net::send(fd, &[], SendFlags::DONTWAIT).map(drop)
}

/// Wakes the kernel's receiving side up: a `recv` of nothing (`net/xdp/xsk.c: xsk_recvmsg`).
#[inline]
pub(crate) fn receiver(fd: &OwnedFd) -> Result<(), Errno> {
    let nothing: &mut [u8] = &mut [];
    rustix::net::recv(fd, nothing, RecvFlags::DONTWAIT).map(drop)
}
