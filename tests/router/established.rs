//! Established flows are forwarded past netfilter, as long as it would let them pass.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use warmlane_system_tests::talk::{Talk, listener};
use warmlane_system_tests::{RouterLab, SHORT, iperf};
use warmlane_testkit::Report;
use warmlane_testkit::namespace::Namespace;
use warmlane_testkit::process::Process;

const EAST: &str = "198.51.100.2";
const EAST_IPV6: &str = "2001:db8:2::2";
/// An address of two hosts.
const TARGET: &str = "2001:db8:9::1";
/// Words a second.
const RATE: u32 = 200;

fn run(lab: &RouterLab, line: &str) -> String {
    lab.router.run(line).expect_success(line).to_owned()
}

/// A home gateway: what comes from the west may begin connections, and is masqueraded.
fn masquerade(lab: &RouterLab) {
    run(lab, "nft add table ip home");
    run(lab, "nft add chain ip home across { type filter hook forward priority 0 ; policy drop ; }");
    run(lab, "nft add rule ip home across ct state established,related accept");
    run(lab, "nft add rule ip home across iifname w0 accept");
    run(lab, "nft add chain ip home out { type nat hook postrouting priority 100 ; }");
    run(lab, "nft add rule ip home out oifname e0 masquerade");
}

/// The same for IPv6, without translation.
fn firewall(lab: &RouterLab) {
    run(lab, "nft add table ip6 home");
    run(lab, "nft add chain ip6 home across { type filter hook forward priority 0 ; policy drop ; }");
    run(lab, "nft add rule ip6 home across ct state invalid drop");
    run(lab, "nft add rule ip6 home across ct state established,related accept");
    run(lab, "nft add rule ip6 home across iifname w0 accept");
}

fn lab(choice: &str) -> Option<(RouterLab, Process)> {
    let lab = RouterLab::new(1500, &["nft", "ethtool", "conntrack", "python3", "iptables-legacy"])?;
    for (host, interface) in [(&lab.west, "w0"), (&lab.east, "e0")] {
        RouterLab::take_redirected(host, interface);
        if choice == "tc" {
            host.set_offloads(interface, true);
        }
    }
    masquerade(&lab);
    // The host in the east knows no way back but to the router itself.
    lab.east.ip("route del default");
    firewall(&lab);
    let process = lab.start("w0 e0", &format!("--path {choice} --offload-established"));
    Some((lab, process))
}

fn path(report: &Value, interface: &str) -> Value {
    let paths = report["paths"].as_array().expect("a list");
    paths.iter().find(|path| path["interface"] == interface).expect("it is there").clone()
}

/// How many packets of established flows came in by either interface.
fn established(lab: &RouterLab) -> [u64; 2] {
    let report = lab.ask("counters");
    ["w0", "e0"].map(|name| path(&report, name)["established"].as_u64().expect("a number"))
}

/// Waits until both directions are forwarded past netfilter.
#[track_caller]
fn wait_until_offloaded(lab: &RouterLab) {
    let before = established(lab);
    RouterLab::wait_until("a flow is offloaded", SHORT, || {
        let now = established(lab);
        now[0] > before[0] + 20 && now[1] > before[1] + 20
    });
}

/// Nothing gets through any more, a second after it was forbidden.
#[track_caller]
fn assert_stopped(lab: &RouterLab, talk: &Talk, what: &str) {
    std::thread::sleep(Duration::from_secs(1));
    let before = established(lab);
    assert!(!talk.goes_on(Duration::from_secs(2)), "{what}");
    // Others may still have something to send again.
    let now = established(lab);
    assert!(now[0] < before[0] + 20 && now[1] < before[1] + 20, "{what}: {before:?}, {now:?}");
}

fn connections(lab: &RouterLab, selection: &str) -> String {
    run(lab, &format!("conntrack -L {selection}"))
}

/// Ends the router and checks its books.
fn finish(process: Process) {
    let report = Report::parse(&RouterLab::end(process));
    for path in report.value()["paths"].as_array().expect("a list") {
        let number = |name: &str| path[name].as_u64().unwrap_or_else(|| panic!("{name}: {path:#}"));
        let all = number("forwarded") + number("passed") + number("dropped");
        assert_eq!(number("received"), all, "{path:#}");
        assert!(number("established") <= number("forwarded"), "{path:#}");
    }
}

/// Where the kernel has none, as the guest at first, that is said, and packets that pass no rules are forwarded all the same.
#[test]
fn without_conntrack_it_says_so() {
    if Path::new("/proc/sys/net/netfilter/nf_conntrack_max").exists() {
        eprintln!("this kernel has conntrack: a guest's has none");
        return;
    }
    for choice in ["tc", "xdp"] {
        let Some(lab) = RouterLab::new(1500, &[]) else { return };
        lab.hosts_take_redirected();
        let mut process = lab.spawn("w0 e0", &format!("--path {choice} --offload-established"));
        process.wait_for("conntrack can't be asked", SHORT);
        process.wait_for("`modprobe nf_conntrack_netlink`", SHORT);
        process.wait_for("note: forwarding between", SHORT);
        RouterLab::check_ping(&lab.west, &[EAST, EAST_IPV6]);
        assert!(lab.forwarded_from("w0") > 1, "{choice}");
        finish(process);
    }
}

/// A gateway that masquerades: most packets of a stream, and of what answers it, don't pass netfilter.
#[test]
fn streams_are_masqueraded_past_netfilter() {
    for choice in ["tc", "xdp"] {
        let Some(lab) = RouterLab::new(1500, &["nft"]) else { return };
        lab.hosts_take_redirected();
        masquerade(&lab);
        lab.east.ip("route del default");
        let process = lab.start("w0 e0", &format!("--path {choice} --offload-established"));
        let mut server = lab.east.spawn("iperf3 --server --forceflush");
        server.wait_for("Server listening", SHORT);
        let stream = lab.west.spawn(&format!("iperf3 --client {EAST} --time 600"));
        let count = || {
            let counters = lab.ask("counters");
            ["w0", "e0"].map(|interface| {
                let path = path(&counters, interface);
                ["received", "established"].map(|name| path[name].as_u64().expect("a number"))
            })
        };
        RouterLab::wait_until("most packets of both directions bypass netfilter", SHORT, || {
            let before = count();
            std::thread::sleep(Duration::from_secs(1));
            before.into_iter().zip(count()).all(|(before, now)| {
                let [received, established] = [now[0] - before[0], now[1] - before[1]];
                received > 100 && 2 * established > received
            })
        });
        stream.interrupt();
        stream.finish(SHORT);
        finish(process);
    }
}

/// At the same time, each in namespaces of its own: there is much waiting.
fn on_both_paths(test: fn(&str)) {
    std::thread::scope(|scope| {
        for choice in ["tc", "xdp"] {
            scope.spawn(move || test(choice));
        }
    });
}

#[test]
fn flows_are_forwarded_with_their_translation() {
    for choice in ["tc", "xdp"] {
        let Some((lab, process)) = lab(choice) else { return };
        for protocol in ["tcp", "udp"] {
            for address in [EAST, EAST_IPV6] {
                let _listener = listener(&lab.east, protocol, address, 7000);
                let talk = Talk::start(&lab.west, protocol, address, 7000, RATE);
                wait_until_offloaded(&lab);
                assert!(talk.goes_on(SHORT), "{choice} {protocol} {address}");
                talk.0.interrupt();
            }
        }
        finish(process);
    }
}

/// What is forbidden later: by rules of either kind, or by conntrack not knowing it any more.
#[test]
fn what_is_forbidden_is_stopped_within_a_second() {
    // One after the other: it is about time.
    for choice in ["tc", "xdp"] {
        what_is_forbidden_is_stopped(choice);
    }
}

fn what_is_forbidden_is_stopped(choice: &str) {
    let Some((lab, process)) = lab(choice) else { return };
    let listeners = [listener(&lab.east, "tcp", EAST, 7000), listener(&lab.east, "udp", EAST, 7000)];
    for protocol in ["tcp", "udp"] {
        let forbidden_by: [(&str, &str, &str); 3] = [
            ("a rule", "nft insert rule ip home across ip protocol { tcp, udp } drop", "nft flush ruleset"),
            ("the policy", "nft flush chain ip home across", "nft flush ruleset"),
            (
                "the older iptables",
                "iptables-legacy -I FORWARD -j DROP",
                "iptables-legacy -D FORWARD -j DROP",
            ),
        ];
        for (what, line, undo) in forbidden_by {
            let talk = Talk::start(&lab.west, protocol, EAST, 7000, RATE);
            wait_until_offloaded(&lab);
            run(&lab, line);
            assert_stopped(&lab, &talk, &format!("{choice} {protocol} {what}"));
            talk.0.signal("USR1");
            run(&lab, undo);
            if undo.starts_with("nft") {
                masquerade(&lab);
                firewall(&lab);
            }
        }
        // What may be begun no more goes on, past netfilter, until conntrack has forgotten it.
        let talk = Talk::start(&lab.west, protocol, EAST, 7000, RATE);
        wait_until_offloaded(&lab);
        run(&lab, "nft flush chain ip home across");
        run(&lab, "nft add rule ip home across ct state established,related accept");
        assert!(talk.goes_on(SHORT), "{choice} {protocol}");
        wait_until_offloaded(&lab);
        run(&lab, &format!("conntrack -D -p {protocol} --sport {}", talk.port()));
        assert_stopped(&lab, &talk, &format!("{choice} {protocol} forgotten"));
        talk.0.signal("USR1");
        run(&lab, "nft flush ruleset");
        masquerade(&lab);
        firewall(&lab);
    }
    drop(listeners);
    finish(process);
}

/// Conntrack sees how a connection ends, and an offloaded one is its own to time out.
#[test]
fn connections_end_as_without() {
    on_both_paths(connections_end);
}

fn connections_end(choice: &str) {
    let Some((lab, process)) = lab(choice) else { return };
    // Once a second a packet of a flow goes through the kernel. On a busy machine there may be none for some seconds.
    for timeout in ["tcp_timeout_established", "udp_timeout_stream", "udp_timeout"] {
        lab.router.set(&format!("net.netfilter.nf_conntrack_{timeout}"), "10");
    }
    for (protocol, signal) in [("tcp", "INT"), ("tcp", "USR1"), ("udp", "INT")] {
        let _listener = listener(&lab.east, protocol, EAST, 7000);
        let talk = Talk::start(&lab.west, protocol, EAST, 7000, RATE);
        wait_until_offloaded(&lab);
        // Longer than conntrack keeps it without packets.
        let before = established(&lab);
        std::thread::sleep(Duration::from_secs(13));
        RouterLab::wait_until("the talk goes on", SHORT, || {
            established(&lab)[0] > before[0] + 13 * u64::from(RATE) / 2
        });
        let selection = format!("-p {protocol} --sport {}", talk.port());
        let said = connections(&lab, &selection);
        assert!(said.contains("[ASSURED]"), "{choice} {protocol}: {said}");
        if protocol == "tcp" {
            assert!(said.contains("ESTABLISHED"), "{said}");
        }
        talk.0.signal(signal);
        RouterLab::wait_until("the end", SHORT, || {
            let said = connections(&lab, &selection);
            match (protocol, signal) {
                ("tcp", "INT") => said.contains("TIME_WAIT"),
                ("tcp", _) => said.contains("CLOSE ") || !said.contains("src="),
                _ => !said.contains("src="),
            }
        });
    }
    finish(process);
}

/// A service behind the gateway: connections come from outside.
#[test]
fn destinations_are_translated() {
    for choice in ["tc", "xdp"] {
        let Some((lab, process)) = lab(choice) else { return };
        run(&lab, "nft add rule ip home across ct status dnat accept");
        run(&lab, "nft add chain ip home in { type nat hook prerouting priority -100 ; }");
        for protocol in ["tcp", "udp"] {
            run(
                &lab,
                &format!("nft add rule ip home in iifname e0 {protocol} dport 8080 dnat to 192.0.2.2:7000"),
            );
            let _listener = listener(&lab.west, protocol, "192.0.2.2", 7000);
            let talk = Talk::start(&lab.east, protocol, "198.51.100.1", 8080, RATE);
            wait_until_offloaded(&lab);
            assert!(talk.goes_on(SHORT), "{choice} {protocol}");
            talk.0.interrupt();
        }
        finish(process);
    }
}

/// Packets of an offloaded flow go where the route leads.
#[test]
fn flows_move_with_their_route() {
    for choice in ["tc", "xdp"] {
        let Some(lab) = RouterLab::new(1500, &["nft", "ethtool", "conntrack", "python3"]) else { return };
        firewall(&lab);
        let third = lab.third_host();
        lab.hosts_take_redirected();
        RouterLab::take_redirected(&third, "x0");
        let mut listeners = Vec::new();
        for host in [&lab.east, &third] {
            host.ip(&format!("address add {TARGET}/128 dev lo nodad"));
            host.ip("link set lo up");
            listeners.push(listener(host, "udp", TARGET, 7000));
        }
        lab.router.ip(&format!("route add {TARGET} via 2001:db8:2::2"));
        let process = lab.start("w0 e0 x0", &format!("--path {choice} --offload-established"));
        let talk = Talk::start(&lab.west, "udp", TARGET, 7000, RATE);
        wait_until_offloaded(&lab);
        let from_third = || path(&lab.ask("counters"), "x0")["established"].as_u64().expect("a number");
        assert_eq!(from_third(), 0);
        lab.router.ip(&format!("route replace {TARGET} via 2001:db8:3::2"));
        RouterLab::wait_until("the flow comes from the third host", SHORT, || from_third() > 20);
        assert!(talk.goes_on(SHORT), "{choice}");
        finish(process);
    }
}

#[test]
fn killed_it_leaves_flows_to_the_kernel() {
    for choice in ["tc", "xdp"] {
        let Some((lab, process)) = lab(choice) else { return };
        let _listeners = [listener(&lab.east, "tcp", EAST, 7000), listener(&lab.east, "udp", EAST, 7000)];
        let talks = ["tcp", "udp"].map(|protocol| {
            let talk = Talk::start(&lab.west, protocol, EAST, 7000, RATE);
            wait_until_offloaded(&lab);
            talk
        });
        process.signal("KILL");
        drop(process);
        for talk in talks {
            assert!(talk.goes_on(SHORT) && talk.goes_on(SHORT), "{choice}");
        }
    }
}

/// What a flow can't take: fragments, packets that are too long, errors that tell of them.
#[test]
fn what_flows_can_not_take_is_the_kernels() {
    for choice in ["tc", "xdp"] {
        let Some((lab, process)) = lab(choice) else { return };
        for end in [&lab.router, &lab.east] {
            end.ip("link set e0 mtu 1300");
        }
        let mut server = lab.east.spawn("iperf3 --server --forceflush");
        server.wait_for("Server listening", SHORT);
        for address in [EAST, EAST_IPV6] {
            let report = iperf(&lab.west, &format!("--client {address} --time 3"));
            let received = report["end"]["sum_received"]["bytes"].as_u64();
            assert!(received > Some(1_000_000), "{choice}: {report:#}");
            // Each in three fragments.
            let report =
                iperf(&lab.west, &format!("--client {address} --udp --length 4000 --bitrate 8M --time 4"));
            let lost = report["end"]["sum"]["lost_percent"].as_f64();
            assert!(lost < Some(10.0), "{choice}: {report:#}");
        }
        let report = lab.ask("counters");
        assert!(path(&report, "w0")["established"].as_u64() > Some(100), "{choice}: {report:#}");
        finish(process);
    }
}

/// Only the kernel can count for conntrack, so what it counts stays with it: its numbers are true.
#[test]
fn flows_that_conntrack_counts_are_the_kernels() {
    for choice in ["tc", "xdp"] {
        let Some((lab, mut process)) = lab(choice) else { return };
        let _listener = listener(&lab.east, "udp", EAST, 7000);
        lab.router.set("net.netfilter.nf_conntrack_acct", "1");
        process.wait_for("net.netfilter.nf_conntrack_acct=0", SHORT);
        let talk = Talk::start(&lab.west, "udp", EAST, 7000, RATE);
        // It would long be offloaded.
        RouterLab::wait_until("many answers", SHORT, || talk.answers() > 3 * u64::from(RATE));
        assert_eq!(established(&lab), [0, 0], "{choice}");
        let answers = talk.answers();
        let said = connections(&lab, &format!("-p udp --sport {}", talk.port()));
        let counted: Vec<u64> =
            said.split_whitespace().filter_map(|word| word.strip_prefix("packets=")?.parse().ok()).collect();
        assert!(
            counted.len() == 2 && counted.iter().all(|count| *count >= answers),
            "{choice} {answers}: {said}"
        );
        assert!(lab.ask("status")["warnings"].to_string().contains("nf_conntrack_acct=0"));
        // One that begins later is not counted.
        lab.router.set("net.netfilter.nf_conntrack_acct", "0");
        let other = Talk::start(&lab.west, "udp", EAST, 7000, RATE);
        wait_until_offloaded(&lab);
        assert!(other.goes_on(SHORT) && talk.goes_on(SHORT), "{choice}");
        RouterLab::wait_until("nothing is said", SHORT, || {
            !lab.ask("status")["warnings"].to_string().contains("nf_conntrack_acct")
        });
        finish(process);
    }
}

/// Connections of other zones than the first are others, whatever their addresses and ports.
#[test]
fn other_zones_are_the_kernels() {
    for choice in ["tc", "xdp"] {
        let Some((lab, process)) = lab(choice) else { return };
        run(&lab, "nft add table ip zones");
        run(&lab, "nft add chain ip zones in { type filter hook prerouting priority raw ; }");
        run(&lab, "nft add rule ip zones in udp dport 7000 ct zone set 7");
        run(&lab, "nft add rule ip zones in udp sport 7000 ct zone set 7");
        let _listeners = [7000, 7001].map(|port| listener(&lab.east, "udp", EAST, port));
        let talk = Talk::start(&lab.west, "udp", EAST, 7000, RATE);
        RouterLab::wait_until("many answers", SHORT, || talk.answers() > 3 * u64::from(RATE));
        assert!(connections(&lab, "-p udp --zone 7").contains("[ASSURED]"), "{choice}");
        assert_eq!(established(&lab), [0, 0], "{choice}");
        let _other = Talk::start(&lab.west, "udp", EAST, 7001, RATE);
        wait_until_offloaded(&lab);
        finish(process);
    }
}

/// Helpers of conntrack look at each packet for addresses in it, so their flows stay with the kernel.
#[test]
fn flows_with_a_helper_are_the_kernels() {
    for choice in ["tc", "xdp"] {
        let Some((lab, process)) = lab(choice) else { return };
        run(&lab, "nft add ct helper ip home aid { type \"tftp\" protocol udp ; }");
        run(&lab, "nft add chain ip home in { type filter hook prerouting priority 0 ; }");
        run(&lab, "nft add rule ip home in udp dport 7000 ct helper set \"aid\"");
        let _listeners = [7000, 7001].map(|port| listener(&lab.east, "udp", EAST, port));
        let talk = Talk::start(&lab.west, "udp", EAST, 7000, RATE);
        RouterLab::wait_until("many answers", SHORT, || talk.answers() > 3 * u64::from(RATE));
        let said = connections(&lab, "-p udp --dport 7000");
        assert!(said.contains("[ASSURED]") && said.contains("helper=tftp"), "{choice}: {said}");
        assert_eq!(established(&lab), [0, 0], "{choice}");
        let _other = Talk::start(&lab.west, "udp", EAST, 7001, RATE);
        wait_until_offloaded(&lab);
        finish(process);
    }
}

/// An error about a packet of an offloaded flow finds its way back through the translation.
#[test]
fn errors_about_offloaded_flows_are_translated() {
    for choice in ["tc", "xdp"] {
        let Some((lab, process)) = lab(choice) else { return };
        let unreachable = |host: &Namespace| -> u64 {
            let said = host.run("cat /proc/net/snmp").output;
            let mut lines = said.lines().filter(|line| line.starts_with("Icmp:"));
            let (names, values) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
            let place = names.split(' ').position(|name| name == "InDestUnreachs").expect("it is counted");
            values.split(' ').nth(place).and_then(|value| value.parse().ok()).expect("a number")
        };
        let server = listener(&lab.east, "udp", EAST, 7000);
        let talk = Talk::start(&lab.west, "udp", EAST, 7000, RATE);
        wait_until_offloaded(&lab);
        let before = unreachable(&lab.west);
        // Nobody listens any more, and the host in the east says so, a few times a second.
        server.signal("KILL");
        drop(server);
        RouterLab::wait_until("the sender hears of it", SHORT, || unreachable(&lab.west) > before);
        drop(talk);
        finish(process);
    }
}

/// As the unit starts it: with four capabilities, of which the verifier is stricter.
#[test]
fn a_service_may_do_it() {
    for choice in ["tc", "xdp"] {
        let Some(lab) = RouterLab::new(1500, &["nft", "setpriv"]) else { return };
        masquerade(&lab);
        let all = ["net_admin", "net_raw", "bpf", "ipc_lock"];
        let mut process = Process::spawn(lab.as_nobody_on(choice, &all, &[]).arg("--offload-established"));
        process.wait_for("note: forwarding between", SHORT);
        process.wait_for("until a flow is established", SHORT);
        finish(process);
    }
}
