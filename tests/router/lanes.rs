//! `warmlane router` with two lanes, each with a queue of each interface, and with the ways to end it that a script uses.

use warmlane_system_tests::flows::{self, Received};
use warmlane_system_tests::{RouterLab, SHORT, assert_refused};
use warmlane_testkit::process::Process;
use warmlane_testkit::promise::Watch;
use warmlane_testkit::{Report, requirements};

const FAR: [&str; 4] = ["198.51.100.2", "2001:db8:2::2", "198.51.100.3", "2001:db8:2::3"];

/// Forwarding of both families by several next hops, neighbours that are found out, packets for the kernel: whatever lane it is.
#[test]
fn two_lanes_share_the_work() {
    if !requirements::cpus(2) {
        return;
    }
    let Some(lab) = RouterLab::with_queues(1500, 2, &["python3"]) else { return };
    let _third = lab.third_host();
    for (prefix, far, gateways) in [
        ("203.0.113.0/24", "203.0.113.1/32", ["198.51.100.2", "198.51.100.3"]),
        ("2001:db8:5::/48", "2001:db8:5::1/128", ["2001:db8:2::2", "2001:db8:2::3"]),
    ] {
        lab.east.ip(&format!("address add {far} dev lo"));
        let [first, second] = gateways;
        lab.router.ip(&format!("route add {prefix} nexthop via {first} nexthop via {second}"));
    }
    let process = lab.start("w0 e0", "--lanes 2");
    // Nobody knows anybody, and none of the first packets gets lost.
    RouterLab::check_ping(&lab.west, &FAR);
    RouterLab::check_ping(&lab.west, &["192.0.2.1", "2001:db8:2::1"]);
    lab.verify();
    for far in ["203.0.113.1", "2001:db8:5::1"] {
        let lanes = |at: usize| lab.ask("counters")["lanes"][at]["packets"].as_u64().expect("a number");
        let before = [0, 1].map(lanes);
        assert_eq!(flows::exchange(&lab.west, &lab.east, far), Received::ALL);
        // The kernel spreads flows over queues; how well is its own business.
        let shares = [0, 1].map(|at| lanes(at) - before[at]);
        assert!(shares.iter().all(|&share| share >= 2_000), "{shares:?}");
    }
    // A ping each has another identifier, and so another queue.
    for _ in 0..8 {
        RouterLab::check_ping(&lab.west, &["192.0.3.2"]);
    }
    let report = RouterLab::finish(process);
    assert!(report.number("/forward/punted") >= 24, "{:#}", report.value());
    assert_eq!(report.number("/punts/0/transmitted/packets"), report.number("/forward/punted"));
}

/// What the kernel doesn't take back is in the books: under a reason.
#[test]
fn punted_packets_that_get_nowhere_are_counted() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    // Behind an interface that stays the kernel's: packets to it are left to the kernel.
    let _third = lab.third_host();
    let process = lab.start("w0 e0", "");
    RouterLab::check_ping(&lab.west, &["192.0.3.2"]);
    let punts = lab.ask("counters")["punts"].clone();
    let name = punts[0]["name"].as_str().expect("a name");
    assert!(punts[0]["transmitted"]["packets"].as_u64() >= Some(3), "{punts:#}");
    lab.router.ip(&format!("link set {name} down"));
    // A burst waits, and what comes on top is dropped.
    assert!(!lab.west.run("ping -n -q -c 400 -i 0.002 -W 1 192.0.3.2").status.success());
    let report = RouterLab::finish(process);
    assert!(report.drops("/punts/0/transmitted/drops")["link-down"] >= 3, "{:#}", report.value());
}

/// The kernel has no space for what is punted, as strace tells the router instead of it.
#[test]
fn punted_packets_that_the_kernel_refuses_are_drops() {
    let Some(lab) = RouterLab::new(1500, &["strace"]) else { return };
    let _third = lab.third_host();
    let process = lab.start("w0 e0", "");
    RouterLab::check_ping(&lab.west, &["192.0.3.2"]);
    let mut busy = lab.router.spawn(&format!("strace -f -p {} -e inject=writev:error=EAGAIN", process.id()));
    busy.wait_for("attached", SHORT);
    // A burst waits, and what comes on top is dropped.
    assert!(!lab.west.run("ping -n -q -c 400 -i 0.002 -W 1 192.0.3.2").status.success());
    RouterLab::check_ping(&lab.west, &FAR[..1]);
    busy.interrupt();
    busy.finish(SHORT);
    RouterLab::check_ping(&lab.west, &["192.0.3.2"]);
    let report = RouterLab::finish(process);
    let refused = report.drops(&format!("{}/drops", report.stage("punt")))["punt-refused"];
    assert!((100..=144).contains(&refused), "{refused}: {:#}", report.value());
}

#[test]
fn it_ends_when_it_was_told_to() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let end = |process: Process| {
        let finished = process.finish(SHORT);
        let report = Report::parse(finished.expect_success("warmlane router"));
        report.assert_balanced();
        assert!(!lab.router.run("ip -details link show").output.contains("prog/xdp"));
        report
    };
    let watch = Watch::start();
    let process = lab.start("w0 e0", "--spin --duration 3");
    RouterLab::check_ping(&lab.west, &FAR[..2]);
    let report = end(process);
    let seconds = report.value()["seconds"].as_f64().expect("a number");
    assert!(seconds >= 3.0, "{:#}", report.value());
    watch.check(seconds < 4.0, || format!("three seconds took {seconds}"));
    assert!(report.number("/forward/forwarded") >= 12, "{:#}", report.value());

    let process = lab.start("w0 e0", "--count 10");
    let pings = lab.west.run("ping -n -c 20 -i 0.05 -W 2 198.51.100.2");
    assert!(pings.status.success(), "{}", pings.text());
    let report = end(process);
    let received = report.number("/forward/received");
    assert!((10..40).contains(&received), "{:#}", report.value());
    RouterLab::check_ping(&lab.west, &FAR);
}

/// Two routers on one CPU: the second says so, and can be told to take another.
#[test]
fn a_cpu_of_another_router_is_named() {
    if !requirements::cpus(2) {
        return;
    }
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let Some(other) = RouterLab::new(1500, &[]) else { return };
    let first = lab.start("w0 e0", "--cpus 1");
    let cpu = |lab: &RouterLab| lab.ask("counters")["lanes"][0]["cpu"].as_u64();
    assert_eq!(cpu(&lab), Some(1));
    let mut second = other.spawn("w0 e0", "--cpus 1");
    second.wait_for("CPU 1 has a lane of another warmlane already", SHORT);
    second.wait_for(&format!("(process {})", first.id()), SHORT);
    RouterLab::check_ping(&other.west, &FAR[..1]);
    RouterLab::finish(second);
    let second = other.start("w0 e0", "--cpus 0");
    assert_eq!(cpu(&other), Some(0));
    second.interrupt();
    let finished = second.finish(SHORT);
    finished.expect_success("warmlane router");
    assert!(!finished.errors.contains(&format!("(process {})", first.id())), "{}", finished.errors);
    RouterLab::finish(first);
    for (options, parts) in [
        ("--cpus 0,1", &["has 1 queue(s), and 2 are needed"][..]),
        ("--cpus 0,1 --lanes 1", &["1 lane(s) need as many CPUs, and cpus names 2"]),
        ("--cpus 4000", &["cpu 4000"]),
    ] {
        assert_refused(&lab.spawn("w0 e0", options).finish(SHORT), parts);
    }
}
