//! Flows of numbered UDP packets: whether all arrive, where, and in order. Needs `python3`.

use std::time::Instant;

use serde_json::Value;
use tempfile::NamedTempFile;
use warmlane_testkit::namespace::Namespace;
use warmlane_testkit::process::Process;

use crate::command::SHORT;

const PROGRAM: &str = concat!("python3 ", env!("CARGO_MANIFEST_DIR"), "/src/flows.py");

/// What is received of the flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Packets.
    pub packets: u64,
    /// Flows that they are of.
    pub flows: u64,
    /// Packets that came behind a later one of their flow.
    pub reordered: u64,
}

impl Received {
    /// All that is sent, each flow in order.
    pub const ALL: Self = Self { packets: 20_000, flows: 2_000, reordered: 0 };
}

/// A host that receives flows.
#[derive(Debug)]
pub struct Receiver {
    process: Process,
    /// Where it keeps how many packets it has received.
    count: NamedTempFile,
}

impl Receiver {
    /// Starts to receive at an address.
    ///
    /// # Panics
    /// If that isn't possible.
    #[track_caller]
    pub fn start(host: &Namespace, address: &str) -> Self {
        let count = NamedTempFile::new().expect("a temporary file");
        count.as_file().set_len(8).expect("space for a number");
        let mut process = host.spawn(&format!("{PROGRAM} receive {address} {}", count.path().display()));
        process.wait_for("\n", SHORT);
        Self { process, count }
    }

    /// What all of these have received, once that is all that was sent; or, if some of it is lost, after a while.
    ///
    /// # Panics
    /// If one of them doesn't say what it should.
    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "they end with this")]
    pub fn finish<const N: usize>(receivers: [Self; N]) -> [Received; N] {
        let end = Instant::now() + SHORT / 4;
        loop {
            let received = receivers.each_ref().map(Self::so_far);
            let packets: u64 = received.iter().map(|one| one.packets).sum();
            if packets >= Received::ALL.packets || Instant::now() > end {
                return received;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    #[track_caller]
    fn so_far(&self) -> Received {
        let output = self.process.output();
        let whole = output.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let last: Value = serde_json::from_str(whole.lines().last().unwrap_or_default())
            .unwrap_or_else(|error| panic!("{error}: {output}"));
        let number = |name: &str| last[name].as_u64().unwrap_or_else(|| panic!("no {name}: {output}"));
        Received { packets: number("packets"), flows: number("flows"), reordered: number("reordered") }
    }
}

/// Starts to send all flows to an address, at which these receive them.
#[track_caller]
pub fn send(host: &Namespace, address: &str, receivers: &[&Receiver]) -> Process {
    let counts: Vec<String> =
        receivers.iter().map(|receiver| receiver.count.path().display().to_string()).collect();
    host.spawn(&format!("{PROGRAM} send {address} {}", counts.join(" ")))
}

/// Sends all flows to an address at which one host receives them; returns what arrived.
///
/// # Panics
/// If that isn't possible.
#[track_caller]
pub fn exchange(from: &Namespace, to: &Namespace, address: &str) -> Received {
    let receiver = Receiver::start(to, address);
    send(from, address, &[&receiver]).finish(SHORT).expect_success("send");
    let [received] = Receiver::finish([receiver]);
    received
}
