//! `warmlane trace`: what it says of packets is what happens to them, live, and before they come.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use warmlane::drivers::pcap::{Format, Writer};
use warmlane::wire::{Frame, Ipv4Fields, MacAddress};
use warmlane_system_tests::{RouterLab, SHORT, assert_misused, assert_refused};
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::requirements;

use super::forwarder::{Forwarder, directory_beside_others, stats, sum, wait_until};

const ROUTER: MacAddress = MacAddress([2, 0, 0, 0, 1, 1]);
const HOST: MacAddress = MacAddress([2, 0, 0, 0, 9, 9]);

/// A forwarder with more routes than the usual one.
fn forwarder(directory: &Path) -> Forwarder {
    let socket = directory.join("f.sock");
    let arguments = [
        "--socket",
        socket.to_str().expect("a plain path"),
        "--neighbour",
        "198.51.100.3=02:00:00:00:02:03@east",
        "--route",
        "100.66.0.0/16 via 198.51.100.2,198.51.100.3",
        "--route",
        "203.0.113.0/24 drop",
    ];
    Forwarder::start_with(directory, "f", &arguments, socket.clone())
}

fn trace(arguments: &[&str]) -> Command {
    let mut command = Command::new(warmlane());
    command.arg("trace").args(arguments);
    command
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON object on each line")).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn what_is_told_of_each_packet_is_what_happened_to_it() {
    if !requirements::programs(&["tshark"]) {
        return;
    }
    let (_turn, directory) = directory_beside_others();
    let forwarder = forwarder(directory.path());
    let socket = forwarder.socket.to_str().expect("a plain path");
    let file = directory.path().join("seen.pcapng");
    let mut capture = Process::spawn(
        Command::new(warmlane()).args(["capture", socket, "--see", "out,drop", "-w"]).arg(&file),
    );
    capture.wait_for("capturing at", SHORT);
    let mut tracing = Process::spawn(&mut trace(&[
        socket,
        "--json",
        "--count",
        "1000",
        "--filter",
        "udp and dst net 0.0.0.0/0",
    ]));
    tracing.wait_for("tracing what comes in by west", SHORT);
    let mut sent = BTreeMap::new();
    for address in ["198.51.100.9", "203.0.113.9", "9.9.9.9", "100.66.1.1", "100.66.1.2", "100.66.1.3"] {
        sent.insert(address, forwarder.send_to(address, 40, "1kpps", 64));
    }
    let all: u64 = sent.values().sum();
    wait_until("all have been told of", || tracing.output().lines().count() as u64 == all);
    let ends = |name: &str| sum(&stats(&forwarder.socket), "forward", name, ("lane", "lane0"));
    let (forwarded, dropped) = (ends("forwarded"), ends("drops"));
    for process in [&tracing, &capture] {
        process.interrupt();
    }
    capture.finish(SHORT).expect_success("the capture");
    let traced = lines(tracing.finish(SHORT).expect_success("the trace"));
    forwarder.finish();

    // What the trace says, as what a capture can say: destination, address behind, TTL, reason.
    let mut told: Vec<[String; 4]> = Vec::new();
    for packet in &traced {
        let step = &packet["steps"][0];
        let destination = text(&packet["fields"]["destination"]);
        assert_eq!((text(&packet["input"]), text(&step["stage"])), ("west", "forwarder"), "{packet}");
        assert_eq!(step["found"]["destination"], destination);
        let (mac, ttl) = match text(&packet["end"]) {
            "sent" => {
                assert_eq!((&packet["output"], &step["to"]), (&json!("east"), &json!("east")));
                assert!(step["counted"].as_array().is_some_and(|all| {
                    all.contains(&json!({ "set": "forward", "name": "forwarded", "by": 1 }))
                }));
                let mac = text(&step["changed"]["destination-mac"][1]);
                assert!(
                    text(&step["found"]["next-hop"]).starts_with(&format!("port1 to {mac} ")),
                    "{packet}"
                );
                (mac, text(&step["changed"]["ttl"][1]))
            }
            end => {
                assert_eq!(end, "dropped", "{packet}");
                (text(&packet["fields"]["destination-mac"]), text(&packet["fields"]["ttl"]))
            }
        };
        let route = match destination {
            "198.51.100.9" => Some("198.51.100.0/24"),
            "203.0.113.9" => Some("203.0.113.0/24"),
            "9.9.9.9" => None,
            _ => Some("100.66.0.0/16"),
        };
        assert_eq!(step["found"].get("route").map(text), route, "{packet}");
        assert_eq!(step["found"].get("multipath").is_some(), route == Some("100.66.0.0/16"), "{packet}");
        let why = match packet["reason"].as_str() {
            Some(reason) => format!("dropped: {reason}: {}", text(&packet["help"])),
            None => String::new(),
        };
        told.push([destination.to_owned(), mac.to_owned(), ttl.to_owned(), why]);
    }
    let count = |end: &str| traced.iter().filter(|packet| packet["end"] == end).count() as u64;
    assert_eq!((count("sent"), count("dropped")), (forwarded, dropped));

    let mut seen: Vec<[String; 4]> = captured(&file);
    // Errors that the forwarder sent for what it dropped.
    let errors: u64 = traced.iter().filter(|packet| packet["steps"][0]["others"] != json!([])).count() as u64;
    let before = seen.len();
    seen.retain(|[destination, ..]| destination != "192.0.2.2");
    assert!(errors <= (before - seen.len()) as u64 + dropped);
    told.sort();
    seen.sort();
    assert_eq!(told, seen);
}

/// Destination, its Ethernet address, TTL and comment of each packet.
fn captured(file: &Path) -> Vec<[String; 4]> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-T", "fields", "-e", "ip.dst", "-e", "eth.dst", "-e", "ip.ttl", "-e", "frame.comment"]);
    let finished = Process::run(tshark.args(["-Y", "udp and not icmp", "-r"]).arg(file), SHORT);
    let fields = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        std::array::from_fn(|_| fields.next().unwrap_or_default())
    };
    finished.expect_success("tshark").lines().map(fields).collect()
}

fn udp(destination: &str, ttl: u8) -> Vec<u8> {
    let mut fields = Ipv4Fields::new([192, 0, 2, 2].into(), destination.parse().expect("an address"));
    fields.ttl = ttl;
    Frame::new()
        .ethernet(ROUTER, HOST)
        .ipv4(fields)
        .udp(4242, 53)
        .payload(b"what would be")
        .to_vec()
        .expect("it fits")
}

/// Frames to all kinds of ends, and what becomes of each.
fn frames() -> Vec<(Vec<u8>, &'static str, &'static str)> {
    let good = udp("198.51.100.9", 64);
    let mut broken = good.clone();
    broken[24] ^= 1;
    let mut other = good.clone();
    other[5] ^= 1;
    let group = udp("100.66.7.7", 64);
    vec![
        (good.clone(), "sent", "east"),
        (group, "sent", "east"),
        (broken, "dropped", "ipv4-checksum"),
        (udp("198.51.100.9", 1), "dropped", "ttl-expired"),
        (udp("9.9.9.9", 64), "dropped", "no-route"),
        (udp("203.0.113.9", 64), "dropped", "route-drop"),
        (udp("192.0.2.77", 64), "dropped", "no-neighbour"),
        (other, "dropped", "other-host"),
        (good[..20].to_vec(), "dropped", "ipv4-truncated"),
    ]
}

fn write(directory: &Path) -> PathBuf {
    let file = directory.join("frames.pcap");
    let mut writer = Writer::create(&file, Format::Pcap).expect("a writable directory");
    for (frame, ..) in frames() {
        writer.write_frame(0, &frame).expect("space");
    }
    writer.finish().expect("space");
    file
}

fn check(traced: &[Value]) {
    let told: Vec<(&str, &str)> = traced
        .iter()
        .map(|packet| {
            (
                text(&packet["end"]),
                packet["output"].as_str().or(packet["reason"].as_str()).unwrap_or_default(),
            )
        })
        .collect();
    let expected: Vec<_> = frames().into_iter().map(|(_, end, name)| (end, name)).collect();
    assert_eq!(told, expected);
    assert_eq!(traced[0]["steps"][0]["changed"]["ttl"], json!(["64", "63"]));
    assert_eq!(traced[0]["steps"][0]["found"]["route"], "198.51.100.0/24");
    assert_eq!(traced[2]["fields"]["header-checksum"], "wrong");
}

#[test]
fn what_would_become_of_frames_is_said_and_does_not_happen() {
    let (_turn, directory) = directory_beside_others();
    let forwarder = forwarder(directory.path());
    let socket = forwarder.socket.to_str().expect("a plain path");
    let file = write(directory.path());
    let file = file.to_str().expect("a plain path");
    let values = || {
        let mut stats = stats(&forwarder.socket);
        let values = stats["values"].as_array_mut().expect("a list");
        // Time goes by, and buffers come back.
        values
            .retain(|value| ["queue", "forward", "stage", "input", "output"].contains(&text(&value["set"])));
        values.clone()
    };
    let before = values();
    let finished = Process::run(&mut trace(&[socket, "--json", "--inject", file]), SHORT);
    check(&lines(finished.expect_success("the trace")));
    assert_eq!(values(), before);

    let finished = Process::run(
        &mut trace(&[
            socket,
            "--inject",
            file,
            "--filter",
            "dst host 9.9.9.9 or ether dst host 02:00:00:00:01:00",
        ]),
        SHORT,
    );
    let said = finished.expect_success("the trace");
    for part in [
        "192.0.2.2:4242 > 9.9.9.9:53, UDP, TTL 64",
        "=> dropped: no-route: There is no route to the destination.",
        "=> dropped: other-host: ",
    ] {
        assert!(said.contains(part), "{part} is missing: {said}");
    }
    assert_eq!(said.matches("=> ").count(), 2, "{said}");

    for (arguments, parts) in [
        (&[socket, "--inject", file, "--port", "south"][..], &["by that port", "west"][..]),
        (&[socket, "--inject", file, "--filter", "tcp"], &["has no such frames"]),
        (&[socket, "--inject", "none.pcap"], &["none.pcap"]),
        (&[socket, "--port", "south"], &["by that port", "west"]),
        (&[socket, "--filter", "udp prot 53"], &["prot"]),
    ] {
        assert_refused(&Process::run(&mut trace(arguments), SHORT), parts);
    }
    assert_misused(&Process::run(&mut trace(&[socket, "--config", "x.toml"]), SHORT), &["--config"]);
    forwarder.finish();
}

/// What a configuration would do with frames, and what a forwarder by it then does with them.
#[test]
fn a_configuration_is_asked_without_a_running_instance() {
    let (_turn, directory) = directory_beside_others();
    let file = write(directory.path());
    let config = directory.path().join("f.toml");
    let text = format!(
        r#"
[[port]]
name = "west"
driver = "pcap:read={}"
addresses = ["192.0.2.1/24"]
mac = "02:00:00:00:01:01"

[[port]]
name = "east"
driver = "null"
mac = "02:00:00:00:01:02"

[[neighbour]]
address = "198.51.100.2"
mac = "02:00:00:00:02:02"
port = "east"

[[neighbour]]
address = "198.51.100.3"
mac = "02:00:00:00:02:03"
port = "east"

[[route]]
prefix = "198.51.100.0/24"
via = "198.51.100.2"

[[route]]
prefix = "100.66.0.0/16"
via = [{{ via = "198.51.100.2" }}, {{ via = "198.51.100.3" }}]

[[route]]
prefix = "203.0.113.0/24"
drop = true
"#,
        file.display()
    );
    fs::write(&config, text).expect("a writable directory");
    let [file, config] = [&file, &config].map(|path| path.to_str().expect("a plain path"));
    let finished = Process::run(&mut trace(&["--json", "--inject", file, "--config", config]), SHORT);
    let traced = lines(finished.expect_success("the trace"));
    check(&traced);

    let finished = Process::run(
        Command::new(warmlane()).args(["forward", "--json", "--quiet", "--config", config]),
        SHORT,
    );
    let report = finished.expect_success("the forwarder");
    let report: Value = serde_json::from_str(report).expect("JSON");
    let mut drops: BTreeMap<String, u64> = BTreeMap::new();
    for packet in &traced {
        if let Some(reason) = packet["reason"].as_str() {
            *drops.entry(reason.to_owned()).or_default() += 1;
        }
    }
    let happened: BTreeMap<String, u64> = report["forward"]["drops"]
        .as_object()
        .unwrap_or_else(|| panic!("{report:#}"))
        .iter()
        .filter_map(|(reason, count)| Some((reason.clone(), count.as_u64()?)))
        .collect();
    assert_eq!(drops, happened, "{report:#}");
}

/// What a configuration would do with frames of a VXLAN network, which the gateway decides about, and the forwarder behind it.
#[test]
fn frames_of_vxlan_networks_are_followed_into_and_out_of_tunnels() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("vxlan.toml");
    let text_of_it = r#"
[[port]]
name = "west"
driver = "null"
mac = "02:00:00:00:01:01"

[[port]]
name = "underlay"
driver = "null"
addresses = ["192.0.2.1/24"]
mac = "02:00:00:00:01:02"

[[neighbour]]
address = "192.0.2.2"
mac = "02:00:00:00:02:02"
port = "underlay"

[[vxlan]]
vni = 100
local = "192.0.2.1"
remotes = ["192.0.2.2"]
access = [{ port = "west" }]
"#;
    fs::write(&config, text_of_it).expect("a writable directory");
    let station = MacAddress([2, 0, 0, 0, 0, 0xb]);
    let inside = |source| {
        let fields = Ipv4Fields::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let link = Frame::new().ethernet(station, source).ipv4(fields);
        link.udp(1, 2).payload(b"in the network").to_vec().expect("it fits")
    };
    let tunnelled = |source: [u8; 4]| {
        let mut datagram = vec![8, 0, 0, 0, 0, 0, 100, 0];
        datagram.extend(inside(HOST));
        let fields = Ipv4Fields::new(source.into(), [192, 0, 2, 1].into());
        let link = Frame::new().ethernet(MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([2, 0, 0, 0, 2, 2]));
        link.ipv4(fields).udp(5000, 4789).payload(&datagram).to_vec().expect("it fits")
    };
    let asked = |port: &str, frames: &[Vec<u8>]| {
        let file = directory.path().join("frames.pcap");
        let mut writer = Writer::create(&file, Format::Pcap).expect("a writable directory");
        for frame in frames {
            writer.write_frame(0, frame).expect("space");
        }
        writer.finish().expect("space");
        let [file, config] = [&file, &config].map(|path| path.to_str().expect("a plain path"));
        let arguments = ["--json", "--port", port, "--inject", file, "--config", config];
        lines(Process::run(&mut trace(&arguments), SHORT).expect_success("the trace"))
    };
    let stages = |packet: &Value| -> Vec<String> {
        let steps = packet["steps"].as_array().into_iter().flatten();
        steps.map(|step| text(&step["stage"]).to_owned()).collect()
    };
    let found = |from: &str| {
        let way = "to everybody else: nobody knows where it is";
        json!({ "network": "100", "from": from, "station": station.to_string(), "way": way })
    };

    let traced = asked("west", &[inside(HOST), inside(MacAddress([3, 0, 0, 0, 0, 1]))]);
    assert_eq!((&traced[0]["end"], &traced[0]["output"]), (&json!("sent"), &json!("underlay")), "{traced:?}");
    assert_eq!(stages(&traced[0]), ["vxlan"]);
    let counted = traced[0]["steps"][0]["counted"].as_array().expect("a list");
    for (set, name) in [("vxlan", "to-tunnels"), ("forward", "forwarded")] {
        assert!(counted.contains(&json!({ "set": set, "name": name, "by": 1 })), "{name}: {traced:?}");
    }
    assert_eq!(traced[0]["steps"][0]["found"], found("port0"), "{traced:?}");
    assert_eq!(
        (&traced[1]["end"], &traced[1]["reason"]),
        (&json!("dropped"), &json!("bad-source")),
        "{traced:?}"
    );

    let traced = asked("underlay", &[tunnelled([192, 0, 2, 2]), tunnelled([192, 0, 2, 3])]);
    assert_eq!((&traced[0]["end"], &traced[0]["output"]), (&json!("sent"), &json!("west")), "{traced:?}");
    assert_eq!(stages(&traced[0]), ["vxlan"]);
    assert_eq!(traced[0]["steps"][0]["found"], found("tunnel end 192.0.2.2"), "{traced:?}");
    assert_eq!(
        (&traced[1]["end"], &traced[1]["reason"]),
        (&json!("dropped"), &json!("unknown-remote")),
        "{traced:?}"
    );
}

/// In a router, the control side knows prefixes, and stages behind the forwarder hold and punt.
#[test]
fn a_router_tells_of_routes_and_of_what_it_leaves_to_the_kernel() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let process = lab.start("w0 e0", "");
    RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
    let socket = lab.socket();
    let socket = socket.to_str().expect("a plain path");
    let arguments =
        [socket, "--json", "--count", "1", "--port", "w0", "--filter", "icmp and dst host 198.51.100.2"];
    let mut tracing = Process::spawn(&mut trace(&arguments));
    tracing.wait_for("tracing what comes in by w0", SHORT);
    RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
    let traced = lines(tracing.finish(SHORT).expect_success("the trace"));
    let step = &traced[0]["steps"][0];
    assert_eq!((&traced[0]["end"], &traced[0]["output"]), (&json!("sent"), &json!("e0")), "{traced:?}");
    assert_eq!((&step["stage"], &step["changed"]["ttl"]), (&json!("forwarder"), &json!(["64", "63"])));
    assert!(text(&step["found"]["route"]).starts_with("198.51.100."), "{step}");

    let file = lab.directory().join("own.pcap");
    let mut writer = Writer::create(&file, Format::Pcap).expect("a writable directory");
    let mac = lab.router.run("cat /sys/class/net/w0/address").expect_success("its address").trim().to_owned();
    for destination in ["192.0.2.1", "198.51.100.77"] {
        let mut frame = udp(destination, 64);
        for (byte, text) in frame.iter_mut().zip(mac.split(':')) {
            *byte = u8::from_str_radix(text, 16).expect("a byte");
        }
        writer.write_frame(0, &frame).expect("space");
    }
    writer.finish().expect("space");
    let file = file.to_str().expect("a plain path");
    let finished = Process::run(&mut trace(&[socket, "--json", "--port", "w0", "--inject", file]), SHORT);
    let traced = lines(finished.expect_success("the trace"));
    let stages = |packet: &Value| -> Vec<String> {
        let steps = packet["steps"].as_array().into_iter().flatten();
        steps.map(|step| text(&step["stage"]).to_owned()).collect()
    };
    assert_eq!(
        (text(&traced[0]["end"]), stages(&traced[0])),
        ("sent", vec!["forwarder".into(), "punt".into()])
    );
    // Its neighbour would be asked for; it isn't, so that nothing waits for it then either.
    for _ in 0..2 {
        let finished = Process::run(&mut trace(&[socket, "--json", "--port", "w0", "--inject", file]), SHORT);
        let traced = lines(finished.expect_success("the trace"));
        assert_eq!(
            (text(&traced[1]["end"]), stages(&traced[1])),
            ("kept", vec!["forwarder".into(), "hold".into()])
        );
        let found = &traced[1]["steps"][1]["found"];
        assert_eq!(found["neighbour"], "198.51.100.77, not known yet", "{found}");
        assert!(text(&found["waiting"]).starts_with("0 packets for it, 0 of "), "{found}");
    }
    RouterLab::finish(process);
}
