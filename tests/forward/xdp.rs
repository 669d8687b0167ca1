//! Two hosts with a router between them, over AF_XDP sockets on virtual links: whatever the kernel's hosts do must go
//! through.

use warmlane_system_tests::{Driver, Lab};

hosts_over!(Driver::Xdp);

/// Packets that take several buffers each.
#[test]
fn jumbo_frames_go_through() {
    let Some(lab) = Lab::new(Driver::Xdp, 1, 9000) else { return };
    lab.check_ping();
    lab.check_jumbo(9000);
    lab.finish();
}

/// Each lane has a queue of each interface; the kernel spreads flows over them.
#[test]
fn two_lanes_share_the_interfaces() {
    Lab::check_both_lanes(Driver::Xdp);
}

#[test]
fn a_killed_router_leaves_nothing_behind() {
    let Some(lab) = Lab::new(Driver::Xdp, 1, 1500) else { return };
    lab.check_killing();
}
