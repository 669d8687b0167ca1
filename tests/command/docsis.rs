//! `warmlane docsis` without privilege: every packet through the downstream and back.

use std::process::Command;

use warmlane_system_tests::SHORT;
use warmlane_testkit::Report;
use warmlane_testkit::process::{Process, warmlane};

fn docsis(arguments: &[&str]) -> Command {
    let mut command = Command::new(warmlane());
    command.args(["docsis", "--duration", "2"]).args(arguments);
    command
}

#[test]
fn every_packet_comes_back_or_is_accounted_for() {
    for arguments in
        [&["--json"][..], &["--json", "--no-encryption"], &["--json", "--ofdm", "3", "--sc-qam", "4"]]
    {
        let finished = Process::run(&mut docsis(arguments), SHORT);
        let report = Report::parse(finished.expect_success("the downstream"));
        assert!(report.number("/delivered") > 1_000, "{}", report.value());
        assert_eq!(report.number("/wrong"), 0);
        let stages = report.value()["stages"].as_array().expect("stages");
        assert_eq!(stages.len(), 11);
        assert!(stages.iter().all(|stage| stage["packets"].as_u64() > Some(0)), "{}", report.value());
    }
}

#[test]
fn what_buckets_hold_back_is_a_drop_of_a_named_reason() {
    let finished = Process::run(&mut docsis(&["--json", "--modems", "2", "--maximum-rate", "100000"]), SHORT);
    let report = Report::parse(finished.expect_success("the downstream"));
    let reasons: Vec<_> =
        report.value()["drops"].as_array().expect("drops").iter().map(|drop| &drop["reason"]).collect();
    assert!(reasons.iter().any(|reason| *reason == "queue-full"), "{}", report.value());
}

#[test]
fn the_table_names_the_stages() {
    let finished = Process::run(&mut docsis(&["--modems", "3"]), SHORT);
    let text = finished.expect_success("the downstream");
    for stage in ["rx", "cm_lookup", "sub_mgmt", "filtering", "classification", "qos", "transfer"] {
        assert!(text.contains(stage), "{text}");
    }
}
