//! Two hosts with a router between them, over TAP devices: whatever the kernel's hosts do must go through.

#![forbid(unsafe_code)]

use warmlane_system_tests::{Driver, Lab};
use warmlane_testkit::requirements;

#[test]
fn hosts_reach_each_other() {
    let Some(lab) = Lab::new("forward_tap: hosts_reach_each_other", Driver::Tap, 1, 1500) else { return };
    lab.check_ping();
    lab.check_traceroute();
    lab.check_streams();
    lab.finish();
}

#[test]
fn a_smaller_link_is_found_out() {
    let Some(lab) = Lab::new("forward_tap: a_smaller_link_is_found_out", Driver::Tap, 1, 1400) else {
        return;
    };
    lab.check_path_mtu(1400);
    let report = lab.finish();
    assert!(report.number("/forward/fragmented") > 0, "{:#}", report.value());
    // One for each ping, and at least one for each family's TCP.
    assert!(report.drops("/forward/drops")["mtu-exceeded"] >= 4, "{:#}", report.value());
}

/// Each lane has a queue of each device; the kernel spreads flows over them.
#[test]
fn two_lanes_share_the_devices() {
    const TEST: &str = "forward_tap: two_lanes_share_the_devices";
    if !requirements::cpus(TEST, 2) {
        return;
    }
    let Some(lab) = Lab::new(TEST, Driver::Tap, 2, 1500) else { return };
    lab.check_ping();
    lab.check_streams();
    let report = lab.finish();
    for lane in ["/lanes/0/packets", "/lanes/1/packets"] {
        assert!(report.number(lane) > 0, "{:#}", report.value());
    }
}
