//! Who forwards, and the generator that sends to it.

use crate::error::LabError;
use crate::namespaces::{Namespaces, output};
use crate::peer;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

/// A forwarder that has not begun by then won't.
const BEGIN: Duration = Duration::from_secs(30);

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Ours, with these flags.
    Router(&'static str),
    Kernel,
    /// Polls.
    Testpmd,
    /// DPDK's example l3fwd-power, in its interrupt mode.
    L3fwdPower,
}

/// As [`peer`] looks for it. `peers/README.md` says how it is built.
const L3FWD_POWER: &str = "l3fwd-power";

/// Its interfaces; packets are redirected between these and the virtual links.
const TAPS: [&str; 2] = ["t0", "t1"];

impl Side {
    /// Why it can't be measured here, if so.
    pub(super) fn missing(self) -> Option<String> {
        match self {
            Self::Router(_) | Self::Kernel => None,
            Self::Testpmd => (!has_testpmd()).then(|| "dpdk-testpmd isn't installed".to_owned()),
            Self::L3fwdPower => peer::file(L3FWD_POWER).err().map(|_| {
                format!(
                    "there is no program {L3FWD_POWER} in the folder of the peers ({}): `make -C peers {L3FWD_POWER} DPDK_SOURCE=DIRECTORY` builds \
                     it from DPDK's sources",
                    peer::VARIABLE
                )
            }),
        }
    }

    /// Whether others can be measured without it.
    pub(super) const fn is_peer(self) -> bool {
        matches!(self, Self::Testpmd | Self::L3fwdPower)
    }

    /// Where packets are sent that it is to forward.
    const fn destination(self) -> &'static str {
        match self {
            // Its routes are compiled in: 2.1.1.0/24 leads to its second port.
            Self::L3fwdPower => "2.1.1.2",
            _ => "198.51.100.2",
        }
    }
}

fn has_testpmd() -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join("dpdk-testpmd").is_file())
}

/// What one side came to at one rate; what isn't finite was not measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Through {
    /// What the forwarder took of its CPU.
    pub(super) percent: f64,
    /// What packets took, in microseconds: half of them at most, and 99 of 100.
    pub(super) median: f64,
    pub(super) tail: f64,
    /// Packets.
    pub(super) lost: f64,
}

impl Through {
    pub(super) const NOTHING: Self =
        Self { percent: f64::NAN, median: f64::NAN, tail: f64::NAN, lost: f64::NAN };
}

/// A directory for sockets and what programs say, until this is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Result<Self, LabError> {
        let path = std::env::temp_dir().join(format!("warmlane-lab-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(LabError::setup)?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What is left there does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Where one side forwards.
pub(super) struct Lab {
    side: Side,
    namespaces: Namespaces,
    directory: Directory,
    program: PathBuf,
    /// The tester's, and the forwarder's.
    cpus: (usize, usize),
}

/// A running forwarder, until this is dropped. The kernel is no process.
pub(super) struct Forwarder(Option<Child>);

impl Drop for Forwarder {
    fn drop(&mut self) {
        if let Some(process) = &mut self.0 {
            // The namespaces go with it, and with them all that it had put there.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Forwarder {
    /// The time that its threads have had on CPUs.
    pub(super) fn cpu_time(&self) -> Option<Duration> {
        let process = self.0.as_ref()?.id();
        let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
        // The first number is nanoseconds (Documentation/scheduler/sched-stats.rst).
        let of_task = |path: &Path| {
            let text = fs::read_to_string(path.join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
        };
        Some(tasks.filter_map(|task| of_task(&task.path())).sum())
    }
}

impl Lab {
    /// `program` is this command, and `cpus` are the tester's and the forwarder's.
    pub(super) fn new(side: Side, program: PathBuf, cpus: (usize, usize)) -> Result<Self, LabError> {
        Ok(Self { side, namespaces: Namespaces::new()?, directory: Directory::new()?, program, cpus })
    }

    /// Starts the forwarder, and waits until it forwards.
    pub(super) fn start(&self) -> Result<Forwarder, LabError> {
        let said = self.directory.0.join("forwarder");
        let mut command = match self.side {
            Side::Kernel => return Ok(Forwarder(None)),
            Side::Router(flags) => {
                let mut command = self.namespaces.on_router(self.cpus.1);
                command
                    .arg(&self.program)
                    .args(["router", "w1", "e1", "--path", "user", "--quiet", "--socket"]);
                command.arg(self.directory.0.join("socket")).args(flags.split(' '));
                command
            }
            Side::Testpmd => self.testpmd()?,
            Side::L3fwdPower => self.l3fwd_power()?,
        };
        let file = File::create(&said).map_err(LabError::setup)?;
        command.stdout(file.try_clone().map_err(LabError::setup)?).stderr(file);
        let mut forwarder = Forwarder(Some(command.spawn().map_err(LabError::setup)?));
        let begin = Instant::now();
        let mut joined = false;
        loop {
            let text = fs::read_to_string(&said).unwrap_or_default();
            let is_ready = match self.side {
                Side::Testpmd => self.namespaces.has_program(),
                Side::L3fwdPower => {
                    joined = joined || self.join_taps()?;
                    // It says nothing when it begins.
                    joined && self.has_come_through()
                }
                _ => text.contains("note: forwarding between"),
            };
            if is_ready {
                // Lanes get to know that nothing comes.
                thread::sleep(Duration::from_millis(200));
                return Ok(forwarder);
            }
            let has_ended =
                forwarder.0.as_mut().is_some_and(|process| !matches!(process.try_wait(), Ok(None)));
            if has_ended || begin.elapsed() > BEGIN {
                return Err(LabError::setup(format!("the forwarder doesn't start: {}", text.trim())));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn testpmd(&self) -> Result<Command, LabError> {
        let mut command = self.namespaces.on_router(self.cpus.1);
        command.args([
            "dpdk-testpmd",
            &format!("--lcores=(0,1)@{}", self.cpus.1),
            "--main-lcore=0",
            "--no-pci",
            "--no-telemetry",
        ]);
        command.args([
            "--in-memory",
            "-m",
            "128",
            "--log-level=4",
            "--vdev=net_af_xdp0,iface=w1",
            "--vdev=net_af_xdp1,iface=e1",
            "--",
        ]);
        command.args([
            "--forward-mode=mac",
            &format!("--eth-peer=1,{}", self.namespaces.next_address()?),
            "--burst=64",
            "--mbcache=512",
        ]);
        command.args(["--total-num-mbufs=16383", "--stats-period=100"]);
        Ok(command)
    }

    /// Its ports are TAP interfaces: of DPDK's drivers for what the kernel offers (AF_XDP, AF_PACKET, TAP), only that one has receive interrupts.
    fn l3fwd_power(&self) -> Result<Command, LabError> {
        let mut command = self.namespaces.on_router(self.cpus.1);
        command.arg(peer::file(L3FWD_POWER).map_err(LabError::setup)?);
        command.args([
            &format!("--lcores=0@{}", self.cpus.1),
            "--no-pci",
            "--no-telemetry",
            "--no-huge",
            "--no-shconf",
            // Of which its table takes 64.
            "-m",
            "192",
            // Else it writes a line each time that it wakes.
            "--log-level=4",
        ]);
        command
            .args(TAPS.iter().enumerate().map(|(number, tap)| format!("--vdev=net_tap{number},iface={tap}")));
        command.args(["--", "-p", "0x3", "-P", "--no-numa", "--interrupt-only", "--config=(0,0,0),(1,0,0)"]);
        Ok(command)
    }

    /// Puts its interfaces in between, and says whether they are there.
    fn join_taps(&self) -> Result<bool, LabError> {
        let there = TAPS.iter().all(|tap| self.namespaces.is_up(tap));
        if there {
            self.namespaces.redirect("w1", TAPS[0])?;
            self.namespaces.redirect(TAPS[1], "e1")?;
        }
        Ok(there)
    }

    /// Whether the forwarder lets packets through.
    fn has_come_through(&self) -> bool {
        self.send(100.0, Duration::from_millis(50))
            .is_ok_and(|answer| answer["received"]["latency"]["median"].is_number())
    }

    /// What one packet after the other takes through it, and what it takes for that.
    pub(super) fn measure(
        &self,
        forwarder: &Forwarder,
        rate: f64,
        length: Duration,
    ) -> Result<Through, LabError> {
        let (begin, before) = (Instant::now(), forwarder.cpu_time());
        let answer = if rate > 0.0 {
            self.send(rate, length)?
        } else {
            thread::sleep(length);
            serde_json::Value::Null
        };
        let (elapsed, after) = (begin.elapsed(), forwarder.cpu_time());
        let used = after.zip(before).map(|(after, before)| after.saturating_sub(before));
        let received = &answer["received"];
        let micros =
            |part: &str| received["latency"][part].as_f64().map_or(f64::NAN, |nanoseconds| nanoseconds / 1e3);
        Ok(Through {
            percent: used.map_or(f64::NAN, |used| 100.0 * used.as_secs_f64() / elapsed.as_secs_f64()),
            median: micros("median"),
            tail: micros("p99"),
            lost: received["lost"].as_f64().unwrap_or(f64::NAN),
        })
    }

    /// What the generator found. A trial that is void says why.
    fn send(&self, rate: f64, length: Duration) -> Result<serde_json::Value, LabError> {
        let mut command = self.namespaces.on_tester(self.cpus.0);
        command.arg(&self.program).args([
            "gen",
            "run",
            "--json",
            "--transmit",
            "packet:w0",
            "--receive",
            "packet:e0",
            "--size",
            "64",
        ]);
        command.args([
            "--from",
            "192.0.2.2",
            "--to",
            self.side.destination(),
            "--to-mac",
            &self.namespaces.router_address()?,
        ]);
        // A tester that is held up for a moment makes no trial void: what matters is what each packet takes.
        command.args(["--patience", "1000", "--tolerance", "50", "--drain", "0.5"]);
        command.args(["--rate", &format!("{rate}pps"), "--duration", &length.as_secs_f64().to_string()]);
        let text = output(&mut command, "warmlane gen run")?;
        serde_json::from_str(&text)
            .map_err(|error| LabError::setup(format!("warmlane gen: {error}: {}", text.trim())))
    }
}
