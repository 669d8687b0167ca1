//! Transfers between hosts, by iperf3

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use warmlane_testkit::namespace::Namespace;

use crate::command::SHORT;

/// What the client says when the server closes the connection.
const CLOSED: &str = "control socket has closed unexpectedly";

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
        // closes or resets the connection before a test has begun.
        let is_busy = [
            "the server is busy running a test",
            "unable to connect to server",
            "unable to receive control message",
        ];
        let says = |message: &&str| finished.output.contains(*message);
        let is_busy = is_busy.iter().any(says) || (says(&CLOSED) && !has_begun(&finished.output));
        if is_busy && Instant::now() < end {
            sleep(Duration::from_millis(50));
            continue;
        }
        return serde_json::from_str(finished.expect_success(arguments)).expect("iperf3 prints JSON");
    }
}

/// Whether a test had a connection for its data.
fn has_begun(report: &str) -> bool {
    let report = serde_json::from_str::<Value>(report).unwrap_or_default();
    report
        .pointer("/start/connected")
        .and_then(Value::as_array)
        .is_some_and(|connected| !connected.is_empty())
}

/// Sends 3 MiB of TCP from a host to an address, or the other way round by `--reverse`.
///
/// # Panics
/// If it fails, or if not nearly all of it arrives.
#[track_caller]
pub fn send_3_mib(host: &Namespace, address: &str, direction: &str) {
    // The receiver counts what it has read by the time the sender is through. With this window the rest, in the buffers of both
    // sockets, is at most half a megabyte, however late the receiver is.
    let result = iperf(host, &format!("--client {address} --bytes 3M --window 128K {direction}"));
    let bytes = result.pointer("/end/sum_received/bytes").and_then(Value::as_f64);
    assert!(bytes.is_some_and(|bytes| bytes > 2e6), "{direction} {address}: {result:#}");
}
