//! `warmlane router` checks where packets say that they come from (RFC 3704).

use warmlane_system_tests::flows::{self, Received};
use warmlane_system_tests::{RouterLab, SHORT, assert_refused};
use warmlane_testkit::namespace::Namespace;

/// Whether a host gets an answer when it asks from an address.
fn reaches(host: &Namespace, from: &str, to: &str) -> bool {
    host.run(&format!("ping -n -c 2 -i 0.2 -W 1 -I {from} {to}")).status.success()
}

fn dropped(lab: &RouterLab, reason: &str) -> u64 {
    lab.ask("counters")["forward"]["drops"][reason].as_u64().unwrap_or(0)
}

/// Addresses that the west has, and where the router thinks that they are: in the east, nowhere, and in the west.
const ELSEWHERE: [&str; 2] = ["203.0.113.1", "2001:db8:3::1"];
const NOWHERE: [&str; 2] = ["203.0.114.1", "2001:db8:4::1"];
const RIGHT: [&str; 2] = ["192.0.2.2", "2001:db8:1::2"];
const EAST: [&str; 2] = ["198.51.100.2", "2001:db8:2::2"];
const REASONS: [&str; 2] = ["ipv4-reverse-path", "ipv6-reverse-path"];

fn lab() -> Option<RouterLab> {
    let lab = RouterLab::new(1500, &[])?;
    for (family, (elsewhere, nowhere)) in ELSEWHERE.iter().zip(NOWHERE).enumerate() {
        let length = [32, 128][family];
        for address in [*elsewhere, nowhere] {
            lab.west.ip(&format!("address add {address}/{length} dev lo"));
            // So that the east's answer, if there is one, finds its way, whatever the router thinks.
            lab.east.ip(&format!(
                "route add {address}/{length} via {}",
                ["198.51.100.1", "2001:db8:2::1"][family]
            ));
        }
        lab.router.ip(&format!("route add {elsewhere}/{length} via {}", EAST[family]));
    }
    Some(lab)
}

/// Sends two packets from an address, which may or may not be answered.
fn send(lab: &RouterLab, from: &str, to: &str) {
    lab.west.run(&format!("ping -n -c 2 -i 0.2 -W 1 -I {from} {to}"));
}

#[test]
fn sources_are_checked_strictly_loosely_or_not() {
    let Some(lab) = lab() else { return };
    // Which of the two wrong sources are dropped.
    for (options, strict, loose) in [
        ("", false, false),
        ("--urpf loose", false, true),
        ("--urpf strict", true, true),
        ("--urpf strict --urpf w0=off", false, false),
        ("--urpf w0=strict", true, true),
        ("--urpf e0=strict --urpf w0=loose", false, true),
    ] {
        let process = lab.start("w0 e0", options);
        for family in 0..2 {
            let before = dropped(&lab, REASONS[family]);
            assert!(reaches(&lab.west, RIGHT[family], EAST[family]), "{options}");
            assert_eq!(dropped(&lab, REASONS[family]), before, "{options}");
            send(&lab, ELSEWHERE[family], EAST[family]);
            let after = dropped(&lab, REASONS[family]);
            assert_eq!(
                after - before,
                if strict { 2 } else { 0 },
                "{options}: elsewhere, {}",
                REASONS[family]
            );
            send(&lab, NOWHERE[family], EAST[family]);
            let last = dropped(&lab, REASONS[family]);
            assert_eq!(last - after, if loose { 2 } else { 0 }, "{options}: nowhere, {}", REASONS[family]);
        }
        RouterLab::finish(process);
    }
}

/// Routes that lead nowhere are no way back; a second equal path is one; a default route is one for the loose check.
#[test]
fn the_way_back_is_what_the_kernel_routes_by() {
    let Some(lab) = lab() else { return };
    let process = lab.start("w0 e0", "--urpf w0=strict");
    let count = |from: &str| {
        let before = dropped(&lab, REASONS[0]);
        send(&lab, from, EAST[0]);
        dropped(&lab, REASONS[0]) - before
    };
    assert_eq!(count(ELSEWHERE[0]), 2);
    // Over the west as well as over the east.
    lab.router.ip(&format!("route replace {} nexthop via 192.0.2.2 nexthop via 198.51.100.2", ELSEWHERE[0]));
    lab.verify();
    assert_eq!(count(ELSEWHERE[0]), 0);
    lab.router.ip(&format!("route replace {} via 192.0.2.2", ELSEWHERE[0]));
    lab.verify();
    assert_eq!(count(ELSEWHERE[0]), 0);
    RouterLab::finish(process);

    let process = lab.start("w0 e0", "--urpf loose");
    assert_eq!(count(NOWHERE[0]), 2);
    lab.router.ip("route add default via 198.51.100.2");
    lab.verify();
    assert_eq!(count(NOWHERE[0]), 0);
    for kind in ["blackhole", "unreachable", "prohibit"] {
        lab.router.ip(&format!("route add {kind} {}", NOWHERE[0]));
        lab.verify();
        assert_eq!(count(NOWHERE[0]), 2, "{kind}");
        lab.router.ip(&format!("route del {kind} {}", NOWHERE[0]));
    }
    // An address of the router's own is nobody else's.
    lab.west.ip("address add 198.51.100.1/32 dev lo");
    send(&lab, "198.51.100.1", EAST[0]);
    assert_eq!(dropped(&lab, "ipv4-martian-source"), 2);
    let ports = lab.ask("status")["ports"].clone();
    assert_eq!(ports[0]["urpf"], "loose", "{ports:#}");
    RouterLab::finish(process);
}

/// What goes through unchecked goes through checked: fragments, options, many sources at a time.
#[test]
fn right_sources_pass_in_numbers() {
    let Some(lab) = RouterLab::new(1500, &["python3"]) else { return };
    lab.east.ip("address add 203.0.113.1/32 dev lo");
    lab.router.ip("route add 203.0.113.1 via 198.51.100.2");
    let process = lab.start("w0 e0", "--urpf strict");
    // So that the first packets need not wait.
    RouterLab::check_ping(&lab.west, &["203.0.113.1"]);
    assert_eq!(flows::exchange(&lab.west, &lab.east, "203.0.113.1"), Received::ALL);
    lab.west.run("ping -n -c 3 -i 0.2 -W 10 -s 4000 198.51.100.2").expect_success("fragments");
    lab.west.run("ping -n -c 3 -i 0.2 -W 10 -R 198.51.100.2").expect_success("options");
    assert_eq!(dropped(&lab, REASONS[0]), 0);
    RouterLab::finish(process);
}

#[test]
fn what_is_no_mode_or_no_interface_is_refused() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    for (options, parts) in [
        ("--urpf on", &["\"on\"", "strict, loose or off"][..]),
        ("--urpf e7=strict", &["e7", "neither an interface of this router"]),
        ("--urpf strict --urpf loose", &["twice", "all interfaces"]),
    ] {
        assert_refused(&lab.spawn("w0 e0", options).finish(SHORT), parts);
    }
}
