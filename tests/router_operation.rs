//! What whoever runs `warmlane router` is told: what forwarded packets no longer pass, and how full the pool is.

#![forbid(unsafe_code)]

use warmlane_system_tests::{RouterLab, SHORT};

/// The running router's warnings that contain this.
fn warnings(lab: &RouterLab, part: &str) -> Vec<String> {
    let status = lab.ask("status");
    let all = status["warnings"].as_array().expect("a list");
    let all = all.iter().map(|each| each.as_str().expect("a sentence").to_owned());
    all.filter(|each| each.contains(part)).collect()
}

#[test]
fn what_forwarded_packets_no_longer_pass_is_said() {
    let Some(lab) = RouterLab::new("router: no_longer_pass", 1500, &["nft"]) else { return };
    let run = |line: &str| {
        lab.router.run(line).expect_success(line);
    };
    // A chain without rules does nothing, and one for the box itself is not passed by forwarded packets.
    run("nft add table inet mine");
    run("nft add chain inet mine across { type filter hook forward priority 0 ; }");
    run("nft add chain inet mine itself { type filter hook input priority 0 ; }");
    run("nft add rule inet mine itself counter");
    let mut process = lab.start("w0 e0", "");
    assert_eq!(warnings(&lab, "pass"), Vec::<String>::new());
    run("nft add rule inet mine across drop");
    let [one] = &warnings(&lab, "netfilter")[..] else { panic!("{:#}", lab.ask("status")) };
    assert!(one.contains("in inet mine across:"), "{one}");
    // It is true.
    RouterLab::check_ping(&lab.west, &["198.51.100.2", "2001:db8:2::2"]);
    run("nft add table ip translation");
    run("nft add chain ip translation out { type nat hook postrouting priority 100 ; }");
    run("nft add rule ip translation out masquerade");
    let [one] = &warnings(&lab, "netfilter")[..] else { panic!("{:#}", lab.ask("status")) };
    assert!(one.contains("ip translation out (NAT)") && one.contains("inet mine across"), "{one}");
    process.interrupt();
    process.finish(SHORT).expect_success("warmlane router");
    // Who starts it is told.
    process = lab.start("w0 e0", "");
    process.wait_for("note: forwarded packets don't pass netfilter", SHORT);
    RouterLab::finish(process);
}

#[test]
fn policies_of_ipsec_are_no_longer_applied_and_that_is_said() {
    let Some(lab) = RouterLab::new("router: ipsec", 1500, &[]) else { return };
    let between = "src 192.0.2.0/24 dst 198.51.100.0/24";
    let process = lab.start("w0 e0", "");
    lab.router.ip(&format!("xfrm policy add {between} dir in action block"));
    assert_eq!(warnings(&lab, "IPsec"), Vec::<String>::new());
    lab.router.ip(&format!("xfrm policy add {between} dir fwd action block"));
    lab.router.ip(&format!("xfrm policy add {between} dir out action block"));
    let [one] = &warnings(&lab, "IPsec")[..] else { panic!("{:#}", lab.ask("status")) };
    assert!(one.contains("policies for them (2,"), "{one}");
    RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
    RouterLab::finish(process);
    assert!(!lab.west.run("ping -n -c 1 -W 1 198.51.100.2").status.success(), "the kernel blocks it");
}

#[test]
fn an_interface_that_the_kernel_does_not_forward_by_is_named() {
    let Some(lab) = RouterLab::new("router: forwarding=0", 1500, &[]) else { return };
    let mut process = lab.start("w0 e0", "");
    assert_eq!(warnings(&lab, "forwards no"), Vec::<String>::new());
    lab.router.set("net.ipv4.conf.e0.forwarding", "0");
    let [one] = &warnings(&lab, "forwards no")[..] else { panic!("{:#}", lab.ask("status")) };
    assert!(one.contains("no IPv4 that comes in by e0"), "{one}");
    process.interrupt();
    process.finish(SHORT).expect_success("warmlane router");
    process = lab.start("w0 e0", "");
    process.wait_for("`sysctl -w net.ipv4.conf.e0.forwarding=1`", SHORT);
    RouterLab::finish(process);
}

#[test]
fn it_says_how_full_its_pool_is() {
    let Some(lab) = RouterLab::new("router: pool", 1500, &[]) else { return };
    let process = lab.start("w0 e0", "--buffers 8192");
    RouterLab::check_ping(&lab.west, &["198.51.100.2"]);
    let counters = lab.ask("counters");
    let pool = |name: &str| counters["pools"][0][name].as_u64().unwrap_or_else(|| panic!("{counters:#}"));
    // Receive queues hold some, so there were never all of them.
    assert!(pool("available") < pool("buffers") && pool("lowest") < pool("buffers"), "{counters:#}");
    assert_eq!(pool("refused"), 0, "{counters:#}");
    let report = RouterLab::finish(process);
    assert_eq!(report.number("/pools/0/available"), 8192, "{:#}", report.value());
    assert!(report.number("/pools/0/lowest") < 8192, "{:#}", report.value());
}

#[test]
fn expiring_packets_are_the_kernels_if_it_is_to_answer() {
    let Some(lab) = RouterLab::new("router: pass_expiring", 1500, &[]) else { return };
    // Everybody answers all that they are asked.
    for namespace in [&lab.router, &lab.east] {
        namespace.set("net.ipv4.icmp_ratelimit", "0");
        namespace.set("net.ipv6.icmp.ratelimit", "0");
    }
    for (options, by_us) in [("", 2), ("--pass-expiring", 0)] {
        let process = lab.start("w0 e0", options);
        for (address, hop) in [("198.51.100.2", "192.0.2.1"), ("2001:db8:2::2", "2001:db8:1::1")] {
            let line = format!("traceroute -n -q 1 -w 5 {address}");
            let trace = lab.west.run(&line).output;
            let hops: Vec<_> =
                trace.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
            assert_eq!(hops, [hop, address], "{options}: {trace}");
        }
        let report = RouterLab::finish(process);
        assert_eq!(report.number("/forward/icmp_errors"), by_us, "{options}: {:#}", report.value());
    }
}

#[test]
fn it_polls_the_interfaces_itself_if_asked() {
    let Some(lab) = RouterLab::new("router: busy_poll", 1500, &[]) else { return };
    let file = lab.directory().join("router.toml");
    std::fs::write(&file, "interfaces = [\"w0\", \"e0\"]\nbusy-poll = true\n").expect("a writable directory");
    let mut process = lab.spawn("", &format!("--config {}", file.display()));
    process.wait_for("busy polling", SHORT);
    process.wait_for("note: forwarding between", SHORT);
    RouterLab::check_ping(&lab.west, &["198.51.100.2", "2001:db8:2::2"]);
    RouterLab::finish(process);
}

/// More in one answer than a socket holds, and questions behind it.
#[test]
fn questions_in_one_write_are_all_answered_also_to_who_reads_slowly() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let Some(lab) = RouterLab::new("router: questions", 1500, &[]) else { return };
    let file = lab.directory().join("routes");
    let route =
        |number: u32| format!("route add 203.{}.{}.0/24 via 198.51.100.2\n", number / 250, number % 250);
    let routes: Vec<String> = (0..20_000).map(route).collect();
    std::fs::write(&file, routes.concat()).expect("a writable directory");
    lab.router.ip(&format!("-batch {}", file.display()));
    let process = lab.start("w0 e0", "");
    let mut client = std::os::unix::net::UnixStream::connect(lab.socket()).expect("it listens");
    client
        .write_all(b"{\"ask\":\"routes\",\"limit\":100000}\n{\"ask\":\"status\"}\n{\"ask\":\"verify\"}\n")
        .expect("it reads");
    std::thread::sleep(std::time::Duration::from_millis(500));
    // Meanwhile others are answered.
    lab.verify();
    let lines: Vec<serde_json::Value> = BufReader::new(client)
        .lines()
        .take(3)
        .map(|line| serde_json::from_str(&line.expect("it answers")).expect("JSON"))
        .collect();
    assert!(lines[0]["routes"].as_array().is_some_and(|routes| routes.len() > 20_000));
    assert!(lines[1]["ports"].is_array() && lines[2]["equal"] == true);
    RouterLab::finish(process);
}
