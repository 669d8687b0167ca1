//! What `warmlane gen` sends is what tshark decodes: every kind of packet, every order of a field, all checksums.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use warmlane_system_tests::{SHORT, turn};
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::requirements;

/// Packets of each stream.
const PACKETS: usize = 40;

const NETWORKS: [&str; 2] = [
    r#"ipv4 = { source = "198.18.0.1", destination = "198.19.0.1", dscp = 10 }"#,
    r#"ipv6 = { source = "2001:2::1", destination = "2001:2:0:8000::1", flow-label = 99 }"#,
];
const TRANSPORTS: [&str; 3] = [
    "udp = { source = 1024, destination = 9 }",
    r#"tcp = { source = 1024, destination = 80, sequence = 1000, flags = "ack,psh" }"#,
    "icmp = { identifier = 77 }",
];
const TAGS: [&str; 3] = ["", "vlan = [{ id = 100 }]", "vlan = [{ id = 7, priority = 2 }, { id = 8 }]"];

/// A stream: its packet, the field that varies and how, what tshark calls that field, and its values as tshark shows
/// them, if they are the same in every run.
struct Case {
    packet: String,
    vary: String,
    field: &'static str,
    values: Vec<String>,
    layers: &'static str,
    /// What tshark says of its checksums, as a column of the words below.
    checksums: Checksums,
}

#[derive(Clone, Copy, PartialEq)]
enum Checksums {
    /// All that there are, at least one, are good.
    Good,
    /// The outer UDP header has none; the others are good.
    OuterAbsent,
    /// The packet has no header with one.
    None,
}

impl Checksums {
    /// 1 is good, 3 is absent; so is 4, absent over IPv6, which RFC 6935 section 5 allows to tunnels and tshark does not; 2
    /// would be one that nobody has verified.
    fn are(self, columns: &[&str]) -> bool {
        let all: Vec<&str> =
            columns.iter().flat_map(|all| all.split(',')).filter(|status| !status.is_empty()).collect();
        let absent = all.iter().filter(|status| ["3", "4"].contains(status)).count();
        let good = all.iter().filter(|status| **status == "1").count();
        good + absent == all.len()
            && match self {
                Self::Good => good > 0 && absent == 0,
                Self::OuterAbsent => good > 0 && absent == 1,
                Self::None => all.is_empty(),
            }
    }
}

/// Every template, with one field that varies.
fn templates() -> Vec<Case> {
    let mut cases = Vec::new();
    for (family, network) in NETWORKS.iter().enumerate() {
        for (kind, transport) in TRANSPORTS.iter().enumerate() {
            for tags in TAGS {
                let (vary, field) = match kind {
                    0 => ("udp.source", "udp.srcport"),
                    1 => ("tcp.source", "tcp.srcport"),
                    _ => ("icmp.sequence", ["icmp.seq", "icmpv6.echo.sequence_number"][family]),
                };
                let first = if kind == 2 { 0 } else { 1024 };
                cases.push(Case {
                    packet: format!("{tags}\n{network}\n{transport}"),
                    vary: format!("field = \"{vary}\"\ncount = 10\nstep = 3"),
                    field,
                    values: (0..10).map(|turn| (first + 3 * turn).to_string()).collect(),
                    layers: ["ip", "ipv6"][family],
                    checksums: Checksums::Good,
                });
            }
        }
        // A tunnel with each family inside and outside, its outer checksum computed.
        for inner in NETWORKS {
            let inner = format!("{{ {inner}, {} }}", TRANSPORTS[1]);
            cases.push(Case {
                packet: format!("{network}\nvxlan = {{ vni = 5, checksum = true, inner = {inner} }}"),
                vary: "field = \"inner.tcp.sequence\"\nvalues = [1, 70000, 4294967295, 0]".to_owned(),
                field: "tcp.seq_raw",
                values: ["1", "70000", "4294967295", "0"].map(str::to_owned).to_vec(),
                layers: "vxlan",
                checksums: Checksums::Good,
            });
        }
        // And without one, as RFC 7348 section 5 has it.
        cases.push(Case {
            packet: format!(
                "{network}\nvxlan = {{ vni = 5, inner = {{ {}, {} }} }}",
                NETWORKS[0], TRANSPORTS[2]
            ),
            vary: "field = \"inner.icmp.sequence\"\ncount = 3".to_owned(),
            field: "icmp.seq",
            values: ["0", "1", "2"].map(str::to_owned).to_vec(),
            layers: "vxlan",
            checksums: Checksums::OuterAbsent,
        });
        // The payload is all that IP carries.
        cases.push(Case {
            packet: (*network).to_owned(),
            vary: "field = \"ethernet.source\"\ncount = 2".to_owned(),
            field: "eth.src",
            values: ["02:00:00:00:00:01", "02:00:00:00:00:02"].map(str::to_owned).to_vec(),
            layers: ["ip", "ipv6"][family],
            checksums: [Checksums::Good, Checksums::None][family],
        });
    }
    // And all that Ethernet does.
    for tags in TAGS {
        cases.push(Case {
            packet: tags.to_owned(),
            vary: "field = \"ethernet.source\"\ncount = 2".to_owned(),
            field: "eth.src",
            values: ["02:00:00:00:00:01", "02:00:00:00:00:02"].map(str::to_owned).to_vec(),
            layers: "ethertype",
            checksums: Checksums::None,
        });
    }
    cases
}

/// Every field, and every rule by which one varies.
fn fields() -> Vec<Case> {
    let mut cases = Vec::new();
    let plain = |vary: &str, field, values: &[&str]| Case {
        packet: format!("vlan = [{{ id = 1 }}]\n{}\n{}", NETWORKS[0], TRANSPORTS[0]),
        vary: vary.to_owned(),
        field,
        values: values.iter().map(|&value| value.to_owned()).collect(),
        layers: "udp",
        checksums: Checksums::Good,
    };
    let addresses = ["198.18.0.9", "10.0.0.1", "192.0.2.255"];
    let list =
        "field = \"ipv4.source\"\norder = \"list\"\nvalues = [\"198.18.0.9\", \"10.0.0.1\", \"192.0.2.255\"]";
    cases.push(plain(list, "ip.src", &addresses));
    cases.push(plain(&list.replace("\"list\"", "\"random\""), "ip.src", &addresses));
    cases.push(plain(&list.replace("\"list\"", "\"zipf\""), "ip.src", &addresses));
    cases.push(plain("field = \"ipv4.ttl\"\ncount = 4\nstep = -1", "ip.ttl", &["64", "63", "62", "61"]));
    cases.push(plain("field = \"ipv4.dscp\"\ncount = 3", "ip.dsfield.dscp", &["10", "11", "12"]));
    cases.push(plain("field = \"vlan.id\"\ncount = 3", "vlan.id", &["1", "2", "3"]));
    cases.push(plain("field = \"vlan.priority\"\ncount = 3", "vlan.priority", &["0", "1", "2"]));
    cases.push(plain(
        "field = \"ipv4.identification\"\ncount = 3\nstep = 1000",
        "ip.id",
        &["0x0000", "0x03e8", "0x07d0"],
    ));
    cases.push(plain(
        "field = \"ipv4.destination\"\ncount = 3",
        "ip.dst",
        &["198.19.0.1", "198.19.0.2", "198.19.0.3"],
    ));
    cases.push(plain("field = \"udp.destination\"\ncount = 2", "udp.dstport", &["9", "10"]));
    let sources = ["02:00:00:00:00:01", "02:00:00:00:00:02"];
    cases.push(plain("field = \"ethernet.source\"\ncount = 2", "eth.src", &sources));
    let over = |network: usize, transport: &str, vary: &str, field, values: &[&str]| Case {
        packet: format!("{}\n{transport}", NETWORKS[network]),
        vary: vary.to_owned(),
        field,
        values: values.iter().map(|&value| value.to_owned()).collect(),
        layers: ["ip", "ipv6"][network],
        checksums: Checksums::Good,
    };
    let tcp = TRANSPORTS[1];
    cases.push(over(0, tcp, "field = \"tcp.destination\"\ncount = 2", "tcp.dstport", &["80", "81"]));
    cases.push(over(
        1,
        tcp,
        "field = \"tcp.acknowledgement\"\nvalues = [1, 65536]",
        "tcp.ack_raw",
        &["1", "65536"],
    ));
    cases.push(over(
        0,
        tcp,
        "field = \"tcp.window\"\nvalues = [1, 65535]",
        "tcp.window_size_value",
        &["1", "65535"],
    ));
    cases.push(over(0, TRANSPORTS[2], "field = \"icmp.identifier\"\ncount = 2", "icmp.ident", &["77", "78"]));
    let udp = TRANSPORTS[0];
    let list = "field = \"ipv6.source\"\nvalues = [\"2001:2::9\", \"2001:2::ffff:1\"]";
    cases.push(over(1, udp, list, "ipv6.src", &["2001:2::9", "2001:2::ffff:1"]));
    let steps = "field = \"ipv6.destination\"\ncount = 2";
    cases.push(over(1, udp, steps, "ipv6.dst", &["2001:2:0:8000::1", "2001:2:0:8000::2"]));
    cases.push(over(
        1,
        udp,
        "field = \"ipv6.flow-label\"\ncount = 2",
        "ipv6.flow",
        &["0x000063", "0x000064"],
    ));
    cases.push(over(1, udp, "field = \"ipv6.hop-limit\"\ncount = 2\nstep = -1", "ipv6.hlim", &["64", "63"]));
    let inner = format!("{{ {}, {udp} }}", NETWORKS[0]);
    let tunnel = format!("vxlan = {{ vni = 5, checksum = true, inner = {inner} }}");
    cases.push(over(0, &tunnel, "field = \"vxlan.vni\"\ncount = 2", "vxlan.vni", &["5", "6"]));
    cases.push(over(0, &tunnel, "field = \"udp.source\"\ncount = 2\nstep = 5", "udp.srcport", &["1024"]));
    let random = "field = \"udp.source\"\norder = \"random\"\ncount = 3";
    cases.push(over(1, udp, random, "udp.srcport", &["1024", "1025", "1026"]));
    let macs = ["02:00:00:00:00:02", "02:00:00:00:00:03"];
    cases.push(plain("field = \"ethernet.destination\"\ncount = 2", "eth.dst", &macs));
    cases.push(over(0, tcp, "field = \"tcp.sequence\"\ncount = 2", "tcp.seq_raw", &["1000", "1001"]));
    let echo = TRANSPORTS[2];
    cases.push(over(
        1,
        echo,
        "field = \"icmp.identifier\"\ncount = 2",
        "icmpv6.echo.identifier",
        &["0x004d", "0x004e"],
    ));
    let tagged = format!("{}\n{udp}", TAGS[2]);
    cases.push(over(0, &tagged, "field = \"vlan2.id\"\ncount = 3", "vlan.id", &["8", "9", "10"]));
    cases.push(over(0, &tagged, "field = \"vlan2.priority\"\ncount = 3", "vlan.priority", &["0", "1", "2"]));
    let inside = |vary: &str, field, values: &[&str]| over(0, &tunnel, vary, field, values);
    cases.push(inside("field = \"inner.ethernet.source\"\ncount = 2", "eth.src", &sources));
    cases.push(inside("field = \"inner.ipv4.ttl\"\ncount = 2\nstep = -1", "ip.ttl", &["64", "63"]));
    cases.push(inside("field = \"inner.ipv4.source\"\ncount = 2", "ip.src", &["198.18.0.1", "198.18.0.2"]));
    cases.push(inside("field = \"inner.udp.destination\"\ncount = 2", "udp.dstport", &["9", "10"]));
    cases
}

#[test]
fn tshark_finds_every_field_and_no_bad_checksum() {
    let _turn = turn::beside_others();
    if !requirements::programs(&["tshark"]) {
        return;
    }
    let cases: Vec<Case> = templates().into_iter().chain(fields()).collect();
    // tshark takes its time to start: on two CPUs two at once.
    std::thread::scope(|scope| {
        for half in 0..2 {
            let cases = &cases;
            scope.spawn(move || check(cases.iter().enumerate().skip(half).step_by(2)));
        }
    });
}

fn check<'a>(cases: impl Iterator<Item = (usize, &'a Case)>) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (number, case) in cases {
        let path = |name: &str| directory.path().join(name);
        let Case { packet, vary, .. } = case;
        let text = format!(
            "[[stream]]\nsize = \"180,181\"\npayload = \"random\"\n[stream.packet]\n{packet}\n[[stream.vary]]\n{vary}\n"
        );
        fs::write(path("streams.toml"), &text).unwrap();
        let mut generate = Command::new(warmlane());
        generate.args(["gen", "run", "--json", "--config"]).arg(path("streams.toml"));
        generate.arg("--transmit").arg(format!("pcap:write={}", path("out.pcap").display()));
        generate.args(["--count", &PACKETS.to_string()]);
        Process::run(&mut generate, SHORT).expect_success("warmlane gen");

        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(path("out.pcap"));
        for layer in ["ip", "tcp", "udp"] {
            tshark.arg("-o").arg(format!("{layer}.check_checksum:TRUE"));
        }
        tshark.args(["-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,", "-E", "separator=;"]);
        tshark.args(["-e", "frame.len", "-e", "frame.protocols", "-e", case.field]);
        for checksum in ["ip", "udp", "tcp", "icmp", "icmpv6"] {
            tshark.args(["-e", &format!("{checksum}.checksum.status")]);
        }
        tshark.args(["-e", "_ws.malformed"]);
        let finished = Process::run(&mut tshark, SHORT);
        let output = finished.expect_success("tshark");
        let mut seen = BTreeSet::new();
        let mut packets = 0;
        for line in output.lines() {
            let columns: Vec<&str> = line.split(';').collect();
            let [length, layers, value, checksums @ .., malformed] = &*columns else { panic!("{line}") };
            assert_eq!(*length, ["176", "177"][packets % 2], "case {number}: {line}\n{text}");
            assert!(layers.split(':').any(|layer| layer == case.layers), "case {number}: {line}\n{text}");
            assert!(case.checksums.are(checksums), "case {number}: {line}\n{text}");
            assert_eq!(*malformed, "", "case {number}: {line}\n{text}");
            // Of a tunnel's headers the inner one comes last.
            seen.extend(value.rsplit(',').next().map(str::to_owned));
            packets += 1;
        }
        assert_eq!(packets, PACKETS, "case {number}\n{text}");
        let expected: BTreeSet<String> = case.values.iter().cloned().collect();
        assert_eq!(seen, expected, "case {number}\n{text}");
    }
}
