//! `warmlane gen self-test`: what this machine generates, and how precisely.

use super::output::OutputFlags;
use super::traffic::TrafficFlags;
use super::trial::PaceFlags;
use super::{ports, values};
use crate::control_socket::ControlSocket;
use crate::messages;
use serde::Serialize;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use warmlane::assembly::Signals;
use warmlane::assembly::ports::PortEvents;
use warmlane::drivers::memory::ring_pair;
use warmlane::functions::generator::datapath::Pattern;
use warmlane::functions::generator::{Tester, TrialConfig, TrialResult};

/// Packets a second that are asked for.
const RATES: [f64; 4] = [1e4, 1e5, 1e6, 5e6];

/// How long a delay may be that is made up for: virtual machines lose their CPUs for some 10 ms at a time.
const PATIENCE: Duration = Duration::from_millis(50);

/// Measure the generator itself, over two ports connected in memory: how many packets, and how precisely.
///
/// One trial as fast as can be, then one at each of several rates. Needs no privilege and no network card.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Arguments {
    #[command(flatten)]
    traffic: TrafficFlags,
    /// Seconds that each trial sends for.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = values::seconds, allow_hyphen_values = true)]
    duration: Duration,
    #[command(flatten)]
    pace: PaceFlags,
    #[command(flatten)]
    output: OutputFlags,
}

pub(super) const EXAMPLES: &str = "\
Examples:
  What can this machine generate, and how precisely:
    warmlane gen self-test

  Longer frames, shorter trials, for a script:
    warmlane gen self-test --size 1518 --duration 2 --json";

#[derive(Serialize)]
struct SelfTest {
    unpaced: TrialResult,
    paced: Vec<TrialResult>,
}

pub(super) fn run(arguments: &Arguments, signals: &Signals, socket: ControlSocket) -> anyhow::Result<()> {
    let Arguments { traffic, duration, pace, output } = arguments;
    let config = if traffic.is_default() { TrafficFlags::random_source()? } else { traffic.read(true)? };
    let plan = Arc::new(config.profile.plan()?);
    let pool = ports::pool(&plan)?;
    let [mut sender, receiver] = ring_pair::open(["sender", "receiver"], ports::CABLE)?;
    let cpus = ports::cpus(2)?;
    if cpus.len() < 2 {
        messages::note("there is one CPU: sending and receiving take turns on it, and both suffer");
    }
    let mut tester = Tester::start(sender.take_transmit()?, receiver.receive, &pool, &cpus)?;
    let _service = super::serve(socket, &tester, &PortEvents::default(), &pool)?;
    let mut progress = output.progress();
    let base = TrialConfig {
        duration: *duration,
        burst: usize::from(pace.burst),
        patience: pace.patience.unwrap_or(PATIENCE),
        tolerance: pace.tolerance,
        ..TrialConfig::new(plan)
    };
    let mut trial = |config: &TrialConfig| {
        let result = tester.run(config, &mut |sample| progress.show(sample) && !signals.is_stopped());
        progress.end();
        result
    };
    let short = base.duration.min(Duration::from_secs(2));
    let unpaced = trial(&TrialConfig { duration: short, ..base.clone() })?;
    let mut paced = Vec::new();
    for rate in RATES {
        if signals.is_stopped() {
            break;
        }
        paced.push(trial(&TrialConfig {
            pattern: Pattern::Constant,
            packets_per_second: rate,
            ..base.clone()
        })?);
    }
    let result = SelfTest { unpaced, paced };
    output.deliver(&result, || text(&result))?;
    let lossy = result.paced.iter().chain([&result.unpaced]).any(|trial| {
        trial
            .received
            .as_ref()
            .is_none_or(|received| received.loss_ratio > 0.0 || received.disorder.reordered > 0)
    });
    anyhow::ensure!(!lossy, "packets were lost in memory: this is a defect in Warmlane, please report it");
    match result.paced.iter().chain([&result.unpaced]).find_map(|trial| trial.void.as_ref()) {
        Some(why) => anyhow::bail!("void: {why}"),
        None => Ok(()),
    }
}

fn text(result: &SelfTest) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(result, &mut text);
    text
}

fn write(result: &SelfTest, text: &mut String) -> std::fmt::Result {
    writeln!(
        text,
        "as fast as can be, sent, received and checked: {:.2} Mpps\n",
        result.unpaced.sent_packets_per_second / 1e6
    )?;
    writeln!(
        text,
        "{:>12} {:>16} {:>10} {:>10} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12} {:>10}  result",
        "asked pps",
        "sent pps",
        "error",
        "lost",
        "ideal gap",
        "mean",
        "median",
        "99 %",
        "99.9 %",
        "longest",
        "together"
    )?;
    for trial in &result.paced {
        let asked = trial.asked_packets_per_second.unwrap_or(0.0);
        let lost = trial.received.as_ref().map_or(0, |received| received.lost + received.corrupted);
        writeln!(
            text,
            "{asked:>12.0} {:>16.2} {:>8.4} % {lost:>10} {:>9.2} ns {:>9.2} ns {:>9} ns {:>9} ns {:>9} ns {:>9} ns {:>8.2} %  {}",
            trial.sent_packets_per_second,
            (trial.sent_packets_per_second / asked - 1.0) * 100.0,
            trial.departures.ideal.unwrap_or(0.0),
            trial.departures.mean,
            trial.departures.median,
            trial.departures.p99,
            trial.departures.p99_9,
            trial.departures.maximum,
            trial.departures.together * 100.0,
            trial.void.as_deref().unwrap_or("kept")
        )?;
    }
    writeln!(
        text,
        "\nGaps are from one packet handed to the port to the next; those handed over together, to make up for a delay or \
         because they are nearer than a poll, are 0 apart."
    )?;
    Ok(())
}
