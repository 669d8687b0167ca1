//! A million frames and more through the full Internet table, from capture to captures, checked by another program.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use warmlane::functions::forward::control::full_table;
use warmlane_sys::random::Random;
use warmlane_system_tests::{LONG, forward};
use warmlane_testkit::process::Process;
use warmlane_testkit::traffic::{self, Target};
use warmlane_testkit::{Report, requirements};

const FRAMES: u32 = 1_050_000;

/// How many of the table's prefixes of each family the traffic is for.
const PREFIXES: usize = 20_000;

const CONFIG: &str = r#"
    [icmp] # Every error that is owed, so that each can be checked.
    rate = 1_000_000_000
    burst = 1_000_000

    [full-table]
    ipv4 = ["198.18.1.2", "198.18.2.2", "198.18.3.2"]
    ipv6 = ["2001:db8:0:a::2", "2001:db8:0:b::2", "2001:db8:0:c::2"]

    [[port]]
    name = "in"
    driver = { pcap = { read = "DIRECTORY/in.pcap", write = "DIRECTORY/back.pcap" } }
    addresses = ["192.0.2.1/24", "2001:db8:0:1::1/64", "fe80::1/64"]
    mac = "02:00:00:00:01:00"
    mtu = 9000

    [[port]]
    name = "a"
    driver = { pcap = { write = "DIRECTORY/a.pcap" } }
    addresses = ["198.18.1.1/24", "2001:db8:0:a::1/64"]
    mac = "02:00:00:00:01:0a"

    [[port]]
    name = "b"
    driver = { pcap = { write = "DIRECTORY/b.pcap" } }
    addresses = ["198.18.2.1/24", "2001:db8:0:b::1/64"]
    mac = "02:00:00:00:01:0b"
    mtu = 9000

    [[port]]
    name = "c"
    driver = { pcap = { write = "DIRECTORY/c.pcap" } }
    addresses = ["198.18.3.1/24", "2001:db8:0:c::1/64"]
    mac = "02:00:00:00:01:0c"
    mtu = 1400

    [[neighbour]]
    address = "198.18.1.2"
    mac = "02:00:00:00:02:0a"
    port = "a"

    [[neighbour]]
    address = "2001:db8:0:a::2"
    mac = "02:00:00:00:02:0a"
    port = "a"

    [[neighbour]]
    address = "198.18.2.2"
    mac = "02:00:00:00:02:0b"
    port = "b"

    [[neighbour]]
    address = "2001:db8:0:b::2"
    mac = "02:00:00:00:02:0b"
    port = "b"

    [[neighbour]]
    address = "198.18.3.2"
    mac = "02:00:00:00:02:0c"
    port = "c"
    vlan = 7

    [[neighbour]]
    address = "2001:db8:0:c::2"
    mac = "02:00:00:00:02:0c"
    port = "c"
    vlan = 7

    [[route]]
    prefix = "10.0.0.0/8"
    via = "198.18.3.2"

    [[route]]
    prefix = "10.1.0.0/16"
    via = "198.18.1.2"

    [[route]]
    prefix = "203.0.113.0/24"
    drop = true

    [[route]]
    prefix = "198.51.100.0/24"
    unreachable = true

    [[route]]
    prefix = "100.64.0.0/10"
    port = "b"

    [[route]]
    prefix = "2001:db8:d::/48"
    drop = true

    [[route]]
    prefix = "2001:db8:e::/48"
    unreachable = true
"#;

/// What the configuration's own routes and links lead to, as first address and length.
const OWN_IPV4: [(u32, u8); 7] = [
    (0x0a00_0000, 8),
    (0x0a01_0000, 16),
    (0xcb00_7100, 24),
    (0xc633_6400, 24),
    (0x6440_0000, 10),
    (0xc612_0100, 24),
    (0xc612_0202, 32),
];
const OWN_IPV6: [(u128, u8); 3] =
    [(0x2001_0db8_000d << 80, 48), (0x2001_0db8_000e << 80, 48), (0x2001_0db8_0000_000a << 64, 64)];

#[test]
fn a_million_frames_by_the_full_table() {
    if !requirements::programs(&["tshark", "python3"]) {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("router.toml"), CONFIG.replace("DIRECTORY", directory.path().to_str().unwrap())).unwrap();

    let ipv4 = full_table::ipv4().unwrap();
    let ipv6 = full_table::ipv6().unwrap();
    let mut list = BufWriter::new(File::create(path("prefixes.txt")).unwrap());
    ipv4.iter().try_for_each(|prefix| writeln!(list, "{prefix}")).unwrap();
    ipv6.iter().try_for_each(|prefix| writeln!(list, "{prefix}")).unwrap();
    list.into_inner().unwrap();

    let mut random = Random::new(0x1812);
    let mut ipv4_prefixes: Vec<(u32, u8)> = (0..PREFIXES)
        .map(|_| &ipv4[random.below(ipv4.len())])
        .map(|prefix| (prefix.first(), prefix.length()))
        .collect();
    let mut ipv6_prefixes: Vec<(u128, u8)> = (0..PREFIXES)
        .map(|_| &ipv6[random.below(ipv6.len())])
        .map(|prefix| (prefix.first(), prefix.length()))
        .collect();
    // A few in a hundred go where the table doesn't lead.
    for _ in 0..PREFIXES / 400 {
        ipv4_prefixes.extend(OWN_IPV4);
        ipv6_prefixes.extend(OWN_IPV6);
    }
    let target = Target {
        router: [2, 0, 0, 0, 1, 0],
        sender: [2, 0, 0, 0, 0, 9],
        ipv4: 0xc000_0201,
        ipv6: 0x2001_0db8_0000_0001_0000_0000_0000_0001,
        ipv4_prefixes,
        ipv6_prefixes,
    };
    let mut capture = BufWriter::new(File::create(path("in.pcap")).unwrap());
    traffic::write(&target, 0x791, FRAMES, &mut capture).unwrap();
    capture.into_inner().unwrap();

    let finished = Process::run(&mut forward(&path("router.toml")), LONG);
    let output = finished.expect_success("warmlane forward");
    let report = Report::parse(output);
    report.assert_balanced();
    fs::write(path("report.json"), output).unwrap();

    let checker = Path::new(env!("CARGO_MANIFEST_DIR")).join("forward/check.py");
    let mut check = Command::new("python3");
    check.arg(checker).args([path("router.toml"), path("report.json"), path("prefixes.txt")]);
    let finished = Process::run(&mut check, LONG);
    println!("{}", finished.expect_success("check.py"));
}
