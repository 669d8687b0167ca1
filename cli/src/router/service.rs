//! What the service manager is told (sd_notify(3)), if one has started the router.

use sd_notify::NotifyState;
use std::time::{Duration, Instant};
use warmlane::assembly::Assembly;

/// Tells that the router forwards, how it is, and that it ends when this is dropped.
pub(super) struct Service {
    /// How long the manager waits for a sign of life, if it does.
    patience: Option<Duration>,
    told: Instant,
    /// Each lane's polls when it was told.
    polls: Vec<u64>,
    status: String,
}

impl Service {
    /// Packets are forwarded now.
    pub(super) fn ready(status: String) -> Self {
        notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
        let patience = sd_notify::watchdog_enabled();
        Self { patience, told: Instant::now(), polls: Vec::new(), status }
    }

    /// Says that all is alive, when it is time for that: each lane has polled since the last time, and `follows` says that the kernel
    /// could be followed. Without one of them nothing is said, and in the end the manager starts the router anew.
    pub(super) fn watch(&mut self, assembly: &Assembly, follows: bool) {
        if self.patience.is_none_or(|patience| self.told.elapsed() < patience / 4) {
            return;
        }
        let polls: Vec<u64> = assembly.lanes().views().iter().map(|lane| lane.counters.polls()).collect();
        let is_alive = |(lane, now): (usize, &u64)| self.polls.get(lane).is_none_or(|before| before < now);
        if follows && polls.iter().enumerate().all(is_alive) {
            notify(&[NotifyState::Watchdog]);
            (self.told, self.polls) = (Instant::now(), polls);
        }
    }

    /// How it is, in a line.
    pub(super) fn say(&mut self, status: String) {
        if status != self.status {
            notify(&[NotifyState::Status(&status)]);
            self.status = status;
        }
    }
}

/// Does something that the manager waits for as a reload.
pub(super) fn reloading<T>(work: impl FnOnce() -> T) -> T {
    // The time belongs to it, or the manager can't tell this reload from another.
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
    let result = work();
    notify(&[NotifyState::Ready]);
    result
}

impl Drop for Service {
    fn drop(&mut self) {
        notify(&[NotifyState::Stopping]);
    }
}

fn notify(states: &[NotifyState<'_>]) {
    // Without a manager nothing is sent; one that doesn't listen is no reason to stop forwarding.
    let _ = sd_notify::notify(states);
}
