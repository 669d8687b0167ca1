//! What `warmlane gen` says of input that makes no sense.

#![forbid(unsafe_code)]

use std::fs;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use warmlane_system_tests::{SHORT, assert_refused};
use warmlane_testkit::process::{Process, warmlane};

/// Lanes spin on their CPUs; two tests at once would only be in each other's way.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn bad_input_is_refused_with_its_reason() {
    let _alone = alone();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let streams = directory.path().join("streams.toml");
    fs::write(&streams, "[[stream]]\nsize = 60\n[stream.packet]\nipv4 = { source = \"1.2.3.4\" }\n").unwrap();
    let streams = streams.to_str().unwrap();
    let refused = |arguments: &[&str], parts: &[&str]| {
        let mut command = Command::new(warmlane());
        command.arg("gen").args(arguments);
        assert_refused(&Process::run(&mut command, SHORT), parts);
    };
    refused(&["--transmit", "null", "--config", streams], &["line 4, column", "destination"]);
    refused(&["--transmit", "null", "--config", "/nowhere.toml"], &["cannot read", "/nowhere.toml"]);
    refused(&["--transmit", "null", "--size", "63"], &["63 bytes is too small", "64 or more"]);
    refused(&["--transmit", "null", "--from", "2001:2::1", "--size", "64"], &["signature 16", "82 or more"]);
    refused(&["--transmit", "null", "--rate", "fast"], &["--rate", "expected a number above 0"]);
    refused(&["--transmit", "null", "--rate", "50%"], &["--line 10Gbps"]);
    refused(&["--transmit", "null", "--rate", "15Mpps", "--line", "10Gbps"], &["carries 14880952"]);
    refused(&["--transmit", "null", "--vary", "ipv4.source"], &["FIELD=ORDER:COUNT"]);
    refused(&["--transmit", "nil"], &["unknown driver 'nil'"]);
    refused(&["--transmit", "null", "--receive", "null"], &["can't receive", "--receive"]);
    refused(&["--both", "loop:speed=3"], &["'speed=3' is unknown: expected rate=2Mpps"]);
    refused(&["--transmit", "null", "--replay", "/nowhere.pcap"], &["/nowhere.pcap"]);
    refused(
        &["--transmit", "null", "--method", "throughput"],
        &["needs a port to receive from", "--receive"],
    );
    refused(
        &["--both", "loop", "--method", "throughput", "--unsigned"],
        &["signature", "leave the signature on"],
    );
    refused(
        &["--both", "loop", "--method", "throughput", "--frame-sizes", "63"],
        &["frames of 63 bytes", "too small", "64 or more"],
    );
    refused(
        &["--both", "loop", "--method", "throughput", "--frame-sizes", "big"],
        &["'big' is no number of bytes"],
    );
    refused(&["--both", "loop", "--method", "mlrsearch", "--goals", "all"], &["expected ndr, pdr, rfc2544"]);
    refused(&["--both", "loop", "--method", "throughput", "--rate", "1Mpps"], &["up to --maximum"]);
    refused(&["--both", "loop:rate=1Mpps,buffer=0"], &["buffer '0'", "from 1 on"]);
    // No core builds that many: the trial is void.
    refused(
        &["--transmit", "null", "--rate", "999Mpps", "--duration", "0.2"],
        &["void", "did not keep the rate"],
    );
    // Nor in so short a time that nothing of it is skipped.
    refused(
        &["--transmit", "null", "--rate", "999Mpps", "--count", "5000"],
        &["void", "did not keep the rate", "took"],
    );
}

#[test]
fn flags_that_would_be_ignored_are_refused() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let streams = directory.path().join("streams.toml");
    let packet = "ipv4 = { source = \"1.2.3.4\", destination = \"1.2.3.5\" }";
    fs::write(&streams, format!("rate = \"1Mpps\"\n[[stream]]\n[stream.packet]\n{packet}\n")).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(warmlane());
        Process::run(command.arg("gen").args(arguments), SHORT)
    };
    let refused = |arguments: &[&str], parts: &[&str]| {
        assert_refused(&run(&[&["--both", "loop"], arguments].concat()), parts);
    };
    for flag in
        ["frame-sizes=64", "maximum=1Mpps", "goals=ndr", "width=1", "repetitions=3", "step=5", "settle=1"]
    {
        let flag = format!("--{flag}");
        let name = flag.split('=').next().unwrap();
        refused(&[&flag], &[name, "--method trial"]);
        refused(&["--method", "soak", &flag], &[name, "--method soak"]);
    }
    refused(&["--method", "throughput", "--goals", "pdr"], &["--goals", "--method throughput"]);
    refused(&["--method", "mlrsearch", "--step", "5"], &["--step", "--method mlrsearch"]);
    refused(
        &["--method", "throughput", "--config", streams.to_str().unwrap()],
        &["rate of the streams' file", "--maximum"],
    );
    refused(&["--method", "soak", "--replay", "any.pcap"], &["--replay", "--method soak", "--loops"]);
    // What never goes together the command line's parser says.
    let forbidden = |arguments: &[&str]| {
        let finished = run(arguments);
        assert_eq!(finished.status.code(), Some(2), "{arguments:?}");
        assert!(finished.errors.contains("cannot be used with"), "{}", finished.errors);
    };
    forbidden(&["--both", "loop", "--replay", "any.pcap", "--unsigned"]);
    for flag in
        ["rate=1Mpps", "count=5", "pattern=poisson", "line=1Gbps", "method=soak", "report=x", "drain=0"]
    {
        forbidden(&["--self-test", &format!("--{flag}")]);
    }
}

#[test]
fn a_receiver_that_gets_nothing_is_no_result() {
    let _alone = alone();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let empty = directory.path().join("empty.pcap");
    // The header of a capture, little-endian, version 2.4, of Ethernet.
    let mut header = [0; 24];
    header[..8].copy_from_slice(&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0]);
    (header[16], header[20]) = (0xff, 1);
    fs::write(&empty, header).unwrap();
    let receive = format!("pcap:read={}", empty.display());
    let silent = ["--transmit", "null", "--receive", &receive, "--patience", "1000", "--drain", "0.02"];
    let run = |arguments: &[&str]| {
        let mut command = Command::new(warmlane());
        command.arg("gen").args(silent).args(["--duration", "0.05", "--quiet"]).args(arguments);
        Process::run(&mut command, SHORT)
    };
    let finished = run(&["--rate", "10kpps"]);
    assert_refused(&finished, &["the receiver got nothing of 500 packets"]);
    assert!(finished.output.contains("+ lost") && !finished.output.contains("VOID"), "{}", finished.output);
    for method in ["throughput", "frame-loss", "back-to-back", "mlrsearch"] {
        let arguments = ["--method", method, "--settle", "0", "--maximum", "10kpps", "--tolerance", "20"];
        assert_refused(&run(&arguments), &["the receiver got nothing"]);
    }
}

#[test]
fn a_self_test_is_void_or_a_result() {
    let _alone = alone();
    let mut command = Command::new(warmlane());
    command.args(["gen", "--self-test", "--duration", "0.2", "--json"]);
    let finished = Process::run(&mut command, SHORT);
    let result: serde_json::Value = serde_json::from_str(&finished.output).unwrap();
    let trials: Vec<&serde_json::Value> =
        result["paced"].as_array().unwrap().iter().chain([&result["unpaced"]]).collect();
    assert_eq!(trials.len(), 5);
    assert!(trials.iter().all(|trial| trial["received"]["loss_ratio"].as_f64() == Some(0.0)), "{result:#}");
    let voids = trials.iter().filter_map(|trial| trial["void"].as_str()).count();
    // On a machine that takes the CPUs away a rate may not be kept; then the exit status says so.
    assert_eq!(finished.status.code(), Some(i32::from(voids > 0)), "{}", finished.errors);
    assert_eq!(finished.errors.contains("void"), voids > 0, "{}", finished.errors);
}
