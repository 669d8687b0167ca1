//! Flows beside routes, from a capture into captures.

use std::fs;
use std::path::Path;
use std::process::Command;

use warmlane::drivers::pcap::Reader;
use warmlane::wire::{Frame, Ipv4Fields, Ipv6Fields, LinkLayer, MacAddress, TcpFields, ipv4, ipv6};
use warmlane_system_tests::SHORT;
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::{Report, capture};

const ROUTER: MacAddress = MacAddress([2, 0, 0, 0, 1, 0]);
const SENDER: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);

const COUNT: u16 = 6_000;

/// Numbers of the frames in a capture, and where they are addressed to.
fn frames(path: &Path) -> Vec<(u16, MacAddress)> {
    let mut reader = Reader::open(path).unwrap();
    let mut frames = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        let link = LinkLayer::parse(frame.data).unwrap();
        let number = match ipv4::check(link.payload) {
            Ok(packet) => u16::from_be_bytes(*packet.payload.last_chunk().unwrap()),
            Err(_) => u16::from_be_bytes(*ipv6::check(link.payload).unwrap().payload.last_chunk().unwrap()),
        };
        frames.push((number, link.header.destination()));
    }
    frames
}

#[test]
fn flows_go_their_own_way_and_all_else_by_its_route() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let link = Frame::new().ethernet(ROUTER, SENDER);
    let ipv4 = link.ipv4(Ipv4Fields::new([192, 0, 2, 9].into(), [203, 0, 113, 5].into()));
    let ends = ("2001:db8:9::9".parse().unwrap(), "2001:db8:7::5".parse().unwrap());
    let ipv6 = link.ipv6(Ipv6Fields::new(ends.0, ends.1));
    let mut input = Vec::new();
    capture::begin(&mut input, capture::ETHERNET).unwrap();
    let kinds = [
        ipv4.udp(1000, 53),
        ipv4.udp(1000, 54),
        ipv4.tcp(TcpFields::new(1000, 53)),
        ipv4.tcp(TcpFields::new(1000, 80)),
        ipv6.tcp(TcpFields::new(5, 443)),
        ipv6.tcp(TcpFields::new(443, 5)),
    ];
    for number in 0..COUNT {
        let payload = number.to_be_bytes();
        let frame = kinds[usize::from(number) % kinds.len()].payload(&payload).to_vec().unwrap();
        capture::frame(&mut input, number.into(), &frame, 0).unwrap();
    }
    fs::write(path("in.pcap"), input).unwrap();

    let mut command = Command::new(warmlane());
    command.current_dir(directory.path()).args(["forward", "--json"]);
    command.args([
        "--port",
        "in=pcap:read=in.pcap",
        "--port",
        "a=pcap:write=a.pcap",
        "--port",
        "b=pcap:write=b.pcap",
    ]);
    command.args([
        "--neighbour",
        "192.0.2.1=02:00:00:00:02:01@a",
        "--neighbour",
        "192.0.2.2=02:00:00:00:02:02@b",
    ]);
    command.args(["--route", "0.0.0.0/0 via 192.0.2.1", "--route", "::/0 via 192.0.2.1"]);
    command.args(["--flow", "udp from 192.0.2.9:1000 to 203.0.113.5:53 via 192.0.2.2"]);
    command.args(["--flow", "tcp from 192.0.2.9:1000 to 203.0.113.5:80 drop"]);
    command.args(["--flow", "tcp from [2001:db8:9::9]:5 to [2001:db8:7::5]:443 via 192.0.2.2"]);
    let finished = Process::run(&mut command, SHORT);
    let report = Report::parse(finished.expect_success("warmlane forward"));
    report.assert_balanced();

    let left = |kinds: &[u16], last| -> Vec<_> {
        let numbers = (0..COUNT).filter(|number| kinds.contains(&(number % 6)));
        numbers.map(|number| (number, MacAddress([2, 0, 0, 0, 2, last]))).collect()
    };
    assert_eq!(frames(&path("a.pcap")), left(&[1, 2, 5], 1));
    assert_eq!(frames(&path("b.pcap")), left(&[0, 4], 2));
    let counted = ["received", "forwarded", "dropped", "flow_hits", "flow_misses"];
    let counted = counted.map(|name| report.number(&format!("/forward/{name}")));
    assert_eq!(counted, [6_000, 5_000, 1_000, 3_000, 3_000]);
    assert_eq!(report.drops("/forward/drops"), [("route-drop".to_owned(), 1_000)].into());
}
