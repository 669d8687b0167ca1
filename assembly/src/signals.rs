//! Signals that a running program listens to.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::thread::{Timespec, nanosleep};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

/// Signals that have arrived: SIGINT and SIGTERM ask for the end, SIGUSR1 for a report, SIGHUP for the configuration to be read again where that is wanted, and else
/// for the end, unless it was ignored from the start (`nohup`). A second SIGINT or SIGTERM ends the process at once.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    stop: Arc<AtomicBool>,
    /// The next SIGINT or SIGTERM ends the process.
    ends_at_once: Arc<AtomicBool>,
    report: Arc<AtomicBool>,
    hang_up: Arc<AtomicBool>,
    /// SIGHUP asks for the configuration.
    reloads: Arc<AtomicBool>,
}

impl Signals {
    /// From now on they are caught.
    ///
    /// # Errors
    /// What the system says.
    pub fn catch() -> io::Result<Self> {
        let signals = Self::default();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&signals.ends_at_once))?;
            signal_hook::flag::register(signal, Arc::clone(&signals.stop))?;
            signal_hook::flag::register(signal, Arc::clone(&signals.ends_at_once))?;
        }
        signal_hook::flag::register(SIGUSR1, Arc::clone(&signals.report))?;
        if !is_ignored(SIGHUP) {
            signals.catch_hang_up()?;
        }
        Ok(signals)
    }

    fn catch_hang_up(&self) -> io::Result<()> {
        signal_hook::flag::register_conditional_shutdown(SIGHUP, 1, Arc::clone(&self.ends_at_once))?;
        signal_hook::flag::register(SIGHUP, Arc::clone(&self.hang_up)).map(|_| ())
    }

    /// From now on SIGHUP doesn't ask for the end, but for the configuration to be read again.
    ///
    /// # Errors
    /// What the system says.
    pub fn catch_reload(&self) -> io::Result<()> {
        if is_ignored(SIGHUP) {
            self.catch_hang_up()?;
        }
        self.reloads.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Does something that may wait for somebody else, such as to open a port whose peer isn't there yet. Meanwhile the first SIGINT or SIGTERM ends
    /// the process at once.
    pub fn while_opening<T>(&self, open: impl FnOnce() -> T) -> T {
        self.ends_at_once.store(true, Ordering::Relaxed);
        let opened = open();
        self.ends_at_once.store(self.is_stopped(), Ordering::Relaxed);
        opened
    }

    /// Sleeps for this long, or until this thread handles a signal: the main thread does, unless it blocks them.
    pub fn sleep(&self, time: Duration) {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        // One that arrived just before is seen when the time is over.
        let _ = nanosleep(&Timespec { tv_sec: seconds, tv_nsec: time.subsec_nanos().into() });
    }

    /// Whether the process was asked to end.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.hang_up.load(Ordering::Relaxed) && !self.reloads.load(Ordering::Relaxed)
    }

    /// Whether a report was asked for since the last time.
    pub fn take_report(&self) -> bool {
        self.report.swap(false, Ordering::Relaxed)
    }

    /// Whether reading the configuration again was asked for since the last time.
    pub fn take_reload(&self) -> bool {
        self.reloads.load(Ordering::Relaxed) && self.hang_up.swap(false, Ordering::Relaxed)
    }
}

/// Whether this process ignores a signal, as far as the kernel says that (proc(5)).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 != 0)
}
