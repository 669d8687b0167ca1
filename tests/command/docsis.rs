//! `warmlane docsis` without privilege: every packet through the downstream and back.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;
use std::process::Command;

use warmlane_system_tests::{SHORT, turn};
use warmlane_testkit::process::{Finished, Process, warmlane};
use warmlane_testkit::{Report, capture, requirements};

use super::forwarder::wait_until;

fn docsis(arguments: &[&str]) -> Command {
    let mut command = Command::new(warmlane());
    command.args(["docsis", "--duration", "2"]).args(arguments);
    command
}

/// Runs the command beside other tests.
fn run(command: &mut Command) -> Finished {
    let _turn = turn::beside_others();
    Process::run(command, SHORT)
}

#[test]
fn every_packet_comes_back_or_is_accounted_for() {
    for arguments in
        [&["--json"][..], &["--json", "--no-encryption"], &["--json", "--ofdm", "3", "--sc-qam", "4"]]
    {
        let finished = run(&mut docsis(arguments));
        let report = Report::parse(finished.expect_success("the downstream"));
        assert!(report.number("/delivered") > 1_000, "{}", report.value());
        assert_eq!(report.number("/wrong"), 0);
        for channel in report.value()["channels"].as_array().expect("channels") {
            let median = &channel["latency"][0];
            assert!(
                median.as_u64() > Some(0) && channel["latency"][1].as_u64() >= median.as_u64(),
                "{channel}"
            );
            assert!(channel["jitter"][1].is_u64(), "{channel}");
        }
        let stages = report.value()["stages"].as_array().expect("stages");
        assert_eq!(stages.len(), 11);
        assert!(stages.iter().all(|stage| stage["packets"].as_u64() > Some(0)), "{}", report.value());
    }
}

#[test]
fn what_buckets_hold_back_is_a_drop_of_a_named_reason() {
    let finished = run(&mut docsis(&["--json", "--modems", "2", "--maximum-rate", "100000"]));
    let report = Report::parse(finished.expect_success("the downstream"));
    let reasons: Vec<_> =
        report.value()["drops"].as_array().expect("drops").iter().map(|drop| &drop["reason"]).collect();
    assert!(reasons.iter().any(|reason| *reason == "queue-full"), "{}", report.value());
}

#[test]
fn what_it_drops_is_captured_with_the_reason() {
    if !requirements::programs(&["tshark"]) {
        return;
    }
    let _turn = turn::beside_others();
    let directory = tempfile::tempdir().expect("a directory");
    let [socket, file] = ["socket", "drops.pcapng"].map(|name| directory.path().join(name));
    let mut command = Command::new(warmlane());
    command.args(["docsis", "--duration", "3600", "--modems", "2", "--maximum-rate", "100000", "--socket"]);
    let downstream = Process::spawn(command.arg(&socket));
    wait_until("it can be asked", || socket.exists());
    let mut capture = Command::new(warmlane());
    capture.arg("capture").arg(&socket).args(["--see", "drop", "--count", "100", "-w"]).arg(&file);
    let captured = Process::run(&mut capture, SHORT);
    captured.expect_success("the capture");
    let mut tshark = Command::new("tshark");
    tshark.args(["-T", "fields", "-e", "frame.interface_name", "-e", "frame.comment", "-e", "eth.dst", "-r"]);
    let seen = Process::run(tshark.arg(&file), SHORT);
    let lines: Vec<&str> = seen.expect_success("tshark").lines().collect();
    assert_eq!(lines.len(), 100);
    for line in lines {
        assert!(line.starts_with("rx.0\tdropped: queue-full: ") && line.contains("\t02:ca:b1:"), "{line}");
    }
    downstream.interrupt();
    downstream.finish(SHORT);
}

#[test]
fn figures_of_each_modem_flow_and_channel_add_up() {
    let finished = run(&mut docsis(&["--json", "--figures", "--modems", "5"]));
    let report = Report::parse(finished.expect_success("the downstream"));
    let figures = report.value()["figures"].as_array().expect("figures");
    let sum = |label: &str, set: &str, names: &[&str]| -> u64 {
        let of = figures.iter().filter(|figure| figure["set"] == set && figure["labels"][label].is_string());
        of.flat_map(|figure| names.iter().filter_map(|name| figure["values"][*name].as_u64())).sum()
    };
    let delivered = report.number("/delivered");
    let ranges = ["1us", "4us", "16us", "64us", "256us", "1ms", "4ms", "16ms", "64ms", "256ms", "1s"];
    let ranges: Vec<_> = ranges.iter().map(|range| format!("below-{range}")).collect();
    let ranges: Vec<_> = ranges.iter().map(String::as_str).chain(["longer"]).collect();
    assert_eq!(sum("flow", "flow", &["sent"]), delivered);
    assert_eq!(sum("flow", "flow-delay", &["packets"]), delivered);
    assert_eq!(sum("channel", "channel", &["packets"]), delivered);
    assert_eq!(sum("channel", "latency", &ranges), delivered);
    assert_eq!(sum("channel", "latency", &["sum"]), sum("flow", "flow-delay", &["latency"]));
    assert_eq!(sum("channel", "jitter", &["sum"]), sum("flow", "flow-delay", &["jitter"]));
    assert_eq!(sum("modem", "subscriber", &["received"]), report.number("/sent"));
    assert_eq!(report.number("/each/0/count"), 5);
}

#[test]
fn the_table_names_the_stages() {
    let finished = run(&mut docsis(&["--modems", "3"]));
    let text = finished.expect_success("the downstream");
    for stage in ["rx", "cm_lookup", "sub_mgmt", "filtering", "classification", "qos", "transfer"] {
        assert!(text.contains(stage), "{text}");
    }
}

#[test]
fn pools_and_instances_can_be_chosen() {
    let two = ["--json", "--instances", "2", "--modems", "20", "--pool", "ring", "--lane-cache", "256"];
    let finished = run(&mut docsis(&two));
    let report = Report::parse(finished.expect_success("two downstreams"));
    for instance in ["/instances/0/delivered", "/instances/1/delivered"] {
        assert!(report.number(instance) > 1_000, "{}", report.value());
    }
}

/// A capture of frames to modems that `generate` makes, and one to nobody.
fn write_capture(path: &Path, frames: &[Vec<u8>]) {
    let mut file = BufWriter::new(File::create(path).expect("a file"));
    capture::begin(&mut file, capture::ETHERNET).expect("space");
    for (number, frame) in (0..).zip(frames) {
        capture::frame(&mut file, number, frame, 0).expect("space");
    }
}

fn frame(modem: u8, length: usize) -> Vec<u8> {
    let mut frame = vec![modem; length];
    frame[..14].copy_from_slice(&[2, 0xca, 0xb1, 0, 0, modem, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame
}

#[test]
fn both_ends_between_ports_give_the_frames_back() {
    // A lane that waits for its CPU is given frames that have grown too old meanwhile.
    let _turn = turn::alone();
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let frames: Vec<_> = (0..500_usize).map(|number| frame(number as u8 % 4 + 1, 60 + number * 2)).collect();
    let foreign = frame(200, 60);
    write_capture(&path("in.pcap"), &[&frames[..], &[foreign]].concat());
    let end = |end: &str, from: &str, to: &str| {
        let mut command = Command::new(warmlane());
        command.args(["docsis", end, "--modems", "4", "--key-seed", "9", "--json", "--from"]);
        command.arg(format!("pcap:read={}", path(from).display()));
        command.arg("--to").arg(format!("pcap:write={}", path(to).display()));
        let finished = Process::run(&mut command, SHORT);
        Report::parse(finished.expect_success(end))
    };
    let sent = end("send", "in.pcap", "tunnel.pcap");
    assert!(sent.value().to_string().contains("unknown-modem"), "{}", sent.value());
    let received = end("receive", "tunnel.pcap", "out.pcap");
    let (tunnel, out) =
        (fs::read(path("tunnel.pcap")).expect("a file"), fs::read(path("out.pcap")).expect("a file"));
    let holds = |bytes: &[u8], frame: &[u8]| bytes.windows(frame.len()).any(|window| window == frame);
    let (there, missing): (Vec<_>, Vec<_>) = frames.iter().partition(|frame| holds(&out, frame));
    for frame in there.iter().step_by(20) {
        assert!(!holds(&tunnel, &frame[14..]), "{} bytes", frame.len());
    }
    let bytes: usize = there.iter().map(|frame| frame.len()).sum();
    assert_eq!(out.len(), 24 + there.len() * 16 + bytes, "each frame once");
    // Those that were too old; and the one to nobody.
    let dropped: u64 =
        [&sent, &received].map(|report| report.drops("/stages/0/drops").values().sum::<u64>()).iter().sum();
    assert_eq!(missing.len() as u64 + 1, dropped, "{:#}", sent.value());
}

#[test]
fn a_file_that_describes_no_service_group_is_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("group.toml");
    fs::write(&file, "[[channel]]\nname = \"a\"\nkind = \"ofdm\"\nrate = 1\nsession = 1\n").expect("space");
    let finished = Process::run(docsis(&["--config"]).arg(&file), SHORT);
    let text = finished.text();
    assert!(text.contains("group.toml") && text.contains("there is no modem"), "{text}");
}
