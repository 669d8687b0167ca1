//! `warmlane gen run` and `warmlane gen soak`: one trial, as the flags say.

use super::output::ResultFlags;
use super::ports::{self, MeasuredPorts, PortFlags, Ports};
use super::traffic::TrafficFlags;
use super::{page, report, values};
use crate::control_socket::ControlSocket;
use crate::messages;
use std::sync::Arc;
use std::time::Duration;
use warmlane::assembly::Signals;
use warmlane::functions::generator::control::{Config, PatternName, Rate};
use warmlane::functions::generator::datapath::{Pattern, Plan};
use warmlane::functions::generator::{Tester, TrialConfig, TrialResult};

/// How long a trial sends for.
pub(super) const TRIAL: Duration = Duration::from_secs(10);

/// How long a delay may be that is made up for.
const PATIENCE: Duration = Duration::from_millis(1);

/// Send streams at a rate, and report what became of them.
///
/// Ends after --duration or --count, or on Ctrl-C.
#[derive(clap::Args, Debug)]
#[command(after_long_help = RUN_EXAMPLES)]
pub(super) struct RunArguments {
    #[command(flatten)]
    ports: PortFlags,
    #[command(flatten)]
    traffic: TrafficFlags,
    /// Send without a signature: nothing but the number of packets is measured then.
    #[arg(long, conflicts_with_all = ["config", "cable"])]
    unsigned: bool,
    #[command(flatten)]
    rate: RateFlags,
    /// Seconds to send for; 10 if neither this nor --count is given.
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds, allow_hyphen_values = true)]
    duration: Option<Duration>,
    /// Packets to send, if that ends it earlier.
    #[arg(long, value_name = "PACKETS")]
    count: Option<u64>,
    #[command(flatten)]
    trial: TrialFlags,
    #[command(flatten)]
    result: ResultFlags,
}

pub(super) const RUN_EXAMPLES: &str = "\
Examples:
  A million packets a second from one interface to another, through
  whatever is between them (as root):
    warmlane gen run --transmit packet:eth0 --receive packet:eth1 \\
      --to 198.51.100.9 --to-mac 02:00:00:00:01:01 --size imix \\
      --vary ipv4.source=random:65536 --rate 1Mpps

  Streams from a file (docs/gen.md) into a capture:
    warmlane gen run --config streams.toml --transmit pcap:write=out.pcap \\
      --count 1000

  Half of what a 10 Gbit/s line carries, in memory:
    warmlane gen run --both loop --rate 50% --line 10Gbps --size 1518";

/// Send streams for an hour, and report what happened when.
///
/// As `gen run`, with a table of what was sent and received in each interval and how long it took. Ends after --duration,
/// or on Ctrl-C.
#[derive(clap::Args, Debug)]
#[command(after_long_help = SOAK_EXAMPLES)]
pub(super) struct SoakArguments {
    #[command(flatten)]
    ports: MeasuredPorts,
    #[command(flatten)]
    traffic: TrafficFlags,
    #[command(flatten)]
    rate: RateFlags,
    /// Seconds to send for.
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds, allow_hyphen_values = true, default_value = "3600")]
    duration: Duration,
    #[command(flatten)]
    trial: TrialFlags,
    #[command(flatten)]
    result: ResultFlags,
}

pub(super) const SOAK_EXAMPLES: &str = "\
Examples:
  An hour at half of the line's rate, with a page of pictures:
    warmlane gen soak --transmit xdp:eth0 --receive xdp:eth1 \\
      --to 198.51.100.9 --to-mac 02:00:00:00:01:01 \\
      --rate 50% --line 10Gbps --report soak.html";

#[derive(clap::Args, Debug)]
pub(super) struct RateFlags {
    /// How fast: `2.5Mpps`, `10Gbps` (frames), `10Gbps-l1` (with preamble and gap), `50%` (of --line) or `max`.
    ///
    /// Without it, what the streams' file says, or `max`.
    #[arg(long, value_name = "RATE")]
    pub(super) rate: Option<Rate>,
    /// Bits a second of the line, for rates in percent and to refuse impossible ones: `10Gbps`.
    #[arg(long, value_name = "RATE", value_parser = values::line)]
    pub(super) line: Option<f64>,
    /// When packets leave: `constant`, `poisson` or `bursts:N`.
    #[arg(long, value_name = "PATTERN")]
    pub(super) pattern: Option<PatternName>,
}

#[derive(clap::Args, Debug)]
pub(super) struct PaceFlags {
    /// Packets that are handed to the port at once, at most.
    #[arg(long, value_name = "PACKETS", default_value = "64", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(super) burst: u16,
    /// How many milliseconds late a packet may leave if the generator was held up; later ones are counted as unsent. Without
    /// it 1, and 50 for `self-test`, which has no device that a burst could overrun.
    #[arg(long, value_name = "MILLISECONDS", value_parser = values::milliseconds)]
    pub(super) patience: Option<Duration>,
    /// Percent of the packets that may be unsent before the trial is void.
    #[arg(long, value_name = "PERCENT", default_value = "0.1", value_parser = values::percent)]
    pub(super) tolerance: f64,
}

#[derive(clap::Args, Debug)]
pub(super) struct TrialFlags {
    #[command(flatten)]
    pace: PaceFlags,
    /// Seconds to wait for packets under way after the last was sent.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = values::seconds, allow_hyphen_values = true)]
    drain: Duration,
}

impl TrialFlags {
    /// What all trials have in common; no rate is known yet.
    pub(super) fn trial(&self, plan: Arc<Plan>, pattern: PatternName) -> TrialConfig {
        TrialConfig {
            pattern: match pattern {
                PatternName::Constant => Pattern::Constant,
                PatternName::Poisson => Pattern::Poisson,
                PatternName::Bursts(packets) => Pattern::Bursts(packets),
            },
            burst: usize::from(self.pace.burst),
            patience: self.pace.patience.unwrap_or(PATIENCE),
            drain: self.drain,
            tolerance: self.pace.tolerance,
            ..TrialConfig::new(plan)
        }
    }
}

impl RateFlags {
    /// The trial that these flags ask for; what they don't say of rate and pattern is as `file` says.
    pub(super) fn trial(
        &self,
        plan: Arc<Plan>,
        file: (Option<Rate>, Option<PatternName>),
        common: &TrialFlags,
    ) -> anyhow::Result<TrialConfig> {
        let rate = self.rate.or(file.0).unwrap_or(Rate::Unpaced);
        let packets = rate.packets_per_second(plan.mean_size(), self.line)?;
        let pattern = self.pattern.or(file.1).unwrap_or(PatternName::Constant);
        let mut trial = common.trial(plan, pattern);
        match packets {
            Some(packets) => trial.packets_per_second = packets,
            None if matches!(trial.pattern, Pattern::Constant) => trial.pattern = Pattern::Unpaced,
            None => anyhow::bail!("a pattern needs a rate: say one, as in --rate 1Mpps"),
        }
        Ok(trial)
    }
}

impl RunArguments {
    pub(super) fn run(&self, signals: &Signals, socket: ControlSocket) -> anyhow::Result<()> {
        let Config { profile, rate, pattern } = self.traffic.read(!self.unsigned)?;
        let trial = self.rate.trial(Arc::new(profile.plan()?), (rate, pattern), &self.trial)?;
        let trial = TrialConfig { duration: self.duration.unwrap_or(TRIAL), count: self.count, ..trial };
        send(&trial, &self.ports, (signals, socket), &self.result, report::text)
    }
}

impl SoakArguments {
    pub(super) fn run(&self, signals: &Signals, socket: ControlSocket) -> anyhow::Result<()> {
        let Config { profile, rate, pattern } = self.traffic.read(true)?;
        let trial = self.rate.trial(Arc::new(profile.plan()?), (rate, pattern), &self.trial)?;
        let trial = TrialConfig { duration: self.duration, ..trial };
        send(&trial, &self.ports.clone().into(), (signals, socket), &self.result, report::soak)
    }
}

/// Runs one trial, and tells what came of it.
pub(super) fn send(
    trial: &TrialConfig,
    ports: &PortFlags,
    (signals, socket): (&Signals, ControlSocket),
    flags: &ResultFlags,
    text: impl FnOnce(&TrialResult) -> String,
) -> anyhow::Result<()> {
    let Ports { transmit, receive, pool, cpus, mut events } =
        signals.while_opening(|| ports::open(ports, &trial.plan))?;
    let mut tester = Tester::start(transmit, receive, &pool, &cpus)?;
    let _service = super::serve(socket, &tester, &events, &pool)?;
    let mut progress = flags.output.progress();
    let result = tester.run(trial, &mut |sample| {
        messages::tell_events(&mut events);
        progress.show(sample) && !signals.is_stopped()
    })?;
    progress.end();
    messages::tell_events(&mut events);
    drop(tester);
    flags.write_page(|| page::trial(&result))?;
    flags.output.deliver(&result, || text(&result))?;
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
