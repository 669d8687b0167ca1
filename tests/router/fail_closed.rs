//! Packets that would pass something in the kernel are left to it, also when it comes after the router.

use warmlane_system_tests::{RouterLab, SHORT};
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::requirements;

const EAST: &str = "198.51.100.2";
const EAST_IPV6: &str = "2001:db8:2::2";

/// The running router's warnings that contain this.
fn warnings(lab: &RouterLab, part: &str) -> Vec<String> {
    let status = lab.ask("status");
    let all = status["warnings"].as_array().expect("a list");
    let all = all.iter().map(|each| each.as_str().expect("a sentence").to_owned());
    all.filter(|each| each.contains(part)).collect()
}

fn run(lab: &RouterLab, line: &str) {
    lab.router.run(line).expect_success(line);
}

/// Sooner or later packets pass, or don't.
fn wait_for(lab: &RouterLab, address: &str, passes: bool) {
    let what = format!("{address} answers: {passes}");
    RouterLab::wait_until(&what, SHORT, || RouterLab::answers(&lab.west, address) == passes);
}

/// How many packets lanes have forwarded.
fn forwarded(lab: &RouterLab) -> u64 {
    of_lanes(lab, "forwarded")
}

fn of_lanes(lab: &RouterLab, name: &str) -> u64 {
    lab.ask("counters")["forward"][name].as_u64().expect("a number")
}

#[test]
fn rules_that_come_later_hold_and_go_again() {
    let Some(lab) = RouterLab::new(1500, &["nft"]) else { return };
    // A chain without rules does nothing, and one for the box itself is not passed by forwarded packets.
    run(&lab, "nft add table inet mine");
    run(&lab, "nft add chain inet mine across { type filter hook forward priority 0 ; }");
    run(&lab, "nft add chain inet mine itself { type filter hook input priority 0 ; }");
    run(&lab, "nft add rule inet mine itself counter");
    let mut process = lab.start("w0 e0", "");
    RouterLab::check_ping(&lab.west, &[EAST, EAST_IPV6]);
    assert_eq!(warnings(&lab, "left to the kernel"), Vec::<String>::new());
    assert!(forwarded(&lab) > 0);
    run(&lab, "nft add rule inet mine across drop");
    process.wait_for("IPv4 and IPv6 is left to the kernel, where it passes rules of nftables (`nft list chain inet mine across`)", SHORT);
    wait_for(&lab, EAST, false);
    wait_for(&lab, EAST_IPV6, false);
    assert_eq!(lab.verify()["equal"], true);
    run(&lab, "nft flush ruleset");
    process.wait_for("all are forwarded", SHORT);
    let before = forwarded(&lab);
    wait_for(&lab, EAST, true);
    assert!(forwarded(&lab) > before, "lanes forward again");
    // A policy is enough, and concerns its family alone.
    run(&lab, "nft add table ip6 six");
    run(&lab, "nft add chain ip6 six across { type filter hook forward priority 0 ; policy drop ; }");
    wait_for(&lab, EAST_IPV6, false);
    let before = forwarded(&lab);
    wait_for(&lab, EAST, true);
    assert!(forwarded(&lab) > before, "IPv4 is none of its business");
    RouterLab::finish(process);
}

#[test]
fn rules_that_are_there_hold_unless_they_are_to_be_bypassed() {
    let Some(lab) = RouterLab::new(1500, &["nft"]) else { return };
    run(&lab, "nft add table ip mine");
    run(&lab, "nft add chain ip mine across { type filter hook forward priority 0 ; }");
    run(&lab, "nft add rule ip mine across drop");
    let mut process = lab.start("w0 e0", "");
    process.wait_for("--bypass-netfilter takes it past that", SHORT);
    assert!(!RouterLab::answers(&lab.west, EAST));
    let before = of_lanes(&lab, "received");
    RouterLab::check_ping(&lab.west, &[EAST_IPV6]);
    let after = of_lanes(&lab, "received");
    assert!(after >= before + 6, "IPv6 is taken all the same");
    // Without a way through user space, which would be slower than if no router were there.
    assert!(!RouterLab::answers(&lab.west, EAST));
    assert_eq!(of_lanes(&lab, "received"), after, "lanes see nothing of IPv4");
    RouterLab::finish(process);
    let mut process = lab.start("w0 e0", "--bypass-netfilter");
    process.wait_for("note: forwarded packets pass neither netfilter", SHORT);
    RouterLab::check_ping(&lab.west, &[EAST, EAST_IPV6]);
    RouterLab::finish(process);
}

#[test]
fn masquerading_goes_on() {
    let Some(lab) = RouterLab::new(1500, &["nft"]) else { return };
    run(&lab, "nft add table ip home");
    run(&lab, "nft add chain ip home out { type nat hook postrouting priority 100 ; }");
    run(&lab, "nft add rule ip home out oifname e0 counter masquerade");
    // The host in the east knows no way back but to the router itself.
    lab.east.ip("route del default");
    let process = lab.start("w0 e0", "");
    wait_for(&lab, EAST, true);
    RouterLab::finish(process);
}

#[test]
fn policies_of_ipsec_hold() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let between = "src 192.0.2.0/24 dst 198.51.100.0/24";
    let mut process = lab.start("w0 e0", "");
    lab.router.ip(&format!("xfrm policy add {between} dir in action block"));
    RouterLab::check_ping(&lab.west, &[EAST]);
    assert_eq!(warnings(&lab, "IPsec"), Vec::<String>::new());
    lab.router.ip(&format!("xfrm policy add {between} dir fwd action block"));
    process.wait_for("IPv4 is left to the kernel, where it passes 1 IPsec policies", SHORT);
    wait_for(&lab, EAST, false);
    RouterLab::check_ping(&lab.west, &[EAST_IPV6]);
    lab.router.ip("xfrm policy flush");
    wait_for(&lab, EAST, true);
    // Without policies, too.
    let has_defaults = requirements::linux((5, 15), "a default policy of IPsec");
    for direction in ["fwd", "out"].into_iter().filter(|_| has_defaults) {
        lab.router.ip(&format!("xfrm policy setdefault {direction} block"));
        wait_for(&lab, EAST, false);
        wait_for(&lab, EAST_IPV6, false);
        assert_eq!(
            warnings(
                &lab,
                "IPv4 and IPv6 is left to the kernel, where it passes a default policy of IPsec that blocks"
            )
            .len(),
            1
        );
        lab.router.ip(&format!("xfrm policy setdefault {direction} accept"));
        wait_for(&lab, EAST, true);
        wait_for(&lab, EAST_IPV6, true);
    }
    RouterLab::finish(process);
}

#[test]
fn what_an_interface_may_not_forward_is_the_kernels() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    let mut process = lab.start("w0 e0", "");
    RouterLab::check_ping(&lab.west, &[EAST]);
    lab.router.set("net.ipv4.conf.w0.forwarding", "0");
    process.wait_for("IPv4 that comes in by w0 is left to the kernel: forwarding is off (`sysctl -w net.ipv4.conf.w0.forwarding=1`)", SHORT);
    wait_for(&lab, EAST, false);
    RouterLab::check_ping(&lab.west, &[EAST_IPV6]);
    lab.router.set("net.ipv4.conf.w0.forwarding", "1");
    wait_for(&lab, EAST, true);
    RouterLab::finish(process);
}

/// The kernel takes no IPv6 there, and no routes lead there any more, so that it shows at the other end only.
#[test]
fn where_ipv6_is_disabled_none_comes_in() {
    let Some(lab) = RouterLab::new(1500, &[]) else { return };
    lab.hosts_take_redirected();
    lab.west.neighbour("w0", "2001:db8:1::1", &lab.router.mac("w0"));
    let requests = || {
        lab.west.run(&format!("ping -n -c 2 -i 0.2 -W 1 {EAST_IPV6}"));
        let all = lab.east.run("cat /proc/net/snmp6").output;
        let line = all.lines().find(|line| line.starts_with("Icmp6InEchos ")).expect("it is there");
        line.split_whitespace().last().and_then(|count| count.parse::<u64>().ok()).expect("a number")
    };
    let get_through = || {
        let before = requests();
        requests() > before
    };
    for path in [None, Some("user"), Some("tc"), Some("xdp")] {
        let process = path.map(|path| lab.start("w0 e0", &format!("--path {path}")));
        RouterLab::check_ping(&lab.west, &[EAST_IPV6]);
        assert!(get_through());
        lab.router.set("net.ipv6.conf.w0.disable_ipv6", "1");
        RouterLab::wait_until(&format!("none comes in, {path:?}"), SHORT, || !get_through());
        RouterLab::check_ping(&lab.west, &[EAST]);
        lab.router.set("net.ipv6.conf.w0.disable_ipv6", "0");
        lab.router.ip("address replace 2001:db8:1::1/64 dev w0 nodad");
        RouterLab::wait_until("it comes in again", SHORT, || {
            RouterLab::answers(&lab.west, EAST_IPV6) && get_through()
        });
        if let Some(process) = process {
            RouterLab::end(process);
        }
    }
}

#[test]
fn a_shaper_shapes_what_is_forwarded() {
    let Some(lab) = RouterLab::new(1500, &["tc"]) else { return };
    let mut process = lab.start("w0 e0", "");
    RouterLab::check_ping(&lab.west, &[EAST]);
    run(&lab, "tc qdisc replace dev e0 root tbf rate 1mbit burst 10kb latency 50ms");
    process.wait_for(
        "IPv4 and IPv6 that leaves by e0 is left to the kernel, where it passes queueing by tbf",
        SHORT,
    );
    let before = forwarded(&lab);
    lab.west.run(&format!("ping -n -c 20 -i 0.1 {EAST}")).expect_success("ping");
    let sent = lab.router.run("tc -s qdisc show dev e0").output;
    assert!(!sent.contains("Sent 0 bytes"), "{sent}");
    // Only the answers were forwarded by lanes.
    let forwarded = forwarded(&lab) - before;
    assert!((20..30).contains(&forwarded), "{forwarded}");
    RouterLab::finish(process);
}

/// Fair queueing only orders packets, unless it holds each flow to a rate.
#[test]
fn fair_queueing_shapes_if_it_has_a_rate() {
    let Some(lab) = RouterLab::new(1500, &["tc"]) else { return };
    if !lab.router.run("tc qdisc add dev e0 root fq").status.success() {
        requirements::skip("this kernel has no fq");
        return;
    }
    let mut process = lab.start("w0 e0", "--path tc");
    RouterLab::check_ping(&lab.west, &[EAST]);
    assert_eq!(warnings(&lab, "left to the kernel"), Vec::<String>::new());
    run(&lab, "tc qdisc change dev e0 root fq maxrate 100mbit");
    process.wait_for(
        "IPv4 and IPv6 that leaves by e0 is left to the kernel, where it passes queueing by fq with maxrate",
        SHORT,
    );
    RouterLab::check_ping(&lab.west, &[EAST]);
    run(&lab, "tc qdisc delete dev e0 root");
    run(&lab, "tc qdisc add dev e0 root fq");
    process.wait_for("all are forwarded", SHORT);
    let before = lab.forwarded_from("w0");
    RouterLab::wait_until("packets that leave by e0 are forwarded", SHORT, || {
        RouterLab::check_ping(&lab.west, &[EAST]);
        lab.forwarded_from("w0") > before
    });
    RouterLab::end(process);
}

#[test]
fn the_older_iptables_are_seen() {
    let Some(lab) = RouterLab::new(1500, &["iptables-legacy"]) else { return };
    let mut process = lab.start("w0 e0", "");
    RouterLab::check_ping(&lab.west, &[EAST, EAST_IPV6]);
    run(&lab, "iptables-legacy -A FORWARD -j DROP");
    process.wait_for("IPv4 is left to the kernel, where it passes rules of iptables (`iptables-legacy -t filter -S FORWARD`)", SHORT);
    wait_for(&lab, EAST, false);
    RouterLab::check_ping(&lab.west, &[EAST_IPV6]);
    run(&lab, "iptables-legacy -F FORWARD");
    wait_for(&lab, EAST, true);
    run(&lab, "iptables-legacy -P FORWARD DROP");
    wait_for(&lab, EAST, false);
    RouterLab::finish(process);
}

#[test]
fn rules_hold_on_the_paths_inside_the_kernel() {
    for choice in ["tc", "xdp"] {
        let Some(lab) = RouterLab::new(1500, &["nft", "ethtool", "tc"]) else { return };
        lab.hosts_take_redirected();
        let mut process = lab.start("w0 e0", &format!("--path {choice}"));
        let from_west = |name: &str| {
            let counters = lab.ask("counters");
            let paths = counters["paths"].as_array().expect("a list").clone();
            let west = paths.into_iter().find(|path| path["interface"] == "w0").expect("w0 is there");
            west.pointer(name).and_then(serde_json::Value::as_u64).unwrap_or(0)
        };
        // A neighbour that is known now and then gets a packet from the kernel, so it takes a few.
        let are_forwarded = || {
            let before = from_west("/forwarded");
            lab.west.run(&format!("ping -n -c 5 -i 0.1 {EAST}"));
            from_west("/forwarded") > before
        };
        RouterLab::check_ping(&lab.west, &[EAST, EAST_IPV6]);
        assert!(are_forwarded(), "{choice}");
        run(&lab, "nft add table ip mine");
        run(&lab, "nft add chain ip mine across { type filter hook forward priority 0 ; policy drop ; }");
        process.wait_for("IPv4 is left to the kernel, where it passes rules of nftables", SHORT);
        wait_for(&lab, EAST, false);
        assert!(from_west("/passes/forwarding-off") > 0, "{choice}");
        RouterLab::check_ping(&lab.west, &[EAST_IPV6]);
        run(&lab, "nft flush ruleset");
        wait_for(&lab, EAST, true);
        assert!(are_forwarded(), "{choice}");
        run(&lab, "tc qdisc replace dev e0 root tbf rate 1mbit burst 10kb latency 50ms");
        process.wait_for("leaves by e0 is left to the kernel", SHORT);
        let before = from_west("/passes/other-interface");
        RouterLab::check_ping(&lab.west, &[EAST]);
        assert!(from_west("/passes/other-interface") > before, "{choice}");
        RouterLab::end(process);
    }
}

/// What stands at an interface itself: chains of nftables' family netdev and filters of tc, where packets come in and where they leave.
#[test]
fn rules_of_an_interface_hold_on_all_paths() {
    const FILTER: &str =
        "protocol ip u32 match ip dst 198.51.100.2/32 action mirred egress redirect dev sink";
    let chain = |side: &str, link: &str| {
        let whole = format!("type filter hook {side} device {link} priority 0 ;");
        vec![
            "nft add table netdev mine".to_owned(),
            format!("nft add chain netdev mine {side} {{ {whole} }}"),
            format!("nft add rule netdev mine {side} ip daddr {EAST} drop"),
        ]
    };
    let filter = |side: &str, link: &str| vec![format!("tc filter add dev {link} {side} {FILTER}")];
    let netdev = |side: &str| format!("rules of nftables (`nft list chain netdev mine {side}`)");
    let flush = "nft flush ruleset";
    let mut cases = vec![
        (chain("ingress", "w0"), "comes in by w0", netdev("ingress"), flush),
        (
            filter("ingress", "w0"),
            "comes in by w0",
            "filters of tc at ingress".to_owned(),
            "tc filter del dev w0 ingress",
        ),
        (
            filter("egress", "e0"),
            "leaves by e0",
            "filters of tc at egress".to_owned(),
            "tc filter del dev e0 egress",
        ),
    ];
    if requirements::linux((5, 16), "netfilter at egress") {
        cases.push((chain("egress", "e0"), "leaves by e0", netdev("egress"), flush));
    }
    for choice in ["user", "tc", "xdp"] {
        let Some(lab) = RouterLab::new(1500, &["nft", "tc"]) else { return };
        lab.hosts_take_redirected();
        // Where filtered packets end.
        lab.router.ip("link add sink type veth peer name sunk");
        lab.router.ip("link set sink up");
        for link in ["w0", "e0"] {
            run(&lab, &format!("tc qdisc add dev {link} clsact"));
        }
        let mut process = lab.start("w0 e0", &format!("--path {choice}"));
        RouterLab::check_ping(&lab.west, &[EAST, EAST_IPV6]);
        assert_eq!(warnings(&lab, "left to the kernel"), Vec::<String>::new(), "{choice}");
        for (lines, which, what, undo) in &cases {
            for line in lines {
                run(&lab, line);
            }
            let sentence =
                format!("IPv4 and IPv6 that {which} is left to the kernel, where it passes {what}");
            process.wait_for(&sentence, SHORT);
            wait_for(&lab, EAST, false);
            RouterLab::check_ping(&lab.west, &[EAST_IPV6]);
            run(&lab, undo);
            wait_for(&lab, EAST, true);
        }
        RouterLab::end(process);
    }
}

/// Netlink doesn't tell of BPF programs that are there by links of their own: here another router's.
#[test]
fn programs_of_others_hold_on_paths_that_would_pass_them_by() {
    if !requirements::linux((6, 6), "programs at tc by links") {
        return;
    }
    for choice in ["user", "xdp"] {
        let Some(lab) = RouterLab::new(1500, &[]) else { return };
        lab.hosts_take_redirected();
        let mut process = lab.start("w0 e0", &format!("--path {choice}"));
        RouterLab::check_ping(&lab.west, &[EAST, EAST_IPV6]);
        assert_eq!(warnings(&lab, "left to the kernel"), Vec::<String>::new(), "{choice}");
        let mut other = lab.router.command(warmlane());
        other.args(["router", "w0", "e0", "--path", "tc", "--quiet", "--socket"]);
        let mut other = Process::spawn(other.arg(lab.directory().join("other.sock")));
        other.wait_for("note: forwarding between", SHORT);
        for link in ["w0", "e0"] {
            process.wait_for(
                &format!(
                    "IPv4 and IPv6 that comes in by {link} is left to the kernel, where it passes BPF programs of others at tc ingress"
                ),
                SHORT,
            );
        }
        let before = lab.forwarded_from("w0");
        RouterLab::check_ping(&lab.west, &[EAST, EAST_IPV6]);
        assert_eq!(lab.forwarded_from("w0"), before, "{choice}");
        // Programs that are there before it are known when it begins.
        RouterLab::end(process);
        let mut process = lab.start("w0 e0", &format!("--path {choice}"));
        assert_eq!(warnings(&lab, "BPF programs of others").len(), 2, "{choice}");
        let before = lab.forwarded_from("w0");
        other.interrupt();
        other.finish(SHORT).expect_success("the other router");
        process.wait_for("all are forwarded", SHORT);
        RouterLab::wait_until("packets are taken again", SHORT, || {
            RouterLab::answers(&lab.west, EAST) && lab.forwarded_from("w0") > before
        });
        RouterLab::end(process);
    }
}
