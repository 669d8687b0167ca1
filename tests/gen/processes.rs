//! `warmlane gen` over memif and rings of virtio: through a `warmlane forward` in another process, and to DPDK's testpmd and back.
//!
//! No more packets are sent than a ring has space for, so that a program which is held up loses none. The generator knows its own
//! packets by their signatures, and checks their checksums: what it received is what it sent.

use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use warmlane_system_tests::{LONG, SHORT, turn};
use warmlane_testkit::exchange::until;
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

/// Who makes a socket and waits at it for a peer that doesn't come is ended by the first signal.
#[test]
fn a_signal_ends_who_waits_for_a_peer() {
    for (command, to) in
        [("gen run --to 198.51.100.2 --to-mac 02:00:00:00:00:01 --both", ""), ("forward --port", "east=")]
    {
        for driver in ["memif", "vhost"] {
            let directory = tempfile::tempdir().unwrap();
            let socket = directory.path().join("socket");
            let path = socket.to_str().unwrap();
            let role = if driver == "memif" { ",role=server" } else { "" };
            let mut start = Command::new(warmlane());
            start.args(command.split_whitespace()).arg(format!("{to}{driver}:{path}{role},wait=3600"));
            let process = Process::spawn(&mut start);
            until("a socket", || socket.exists());
            process.signal("TERM");
            let status = process.finish(SHORT).status;
            assert!(!status.success(), "{command} {driver}: {status}");
        }
    }
}

/// The ends of a link over a socket, each as what follows the name of a port: who makes the socket, and who connects to it.
#[derive(Clone, Copy)]
struct Link {
    server: fn(&str) -> String,
    client: fn(&str) -> String,
}

/// Through a forwarder that is the server of one link and the client of the other; after generators whose packets were under way have been killed so many times.
fn forward(link: Link, killed: usize) {
    let _turn = turn::alone();
    let directory = tempfile::tempdir().unwrap();
    let socket = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (west, east) = (socket("west"), socket("east"));
    let mut forward = Command::new(warmlane());
    forward.args(["forward", "--json", "--port", &format!("west={}", (link.server)(&west))]);
    forward.args(["--port", &format!("east={}", (link.client)(&east))]);
    forward.args(["--address", "west=192.0.2.1/24", "--address", "east=198.51.100.1/24"]);
    forward.args(["--neighbour", "198.51.100.2=02:00:00:00:00:77@east"]);
    let forwarder = Process::spawn(&mut forward);
    let transmit = format!("{},wait=300", (link.client)(&west));
    let receive = format!("{},wait=300", (link.server)(&east));
    for _ in 0..killed {
        let mut generate = Command::new(warmlane());
        generate.args(["gen", "run", "--transmit", &transmit, "--receive", &receive, "--duration", "300"]);
        generate.args(["--from", "192.0.2.2", "--to", "198.51.100.2", "--to-mac", "02:00:00:00:00:01"]);
        let generator = Process::spawn(generate.args(["--size", "64:1,594:1,1518:1", "--rate", "200kpps"]));
        std::thread::sleep(Duration::from_secs(1));
        generator.signal("KILL");
        drop(generator.finish(SHORT));
    }
    check(&["--transmit", &transmit, "--receive", &receive]);
    forwarder.interrupt();
    let finished = forwarder.finish(SHORT);
    let report = Report::parse(finished.expect_success("warmlane forward"));
    report.assert_balanced();
}

#[test]
fn packets_are_forwarded_from_memif_to_memif() {
    forward(
        Link {
            server: |socket| format!("memif:{socket},role=server"),
            client: |socket| format!("memif:{socket},mode=copy,{RING}"),
        },
        0,
    );
}

#[test]
fn packets_are_forwarded_out_of_and_into_pools() {
    forward(
        Link {
            server: |socket| format!("memif:{socket},role=server"),
            client: |socket| format!("memif:{socket},mode=zero-copy,{RING}"),
        },
        0,
    );
}

/// Each process has the other's buffers for its own, when it dies, too.
#[test]
fn packets_are_forwarded_without_a_copy() {
    let link = Link {
        server: |socket| format!("memif:{socket},role=server,mode=zero-copy"),
        client: |socket| format!("memif:{socket},mode=zero-copy,{RING}"),
    };
    forward(link, 3);
}

/// The forwarder is the device on one side and the driver on the other.
#[test]
fn packets_are_forwarded_from_device_to_driver() {
    forward(
        Link {
            server: |socket| format!("vhost:{socket}"),
            client: |socket| format!("virtio:{socket},packed=true,{RING}"),
        },
        0,
    );
}

#[test]
fn packets_are_forwarded_from_driver_to_device() {
    forward(
        Link {
            server: |socket| format!("virtio:{socket},role=server,{RING}"),
            client: |socket| format!("vhost:{socket},role=client"),
        },
        0,
    );
}

/// testpmd has this device, and sends back what comes from this port.
fn testpmd_sends_back(device: fn(&str) -> String, port: fn(&str) -> String, more: &[&str]) {
    if !requirements::programs(&["dpdk-testpmd"]) {
        return;
    }
    let _turn = turn::alone();
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket").to_str().unwrap().to_owned();
    let testpmd = Testpmd { device: &device(&socket), buffers: 2048, queues: 1, more }.start();
    check(&["--both", &format!("{},wait=300", port(&socket))]);
    // How it ends isn't asked: testpmd 22.11 was once seen to end by SIGSEGV after its memif had lost the connection. Why wasn't looked into.
    testpmd.signal("KILL");
    drop(testpmd.finish(SHORT));
}

#[test]
fn testpmd_sends_packets_back_by_memif() {
    testpmd_sends_back(
        |socket| format!("net_memif0,socket={socket},socket-abstract=no,role=client,rsize=12"),
        |socket| format!("memif:{socket},role=server"),
        &[],
    );
}

#[test]
fn testpmd_sends_packets_back_by_vhost() {
    testpmd_sends_back(
        |socket| format!("net_vhost0,iface={socket}"),
        |socket| format!("virtio:{socket},{RING}"),
        &[],
    );
}
