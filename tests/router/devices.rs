//! `warmlane router` on VLAN sub-interfaces, in VRFs, and beside bonds and macvlan interfaces, as real kernels have them.
//!
//! Where this kernel lacks some of them, their tests say that they are skipped; a guest with Debian's kernel runs all of them.

use warmlane_system_tests::{RouterLab, SHORT, assert_refused};
use warmlane_testkit::namespace::{self, Namespace};

/// A host of its own on a VLAN of the eastern link. The host in the east is a switch to it.
pub(super) fn host_on_vlan(lab: &RouterLab, vlan: u32, network: &str) -> Namespace {
    let host = Namespace::new("vlan-host");
    let name = format!("e0.{vlan}");
    for (namespace, last) in [(&lab.router, 1), (&lab.east, 2)] {
        namespace.ip(&format!("link add link e0 name {name} type vlan id {vlan}"));
        let owner = if last == 1 { namespace } else { &host };
        if last == 2 {
            namespace.ip(&format!("link set {name} netns {}", host.name()));
        }
        owner.ip(&format!("link set {name} up"));
        owner.ip(&format!("address add {network}.{last}/24 dev {name}"));
        owner.ip(&format!("address add 2001:db8:{vlan}::{last}/64 dev {name} nodad"));
    }
    host.ip(&format!("route add default via {network}.1"));
    host.ip(&format!("route add default via 2001:db8:{vlan}::1"));
    host
}

/// How many packets were forwarded, and how many left to the kernel.
fn forwarded_and_punted(lab: &RouterLab) -> [u64; 2] {
    let counters = lab.ask("counters");
    ["forwarded", "punted"].map(|name| counters["forward"][name].as_u64().expect("a number"))
}

#[test]
fn vlans_are_interfaces() {
    // Without: functions/router/src/control/vlan_tests.rs, from recorded messages to frames.
    let Some(lab) = RouterLab::where_there_is("link e0 type vlan id 7") else { return };
    let ten = host_on_vlan(&lab, 10, "203.0.113");
    let _twenty = host_on_vlan(&lab, 20, "198.18.20");
    let process = lab.start("w0 e0", "");
    // From a link without tags to one with them, and back; out where it came in, with another tag; and without one beside them.
    let before = forwarded_and_punted(&lab);
    let far = ["203.0.113.2", "2001:db8:10::2", "198.18.20.2", "2001:db8:20::2", "198.51.100.2"];
    RouterLab::check_ping(&lab.west, &far);
    RouterLab::check_ping(&ten, &["198.18.20.2", "2001:db8:20::2", "192.0.2.2", "198.51.100.2"]);
    let after = forwarded_and_punted(&lab);
    // 3 pings each, there and back. The kernel forwarded none of them.
    assert_eq!(after[0] - before[0], 9 * 6, "{before:?} {after:?}");
    // The router's own addresses on VLANs are the kernel's.
    RouterLab::check_ping(&ten, &["203.0.113.1", "2001:db8:10::1", "198.18.20.1"]);
    let trace = ten.run("traceroute -n -q 1 -w 5 -m 4 198.18.20.2");
    assert!(trace.text().contains(" 203.0.113.1 ") && trace.text().contains(" 198.18.20.2 "), "{trace:?}");
    lab.verify();

    // A VLAN with a smaller MTU: who sends too much is told.
    lab.router.ip("link set e0.20 mtu 1400");
    RouterLab::wait_until("the MTU is known", SHORT, || {
        let big = lab.west.run("ping -n -c 1 -W 1 -M do -s 1440 198.18.20.2");
        big.text().contains("mtu = 1400") || big.text().contains("mtu=1400")
    });
    // A VLAN goes, the other goes on; it comes back.
    lab.router.ip("link delete e0.20");
    RouterLab::wait_until("its route is gone", SHORT, || {
        !lab.ask("routes --limit 1000").to_string().contains("198.18.20.0/24")
    });
    RouterLab::check_ping(&lab.west, &["203.0.113.2", "2001:db8:10::2"]);
    assert!(!RouterLab::answers(&lab.west, "198.18.20.2"));
    lab.verify();
    lab.router.ip("link add link e0 name e0.20 type vlan id 20");
    lab.router.ip("link set e0.20 up");
    lab.router.ip("address add 198.18.20.1/24 dev e0.20");
    RouterLab::wait_for_answer(&lab.west, "198.18.20.2");
    lab.verify();
    RouterLab::finish(process);
}

/// Tags of 802.1ad, and VLANs on VLANs: these are the kernel's, as if nobody had taken the interface.
#[test]
fn vlans_of_another_kind_stay_with_the_kernel() {
    let Some(lab) = RouterLab::where_there_is("link e0 type vlan proto 802.1ad id 7") else { return };
    for (host, last) in [(&lab.router, 1), (&lab.east, 2)] {
        for line in [
            "link add link e0 name e0.s30 type vlan proto 802.1ad id 30",
            "link set e0.s30 up",
            "link add link e0 name e0.40 type vlan id 40",
            "link set e0.40 up",
            "link add link e0.40 name e0.40.50 type vlan id 50",
            "link set e0.40.50 up",
        ] {
            host.ip(line);
        }
        host.ip(&format!("address add 198.18.30.{last}/24 dev e0.s30"));
        host.ip(&format!("address add 198.18.50.{last}/24 dev e0.40.50"));
    }
    lab.east.ip("address add 203.0.113.1/32 dev lo");
    lab.router.ip("route add 203.0.113.0/24 via 198.18.30.2");
    let process = lab.start("w0 e0", "");
    RouterLab::check_ping(&lab.east, &["198.18.30.1", "198.18.50.1"]);
    // Forwarded by the kernel, to which they are left.
    RouterLab::check_ping(&lab.west, &["198.18.30.2", "198.18.50.2", "203.0.113.1", "198.51.100.2"]);
    let [forwarded, punted] = forwarded_and_punted(&lab);
    assert!(forwarded >= 6 && punted >= 9, "{forwarded} {punted}");
    lab.verify();
    RouterLab::finish(process);
}

#[test]
fn vrfs_have_tables_of_their_own() {
    let Some(lab) = RouterLab::where_there_is("type vrf table 10") else { return };
    // West and east, outside of any VRF; two hosts in VRF red with the same addresses; one behind a VLAN in blue.
    let (one, other) = (Namespace::new("one"), Namespace::new("other"));
    for (name, table) in [("red", 10), ("blue", 20)] {
        lab.router.ip(&format!("link add {name} type vrf table {table}"));
        lab.router.ip(&format!("link set {name} up"));
    }
    for (host, interface, number) in [(&one, "r0", 1), (&other, "r1", 2)] {
        namespace::link((&lab.router, interface), (host, interface), 1500);
        host.run(&format!("ethtool -K {interface} tx off txvlan off")).expect_success("ethtool");
        lab.router.ip(&format!("link set {interface} master red"));
        let network = ["192.0.2", "198.51.100"][number - 1];
        for (namespace, last) in [(&lab.router, 1), (host, 2)] {
            namespace.ip(&format!("address add {network}.{last}/24 dev {interface}"));
            namespace.ip(&format!("address add 2001:db8:{number}::{last}/64 dev {interface} nodad"));
        }
        host.ip(&format!("route add default via {network}.1"));
        host.ip(&format!("route add default via 2001:db8:{number}::1"));
    }
    let blue = host_on_vlan(&lab, 30, "203.0.113");
    // What an interface had of IPv6 addresses goes when it joins a VRF.
    lab.router.ip("link set e0.30 master blue");
    lab.router.ip("address replace 2001:db8:30::1/64 dev e0.30 nodad");
    let process = lab.start("w0 e0 r0 r1", "");
    let before = forwarded_and_punted(&lab);
    let far = ["198.51.100.2", "2001:db8:2::2"];
    RouterLab::check_ping(&lab.west, &far);
    RouterLab::check_ping(&one, &far);
    let after = forwarded_and_punted(&lab);
    assert_eq!(after[0] - before[0], 4 * 6, "{before:?} {after:?}");
    lab.verify();
    // Each reached the host in its own VRF: what only one of them has, the other can't reach.
    let only = "203.0.113.77";
    lab.east.ip("address add 203.0.113.77/32 dev lo");
    lab.router.ip("route add 203.0.113.77/32 via 198.51.100.2");
    RouterLab::check_ping(&lab.west, &[only]);
    assert!(!one.run(&format!("ping -n -c 2 -i 0.2 -W 1 {only}")).status.success());
    assert!(!blue.run(&format!("ping -n -c 2 -i 0.2 -W 1 {only}")).status.success());
    other.ip("address add 203.0.113.77/32 dev lo");
    lab.router.ip("route add 203.0.113.77/32 via 198.51.100.2 vrf red");
    RouterLab::check_ping(&one, &[only]);
    lab.east.ip("address delete 203.0.113.77/32 dev lo");
    RouterLab::check_ping(&one, &[only]);
    assert!(!lab.west.run(&format!("ping -n -c 2 -i 0.2 -W 1 {only}")).status.success());
    lab.verify();
    // The router's own addresses in each.
    RouterLab::check_ping(&one, &["192.0.2.1"]);
    RouterLab::check_ping(&blue, &["203.0.113.1", "2001:db8:30::1"]);
    // From one VRF to another, by a route that says so.
    lab.router.ip("route add 203.0.113.0/24 dev e0.30 vrf red");
    lab.router.ip("route add 192.0.2.0/24 dev r0 vrf blue");
    RouterLab::check_ping(&one, &["203.0.113.2"]);
    lab.verify();
    // An interface changes its VRF while packets flow, and a VRF goes.
    lab.router.ip("link set e0.30 nomaster");
    lab.router.ip("link delete blue");
    RouterLab::wait_for_answer(&lab.west, "203.0.113.2");
    RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
    RouterLab::check_ping(&one, &["198.51.100.2"]);
    lab.verify();
    RouterLab::finish(process);
}

/// A bond and its members are refused, also when they come to be that while the router runs.
#[test]
fn bonds_are_refused() {
    let Some(lab) = RouterLab::where_there_is("type bond") else { return };
    lab.router.ip("link add bond0 type bond mode active-backup");
    lab.router.ip("link set bond0 up");
    lab.router.ip("link set e0 down");
    lab.router.ip("link set e0 master bond0");
    let refused = |interfaces: &str, parts: &[&str]| {
        assert_refused(&lab.spawn(interfaces, "").finish(SHORT), parts);
        assert!(!lab.router.run("ip link show").output.contains("xdp"));
    };
    refused("w0 e0", &["member of bond \"bond0\"", "ip link set e0 nomaster"]);
    refused("w0 bond0", &["\"bond0\" is a bond", "open its members"]);
    lab.router.ip("link set e0 nomaster");
    lab.router.ip("link set e0 up");
    lab.router.ip("address replace 2001:db8:2::1/64 dev e0 nodad");
    let mut process = lab.start("w0 e0", "");
    RouterLab::check_ping(&lab.west, &["198.51.100.2", "2001:db8:2::2"]);
    // While it runs: the bond's packets are the kernel's.
    lab.router.ip("link set e0 down");
    lab.router.ip("address flush dev e0");
    lab.router.ip("link set e0 master bond0");
    process.wait_for("interface e0 is a member of bond0 now", SHORT);
    lab.router.ip("address add 198.51.100.1/24 dev bond0");
    RouterLab::wait_for_answer(&lab.east, "198.51.100.1");
    let warnings = lab.ask("status")["warnings"].to_string();
    assert!(warnings.contains("interface e0 is a member of bond0"), "{warnings}");
    RouterLab::check_ping(&lab.west, &["192.0.2.1"]);
    lab.verify();
    RouterLab::finish(process);
}

/// A driver that runs no XDP program.
#[test]
fn interfaces_without_xdp_are_served_by_the_network_stack() {
    let Some(lab) = RouterLab::where_there_is("link e0 type macvlan") else { return };
    lab.router.ip("link add m0 link e0 type macvlan");
    lab.router.ip("link set m0 up");
    let refused = lab.spawn("w0 m0", "--mode copy").finish(SHORT);
    assert_refused(&refused, &["\"m0\" can't run the XDP program", "mode=best"]);
    // With the choice left open it works, and says what that costs.
    let mut process = lab.start("w0 m0", "--verbose");
    process.wait_for("the network stack does, which is slower", SHORT);
    RouterLab::finish(process);
}

/// A macvlan interface on a port, in a namespace of its own: a container, say. Its frames are not ours, though they come in by our
/// port; and the port's own address may change.
#[test]
fn frames_to_other_hosts_are_the_kernels() {
    let Some(lab) = RouterLab::where_there_is("link w0 type macvlan mode bridge") else { return };
    let container = Namespace::new("container");
    lab.router.ip("link add link w0 name m0 type macvlan mode bridge");
    lab.router.ip(&format!("link set m0 netns {}", container.name()));
    container.ip("link set m0 up");
    container.ip("address add 192.0.2.50/24 dev m0");
    container.ip("address add 2001:db8:1::50/64 dev m0 nodad");
    container.ip("address add 203.0.113.1/32 dev lo");
    container.set("net.ipv4.ip_forward", "1");
    lab.west.ip("route add 203.0.113.0/24 via 192.0.2.50");
    let others = ["192.0.2.50", "2001:db8:1::50", "203.0.113.1"];
    RouterLab::check_ping(&lab.west, &others);
    let mut process = lab.start("w0 e0", "");
    RouterLab::check_ping(&lab.west, &["198.51.100.2", "2001:db8:2::2"]);
    RouterLab::check_ping(&lab.west, &others);
    let received = lab.ask("counters")["forward"]["received"].as_u64().expect("a number");
    assert!(received >= 12, "{received}");
    // With another address of its own, the port goes on: at once by the kernel, then by us.
    lab.router.ip("link set w0 address 02:00:00:00:77:01");
    // The kernel doesn't tell its neighbours of it either, and they believe in the old one for half a minute.
    lab.west.ip("neighbour flush dev w0");
    RouterLab::wait_until("its own packets are known", SHORT, || {
        let before = lab.ask("counters")["forward"]["forwarded"].as_u64();
        let pinged = RouterLab::answers(&lab.west, "198.51.100.2");
        pinged && lab.ask("counters")["forward"]["forwarded"].as_u64() > before
    });
    // Nobody tells IPv6 neighbours of the new address: they find out.
    RouterLab::wait_for_answer(&lab.west, "2001:db8:2::2");
    RouterLab::check_ping(&lab.west, &["198.51.100.2", "2001:db8:2::2"]);
    RouterLab::check_ping(&lab.west, &others);
    lab.verify();
    // As a member of a bridge it is no port at all, and once it isn't one any more, it is again.
    lab.router.ip("link add br0 type bridge");
    lab.router.ip("link set e0 master br0");
    process.wait_for("interface e0 is a member of br0 now", SHORT);
    RouterLab::wait_until("it is said", SHORT, || {
        lab.ask("status")["warnings"].to_string().contains("interface e0 is a member of br0")
    });
    lab.verify();
    lab.router.ip("link set e0 nomaster");
    RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
    lab.verify();
    let report = RouterLab::finish(process);
    assert!(!report.drops("/forward/drops").contains_key("other-host"), "{:#}", report.value());
}
