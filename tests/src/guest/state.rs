//! What a machine that doesn't answer is doing: whether its processors compute or wait, and where in the kernel; what the kernel said last.

use super::Machine;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// How long the emulator may take to answer: it has little to do for that.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Between two looks at the processors.
const PAUSE: Duration = Duration::from_secs(1);

/// Lines of the console that are shown.
const LINES: usize = 100;

impl Machine {
    /// The socket of a monitor that only [`state`](Self::state) uses.
    pub(super) fn state_socket(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// What it is doing.
    pub fn state(&self) -> String {
        let processors =
            self.processors().unwrap_or_else(|error| format!("the emulator doesn't say: {error}"));
        let console = self.console();
        let lines: Vec<_> = console.lines().collect();
        let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
        format!("its processors:\n{processors}\nits kernel said last:\n{last}")
    }

    /// Where its processors are, and with which flags, at two moments.
    fn processors(&self) -> std::io::Result<String> {
        let mut monitor = UnixStream::connect(self.state_socket())?;
        monitor.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        // It greets first.
        hear(&mut monitor)?;
        let mut places = String::new();
        for pause in [Duration::ZERO, PAUSE] {
            std::thread::sleep(pause);
            monitor.write_all(b"info registers -a\n")?;
            let said = hear(&mut monitor)?;
            let is_place = |line: &&str| ["CPU#", "RIP=", "EIP="].iter().any(|start| line.starts_with(start));
            let lines: Vec<_> = said.lines().map(str::trim).filter(is_place).collect();
            places += &lines.join(", ");
            places.push('\n');
        }
        Ok(places)
    }
}

/// What a monitor says until it waits for a command.
fn hear(monitor: &mut UnixStream) -> std::io::Result<String> {
    let mut said = String::new();
    while !said.ends_with("(qemu) ") {
        let mut bytes = [0; 4096];
        let count = monitor.read(&mut bytes)?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        said += &String::from_utf8_lossy(&bytes[..count]);
    }
    Ok(said)
}
