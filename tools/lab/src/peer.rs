//! A peer's program that takes turns with experiments.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The variable that names the folder of the peers' programs.
pub const VARIABLE: &str = "WARMLANE_PEERS";

/// A running program of `peers/`, which measures a round when asked. It ends when this is dropped.
#[derive(Debug)]
pub struct Peer {
    process: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Gathers what it says on standard error.
    said: Option<JoinHandle<String>>,
}

/// Why there is no peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The program isn't there.
    #[error(
        "there is no program {}; `make -C peers` builds it where DPDK is installed, and {VARIABLE} says where it is", .file.display()
    )]
    Missing {
        /// Where it was looked for.
        file: PathBuf,
    },
    /// It does not start or has ended.
    #[error("the program {}: {source}", .file.display())]
    Program {
        /// Its file.
        file: PathBuf,
        /// What went wrong.
        source: std::io::Error,
    },
    /// It answered with something else.
    #[error("the peer answered '{answer}' instead of a round")]
    Answer {
        /// What it said.
        answer: String,
    },
}

/// A round of a peer that copies.
#[derive(Deserialize)]
struct Sizes {
    sizes: Vec<f64>,
}

/// A round of a peer that takes packets in.
#[derive(Deserialize)]
struct Packets {
    packets: f64,
    seconds: f64,
}

/// The program `peers/NAME`.
///
/// # Errors
/// [`PeerError::Missing`].
pub fn file(name: &str) -> Result<PathBuf, PeerError> {
    // Beside the folder that cargo put this program into, where `cargo xtask compare` and `make` put theirs.
    let beside = || Some(std::env::current_exe().ok()?.parent()?.parent()?.join("peers"));
    let folder = std::env::var_os(VARIABLE).map(PathBuf::from).or_else(beside).unwrap_or_default();
    let file = folder.join(name);
    if file.is_file() { Ok(file) } else { Err(PeerError::Missing { file }) }
}

impl Peer {
    /// Starts `peers/NAME` with these arguments, with lanes as DPDK's `--lcores` has them (a CPU's number is one lane there), and waits until it is
    /// ready.
    ///
    /// # Errors
    /// [`PeerError`].
    pub fn start(name: &str, lanes: &str, arguments: &[&str]) -> Result<Self, PeerError> {
        let file = file(name)?;
        let mut command = Command::new(&file);
        command
            .args([
                "--lcores",
                lanes,
                "--no-pci",
                "--no-telemetry",
                "--no-huge",
                "--no-shconf",
                "-m",
                "64",
                "--log-level=4",
                "--",
            ])
            .args(arguments);
        Self::run(&mut command).map_err(|source| PeerError::Program { file, source })
    }

    fn run(command: &mut Command) -> std::io::Result<Self> {
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let requests = process.stdin.take();
        let output =
            process.stdout.take().ok_or_else(|| std::io::Error::other("it has no standard output"))?;
        let said = process.stderr.take().map(|mut errors| {
            thread::spawn(move || {
                let mut said = Vec::new();
                // What could be read is worth telling also if the rest can't be.
                let _ = errors.read_to_end(&mut said);
                String::from_utf8_lossy(&said).trim().to_owned()
            })
        });
        let mut peer = Self { process, requests, answers: BufReader::new(output), said };
        while peer.line()? != "ready" {}
        Ok(peer)
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            let said = self.said.take().and_then(|said| said.join().ok()).unwrap_or_default();
            let said = if said.is_empty() { said } else { format!(": {said}") };
            return Err(std::io::Error::other(format!("it has ended{said}")));
        }
        Ok(line.trim().to_owned())
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.process.id()
    }

    /// A round of so long: cycles for each size.
    ///
    /// # Errors
    /// [`PeerError::Answer`], if it has ended or says something else.
    pub fn sizes(&mut self, length: Duration) -> Result<Vec<f64>, PeerError> {
        self.round(length).map(|round: Sizes| round.sizes)
    }

    /// A round of so long: packets a second.
    ///
    /// # Errors
    /// As [`sizes`](Self::sizes).
    pub fn rate(&mut self, length: Duration) -> Result<f64, PeerError> {
        self.round(length).map(|round: Packets| round.packets / round.seconds)
    }

    fn round<R: DeserializeOwned>(&mut self, length: Duration) -> Result<R, PeerError> {
        let mut ask = || {
            if let Some(requests) = &mut self.requests {
                writeln!(requests, "go {}", length.as_secs_f64())?;
            }
            self.line()
        };
        let answer = ask().unwrap_or_else(|error| error.to_string());
        serde_json::from_str(&answer).map_err(|_| PeerError::Answer { answer })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The end of its input ends it.
        self.requests = None;
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> std::io::Result<Peer> {
        Peer::run(Command::new("sh").args(["-c", text]))
    }

    #[test]
    fn rounds_are_asked_for_and_read() {
        let mut peer = script(
            "echo noise; echo ready; while read go length; do echo \"{\\\"sizes\\\":[1.5,$length]}\"; done",
        )
        .unwrap();
        assert_eq!(peer.sizes(Duration::from_secs(2)).unwrap(), [1.5, 2.0]);
        assert_eq!(peer.sizes(Duration::from_secs(3)).unwrap(), [1.5, 3.0]);
        let mut peer = script(
            "echo ready; while read go length; do echo \"{\\\"packets\\\":8,\\\"seconds\\\":$length}\"; done",
        )
        .unwrap();
        let mut rate = |seconds| peer.rate(Duration::from_secs(seconds)).unwrap();
        assert_eq!(vec![rate(2), rate(4)], [4.0, 2.0]);
    }

    #[test]
    fn what_goes_wrong_is_told() {
        assert_eq!(script("echo no memory >&2; exit 1").unwrap_err().to_string(), "it has ended: no memory");
        assert_eq!(script("exit 1").unwrap_err().to_string(), "it has ended");
        let mut peer = script("echo ready; read go; echo nonsense").unwrap();
        let answer = |peer: &mut Peer| peer.sizes(Duration::from_secs(1)).unwrap_err().to_string();
        assert_eq!(answer(&mut peer), "the peer answered 'nonsense' instead of a round");
        assert!(answer(&mut peer).starts_with("the peer answered '"));
        let missing = Peer::start("no-such-peer", "0", &[]).unwrap_err().to_string();
        assert!(missing.contains("no-such-peer; `make -C peers` builds it"), "{missing}");
    }
}
