//! Two hosts with a router between them, over AF_XDP sockets on virtual links: whatever the kernel's hosts do must go
//! through.

#![forbid(unsafe_code)]

use warmlane_system_tests::{Driver, Lab};
use warmlane_testkit::requirements;

#[test]
fn hosts_reach_each_other() {
    let Some(lab) = Lab::new("forward_xdp: hosts_reach_each_other", Driver::Xdp, 1, 1500) else { return };
    lab.check_ping();
    lab.check_traceroute();
    lab.check_streams();
    lab.finish();
}

#[test]
fn a_smaller_link_is_found_out() {
    let Some(lab) = Lab::new("forward_xdp: a_smaller_link_is_found_out", Driver::Xdp, 1, 1400) else {
        return;
    };
    lab.check_path_mtu(1400);
    let report = lab.finish();
    assert!(report.number("/forward/fragmented") > 0, "{:#}", report.value());
    // One for each ping, and at least one for each family's TCP.
    assert!(report.drops("/forward/drops")["mtu-exceeded"] >= 4, "{:#}", report.value());
}

/// Packets that take several buffers each.
#[test]
fn jumbo_frames_go_through() {
    let Some(lab) = Lab::new("forward_xdp: jumbo_frames_go_through", Driver::Xdp, 1, 9000) else { return };
    lab.check_ping();
    lab.check_jumbo(9000);
    lab.finish();
}

/// Each lane has a queue of each interface; the kernel spreads flows over them.
#[test]
fn two_lanes_share_the_interfaces() {
    const TEST: &str = "forward_xdp: two_lanes_share_the_interfaces";
    if !requirements::cpus(TEST, 2) {
        return;
    }
    let Some(lab) = Lab::new(TEST, Driver::Xdp, 2, 1500) else { return };
    lab.check_ping();
    lab.check_streams();
    let report = lab.finish();
    for lane in ["/lanes/0/packets", "/lanes/1/packets"] {
        assert!(report.number(lane) > 0, "{:#}", report.value());
    }
}

#[test]
fn links_vanish() {
    let Some(lab) = Lab::new("forward_xdp: links_vanish", Driver::Xdp, 1, 1500) else { return };
    lab.check_vanishing();
}

#[test]
fn a_killed_router_leaves_nothing_behind() {
    let Some(lab) = Lab::new("forward_xdp: a_killed_router_leaves_nothing_behind", Driver::Xdp, 1, 1500)
    else {
        return;
    };
    lab.check_killing();
}
