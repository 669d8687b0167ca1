//! Watches a forwarder until it is done, or is told to stop.

use crate::assembly::Assembly;
use crate::report::Report;
use anyhow::bail;
use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use warmlane::lane::LaneView;

/// When to stop, and what to print.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct RunFlags {
    /// Stop after this many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_hyphen_values = true)]
    pub(crate) duration: Option<Duration>,
    /// Stop once this many packets were received, give or take the bursts under way.
    #[arg(long, value_name = "PACKETS")]
    pub(crate) count: Option<u64>,
    /// Print the final report as one JSON object on standard output, and nothing else there.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print no progress line.
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// A length of time that a run can have.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().map_err(|error| error.to_string())?;
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| "give a number of seconds, 0 or more, as in 2.5".to_owned())
}

/// How often the end conditions are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How often progress is printed.
const PROGRESS: Duration = Duration::from_secs(1);

/// Signals that have arrived: `stop` for SIGINT and SIGTERM, `report` for SIGUSR1, `reload` for SIGHUP where that is
/// asked for. A second SIGINT or SIGTERM ends the process at once.
pub(crate) struct Signals {
    stop: Arc<AtomicBool>,
    report: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

impl Signals {
    pub(crate) fn catch() -> anyhow::Result<Self> {
        let signals = Self { stop: Arc::default(), report: Arc::default(), reload: Arc::default() };
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&signals.stop))?;
            signal_hook::flag::register(signal, Arc::clone(&signals.stop))?;
        }
        signal_hook::flag::register(SIGUSR1, Arc::clone(&signals.report))?;
        Ok(signals)
    }

    /// From now on SIGHUP doesn't end the process, but asks for the configuration to be read again.
    pub(crate) fn catch_reload(&self) -> anyhow::Result<()> {
        signal_hook::flag::register(SIGHUP, Arc::clone(&self.reload))?;
        Ok(())
    }

    /// Whether that was asked for since the last time.
    pub(crate) fn take_reload(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }

    /// Whether the process was asked to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Waits for the end, drains the lanes, prints the report.
pub(crate) fn to_the_end(assembly: Assembly, flags: &RunFlags, signals: &Signals) -> anyhow::Result<()> {
    to_the_end_with(assembly, flags, signals, |_, patience| std::thread::sleep(patience))
}

/// The same, with something to do meanwhile, which returns after the time it is given at the latest.
pub(crate) fn to_the_end_with(
    assembly: Assembly,
    flags: &RunFlags,
    signals: &Signals,
    mut meanwhile: impl FnMut(&Assembly, Duration),
) -> anyhow::Result<()> {
    let begin = Instant::now();
    let mut progress = Progress::new(!flags.quiet && !flags.json);
    let mut told = Vec::new();
    while !assembly.lanes.are_finished() {
        meanwhile(&assembly, LOOK);
        let elapsed = begin.elapsed();
        let received = || assembly.forwarders.iter().map(|counters| counters.received.get()).sum::<u64>();
        let done = signals.stop.load(Ordering::Relaxed)
            || flags.duration.is_some_and(|limit| elapsed >= limit)
            || flags.count.is_some_and(|count| received() >= count);
        if done {
            break;
        }
        if signals.report.swap(false, Ordering::Relaxed) {
            progress.clear();
            eprint!("{}", Report::of(&assembly, elapsed).text());
        }
        // What broke while the rest goes on is said at once; the exit status says it again at the end.
        for failure in failures(&assembly) {
            if !told.contains(&failure) {
                progress.clear();
                eprintln!("warmlane: {failure}");
                told.push(failure);
            }
        }
        progress.show(&assembly, elapsed);
    }
    progress.clear();
    finish(assembly, flags, begin)
}

/// What broke so far, each once however many lanes had to do with it.
fn failures(assembly: &Assembly) -> Vec<String> {
    let mut all = Vec::new();
    for failure in assembly.notes.iter().flat_map(|notes| notes.failures()) {
        if !all.contains(&failure) {
            all.push(failure);
        }
    }
    all
}

fn finish(mut assembly: Assembly, flags: &RunFlags, begin: Instant) -> anyhow::Result<()> {
    assembly.lanes.stop();
    let joined = assembly.lanes.join().map(<[LaneView]>::to_vec);
    let report = Report::of(&assembly, begin.elapsed());
    if flags.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{}", report.text());
    }
    for lane in joined?.iter().filter(|lane| lane.cut_short) {
        let name = &lane.name;
        eprintln!(
            "warmlane: {name} was ended with packets that did not leave for two seconds; they are counted as drops"
        );
    }
    let failures = failures(&assembly);
    if !failures.is_empty() {
        bail!("{}", failures.join("; "));
    }
    let outstanding = assembly.pool.ledger().outstanding();
    if outstanding > 0 {
        bail!("{outstanding} buffers were not given back: this is a defect in Warmlane, please report it");
    }
    Ok(())
}

/// The line that is renewed every second.
struct Progress {
    shown: bool,
    last: Duration,
    packets: u64,
    cycles: u64,
    drops: u64,
}

impl Progress {
    fn new(shown: bool) -> Self {
        Self { shown, last: Duration::ZERO, packets: 0, cycles: 0, drops: 0 }
    }

    fn show(&mut self, assembly: &Assembly, elapsed: Duration) {
        if !self.shown || elapsed < self.last + PROGRESS {
            return;
        }
        let (mut packets, mut cycles, mut drops) = (0, 0, 0);
        for lane in assembly.lanes.views() {
            packets += lane.counters.packets.get();
            cycles += lane.counters.busy_cycles.get();
        }
        for counters in &assembly.forwarders {
            drops += counters.drops.total();
        }
        let seconds = elapsed.saturating_sub(self.last).as_secs_f64();
        let new = packets - self.packets;
        let rate = new as f64 / seconds / 1e6;
        let each = (cycles - self.cycles) as f64 / new.max(1) as f64;
        let dropped = drops - self.drops;
        let line = format!(
            "{:>5.0} s  {rate:>8.2} Mpps  {each:>6.1} cycles a packet  {dropped:>9} dropped",
            elapsed.as_secs_f64()
        );
        if std::io::stderr().is_terminal() {
            eprint!("\r{line}");
            // A progress line that can't be flushed is not worth an error.
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{line}");
        }
        (self.last, self.packets, self.cycles, self.drops) = (elapsed, packets, cycles, drops);
    }

    fn clear(&self) {
        if self.shown && self.last > Duration::ZERO && std::io::stderr().is_terminal() {
            eprintln!();
        }
    }
}
