//! `warmlane router` when its surroundings change under it: what stays, what it says, and whether its tables and books are right.

use std::fmt::Write as _;
use std::fs;

use warmlane_system_tests::{LONG, RouterLab, SHORT};
use warmlane_testkit::namespace::Namespace;

/// A third host beside the two of the lab, on the router's interface x0, of which an MTU, a name and the far end change.
#[test]
fn what_happens_to_a_link_is_said_once_and_the_rest_goes_on() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    // Who is told nothing for so long has had its share.
    lab.router.set("net.ipv4.icmp_ratelimit", "0");
    let third = lab.third_host();
    let mut process = lab.start("w0 e0 x0", "");
    RouterLab::check_ping(&lab.west, &["198.51.100.2", "192.0.3.2"]);
    // Between the two others, all the time.
    let others = lab.west.spawn("ping -n -i 0.01 198.51.100.2");
    // To the one that goes; while it is asked for, no more than can be held.
    let stubborn = lab.west.spawn("ping -n -q -i 0.05 192.0.3.2");

    lab.router.ip("link set x0 mtu 1400");
    process.wait_for("interface x0 has an MTU of 1400 now, after 1500", SHORT);
    let large = lab.west.run("ping -n -c 1 -W 5 -M do -s 1472 192.0.3.2");
    assert!(large.text().contains("mtu = 1400"), "{}", large.text());

    lab.router.ip("link set x0 down");
    process.wait_for("interface x0 was set down", SHORT);
    lab.router.ip("link set x0 name far9");
    lab.router.ip("link set far9 up");
    process.wait_for("interface far9 was set up again", SHORT);
    RouterLab::wait_for_answer(&lab.west, "192.0.3.2");
    assert_eq!(lab.ask("status")["ports"][2]["interface"], "far9");
    lab.verify();

    // With the namespace goes its end of the link, and with that the router's.
    let resyncs = lab.ask("counters")["kernel"]["resyncs"].as_u64();
    drop(third);
    process.wait_for("interface x0 went away: it was deleted", SHORT);
    RouterLab::wait_until("the route is gone", SHORT, || {
        lab.west.run("ping -n -c 1 -W 1 192.0.3.2").text().contains("nreachable")
    });
    assert_eq!(lab.ask("status")["ports"][2]["gone"], true);
    RouterLab::wait_until("everything is listed anew", SHORT, || {
        lab.ask("counters")["kernel"]["resyncs"].as_u64() > resyncs
    });
    lab.verify();

    others.interrupt();
    let answers = others.finish(SHORT).output;
    let numbers = answers.lines().filter_map(|line| line.split_once("icmp_seq=")?.1.split(' ').next());
    let numbers: Vec<usize> = numbers.map(|number| number.parse().expect("a number")).collect();
    // The last one may have been on its way when that was ended.
    assert!(!numbers.is_empty() && numbers.iter().copied().eq(1..=numbers.len()), "{answers}");
    stubborn.interrupt();
    let finished = stubborn.finish(SHORT);
    assert!(!finished.output.contains(" 0% packet loss"), "{}", finished.text());
    let (report, errors) = RouterLab::finish_without("x0", process);
    // When the link was up again, packets waited for the neighbour, and it was found in time.
    assert!(!report.drops("/forward/drops").contains_key("no-neighbour"), "{:#}", report.value());
    let said: Vec<&str> =
        errors.lines().filter_map(|line| line.strip_prefix("warmlane: interface ")).collect();
    // Ports keep the name that they were started with.
    let gone = "x0 went away: it was deleted or moved to another network namespace";
    assert_eq!(
        said,
        [
            "x0 has an MTU of 1400 now, after 1500",
            "x0 was set down",
            "x0 is now called far9",
            "far9 was set up again",
            "far9 was set down",
            gone,
            // Once more as the reason of the exit status.
            gone,
        ],
        "{errors}"
    );
}

/// An interface that is given to another namespace is as good as deleted, and the last one that goes leaves a router that still answers.
#[test]
fn interfaces_may_move_away_one_by_one() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let elsewhere = Namespace::new("elsewhere");
    let mut process = lab.start("w0 e0", "");
    RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
    for (place, interface) in ["e0", "w0"].into_iter().enumerate() {
        lab.router.ip(&format!("link set {interface} netns {}", elsewhere.name()));
        process.wait_for(&format!("interface {interface} went away: it was deleted or moved"), SHORT);
        RouterLab::wait_until("it is gone", SHORT, || lab.ask("status")["ports"][1 - place]["gone"] == true);
        lab.verify();
        if interface == "e0" {
            let gone = lab.west.run("ping -n -c 1 -W 2 198.51.100.2");
            assert!(gone.output.contains("nreachable"), "{}", gone.text());
            RouterLab::check_ping(&lab.west, &["192.0.2.1"]);
        }
    }
    RouterLab::finish_without("w0", process);
}

/// While the router is stopped, the kernel runs out of space for its news.
#[test]
fn news_that_the_kernel_had_no_space_for_are_made_up_for() {
    const ROUTES: usize = 20_000;
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let process = lab.start("w0 e0", "");
    let batch = |verb: &str, gateway: &str, step: usize| {
        let file = lab.directory().join("batch");
        let mut lines = String::new();
        for number in (0..ROUTES).step_by(step) {
            let prefix = format!("10.{}.{}.0/24", number / 256, number % 256);
            writeln!(lines, "route {verb} {prefix}{gateway}").expect("a string takes all");
        }
        fs::write(&file, lines).expect("a writable directory");
        lab.router.ip(&format!("-batch {}", file.display()));
    };
    batch("add", " via 198.51.100.2", 1);
    let has_lost = || {
        // sk, protocol, port, groups, and, before the last: datagrams dropped. Only the router listens to groups here.
        let sockets = lab.router.run("cat /proc/net/netlink").output;
        sockets.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            matches!(fields[..], [_, "0", _, groups, .., drops, _]
                if groups != "00000000" && drops.parse::<u64>().is_ok_and(|count| count > 0))
        })
    };
    assert_eq!(lab.ask("counters")["kernel"]["overruns"], 0);
    process.signal("STOP");
    // All that comes behind the loss is heard only by listing everything.
    RouterLab::wait_until("the kernel's news overflow", LONG, || {
        batch("replace", " via 198.51.100.3", 1);
        batch("replace", " via 198.51.100.2", 1);
        has_lost()
    });
    batch("replace", " via 198.51.100.3", 2);
    batch("del", "", 3);
    process.signal("CONT");
    let mut kernel = serde_json::Value::Null;
    RouterLab::wait_until("the loss is noticed", SHORT, || {
        kernel = lab.ask("counters")["kernel"].take();
        kernel["overruns"].as_u64() >= Some(1) && kernel["resyncs"].as_u64() >= Some(1)
    });
    lab.verify();
    let leads_to = |address: &str| lab.ask(&format!("routes {address}"))["routes"].to_string();
    assert!(leads_to("10.0.2.1").contains("198.51.100.3"), "{}", leads_to("10.0.2.1"));
    assert!(leads_to("10.0.1.1").contains("198.51.100.2"), "{}", leads_to("10.0.1.1"));
    assert!(!leads_to("10.0.3.1").contains("198.51.100"), "{}", leads_to("10.0.3.1"));
    RouterLab::check_ping(&lab.west, &["198.51.100.2", "2001:db8:2::2"]);
    RouterLab::finish(process);
}
