//! How a connection is, for who asks.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How a port's connection is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionStatus {
    /// It is up.
    pub connected: bool,
    /// How often it came up.
    pub connections: u64,
    /// Why the last attempt failed or the last connection ended; empty before.
    pub reason: String,
}

/// A connection that can be asked how it is and waited for.
#[derive(Debug, Default)]
pub struct Connection {
    status: Mutex<ConnectionStatus>,
    changed: Condvar,
}

impl Connection {
    fn lock(&self) -> MutexGuard<'_, ConnectionStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it is.
    pub fn status(&self) -> ConnectionStatus {
        self.lock().clone()
    }

    /// It came up.
    pub fn up(&self) {
        let mut status = self.lock();
        status.connected = true;
        status.connections += 1;
        self.changed.notify_all();
    }

    /// It went down, or did not come up.
    pub fn down(&self, reason: String) {
        let mut status = self.lock();
        status.connected = false;
        status.reason = reason;
        self.changed.notify_all();
    }

    /// Somebody was turned away; the connection is as it was.
    pub fn refused(&self, reason: String) {
        self.lock().reason = reason;
    }

    /// Waits until it is up; `false` if it isn't by then.
    pub fn wait(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut status = self.lock();
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            if status.connected || rest.is_zero() {
                return status.connected;
            }
            status = self.changed.wait_timeout(status, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
