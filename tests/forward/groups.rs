//! A network whose tunnel ends, two of them the kernel's, send what is for all to a multicast group. The bridge between them passes a group's packets on to
//! its members only, of which it learns by IGMP and MLD.
//!
//! ```text
//! host                            gateway                  switch            far, third
//! 10.9.0.1 ------ h0 (TAP) ------ warmlane forward ------- br0 ------------- t0: 10.9.0.2, 10.9.0.3
//! ```

use std::fs;
use std::time::Duration;

use warmlane_system_tests::{SHORT, forward};
use warmlane_testkit::exchange::until;
use warmlane_testkit::namespace::{self, Namespace};
use warmlane_testkit::process::Process;
use warmlane_testkit::{Report, requirements};

/// A version of IP around the network: addresses without the last number, the length of their prefix, and the group.
#[derive(Clone, Copy)]
struct Underlay {
    prefix: &'static str,
    length: u8,
    group: &'static str,
}

fn config(underlay: Underlay, remotes: &str) -> String {
    let Underlay { prefix, length, group } = underlay;
    format!(
        r#"
        lanes = 1

        [[port]]
        name = "underlay"
        driver = "packet:u0"
        addresses = ["{prefix}1/{length}"]

        [[port]]
        name = "access"
        driver = "tap:h0,mtu=1400"

        [[neighbour]]
        address = "{prefix}2"
        mac = "02:00:00:00:01:02"
        port = "underlay"

        [[neighbour]]
        address = "{prefix}3"
        mac = "02:00:00:00:01:03"
        port = "underlay"

        [[vxlan]]
        vni = 100
        local = "{prefix}1"
        group = "{group}"
        {remotes}
        access = [{{ port = "access" }}]
        mtu = 1400
        "#
    )
}

/// Hosts find each other by the group, the gateway stays a member while it runs, and is none once it has ended.
#[track_caller]
fn check(underlay: Underlay, remotes: &str) {
    const PROGRAMS: [&str; 4] = ["ip", "sysctl", "ping", "bridge"];
    if !requirements::namespaces_and(&PROGRAMS) {
        return;
    }
    let Underlay { prefix, length, group } = underlay;
    let (host, gateway, switch) =
        (Namespace::new("host"), Namespace::new("gateway"), Namespace::new("switch"));
    let others = [(2, Namespace::new("far")), (3, Namespace::new("third"))];
    let device =
        |number: u8| format!("type vxlan id 100 local {prefix}{number} group {group} dev u0 dstport 4789");
    if !requirements::interface_kind(&switch, "type bridge") {
        return;
    }
    gateway.set("net.ipv6.conf.all.disable_ipv6", "1");
    gateway.set("net.ipv6.conf.default.disable_ipv6", "1");
    // Who does not answer a second's queries is forgotten after three.
    let times = "mcast_query_interval 100 mcast_query_response_interval 100 mcast_membership_interval 300";
    switch.ip(&format!(
        "link add br0 type bridge mcast_snooping 1 mcast_querier 1 mcast_startup_query_interval 100 {times} \
         mcast_igmp_version 3 mcast_mld_version 2"
    ));
    switch.ip("link set br0 up");
    namespace::link((&gateway, "u0"), (&switch, "p1"), 1500);
    for (number, other) in &others {
        let port = format!("p{number}");
        namespace::link((other, "u0"), (&switch, &port), 1500);
        other.ip(&format!("link set u0 address 02:00:00:00:01:0{number}"));
        let no_check = if prefix.contains(':') { " nodad" } else { "" };
        other.ip(&format!("address add {prefix}{number}/{length} dev u0{no_check}"));
    }
    for number in 1..=3 {
        switch.ip(&format!("link set p{number} master br0"));
    }

    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("gateway.toml");
    fs::write(&path, config(underlay, remotes)).expect("a writable temporary directory");
    let outside = forward(&path);
    let mut command = gateway.command(outside.get_program());
    command.args(outside.get_args());
    let mut process = Process::spawn(&mut command);
    process.wait_for("note: port 'access'", SHORT);
    gateway.ip(&format!("link set h0 netns {}", host.name()));
    host.ip("link set h0 mtu 1400 up");
    host.ip("address add 10.9.0.1/24 dev h0");
    for (number, other) in &others {
        other.ip(&format!("link add t0 mtu 1400 {}", device(*number)));
        other.ip("link set t0 up");
        other.ip(&format!("address add 10.9.0.{number}/24 dev t0"));
    }

    let is_member = |number: u8| {
        let members = switch.run("bridge mdb show dev br0");
        let mut lines = members.expect_success("bridge mdb").lines();
        lines.any(|line| line.contains(&format!("port p{number} ")) && line.contains(group))
    };
    until("all are in the group", || (1..=3).all(is_member));
    // On a busy machine a kernel gives up asking for an address before the answer is there: then it has to be made to ask again.
    let ping = |from: &Namespace, number: u8| {
        let line = format!("ping -n -c 1 -W 3 10.9.0.{number}");
        until("hosts reach each other", || from.run(&line).status.success());
    };
    for (number, other) in &others {
        ping(&host, *number);
        other.ip("neighbour flush dev t0");
        ping(other, 1);
    }
    // It is forgotten meanwhile unless it answers.
    std::thread::sleep(Duration::from_secs(5));
    until("the gateway is in the group still", || is_member(1));
    // From its next answer on, it would be a member for ten minutes unless it says that it leaves.
    switch.ip("link set br0 type bridge mcast_membership_interval 60000");
    std::thread::sleep(Duration::from_secs(3));
    process.interrupt();
    let report = Report::parse(process.finish(SHORT).expect_success("warmlane forward"));
    until("the gateway has left the group", || !is_member(1));

    report.assert_balanced_behind_vxlan();
    let counted = |name: &str| report.number(&format!("{}/counters/vxlan/{name}", report.stage("vxlan")));
    // Twice in the beginning, once in the end, and answers between.
    assert!(counted("reports") >= 5, "{:#}", report.value());
    assert!(counted("to_groups") >= 1 && counted("to_tunnels") >= 4, "{:#}", report.value());
}

const IPV4: Underlay = Underlay { prefix: "192.0.2.", length: 24, group: "239.1.1.1" };
const IPV6: Underlay = Underlay { prefix: "2001:db8:1::", length: 64, group: "ff0e::101:101" };

#[test]
fn hosts_find_each_other_by_a_group() {
    check(IPV4, "");
}

#[test]
fn hosts_find_each_other_by_a_group_over_ipv6() {
    check(IPV6, "");
}

#[test]
fn tunnel_ends_that_are_configured_use_a_group_as_well() {
    check(IPV4, r#"remotes = ["192.0.2.2", "192.0.2.3"]"#);
}
