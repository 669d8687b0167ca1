//! What a newcomer runs first: no privilege, the full table, little memory, every packet accounted for.

use std::process::Command;

use warmlane_system_tests::{SHORT, turn};
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::{Report, requirements};

/// What the demonstration may have resident at most, table, buffers and traffic included.
const MEMORY: u64 = 200 << 20;

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(warmlane());
    command.arg("demo").args(arguments);
    command
}

#[test]
fn it_forwards_and_accounts_for_every_packet() {
    let _turn = turn::beside_others();
    let mut process = Process::spawn(&mut demo(&["--duration", "3", "--json"]));
    process.wait_for("forwarding for", SHORT);
    std::thread::sleep(std::time::Duration::from_secs(1));
    let memory = process.peak_memory();
    assert!(memory < MEMORY, "{} MiB resident", memory >> 20);
    let finished = process.finish(SHORT);
    let report = Report::parse(finished.expect_success("the demonstration"));
    report.assert_balanced();
    assert!(report.number("/forward/forwarded") > 100_000, "{}", report.value());
    // A few frames are bad in each of three ways.
    assert!(report.drops("/forward/drops").len() >= 3, "{}", report.value());
}

#[test]
fn without_a_command_it_is_the_demonstration_and_ends_on_ctrl_c() {
    let _turn = turn::beside_others();
    let mut process = Process::spawn(&mut Command::new(warmlane()));
    process.wait_for("forwarding for", SHORT);
    // A report in between does not end it.
    process.signal("USR1");
    process.wait_for("outstanding", SHORT);
    assert!(!process.has_ended());
    process.interrupt();
    let finished = process.finish(SHORT);
    let text = finished.expect_success("the demonstration");
    assert!(text.contains("= forwarded") && text.contains("outstanding 0"), "{text}");
}

#[test]
fn two_lanes_share_the_links() {
    let _turn = turn::beside_others();
    if !requirements::cpus(2) {
        return;
    }
    let finished = Process::run(&mut demo(&["--duration", "2", "--json", "--lanes", "2"]), SHORT);
    let report = Report::parse(finished.expect_success("the demonstration"));
    report.assert_balanced();
    for lane in ["/lanes/0/packets", "/lanes/1/packets"] {
        assert!(report.number(lane) > 10_000, "{}", report.value());
    }
}
