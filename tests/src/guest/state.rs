//! What a machine does that doesn't answer: whether its processors compute or wait, and where in the kernel; what the kernel said last.

use super::Machine;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// How long the emulator may take to answer: it has little to do for that.
const PATIENCE: Duration = Duration::from_secs(20);

/// Between two looks at the processors.
const PAUSE: Duration = Duration::from_secs(1);

/// Lines of the console that are shown.
const LINES: usize = 30;

impl Machine {
    /// Of the emulator's monitor that nobody else uses.
    pub(super) fn state_socket(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// What it does, in a few lines.
    pub fn state(&self) -> String {
        let first = self.processors();
        std::thread::sleep(PAUSE);
        let second = self.processors();
        let console = self.console();
        let lines: Vec<_> = console.lines().collect();
        let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
        format!("its processors: {first}\na moment later: {second}\nits kernel said last:\n{last}")
    }

    /// Where its processors are, and with which flags.
    fn processors(&self) -> String {
        match self.ask_for_registers() {
            Ok(said) => {
                let is_place =
                    |line: &&str| ["CPU#", "RIP=", "EIP="].iter().any(|start| line.trim().starts_with(start));
                said.lines().filter(is_place).map(str::trim).collect::<Vec<_>>().join(", ")
            }
            Err(error) => format!("not known, as the emulator doesn't say: {error}"),
        }
    }

    fn ask_for_registers(&self) -> std::io::Result<String> {
        let mut monitor = UnixStream::connect(self.state_socket())?;
        monitor.set_read_timeout(Some(PATIENCE))?;
        let mut said = String::new();
        // It greets, and then answers.
        for line in ["info registers -a\n", ""] {
            let before = said.len();
            while !said[before..].contains("(qemu) ") {
                let mut bytes = [0; 4096];
                let count = monitor.read(&mut bytes)?;
                if count == 0 {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
                said += &String::from_utf8_lossy(&bytes[..count]);
            }
            monitor.write_all(line.as_bytes())?;
        }
        Ok(said)
    }
}
