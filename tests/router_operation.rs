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
    assert!(one.contains("has 2 policies"), "{one}");
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
