//! What the hosts' kernels leave to hardware: it passes whole where the next port takes it, and is done where it doesn't.

use warmlane_system_tests::{Driver, Lab};
use warmlane_testkit::requirements;

/// Bytes of the packets that a port of the report transmitted, on average.
fn mean_length(report: &warmlane_testkit::Report, port: &str) -> u64 {
    let port = report.port(port);
    let number = |name| report.number(&format!("{port}/transmitted/{name}"));
    number("bytes") / number("packets").max(1)
}

#[test]
fn from_tap_to_tap_long_packets_stay_whole() {
    let Some(lab) = Lab::new(Driver::Tap, 1, 1500) else { return };
    lab.check_transfer();
    let report = lab.finish();
    let mean = mean_length(&report, "east");
    assert!(mean > 3_000, "{mean} bytes each: {:#}", report.value());
}

#[test]
fn from_tap_to_af_xdp_they_are_cut_and_right() {
    if !requirements::programs(&["tshark"]) {
        return;
    }
    let Some(lab) = Lab::new(Driver::TapAndXdp, 1, 1500) else { return };
    lab.check_wire();
    let report = lab.finish();
    let received = report.port("west");
    let bytes = report.number(&format!("{received}/received/bytes"));
    let packets = report.number(&format!("{received}/received/packets"));
    assert!(bytes > 3_000 * packets, "super-frames came in: {:#}", report.value());
    assert!(mean_length(&report, "east") <= 1514, "{:#}", report.value());
}
