//! `warmlane gen` over memif: through a `warmlane forward` in another process, and to DPDK's testpmd and back.
//!
//! No more packets are sent than a ring has space for, so that a program which is held up loses none. The generator knows its own
//! packets by their signatures, and checks their checksums: what it received is what it sent.

use serde_json::Value;
use std::process::Command;
use warmlane_system_tests::{LONG, SHORT, turn};
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::testpmd::Testpmd;
use warmlane_testkit::{Report, requirements};

const PACKETS: u64 = 3_000;
/// A ring has space for all of them.
const RING: &str = "ring-size=4096";

/// Sends packets of three lengths, the longest in several descriptors, and checks that all come.
fn check(ports: &[&str]) {
    let mut generate = Command::new(warmlane());
    generate.args(["gen", "run", "--json"]).args(ports);
    generate.args(["--from", "192.0.2.2", "--to", "198.51.100.2", "--to-mac", "02:00:00:00:00:01"]);
    generate.args(["--size", "64:1,594:1,1518:1", "--rate", "2kpps", "--count", &PACKETS.to_string()]);
    // However long the generator or who sends back is held up.
    generate.args(["--patience", "300000", "--drain", "60"]);
    let finished = Process::run(&mut generate, LONG);
    let result: Value = serde_json::from_str(finished.expect_success("warmlane gen")).unwrap();
    let received = &result["received"];
    let count = |of: &Value, name: &str| of[name].as_u64().unwrap();
    assert_eq!((count(&result, "sent"), count(received, "packets")), (PACKETS, PACKETS), "{result:#}");
    for wrong in ["lost", "duplicated", "reordered", "corrupted", "stale", "foreign"] {
        assert_eq!(count(received, wrong), 0, "{wrong}: {result:#}");
    }
}

/// Through a forwarder that is the server of one socket and the client of the other; both clients have their packets in `mode`.
fn forward(mode: &str) {
    let _turn = turn::alone();
    let directory = tempfile::tempdir().unwrap();
    let socket = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (west, east) = (socket("west"), socket("east"));
    let client = format!("mode={mode},{RING}");
    let mut forward = Command::new(warmlane());
    forward.args(["forward", "--json", "--port", &format!("west=memif:{west},role=server")]);
    forward.args(["--port", &format!("east=memif:{east},{client}")]);
    forward.args(["--address", "west=192.0.2.1/24", "--address", "east=198.51.100.1/24"]);
    forward.args(["--neighbour", "198.51.100.2=02:00:00:00:00:77@east"]);
    let forwarder = Process::spawn(&mut forward);
    let transmit = format!("memif:{west},{client},wait=300");
    let receive = format!("memif:{east},role=server,wait=300");
    check(&["--transmit", &transmit, "--receive", &receive]);
    forwarder.interrupt();
    let finished = forwarder.finish(SHORT);
    let report = Report::parse(finished.expect_success("warmlane forward"));
    report.assert_balanced();
}

#[test]
fn packets_are_forwarded_from_memif_to_memif() {
    forward("copy");
}

#[test]
fn packets_are_forwarded_out_of_and_into_pools() {
    forward("zero-copy");
}

#[test]
fn testpmd_sends_packets_back() {
    if !requirements::programs(&["dpdk-testpmd"]) {
        return;
    }
    let _turn = turn::alone();
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket").to_str().unwrap().to_owned();
    let device = format!("net_memif0,socket={socket},socket-abstract=no,role=client,rsize=12");
    let testpmd = Testpmd { device: &device, buffers: 2048, queues: 1, more: &[] }.start();
    check(&["--both", &format!("memif:{socket},role=server,wait=300")]);
    testpmd.interrupt();
    testpmd.finish(SHORT).expect_success("testpmd");
}
