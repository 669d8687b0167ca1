//! One of the two programs that take turns.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Deserialize;

use warmlane_lab::disturbance::{self, Snapshot};
use warmlane_lab::turns::Round as Measured;

/// How long a program may take to fill its tables.
const START: Duration = Duration::from_secs(300);
/// How long a round may take beyond what was asked for.
const OVERTIME: Duration = Duration::from_secs(30);

/// The line that a program prints for a round.
#[derive(Debug, Deserialize)]
struct Round {
    packets: u64,
    cycles: u64,
    /// How many of them went where they should, if the program knows.
    forwarded: Option<u64>,
    /// Why it doesn't count, or nothing, if the program is only in charge of others and has judged by their CPUs itself.
    disturbed: Option<String>,
}

/// A running program that measures a round when it is asked to. It is ended when dropped.
#[derive(Debug)]
pub(crate) struct Side {
    name: String,
    cpus: Vec<usize>,
    process: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Side {
    /// Starts a program on these CPUs and waits until it is ready.
    pub(crate) fn start(name: &str, command: &Command, cpus: &[usize]) -> anyhow::Result<Self> {
        Self::start_within(name, command, cpus, START)
    }

    fn start_within(name: &str, command: &Command, cpus: &[usize], limit: Duration) -> anyhow::Result<Self> {
        let list: Vec<String> = cpus.iter().map(usize::to_string).collect();
        let mut process = Command::new("taskset")
            .args(["--cpu-list", &list.join(",")])
            .arg(command.get_program())
            .args(command.get_args())
            .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("taskset does not start; install util-linux")?;
        let requests = process.stdin.take();
        let output = process.stdout.take().context("the program has no standard output")?;
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            // Ends with the program, or when nobody listens any more.
            let _ = lines.map(|line| sender.send(line)).find(Result::is_err);
        });
        let mut side = Self { name: name.to_owned(), cpus: cpus.to_vec(), process, requests, answers };
        side.answer(limit, |line| (line == "ready").then_some(()))?;
        Ok(side)
    }

    /// Asks for one round.
    pub(crate) fn measure(&mut self, length: Duration) -> anyhow::Result<Measured> {
        let before = Snapshot::take(&self.cpus, self.process.id());
        let request = format!("go {}\n", length.as_secs_f64());
        let requests = self.requests.as_mut().context("the program's input is closed")?;
        if requests.write_all(request.as_bytes()).is_err() {
            bail!("{} has ended before the round", self.name);
        }
        let line = self.answer(length + OVERTIME, |line| line.starts_with('{').then(|| line.to_owned()))?;
        let after = Snapshot::take(&self.cpus, self.process.id());
        let round: Round = serde_json::from_str(&line)
            .with_context(|| format!("{} answered with something else than a round: {line}", self.name))?;
        if round.packets == 0 || round.cycles == 0 {
            bail!("{} moved nothing in a round: {line}", self.name);
        }
        if let Some(forwarded) = round.forwarded.filter(|forwarded| *forwarded != round.packets) {
            bail!(
                "{} forwarded {forwarded} packets of {}: both sides must do all the work",
                self.name,
                round.packets
            );
        }
        let disturbed = match round.disturbed {
            Some(reason) => Some(reason).filter(|reason| !reason.is_empty()),
            None => disturbance::between(&before, &after, length),
        };
        Ok(Measured { cycles_per_unit: round.cycles as f64 / round.packets as f64, disturbed })
    }

    /// Waits for a line that `wanted` takes; others are the program's own business.
    fn answer<T>(&mut self, limit: Duration, wanted: impl Fn(&str) -> Option<T>) -> anyhow::Result<T> {
        let end = Instant::now() + limit;
        loop {
            match self.answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(answer) = wanted(&line) {
                        return Ok(answer);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("{} has not answered for {} seconds", self.name, limit.as_secs())
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.process.wait()?;
                    bail!("{} has ended early, with {status}; what it said is above", self.name)
                }
            }
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // End of input is the request to end; one that does not is killed.
        self.requests = None;
        for _ in 0..200 {
            if matches!(self.process.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        command
    }

    fn cpus() -> [usize; 1] {
        [warmlane_sys::affinity::allowed_cpus().unwrap()[0]]
    }

    fn side(text: &str) -> anyhow::Result<Side> {
        Side::start_within("script", &script(text), &cpus(), Duration::from_secs(20))
    }

    /// What a side says about the round that this line answers for.
    fn round(answer: &str) -> anyhow::Result<Measured> {
        let mut side =
            side(&format!("echo noise; echo ready; read go; echo noise; echo '{answer}'; cat")).unwrap();
        side.measure(Duration::from_millis(10))
    }

    #[test]
    fn rounds_are_asked_for_and_read() {
        let text = "echo ready; while read go seconds; do \
                    echo \"{\\\"round\\\":0,\\\"packets\\\":4,\\\"cycles\\\":9,\\\"seconds\\\":$seconds}\"; done";
        let mut side = side(text).unwrap();
        for _ in 0..3 {
            assert!((side.measure(Duration::from_millis(10)).unwrap().cycles_per_unit - 2.25).abs() < 1e-9);
        }
        let id = side.process.id();
        drop(side);
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists(), "it was ended and waited for");
    }

    #[test]
    fn a_program_may_judge_itself() {
        let judged = |text: &str| {
            round(&format!("{{\"packets\":10,\"cycles\":5,\"disturbed\":\"{text}\"}}")).unwrap().disturbed
        };
        assert_eq!(judged(""), None);
        assert_eq!(judged("a storm passed").as_deref(), Some("a storm passed"));
    }

    #[test]
    fn what_is_no_round_is_told() {
        let complaint = |answer| round(answer).unwrap_err().to_string();
        assert!(complaint("{\"error\":1}").contains("something else than a round"));
        assert!(complaint("{\"packets\":0,\"cycles\":5}").contains("moved nothing"));
        let lazy = complaint("{\"packets\":10,\"cycles\":5,\"forwarded\":9}");
        assert!(lazy.contains("forwarded 9 packets of 10"), "{lazy}");
        assert!(round("{\"packets\":10,\"cycles\":5,\"forwarded\":10}").is_ok());
    }

    #[test]
    fn a_program_that_ends_or_hangs_is_told() {
        assert!(side("exit 3").unwrap_err().to_string().contains("ended early, with exit status: 3"));
        let hanging =
            Side::start_within("script", &script("exec sleep 60"), &cpus(), Duration::from_millis(50));
        assert!(hanging.unwrap_err().to_string().contains("has not answered for"));
    }
}
