//! `warmlane router` and the kernel's devices that carry IP packets over IPv4: `ipip`, `sit` and `gre`, with another kernel's at the far end.
//!
//! ```text
//! west                  router                                     east
//! w0: 192.0.2.2 ------- w0: 192.0.2.1
//!                       t10: 10.9.0.1, 2001:db8:9::1 ~~~~~~~~~~~~~ t10: 10.9.0.2, 2001:db8:9::2
//!                       e0: 198.51.100.1 ------------------------- e0: 198.51.100.2
//! ```

use serde_json::Value;
use warmlane::wire::{Frame, IpProtocol, Ipv4Fields, MacAddress, checksum, gre};
use warmlane_system_tests::{RouterLab, SHORT, send_3_mib};
use warmlane_testkit::exchange::until;
use warmlane_testkit::namespace::Namespace;
use warmlane_testkit::process::Process;

const NEAR: &str = "198.51.100.1";
const FAR: &str = "198.51.100.2";

/// The same network on the far side, and the host in the west.
const INSIDE: [&str; 2] = ["10.9.0.2", "2001:db8:9::2"];
const WEST: [&str; 2] = ["192.0.2.2", "2001:db8:1::2"];

/// A device of a kind on both sides, which carries IPv4, IPv6 or both.
#[derive(Debug, Clone, Copy)]
struct Kind {
    name: &'static str,
    options: &'static str,
    carries: [bool; 2],
    /// Longest packet inside.
    mtu: u32,
}

const IPIP: Kind = Kind { name: "ipip", options: "", carries: [true, false], mtu: 1480 };
const SIT: Kind = Kind { name: "sit", options: "mode ip6ip", carries: [false, true], mtu: 1480 };
const GRE: Kind = Kind { name: "gre", options: "", carries: [true; 2], mtu: 1476 };
const WITH_KEY: Kind = Kind { name: "gre", options: "key 7", carries: [true; 2], mtu: 1472 };

impl Kind {
    fn versions(self) -> impl Iterator<Item = usize> {
        [0, 1].into_iter().filter(move |version| self.carries[*version])
    }

    fn add(self, namespace: &Namespace, local: &str, remote: &str, number: u8) {
        let Self { name, options, .. } = self;
        namespace.ip(&format!("link add t10 type {name} {options} local {local} remote {remote} ttl 64"));
        namespace.ip("link set t10 up");
        for version in self.versions() {
            let address = [format!("10.9.0.{number}/24"), format!("2001:db8:9::{number}/64 nodad")];
            namespace.ip(&format!("address add {} dev t10", address[version]));
        }
    }

    /// A lab with such a tunnel; `None`, and said so, where the kernel has none.
    fn lab(self) -> Option<RouterLab> {
        let Self { name, options, .. } = self;
        let lab =
            RouterLab::where_there_is(&format!("type {name} {options} local 192.0.2.77 remote 192.0.2.78"))?;
        self.add(&lab.router, NEAR, FAR, 1);
        self.add(&lab.east, FAR, NEAR, 2);
        for version in self.versions() {
            lab.east.ip(&format!("route add {} dev t10", ["192.0.2.0/24", "2001:db8:1::/64"][version]));
        }
        Some(lab)
    }
}

fn tunnel(lab: &RouterLab) -> Value {
    let status = lab.ask("status");
    let mut all = status["tunnels"].as_array().into_iter().flatten();
    all.find(|tunnel| tunnel["device"] == "t10").unwrap_or_else(|| panic!("{status:#}")).clone()
}

/// Packets that lanes sent into the tunnel, and took out of it.
fn through(lab: &RouterLab) -> [u64; 2] {
    let tunnel = tunnel(lab);
    ["encapsulated", "decapsulated"].map(|way| tunnel[way]["packets"].as_u64().expect("a count"))
}

fn check(kind: Kind) {
    let Some(lab) = kind.lab() else { return };
    lab.router.set("net.ipv4.icmp_echo_ignore_broadcasts", "0");
    let process = lab.start("w0 e0", "");
    for (from, addresses) in [(&lab.west, INSIDE), (&lab.east, WEST)] {
        for version in kind.versions() {
            let address = addresses[version];
            RouterLab::wait_until(address, SHORT, || {
                let before = through(&lab);
                RouterLab::check_ping(from, &[address]);
                through(&lab).iter().zip(before).all(|(after, before)| after - before >= 3)
            });
        }
    }
    for version in kind.versions() {
        // The router itself is the kernel's, though packets for it come to lanes: they get there as they came.
        RouterLab::check_ping(&lab.east, &[["10.9.0.1", "2001:db8:9::1"][version]]);
        // Groups are, too, as routing protocols need them.
        if version == 0 {
            let line = "ping -n -c 3 -i 0.2 -W 10 -I t10 224.0.0.1";
            lab.east.run(line).expect_success(line);
        }
        let longest = kind.mtu - [28, 48][version];
        RouterLab::check_ping_with(&lab.west, &format!("-M do -s {longest} {}", INSIDE[version]));
        let too_long = format!("ping -n -c 2 -i 0.2 -W 2 -M do -s {} {}", longest + 1, INSIDE[version]);
        let refused = lab.west.run(&too_long);
        assert!(!refused.status.success(), "{}", refused.text());
    }
    let mut server = lab.east.spawn("iperf3 --server --forceflush");
    server.wait_for("Server listening", SHORT);
    let before = through(&lab);
    for version in kind.versions() {
        for direction in ["", "--reverse"] {
            send_3_mib(&lab.west, INSIDE[version], direction);
        }
    }
    let after = through(&lab);
    assert!(after.iter().zip(before).all(|(after, before)| after - before > 1_000), "{before:?} {after:?}");
    lab.verify();
    finish(process);
}

fn finish(process: Process) -> warmlane_testkit::Report {
    RouterLab::finish(process)
}

#[test]
fn ipv4_in_ipv4() {
    check(IPIP);
}

#[test]
fn ipv6_in_ipv4() {
    check(SIT);
}

#[test]
fn gre_carries_both() {
    check(GRE);
}

#[test]
fn gre_with_a_key_and_broken_packets() {
    check(WITH_KEY);
    let Some(lab) = WITH_KEY.lab() else { return };
    let process = lab.start("w0 e0", "");
    RouterLab::check_ping(&lab.west, &[INSIDE[0]]);
    let outside: MacAddress = lab.router.mac("e0").parse().expect("an address");
    let far: MacAddress = lab.east.mac("e0").parse().expect("an address");
    let packet = |header: &[u8], change: &dyn Fn(&mut Vec<u8>)| {
        let fields = Ipv4Fields::new([10, 9, 0, 2].into(), [192, 0, 2, 2].into());
        let link = Frame::new().ethernet(outside, far);
        let whole = link.ipv4(fields).udp(4241, 4242).payload(b"who reads this?").to_vec().expect("a frame");
        let mut inside = whole[14..].to_vec();
        change(&mut inside);
        let data = [header, &inside].concat();
        let around = Ipv4Fields::new([198, 51, 100, 2].into(), [198, 51, 100, 1].into());
        let ip = around.header(IpProtocol::GRE, (20 + data.len()) as u16);
        [&whole[..14], &ip, &data].concat()
    };
    let right = gre::header_with_key(warmlane::wire::EtherType::IPV4, 7);
    let unanswered = || no_ports(&lab.west);
    let before = unanswered();
    let frames = [
        packet(&right, &|_| {}),
        // The checksum of the header inside, and its length.
        packet(&right, &|inside| inside[10] ^= 1),
        packet(&right, &|inside| {
            inside[2] = 9;
            inside[10..12].fill(0);
            let header = inside.first_chunk().expect("a header");
            let sum = checksum::ipv4_header_checksum20(header).to_be_bytes();
            inside[10..12].copy_from_slice(&sum);
        }),
        // Another key, none, a flag of RFC 1701: the kernel gets these, and has no use for them either.
        packet(&gre::header_with_key(warmlane::wire::EtherType::IPV4, 8), &|_| {}),
        packet(&gre::header(warmlane::wire::EtherType::IPV4), &|_| {}),
        packet(&[0x60, 0, 8, 0, 0, 0, 0, 7], &|_| {}),
        packet(&right, &|_| {}),
    ];
    let hexadecimal =
        |frame: &Vec<u8>| frame.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    let mut command = lab.east.command("python3");
    command.args(["-c", include_str!("../src/send_frames.py"), "e0"]);
    command.args(frames.iter().map(hexadecimal));
    Process::run(&mut command, SHORT).expect_success("send_frames.py");
    until("those that are right have come", || unanswered() >= before + 2);
    RouterLab::check_ping(&lab.west, &[INSIDE[0]]);
    assert_eq!(unanswered(), before + 2, "those that are right, and no others");
    let report = finish(process);
    let drops = report.drops(&(report.stage("forwarder") + "/drops"));
    for (reason, count) in [("inner-checksum", 1), ("inner-length", 1)] {
        assert_eq!(drops.get(reason), Some(&count), "{reason}: {:#}", report.value());
    }
}

/// Datagrams for ports where nobody listens.
fn no_ports(namespace: &Namespace) -> u64 {
    let file = namespace.run("cat /proc/net/snmp");
    let mut lines = file.expect_success("cat").lines().filter(|line| line.starts_with("Udp:"));
    let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let mut named = names.split(' ').zip(values.split(' '));
    let value = named.find(|(name, _)| *name == "NoPorts").and_then(|(_, value)| value.parse().ok());
    value.unwrap_or_else(|| panic!("{names}"))
}
