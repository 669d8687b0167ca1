//! Options of sockets that no library knows.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// Fills `value` with a socket's option, and says how many bytes of it the kernel wrote. `value` also tells the kernel what is asked
/// for, where an option wants to know (getsockopt(2)).
///
/// # Errors
/// What the kernel says; a value too long for any option.
pub fn socket_option(socket: impl AsFd, level: i32, option: i32, value: &mut [u8]) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(value.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `length` bytes to `value`, and the length to `length`; both are ours while it does.
    let result =
        unsafe { libc::getsockopt(socket, level, option, value.as_mut_ptr().cast(), &raw mut length) };
    if result == 0 { Ok(length as usize) } else { Err(io::Error::last_os_error()) }
}

/// The user whose process is at the other end of a Unix socket (unix(7), `SO_PEERCRED`). It is told, too, where the process itself is not: of one in another
/// container, say, whose number here is 0.
///
/// # Errors
/// What the kernel says.
pub fn peer_user(socket: impl AsFd) -> io::Result<u32> {
    // Three numbers of 32 bits: process, user, group.
    let mut credentials = [0; size_of::<libc::ucred>()];
    let length = socket_option(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, &mut credentials)?;
    let user = credentials[..length].as_chunks().0.get(1);
    user.map(|user| u32::from_ne_bytes(*user)).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_read_and_errors_are_told() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut value = [0; 4];
        assert_eq!(socket_option(&socket, libc::SOL_SOCKET, libc::SO_TYPE, &mut value).unwrap(), 4);
        assert_eq!(i32::from_ne_bytes(value), libc::SOCK_DGRAM);
        assert!(socket_option(&socket, libc::SOL_SOCKET, -1, &mut value).is_err());
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        // SAFETY: it only asks.
        assert_eq!(peer_user(&one).unwrap(), unsafe { libc::geteuid() });
    }
}
