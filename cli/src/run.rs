//! Watches a forwarder until it is done, or is told to stop.

use crate::messages;
use clap::Args;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};
use warmlane::assembly::{Assembly, Event, Report, RunLimits, Signals};
use warmlane::functions::forward::datapath::ForwardCountersView;

/// When to stop, and what to print.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct RunFlags {
    /// Stop after this many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_hyphen_values = true)]
    pub(crate) duration: Option<Duration>,
    /// Stop once this many packets were received, give or take the bursts under way.
    #[arg(long, value_name = "PACKETS")]
    pub(crate) count: Option<u64>,
    /// Print the final report, or the answer of a running router, as one JSON object on standard output, and nothing else there.
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

/// How often progress is printed.
const PROGRESS: Duration = Duration::from_secs(1);

/// Says what lanes don't have, and what they will meet.
pub(crate) fn print_warnings(assembly: &Assembly) {
    for note in assembly.notes() {
        messages::note(note);
    }
}

/// The CPUs of lanes.
pub(crate) fn cpus(assembly: &Assembly) -> Vec<usize> {
    assembly.lanes().views().iter().filter_map(|lane| lane.cpu).collect()
}

/// Says what was chosen or fell back.
pub(crate) fn print_notes(assembly: &Assembly) {
    if let Some(fallback) = assembly.pool().fallback() {
        messages::note(format_args!("packet memory: {fallback}"));
    }
    for port in assembly.ports() {
        for note in &port.notes {
            messages::note_of(&port.name, format_args!("port '{}': {note}", port.name));
        }
    }
}

/// Waits for the end, drains the lanes, prints the report.
pub(crate) fn to_the_end(assembly: Assembly, flags: &RunFlags, signals: &Signals) -> anyhow::Result<()> {
    to_the_end_with(assembly, flags, signals, |_, timeout| signals.sleep(timeout))
}

/// The same, with something to do meanwhile, which returns after the time it is given at the latest.
pub(crate) fn to_the_end_with(
    assembly: Assembly,
    flags: &RunFlags,
    signals: &Signals,
    mut meanwhile: impl FnMut(&Assembly, Duration),
) -> anyhow::Result<()> {
    let begin = Instant::now();
    let mut progress = Progress::new(!flags.quiet && !flags.json && messages::is_text());
    let limits = RunLimits { duration: flags.duration, count: flags.count };
    assembly.run(limits, signals, |assembly, event| match event {
        Event::Wait(timeout) => {
            meanwhile(assembly, timeout);
            progress.show(assembly, begin.elapsed());
        }
        Event::ReportAsked => {
            progress.clear();
            messages::raw(Report::of(assembly).text());
        }
        // It is said at once; the exit status says it again at the end.
        Event::Failure(failure) => {
            progress.clear();
            messages::complain(failure);
        }
    });
    progress.clear();
    // What it has at work counts, too, and must have ended before the books are closed.
    drop(meanwhile);
    let outcome = assembly.finish();
    let printed = if flags.json {
        messages::print(format_args!("{}\n", serde_json::to_string(&outcome.report)?))
    } else {
        messages::print(outcome.report.text())
    };
    for name in &outcome.cut_short {
        messages::complain(format_args!(
            "{name} was ended with packets that had not left after two seconds without progress, or ten in all; they are counted as drops"
        ));
    }
    outcome.result?;
    Ok(printed?)
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
        for lane in assembly.lanes().views() {
            packets += lane.counters.packets();
            cycles += lane.counters.busy_cycles();
        }
        for (_, counters) in assembly.registry().views::<ForwardCountersView>() {
            drops += counters.drops().total();
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
            messages::raw(format_args!("\r{line}"));
            // A progress line that can't be flushed is not worth an error.
            let _ = std::io::stderr().flush();
        } else {
            messages::line(line);
        }
        (self.last, self.packets, self.cycles, self.drops) = (elapsed, packets, cycles, drops);
    }

    fn clear(&self) {
        if self.shown && self.last > Duration::ZERO && std::io::stderr().is_terminal() {
            messages::line("");
        }
    }
}
