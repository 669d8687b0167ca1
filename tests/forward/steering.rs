//! Ports steer packets to lanes: by their hash, and by rules.

use std::fs;
use std::process::Command;

use warmlane::wire::{Frame, Ipv4Fields, MacAddress, TcpFields, vxlan};
use warmlane_system_tests::{Driver, Lab, SHORT};
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::{Report, capture};

/// The kernel spreads flows over sockets.
#[test]
fn two_lanes_share_packet_sockets() {
    Lab::check_both_lanes(Driver::Packet);
}

/// Software spreads them anew, from each lane to the other.
#[test]
fn two_lanes_share_flows_by_another_hash() {
    Lab::check_both_lanes(Driver::SpreadPackets);
}

const COUNT: u32 = 12_000;

/// Frames of four kinds in turn, one of them in VXLAN.
fn write_capture(path: &std::path::Path) {
    let link = Frame::new().ethernet(MacAddress([2, 0, 0, 0, 1, 0]), MacAddress([2, 0, 0, 0, 0, 9]));
    let ip = link.ipv4(Ipv4Fields::new([192, 0, 2, 9].into(), [203, 0, 113, 5].into()));
    let inner = [&vxlan::header(100)[..], &[0; 60]].concat();
    let mut file = Vec::new();
    capture::begin(&mut file, capture::ETHERNET).unwrap();
    for number in 0..COUNT {
        let port = (number / 4 % 1_000) as u16;
        let frame = match number % 4 {
            0 => ip.udp(port, 53),
            1 => ip.udp(port, 123),
            2 => ip.tcp(TcpFields::new(port, 80)),
            _ => ip.udp(port, vxlan::PORT).payload(&inner),
        };
        capture::frame(&mut file, number, &frame.to_vec().unwrap(), 0).unwrap();
    }
    fs::write(path, file).unwrap();
}

fn forward(more: &[&str]) -> Report {
    let directory = tempfile::tempdir().unwrap();
    write_capture(&directory.path().join("in.pcap"));
    let mut command = Command::new(warmlane());
    command.current_dir(directory.path()).args(["forward", "--json", "--lanes", "2"]);
    command.args(["--port", "in=pcap:read=in.pcap", "--port", "out=null"]);
    command.args(["--neighbour", "192.0.2.2=02:00:00:00:02:02@out", "--route", "0.0.0.0/0 via 192.0.2.2"]);
    let report = Report::parse(Process::run(command.args(more), SHORT).expect_success("warmlane forward"));
    report.assert_balanced();
    report
}

fn lanes(report: &Report) -> [u64; 2] {
    ["/lanes/0/packets", "/lanes/1/packets"].map(|lane| report.number(lane))
}

#[test]
fn rules_choose_the_lane_or_drop() {
    let rules = [
        "--rule",
        "in,protocol=udp,from=192.0.2.0/24,to-port=53,queue=1",
        "--rule",
        "in,protocol=udp,to-port=123,drop",
        "--rule",
        "in,vni=100,queue=1",
    ];
    let report = forward(&rules);
    let each = u64::from(COUNT / 4);
    assert_eq!(lanes(&report), [each, 2 * each], "{:#}", report.value());
    assert_eq!(report.number("/ports/0/received/packets"), 3 * each);
    assert_eq!(report.number("/ports/0/received/drops/rule"), each);
    assert_eq!(report.number("/ports/1/transmitted/packets"), 3 * each);
}

#[test]
fn flows_are_spread_by_their_hash() {
    let report = forward(&["--rss", "in=microsoft"]);
    let [first, second] = lanes(&report);
    assert_eq!(first + second, u64::from(COUNT), "{:#}", report.value());
    assert!(first.abs_diff(second) < u64::from(COUNT / 10), "{first} and {second}");
    // Without it, a capture is one lane's.
    assert_eq!(lanes(&forward(&[])), [COUNT.into(), 0]);
}
