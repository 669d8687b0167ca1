//! Transfers between hosts, by iperf3

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use warmlane_testkit::namespace::Namespace;

use crate::command::SHORT;

/// Runs iperf3's client with these arguments in a host, and returns its report.
///
/// # Panics
/// If it fails.
#[track_caller]
pub fn iperf(host: &Namespace, arguments: &str) -> Value {
    let end = Instant::now() + SHORT;
    loop {
        let finished = host.run(&format!("iperf3 {arguments} --json"));
        // The server may still be busy with the end of the last transfer, which its client does not wait for. It then says so, or
        // resets the connection before a test has begun.
        let is_busy = [
            "the server is busy running a test",
            "unable to connect to server",
            "unable to receive control message",
        ];
        if is_busy.iter().any(|message| finished.output.contains(message)) && Instant::now() < end {
            sleep(Duration::from_millis(50));
            continue;
        }
        return serde_json::from_str(finished.expect_success(arguments)).expect("iperf3 prints JSON");
    }
}
