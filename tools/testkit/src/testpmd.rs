//! DPDK's testpmd, which sends back each packet by the port that it came by.

use crate::process::Process;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a testpmd of one port is to be; packets go back by the queue of the same number. The program is of Debian's package dpdk.
#[derive(Clone, Copy, Debug)]
pub struct Testpmd<'a> {
    /// The device, as in `net_memif0,role=client`.
    pub device: &'a str,
    /// Bytes of data in its buffers.
    pub buffers: usize,
    /// In each direction.
    pub queues: usize,
    /// More arguments for DPDK itself.
    pub more: &'a [&'a str],
}

impl Testpmd<'_> {
    /// Keeps this process's other testpmds from running: their threads poll without a pause, all on one CPU.
    pub fn alone() -> MutexGuard<'static, ()> {
        static ALONE: Mutex<()> = Mutex::new(());
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts it, without huge pages.
    ///
    /// # Panics
    /// If it can't be started.
    #[track_caller]
    pub fn start(&self) -> Process {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut command = Command::new("dpdk-testpmd");
        command.args(["--no-huge", "-m", "256", "--no-pci", "--no-telemetry"]);
        // Its own CPUs are the first ones, and whatever else runs there.
        command.args(["--lcores", "0@0,1@0"]);
        command.args(["--file-prefix", &format!("testkit-{}-{number}", std::process::id())]);
        command.args(self.more).args(["--vdev", self.device, "--"]);
        command.args(["--forward-mode=io", "--port-topology=loop", "--auto-start", "--total-num-mbufs=8192"]);
        command.args(["--nb-cores=1", "--stats-period=1", "--burst=32", "--no-flush-rx"]);
        command.arg(format!("--mbuf-size={}", self.buffers + 128));
        command.args([format!("--rxq={}", self.queues), format!("--txq={}", self.queues)]);
        Process::spawn(&mut command)
    }
}
