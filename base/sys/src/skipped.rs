//! Tests that this machine can't run.

use std::io::Write as _;

/// Says that a test, or a part of it, is skipped: past the test harness, which keeps to itself what passing tests print.
pub(crate) fn skipped(why: &str) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "SKIPPED: {}: {why}", thread.name().unwrap_or_default());
}
