//! What the kernel does without a word, and what it says in an order that one would not expect: `warmlane router` is right
//! all the same.

use serde_json::Value;
use warmlane_system_tests::{RouterLab, SHORT};
use warmlane_testkit::namespace::Namespace;
use warmlane_testkit::process::Process;

/// A third host, behind x0, which has the same addresses beyond the router as the east: 203.0.113.1 and 2001:db8:5::1.
fn lab() -> Option<(RouterLab, Namespace)> {
    let lab = RouterLab::new(1500, &[])?;
    let third = lab.third_host();
    for host in [&lab.east, &third] {
        host.ip("address add 203.0.113.1/32 dev lo");
        host.ip("address add 2001:db8:5::1/128 dev lo");
    }
    Some((lab, third))
}

/// The router, once packets arrive by it on routes that `ip` was told of in these lines.
fn start(lab: &RouterLab, lines: &[&str]) -> Process {
    for line in lines {
        lab.router.ip(line);
    }
    let process = lab.start("w0 e0 x0", "");
    RouterLab::check_ping(&lab.west, &FAR);
    process
}

const FAR: [&str; 2] = ["203.0.113.1", "2001:db8:5::1"];

/// Routes that nobody needs.
const MARKS: [&str; 2] = ["192.0.9.1", "192.0.9.2"];

/// What the kernel said on its route and nexthop groups while something was done.
fn said(lab: &RouterLab, act: impl FnOnce()) -> String {
    let monitor = lab.router.spawn("ip -4 monitor nexthop route");
    // It listens once it has told of the first of these, and has told of all before it tells of the last.
    let said_after = |mark: &str| {
        RouterLab::wait_until(mark, SHORT, || {
            lab.router.ip(&format!("route add blackhole {mark}"));
            lab.router.ip(&format!("route del blackhole {mark}"));
            monitor.output().contains(mark)
        });
    };
    said_after(MARKS[0]);
    act();
    said_after(MARKS[1]);
    monitor.interrupt();
    let output = monitor.finish(SHORT).output;
    let is_mark = |line: &&str| MARKS.iter().any(|mark| line.contains(mark));
    output.split_inclusive('\n').filter(|line| !is_mark(line)).collect()
}

/// FRR uses nexthop objects for all its routes: this is what happens to them when a cable is pulled.
#[test]
fn nexthop_objects_that_vanish_with_their_link() {
    let Some((lab, _third)) = lab() else { return };
    let lines = [
        "nexthop add id 1 via 198.51.100.2 dev e0",
        "nexthop add id 2 via 192.0.3.2 dev x0",
        "nexthop add id 3 via 2001:db8:3::2 dev x0",
        "nexthop add id 10 group 1/2",
        "nexthop add id 20 group 2",
        // The only way, a better way than another one, and one of two ways.
        "route add 203.0.113.0/25 nhid 2",
        "route add 203.0.113.128/25 nhid 2 metric 10",
        "route add 203.0.113.128/25 nhid 1 metric 20",
        "route add 203.0.113.0/24 nhid 10",
        "route add 10.0.0.0/8 nhid 20",
        "route add 2001:db8:5::/48 nhid 3",
    ];
    let mut process = start(&lab, &lines);
    lab.verify();
    let leads_to = |address: &str| {
        let route = lab.ask(&format!("routes {address}"))["routes"][0].clone();
        (
            route["prefix"].as_str().unwrap_or("-").to_owned(),
            route["leads_to"].as_str().unwrap_or("-").to_owned(),
        )
    };
    assert_eq!(leads_to("203.0.113.1").0, "203.0.113.0/25");
    assert_eq!(leads_to("10.0.0.1").0, "10.0.0.0/8");
    let said = said(&lab, || lab.router.ip("link set x0 down"));
    // That is the trap: of five routes that went, none was named.
    assert!(!said.contains("Deleted 203.0.113") && !said.contains("Deleted 10.0.0.0"), "{said}");
    process.wait_for("interface x0 was set down", SHORT);
    RouterLab::wait_until("the other way", SHORT, || {
        leads_to("203.0.113.1").0 == "203.0.113.0/24" && leads_to("10.0.0.1").0 != "10.0.0.0/8"
    });
    lab.verify();
    assert_eq!(leads_to("203.0.113.200").0, "203.0.113.128/25");
    RouterLab::check_ping(&lab.west, &FAR[..1]);
    // The link comes back, the objects don't; who made them makes them again.
    lab.router.ip("link set x0 up");
    process.wait_for("interface x0 was set up again", SHORT);
    lab.verify();
    assert_eq!(leads_to("203.0.113.1").0, "203.0.113.0/24");
    lab.router.ip("nexthop add id 2 via 192.0.3.2 dev x0");
    lab.router.ip("route add 203.0.113.0/25 nhid 2");
    lab.verify();
    assert_eq!(leads_to("203.0.113.1").0, "203.0.113.0/25");
    RouterLab::check_ping(&lab.west, &FAR[..1]);
    // An object that is deleted takes its routes along, without a word on any of them.
    lab.router.ip("nexthop del id 2");
    RouterLab::wait_until("the other way", SHORT, || leads_to("203.0.113.1").0 == "203.0.113.0/24");
    lab.verify();
    // Objects that lead nowhere.
    lab.router.ip("nexthop add id 5 blackhole");
    lab.router.ip("route add 203.0.113.0/26 nhid 5");
    lab.verify();
    assert!(leads_to("203.0.113.1").1.starts_with("nowhere"));
    assert!(!RouterLab::answers(&lab.west, "203.0.113.1"));
    lab.router.ip("nexthop del id 5");
    RouterLab::wait_until("the other way", SHORT, || leads_to("203.0.113.1").0 == "203.0.113.0/24");
    RouterLab::check_ping(&lab.west, &FAR[..1]);
    lab.verify();
    RouterLab::finish(process);
}

/// The route that the router has for an address.
fn route(lab: &RouterLab, address: &str) -> Value {
    lab.ask(&format!("routes {address}"))["routes"][0].clone()
}

/// Into how many ways it parts.
fn ways(route: &Value) -> usize {
    route["leads_to"].as_str().map_or(0, |text| text.split(" or ").count())
}

/// Checks that all agree and packets arrive, and ends the router.
fn end(lab: &RouterLab, process: Process) {
    lab.verify();
    RouterLab::check_ping(&lab.west, &FAR[..1]);
    RouterLab::finish(process);
}

/// Of a route with several paths the kernel marks those dead whose link is down; it tells nobody.
#[test]
fn paths_that_die_with_their_link() {
    let Some((lab, _third)) = lab() else { return };
    let lines = [
        "route add 203.0.113.0/24 nexthop via 198.51.100.2 nexthop via 192.0.3.2",
        "route add 2001:db8:5::/48 nexthop via 2001:db8:2::2 nexthop via 2001:db8:3::2",
    ];
    let mut process = start(&lab, &lines);
    lab.verify();
    let ways = |address: &str| ways(&route(&lab, address));
    for address in FAR {
        assert_eq!(ways(address), 2, "{address}");
    }
    lab.router.ip("link set x0 down");
    process.wait_for("interface x0 was set down", SHORT);
    for address in FAR {
        RouterLab::wait_until("one way", SHORT, || ways(address) == 1);
    }
    RouterLab::check_ping(&lab.west, &FAR);
    lab.verify();
    lab.router.ip("link set x0 up");
    process.wait_for("interface x0 was set up again", SHORT);
    // The kernel uses the IPv4 path again by itself.
    RouterLab::wait_until("two ways", SHORT, || ways(FAR[0]) == 2);
    end(&lab, process);
}

/// A cable that is pulled at its other end takes nexthop objects along, and, where `ignore_routes_with_linkdown` asks for it,
/// paths: without a word, as if the interface were set down.
#[test]
fn what_goes_with_a_cable_that_is_pulled() {
    let Some((lab, third)) = lab() else { return };
    for family in ["ipv4", "ipv6"] {
        lab.router.set(&format!("net.{family}.conf.x0.ignore_routes_with_linkdown"), "1");
    }
    let lines = [
        "nexthop add id 1 via 198.51.100.2 dev e0",
        "nexthop add id 2 via 192.0.3.2 dev x0",
        "nexthop add id 10 group 1/2",
        "route add 203.0.113.0/25 nhid 2",
        "route add 203.0.113.0/24 nhid 10",
        "route add 10.0.0.0/8 nexthop via 198.51.100.2 nexthop via 192.0.3.2",
        "route add 2001:db8:5::/48 nexthop via 2001:db8:2::2 nexthop via 2001:db8:3::2",
    ];
    let mut process = start(&lab, &lines);
    let prefix = |address: &str| route(&lab, address)["prefix"].as_str().unwrap_or("-").to_owned();
    let ways = |address: &str| ways(&route(&lab, address));
    let several = ["203.0.113.129", "10.0.0.1", FAR[1]];
    assert_eq!(several.map(ways), [2; 3]);
    assert_eq!(prefix(FAR[0]), "203.0.113.0/25");
    third.ip("link set x0 down");
    process.wait_for("interface x0 has lost its carrier", SHORT);
    for address in several {
        RouterLab::wait_until("one way", SHORT, || ways(address) == 1);
    }
    RouterLab::wait_until("the route is gone", SHORT, || prefix(FAR[0]) == "203.0.113.0/24");
    lab.verify();
    RouterLab::check_ping(&lab.west, &FAR);
    third.ip("link set x0 up");
    process.wait_for("interface x0 has a carrier again", SHORT);
    // Paths are used again, objects don't come back.
    for (address, count) in several.into_iter().zip([1, 2, 2]) {
        RouterLab::wait_until("its ways", SHORT, || ways(address) == count);
    }
    lab.verify();
    RouterLab::finish(process);
}

/// An address that is removed takes the routes along that prefer it as their source; not all kernels tell of them.
#[test]
fn routes_that_go_with_an_address() {
    let Some((lab, _third)) = lab() else { return };
    lab.router.ip("address add 192.0.3.77/24 dev x0");
    lab.router.ip("route add 203.0.113.0/25 via 192.0.3.2 src 192.0.3.77");
    lab.router.ip("route add 203.0.113.0/24 via 198.51.100.2");
    let process = lab.start("w0 e0 x0", "");
    let prefix = || route(&lab, "203.0.113.1")["prefix"].as_str().unwrap_or("-").to_owned();
    assert_eq!(prefix(), "203.0.113.0/25");
    lab.router.ip("address del 192.0.3.77/24 dev x0");
    RouterLab::wait_until("the other way", SHORT, || prefix() == "203.0.113.0/24");
    end(&lab, process);
}

/// Errors come no faster than asked for, in both families, and what isn't sent is counted.
#[test]
fn errors_are_limited() {
    let Some((lab, _third)) = lab() else { return };
    let process = lab.start("w0 e0 x0", "--icmp-rate 10");
    for (number, address) in ["203.0.113.1", "2001:db8:5::1"].into_iter().enumerate() {
        let before = lab.ask("counters")["forward"].clone();
        lab.west.run(&format!("ping -n -q -c 300 -i 0.002 -W 1 {address}"));
        let after = lab.ask("counters")["forward"].clone();
        let grown =
            |name: &str| after[name].as_u64().expect("a number") - before[name].as_u64().expect("a number");
        // It is the kernel that tells senders.
        let (sent, limited) = (grown("punted"), grown("icmp_errors_limited"));
        // A bucket of fifty at first, and ten a second: the pings take one or two.
        assert!((5..=100).contains(&sent), "{sent} sent, {limited} not, of family {number}");
        assert!(sent + limited >= 300 && limited >= 200, "{sent} sent, {limited} not, of family {number}");
    }
    RouterLab::finish(process);
}
