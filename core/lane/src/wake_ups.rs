//! What a lane that sleeps is woken by.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use warmlane_sys::clock::Clock;
use warmlane_sys::event::Event;

/// What is to wake a lane that sleeps: descriptors, and a time. It allocates, as only lanes with nothing to do use it.
#[derive(Debug)]
pub struct WakeUps<'a> {
    descriptors: Vec<PollFd<'a>>,
    /// That of [`Waker`](crate::Waker), which is the first of the descriptors.
    called: &'a Event,
    /// When there is something to do, in cycles of the time-stamp counter.
    by: Option<u64>,
}

impl<'a> WakeUps<'a> {
    pub(crate) fn new(called: &'a Event) -> Self {
        let mut wake_ups = Self { descriptors: Vec::with_capacity(8), called, by: None };
        wake_ups.readable(called.fd().as_fd());
        wake_ups
    }

    /// Wakes the lane once this descriptor is readable: packets may have come.
    pub fn readable(&mut self, descriptor: BorrowedFd<'a>) {
        self.descriptors.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
    }

    /// Wakes the lane once this descriptor is writable: there may be space.
    pub fn writable(&mut self, descriptor: BorrowedFd<'a>) {
        self.descriptors.push(PollFd::from_borrowed_fd(descriptor, PollFlags::OUT));
    }

    /// Wakes the lane by this reading of the time-stamp counter at the latest.
    pub fn by(&mut self, cycles: u64) {
        self.by = Some(self.by.map_or(cycles, |by| by.min(cycles)));
    }

    /// Sleeps until one of them wakes the lane, but not longer than `limit`. Returns whether a descriptor woke it.
    pub(crate) fn wait(mut self, now: u64, limit: Duration) -> bool {
        let until =
            self.by.map(|by| Duration::from_nanos(Clock::calibrated().nanoseconds(by.saturating_sub(now))));
        let limit = until.map_or(limit, |until| until.min(limit));
        let limit = Timespec::try_from(limit).unwrap_or_default();
        // If it can't wait, the lane looks itself.
        let is_woken = poll(&mut self.descriptors, Some(&limit)).is_ok_and(|ready| ready > 0);
        if self.descriptors.first().is_some_and(|first| first.revents().contains(PollFlags::IN)) {
            // Before the lane looks for what it was called for.
            self.called.clear();
        }
        is_woken
    }
}

/// How a part of a task sleeps: it notes what is to wake the lane, and calls the last argument.
type Sleep<T> = fn(&mut T, WakeUps<'_>, &mut dyn FnMut(WakeUps<'_>));

/// Asks each of `parts` by `sleep` what is to wake it; behind the last one comes `then`, which sleeps.
pub(crate) fn sleep_all<T>(
    parts: &mut [T],
    sleep: Sleep<T>,
    wake_ups: WakeUps<'_>,
    then: &mut dyn FnMut(WakeUps<'_>),
) {
    match parts {
        [] => then(wake_ups),
        [part, parts @ ..] => sleep(part, wake_ups, &mut |wake_ups| sleep_all(parts, sleep, wake_ups, then)),
    }
}
