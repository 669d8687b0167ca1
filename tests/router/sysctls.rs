//! The kernel's switches, and what else of its settings decides about packets on their way: followed while the router runs.

use warmlane_system_tests::{RouterLab, SHORT};
use warmlane_testkit::namespace::Namespace;
use warmlane_testkit::process::Process;
use warmlane_testkit::requirements;

fn forward(lab: &RouterLab, pointer: &str) -> u64 {
    lab.ask("counters")["forward"].pointer(pointer).and_then(serde_json::Value::as_u64).unwrap_or(0)
}

/// Links whose addresses are the loopback's: whoever tells senders, it has the same address.
#[test]
fn errors_by_unnumbered_links_have_the_kernels_source() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    for address in ["10.255.0.1/32", "2001:db8:ffff::1/128"] {
        lab.router.ip(&format!("address add {address} dev lo"));
    }
    for (interface, networks) in
        [("w0", ["192.0.2.0/24", "2001:db8:1::/64"]), ("e0", ["198.51.100.0/24", "2001:db8:2::/64"])]
    {
        lab.router.ip(&format!("address flush dev {interface} scope global"));
        for network in networks {
            lab.router.ip(&format!("route add {network} dev {interface}"));
        }
    }
    for (gateway, family) in [("192.0.2.1", "-4"), ("2001:db8:1::1", "-6")] {
        let mac = lab.router.mac("w0");
        lab.west.ip(&format!("{family} neighbour replace {gateway} lladdr {mac} dev w0 nud permanent"));
    }
    let who_tells = |destination: &str, options: &str| {
        let said = lab.west.run(&format!("ping -n -c 1 -W 10 {options} {destination}")).output;
        let line = said.lines().find(|line| line.starts_with("From ")).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{destination}: nobody said anything: {said}"))
    };
    // Nowhere; expiring; a neighbour that doesn't answer.
    let questions = [
        ("10.1.1.1", ""),
        ("2001:db9::1", ""),
        ("198.51.100.2", "-t 1"),
        ("2001:db8:2::2", "-t 1"),
        ("198.51.100.77", ""),
        ("2001:db8:2::77", ""),
    ];
    let ask_all = || questions.map(|(destination, options)| who_tells(destination, options));
    let kernel = ask_all();
    assert!(kernel[0].contains("10.255.0.1") && kernel[1].contains("2001:db8:ffff::1"), "{kernel:?}");
    let process = lab.start("w0 e0", "");
    assert_eq!(ask_all(), kernel);
    RouterLab::finish(process);
}

/// Sends a packet of the west's there, and returns the TTL or hop limit of the ICMP error that comes back: that of a neighbour that doesn't answer.
fn ttl_of_error(lab: &RouterLab, destination: &str) -> u8 {
    let program = format!(
        "import socket as s
six=':' in '{destination}'
e=s.socket(s.AF_INET6 if six else s.AF_INET,s.SOCK_RAW,s.IPPROTO_ICMPV6 if six else s.IPPROTO_ICMP)
if six: e.setsockopt(s.IPPROTO_IPV6,s.IPV6_RECVHOPLIMIT,1)
s.socket(s.AF_INET6 if six else s.AF_INET,s.SOCK_DGRAM).sendto(b'x',('{destination}',9))
while True:
    data,extra,_,_=e.recvmsg(2000,100)
    if six and data[0]==1: print(extra[0][2][0])
    elif not six and data[20]==3: print(data[8])
    else: continue
    break"
    );
    let mut command = lab.west.command("python3");
    let said = Process::run(command.args(["-c", &program]), SHORT);
    said.expect_success(destination).trim().parse().expect("a TTL")
}

/// As the kernel's own, by whatever path: also those to senders whose packets waited in vain for a neighbour.
#[test]
fn errors_have_the_kernels_ttl() {
    let Some(lab) = RouterLab::new(1500, &["python3"]) else { return };
    let set = |ttl: &str, hop_limit: &str| {
        lab.router.set("net.ipv4.ip_default_ttl", ttl);
        lab.router.set("net.ipv6.conf.w0.hop_limit", hop_limit);
    };
    let errors = || ["198.51.100.77", "2001:db8:2::77"].map(|address| ttl_of_error(&lab, address));
    set("99", "33");
    assert_eq!(errors(), [99, 33], "the kernel");
    for path in ["user", "tc"] {
        let process = lab.start("w0 e0", &format!("--path {path}"));
        assert_eq!(errors(), [99, 33], "{path}");
        set("77", "44");
        RouterLab::wait_until("the new ones", SHORT, || errors() == [77, 44]);
        set("99", "33");
        RouterLab::end(process);
    }
}

/// Sources are checked as `rp_filter` says, of the interface or of all, from one second to the next.
#[test]
fn reverse_path_filters_are_followed() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    lab.west.ip("address add 203.0.113.9/32 dev w0");
    lab.router.ip("route add 203.0.113.9/32 via 198.51.100.2");
    lab.west.ip("address add 203.0.114.9/32 dev w0");
    // Who asks for the router from a wrong address gets no answer.
    lab.west.neighbour("w0", "192.0.2.1", &lab.router.mac("w0"));
    let process = lab.start("w0 e0", "");
    let dropped = |source: &str| {
        let before = forward(&lab, "/drops/ipv4-reverse-path");
        lab.west.run(&format!("ping -n -c 1 -W 1 -I {source} 198.51.100.2"));
        forward(&lab, "/drops/ipv4-reverse-path") > before
    };
    for (whom, value, elsewhere, nowhere) in [
        ("w0", "1", true, true),
        ("w0", "2", false, true),
        ("all", "1", false, true),
        ("w0", "0", true, true),
        ("all", "0", false, false),
    ] {
        lab.router.set(&format!("net.ipv4.conf.{whom}.rp_filter"), value);
        let what = format!("{whom} {value}");
        RouterLab::wait_until(&what, SHORT, || {
            dropped("203.0.113.9") == elsewhere && dropped("203.0.114.9") == nowhere
        });
        RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
    }
    RouterLab::finish(process);
}

/// Nobody else sends from our addresses, unless the kernel is told to accept it.
#[test]
fn our_own_addresses_as_sources_are_dropped() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    lab.west.ip("address add 198.51.100.1/32 dev lo");
    let process = lab.start("w0 e0", "");
    RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
    let sent = |from: &str| {
        let before = [forward(&lab, "/drops/ipv4-martian-source"), forward(&lab, "/forwarded")];
        lab.west.run(&format!("ping -n -c 1 -W 1 -I {from} 198.51.100.3"));
        let after = [forward(&lab, "/drops/ipv4-martian-source"), forward(&lab, "/forwarded")];
        [after[0] - before[0], after[1] - before[1]]
    };
    assert_eq!(sent("198.51.100.1"), [1, 0]);
    lab.router.set("net.ipv4.conf.w0.accept_local", "1");
    RouterLab::wait_until("it is accepted", SHORT, || sent("198.51.100.1") == [0, 1]);
    RouterLab::finish(process);
}

/// Flows in a burst.
pub(crate) const FLOWS: u64 = 64;

/// Gateways on the links of the east and of the third host.
pub(crate) fn know_gateways(lab: &RouterLab) {
    for (interface, gateways) in
        [("e0", ["198.51.100.9", "2001:db8:2::9"]), ("x0", ["192.0.3.9", "2001:db8:3::9"])]
    {
        for gateway in gateways {
            lab.router.neighbour(interface, gateway, "02:00:00:00:09:09");
        }
    }
}

/// Sends a packet of each flow from the west, to ports from 3000 on.
pub(crate) fn send_burst(lab: &RouterLab, destination: &str) {
    let family = if destination.contains(':') { "AF_INET6" } else { "AF_INET" };
    let program = format!(
        "import socket as s; o=s.socket(s.{family},s.SOCK_DGRAM); [o.sendto(b'x',('{destination}',3000+n)) for n in range({FLOWS})]"
    );
    let mut command = lab.west.command("python3");
    Process::run(command.args(["-c", &program]), SHORT).expect_success("flows");
}

/// How many packets of a burst of flows from the west the east and the third host get.
pub(crate) fn received(lab: &RouterLab, third: &Namespace, destination: &str) -> [u64; 2] {
    let count = || {
        [(&lab.east, "e0"), (third, "x0")].map(|(host, interface)| {
            let text = host.run(&format!("cat /sys/class/net/{interface}/statistics/rx_packets"));
            text.output.trim().parse::<u64>().expect("a number")
        })
    };
    let before = count();
    send_burst(lab, destination);
    RouterLab::wait_until("all flows", SHORT, || {
        count().iter().sum::<u64>() >= before.iter().sum::<u64>() + FLOWS
    });
    let after = count();
    [after[0] - before[0], after[1] - before[1]]
}

/// Flows by the ports, or all between two hosts by one path, or by way of the kernel.
#[test]
fn the_hash_of_several_paths_is_the_kernels_choice() {
    let Some(lab) = RouterLab::new(1500, &["python3"]) else { return };
    let third = lab.third_host();
    know_gateways(&lab);
    // By addresses the kernel looks at flow labels as well, of which the west gives each flow its own.
    lab.west.set("net.ipv6.auto_flowlabels", "0");
    lab.router.ip("route add 203.0.113.0/24 nexthop via 198.51.100.9 nexthop via 192.0.3.9");
    lab.router.ip("route add 2001:db8:5::/48 nexthop via 2001:db8:2::9 nexthop via 2001:db8:3::9");
    let received = |destination: &str| received(&lab, &third, destination);
    let process = lab.start("w0 e0 x0", "");
    let fewest = |destination: &str| received(destination).into_iter().min().unwrap_or(0);
    for (family, destination) in [("ipv4", "203.0.113.1"), ("ipv6", "2001:db8:5::1")] {
        let set = |policy: &str| {
            let parameter = format!("net.{family}.fib_multipath_hash_policy");
            lab.router.set(&parameter, policy);
        };
        // A host's own noise is in there, too.
        for (policy, is_spread) in [("1", true), ("0", false), ("1", true)] {
            set(policy);
            let what = format!("{family} by policy {policy}");
            RouterLab::wait_until(&what, SHORT, || (fewest(destination) > FLOWS / 6) == is_spread);
        }
        set("2");
        RouterLab::wait_until("the kernel has it", SHORT, || {
            let before = forward(&lab, "/punted");
            received(destination);
            forward(&lab, "/punted") >= before + FLOWS
        });
        assert!(lab.ask("status")["warnings"].to_string().contains("fib_multipath_hash_policy"));
        lab.verify();
    }
    RouterLab::finish(process);
}

/// A route's own MTU, of one path and of several, and for a neighbour's own route.
#[test]
fn mtus_of_routes_are_followed() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    for address in ["203.0.113.1/32", "2001:db8:5::1/128"] {
        lab.east.ip(&format!("address add {address} dev lo"));
    }
    let process = lab.start("w0 e0", "");
    for (prefix, gateway, address) in [
        ("203.0.113.0/24", "198.51.100.2", "203.0.113.1"),
        ("2001:db8:5::/48", "2001:db8:2::2", "2001:db8:5::1"),
    ] {
        let line = format!("ping -n -M do -c 1 -W 5 -s 1400 {address}");
        lab.router.ip(&format!("route add {prefix} via {gateway}"));
        RouterLab::check_ping_with(&lab.west, &format!("-M do -s 1400 {address}"));
        lab.router.ip(&format!("route replace {prefix} via {gateway} mtu 1300"));
        lab.verify();
        let told = lab.west.run(&line).text();
        assert!(told.contains("1300"), "{told}");
        RouterLab::check_ping_with(&lab.west, &format!("-M dont -s 1400 {address}"));
    }
    RouterLab::finish(process);
}

/// MTUs of paths that the kernel has learned count only where it is told so, and an MTU that IPv6 has of its own always: lanes know of neither.
#[test]
fn mtus_that_lanes_do_not_know_of_are_the_kernels() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    // Behind the east is a link of 1,300 bytes.
    let far = Namespace::new("far");
    warmlane_testkit::namespace::link((&lab.east, "f0"), (&far, "f0"), 1300);
    lab.east.set("net.ipv4.ip_forward", "1");
    lab.east.ip("address add 203.0.113.2/24 dev f0");
    far.ip("address add 203.0.113.1/24 dev f0");
    far.ip("route add default via 203.0.113.2");
    lab.router.ip("route add 203.0.113.0/24 via 198.51.100.2");
    let ping = "ping -n -M do -c 1 -W 5 -s 1400 203.0.113.1";
    let who_tells = || {
        // What it was told before, it would tell itself.
        lab.west.ip("route flush cache");
        let said = lab.west.run(ping).text();
        ["From 192.0.2.1", "From 198.51.100.2"].map(|who| said.contains(who))
    };
    let process = lab.start("w0 e0", "");
    RouterLab::wait_until("the kernel has learned the MTU", SHORT, || {
        lab.router.run(ping);
        lab.router.run("ip route get 203.0.113.1").output.contains("mtu 1300")
    });
    assert_eq!(who_tells(), [false, true]);
    let warnings = || lab.ask("status")["warnings"].to_string();
    assert!(!warnings().contains("ip_forward_use_pmtu"));
    lab.router.set("net.ipv4.ip_forward_use_pmtu", "1");
    RouterLab::wait_until("it counts", SHORT, || who_tells() == [true, false]);
    assert!(
        warnings()
            .contains("IPv4 that comes in by w0 is left to the kernel: MTUs that the kernel has learned")
    );
    lab.router.set("net.ipv4.ip_forward_use_pmtu", "0");
    RouterLab::wait_until("it counts no more", SHORT, || who_tells() == [false, true]);

    let line = "ping -n -M do -c 1 -W 5 -s 1400 2001:db8:2::2";
    assert!(lab.west.run(line).output.contains(" 0% packet loss"));
    lab.router.set("net.ipv6.conf.e0.mtu", "1400");
    RouterLab::wait_until("IPv6 has an MTU of its own", SHORT, || lab.west.run(line).text().contains("mtu"));
    assert!(warnings().contains("that leaves by e0 is left to the kernel: IPv6 has an MTU of its own there"));
    RouterLab::check_ping(&lab.west, &["198.51.100.2", "2001:db8:2::3"]);
    RouterLab::finish(process);
}

/// Packets to prefixes that have routes for some sources only are left to the kernel.
#[test]
fn routes_for_some_sources_are_the_kernels() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let third = lab.third_host();
    for host in [&lab.east, &third] {
        host.ip("address add 2001:db8:5::1/128 dev lo");
    }
    let process = lab.start("w0 e0 x0", "");
    lab.router.ip("route add 2001:db8:5::/48 via 2001:db8:2::2");
    RouterLab::check_ping(&lab.west, &["2001:db8:5::1"]);
    let route = "route add 2001:db8:5::/48 from 2001:db8:1::/64 via 2001:db8:3::2";
    if !lab.router.run(&format!("ip {route}")).status.success() {
        return requirements::skip("this kernel has no routes by source");
    }
    lab.verify();
    let before = forward(&lab, "/punted");
    RouterLab::check_ping(&lab.west, &["2001:db8:5::1"]);
    assert!(forward(&lab, "/punted") > before);
    assert!(lab.ask("status")["warnings"].to_string().contains("some sources only"));
    RouterLab::finish(process);
}
