//! What the hosts' kernels leave to hardware: it passes whole where the next port takes it, and is done where it doesn't.

use std::process::Command;

use serde_json::Value;
use warmlane_system_tests::{Driver, LONG, Lab};
use warmlane_testkit::namespace::Namespace;
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::requirements;

/// Bytes of the packets that a port of the report `received` or `transmitted`, on average.
#[test]
fn from_tap_to_tap_long_packets_stay_whole() {
    let Some(lab) = Lab::new(Driver::Tap, 1, 1500) else { return };
    lab.check_transfer();
    let report = lab.finish();
    let mean = report.mean_length("east", "transmitted");
    assert!(mean > 3_000, "{mean} bytes each: {:#}", report.value());
}

#[test]
fn from_tap_to_af_xdp_they_are_cut_and_right() {
    if !requirements::programs(&["tshark"]) {
        return;
    }
    let Some(lab) = Lab::new(Driver::TapAndXdp, 1, 1500) else { return };
    lab.check_wire();
    let report = lab.finish();
    let mean = report.mean_length("west", "received");
    assert!(mean > 3_000, "super-frames came in: {:#}", report.value());
    assert!(report.mean_length("east", "transmitted") <= 1514, "{:#}", report.value());
}

#[test]
fn from_af_xdp_to_tap_frames_are_merged() {
    let Some(lab) = Lab::new(Driver::TapAndXdp, 1, 1500) else { return };
    lab.check_transfer_back();
    let report = lab.finish();
    let mean = report.mean_length("east", "received");
    assert!(mean <= 1514, "frames came in one by one: {:#}", report.value());
    let mean = report.mean_length("west", "transmitted");
    assert!(mean > 3_000, "{mean} bytes each: {:#}", report.value());
}

/// Before anything is forwarded. What the kernel leaves to a TAP device, a file needs software for.
#[test]
fn who_does_what_is_explained() {
    if !requirements::namespaces_and(&["ip"]) {
        return;
    }
    let router = Namespace::new("router");
    let directory = tempfile::tempdir().unwrap();
    let capture = format!("out=pcap:write={}", directory.path().join("out.pcap").display());
    let explain = |more: &[&str]| {
        let mut command: Command = router.command(warmlane());
        command.args(["forward", "--explain", "--port", "in=tap:t0", "--port", &capture]);
        command.args(["--mac", "out=02:00:00:00:00:02"]).args(more);
        Process::run(&mut command, LONG).expect_success("warmlane forward --explain").to_owned()
    };
    let ports: Value = serde_json::from_str(&explain(&["--json"])).unwrap();
    let names = |port: usize, work: &str, by: &str| {
        let all = ports[port]["work"].as_array().unwrap();
        let found = all.iter().find(|other| other["work"].as_str().unwrap().starts_with(work)).unwrap();
        found[by].as_array().unwrap().contains(&Value::from("tcp4"))
    };
    for work in ["complete checksums", "cut segments"] {
        assert!(names(0, work, "by_port") && !names(0, work, "by_software"), "{work}: {ports:#}");
        assert!(names(1, work, "by_software") && !names(1, work, "by_port"), "{work}: {ports:#}");
    }
    let text = explain(&[]);
    assert!(text.contains("  merge segments (LRO, GRO)  the port: tcp4"), "{text}");
    let merging = explain(&["--gro", "in"]);
    assert!(merging.contains("  merge segments (LRO, GRO)  software: tcp4"), "{merging}");
    let capture = text.split("out (pcap)\n").nth(1).expect("the file is named, too");
    assert!(capture.contains("  complete checksums         software: tcp4"), "{text}");
}
