//! A flood of small packets.

use warmlane_testkit::namespace::Namespace;
use warmlane_testkit::process::Process;

use crate::command::SHORT;

/// A host that sends UDP packets of 64 bytes, until it is stopped.
#[derive(Debug)]
pub struct Flood(Process);

impl Flood {
    /// Starts to send to these addresses in turn, so many packets a second; 0 is as fast as the kernel takes them. Needs `python3`.
    ///
    /// # Panics
    /// If that isn't possible.
    #[track_caller]
    pub fn start(host: &Namespace, rate: u32, addresses: &[&str]) -> Self {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/src/flood.py");
        let mut process = host.spawn(&format!("python3 {program} {rate} 0 {}", addresses.join(" ")));
        process.wait_for("ready", SHORT);
        Self(process)
    }

    /// Sends so many packets to this address, as fast as the kernel takes them.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[track_caller]
    pub fn burst(host: &Namespace, count: u32, address: &str) {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/src/flood.py");
        host.run(&format!("python3 {program} 0 {count} {address}")).expect_success("a burst");
    }

    /// Ends it, and says how many packets it was.
    ///
    /// # Panics
    /// If it went wrong.
    #[track_caller]
    pub fn stop(self) -> u64 {
        self.0.interrupt();
        let finished = self.0.finish(SHORT);
        let number = finished.expect_success("flood").lines().nth(1).and_then(|line| line.parse().ok());
        number.unwrap_or_else(|| panic!("no number: {}", finished.text()))
    }
}
