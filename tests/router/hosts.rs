//! `warmlane router` between two of the kernel's hosts: what the kernel's own router does must go on, and faster.

use warmlane_system_tests::flows::{self, Received, Receiver};
use warmlane_system_tests::{RouterLab, SHORT, iperf};
use warmlane_testkit::namespace::Namespace;
use warmlane_testkit::process::Process;

const FAR: [&str; 4] = ["198.51.100.2", "2001:db8:2::2", "198.51.100.3", "2001:db8:2::3"];

#[test]
fn hosts_reach_each_other_and_the_kernel_gets_it_back() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let process = lab.start("w0 e0", "");
    // Nobody knows anybody: the first packet of each waits for the neighbour, and none is lost.
    RouterLab::check_ping(&lab.west, &FAR);
    RouterLab::check_ping(&lab.east, &["192.0.2.2", "2001:db8:1::2"]);
    // The box itself.
    RouterLab::check_ping(&lab.west, &["192.0.2.1", "198.51.100.1", "2001:db8:1::1", "2001:db8:2::1"]);
    for (options, hop, target) in
        [("-4", "192.0.2.1", "198.51.100.2"), ("-6", "2001:db8:1::1", "2001:db8:2::2")]
    {
        let trace = lab.west.run(&format!("traceroute {options} -n -q 2 -w 10 -m 5 {target}"));
        let hops: Vec<&str> = trace.output.lines().skip(1).map(str::trim).collect();
        let seen = |number: usize, address: &str| {
            hops.get(number - 1).is_some_and(|line| line.starts_with(&format!("{number}  {address} ")))
        };
        assert!(seen(1, hop) && seen(2, target) && hops.len() == 2, "{}", trace.text());
    }
    // A host that isn't there.
    let nobody = lab.west.run("ping -n -c 1 -W 10 198.51.100.77");
    assert!(nobody.output.contains("From 192.0.2.1"), "{}", nobody.text());
    assert!(nobody.output.contains("Destination Host Unreachable"), "{}", nobody.text());
    let nobody = lab.west.run("ping -n -c 1 -W 10 2001:db8:2::77");
    assert!(nobody.output.contains("From 2001:db8:1::1"), "{}", nobody.text());

    let report = RouterLab::finish(process);
    // Six ways of three pings, and their answers.
    assert!(report.number("/forward/forwarded") >= 6 * 6, "{:#}", report.value());
    assert!(!lab.router.run("ip -details link show").output.contains("prog/xdp"));
    RouterLab::check_ping(&lab.west, &FAR);
}

#[test]
fn routes_are_followed() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let networks = lab.networks_behind_east();
    let process = lab.start("w0 e0", "");
    let reaches = |address: &str| lab.west.run(&format!("ping -n -c 1 -W 1 {address}"));
    for network in networks {
        let [address, prefix, gateway, _] = network;
        lab.check_route_is_followed(network);
        for _ in 0..50 {
            lab.router.ip(&format!("route del {prefix}"));
            lab.router.ip(&format!("route add {prefix} via {gateway}"));
        }
        RouterLab::check_ping(&lab.west, &[address]);
        for (kind, says) in
            [("unreachable", "nreachable"), ("prohibit", ""), ("blackhole", "100% packet loss")]
        {
            lab.router.ip(&format!("route del {prefix}"));
            lab.router.ip(&format!("route add {kind} {prefix}"));
            let says = match (kind, address.contains(':')) {
                ("prohibit", true) => "rohibited",
                ("prohibit", false) => "filtered",
                _ => says,
            };
            RouterLab::wait_until(kind, SHORT, || reaches(address).text().contains(says));
        }
    }
    RouterLab::finish(process);
}

#[test]
fn streams_and_large_packets_go_through() {
    const MTU: u32 = 9000;
    let Some(lab) = RouterLab::new(MTU, &[]) else { return };
    let process = lab.start("w0 e0", "");
    RouterLab::check_ping(&lab.west, &FAR);
    for (address, headers) in [("198.51.100.2", 28), ("2001:db8:2::2", 48)] {
        let line = format!("ping -n -c 3 -i 0.2 -W 10 -M do -s {} {address}", MTU - headers);
        lab.west.run(&line).expect_success(&line);
    }
    for host in [(&lab.west, "w0"), (&lab.east, "e0"), (&lab.router, "w0"), (&lab.router, "e0")] {
        host.0.set_offloads(host.1, false);
    }
    for address in ["198.51.100.2", "2001:db8:2::2"] {
        // Bound, for this host has two addresses, and an unbound server answers datagrams from the one that it likes.
        let mut server = lab.east.spawn(&format!("iperf3 --server --forceflush --bind {address}"));
        server.wait_for("Server listening", SHORT);
        for options in ["", "--reverse", "--udp --bitrate 20M --length 1200"] {
            let line = format!("--client {address} --time 1 {options}");
            let result = iperf(&lab.west, &line);
            let number =
                |path: &str| result.pointer(path).and_then(serde_json::Value::as_f64).unwrap_or(-1.0);
            if options.contains("udp") {
                let (packets, lost) = (number("/end/sum/packets"), number("/end/sum/lost_packets"));
                assert!(
                    packets > 1000.0 && lost < packets / 4.0,
                    "{line}: {lost} of {packets} lost: {result:#}"
                );
            } else {
                assert!(number("/end/sum_received/bytes") > 1e6, "{line}: {result:#}");
            }
        }
    }
    RouterLab::finish(process);
}

/// Lanes can't go on with what is left to hardware that there isn't; that it is lost is not silent.
#[test]
fn checksums_that_are_left_to_hardware_are_told_of() {
    let Some(lab) = RouterLab::new(1500, &["bash"]) else { return };
    let mut process = lab.start("w0 e0", "");
    let send = || {
        for host in ["198.51.100.2", "2001:db8:2::2"] {
            let mut command = lab.west.command("bash");
            command.args(["-c", &format!("echo something >/dev/udp/{host}/9")]);
            Process::run(&mut command, SHORT).expect_success("bash");
        }
    };
    let warnings = || lab.ask("status")["warnings"].to_string();
    let received = lab.forwarded_from("w0");
    RouterLab::wait_until("whole packets", SHORT, || {
        send();
        lab.forwarded_from("w0") > received + 4
    });
    assert!(!warnings().contains("checksums"), "{}", warnings());
    lab.west.set_offloads("w0", true);
    let told = "interface w0: senders leave checksums to hardware that there isn't";
    RouterLab::wait_until("the warning", SHORT, || {
        send();
        warnings().contains(told)
    });
    assert!(warnings().contains("--path w0=tc") && !warnings().contains("interface e0"), "{}", warnings());
    process.wait_for(told, SHORT);
    RouterLab::finish(process);
}

#[test]
fn a_smaller_link_is_found_out() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    lab.router.ip("link set e0 mtu 1400");
    lab.east.ip("link set e0 mtu 1400");
    let process = lab.start("w0 e0", "");
    // Before the sender knows: its fragments are cut again.
    lab.west.run("ping -n -c 3 -i 0.2 -W 10 -M dont -s 3000 198.51.100.2").expect_success("fragments");
    let too_big = lab.west.run("ping -n -c 2 -i 0.2 -W 10 -M do -s 1472 198.51.100.2");
    assert!(too_big.text().contains("From 192.0.2.1"), "{}", too_big.text());
    assert!(too_big.text().contains("mtu = 1400"), "{}", too_big.text());
    let too_big = lab.west.run("ping -n -c 2 -i 0.2 -W 10 -M do -s 1452 2001:db8:2::2");
    assert!(too_big.text().contains("Packet too big: mtu=1400"), "{}", too_big.text());
    let report = RouterLab::finish(process);
    assert!(report.number("/forward/fragmented") > 0, "{:#}", report.value());
}

/// Two hosts that a group of nexthop objects leads to, in both families, with equal weights and others. Flows keep their path and
/// their order.
#[test]
fn flows_are_spread_over_next_hops() {
    let Some(lab) = RouterLab::new(1500, &["python3"]) else { return };
    let third = lab.third_host();
    for family in ["ipv4", "ipv6"] {
        lab.router.set(&format!("net.{family}.fib_multipath_hash_policy"), "1");
    }
    let process = lab.start("w0 e0 x0", "");
    for (family, far, prefix, gateways) in [
        (4, "203.0.113.1", "203.0.113.0/24", ["198.51.100.2", "192.0.3.2"]),
        (6, "2001:db8:5::1", "2001:db8:5::/48", ["2001:db8:2::2", "2001:db8:3::2"]),
    ] {
        let hosts = [&lab.east, &third];
        for host in hosts {
            host.ip(&format!("address add {far}/{} dev lo", if family == 4 { 32 } else { 128 }));
        }
        for (number, (interface, gateway)) in (1..).zip(["e0", "x0"].into_iter().zip(gateways)) {
            // While a neighbour isn't known, only so many packets are held for it, and others dropped.
            RouterLab::wait_until("the gateway answers", SHORT, || {
                lab.router.run(&format!("ping -n -c 1 -W 1 {gateway}")).status.success()
            });
            lab.router.ip(&format!("nexthop add id {family}{number} via {gateway} dev {interface}"));
        }
        lab.router.ip(&format!("nexthop add id {family}0 group {family}1/{family}2"));
        lab.router.ip(&format!("route add {prefix} nhid {family}0"));
        let check = |what: &str, share: std::ops::Range<f64>| {
            lab.verify();
            check_spread(&lab.west, hosts, far, &format!("{far}, {what}"), share);
        };
        check("equal weights", 0.45..0.55);
        // The group changes, the route doesn't: nobody tells of it.
        lab.router.ip(&format!("nexthop replace id {family}0 group {family}1,3/{family}2,1"));
        check("three to one", 0.70..0.80);
        // A multipath route of the old kind.
        lab.router.ip(&format!("route del {prefix}"));
        let [first, second] = gateways;
        lab.router
            .ip(&format!("route add {prefix} nexthop via {first} weight 1 nexthop via {second} weight 3"));
        check("one to three", 0.20..0.30);
        // Of two members one goes with its link, without a word on the route; when it comes back, the group is gone.
        lab.router.ip(&format!("route del {prefix}"));
        lab.router.ip(&format!("route add {prefix} nhid {family}0"));
    }
    lab.router.ip("link set x0 down");
    for far in ["203.0.113.1", "2001:db8:5::1"] {
        RouterLab::wait_until("all goes the other way", SHORT, || {
            lab.ask("verify")["equal"] == true
                && lab.west.run(&format!("ping -n -c 1 -W 1 {far}")).status.success()
        });
    }
    lab.router.ip("link set x0 up");
    lab.verify();
    RouterLab::finish(process);
}

/// Sends flows, and checks which share of them the first of two hosts gets.
#[track_caller]
fn check_spread(
    from: &Namespace,
    hosts: [&Namespace; 2],
    far: &str,
    what: &str,
    share: std::ops::Range<f64>,
) {
    let receivers = hosts.map(|host| Receiver::start(host, far));
    let [one, other] = &receivers;
    flows::send(from, far, &[one, other]).finish(SHORT).expect_success("send");
    let received = Receiver::finish(receivers);
    let [first, second] = received;
    assert_eq!(first.packets + second.packets, Received::ALL.packets, "{what}: {received:?}");
    let part = first.packets as f64 / Received::ALL.packets as f64;
    assert!(share.contains(&part), "{what}: {received:?}");
    for one in received {
        assert_eq!(one.reordered, 0, "{what}: {received:?}");
        // Each flow came whole, to one of them.
        assert_eq!(one.packets, one.flows * 10, "{what}: {received:?}");
    }
}
