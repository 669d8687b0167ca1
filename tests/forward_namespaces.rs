//! Two hosts with a router between them, over packet sockets on virtual links: whatever the kernel's hosts do must go through.

#![forbid(unsafe_code)]

use warmlane_system_tests::{Driver, Lab};

#[test]
fn hosts_reach_each_other() {
    let Some(lab) = Lab::new("forward_namespaces: hosts_reach_each_other", Driver::Packet, 1, 1500) else {
        return;
    };
    lab.check_ping();
    lab.check_traceroute();
    lab.check_streams();
    lab.finish();
}

#[test]
fn a_smaller_link_is_found_out() {
    let Some(lab) = Lab::new("forward_namespaces: a_smaller_link_is_found_out", Driver::Packet, 1, 1400)
    else {
        return;
    };
    lab.check_path_mtu(1400);
    let report = lab.finish();
    assert!(report.number("/forward/fragmented") > 0, "{:#}", report.value());
    // One for each ping, and at least one for each family's TCP.
    assert!(report.drops("/forward/drops")["mtu-exceeded"] >= 4, "{:#}", report.value());
}
