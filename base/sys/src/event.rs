//! Events that threads and processes signal to each other.

use rustix::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::io;
use std::sync::Arc;

/// An eventfd: wakes up who waits for it. Signalled more than once before it is looked at, it counts once.
#[derive(Clone, Debug)]
pub struct Event(Arc<OwnedFd>);

impl Event {
    /// A new one.
    ///
    /// # Errors
    /// There are too many descriptors.
    pub fn new() -> io::Result<Self> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        Ok(Self(Arc::new(rustix::event::eventfd(0, flags)?)))
    }

    /// The other side's. It is told not to block.
    ///
    /// # Errors
    /// It is no eventfd: a write to a file of another kind could take for ever, whatever its flags say.
    pub fn of_peer(fd: OwnedFd) -> io::Result<Self> {
        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let kind = rustix::fs::readlink(link, Vec::new())?;
        if kind.as_bytes() != b"anon_inode:[eventfd]" {
            return Err(io::Error::other(format!("{} is no eventfd", kind.to_string_lossy())));
        }
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(Self(Arc::new(fd)))
    }

    /// Its descriptor, to be waited for or passed on.
    pub fn fd(&self) -> &OwnedFd {
        &self.0
    }

    /// Wakes up. If it can't be written to, it has been written to and not been read.
    pub fn signal(&self) {
        let _ = rustix::io::write(self.0.as_fd(), &1_u64.to_ne_bytes());
    }

    /// Takes note of all that was signalled.
    pub fn clear(&self) {
        let _ = rustix::io::read(self.0.as_fd(), &mut [0; 8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_events_are_taken_for_events() {
        let event = Event::new().unwrap();
        let again = Event::of_peer(event.fd().try_clone().unwrap()).unwrap();
        again.signal();
        assert_eq!(rustix::io::read(event.fd(), &mut [0; 8]), Ok(8));
        for other in ["/dev/null", "/proc/self/status"] {
            let file = std::fs::File::open(other).unwrap();
            assert!(Event::of_peer(file.into()).unwrap_err().to_string().contains("no eventfd"));
        }
    }
}
