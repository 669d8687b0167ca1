//! `warmlane gen replay`: a capture is sent again, at its own times or others, between other addresses.

use std::fs;
use std::path::Path;
use std::process::Command;

use warmlane_system_tests::{SHORT, assert_refused, turn};
use warmlane_testkit::process::{Finished, Process, warmlane};
use warmlane_testkit::promise::Watch;
use warmlane_testkit::requirements;

fn generate(name: &str, arguments: &[&str]) -> Finished {
    let mut command = Command::new(warmlane());
    Process::run(command.args(["gen", name, "--json"]).args(arguments), SHORT)
}

/// What tshark sees: time from the first packet, addresses, and the state of all checksums.
fn packets(capture: &Path) -> Vec<(f64, String)> {
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(capture);
    for layer in ["ip", "tcp", "udp"] {
        tshark.args(["-o", &format!("{layer}.check_checksum:TRUE")]);
    }
    tshark.args(["-T", "fields", "-E", "separator=;", "-e", "frame.time_relative"]);
    for field in ["eth.src", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst"] {
        tshark.args(["-e", field]);
    }
    for layer in ["ip", "udp", "tcp", "icmpv6"] {
        tshark.args(["-e", &format!("{layer}.checksum.status")]);
    }
    let finished = Process::run(&mut tshark, SHORT);
    let lines = finished.expect_success("tshark").lines().map(str::to_owned);
    lines
        .map(|line| {
            line.split_once(';').map(|(time, rest)| (time.parse().unwrap(), rest.to_owned())).unwrap()
        })
        .collect()
}

#[test]
fn a_capture_is_sent_again_between_other_addresses() {
    let _turn = turn::beside_others();
    if !requirements::programs(&["tshark"]) {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let packet = |network: &str, transport: &str| {
        format!("[[stream]]\nsize = 200\npayload = \"random\"\n[stream.packet]\n{network}\n{transport}\n")
    };
    let ipv4 = r#"ipv4 = { source = "10.1.2.3", destination = "10.9.9.9" }"#;
    let ipv6 = r#"ipv6 = { source = "2001:db8::1", destination = "2001:db8:1::1" }"#;
    let streams = [
        packet(ipv4, "udp = {}"),
        packet(ipv4, "tcp = {}"),
        packet(ipv6, "udp = {}"),
        packet(ipv6, "tcp = {}"),
        packet(ipv6, "icmp = {}"),
    ];
    fs::write(path("streams.toml"), streams.concat()).unwrap();
    let recorded = format!("pcap:write={}", path("in.pcap"));
    // 20 packets, 20 ms apart.
    let make =
        ["--config", &path("streams.toml"), "--transmit", &recorded, "--rate", "50pps", "--count", "20"];
    generate("run", &[&make[..], &["--patience", "10000"]].concat()).expect_success("recording");

    let replayed = format!("pcap:write={}", path("out.pcap"));
    let capture = path("in.pcap");
    let replay = [capture.as_str(), "--transmit", &replayed, "--patience", "10000", "--tolerance", "0"];
    let rewrite = [
        "--rewrite",
        "10.0.0.0/8=198.18.0.0/8",
        "--rewrite",
        "2001:db8::1=2001:2::9",
        "--from-mac",
        "02:00:00:00:00:77",
    ];
    let watch = Watch::start();
    let twice = [&replay[..], &rewrite, &["--loops", "2", "--speed", "2"]].concat();
    let result: serde_json::Value =
        serde_json::from_str(generate("replay", &twice).expect_success("replay")).expect("a result");
    assert_eq!((result["sent"].as_u64(), result["void"].is_null()), (Some(40), true), "{result:#}");
    // What left when is what the generator says; a busy machine delays packets, and brings none forward.
    let seconds = result["seconds"].as_f64().unwrap();
    assert!(seconds >= 0.38, "39 gaps of 10 ms took {seconds} s");
    watch.check(seconds < 1.5, || format!("39 gaps of 10 ms took {seconds} s"));
    let (before, after) = (packets(Path::new(&path("in.pcap"))), packets(Path::new(&path("out.pcap"))));
    assert_eq!((before.len(), after.len()), (20, 40));
    for ((_, before), (_, after)) in before.iter().chain(&before).zip(&after) {
        let expected = before
            .replace("02:00:00:00:00:01", "02:00:00:00:00:77")
            .replace("10.1.2.3", "198.1.2.3")
            .replace("10.9.9.9", "198.9.9.9")
            .replacen("2001:db8::1;", "2001:2::9;", 1);
        assert_eq!(*after, expected, "checksums are as right as they were");
        assert!(!after.contains(";0;") && after.contains('1'), "{after}");
    }
    // At a given rate.
    let fast = [&replay[..], &["--rate", "10kpps", "--loops", "50"]].concat();
    let result: serde_json::Value =
        serde_json::from_str(generate("replay", &fast).expect_success("replay")).expect("a result");
    assert_eq!(result["sent"].as_u64(), Some(1_000));
    // As above: what a busy machine holds up at the end, nothing makes up for.
    let rate = result["sent_packets_per_second"].as_f64().unwrap();
    assert!(rate < 1.01e4, "{result:#}");
    watch.check(rate > 3e3, || format!("{rate} packets a second instead of 10,000"));

    fs::write(path("empty.pcap"), &fs::read(path("in.pcap")).unwrap()[..24]).unwrap();
    assert_refused(
        &generate("replay", &[&path("empty.pcap"), "--transmit", "null"]),
        &["no packets to send"],
    );
    fs::write(path("torn.pcap"), &fs::read(path("in.pcap")).unwrap()[..100]).unwrap();
    assert_refused(&generate("replay", &[&path("torn.pcap"), "--transmit", "null"]), &["torn.pcap"]);
}
