//! The command under test.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use warmlane_testkit::process::{Finished, warmlane};

/// How long a command may take to start, to answer or to stop.
pub const SHORT: Duration = Duration::from_secs(60);

/// How long the longest job of a test may take on a slow machine.
pub const LONG: Duration = Duration::from_secs(900);

/// `warmlane forward` with a configuration file.
pub fn forward(config: &Path) -> Command {
    let mut command = Command::new(warmlane());
    command.arg("forward").arg("--config").arg(config).arg("--json");
    command
}

/// Checks that the command ended with a message of its own that contains each of `parts`, and a failure's exit code.
///
/// # Panics
/// If it didn't.
#[track_caller]
pub fn assert_refused(finished: &Finished, parts: &[&str]) {
    let Finished { status, output, errors } = finished;
    assert_eq!(status.code(), Some(1), "exit code\n{output}\n{errors}");
    let message = errors.lines().rfind(|line| line.starts_with("warmlane: "));
    let message = message.unwrap_or_else(|| panic!("no message of warmlane's own:\n{errors}"));
    for part in parts {
        assert!(message.contains(part), "nothing of {part:?} in:\n{errors}");
    }
    assert!(!errors.contains("panicked"), "{errors}");
}
