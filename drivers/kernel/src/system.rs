//! The system calls of this driver, behind safe functions.

use std::ffi::{c_int, c_ulong};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Types that are plain numbers, so that the kernel may fill them with any bytes.
///
/// # Safety
/// Any bit pattern is a value of the type, and it has no padding whose contents would matter.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for c_int {}
// SAFETY: integers only.
unsafe impl Plain for libc::tpacket_req {}
// SAFETY: integers only.
unsafe impl Plain for libc::tpacket_stats {}
// SAFETY: integers only.
unsafe impl Plain for libc::packet_mreq {}
// SAFETY: integers only.
unsafe impl Plain for libc::sockaddr_ll {}

/// Turns the C convention (−1 and `errno`) into a `Result`.
pub(crate) fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The same for calls that return a length.
pub(crate) fn check_length(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// A non-blocking socket that is closed when another program is executed.
pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let fd =
        check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, protocol) })?;
    // SAFETY: the descriptor was just made and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets a socket option.
pub(crate) fn set_option<T: Plain>(fd: &OwnedFd, level: c_int, name: c_int, value: T) -> io::Result<()> {
    // SAFETY: the kernel reads size_of::<T>() bytes from `value`, which lives through the call.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    check(result).map(drop)
}

/// Asks for a socket option.
pub(crate) fn get_option<T: Plain>(fd: &OwnedFd, level: c_int, name: c_int, mut value: T) -> io::Result<T> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` = size_of::<T>() bytes to `value`; any bytes are a T (Plain).
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length) };
    check(result).map(|_| value)
}

/// Binds a packet socket to the interface of that index.
pub(crate) fn bind(fd: &OwnedFd, address: libc::sockaddr_ll) -> io::Result<()> {
    // SAFETY: the kernel reads size_of::<sockaddr_ll>() bytes from `address`, which lives through the call.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    check(result).map(drop)
}

/// The interface index that a packet socket is bound to: −1 once the interface was deleted or moved to another
/// network namespace (`net/packet/af_packet.c: packet_notifier`).
pub(crate) fn bound_index(fd: &OwnedFd) -> io::Result<c_int> {
    let mut address = link_address(0, 0);
    let mut length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` = size_of::<sockaddr_ll>() bytes to `address`, any of which are
    // a value of it.
    let result = unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut length) };
    check(result).map(|_| address.sll_ifindex)
}

/// An address of packet sockets: this interface, these protocols (in host byte order; 0 is none).
pub(crate) fn link_address(index: c_int, protocol: u16) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

/// An ioctl on an interface request.
///
/// # Safety
/// `number` is one whose argument is a `struct ifreq`, and if that holds a pointer (`ifru_data`), it points to what
/// the ioctl reads and writes.
pub(crate) unsafe fn interface_ioctl(
    fd: &OwnedFd,
    number: c_ulong,
    request: &mut libc::ifreq,
) -> io::Result<()> {
    // SAFETY: the caller vouches for number and contents; the request lives through the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), number as libc::Ioctl, std::ptr::from_mut(request)) })
        .map(drop)
}

/// An ioctl whose argument is the number itself.
///
/// # Safety
/// `number` is one whose argument is not a pointer.
pub(crate) unsafe fn value_ioctl(fd: &OwnedFd, number: c_ulong, value: c_ulong) -> io::Result<()> {
    // SAFETY: the caller vouches for number; no pointer is passed.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), number as libc::Ioctl, value) }).map(drop)
}

/// `readv` into the pieces, one behind the other; returns the bytes read.
pub(crate) fn read_pieces<const N: usize>(fd: &OwnedFd, pieces: [&mut [u8]; N]) -> io::Result<usize> {
    const { assert!(N <= 1024, "the kernel takes up to 1,024 pieces") };
    let vector =
        pieces.map(|piece| libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() });
    #[expect(clippy::cast_possible_wrap, reason = "asserted to be small")]
    let count = N as c_int;
    // SAFETY: each entry is a mutable slice that is borrowed through this function.
    check_length(unsafe { libc::readv(fd.as_raw_fd(), vector.as_ptr(), count) })
}
