//! `warmlane router` where the kernel has rules (`ip rule`): each packet goes as the kernel would send it, or through it.

use serde_json::Value;
use warmlane_system_tests::{RouterLab, SHORT};
use warmlane_testkit::namespace::Namespace;

/// A third host, behind x0, which has the addresses 203.0.113.1 and 2001:db8:5::1, as the east has.
struct PolicyLab {
    lab: RouterLab,
    third: Namespace,
}

impl PolicyLab {
    fn new() -> Option<Self> {
        let lab = RouterLab::new(1500, &[])?;
        let third = lab.third_host();
        for host in [&lab.east, &third] {
            host.ip("address add 203.0.113.1/32 dev lo");
            host.ip("address add 2001:db8:5::1/128 dev lo");
        }
        lab.router.ip("route add 203.0.113.0/24 via 198.51.100.2");
        lab.router.ip("route add 203.0.113.0/24 via 192.0.3.2 table 100");
        lab.router.ip("route add 2001:db8:5::/48 via 2001:db8:2::2");
        lab.router.ip("route add 2001:db8:5::/48 via 2001:db8:3::2 table 100");
        Some(Self { lab, third })
    }

    /// Which host answers for an address that two have: the one whose count of echo requests grows.
    fn who_answers(&self, host: &Namespace, to: &str) -> &'static str {
        let before = [Self::requests(&self.lab.east, to), Self::requests(&self.third, to)];
        RouterLab::check_ping(host, &[to]);
        let after = [Self::requests(&self.lab.east, to), Self::requests(&self.third, to)];
        match (after[0] - before[0], after[1] - before[1]) {
            (3, 0) => "east",
            (0, 3) => "third",
            other => panic!("{other:?} of three requests arrived"),
        }
    }

    fn requests(host: &Namespace, to: &str) -> u64 {
        let (file, name) = if to.contains(':') { ("snmp6", "Icmp6InEchos") } else { ("snmp", "InEchos") };
        let text = host.run(&format!("cat /proc/net/{file}")).output;
        if file == "snmp6" {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("the counter");
            return line.trim().parse().expect("a number");
        }
        let mut lines = text.lines().filter(|line| line.starts_with("Icmp:"));
        let names = lines.next().expect("names").split_whitespace();
        let values = lines.next().expect("values").split_whitespace();
        let value = names.zip(values).find_map(|(known, value)| (known == name).then_some(value));
        value.expect("the counter").parse().expect("a number")
    }

    fn forwarded_and_punted(&self) -> (u64, u64) {
        let counters = self.lab.ask("counters");
        let number = |name: &str| counters["forward"][name].as_u64().expect("a number");
        (number("forwarded"), number("punted"))
    }
}

#[test]
fn packets_go_by_the_rules_of_their_interface_and_destination() {
    let Some(policy) = PolicyLab::new() else { return };
    let lab = &policy.lab;
    let process = lab.start("w0 e0 x0", "");
    for (family, to) in [("-4", "203.0.113.1"), ("-6", "2001:db8:5::1")] {
        let rule = |line: &str| {
            lab.router.ip(&format!("{family} rule {line}"));
            lab.verify();
        };
        let (_, before) = policy.forwarded_and_punted();
        assert_eq!(policy.who_answers(&lab.west, to), "east");
        rule("add iif w0 lookup 100 priority 100");
        assert_eq!(policy.who_answers(&lab.west, to), "third");
        rule("del iif w0 lookup 100 priority 100");
        rule("add iif e0 lookup 100 priority 100");
        assert_eq!(policy.who_answers(&lab.west, to), "east");
        rule(&format!("add to {to} lookup 100 priority 90"));
        assert_eq!(policy.who_answers(&lab.west, to), "third");
        rule(&format!("add to {to} iif w0 lookup main priority 80"));
        assert_eq!(policy.who_answers(&lab.west, to), "east");
        let (_, punted) = policy.forwarded_and_punted();
        assert_eq!(punted, before);
        rule(&format!("add to {to} prohibit priority 70"));
        let refused = lab.west.run(&format!("ping -n -c 1 -W 2 {to}")).text();
        assert!(refused.contains("filtered") || refused.contains("rohibited"), "{refused}");
        rule(&format!("del to {to} prohibit priority 70"));
        assert_eq!(policy.who_answers(&lab.west, to), "east");
    }
    RouterLab::finish(process);
}

/// What a rule looks at that lanes don't is looked at by the kernel, which gets the packet as if it had come in by its port.
#[test]
fn what_other_rules_may_be_about_goes_through_the_kernel() {
    let Some(policy) = PolicyLab::new() else { return };
    let lab = &policy.lab;
    let mut process = lab.start("w0 e0 x0", "");
    for (family, from, to) in [("-4", "192.0.2.2", "203.0.113.1"), ("-6", "2001:db8:1::2", "2001:db8:5::1")] {
        let rule = |line: &str| {
            lab.router.ip(&format!("{family} rule {line}"));
            lab.verify();
        };
        // The kernel itself must see the interface: by the one that the packet is handed over by it would not match.
        rule(&format!("add iif w0 from {from} lookup 100 priority 100"));
        let before = policy.forwarded_and_punted();
        assert_eq!(policy.who_answers(&lab.west, to), "third");
        let after = policy.forwarded_and_punted();
        // Three requests through the kernel, three answers not: they come in by x0, which the rule isn't about.
        assert_eq!((after.0 - before.0, after.1 - before.1), (3, 3));
        let warnings = lab.ask("status")["warnings"].to_string();
        assert!(
            warnings.contains("rule` 100 looks at more") && warnings.contains("interface w0"),
            "{warnings}"
        );
        rule(&format!("del iif w0 from {from} lookup 100 priority 100"));
        rule(
            &format!("add from 10.0.0.0/8 to {to} lookup 100 priority 100")
                .replace("10.0.0.0/8", if family == "-4" { "10.0.0.0/8" } else { "fd00::/8" }),
        );
        assert_eq!(policy.who_answers(&lab.west, to), "east");
        lab.router.ip(&format!("{family} rule del priority 100"));
    }
    assert!(lab.router.run("ip link show").output.contains("warmlane2"));
    process.signal("KILL");
    RouterLab::wait_until("the router is gone", SHORT, || process.has_ended());
    assert!(!lab.router.run("ip link show").output.contains("warmlane"));
    RouterLab::check_ping(&lab.west, &["203.0.113.1", "2001:db8:5::1"]);
}

/// Where the XDP program is in generic mode, the kernel can't get packets as if they had come in by their port: it is said,
/// and what would go astray is dropped.
#[test]
fn what_would_go_astray_is_dropped() {
    let Some(policy) = PolicyLab::new() else { return };
    let lab = &policy.lab;
    lab.router.ip("rule add iif w0 from 192.0.2.2 lookup 100 priority 100");
    let mut process = lab.start("w0 e0", "--mode generic");
    process.wait_for("note: forwarding between", SHORT);
    assert!(!lab.west.run("ping -n -c 2 -i 0.2 -W 1 203.0.113.1").status.success());
    let stages = lab.ask("counters")["stages"].take();
    let punt = stages.as_array().and_then(|stages| stages.iter().find(|stage| stage["name"] == "punt"));
    assert_eq!(punt.map(|punt| &punt["drops"]["punt-no-entrance"]), Some(&2.into()), "{stages:#}");
    process.interrupt();
    let finished = process.finish(SHORT);
    assert!(finished.errors.contains("is in generic mode"), "{}", finished.errors);
}

/// A number from a long list of rules, routes and packets: what lanes would do is what `ip route get` says.
#[test]
fn the_kernel_decides_the_same() {
    let Some(policy) = PolicyLab::new() else { return };
    let lab = &policy.lab;
    for line in [
        "route add 10.0.0.0/8 via 198.51.100.9",
        "route add 10.1.0.0/16 via 192.0.3.9",
        "route add 10.1.1.0/24 via 198.51.100.8",
        "route add 10.1.1.128/25 via 192.0.2.9",
        "route add 10.2.0.0/16 via 192.0.3.8 table 100",
        "route add 10.1.1.0/25 via 192.0.3.7 table 100",
        "route add default via 198.51.100.7 table 101",
        "route add 10.1.0.0/17 via 192.0.2.8 table 101",
        "route add unreachable 10.3.0.0/16 table 101",
        "route add throw 10.1.1.64/26 table 100",
        "route add 10.4.0.0/16 via 192.0.3.6 table default",
        "route add local 10.5.0.0/16 dev lo",
        "route add 10.5.1.0/24 via 192.0.3.6",
    ] {
        lab.router.ip(line);
    }
    let process = lab.start("w0 e0 x0", "");
    let ports = ["w0", "e0", "x0"];
    let mut settled = 0;
    for rules in [
        &[][..],
        &["iif w0 lookup 100 priority 50"],
        &["lookup 100 priority 50"],
        &["to 10.1.0.0/16 lookup 101 priority 50", "iif e0 to 10.1.1.0/24 lookup 100 priority 40"],
        &["iif x0 unreachable priority 60", "to 10.1.1.192/26 iif x0 lookup main priority 50"],
        &["iif w0 lookup 101 priority 32767", "iif e0 lookup 101 priority 33000"],
        &["from 172.16.0.0/12 to 10.1.0.0/16 lookup 101 priority 50", "iif w0 lookup 100 priority 60"],
        &["lookup main suppress_prefixlength 16 priority 50", "lookup 101 priority 60"],
        &["not iif w0 lookup 100 priority 50"],
        &["to 10.1.1.0/24 goto 100 priority 50", "lookup 101 priority 60", "to 10.1.1.0/24 nop priority 100"],
        &["tos 8 lookup 101 priority 50", "oif e0 lookup 100 priority 40"],
    ] {
        for rule in rules {
            lab.router.ip(&format!("rule add {rule}"));
        }
        lab.verify();
        let status = lab.ask("status");
        for (number, name) in ports.iter().enumerate() {
            let table = status["ports"][number]["table"].as_u64().expect("a table");
            for to in [
                "10.1.1.1",
                "10.1.1.65",
                "10.1.1.130",
                "10.1.1.200",
                "10.1.2.1",
                "10.1.200.1",
                "10.2.0.1",
                "10.3.0.1",
                "10.4.0.1",
                "10.5.0.1",
                "10.5.1.1",
                "10.9.0.1",
                "198.51.100.77",
            ] {
                let from = ["192.0.2.77", "198.51.100.66", "192.0.3.77"][number];
                let asked = format!("route get {to} from {from} iif {name}");
                let kernel = kernels(&lab.router.run(&format!("ip {asked}")).text());
                let route = lab.ask(&format!("routes {to} --table {table}"));
                let ours = lanes(&route, to);
                assert!(ours == kernel || ours == "kernel", "{rules:?}: {asked}: {kernel}, not {ours}");
                settled += usize::from(ours != "kernel");
            }
        }
        for rule in rules.iter().rev() {
            lab.router.ip(&format!("rule del {rule}"));
        }
    }
    // Most are not left to the kernel.
    assert!(settled > 11 * 3 * 13 / 2, "{settled}");
    lab.verify();
    RouterLab::finish(process);
}

/// What `ip route get` says, in a few words.
fn kernels(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let after = |word: &str| words.iter().skip_while(|known| **known != word).nth(1).copied();
    if text.contains("No route to host") || text.contains("Network is unreachable") {
        return "nowhere".to_owned();
    }
    if words.first() == Some(&"local") {
        return "kernel".to_owned();
    }
    match (after("via"), after("dev")) {
        (Some(via), Some(dev)) => format!("{dev} {via}"),
        (None, Some(dev)) => format!("{dev} on link"),
        _ => text.to_owned(),
    }
}

/// The same for what lanes have.
fn lanes(answer: &Value, to: &str) -> String {
    let Some(leads_to) = answer["routes"][0]["leads_to"].as_str() else { return "nowhere".to_owned() };
    if leads_to.starts_with("nowhere") {
        return "nowhere".to_owned();
    }
    if leads_to.starts_with("the kernel") {
        return "kernel".to_owned();
    }
    if let Some(name) = leads_to.strip_prefix("neighbours on ") {
        return format!("{name} on link");
    }
    let (name, rest) = leads_to.split_once(" to ").unwrap_or_else(|| panic!("{leads_to}"));
    match rest.split_once(',') {
        Some((gateway, _)) if gateway != to => format!("{name} {gateway}"),
        _ => format!("{name} on link"),
    }
}
