//! Interfaces that stand on others, or carry no frames of their own, on the paths inside the kernel.
//!
//! Where this kernel lacks some of them, their tests say that they are skipped; a guest with Debian's kernel runs all of them.

use warmlane_system_tests::{RouterLab, SHORT};
use warmlane_testkit::namespace::{self, Namespace};

use super::devices::host_on_vlan;

/// A network behind the host in the east.
const FAR: &str = "203.0.113.1";

/// A host reaches these addresses, and the program of the router's interface in front of it forwards that. The first packet to each may wait
/// for its neighbour, and on path `xdp` one in a second is the kernel's, so that it checks whether that is there.
#[track_caller]
fn check_forwarded(lab: &RouterLab, interface: &str, host: &Namespace, addresses: &[&str]) {
    let before = lab.forwarded_from(interface);
    RouterLab::check_ping(host, addresses);
    let after = lab.forwarded_from(interface);
    assert!(
        after >= before + addresses.len() as u64,
        "{interface}: {before}, {after}: {:#}",
        lab.ask("counters")
    );
}

/// Starts the router on path `tc` with an interface beside that in the west, and checks that packets are forwarded out of it.
#[track_caller]
fn check_tunnel(lab: &RouterLab, name: &str) {
    for (host, last) in [(&lab.router, 1), (&lab.east, 2)] {
        host.ip(&format!("address add 10.9.0.{last}/30 dev {name}"));
        host.ip(&format!("link set {name} up"));
    }
    lab.east.ip("link set lo up");
    lab.east.ip(&format!("address add {FAR}/32 dev lo"));
    lab.east.ip(&format!("route add 192.0.2.0/24 dev {name}"));
    lab.router.ip(&format!("route add {FAR}/32 dev {name}"));
    let process = lab.start(&format!("w0 e0 {name}"), "--path tc");
    check_forwarded(lab, "w0", &lab.west, &[FAR, "10.9.0.2"]);
    // Longer than what the tunnel carries: the kernel says so.
    let long = lab.west.run(&format!("ping -n -M do -c 2 -i 0.2 -W 5 -s 1472 {FAR}"));
    assert!(long.text().contains("mtu"), "{}", long.text());
    // What comes in by it begins with no Ethernet header, and is the kernel's.
    assert_eq!(lab.forwarded_from(name), 0);
    assert_eq!(lab.verify()["equal"], true);
    RouterLab::end(process);
}

#[test]
fn tunnels_of_ip() {
    for kind in ["gre", "ipip"] {
        let between = |own: u8, other: u8| {
            format!("type {kind} local 198.51.100.{own} remote 198.51.100.{other} ttl 64")
        };
        let Some(lab) = RouterLab::where_there_is(&between(1, 2)) else { return };
        lab.router.ip(&format!("link add g0 {}", between(1, 2)));
        lab.east.ip(&format!("link add g0 {}", between(2, 1)));
        check_tunnel(&lab, "g0");
    }
}

#[test]
fn tunnels_of_wireguard() {
    let Some(lab) = RouterLab::where_there_is("type wireguard") else { return };
    if !warmlane_testkit::requirements::programs(&["wg"]) {
        return;
    }
    let ends = [(&lab.router, "router", 1), (&lab.east, "east", 2)];
    let file = |name: &str| lab.directory().join(name).display().to_string();
    let run = |host: &Namespace, line: &str| {
        let mut command = host.command("bash");
        command.args(["-c", line]);
        warmlane_testkit::process::Process::run(&mut command, SHORT).expect_success(line);
    };
    for (host, name, _) in ends {
        host.ip("link add wg0 type wireguard");
        let key = file(name);
        run(host, &format!("umask 077 && wg genkey >{key} && wg pubkey <{key} >{key}.public"));
    }
    for ((host, name, _), (_, other, last)) in ends.into_iter().zip(ends.into_iter().rev()) {
        let (key, public) = (file(name), file(&format!("{other}.public")));
        run(
            host,
            &format!(
                "wg set wg0 listen-port 7000 private-key {key} peer $(<{public}) allowed-ips 0.0.0.0/0 endpoint 198.51.100.{last}:7000"
            ),
        );
    }
    check_tunnel(&lab, "wg0");
}

/// Packets are forwarded both ways by an interface that gets the addresses of e0.
fn check_instead_of_e0(lab: &RouterLab, interface: &str) {
    lab.router.ip("address flush dev e0");
    lab.router.ip(&format!("address add 198.51.100.1/24 dev {interface}"));
    lab.router.ip(&format!("address add 2001:db8:2::1/64 dev {interface} nodad"));
    RouterLab::wait_for_answer(&lab.east, "198.51.100.1");
    let process = lab.start(&format!("w0 {interface}"), "--path tc");
    check_forwarded(lab, "w0", &lab.west, &["198.51.100.2", "2001:db8:2::2"]);
    check_forwarded(lab, interface, &lab.east, &["192.0.2.2", "2001:db8:1::2"]);
    RouterLab::end(process);
}

#[test]
fn bonds() {
    let Some(lab) = RouterLab::where_there_is("type bond") else { return };
    lab.router.ip("link add bond0 type bond mode active-backup miimon 50");
    lab.router.ip("link set e0 down");
    lab.router.ip("link set e0 master bond0");
    lab.router.ip("link set bond0 up");
    check_instead_of_e0(&lab, "bond0");
}

/// A bridge carries the addresses, and its members what comes in; a member itself is the bridge's, also if it becomes one later.
#[test]
fn bridges() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    lab.router.ip("link add br0 type bridge");
    lab.router.ip("link set br0 up");
    lab.router.ip("link set e0 master br0");
    check_instead_of_e0(&lab, "br0");
    for choice in ["tc", "xdp"] {
        lab.router.ip("link set e0 nomaster");
        lab.hosts_take_redirected();
        let mut process = lab.start("w0 e0", &format!("--path {choice}"));
        lab.router.ip("link set e0 master br0");
        process.wait_for("interface e0 is a member of br0, which takes what comes in there", SHORT);
        assert!(lab.ask("status")["warnings"].to_string().contains("`ip link set e0 nomaster`"));
        let before = lab.forwarded_from("e0");
        RouterLab::check_ping(&lab.west, &["198.51.100.2", "2001:db8:2::2"]);
        assert_eq!(lab.forwarded_from("e0"), before, "{choice}");
        RouterLab::end(process);
    }
}

#[test]
fn macvlans() {
    let Some(lab) = RouterLab::where_there_is("link e0 type macvlan mode bridge") else { return };
    lab.router.ip("link add m0 link e0 type macvlan mode bridge");
    lab.router.ip("link set m0 up");
    check_instead_of_e0(&lab, "m0");
}

/// What a virtual machine or a program in user space is behind.
#[test]
fn taps() {
    let Some(lab) = RouterLab::new(1500, &["python3"]) else { return };
    lab.router.ip("tuntap add dev t0 mode tap");
    lab.router.ip("address add 192.0.9.1/24 dev t0");
    lab.router.ip("address add 2001:db8:9::1/64 dev t0 nodad");
    lab.router.ip("link set t0 up");
    for address in ["192.0.9.2", "2001:db8:9::2"] {
        lab.router.neighbour("t0", address, "02:00:00:00:09:02");
    }
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tap_host.py");
    let mut host = lab.router.spawn(&format!("python3 -B {program} t0"));
    host.wait_for("there", SHORT);
    check_best(&lab, "t0", |_| {});
    assert!(!host.has_ended());
}

/// Ethernet in datagrams of UDP, which go by another interface of the router.
#[test]
fn vxlans() {
    let kind = |remote: u8| format!("type vxlan id 7 dev e0 dstport 4789 remote 198.51.100.{remote}");
    let Some(lab) = RouterLab::where_there_is(&kind(2)) else { return };
    for (host, own, other) in [(&lab.router, 1, 2), (&lab.east, 2, 1)] {
        host.ip(&format!("link add v0 {}", kind(other)));
        host.ip(&format!("address add 192.0.9.{own}/24 dev v0"));
        host.ip(&format!("address add 2001:db8:9::{own}/64 dev v0 nodad"));
        host.ip("link set v0 up");
    }
    lab.east.ip("route add 192.0.2.0/24 via 192.0.9.1");
    lab.east.ip("route add 2001:db8:1::/64 via 2001:db8:9::1");
    check_best(&lab, "e0 v0", |lab| {
        check_forwarded(lab, "v0", &lab.east, &["192.0.2.2", "2001:db8:1::2"]);
    });
}

/// Forwards from the west to 192.0.9.2 and 2001:db8:9::2 and back, by the last of these interfaces, on the path that is best for it.
fn check_best(lab: &RouterLab, interfaces: &str, more: impl Fn(&RouterLab)) {
    let process = lab.start(&format!("w0 {interfaces}"), "--path best");
    for path in lab.ask("status")["paths"].as_array().expect("a list") {
        assert_eq!(path["path"], "tc", "{path}");
    }
    let last = interfaces.split(' ').next_back().expect("there is one");
    let before = lab.forwarded_from(last);
    check_forwarded(lab, "w0", &lab.west, &["192.0.9.2", "2001:db8:9::2"]);
    assert!(lab.forwarded_from(last) >= before + 2, "{:#}", lab.ask("counters"));
    more(lab);
    lab.verify();
    RouterLab::end(process);
}

/// Tagged in, tagged out, and both.
#[test]
fn vlans() {
    for choice in ["tc", "xdp"] {
        let Some(lab) = RouterLab::where_there_is("link e0 type vlan id 7") else { return };
        lab.hosts_take_redirected();
        let ten = host_on_vlan(&lab, 10, "203.0.113");
        let _twenty = host_on_vlan(&lab, 20, "198.18.20");
        let process = lab.start("w0 e0", &format!("--path {choice}"));
        check_forwarded(&lab, "w0", &lab.west, &["203.0.113.2", "2001:db8:10::2", "198.51.100.2"]);
        check_forwarded(&lab, "e0", &ten, &["198.18.20.2", "2001:db8:20::2", "192.0.2.2"]);
        assert_eq!(lab.verify()["equal"], true);
        RouterLab::end(process);
    }
}

/// Two hosts in a VRF, with the addresses of those outside.
#[test]
fn vrfs() {
    for choice in ["tc", "xdp"] {
        let Some(lab) = RouterLab::where_there_is("type vrf table 10") else { return };
        lab.router.ip("link add red type vrf table 10");
        lab.router.ip("link set red up");
        let (one, other) = (Namespace::new("one"), Namespace::new("other"));
        for (host, interface, network) in [(&one, "r0", "192.0.2"), (&other, "r1", "198.51.100")] {
            namespace::link((&lab.router, interface), (host, interface), 1500);
            host.run(&format!("ethtool -K {interface} tx off txvlan off")).expect_success("ethtool");
            RouterLab::take_redirected(host, interface);
            lab.router.ip(&format!("link set {interface} master red"));
            for (namespace, last) in [(&lab.router, 1), (host, 2)] {
                namespace.ip(&format!("address add {network}.{last}/24 dev {interface}"));
            }
            host.ip(&format!("route add default via {network}.1"));
        }
        other.ip("link set lo up");
        other.ip(&format!("address add {FAR}/32 dev lo"));
        lab.router.ip(&format!("route add {FAR}/32 via 198.51.100.2 vrf red"));
        let process = lab.start("w0 e0 r0 r1", &format!("--path {choice}"));
        check_forwarded(&lab, "r0", &one, &["198.51.100.2", FAR]);
        // Outside there is no such route.
        assert!(!RouterLab::answers(&lab.west, FAR));
        assert_eq!(lab.verify()["equal"], true);
        RouterLab::end(process);
    }
}
