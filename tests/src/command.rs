//! The command under test.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use warmlane_testkit::process::{Finished, warmlane};

/// How long a command may take to start, to answer or to stop, also on a machine that has much else to do.
pub const SHORT: Duration = Duration::from_secs(300);

/// How long the longest job of a test may take on a slow machine.
pub const LONG: Duration = Duration::from_secs(900);

/// `warmlane forward` with a configuration file.
pub fn forward(config: &Path) -> Command {
    let mut command = Command::new(warmlane());
    command.arg("forward").arg("--config").arg(config).arg("--json");
    command
}

/// Lets `setpriv`, which this command runs, become an ordinary user with these capabilities, named as in `net_admin`, and no
/// others. `groups` is `--clear-groups`, or says which.
pub fn as_nobody_with<'a>(setpriv: &'a mut Command, groups: &str, capabilities: &[&str]) -> &'a mut Command {
    let set = [&["-all"], capabilities].concat().join(",+");
    setpriv.args(["--reuid=65534", "--regid=65534", groups, "--no-new-privs"]);
    setpriv.args(["inh-caps", "ambient-caps", "bounding-set"].map(|of| format!("--{of}={set}")))
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

/// Checks that the command line was refused by its parser, whose message contains each of `parts`.
///
/// # Panics
/// If it wasn't.
#[track_caller]
pub fn assert_misused(finished: &Finished, parts: &[&str]) {
    let Finished { status, output, errors } = finished;
    assert_eq!(status.code(), Some(2), "exit code\n{output}\n{errors}");
    for part in parts {
        assert!(errors.contains(part), "nothing of {part:?} in:\n{errors}");
    }
}
