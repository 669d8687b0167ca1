//! The system calls of this driver, behind safe functions.

use std::ffi::{CStr, c_int};
use std::io;
use std::mem::size_of;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Types that are plain numbers, so that the kernel may fill them with any bytes.
///
/// # Safety
/// Any bit pattern is a value of the type, and it has no padding whose contents would matter.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for c_int {}
// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: integers only.
unsafe impl Plain for libc::timeval {}
// SAFETY: integers only.
unsafe impl Plain for libc::sockaddr_nl {}

/// Turns the C convention (−1 and `errno`) into a `Result`.
fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A socket that is closed when another program is executed.
pub(crate) fn socket(domain: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let fd = check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })?;
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

/// Binds a socket to an address of the family that it is of.
pub(crate) fn bind<T: Plain>(fd: &OwnedFd, address: T) -> io::Result<()> {
    // SAFETY: the kernel reads size_of::<T>() bytes from `address`, which lives through the call.
    let result =
        unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of::<T>() as libc::socklen_t) };
    check(result).map(drop)
}

/// Wakes the kernel's sending side up: a `send` of nothing (`net/xdp/xsk.c: xsk_sendmsg`).
#[inline]
pub(crate) fn wake_sender(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: no buffer and no address are passed.
    let result =
        unsafe { libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Wakes the kernel's receiving side up: a `recv` of nothing (`net/xdp/xsk.c: xsk_recvmsg`).
#[inline]
pub(crate) fn wake_receiver(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: a buffer of no bytes, and no address, are passed.
    let result = unsafe {
        libc::recvfrom(
            fd.as_raw_fd(),
            std::ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sends a request and appends what comes back to `answers`, message by message, until `done` has seen enough.
pub(crate) fn ask(fd: &OwnedFd, request: &[u8], mut done: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
    // SAFETY: the kernel reads request.len() bytes, which live through the call.
    let sent = unsafe { libc::send(fd.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut answer = vec![0_u8; 64 << 10];
    loop {
        // SAFETY: the kernel writes at most answer.len() bytes to the vector, which is borrowed through the call.
        let length = unsafe { libc::recv(fd.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        if length == 0 || done(&answer[..length.min(answer.len())]) {
            return Ok(());
        }
    }
}

/// A socket that hears of addresses that come and go, and of changed interfaces (rtnetlink(7)); it waits a second at most.
pub(crate) fn address_news() -> io::Result<OwnedFd> {
    let fd = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    let second = libc::timeval { tv_sec: 1, tv_usec: 0 };
    set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, second)?;
    // SAFETY: all zero is a value of this plain C struct.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as u16;
    address.nl_groups = (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
    bind(&fd, address)?;
    Ok(fd)
}

/// Waits for news, and takes them; `false` if there are none for now.
pub(crate) fn hear(fd: &OwnedFd) -> io::Result<bool> {
    let mut message = [0_u8; 4096];
    // SAFETY: the kernel writes at most message.len() bytes to the array.
    let length = unsafe { libc::recv(fd.as_raw_fd(), message.as_mut_ptr().cast(), message.len(), 0) };
    if length >= 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // More came than was taken: that is news, too.
        Some(libc::ENOBUFS) => Ok(true),
        Some(libc::EAGAIN | libc::EINTR) => Ok(false),
        _ => Err(error),
    }
}

/// An ioctl on an interface whose argument is an ethtool command.
///
/// # Safety
/// `command` is a `repr(C)` struct of plain integers, starts with the number of an ethtool command and has the form
/// that this command reads and writes (`include/uapi/linux/ethtool.h`).
pub(crate) unsafe fn ethtool<T: Plain>(name: &str, command: &mut T) -> io::Result<()> {
    let fd = socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0)?;
    // SAFETY: all zero is a value of this plain C struct.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let length = request.ifr_name.len() - 1;
    for (target, byte) in request.ifr_name[..length].iter_mut().zip(name.bytes()) {
        *target = libc::c_char::from_ne_bytes([byte]);
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(command).cast();
    // SAFETY: the request's data is a command as the caller vouches, borrowed through the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut request) })
        .map(drop)
}

/// The addresses of all interfaces in this thread's network namespace, broadcast addresses included, with the
/// interface's name.
pub(crate) fn addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: the function writes a list's address to `list`.
    check(unsafe { libc::getifaddrs(&raw mut list) })?;
    let mut found = Vec::new();
    let mut entry = list;
    // SAFETY: the list ends with null; each entry's name is a C string, each of its addresses null or as long as its
    // family says; all stays until it is freed.
    unsafe {
        while !entry.is_null() {
            let name = CStr::from_ptr((*entry).ifa_name).to_string_lossy().into_owned();
            let broadcast = (*entry).ifa_flags & libc::IFF_BROADCAST as u32 != 0;
            let other = if broadcast { (*entry).ifa_ifu } else { std::ptr::null_mut() };
            for address in [(*entry).ifa_addr, other] {
                if let Some(address) = address_of(address) {
                    found.push((name.clone(), address));
                }
            }
            entry = (*entry).ifa_next;
        }
        libc::freeifaddrs(list);
    }
    Ok(found)
}

/// The IP address in a socket address, if it is one.
///
/// # Safety
/// `address` is null, or points to a socket address as long as its family says.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller vouches for the pointer; unaligned reads need no alignment.
    unsafe {
        if address.is_null() {
            return None;
        }
        match c_int::from((&raw const (*address).sa_family).read_unaligned()) {
            libc::AF_INET => {
                let address = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(IpAddr::V4(u32::from_be(address.sin_addr.s_addr).into()))
            }
            libc::AF_INET6 => {
                let address = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(IpAddr::V6(address.sin6_addr.s6_addr.into()))
            }
            _ => None,
        }
    }
}

/// Raises the limit of locked memory as far as this process may.
pub(crate) fn raise_memory_limit() {
    let unlimited = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the functions read and write whole structs that live through the calls. Failing changes nothing.
    unsafe {
        if libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const unlimited) == 0 {
            return;
        }
        if libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit);
        }
    }
}
