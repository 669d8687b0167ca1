//! A running instance, and those who look into it.

use crate::error::LabError;
use std::fs;
use std::hint;
use std::io::{self, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use warmlane_control::{Client, ClientError, Request, Stats};

/// An instance that doesn't answer by then won't: it has the full table to load.
const BEGIN: Duration = Duration::from_secs(300);
/// How long those who looked before may take to leave.
const LEAVE: Duration = Duration::from_secs(10);
/// Between two scrapes, as Prometheus is often told.
const SECOND: Duration = Duration::from_secs(1);

/// Who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Nobody,
    /// Nobody, but the second CPU is never idle.
    Spin,
    /// Reads all metrics, once a second.
    Scrape,
    /// Has all stages timed, as `top` does.
    Cycles,
    /// Captures one packet in so many, and reads them.
    Capture(u32),
    /// Asks for all packets, and reads none.
    Stall,
}

/// A forwarder in memory, until this is dropped. It stands still but for its rounds.
pub(super) struct Instance {
    process: Child,
    directory: PathBuf,
    metrics: SocketAddr,
}

/// What it had done at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) nanoseconds: u64,
    pub(super) packets: u64,
}

impl Instance {
    /// Starts `warmlane demo` with one lane, on the higher of these CPUs, and waits until it answers.
    pub(super) fn start(program: &Path, cpus: [usize; 2]) -> Result<Self, LabError> {
        let directory = std::env::temp_dir().join(format!("warmlane-lab-{}", std::process::id()));
        fs::create_dir_all(&directory).map_err(LabError::setup)?;
        // A port that was free a moment ago.
        let metrics =
            TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).map_err(LabError::setup)?;
        // It goes with us, however we end.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "taskset", "--cpu-list"]);
        command.arg(cpus.map(|cpu| cpu.to_string()).join(",")).arg(program);
        command.args(["demo", "--shortest", "--quiet", "--duration", "86400"]);
        command.args(["--metrics", &metrics.to_string(), "--socket"]).arg(directory.join("socket"));
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(LabError::setup)?;
        let mut instance = Self { process, directory, metrics };
        let begin = Instant::now();
        while let Err(error) = instance.now() {
            let ended = instance.process.try_wait().ok().flatten();
            if let Some(status) = ended {
                return Err(LabError::setup(format!("the forwarder doesn't start: {status}")));
            }
            if begin.elapsed() > BEGIN {
                return Err(error);
            }
            thread::sleep(Duration::from_millis(50));
        }
        instance.keep_off_the_lane(cpus[0].min(cpus[1]))?;
        instance.go_on(false)?;
        Ok(instance)
    }

    /// Leaves the lane's CPU to it: all other threads, and those that they start, run on this one.
    fn keep_off_the_lane(&self, cpu: usize) -> Result<(), LabError> {
        let threads = format!("/proc/{}/task", self.process());
        let mut lanes = 0;
        for thread in fs::read_dir(threads).map_err(LabError::setup)?.flatten() {
            let is_lane =
                fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.starts_with("lane"));
            if is_lane {
                lanes += 1;
                continue;
            }
            let number = thread.file_name();
            let mut command = Command::new("taskset");
            command.args(["--cpu-list", "--pid", &cpu.to_string()]).arg(&number).stdout(Stdio::null());
            // One may have ended since.
            let moved = command.stderr(Stdio::null()).status().map_err(LabError::setup)?;
            if !moved.success() && thread.path().exists() {
                return Err(LabError::setup(format!("taskset of thread {}: {moved}", number.display())));
            }
        }
        if lanes == 1 {
            Ok(())
        } else {
            Err(LabError::setup(format!("the instance has {lanes} lanes, not one")))
        }
    }

    /// The number of its process.
    pub(super) fn process(&self) -> u32 {
        self.process.id()
    }

    /// Lets it go on, or stand still.
    pub(super) fn go_on(&self, goes_on: bool) -> Result<(), LabError> {
        let signal = if goes_on { "-CONT" } else { "-STOP" };
        // The shell has it built in.
        let sent = Command::new("sh").args(["-c", &format!("kill {signal} {}", self.process())]).status();
        match sent {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(LabError::setup(format!("kill {signal}: {status}"))),
            Err(error) => Err(LabError::setup(error)),
        }
    }

    /// What it has done so far.
    pub(super) fn now(&self) -> Result<Moment, LabError> {
        let stats: Stats = self.client()?.ask(&Request::Stats {}).map_err(LabError::setup)?;
        let mut lanes = stats.values.iter().filter(|value| value.set == "lane" && value.name == "packets");
        let lane = lanes.next().ok_or_else(|| LabError::setup("the instance has no lane"))?;
        Ok(Moment { nanoseconds: stats.age_ns, packets: lane.value })
    }

    fn client(&self) -> Result<Client, LabError> {
        Client::connect(&self.directory.join("socket")).map_err(LabError::setup)
    }

    /// Somebody begins to look.
    pub(super) fn look(&self, look: Look) -> Result<Looker, LabError> {
        let ask = |request: serde_json::Value| -> Result<UnixStream, LabError> {
            let begin = Instant::now();
            loop {
                let mut client = self.client()?;
                match client.ask_for_line(&request) {
                    Ok(_) => return Ok(client.into_stream().into_inner()),
                    // Those who looked before may be on their way out.
                    Err(ClientError::Refused(_)) if begin.elapsed() < LEAVE => {
                        thread::sleep(Duration::from_millis(50));
                    }
                    Err(error) => return Err(LabError::setup(error)),
                }
            }
        };
        let capture = |one_in: u32| ask(serde_json::json!({"ask": "capture", "one_in": one_in}));
        Ok(match look {
            Look::Nobody => Looker::default(),
            Look::Spin => {
                let (stop, stopped) = mpsc::channel();
                let spinner = thread::spawn(move || {
                    while stopped.try_recv() == Err(TryRecvError::Empty) {
                        hint::spin_loop();
                    }
                });
                Looker { stream: None, is_stalled: false, stop: Some(stop), thread: Some(spinner) }
            }
            Look::Cycles => Looker::with(ask(serde_json::json!({"ask": "cycles"}))?, false),
            Look::Stall => Looker::with(capture(1)?, true),
            Look::Capture(one_in) => {
                let stream = capture(one_in)?;
                let mut read = stream.try_clone().map_err(LabError::setup)?;
                let reader = thread::spawn(move || drop(io::copy(&mut read, &mut io::sink())));
                Looker { stream: Some(stream), is_stalled: false, stop: None, thread: Some(reader) }
            }
            Look::Scrape => {
                let (stop, stopped) = mpsc::channel();
                let metrics = self.metrics;
                let reader = thread::spawn(move || {
                    while stopped.recv_timeout(SECOND / 2) == Err(RecvTimeoutError::Timeout) {
                        let _ = scrape(metrics);
                        if stopped.recv_timeout(SECOND / 2) != Err(RecvTimeoutError::Timeout) {
                            break;
                        }
                    }
                });
                Looker { stream: None, is_stalled: false, stop: Some(stop), thread: Some(reader) }
            }
        })
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Also where it stands still.
        let _ = self.process.kill();
        let _ = self.process.wait();
        // What is left there does no harm.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Reads all metrics once, and says how many bytes they were.
pub(super) fn scrape(metrics: SocketAddr) -> io::Result<u64> {
    let mut stream = TcpStream::connect_timeout(&metrics, SECOND)?;
    stream.set_read_timeout(Some(SECOND))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    io::copy(&mut stream, &mut io::sink())
}

/// Somebody who looks, until this is dropped.
#[derive(Default)]
pub(super) struct Looker {
    stream: Option<UnixStream>,
    /// It doesn't even read how that ends.
    is_stalled: bool,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Looker {
    const fn with(stream: UnixStream, is_stalled: bool) -> Self {
        Self { stream: Some(stream), is_stalled, stop: None, thread: None }
    }
}

impl Drop for Looker {
    fn drop(&mut self) {
        drop(self.stop.take());
        let thread = self.thread.take();
        if let Some(mut stream) = self.stream.take() {
            // The instance ends what it was asked for, and then the connection. If it doesn't, the next round tells.
            let _ = stream.shutdown(if self.is_stalled { Shutdown::Both } else { Shutdown::Write });
            if thread.is_none() && !self.is_stalled && stream.set_read_timeout(Some(LEAVE)).is_ok() {
                let _ = io::copy(&mut stream, &mut io::sink());
            }
        }
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}
