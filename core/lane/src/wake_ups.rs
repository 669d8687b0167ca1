//! What a lane that sleeps is woken by.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use warmlane_sys::clock::Clock;

/// What has to wake a lane that sleeps: descriptors, and a time. It allocates: it is for lanes that have nothing to do.
#[derive(Debug)]
pub struct WakeUps<'a> {
    descriptors: Vec<PollFd<'a>>,
    /// In cycles.
    by: Option<u64>,
}

impl<'a> WakeUps<'a> {
    pub(crate) fn new() -> Self {
        Self { descriptors: Vec::with_capacity(8), by: None }
    }

    /// Packets may have come once this is readable.
    pub fn readable(&mut self, descriptor: BorrowedFd<'a>) {
        self.descriptors.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
    }

    /// There may be space once this is writable.
    pub fn writable(&mut self, descriptor: BorrowedFd<'a>) {
        self.descriptors.push(PollFd::from_borrowed_fd(descriptor, PollFlags::OUT));
    }

    /// There is something to do when the time-stamp counter gets here.
    pub fn by(&mut self, cycles: u64) {
        self.by = Some(self.by.map_or(cycles, |by| by.min(cycles)));
    }

    /// Sleeps until one of them wakes it, or `limit` is over. Whether a descriptor did.
    pub(crate) fn wait(mut self, now: u64, limit: Duration) -> bool {
        let until =
            self.by.map(|by| Duration::from_nanos(Clock::calibrated().nanoseconds(by.saturating_sub(now))));
        let limit = until.map_or(limit, |until| until.min(limit));
        let limit = Timespec::try_from(limit).unwrap_or_default();
        // If it can't wait, the lane looks itself.
        poll(&mut self.descriptors, Some(&limit)).is_ok_and(|ready| ready > 0)
    }
}
