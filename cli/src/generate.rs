//! `warmlane gen`

mod flags;
mod ports;
mod report;
mod self_test;

use crate::run::Signals;
use anyhow::Context as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use warmlane::functions::generator::control::PatternName;
use warmlane::functions::generator::datapath::Pattern;
use warmlane::functions::generator::{Sample, Tester, TrialConfig, TrialResult};

/// Generate traffic and measure what becomes of it.
///
/// Sends streams of packets, exactly when they are due, from one port, and receives them on another (or the same) one.
/// Each packet carries a signature, by which lost, duplicated, reordered, damaged and late ones are found, and how long
/// each took. Ends after --duration or --count, or on Ctrl-C, and prints a report.
///
/// A trial in which the generator itself did not keep the rate is void: the report says so, and the exit status is 1.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    traffic: flags::TrafficFlags,
    /// Where to send: `DRIVER` or `DRIVER:KEY=VALUE,...`, drivers as for `warmlane forward`.
    #[arg(long, value_name = "PORT", required_unless_present_any = ["both", "self_test"])]
    transmit: Option<String>,
    /// Where to receive.
    #[arg(long, value_name = "PORT")]
    receive: Option<String>,
    /// One port to send to and to receive from.
    #[arg(long, value_name = "PORT", conflicts_with_all = ["transmit", "receive", "self_test"])]
    both: Option<String>,
    /// Measure the generator itself, over two ports connected in memory: how many packets, and how precisely.
    #[arg(long, conflicts_with_all = ["transmit", "receive"])]
    self_test: bool,
    #[command(flatten)]
    trial: TrialFlags,
    /// Print the result as one JSON object on standard output, and nothing else there.
    #[arg(long)]
    json: bool,
    /// Write the result as JSON to this file too.
    #[arg(long, value_name = "FILE")]
    result: Option<PathBuf>,
    /// Print no progress line.
    #[arg(long)]
    quiet: bool,
}

#[derive(clap::Args, Debug)]
struct TrialFlags {
    /// How fast: `2.5Mpps`, `10Gbps` (frames), `10Gbps-l1` (with preamble and gap), `50%` (of --line) or `max`.
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Bits a second of the line, for rates in percent and to refuse impossible ones: `10Gbps`.
    #[arg(long, value_name = "RATE")]
    line: Option<String>,
    /// When packets leave: `constant`, `poisson` or `bursts:N`.
    #[arg(long, value_name = "PATTERN")]
    pattern: Option<String>,
    /// Seconds to send for.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    duration: Duration,
    /// Packets to send, if that ends it earlier.
    #[arg(long, value_name = "PACKETS")]
    count: Option<u64>,
    /// Packets that are handed to the port at once, at most.
    #[arg(long, value_name = "PACKETS", default_value = "64", value_parser = clap::value_parser!(u16).range(1..=256))]
    burst: u16,
    /// Milliseconds of its own delays that the generator makes up for; what was due before is counted as unsent.
    #[arg(long, value_name = "MILLISECONDS", default_value = "1", value_parser = milliseconds)]
    patience: Duration,
    /// Seconds to wait for packets under way after the last was sent.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    drain: Duration,
    /// Percent of the packets that may be unsent before the trial is void.
    #[arg(long, value_name = "PERCENT", default_value = "0.1", value_parser = percent)]
    tolerance: f64,
}

const EXAMPLES: &str = "\
Examples:
  What can this machine generate, and how precisely (no privilege needed):
    warmlane gen --self-test

  A million packets a second from one interface to another, through whatever is between them (as root):
    warmlane gen --transmit packet:interface=eth0 --receive packet:interface=eth1 \\
      --to 198.51.100.9 --to-mac 02:00:00:00:01:01 --size imix --vary ipv4.source=random:65536 --rate 1Mpps

  Streams from a file (docs/gen.md) into a capture:
    warmlane gen --config streams.toml --transmit pcap:write=out.pcap --count 1000";

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().map_err(|error| error.to_string())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| *duration <= Duration::from_secs(86_400 * 365))
        .ok_or_else(|| "give a number of seconds from 0 to a year, as in 2.5".to_owned())
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    seconds(text)
        .map(|duration| duration / 1_000)
        .map_err(|_| "give a number of milliseconds, 0 or more, as in 0.5".to_owned())
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
    percent.map(|percent| percent / 100.0).ok_or_else(|| "give a number from 0 to 100".to_owned())
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let signals = Signals::catch()?;
    if arguments.self_test {
        return self_test::run(arguments, &signals);
    }
    let config = arguments.traffic.read()?;
    let plan = Arc::new(config.profile.plan()?);
    let trial = arguments.trial.config(&config, Arc::clone(&plan))?;
    let ports = ports::open(arguments, &plan)?;
    let mut tester = Tester::start(ports.transmit, ports.receive, &ports.pool, &ports.cpus)?;
    let mut progress = Progress::new(!arguments.quiet && !arguments.json);
    let result = tester.run(&trial, &mut |sample| progress.show(sample) && !signals.is_stopped())?;
    progress.end();
    drop(tester);
    arguments.deliver(&result, || report::text(&result))?;
    judge(&result)
}

/// A void trial is no result, and scripts must notice.
fn judge(result: &TrialResult) -> anyhow::Result<()> {
    match &result.void {
        Some(why) => anyhow::bail!("void: {why}"),
        None => Ok(()),
    }
}

impl Arguments {
    /// Prints and writes a result.
    fn deliver(&self, result: &impl serde::Serialize, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        if let Some(path) = &self.result {
            let text = serde_json::to_string_pretty(result)?;
            std::fs::write(path, text)
                .with_context(|| format!("cannot write the result to {}", path.display()))?;
        }
        if self.json {
            println!("{}", serde_json::to_string(result)?);
        } else {
            print!("{}", text());
        }
        Ok(())
    }
}

impl TrialFlags {
    fn config(
        &self,
        config: &warmlane::functions::generator::control::Config,
        plan: Arc<warmlane::functions::generator::datapath::Plan>,
    ) -> anyhow::Result<TrialConfig> {
        use warmlane::functions::generator::control::{Rate, rate};
        let line = self.line.as_deref().map(rate::line).transpose().context("--line")?;
        let rate = match &self.rate {
            Some(text) => text.parse::<Rate>().context("--rate")?,
            None => config.rate.unwrap_or(Rate::Unpaced),
        };
        let pattern = match &self.pattern {
            Some(text) => text.parse::<PatternName>().map_err(anyhow::Error::msg).context("--pattern")?,
            None => config.pattern.unwrap_or(PatternName::Constant),
        };
        let packets = rate.packets_per_second(plan.mean_size(), line)?;
        let pattern = match (packets, pattern) {
            (None, PatternName::Constant) => Pattern::Unpaced,
            (None, _) => anyhow::bail!("a pattern needs a rate: say one, as in --rate 1Mpps"),
            (Some(_), PatternName::Constant) => Pattern::Constant,
            (Some(_), PatternName::Poisson) => Pattern::Poisson,
            (Some(_), PatternName::Bursts(packets)) => Pattern::Bursts(packets),
        };
        Ok(TrialConfig {
            pattern,
            packets_per_second: packets.unwrap_or(0.0),
            duration: self.duration,
            count: self.count,
            burst: usize::from(self.burst),
            patience: self.patience,
            drain: self.drain,
            tolerance: self.tolerance,
            ..TrialConfig::new(plan)
        })
    }
}

/// The line that is renewed every second.
struct Progress {
    shown: bool,
    last: Sample,
    wrote: bool,
}

impl Progress {
    const fn new(shown: bool) -> Self {
        Self { shown, last: Sample { seconds: 0.0, sent: 0, received: 0 }, wrote: false }
    }

    /// Always `true`, to be joined with other reasons to go on.
    fn show(&mut self, sample: &Sample) -> bool {
        let elapsed = sample.seconds - self.last.seconds;
        if self.shown && elapsed >= 1.0 {
            let rate = |now: u64, then: u64| (now - then) as f64 / elapsed / 1e6;
            let line = format!(
                "{:>5.0} s  sent {:>9.3} Mpps  received {:>9.3} Mpps",
                sample.seconds,
                rate(sample.sent, self.last.sent),
                rate(sample.received, self.last.received)
            );
            if std::io::stderr().is_terminal() {
                eprint!("\r{line}");
                // A progress line that can't be flushed is not worth an error.
                let _ = std::io::stderr().flush();
            } else {
                eprintln!("{line}");
            }
            self.last = *sample;
            self.wrote = true;
        }
        true
    }

    fn end(&mut self) {
        if self.wrote && std::io::stderr().is_terminal() {
            eprintln!();
        }
        *self = Self::new(self.shown);
    }
}
