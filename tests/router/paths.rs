//! Paths inside the kernel: what is forwarded there, what is left to the kernel, and that nothing stays behind.

use std::time::Duration;

use serde_json::Value;
use warmlane_system_tests::{RouterLab, SHORT, assert_refused, iperf};
use warmlane_testkit::Report;
use warmlane_testkit::process::{Process, warmlane};

const FAR: [&str; 4] = ["198.51.100.2", "2001:db8:2::2", "198.51.100.3", "2001:db8:2::3"];
const OWN: [&str; 4] = ["192.0.2.1", "198.51.100.1", "2001:db8:1::1", "2001:db8:2::1"];

/// What the program of an interface has counted, by name; its books are in order.
fn path(report: &Value, interface: &str) -> Value {
    let paths = report["paths"].as_array().unwrap_or_else(|| panic!("no paths: {report:#}"));
    let path = paths.iter().find(|path| path["interface"] == interface);
    let path = path.unwrap_or_else(|| panic!("no {interface}: {report:#}"));
    let number = |name: &str| path[name].as_u64().unwrap_or_else(|| panic!("{name}: {path:#}"));
    assert_eq!(number("received"), number("forwarded") + number("passed") + number("dropped"), "{path:#}");
    for (sum, reasons) in [("passed", "passes"), ("dropped", "drops")] {
        let all: u64 =
            path[reasons].as_object().into_iter().flatten().filter_map(|(_, count)| count.as_u64()).sum();
        assert_eq!(number(sum), all, "{path:#}");
    }
    path.clone()
}

fn passed(report: &Value, interface: &str, reason: &str) -> u64 {
    path(report, interface)["passes"][reason].as_u64().unwrap_or(0)
}

/// Nothing of ours is attached to any interface of the router's, nor pinned.
fn assert_nothing_attached(lab: &RouterLab) {
    let links = lab.router.run("ip -details link show").output;
    assert!(!links.contains("prog/xdp"), "{links}");
    assert!(!lab.router.has_interface("warmlane0"));
}

fn finish(process: Process) -> Report {
    Report::parse(&RouterLab::end(process))
}

#[test]
fn hosts_reach_each_other_on_each_path_without_lanes() {
    for choice in ["tc", "xdp", "best"] {
        let Some(lab) = RouterLab::new(1500, &[]) else { return };
        lab.hosts_take_redirected();
        let process = lab.start("w0 e0", &format!("--path {choice}"));
        let taken = if choice == "best" { "tc" } else { choice };
        for path in lab.ask("status")["paths"].as_array().expect("a list") {
            assert_eq!(path["path"], taken, "{choice}");
        }
        assert!(!lab.router.has_interface("warmlane0"), "punting needs no interface here");
        // Nobody knows anybody: the kernel holds the first packet of each for its neighbour, and none is lost.
        RouterLab::check_ping(&lab.west, &FAR);
        RouterLab::check_ping(&lab.east, &["192.0.2.2", "2001:db8:1::2"]);
        RouterLab::check_ping(&lab.west, &OWN);
        for (family, hop, target) in
            [("-4", "192.0.2.1", "198.51.100.2"), ("-6", "2001:db8:1::1", "2001:db8:2::2")]
        {
            let trace = lab.west.run(&format!("traceroute {family} -n -q 2 -w 10 -m 5 {target}"));
            // Of two questions one may get lost: whoever answers too many waits.
            let answered = |distance: &str, by: &str| {
                let line = trace.output.lines().find(|line| line.trim_start().starts_with(distance));
                line.is_some_and(|line| line.split_whitespace().any(|word| word == by))
            };
            assert!(answered("1 ", hop) && answered("2 ", target), "{choice}: {}", trace.text());
        }
        let report = finish(process);
        assert_eq!(report.value()["lanes"], serde_json::json!([]));
        let west = path(report.value(), "w0");
        assert!(west["forwarded"].as_u64() > Some(4), "{choice}: {west:#}");
        for reason in ["other-host", "expiring", "not-forwarded"] {
            assert!(passed(report.value(), "w0", reason) > 0, "{choice}: {reason}: {west:#}");
        }
        assert_nothing_attached(&lab);
        RouterLab::check_ping(&lab.west, &FAR);
    }
}

/// Whatever senders leave to hardware, and however large their packets are.
#[test]
fn tcp_with_usual_offloads_gets_through_whole() {
    for choice in ["tc", "xdp"] {
        let Some(lab) = RouterLab::new(1500, &[]) else { return };
        for (host, interface) in [(&lab.west, "w0"), (&lab.east, "e0")] {
            host.set_offloads(interface, true);
        }
        lab.hosts_take_redirected();
        let process = lab.start("w0 e0", &format!("--path {choice}"));
        let server = lab.east.spawn("iperf3 --server");
        for address in ["198.51.100.2", "2001:db8:2::2"] {
            for direction in ["", "--reverse"] {
                let report = iperf(&lab.west, &format!("--client {address} --time 1 {direction}"));
                let received = report["end"]["sum_received"]["bytes"].as_u64();
                assert!(received > Some(1_000_000), "{choice}: {report:#}");
            }
        }
        server.interrupt();
        let counters = lab.ask("counters");
        let (west, east) = (path(&counters, "w0"), path(&counters, "e0"));
        if choice == "tc" {
            // All of it, and far fewer than one for each segment of 1,500 bytes.
            let forwarded = west["forwarded"].as_u64().expect("a number");
            assert!(forwarded > 1000 && west["passed"].as_u64() < Some(100), "{west:#}");
            let mean = west["bytes"].as_u64().expect("a number") / forwarded;
            assert!(
                mean > 1600 || east["bytes"].as_u64() > east["received"].as_u64().map(|n| 1600 * n),
                "{west:#} {east:#}"
            );
        } else {
            assert!(passed(&counters, "w0", "checksum-left") > 0, "{west:#}");
        }
        finish(process);
    }
}

#[test]
fn routes_are_followed_at_once() {
    for choice in ["tc", "xdp"] {
        let Some(lab) = RouterLab::new(1500, &[]) else { return };
        lab.hosts_take_redirected();
        let networks = lab.networks_behind_east();
        let process = lab.start("w0 e0", &format!("--path {choice}"));
        let reaches = |address: &str| lab.west.run(&format!("ping -n -c 1 -W 1 {address}"));
        for network in networks {
            let [address, prefix, ..] = network;
            lab.check_route_is_followed(network);
            lab.router.ip(&format!("route del {prefix}"));
            lab.router.ip(&format!("route add blackhole {prefix}"));
            let nowhere = reaches(address);
            assert!(nowhere.output.contains("100% packet loss"), "{}", nowhere.text());
        }
        let report = finish(process);
        let west = path(report.value(), "w0");
        assert_eq!(west["drops"]["blackhole"], 2, "{choice}: {west:#}");
    }
}

/// Longer than what lies ahead: the kernel answers or cuts up, whichever path.
#[test]
fn what_is_too_long_is_the_kernels() {
    for choice in ["tc", "xdp"] {
        let Some(lab) = RouterLab::new(1500, &[]) else { return };
        lab.hosts_take_redirected();
        for end in [&lab.router, &lab.east] {
            end.ip("link set e0 mtu 1300");
        }
        let process = lab.start("w0 e0", &format!("--path {choice}"));
        for address in ["198.51.100.2", "2001:db8:2::2"] {
            let whole = lab.west.run(&format!("ping -n -M do -c 2 -i 0.2 -W 5 -s 1400 {address}"));
            assert!(whole.text().contains("mtu"), "{choice}: {}", whole.text());
        }
        // In fragments of the router's making, and in fragments of the sender's own.
        lab.west.ip("route flush cache");
        RouterLab::check_ping_with(&lab.west, "-M dont -s 1400 198.51.100.3");
        RouterLab::check_ping(&lab.west, &FAR);
        for end in [&lab.router, &lab.east] {
            end.ip("link set e0 mtu 1500");
        }
        RouterLab::check_ping_with(&lab.west, "-s 4000 198.51.100.3");
        let report = finish(process);
        assert!(passed(report.value(), "w0", "too-long") >= 3, "{choice}: {:#}", report.value());
    }
}

/// MTUs of routes, also while it runs.
#[test]
fn mtus_of_routes_are_followed() {
    for choice in ["tc", "xdp"] {
        let Some(lab) = RouterLab::new(1500, &[]) else { return };
        lab.hosts_take_redirected();
        let networks = lab.networks_behind_east();
        let process = lab.start("w0 e0", &format!("--path {choice}"));
        for [address, prefix, gateway, _] in networks {
            let line = format!("ping -n -M do -c 2 -i 0.2 -W 5 -s 1400 {address}");
            lab.router.ip(&format!("route add {prefix} via {gateway}"));
            RouterLab::check_ping_with(&lab.west, &format!("-M do -s 1400 {address}"));
            lab.router.ip(&format!("route replace {prefix} via {gateway} mtu 1300"));
            RouterLab::wait_until("the route's MTU", SHORT, || lab.west.run(&line).text().contains("mtu"));
            RouterLab::check_ping(&lab.west, &[address]);
        }
        let report = finish(process);
        assert!(passed(report.value(), "w0", "too-long") >= 2, "{choice}: {:#}", report.value());
    }
}

#[test]
fn killed_it_leaves_all_to_the_kernel() {
    for choice in ["tc", "xdp"] {
        let Some(lab) = RouterLab::new(1500, &[]) else { return };
        lab.hosts_take_redirected();
        let process = lab.start("w0 e0", &format!("--path {choice}"));
        RouterLab::check_ping(&lab.west, &FAR);
        // Under load.
        let flood = lab.west.spawn("ping -n -q -i 0.002 -c 1500 198.51.100.2");
        std::thread::sleep(Duration::from_secs(1));
        process.signal("KILL");
        let flooded = flood.finish(SHORT);
        let line =
            flooded.output.lines().find(|line| line.contains("packets transmitted")).unwrap_or_default();
        let received: u32 =
            line.split(", ").nth(1).and_then(|part| part.split(' ').next()?.parse().ok()).unwrap_or(0);
        assert!(received >= 1490, "{choice}: {}", flooded.text());
        drop(process);
        assert_nothing_attached(&lab);
        RouterLab::check_ping(&lab.west, &FAR);
        // The next one finds nothing in its way.
        let process = lab.start("w0 e0", &format!("--path {choice}"));
        RouterLab::check_ping(&lab.west, &FAR);
        finish(process);
    }
}

/// How many packets of a steady stream from the west get lost while something is done, with some before it and some after.
fn lost_during(lab: &RouterLab, something: impl FnOnce()) -> u64 {
    let stream = lab.west.spawn("ping -n -q -i 0.002 198.51.100.2");
    let arrived = || {
        let file = "/sys/class/net/e0/statistics/rx_packets";
        let text = lab.east.run(&format!("cat {file}"));
        text.expect_success(file).trim().parse::<u64>().expect("a number")
    };
    let wait_for_more = |what: &str| {
        let before = arrived();
        RouterLab::wait_until(what, SHORT, || arrived() > before + 200);
    };
    wait_for_more("packets before");
    something();
    wait_for_more("packets after");
    stream.interrupt();
    let finished = stream.finish(SHORT);
    let line = finished.output.lines().find(|line| line.contains("packets transmitted"));
    let line = line.unwrap_or_else(|| panic!("no sum: {}", finished.text()));
    let mut counts = line.split(", ").filter_map(|part| part.split(' ').next()?.parse::<u64>().ok());
    let (sent, received) = (counts.next().expect("a number"), counts.next().expect("another"));
    // The last answer may be on its way.
    (sent - received).saturating_sub(1)
}

/// A kill costs no more packets than what takes it back in any case: that programs come to the interfaces and leave them. Lanes' packets come
/// by sockets besides, which the kernel closes only once it has taken back all of the process's memory.
#[test]
fn a_kill_costs_what_the_swap_of_a_program_costs() {
    const OBJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../functions/router/bpf/forward.bpf.o");
    /// Of what differs from one time to the next; and what comes in a second.
    const SLACK: u64 = 100;
    const SECOND: u64 = 500;
    for choice in ["tc", "xdp", "user"] {
        let Some(lab) = RouterLab::alone(1500, &["tc"]) else { return };
        lab.hosts_take_redirected();
        RouterLab::check_ping(&lab.west, &FAR);
        let both = |line: &str| {
            for interface in ["w0", "e0"] {
                let line = line.replace("NAME", interface);
                lab.router.run(&line).expect_success(&line);
            }
        };
        let swap = lost_during(&lab, || {
            if choice == "tc" {
                both("tc qdisc add dev NAME clsact");
                both(&format!(
                    "tc filter add dev NAME ingress bpf direct-action object-file {OBJECT} section classifier"
                ));
                both("tc qdisc delete dev NAME clsact");
            } else {
                both(&format!("ip link set dev NAME xdp object {OBJECT} section xdp"));
                both("ip link set dev NAME xdp off");
            }
        });
        assert_nothing_attached(&lab);
        let process = lab.start("w0 e0", &format!("--path {choice}"));
        let kill = lost_during(&lab, || {
            let before = lab.forwarded_from("w0");
            RouterLab::wait_until("the stream is the router's", SHORT, || {
                lab.forwarded_from("w0") > before + 100
            });
            process.signal("KILL");
        });
        drop(process);
        eprintln!("{choice}: {kill} packets lost by the kill, {swap} by swapping programs");
        let slack = if choice == "user" { SECOND } else { SLACK };
        assert!(kill <= swap + slack, "{choice}: {kill} lost by the kill, {swap} by swapping programs");
        assert_nothing_attached(&lab);
        RouterLab::check_ping(&lab.west, &FAR);
    }
}

/// Where the kernel has no links for the tc hook, a program stays when the process is killed. It passes all on then, whatever the kernel is told
/// later, and goes with the next start, whichever path that takes and though it leaves the interface alone, or when it is asked for.
#[test]
fn what_a_kill_leaves_forwards_nothing_and_goes_with_the_next_start() {
    let Some(lab) = RouterLab::new(1500, &["tc"]) else { return };
    let filters = || {
        let of = |side| lab.router.run(&format!("tc filter show dev w0 {side}")).output;
        of("ingress") + &of("egress")
    };
    let is_ours = || filters().contains("warmlane");
    let clean = || {
        let mut command = lab.router.command(warmlane());
        let finished = Process::run(command.args(["router", "--clean", "--json"]), SHORT);
        serde_json::from_str::<Value>(finished.expect_success("--clean")).expect("JSON")["removed"].take()
    };
    let nothing = serde_json::json!([]);
    lab.hosts_take_redirected();
    for next in ["w0 e0 --path tc", "w0 e0 --path xdp", "w0 e0 --path user", "e0 --path tc", "--clean"] {
        let process = lab.start("w0 e0", "--path tc");
        RouterLab::check_ping(&lab.west, &FAR);
        let is_a_filter = is_ours();
        // What belongs to one that runs stays.
        assert_eq!(clean(), nothing);
        assert_eq!(is_ours(), is_a_filter);
        process.signal("KILL");
        drop(process);
        eprintln!("{next}: left by the kill: {:?}", filters());
        assert_eq!(is_ours(), is_a_filter, "the kernel takes a link with its process");
        lab.router.set("net.ipv4.conf.w0.forwarding", "0");
        RouterLab::wait_until("nothing is forwarded", SHORT, || !RouterLab::answers(&lab.west, FAR[0]));
        lab.router.set("net.ipv4.conf.w0.forwarding", "1");
        RouterLab::check_ping(&lab.west, &FAR);
        if next == "--clean" {
            let removed = clean();
            assert_eq!(
                removed.to_string().contains("'w0': the filter warmlane_tc"),
                is_a_filter,
                "{removed}"
            );
            assert_eq!(clean(), nothing);
        } else {
            let (interfaces, path) = next.split_once(" --").expect("both");
            let process = lab.start(interfaces, &format!("--{path}"));
            // An empty clsact may stay behind, which changes nothing for packets.
            assert_eq!(is_ours(), is_a_filter && next == "w0 e0 --path tc", "{next}: {}", filters());
            RouterLab::check_ping(&lab.west, &FAR);
            RouterLab::end(process);
        }
        assert!(!is_ours(), "{next}: {}", filters());
        RouterLab::check_ping(&lab.west, &FAR);
    }
}

/// One interface on each path: what the other path must send by it goes through the kernel.
#[test]
fn interfaces_on_different_paths_reach_each_other() {
    for choice in
        ["w0=user e0=tc", "w0=tc e0=user", "w0=xdp e0=tc", "w0=tc e0=xdp", "w0=user e0=xdp", "w0=xdp e0=user"]
    {
        let Some(lab) = RouterLab::new(1500, &[]) else { return };
        lab.hosts_take_redirected();
        let options: Vec<String> = choice.split(' ').map(|word| format!("--path {word}")).collect();
        let process = lab.start("w0 e0", &options.join(" "));
        RouterLab::check_ping(&lab.west, &FAR);
        RouterLab::check_ping(&lab.east, &["192.0.2.2", "2001:db8:1::2"]);
        RouterLab::check_ping(&lab.west, &OWN);
        finish(process);
        assert_nothing_attached(&lab);
    }
}

/// The kernel's switches hold from one second to the next.
#[test]
fn the_kernels_switches_are_obeyed() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let process = lab.start("w0 e0", "--path tc");
    RouterLab::check_ping(&lab.west, &FAR);
    lab.router.set("net.ipv4.conf.w0.forwarding", "0");
    let nothing = lab.west.run("ping -n -c 2 -i 0.2 -W 1 198.51.100.2");
    assert!(nothing.output.contains("100% packet loss"), "{}", nothing.text());
    lab.router.set("net.ipv4.conf.w0.forwarding", "1");
    // A source that leads elsewhere.
    lab.west.ip("address add 203.0.113.9/32 dev w0");
    lab.router.ip("route add 203.0.113.9/32 via 198.51.100.2");
    lab.router.set("net.ipv4.conf.all.rp_filter", "1");
    RouterLab::wait_until("the filter", SHORT, || {
        lab.west.run("ping -n -c 1 -W 1 -I 203.0.113.9 198.51.100.2");
        passed(&lab.ask("counters"), "w0", "reverse-path") > 0
    });
    RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
    let report = finish(process);
    assert!(passed(report.value(), "w0", "forwarding-off") > 0, "{:#}", report.value());
}

#[test]
fn what_can_not_be_is_refused_with_the_remedy() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let refused = |interfaces: &str, options: &str, parts: &[&str]| {
        assert_refused(&lab.spawn(interfaces, options).finish(SHORT), parts);
        assert_nothing_attached(&lab);
    };
    refused("w0 e0", "--path fast", &["\"fast\" is no path", "best, user, xdp or tc"]);
    refused("w0 e0", "--path tc --path xdp", &["path is said twice"]);
    refused("w0 e0", "--path x0=tc", &["path names 'x0'", "ip link"]);
    refused("w0 w0", "--path tc", &["'w0' is there twice"]);
    refused("w0 lo0", "--path tc", &["\"lo0\"", "ip link"]);
    refused("w0 lo", "--path tc", &["\"lo\" is the loopback"]);
    refused("w0 e0", "--path tc --urpf strict", &["urpf", "--path w0=user", "rp_filter"]);
    lab.router.ip("link add br0 type bridge");
    lab.router.ip("link set e0 master br0");
    refused("w0 e0", "--path tc", &["member of bridge \"br0\"", "ip link set e0 nomaster"]);
    lab.router.ip("link set e0 nomaster");
    lab.router.ip("link set e0 down");
    refused("w0 e0", "--path tc", &["\"e0\" is down", "ip link set e0 up"]);
    lab.router.ip("link set e0 up");
    // A program of somebody else's, here another router's, which goes on.
    let other = lab.start("w0", "--path tc");
    let mut command = lab.router.command(warmlane());
    command.args(["router", "w0", "e0", "--path", "tc", "--socket"]).arg(lab.directory().join("other.sock"));
    // Before Linux 6.6 the kernel doesn't tell which it is, and the remedy is another.
    assert_refused(&Process::run(&mut command, SHORT), &["another tc program", "\"w0\"", "warmlane"]);
    assert_eq!(lab.ask("status")["paths"][0]["interface"], "w0");
    finish(other);
}

/// With the four capabilities that the service has, and no others; without one of them it says which.
#[test]
fn four_capabilities_are_enough() {
    let Some(lab) = RouterLab::new(1500, &["setpriv"]) else { return };
    lab.hosts_take_redirected();
    let all = ["net_admin", "net_raw", "bpf", "ipc_lock"];
    for choice in ["tc", "xdp"] {
        let mut process = Process::spawn(&mut lab.as_nobody_on(choice, &all, &[]));
        process.wait_for("note: forwarding between", SHORT);
        RouterLab::check_ping(&lab.west, &FAR);
        let report = finish(process);
        assert!(path(report.value(), "w0")["forwarded"].as_u64() > Some(4), "{:#}", report.value());
        for without in ["net_admin", "bpf"] {
            let some: Vec<_> = all.into_iter().filter(|name| *name != without).collect();
            let refused = Process::run(&mut lab.as_nobody_on(choice, &some, &[]), SHORT);
            assert_refused(&refused, &[&format!("CAP_{}", without.to_uppercase())]);
        }
        assert_nothing_attached(&lab);
    }
    // Somebody else's program, which only root may look at.
    let other = lab.start("w0", "--path tc");
    let refused = Process::run(&mut lab.as_nobody_on("tc", &all, &[]), SHORT);
    assert_refused(&refused, &["another tc program", "\"w0\"", "bpftool net detach tcx_ingress dev w0"]);
    assert!(!lab.router.run("tc qdisc show dev w0").output.contains("clsact"));
    finish(other);
}

/// Nothing is lost where an interface can't send redirected frames, and it is said.
#[test]
fn what_can_not_be_redirected_is_the_kernels() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let mut process = lab.start("w0 e0", "--path xdp");
    process.wait_for("interface e0 can't send what is redirected to it", SHORT);
    RouterLab::check_ping(&lab.west, &FAR);
    assert!(passed(&lab.ask("counters"), "w0", "other-interface") > 0);
    // From then on it can.
    lab.hosts_take_redirected();
    RouterLab::wait_until("redirected frames", SHORT, || {
        RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
        path(&lab.ask("counters"), "w0")["forwarded"].as_u64() > Some(0)
    });
    finish(process);
}
