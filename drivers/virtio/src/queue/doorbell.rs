//! What a lane waits for: that the driver tells of new buffers, or that there is another ring.

use rustix::event::epoll;
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::io;
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};
use warmlane_driver_common::peer::Event;

/// One descriptor for a lane to wait on, whatever the other side's is.
#[derive(Debug)]
pub(crate) struct Doorbell {
    epoll: OwnedFd,
    /// Ours.
    change: Event,
    /// The other side's.
    kick: Mutex<Option<Event>>,
}

impl Doorbell {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let change = Event::new()?;
        add(&epoll, &change)?;
        Ok(Self { epoll, change, kick: Mutex::default() })
    }

    /// Waits for another event of the other side, or for none.
    pub(crate) fn set_kick(&self, kick: Option<Event>) -> io::Result<()> {
        let mut place = self.kick.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = place.take() {
            // The other side may have it open still, so it does not go by itself.
            epoll::delete(&self.epoll, old.fd())?;
        }
        if let Some(new) = &kick {
            add(&self.epoll, new)?;
        }
        *place = kick;
        Ok(())
    }

    /// The ring has changed: whoever waits is to look.
    pub(crate) fn changed(&self) {
        self.change.signal();
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Takes note of all that was signalled.
    pub(crate) fn clear(&self) {
        let mut events = [MaybeUninit::uninit(); 2];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        // If that fails, the lane wakes up once more.
        let _ = epoll::wait(&self.epoll, &mut events[..], Some(&now));
    }
}

/// Edges: what was signalled is told once, and need not be read.
fn add(epoll: &OwnedFd, event: &Event) -> io::Result<()> {
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    Ok(epoll::add(epoll, event.fd(), epoll::EventData::new_u64(0), flags)?)
}
