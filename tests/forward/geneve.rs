//! The same network as in `vxlan.rs` bridged by GENEVE (RFC 8926).

use std::fs;
use std::process::Command;

use warmlane::drivers::pcap::{Format, Writer};
use warmlane::wire::{Frame, Ipv4Fields, geneve};
use warmlane_system_tests::{SHORT, forward};
use warmlane_testkit::process::Process;
use warmlane_testkit::requirements;

use super::vxlan::Underlay;

const IPV4: Underlay = Underlay {
    protocol: "geneve",
    driver: "packet",
    is_ipv6: false,
    mtu: 1500,
    gro: false,
    suppression: false,
};

/// With the kernel's device at the far end, which not every kernel has.
mod in_a_guest {
    use super::super::vxlan::{BEHIND_FAR_MAC, Bridge, FAR_MAC, HOST_MAC, VNI, counted};
    use super::*;
    use warmlane_testkit::exchange::until;

    #[test]
    fn hosts_reach_each_other_over_ipv4() {
        let Some(bridge) = Bridge::new(IPV4) else { return };
        bridge.check_pings();
        bridge.check_transfers();
        bridge.finish();
    }

    #[test]
    fn hosts_reach_each_other_over_ipv6() {
        let Some(bridge) = Bridge::new(Underlay { is_ipv6: true, ..IPV4 }) else { return };
        bridge.check_pings();
        bridge.check_transfers();
        bridge.finish();
    }

    #[test]
    fn broken_headers_are_dropped_and_counted() {
        let Some(bridge) = Bridge::new(IPV4) else { return };
        let fields = Ipv4Fields::new([10, 9, 0, 9].into(), [10, 9, 0, 1].into());
        let frame = Frame::new().ethernet(HOST_MAC, BEHIND_FAR_MAC).ipv4(fields).udp(7, 4242);
        let frame = frame.payload(b"who reads this?").to_vec().expect("a frame");
        let with = |begin: [u8; 4], options: &[u8]| {
            let fields = Ipv4Fields::new([192, 0, 2, 2].into(), [192, 0, 2, 1].into());
            let data = [&begin, &geneve::header(VNI)[4..], options, &frame].concat();
            let around = Frame::new().ethernet(bridge.gateway_mac, FAR_MAC).ipv4(fields);
            around.udp(50_000, geneve::PORT).payload(&data).to_vec().expect("a frame")
        };
        let unanswered = counted(&bridge.host, "Udp:", "NoPorts");
        bridge.send(&[
            with([0, 0, 0x65, 0x58], &[]),
            // An option that need not be understood, of eight bytes.
            with([2, 0, 0x65, 0x58], &[1, 2, 3, 1, 9, 9, 9, 9]),
            // Critical ones, as the header says, and as the option says.
            with([1, 0x40, 0x65, 0x58], &[1, 2, 0x83, 0]),
            with([1, 0, 0x65, 0x58], &[1, 2, 0x83, 0]),
            // Options beyond the packet, and one beyond the options.
            with([0x3f, 0, 0x65, 0x58], &[]),
            with([1, 0, 0x65, 0x58], &[1, 2, 3, 1]),
            with([0x40, 0, 0x65, 0x58], &[]),
            with([0, 0x80, 0x65, 0x58], &[]),
            with([0, 0, 0x08, 0x00], &[]),
            with([0, 0, 0x65, 0x58], &[]),
        ]);
        let answered = || counted(&bridge.host, "Udp:", "NoPorts") - unanswered;
        until("those that are right have come", || answered() >= 3);
        assert_eq!(answered(), 3, "those that are right, and no others");
        let report = bridge.finish();
        let drops = report.drops(&(report.stage("vxlan") + "/drops"));
        let expected = [
            ("critical-option", 2),
            ("outer-length", 2),
            ("version", 1),
            ("control-message", 1),
            ("not-ethernet", 1),
        ];
        for (reason, count) in expected {
            assert_eq!(drops.get(reason), Some(&count), "{reason}: {:#}", report.value());
        }
    }
}

/// From file to file, so that no kernel needs to have GENEVE.
#[test]
fn tshark_reads_what_is_sent() {
    if !requirements::programs(&["tshark"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let place = directory.path().to_str().expect("a path in UTF-8");
    // Of checksums 1 is right, 3 is that there is none: over IPv4 it is left out unless it is asked for.
    for (near, far, length, ip, dscp, expected) in [
        ("192.0.2.1", "192.0.2.2", 24, "ip", "ip.dsfield.dscp", ("46,46", "3,1")),
        ("2001:db8::1", "2001:db8::2", 64, "ipv6", "ipv6.tclass.dscp", ("46", "1,1")),
    ] {
        let config = format!(
            r#"
            [[port]]
            name = "underlay"
            driver = {{ pcap = {{ write = "{place}/out.pcap" }} }}
            addresses = ["{near}/{length}"]
            mac = "02:00:00:00:01:01"

            [[port]]
            name = "access"
            driver = {{ pcap = {{ read = "{place}/in.pcap" }} }}
            mac = "02:00:00:00:01:02"

            [[neighbour]]
            address = "{far}"
            mac = "02:00:00:00:02:02"
            port = "underlay"

            [[geneve]]
            vni = 0x123456
            local = "{near}"
            remotes = ["{far}"]
            access = [{{ port = "access" }}]
            "#
        );
        let path = directory.path().join("gateway.toml");
        fs::write(&path, config).expect("a writable directory");
        let mut writer = Writer::create(&directory.path().join("in.pcap"), Format::Pcap).expect("a file");
        let fields = Ipv4Fields {
            traffic_class: 0b1011_1010,
            ..Ipv4Fields::new([10, 9, 0, 1].into(), [10, 9, 0, 2].into())
        };
        let frame = Frame::new()
            .ethernet([2, 0, 0, 0, 0, 2].into(), [2, 0, 0, 0, 0, 1].into())
            .ipv4(fields)
            .udp(4241, 4242)
            .payload(b"in a network")
            .to_vec()
            .expect("it fits");
        writer.write_frame(0, &frame).expect("space");
        writer.finish().expect("space");
        Process::run(&mut forward(&path), SHORT).expect_success("warmlane forward");
        let mut tshark = Command::new("tshark");
        tshark.args(["-n", "-r", &format!("{place}/out.pcap"), "-o", "udp.check_checksum:TRUE"]);
        tshark.args(["-o", "ip.check_checksum:TRUE", "-T", "fields"]);
        for field in [
            "frame.protocols",
            "geneve.vni",
            "udp.checksum.status",
            "udp.dstport",
            dscp,
            "_ws.malformed",
            "_ws.expert.message",
        ] {
            tshark.args(["-e", field]);
        }
        let read = Process::run(&mut tshark, SHORT);
        let read = read.expect_success("tshark");
        let columns: Vec<_> = read.trim_end_matches('\n').split('\t').collect();
        let [layers, vni, checksums, ports, classes, malformed, said] = columns[..] else {
            panic!("{read:?}")
        };
        assert_eq!(layers, format!("eth:ethertype:{ip}:udp:geneve:eth:ethertype:ip:udp:data"));
        assert_eq!(u32::from_str_radix(vni.trim_start_matches("0x"), 16), Ok(0x12_3456), "{read:?}");
        assert_eq!(((classes, checksums), ports), (expected, "6081,4242"), "{read:?}");
        assert_eq!((malformed, said), ("", ""), "{read:?}");
    }
}
