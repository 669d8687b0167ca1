//! System calls that rustix lacks: socket options and ioctls that only some drivers know.

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::ffi::{c_int, c_ulong};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Types that are plain numbers, so that the kernel may fill them with any bytes.
///
/// # Safety
/// Any bit pattern is a value of the type, and it has no padding whose contents would matter.
pub unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for c_int {}
// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: an integer.
unsafe impl Plain for u64 {}
// SAFETY: integers only.
unsafe impl Plain for libc::tpacket_req {}
// SAFETY: integers only.
unsafe impl Plain for libc::tpacket_stats {}
// SAFETY: integers only.
unsafe impl Plain for libc::packet_mreq {}

/// Turns the C convention (−1 and `errno`) into a `Result`.
///
/// # Errors
/// What `errno` says.
pub fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A raw, non-blocking socket that is closed when another program is executed. It receives nothing before it is bound.
///
/// # Errors
/// The kernel refuses.
pub fn raw_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(family, SocketType::RAW, flags, None)?)
}

/// Sets a socket option.
///
/// # Errors
/// The kernel refuses.
pub fn set_option<T: Plain>(fd: &OwnedFd, level: c_int, name: c_int, value: T) -> io::Result<()> {
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

/// Asks for a socket option; `value` is what is not filled in.
///
/// # Errors
/// The kernel refuses.
pub fn get_option<T: Plain>(fd: &OwnedFd, level: c_int, name: c_int, mut value: T) -> io::Result<T> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` = size_of::<T>() bytes to `value`; any bytes are a T (Plain).
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length) };
    check(result).map(|_| value)
}

/// Binds a socket to an address that rustix has no type for.
///
/// # Errors
/// The kernel refuses.
///
/// # Safety
/// `T` is a socket address of C: it starts with its family.
pub unsafe fn bind<T: Copy>(fd: &OwnedFd, address: T) -> io::Result<()> {
    // SAFETY: the kernel reads size_of::<T>() bytes from `address`, which lives through the call.
    let result =
        unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of::<T>() as libc::socklen_t) };
    check(result).map(drop)
}

/// An ioctl on an interface request.
///
/// # Errors
/// The kernel refuses.
///
/// # Safety
/// `number` is one whose argument is a `struct ifreq`, and if that holds a pointer (`ifru_data`), it points to what
/// the ioctl reads and writes.
pub unsafe fn interface_ioctl(fd: impl AsFd, number: c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the caller vouches for number and contents; the request lives through the call.
    let result =
        unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), number as libc::Ioctl, std::ptr::from_mut(request)) };
    check(result).map(drop)
}

/// An ioctl whose argument is the number itself.
///
/// # Errors
/// The kernel refuses.
///
/// # Safety
/// `number` is one whose argument is not a pointer.
pub unsafe fn value_ioctl(fd: &OwnedFd, number: c_ulong, value: c_ulong) -> io::Result<()> {
    // SAFETY: the caller vouches for number; no pointer is passed.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), number as libc::Ioctl, value) }).map(drop)
}
