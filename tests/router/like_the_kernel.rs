//! The same packets through the same topology, once with the kernel alone and once with the router: what comes out is the same,
//! byte for byte, but for what is listed here with its reason.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use warmlane_system_tests::{RouterLab, SHORT};
use warmlane_testkit::namespace::Namespace;
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::requirements;

/// What came out where, by the name of the packet that went in.
type Outcome = BTreeMap<String, Vec<String>>;

/// The lab with a third host, routes of all kinds, and hosts that never answer.
struct Bench {
    lab: RouterLab,
    third: Namespace,
    /// The router has an interface for VLAN 7 in the west, and for VLAN 9 in the east.
    has_vlans: bool,
}

/// A gateway in each of the networks of the west, the east and the third host.
const GATEWAYS: [[&str; 3]; 2] =
    [["192.0.2.9", "198.51.100.9", "192.0.3.9"], ["2001:db8:1::9", "2001:db8:2::9", "2001:db8:3::9"]];

impl Bench {
    fn new() -> Option<Self> {
        let lab = RouterLab::new(1500, &["python3"])?;
        let third = lab.third_host();
        lab.hosts_take_redirected();
        RouterLab::take_redirected(&third, "x0");
        let has_vlans = requirements::interface_kind(&lab.router, "link e0 type vlan id 9");
        for (lower, vlan) in [("w0", 7), ("e0", 9)].into_iter().filter(|_| has_vlans) {
            let name = format!("{lower}.{vlan}");
            lab.router.ip(&format!("link add link {lower} name {name} type vlan id {vlan}"));
            lab.router.ip(&format!("link set {name} up"));
            lab.router.ip(&format!("address add 192.0.{vlan}.1/24 dev {name}"));
            lab.router.ip(&format!("address add 2001:db8:{vlan}::1/64 dev {name} nodad"));
            for gateway in [format!("192.0.{vlan}.9"), format!("2001:db8:{vlan}::9")] {
                lab.router.neighbour(&name, &gateway, "02:00:00:00:0b:0b");
            }
        }
        // Everybody is told everything.
        for (name, value) in [
            ("ipv4.icmp_ratelimit", "0"),
            ("ipv6.icmp.ratelimit", "0"),
            ("ipv4.icmp_msgs_per_sec", "100000"),
            ("ipv4.icmp_msgs_burst", "10000"),
        ] {
            let _ = lab.router.run(&format!("sysctl -w net.{name}={value}"));
        }
        let router = &lab.router;
        for (is_ipv6, [west, east, third]) in [false, true].into_iter().zip(GATEWAYS) {
            for (gateway, interface, mac) in
                [(west, "w0", "08:08"), (east, "e0", "09:09"), (third, "x0", "0a:0a")]
            {
                router.neighbour(interface, gateway, &format!("02:00:00:00:{mac}"));
            }
            let net = |number: &str, length: (u8, u8)| {
                if is_ipv6 {
                    format!("2001:db8:{number}::/{}", length.1)
                } else if number == "99" {
                    "10.99.0.0/16".to_owned()
                } else {
                    format!("203.0.{number}.0/{}", length.0)
                }
            };
            let add = |what: String| router.ip(&format!("route add {what}"));
            add(format!("{} via {west}", net("99", (16, 48))));
            add(format!("{} via {east}", net("113", (24, 48))));
            add(format!("{} via {east} mtu 1300", net("114", (24, 48))));
            add(format!("{} via {east} mtu lock 1300", net("115", (24, 48))));
            add(format!("{} via {west}", net("118", (24, 48))));
            add(format!("{} via {third}", net("119", (24, 48))));
            // Of both paths the MTU is the route's, and only one of them is there for all of the packets.
            add(format!("{} mtu 1300 nexthop via {east} nexthop via {third}", net("120", (24, 48))));
            if has_vlans {
                add(format!(
                    "{} via {}",
                    net("122", (24, 48)),
                    if is_ipv6 { "2001:db8:9::9" } else { "192.0.9.9" }
                ));
            }
            // By another way, if the type of service is what a rule asks for.
            let (family, to) = (if is_ipv6 { "-6" } else { "-4" }, net("121", (24, 48)));
            add(format!("{to} via {east}"));
            add(format!("{to} via {third} table 121"));
            router.ip(&format!("{family} rule add to {to} tos 0x10 lookup 121 priority 99"));
            for (kind, number) in [("unreachable", 1), ("prohibit", 2), ("blackhole", 3), ("throw", 4)] {
                let part = |net: &str| {
                    if is_ipv6 {
                        format!("2001:db8:{net}:{number}::/64")
                    } else {
                        format!("203.0.{net}.{}/28", number * 16)
                    }
                };
                add(format!("{kind} {}", part("116")));
                let family = if is_ipv6 { "-6" } else { "-4" };
                if kind != "throw" {
                    router.ip(&format!("{family} rule add to {} {kind} priority 100", part("117")));
                }
            }
        }
        Some(Self { lab, third, has_vlans })
    }

    /// Sends all packets from the west. `expected` came out another time.
    fn exchange(&self, expected: Option<&Outcome>) -> Outcome {
        let lab = &self.lab;
        // From here, so that a guest has it, too.
        let program = lab.directory().join("packets.py");
        std::fs::write(&program, include_str!("../src/packets.py")).expect("a writable directory");
        let mut line = format!(
            "python3 {} {} {}:w0 {}:e0 {}:x0{}",
            program.display(),
            lab.router.mac("w0"),
            lab.west.name(),
            lab.east.name(),
            self.third.name(),
            if self.has_vlans { " --vlans" } else { "" }
        );
        if let Some(expected) = expected {
            let path = lab.directory().join("expected.json");
            std::fs::write(&path, serde_json::to_string(expected).expect("plain"))
                .expect("a writable directory");
            write!(line, " --expected {}", path.display()).expect("a string takes all");
        }
        let mut words = line.split(' ');
        let mut command = std::process::Command::new(words.next().expect("a program"));
        let finished = Process::run(command.args(words), SHORT * 2);
        serde_json::from_str(finished.expect_success("packets.py")).expect("it prints JSON")
    }

    /// What is different between the kernel and the router on this path.
    fn differences(&self, path: &str, options: &str) -> Vec<Difference> {
        // Built before anything is measured against it.
        let _ = warmlane();
        let kernel = self.exchange(None);
        let process = self.lab.start("w0 e0 x0", &format!("--path {path} {options}"));
        let router = self.exchange(Some(&kernel));
        RouterLab::end(process);
        assert_eq!(kernel.len(), router.len());
        let came: usize = kernel.values().map(Vec::len).sum();
        assert!(came > kernel.len() / 2, "only {came} packets came of {}", kernel.len());
        let all = kernel.into_iter().zip(router.into_values());
        all.filter(|((_, kernel), router)| kernel != router)
            .map(|((name, kernel), router)| Difference { name, kernel, router })
            .collect()
    }
}

/// A packet of which something else comes out.
struct Difference {
    name: String,
    kernel: Vec<String>,
    router: Vec<String>,
}

/// Which packets may be treated otherwise on a path, by the beginnings of their names, and why.
fn known(path: &str) -> &'static [(&'static str, &'static str)] {
    match path {
        "user" => &[
            ("4 same interface, from the link", "no redirect is sent"),
            ("6 same interface, from the link", "no redirect is sent"),
            ("4 padded", "frames of less than 60 bytes keep their padding"),
            ("4 mtu of one of several", "another of the equal paths"),
            ("6 mtu of one of several", "another of the equal paths"),
        ],
        _ => &[],
    }
}

fn check(path: &str, options: &str) {
    let Some(bench) = Bench::new() else { return };
    let mut unknown = Vec::new();
    for Difference { name, kernel, router } in bench.differences(path, options) {
        match known(path).iter().find(|(beginning, _)| name.starts_with(beginning)) {
            Some((_, reason)) => eprintln!("{path}: {name}: {reason}"),
            None => unknown.push(format!("{name}:\n  kernel {kernel:#?}\n  router {router:#?}")),
        }
    }
    assert!(unknown.is_empty(), "{path}: {} differences\n{}", unknown.len(), unknown.join("\n"));
}

#[test]
fn packets_are_treated_alike_on_path_user() {
    check("user", "--icmp-rate 1000000");
}

#[test]
fn packets_are_treated_alike_on_path_tc() {
    check("tc", "");
}

#[test]
fn packets_are_treated_alike_on_path_xdp() {
    check("xdp", "");
}
