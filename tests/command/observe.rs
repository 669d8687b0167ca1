//! The experiment that looks into a running forwarder, in all its ways.

use std::process::Command;

use serde_json::Value;
use warmlane_system_tests::LONG;
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::requirements;

#[test]
fn each_way_to_look_is_measured() {
    if !requirements::programs(&["setpriv", "taskset"]) || !requirements::cpus(2) {
        return;
    }
    let arguments = "lab observe --rounds 1 --seconds 0.01 --json";
    let finished = Process::run(Command::new(warmlane()).args(arguments.split(' ')), LONG);
    let record: Value = serde_json::from_str(finished.expect_success("warmlane lab")).expect("a record");
    let rows = record["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 6, "{record:#}");
    // On a busy machine the figures don't count, and are missing.
    let is_void = rows[0][1].is_null();
    let is_figure = |row: &Value| row[1].as_f64().is_some_and(|cycles| cycles > 0.0) && row[2].is_f64();
    assert!(rows.iter().all(|row| is_figure(row) != is_void), "{record:#}");
}
