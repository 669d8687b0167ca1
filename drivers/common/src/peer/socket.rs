//! Unix sockets that ports are reached by.

use rustix::fd::OwnedFd;
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use thiserror::Error;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;

/// What is wrong with a socket.
#[derive(Debug, Error)]
pub enum SocketError {
    /// A socket's path has at most 107 bytes (`sun_path` in unix(7)).
    #[error("socket {socket:?} has {length} bytes, Linux allows 1 to 107: choose a shorter path")]
    Length {
        /// What was asked for.
        socket: String,
        /// Its length in bytes.
        length: usize,
    },
    /// Somebody listens on the socket.
    #[error(
        "another process listens on socket {socket:?} (`ss -xlp` says which): end it, choose another path, or be its client with role=client"
    )]
    InUse {
        /// The socket.
        socket: String,
    },
    /// There is a file that is no socket.
    #[error("{socket:?} is there and no socket: choose another path, or remove it")]
    NoSocket {
        /// The path.
        socket: String,
    },
    /// A system call failed.
    #[error("cannot listen on socket {socket:?}: {source}")]
    Listen {
        /// The path.
        socket: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Where a socket is.
#[derive(Clone, Debug)]
pub struct Address {
    text: String,
    kind: SocketType,
    name: SocketAddrUnix,
}

impl Address {
    /// Of a path, or of `@` and a name for a socket without a file, and of the kind of its sockets.
    ///
    /// # Errors
    /// [`SocketError::Length`].
    pub fn new(text: &str, kind: SocketType) -> Result<Self, SocketError> {
        let name = match text.strip_prefix('@') {
            Some("") => Err(Errno::INVAL),
            Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
            None if text.is_empty() => Err(Errno::INVAL),
            None => SocketAddrUnix::new(text),
        };
        let too_long = |_| SocketError::Length { socket: text.to_owned(), length: text.len() };
        Ok(Self { text: text.to_owned(), kind, name: name.map_err(too_long)? })
    }

    /// As it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn path(&self) -> Option<&str> {
        (!self.text.starts_with('@')).then_some(&self.text)
    }

    fn socket(&self) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::socket_with(AddressFamily::UNIX, self.kind, flags, None)
    }
}

/// Connects. It does not wait: a server that is busy refuses.
///
/// # Errors
/// Nobody listens, or the kernel refuses.
pub fn connect(address: &Address) -> Result<OwnedFd, Errno> {
    let socket = address.socket()?;
    rustix::net::connect(&socket, &address.name)?;
    Ok(socket)
}

/// A socket that listens; its file goes with it.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    address: Address,
}

impl Listener {
    /// Listens. A socket file that nobody listens on is left from a process that is no more, and replaced.
    ///
    /// # Errors
    /// [`SocketError`]: somebody else has the place.
    pub fn new(address: &Address) -> Result<Self, SocketError> {
        let failed =
            |errno: Errno| SocketError::Listen { socket: address.text.clone(), source: errno.into() };
        let fd = address.socket().map_err(failed)?;
        match rustix::net::bind(&fd, &address.name) {
            Err(Errno::ADDRINUSE) => {
                let in_use = || SocketError::InUse { socket: address.text.clone() };
                let path = address.path().ok_or_else(in_use)?;
                let kind = rustix::fs::lstat(path).map_err(failed)?;
                if FileType::from_raw_mode(kind.st_mode) != FileType::Socket {
                    return Err(SocketError::NoSocket { socket: address.text.clone() });
                }
                if !matches!(connect(address), Err(Errno::CONNREFUSED)) {
                    return Err(in_use());
                }
                rustix::fs::unlink(path).map_err(failed)?;
                rustix::net::bind(&fd, &address.name).map_err(failed)?;
            }
            other => other.map_err(failed)?,
        }
        rustix::net::listen(&fd, BACKLOG).map_err(failed)?;
        Ok(Self { fd, address: address.clone() })
    }

    /// To be waited for.
    pub const fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Where it is.
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// The next connection, if one waits.
    pub fn accept(&self) -> Option<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::accept_with(&self.fd, flags).ok()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = self.address.path() {
            // If it is gone, so much the better.
            let _ = rustix::fs::unlink(path);
        }
    }
}
