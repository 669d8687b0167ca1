//! Two hosts with a router between them, over TAP devices: whatever the kernel's hosts do must go through.

use warmlane_system_tests::{Driver, Lab};

hosts_over!(Driver::Tap);

/// Each lane has a queue of each device; the kernel spreads flows over them.
#[test]
fn two_lanes_share_the_devices() {
    Lab::check_both_lanes(Driver::Tap);
}
