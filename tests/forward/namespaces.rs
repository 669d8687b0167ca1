//! Two hosts with a router between them, over packet sockets on virtual links: whatever the kernel's hosts do must go through.

use warmlane_system_tests::{CAPTURE_PROGRAMS, Driver, Lab};
use warmlane_testkit::requirements;

hosts_over!(Driver::Packet);

#[test]
fn a_capture_of_a_port_is_what_dumpcap_sees_of_the_link() {
    if !requirements::programs(&CAPTURE_PROGRAMS) {
        return;
    }
    let Some(lab) = Lab::new(Driver::Packet, 1, 1500) else { return };
    lab.check_capture();
    lab.finish();
}
