//! Interfaces that are deleted while packets flow through them.

#![forbid(unsafe_code)]

use warmlane_system_tests::{Driver, Lab};

#[test]
fn virtual_links_vanish() {
    let Some(lab) = Lab::new("forward_vanish: virtual_links_vanish", Driver::Packet, 1, 1500) else { return };
    lab.check_vanishing();
}

#[test]
fn tap_devices_vanish() {
    let Some(lab) = Lab::new("forward_vanish: tap_devices_vanish", Driver::Tap, 1, 1500) else { return };
    lab.check_vanishing();
}
