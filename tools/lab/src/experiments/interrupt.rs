//! A whole router between two virtual links that little arrives at, beside those of others.

use crate::error::LabError;
use crate::experiment::Experiment;
use crate::namespaces::{Namespaces, output};
use crate::plot::{Axis, Figure, Marks, Series};
use crate::record::{Claim, Findings};
use crate::setting::Setting;
use crate::statistics::median;
use crate::table::{Cell, Column};
use crate::verdict::{Answer, Basis, Prediction};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "interrupt",
    question: "What does a router take of its CPU when little arrives, and how long do packets take through it, beside others?",
    claim: Claim {
        source: "Liang Cunming, 'Practices for Building Core/Efficient Applications', DPDK Summit China 2015, 'Power Optimization' and 'Interrupt Mode \
                 Packet IO'; and docs/idle.md",
        says: "without traffic a forwarder that polls takes 100 % of a CPU, and one that sleeps until an interrupt tells of packets 0.3 %",
        predictions: &PREDICTIONS,
    },
    method: "`warmlane router --path user` (AF_XDP), the kernel, and DPDK's testpmd (net_af_xdp, forwarding by rewritten addresses) on the second CPU; \
             `warmlane gen` on the first sends at even intervals over packet sockets and measures what each packet takes. CPU time is that of all \
             threads of the forwarder's process, and of none for the kernel, whose work is the sender's system calls'. Sides take turns within a \
             round; figures are medians of up to three rounds. A round without traffic takes a hundred times the length, one with traffic thirty \
             times, or as long as five packets take. DPDK's l3fwd-power is not beside them: Debian packages only a printed copy of it, and its interrupt mode \
             needs a driver with receive interrupts, which net_af_xdp doesn't have (DPDK's overview of features of NIC drivers).",
    steps: Some(steps),
    run,
};

const PREDICTIONS: [Prediction; 6] = [
    Prediction {
        tolerance: 5.0,
        basis: Basis::Figure,
        ..Prediction::at_least(
            "CPU of a router that polls (spin), without traffic",
            "%",
            100.0,
            "a smaller part",
        )
    },
    Prediction {
        tolerance: 0.15,
        basis: Basis::Figure,
        ..Prediction::at_most(
            "CPU of a router that sleeps (power), without traffic",
            "%",
            0.3,
            "a larger part",
        )
    },
    Prediction::at_most("CPU of a balanced router, without traffic", "%", 0.5, "a larger part"),
    Prediction::at_most(
        "p99 through a balanced router that sleeps between packets (1 to 100 a second)",
        "us",
        100.0,
        "a longer time",
    ),
    Prediction::at_most(
        "p99 under latency, beyond that of a router that spins (1,000 a second)",
        "us",
        10.0,
        "a longer time",
    ),
    Prediction::at_least("CPU of testpmd, without traffic", "%", 95.0, "a smaller part"),
];

/// Packets a second; 0 is no traffic.
const RATES: [f64; 7] = [0.0, 1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0];
const MOST_ROUNDS: usize = 3;
/// A forwarder that has not begun by then won't.
const BEGIN: Duration = Duration::from_secs(30);

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Ours, with these flags.
    Router(&'static str),
    Kernel,
    Testpmd,
}

const SIDES: [(&str, Side); 6] = [
    ("spin", Side::Router("--spin")),
    ("latency", Side::Router("--idle latency")),
    ("balanced", Side::Router("--idle balanced")),
    ("power", Side::Router("--idle power")),
    ("kernel", Side::Kernel),
    ("testpmd", Side::Testpmd),
];

fn steps() -> Vec<String> {
    SIDES.iter().map(|(name, _)| (*name).to_owned()).collect()
}

/// What one side came to at one rate; what isn't finite was not measured.
#[derive(Clone, Copy, Debug)]
struct Through {
    percent: f64,
    median: f64,
    tail: f64,
    lost: f64,
}

impl Through {
    const NOTHING: Self = Self { percent: f64::NAN, median: f64::NAN, tail: f64::NAN, lost: f64::NAN };
}

fn run(setting: &Setting, progress: &mut dyn FnMut(&str)) -> Result<Findings, LabError> {
    let program = own_program()?;
    let cpus = (setting.cpu, setting.second_cpu()?);
    let rounds = setting.rounds.clamp(1, MOST_ROUNDS);
    // By side, then by rate.
    let mut all: Vec<Vec<Vec<Through>>> = vec![vec![Vec::new(); RATES.len()]; SIDES.len()];
    for round in 0..rounds {
        for turn in 0..SIDES.len() {
            let side = (turn + round) % SIDES.len();
            let (name, kind) = SIDES[side];
            if !setting.wants(name) || kind == Side::Testpmd && !has_testpmd() {
                continue;
            }
            let lab = Lab {
                namespaces: Namespaces::new()?,
                directory: Directory::new()?,
                program: program.clone(),
                cpus,
            };
            let mut forwarder = lab.start(kind)?;
            for (rate, through) in RATES.into_iter().zip(&mut all[side]) {
                progress(&format!("{name}, {rate} packets a second, round {} of {rounds}", round + 1));
                through.push(lab.measure(&mut forwarder, rate, length(setting, rate))?);
            }
        }
    }
    let found: Vec<Vec<Through>> =
        all.iter().map(|side| side.iter().map(|rounds| middle(rounds)).collect()).collect();
    Ok(findings(&found, has_testpmd()))
}

fn length(setting: &Setting, rate: f64) -> Duration {
    match rate {
        0.0 => setting.length * 100,
        // Short rounds, which are to try it out, have one packet.
        _ if setting.length < Duration::from_millis(50) => {
            (setting.length * 30).max(Duration::from_secs_f64(1.0 / rate))
        }
        _ => (setting.length * 30).max(Duration::from_secs_f64(5.0 / rate)),
    }
}

fn middle(rounds: &[Through]) -> Through {
    if rounds.is_empty() {
        return Through::NOTHING;
    }
    let of = |figure: fn(&Through) -> f64| median(&rounds.iter().map(figure).collect::<Vec<_>>());
    Through {
        percent: of(|through| through.percent),
        median: of(|through| through.median),
        tail: of(|through| through.tail),
        lost: of(|through| through.lost),
    }
}

/// The command that this is part of: the router and the generator are, too.
fn own_program() -> Result<PathBuf, LabError> {
    let program = std::env::current_exe().map_err(LabError::setup)?;
    if program.file_stem().is_some_and(|name| name == "warmlane") {
        Ok(program)
    } else {
        Err(LabError::setup(
            "it starts a router and a generator: do it by the command `warmlane lab interrupt`",
        ))
    }
}

fn has_testpmd() -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join("dpdk-testpmd").is_file())
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
struct Lab {
    namespaces: Namespaces,
    directory: Directory,
    program: PathBuf,
    /// The tester's, and the forwarder's.
    cpus: (usize, usize),
}

/// A running forwarder, until this is dropped. The kernel is no process.
struct Forwarder(Option<Child>);

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
    fn cpu_time(&self) -> Option<Duration> {
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
    fn start(&self, side: Side) -> Result<Forwarder, LabError> {
        let said = self.directory.0.join("forwarder");
        let mut command = match side {
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
        };
        let file = File::create(&said).map_err(LabError::setup)?;
        command.stdout(file.try_clone().map_err(LabError::setup)?).stderr(file);
        let mut forwarder = Forwarder(Some(command.spawn().map_err(LabError::setup)?));
        let begin = Instant::now();
        loop {
            let text = fs::read_to_string(&said).unwrap_or_default();
            let is_ready = match side {
                Side::Testpmd => self.namespaces.has_program(),
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

    fn measure(&self, forwarder: &mut Forwarder, rate: f64, length: Duration) -> Result<Through, LabError> {
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
            "198.51.100.2",
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

/// `found` has all rates of the first side, then those of the next.
fn findings(found: &[Vec<Through>], has_testpmd: bool) -> Findings {
    let cases = SIDES.iter().zip(found).flat_map(|((name, _), of_side)| {
        RATES.into_iter().zip(of_side).map(move |(rate, through)| (*name, rate, through))
    });
    let rows = cases.map(|(name, rate, through)| {
        let cells = [rate, through.percent, through.median, through.tail, through.lost];
        [Cell::from(name)].into_iter().chain(cells.map(Cell::from)).collect()
    });
    let figure = |title: &str, axis: &str, value: fn(&Through) -> f64| Figure {
        title: title.to_owned(),
        x: Axis::logarithmic("packets a second"),
        y: Axis::logarithmic(axis),
        marks: Marks::Lines(
            SIDES
                .iter()
                .zip(found)
                .map(|((name, _), of_side)| Series {
                    name: (*name).to_owned(),
                    points: RATES
                        .into_iter()
                        .zip(of_side)
                        .filter(|(rate, _)| *rate > 0.0)
                        .map(|(rate, through)| (rate, value(through)))
                        .collect(),
                })
                .collect(),
        ),
    };
    Findings {
        columns: Column::list(
            "forwarder | rate [packets/s] | CPU [%] | median [us] | p99 [us] | lost [packets]",
        ),
        rows: rows.collect(),
        figures: vec![
            figure("What a router takes of its CPU", "CPU, %", |through| through.percent),
            figure("What packets take through it", "p99, us", |through| through.tail),
        ],
        answers: answers(found, has_testpmd).to_vec(),
        conclusion: conclusion(found),
    }
}

/// Of a side at a rate; nothing if it wasn't measured.
fn of(found: &[Vec<Through>], side: &str, rate: f64) -> Through {
    let row = SIDES.iter().position(|(name, _)| *name == side);
    let column = RATES.iter().position(|other| other.total_cmp(&rate).is_eq());
    row.zip(column).and_then(|(row, column)| found.get(row)?.get(column)).copied().unwrap_or(Through::NOTHING)
}

fn answers(found: &[Vec<Through>], has_testpmd: bool) -> [Answer; 6] {
    let idle = |side| of(found, side, 0.0).percent;
    // What isn't a number would be lost in a maximum.
    let woken = [1.0, 10.0, 100.0].map(|rate| of(found, "balanced", rate).tail);
    let slowest = if woken.iter().all(|tail| tail.is_finite()) {
        woken.into_iter().fold(0.0, f64::max)
    } else {
        f64::NAN
    };
    [
        idle("spin").into(),
        idle("power").into(),
        idle("balanced").into(),
        slowest.into(),
        (of(found, "latency", 1_000.0).tail - of(found, "spin", 1_000.0).tail).into(),
        if has_testpmd { idle("testpmd").into() } else { Answer::none("dpdk-testpmd isn't installed") },
    ]
}

fn conclusion(found: &[Vec<Through>]) -> String {
    let [spin, balanced, power] = ["spin", "balanced", "power"].map(|side| of(found, side, 0.0).percent);
    let [ours, kernel] = ["balanced", "kernel"].map(|side| of(found, side, 100.0).tail);
    format!(
        "Without traffic the router takes {spin:.0} % of a CPU if it spins, {balanced:.2} % balanced and {power:.2} % under power. At a hundred packets a \
         second, each of which wakes its lane, p99 is {ours:.0} us through it and {kernel:.0} us through the kernel."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::assert_judged;

    #[test]
    fn turned_figures_refute_the_claim() {
        let of_each = |all: [(f64, f64); SIDES.len()]| {
            let through = |(percent, tail)| Through { percent, median: 1.0, tail, lost: 0.0 };
            let found: Vec<_> = all.into_iter().map(|side| vec![through(side); RATES.len()]).collect();
            answers(&found, true)
        };
        let claimed =
            [(100.0, 20.0), (100.0, 22.0), (0.2, 80.0), (0.05, 90.0), (f64::NAN, 30.0), (100.0, 20.0)];
        let turned = [(0.2, 20.0), (100.0, 60.0), (100.0, 200.0), (99.0, 1.0), (f64::NAN, 30.0), (3.0, 20.0)];
        assert_judged(&PREDICTIONS, &of_each(claimed), &of_each(turned));
    }

    #[test]
    fn what_was_not_measured_is_missing() {
        let found = vec![vec![Through::NOTHING; RATES.len()]; SIDES.len()];
        let findings = findings(&found, false);
        findings.assert_rows(SIDES.len() * RATES.len());
        assert!(findings.answers.iter().all(|answer| !answer.figure.is_finite()));
        assert!(findings.answers[5].cannot_tell.as_ref().is_some_and(|reason| reason.contains("testpmd")));
    }

    #[test]
    fn another_program_is_told_to_use_the_command() {
        let error = own_program().unwrap_err().to_string();
        assert!(error.contains("warmlane lab interrupt"), "{error}");
    }
}
