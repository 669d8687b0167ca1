//! `warmlane gen`

mod flags;
mod method;
mod page;
mod ports;
mod progress;
mod recording;
mod report;
mod self_test;
mod tables;

use crate::run::Signals;
use anyhow::Context as _;
use clap::ValueEnum as _;
use method::Method;
use progress::Progress;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use warmlane::functions::generator::control::{PatternName, Rate, rate};
use warmlane::functions::generator::datapath::{Pattern, Plan};
use warmlane::functions::generator::{Tester, TrialConfig, TrialResult};

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
    #[command(flatten)]
    recording: recording::RecordingFlags,
    /// Where to send: `DRIVER` or `DRIVER:KEY=VALUE,...`, drivers as for `warmlane forward`.
    #[arg(long, value_name = "PORT", required_unless_present_any = ["both", "self_test"])]
    transmit: Option<String>,
    /// Where to receive.
    #[arg(long, value_name = "PORT")]
    receive: Option<String>,
    /// One port to send to and to receive from.
    ///
    /// `loop` is a cable in memory, which needs no privilege; `loop:rate=2Mpps,buffer=64` a device of known capacity on it.
    #[arg(long, value_name = "PORT", conflicts_with_all = ["transmit", "receive", "self_test"])]
    both: Option<String>,
    /// Measure the generator itself, over two ports connected in memory: how many packets, and how precisely.
    #[arg(long, conflicts_with_all = ["transmit", "receive", "rate", "line", "pattern", "count", "drain", "settle", "method",
        "frame_sizes", "maximum", "goals", "width", "repetitions", "step", "report"])]
    self_test: bool,
    #[command(flatten)]
    trial: TrialFlags,
    #[command(flatten)]
    method: method::MethodFlags,
    /// Print the result as one JSON object on standard output, and nothing else there.
    #[arg(long)]
    json: bool,
    /// Write the result as JSON to this file too.
    #[arg(long, value_name = "FILE")]
    result: Option<PathBuf>,
    /// Write a page with tables and pictures to this HTML file, which needs nothing else.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
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
    /// Seconds to send for; 10 if not given. For a method: how long each trial is, if not what the method's document says.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// Packets to send, if that ends it earlier.
    #[arg(long, value_name = "PACKETS")]
    count: Option<u64>,
    /// Packets that are handed to the port at once, at most.
    #[arg(long, value_name = "PACKETS", default_value = "64", value_parser = clap::value_parser!(u16).range(1..=256))]
    burst: u16,
    /// Milliseconds of its own delays that the generator makes up for; what was due before is counted as unsent. 1 if not
    /// given, and 50 for --self-test, where nothing is behind that a burst could harm.
    #[arg(long, value_name = "MILLISECONDS", value_parser = milliseconds)]
    patience: Option<Duration>,
    /// Seconds to wait for packets under way after the last was sent.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    drain: Duration,
    /// Seconds to leave the device alone between a method's trials, so that its queues are empty again; 5 if not given.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    settle: Option<Duration>,
    /// Percent of the packets that may be unsent before the trial is void.
    #[arg(long, value_name = "PERCENT", default_value = "0.1", value_parser = percent)]
    tolerance: f64,
}

/// How long a delay may be that is made up for.
const PATIENCE: Duration = Duration::from_millis(1);

/// How long a device is left alone between two trials (RFC 2544 section 23).
const SETTLE: Duration = Duration::from_secs(5);

/// How long a trial and a soak send for.
const TRIAL: Duration = Duration::from_secs(10);
const SOAK: Duration = Duration::from_secs(3_600);

const EXAMPLES: &str = "\
Examples:
  What can this machine generate, and how precisely (no privilege needed):
    warmlane gen --self-test

  A million packets a second from one interface to another, through whatever is between them (as root):
    warmlane gen --transmit packet:interface=eth0 --receive packet:interface=eth1 \\
      --to 198.51.100.9 --to-mac 02:00:00:00:01:01 --size imix --vary ipv4.source=random:65536 --rate 1Mpps

  The tests of RFC 2544, and the rates with no and with little loss, as a table and as a page:
    warmlane gen --both packet:interface=eth0 --to 198.51.100.9 --to-mac 02:00:00:00:01:01 \\
      --method rfc2544 --line 10Gbps --duration 10 --report rfc2544.html
    warmlane gen --both xdp:eth0 --to 198.51.100.9 --to-mac 02:00:00:00:01:01 --method mlrsearch --maximum 2Mpps

  A capture, three times over, twice as fast as it was recorded, between other addresses:
    warmlane gen --replay capture.pcap --speed 2 --loops 3 --rewrite 10.0.0.0/8=198.0.0.0/8 --transmit packet:eth0

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
    arguments.refuse_strays()?;
    if !arguments.method.method.is_one_trial() {
        return method::run(arguments, &signals);
    }
    let trial = if let Some(trial) = arguments.recording.read(arguments)? {
        trial
    } else {
        let config = arguments.traffic.read()?;
        let plan = Arc::new(config.profile.plan()?);
        arguments.trial.config((config.rate, config.pattern), plan, arguments.method.method)?
    };
    let ports = ports::open(arguments, &trial.plan)?;
    let mut tester = Tester::start(ports.transmit, ports.receive, &ports.pool, &ports.cpus)?;
    let mut progress = Progress::new(!arguments.quiet && !arguments.json);
    let result = tester.run(&trial, &mut |sample| progress.show(sample) && !signals.is_stopped())?;
    progress.end();
    drop(tester);
    arguments.report_page(|| page::trial(&result))?;
    arguments.deliver(&result, || match arguments.method.method {
        Method::Soak => report::soak(&result),
        _ => report::text(&result),
    })?;
    judge(&result)
}

/// A void trial is no result, one that nothing came back from is of no use, and scripts must notice.
fn judge(result: &TrialResult) -> anyhow::Result<()> {
    if let Some(why) = &result.void {
        anyhow::bail!("void: {why}");
    }
    anyhow::ensure!(!result.is_silent(), "the receiver got nothing of {} packets sent", result.sent);
    Ok(())
}

impl Arguments {
    /// Refuses flags that the method has no use for.
    fn refuse_strays(&self) -> anyhow::Result<()> {
        let method = self.method.method;
        let settle = self.trial.settle.filter(|_| method.is_one_trial()).map(|_| "settle");
        if let Some(stray) = self.method.stray().or(settle) {
            let name =
                method.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
            anyhow::bail!(
                "--{stray} means nothing to --method {name}: leave it away, or choose another method"
            );
        }
        if method == Method::Soak && self.recording.is_given() {
            anyhow::bail!(
                "--replay does not go with --method soak: use --method trial with --loops or --duration"
            );
        }
        Ok(())
    }

    /// Writes the page, if one was asked for.
    fn report_page(&self, page: impl FnOnce() -> anyhow::Result<String>) -> anyhow::Result<()> {
        let Some(path) = &self.report else { return Ok(()) };
        std::fs::write(path, page()?)
            .with_context(|| format!("cannot write the report to {}", path.display()))
    }

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
    /// How long to send for.
    fn duration(&self, method: Method) -> Duration {
        self.duration.unwrap_or(if method == Method::Soak { SOAK } else { TRIAL })
    }

    /// What all trials have in common: `pattern` is the file's, and no rate is known yet.
    fn base(&self, plan: Arc<Plan>, pattern: Option<PatternName>) -> anyhow::Result<TrialConfig> {
        let pattern = match &self.pattern {
            Some(text) => text.parse::<PatternName>().map_err(anyhow::Error::msg).context("--pattern")?,
            None => pattern.unwrap_or(PatternName::Constant),
        };
        Ok(TrialConfig {
            pattern: match pattern {
                PatternName::Constant => Pattern::Constant,
                PatternName::Poisson => Pattern::Poisson,
                PatternName::Bursts(packets) => Pattern::Bursts(packets),
            },
            count: self.count,
            burst: usize::from(self.burst),
            patience: self.patience.unwrap_or(PATIENCE),
            drain: self.drain,
            settle: self.settle.unwrap_or(SETTLE),
            tolerance: self.tolerance,
            ..TrialConfig::new(plan)
        })
    }

    /// A trial; what the flags don't say of rate and pattern is as `said` elsewhere.
    fn config(
        &self,
        said: (Option<Rate>, Option<PatternName>),
        plan: Arc<Plan>,
        method: Method,
    ) -> anyhow::Result<TrialConfig> {
        let line = self.line.as_deref().map(rate::line).transpose().context("--line")?;
        let rate = match &self.rate {
            Some(text) => text.parse::<Rate>().context("--rate")?,
            None => said.0.unwrap_or(Rate::Unpaced),
        };
        let packets = rate.packets_per_second(plan.mean_size(), line)?;
        let base = self.base(plan, said.1)?;
        let pattern = match (packets, &base.pattern) {
            (None, Pattern::Constant) => Pattern::Unpaced,
            (None, _) => anyhow::bail!("a pattern needs a rate: say one, as in --rate 1Mpps"),
            (Some(_), pattern) => pattern.clone(),
        };
        Ok(TrialConfig {
            pattern,
            packets_per_second: packets.unwrap_or(0.0),
            duration: self.duration(method),
            ..base
        })
    }
}
