//! `warmlane router` as a leaf of an overlay network whose control plane is FRR's EVPN (RFC 8365), beside leaves of the kernel's own.
//!
//! ```text
//! west                 router (FRR)            east (FRR)        third (FRR)
//! 192.0.2.2 ---- w0 -- 192.0.2.1
//!                      br10: 10.9.0.1 ~~~~~~~~ br10 ~~~~~~~~~~~~ br10            bridged: identifier 10, types 2 and 3
//!                                              p0 -- 10.9.0.50 - p0              a host that is here or there
//!                      br30 ~~~~~~~~~~~~~~~~~~ br30 ~~~~~~~~~~~~ br30            routed: identifier 30, type 5
//!                                                                10.77.0.1
//!                      e0: 198.51.100.1 ------ 198.51.100.2
//!                      x0: 192.0.3.1 ----------------------------192.0.3.2
//! ```

use std::time::{Duration, Instant};

use warmlane_system_tests::daemons::{DAEMONS, Frr};
use warmlane_system_tests::{RouterLab, SHORT};
use warmlane_testkit::namespace::{self, Namespace};
use warmlane_testkit::promise::Watch;

const HOST: &str = "10.9.0.50";
const HOST_MAC: &str = "02:00:00:00:00:50";
const ROUTED: &str = "10.77.0.1";

/// How soon traffic follows a host that moves.
const LIMIT: Duration = Duration::from_secs(1);

/// The bridges and VXLAN devices of a leaf, as FRR's documentation has them.
fn add_overlay(leaf: &Namespace, address: &str) {
    for identifier in [10, 30] {
        let (bridge, device) = (format!("br{identifier}"), format!("vx{identifier}"));
        leaf.ip(&format!("link add {bridge} type bridge"));
        leaf.ip(&format!("link set {bridge} addrgenmode none"));
        leaf.ip(&format!("link set {bridge} up"));
        leaf.ip(&format!(
            "link add {device} type vxlan id {identifier} local {address} dstport 4789 nolearning"
        ));
        leaf.ip(&format!("link set {device} addrgenmode none"));
        leaf.ip(&format!("link set {device} master {bridge}"));
        let line = format!("bridge link set dev {device} neigh_suppress on learning off");
        leaf.run(&line).expect_success(&line);
        leaf.ip(&format!("link set {device} up"));
    }
}

/// Connects the host, by this interface of its own, with a leaf that it may be behind.
fn attach(host: &Namespace, interface: &str, leaf: &Namespace) {
    namespace::link((leaf, "p0"), (host, interface), 1450);
    leaf.ip("link set p0 master br10");
    host.ip(&format!("link set {interface} down"));
    host.ip(&format!("link set {interface} address {HOST_MAC}"));
}

/// The host is connected to the bridge there. That can take a second: so long the kernel puts off what it does about a carrier if
/// there was another such event just before (`net/core/link_watch.c`).
fn connect(host: &Namespace, interface: &str, leaf: &Namespace) {
    host.ip(&format!("link set {interface} up"));
    RouterLab::wait_until("the bridge forwards what the host sends", SHORT, || {
        leaf.run("bridge link show dev p0").output.contains("state forwarding")
    });
}

/// The host begins to use that connection, and says so to its gateway. It knows the gateway still, as a machine that moves does: to a
/// question of its own, the answer would be led to where it was before, and it would ask again only a second later.
fn appear(host: &Namespace, interface: &str, gateway: &str) {
    host.ip(&format!("address add {HOST}/24 dev {interface}"));
    host.ip("route add default via 10.9.0.1");
    host.neighbour(interface, "10.9.0.1", gateway);
    host.run("ping -n -c 1 -W 0.1 10.9.0.1");
}

fn disappear(host: &Namespace, interface: &str) {
    host.ip(&format!("address flush dev {interface}"));
    host.ip(&format!("link set {interface} down"));
}

/// The tunnel end that lanes send packets for an address to, as the router says.
fn leads_to(lab: &RouterLab, address: &str) -> String {
    let answer = lab.ask(&format!("routes {address}"));
    let leads_to = answer["routes"][0]["leads_to"].as_str().unwrap_or_default().to_owned();
    leads_to.split(" behind ").nth(1).unwrap_or_default().to_owned()
}

#[test]
fn evpn_drives_it_unaware_and_a_host_that_moves_is_followed() {
    let Some(lab) = RouterLab::alone(1500, &DAEMONS) else { return };
    if !warmlane_testkit::requirements::interface_kind(&lab.router, "type vxlan id 9 dstport 4788") {
        return;
    }
    let (third, host) = (lab.third_host(), Namespace::new("moving"));
    add_overlay(&lab.router, "198.51.100.1");
    add_overlay(&lab.east, "198.51.100.2");
    add_overlay(&third, "192.0.3.2");
    lab.router.ip("address add 10.9.0.1/24 dev br10");
    third.ip(&format!("address add {ROUTED}/32 dev lo"));
    third.set("net.ipv4.ip_forward", "1");
    // FRR wants more than a default route to a tunnel end.
    lab.east.ip("route add 192.0.3.0/24 via 198.51.100.1");
    third.ip("route add 198.51.100.0/24 via 192.0.3.1");
    attach(&host, "h0", &lab.east);
    attach(&host, "h1", &third);
    connect(&host, "h0", &lab.east);
    let gateway = lab.router.mac("br10");
    appear(&host, "h0", &gateway);

    let process = lab.start("w0 e0 x0", "");
    let leaf = |host, address, prefix: &str, leaves: [&str; 2]| {
        Frr::start_leaf(host, lab.directory(), (address, prefix), &leaves, 30)
    };
    let _daemons = [
        leaf(&lab.router, "198.51.100.1", "192.0.2.0/24", ["198.51.100.2", "192.0.3.2"]),
        leaf(&lab.east, "198.51.100.2", "192.0.2.128/25", ["198.51.100.1", "192.0.3.2"]),
        leaf(&third, "192.0.3.2", "10.77.0.1/32", ["192.0.3.1", "198.51.100.2"]),
    ];
    // Types 2 and 3: the host is behind the east, and bridged; type 5: a route.
    RouterLab::wait_until("the host is known", SHORT, || {
        host.run("ping -n -c 1 -W 0.1 10.9.0.1");
        lab.west.run(&format!("ping -n -c 1 -W 0.1 {HOST}"));
        leads_to(&lab, HOST) == "198.51.100.2"
    });
    RouterLab::wait_until("the route is known", SHORT, || leads_to(&lab, ROUTED) == "192.0.3.2");
    let through = |device: &str| {
        let status = lab.ask("status");
        let mut all = status["tunnels"].as_array().into_iter().flatten();
        let tunnel = all.find(|tunnel| tunnel["device"] == device).unwrap_or_else(|| panic!("{status:#}"));
        ["encapsulated", "decapsulated"].map(|way| tunnel[way]["packets"].as_u64().expect("a count"))
    };
    let check_by_lanes = |address, device| {
        let before = through(device);
        RouterLab::check_ping(&lab.west, &[address]);
        let after = through(device);
        assert!((0..2).all(|way| after[way] >= before[way] + 3), "{before:?}, {after:?}");
    };
    // Until the route back is there, answers come through the underlay.
    RouterLab::wait_until("the route back is known", SHORT, || {
        third.run("ip route show 192.0.2.0/24").output.contains("br30")
    });
    check_by_lanes(HOST, "vx10");
    check_by_lanes(ROUTED, "vx30");
    lab.verify();

    for (from, to, leaf, end) in [("h0", "h1", &third, "192.0.3.2"), ("h1", "h0", &lab.east, "198.51.100.2")]
    {
        disappear(&host, from);
        connect(&host, to, leaf);
        let (since, watch) = (Instant::now(), Watch::start());
        appear(&host, to, &gateway);
        RouterLab::wait_until("traffic follows", SHORT, || {
            lab.west.run(&format!("ping -n -c 1 -W 0.05 {HOST}")).status.success()
        });
        let after = since.elapsed();
        eprintln!("the host moved to {to}: answers after {after:?}");
        watch.check(after < LIMIT, || format!("{after:?} until the host answered at {to}"));
        assert_eq!(leads_to(&lab, HOST), end);
        check_by_lanes(HOST, "vx10");
        lab.verify();
    }
    RouterLab::finish(process);
}
