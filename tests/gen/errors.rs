//! What `warmlane gen` says of input that makes no sense.

use std::fs;
use std::process::Command;

use warmlane_system_tests::{SHORT, assert_misused, assert_refused, turn};
use warmlane_testkit::process::{Process, warmlane};

#[test]
fn bad_input_is_refused_with_its_reason() {
    let _alone = turn::alone();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let streams = directory.path().join("streams.toml");
    fs::write(&streams, "[[stream]]\nsize = 60\n[stream.packet]\nipv4 = { source = \"1.2.3.4\" }\n").unwrap();
    let streams = streams.to_str().unwrap();
    let rated = directory.path().join("rated.toml");
    let packet = "ipv4 = { source = \"1.2.3.4\", destination = \"1.2.3.5\" }";
    fs::write(&rated, format!("rate = \"1Mpps\"\n[[stream]]\n[stream.packet]\n{packet}\n")).unwrap();
    let rated = rated.to_str().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(warmlane());
        Process::run(command.arg("gen").args(arguments), SHORT)
    };
    let refused = |arguments: &[&str], parts: &[&str]| assert_refused(&run(arguments), parts);
    let misused = |arguments: &[&str], parts: &[&str]| assert_misused(&run(arguments), parts);
    refused(&["run", "--transmit", "null", "--config", streams], &["line 4, column", "destination"]);
    refused(&["run", "--transmit", "null", "--config", "/nowhere.toml"], &["cannot read", "/nowhere.toml"]);
    refused(&["run", "--transmit", "null", "--size", "63"], &["63 bytes is too small", "64 or more"]);
    refused(
        &["run", "--transmit", "null", "--from", "2001:2::1", "--size", "64"],
        &["signature 16", "82 or more"],
    );
    refused(
        &["run", "--transmit", "null", "--from", "2001:2::1", "--to", "198.18.0.1"],
        &["--from and --to", "two of IPv4"],
    );
    refused(&["run", "--transmit", "null", "--vlan", "4096"], &["--vlan 4096: `id` is 4096: use 0 to 4095"]);
    refused(
        &["run", "--transmit", "null", "--vary", "ipv4.source=often:3"],
        &["--vary ipv4.source=often:3: \"often\" is no order"],
    );
    refused(&["run", "--transmit", "null", "--rate", "50%"], &["--line 10Gbps"]);
    refused(&["run", "--transmit", "null", "--rate", "15Mpps", "--line", "10Gbps"], &["carries 14880952"]);
    misused(&["run", "--transmit", "nil"], &["unknown driver 'nil'"]);
    misused(&["run"], &["--transmit <PORT>", "--both <PORT>"]);
    refused(&["run", "--transmit", "null", "--receive", "null"], &["can't receive", "--receive"]);
    misused(&["run", "--both", "loop:speed=3"], &["no option 'speed'", "as in loop:rate=2Mpps,buffer=64"]);
    misused(&["run", "--both", "loop:rate=1Gbps"], &["option 'rate'", "packets a second, as in 2Mpps"]);
    misused(&["run", "--both", "loop:rate=1Mpps,buffer=0"], &["option 'buffer'", "use 1 or more"]);
    refused(&["replay", "/nowhere.pcap", "--transmit", "null"], &["/nowhere.pcap"]);
    refused(
        &["rfc2544", "--both", "loop", "--frame-sizes", "63"],
        &["frames of 63 bytes", "too small", "64 or more"],
    );
    refused(
        &["rfc2544", "--both", "loop", "--test", "throughput", "--step", "5"],
        &["--step is about frame-loss"],
    );
    refused(
        &["rfc2544", "--both", "loop", "--test", "throughput", "--repetitions", "5"],
        &["--repetitions is about latency and back-to-back"],
    );
    refused(&["mlrsearch", "--both", "loop", "--config", rated], &["`rate`", "gen run"]);
    misused(&["run", "--transmit", "null", "--rate", "fast"], &["--rate", "expected a number above 0"]);
    misused(&["run", "--transmit", "null", "--vary", "ipv4.source"], &["FIELD=ORDER:COUNT", "as in"]);
    misused(&["run", "--transmit", "null", "--ports", "9"], &["--ports", "as in 1024,9"]);
    misused(&["run", "--transmit", "null", "--payload", "hex:0"], &["--payload", "with pairs of digits"]);
    misused(&["run", "--both", "loop", "--duration", "-1"], &["--duration"]);
    misused(&["rfc2544", "--transmit", "null"], &["required", "--receive"]);
    misused(&["rfc2544", "--both", "loop", "--frame-sizes", "big"], &["'big' is no number of bytes"]);
    misused(&["mlrsearch", "--both", "loop", "--goals", "all"], &["expected ndr, pdr, rfc2544"]);
    // What means nothing to a command isn't there.
    for (command, flag) in [
        ("run", "--goals=ndr"),
        ("run", "--settle=1"),
        ("soak", "--count=5"),
        ("rfc2544", "--rate=1Mpps"),
        ("rfc2544", "--goals=pdr"),
        ("mlrsearch", "--step=5"),
        ("mlrsearch", "--unsigned"),
        ("replay", "--size=64"),
        ("self-test", "--rate=1Mpps"),
        ("self-test", "--report=x"),
    ] {
        let name = flag.split('=').next().unwrap();
        misused(&[command, flag], &["unexpected argument", name, command]);
    }
    misused(
        &["replay", "any.pcap", "--both", "loop", "--speed", "2", "--rate", "1kpps"],
        &["cannot be used with"],
    );
    misused(&["run", "--both", "loop", "--config", streams, "--size", "64"], &["cannot be used with"]);
    // No core builds that many: the trial is void.
    refused(
        &["run", "--transmit", "null", "--rate", "999Mpps", "--duration", "0.2"],
        &["void", "did not keep the rate"],
    );
    // Nor in so short a time that nothing of it is skipped.
    refused(
        &["run", "--transmit", "null", "--rate", "999Mpps", "--count", "5000"],
        &["void", "did not keep the rate", "took"],
    );
}

#[test]
fn a_receiver_that_gets_nothing_is_no_result() {
    let _alone = turn::alone();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let empty = directory.path().join("empty.pcap");
    // The header of a capture, little-endian, version 2.4, of Ethernet.
    let mut header = [0; 24];
    header[..8].copy_from_slice(&[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0]);
    (header[16], header[20]) = (0xff, 1);
    fs::write(&empty, header).unwrap();
    let receive = format!("pcap:read={}", empty.display());
    let silent = ["--transmit", "null", "--receive", &receive, "--patience", "1000", "--drain", "0.02"];
    let run = |name: &str, arguments: &[&str]| {
        let mut command = Command::new(warmlane());
        command.args(["gen", name]).args(silent).args(["--duration", "0.05", "--quiet"]).args(arguments);
        Process::run(&mut command, SHORT)
    };
    let finished = run("run", &["--rate", "10kpps"]);
    assert_refused(&finished, &["the receiver got nothing of 500 packets"]);
    assert!(finished.output.contains("+ lost") && !finished.output.contains("VOID"), "{}", finished.output);
    let method = ["--settle", "0", "--maximum", "10kpps", "--tolerance", "20"];
    for test in ["throughput", "frame-loss", "back-to-back"] {
        let finished = run("rfc2544", &[&method[..], &["--test", test]].concat());
        assert_refused(&finished, &["the receiver got nothing"]);
    }
    assert_refused(&run("mlrsearch", &method), &["the receiver got nothing"]);
}

#[test]
fn a_self_test_is_void_or_a_result() {
    let _alone = turn::alone();
    let mut command = Command::new(warmlane());
    command.args(["gen", "self-test", "--duration", "0.2", "--json"]);
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
