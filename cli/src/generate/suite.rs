//! `warmlane gen rfc2544` and `warmlane gen mlrsearch`: many trials, at rates that a method chooses.

use super::output::ResultFlags;
use super::ports::{self, MeasuredPorts};
use super::progress::Progress;
use super::traffic::TrafficFlags;
use super::trial::TrialFlags;
use super::{page, tables, values};
use crate::control_socket::ControlSocket;
use crate::messages;
use anyhow::{Context as _, bail};
use clap::ValueEnum;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use warmlane::assembly::Signals;
use warmlane::assembly::ports::PortEvents;
use warmlane::functions::generator::control::{Config, PatternName, Profile, Rate};
use warmlane::functions::generator::methods::mlrsearch::Goal;
use warmlane::functions::generator::methods::suite::{self, SuiteConfig, SuiteWatch, Test};
use warmlane::functions::generator::methods::{Request, Watch, rfc2544};
use warmlane::functions::generator::{Sample, Tester, TrialResult};

/// The tests of RFC 2544: throughput, latency, frame loss, back-to-back frames.
///
/// Trials of many rates, for each of the RFC's frame sizes; the exit status is 1 if one of them came to no result.
#[derive(clap::Args, Debug)]
#[command(after_long_help = RFC2544_EXAMPLES)]
pub(super) struct Rfc2544Arguments {
    #[command(flatten)]
    method: MethodFlags,
    /// Only these tests; all four if not given. Latency is measured at the throughput, which is searched first.
    #[arg(long = "test", value_enum, value_name = "TEST,...", value_delimiter = ',')]
    tests: Vec<Rfc2544Test>,
    /// Trials of latency, and searches for the longest burst; 20 and 50 if not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repetitions: Option<u32>,
    /// Percent from one point of the loss curve to the next; 10 if not given.
    #[arg(long, value_name = "PERCENT", value_parser = values::step)]
    step: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Rfc2544Test {
    /// The highest rate without loss.
    Throughput,
    /// Latency at the throughput.
    Latency,
    /// The loss at 100 %, 90 %, ... of the maximum.
    FrameLoss,
    /// The longest burst without loss.
    BackToBack,
}

pub(super) const RFC2544_EXAMPLES: &str = "\
Examples:
  All four, in short trials, as a table and as a page:
    warmlane gen rfc2544 --transmit xdp:eth0 --receive xdp:eth1 \\
      --to 198.51.100.9 --to-mac 02:00:00:00:01:01 --line 10Gbps \\
      --duration 10 --report rfc2544.html

  The throughput with two frame sizes, of a device of known capacity in
  memory (no privilege needed):
    warmlane gen rfc2544 --both loop:rate=100kpps,buffer=1000 \\
      --test throughput --frame-sizes 64,1518 --maximum 300kpps \\
      --patience 20 --duration 1 --settle 0.1";

/// The rates with no loss (NDR) and with little (PDR), from many short trials.
///
/// Bounds and conditional throughput by MLRsearch (draft-ietf-bmwg-mlrsearch); the exit status is 1 if there is no result.
#[derive(clap::Args, Debug)]
#[command(after_long_help = MLRSEARCH_EXAMPLES)]
pub(super) struct MlrsearchArguments {
    #[command(flatten)]
    method: MethodFlags,
    /// `ndr`, `pdr` (0.5 % loss), `rfc2544`, or a loss in percent.
    #[arg(long, value_name = "GOAL,...", value_delimiter = ',', default_value = "ndr,pdr")]
    goals: Vec<GoalName>,
}

pub(super) const MLRSEARCH_EXAMPLES: &str = "\
Examples:
  Of a device between two interfaces (as root):
    warmlane gen mlrsearch --transmit xdp:eth0 --receive xdp:eth1 \\
      --to 198.51.100.9 --to-mac 02:00:00:00:01:01 --maximum 2Mpps

  Of a device of known capacity in memory (no privilege needed):
    warmlane gen mlrsearch --both loop:rate=100kpps,buffer=1000 \\
      --maximum 300kpps --patience 20 --settle 0.1 --report page.html";

/// What both methods have in common.
#[derive(clap::Args, Debug)]
struct MethodFlags {
    #[command(flatten)]
    ports: MeasuredPorts,
    #[command(flatten)]
    traffic: TrafficFlags,
    /// Frame sizes to test, with frame check sequence: `64,512,1518`, or `own` for what the streams have.
    ///
    /// If not given, RFC 2544's for its tests (those that the headers fit into) unless --size or --cable says something
    /// else, and the streams' own for MLRsearch.
    #[arg(long, value_name = "BYTES,...")]
    frame_sizes: Option<FrameSizes>,
    /// The highest rate to try, as in `2Mpps` or `90%`; the line's if not given, or what the generator can.
    #[arg(long, value_name = "RATE")]
    maximum: Option<Rate>,
    /// Bits a second of the line, for rates in percent and to refuse impossible ones: `10Gbps`.
    #[arg(long, value_name = "RATE", value_parser = values::line)]
    line: Option<f64>,
    /// When packets leave: `constant`, `poisson` or `bursts:N`.
    #[arg(long, value_name = "PATTERN")]
    pattern: Option<PatternName>,
    /// Percent by which a rate's bounds may be apart; 0.5 if not given.
    #[arg(long, value_name = "PERCENT", value_parser = values::width)]
    width: Option<f64>,
    /// Seconds that each trial sends for, if not what the method's document says.
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds, allow_hyphen_values = true)]
    duration: Option<Duration>,
    /// Seconds to leave the device alone between trials, so that its queues are empty again (RFC 2544 section 23).
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = values::seconds, allow_hyphen_values = true)]
    settle: Duration,
    #[command(flatten)]
    trial: TrialFlags,
    #[command(flatten)]
    result: ResultFlags,
}

/// Frame sizes; none are the streams' own.
#[derive(Clone, Debug)]
struct FrameSizes(Vec<u16>);

impl FromStr for FrameSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "own" {
            return Ok(Self(Vec::new()));
        }
        let size = |size: &str| {
            let error =
                || format!("'{size}' is no number of bytes: expected sizes as in 64,512,1518, or own");
            size.trim().parse().map_err(|_| error())
        };
        text.split(',').map(size).collect::<Result<_, _>>().map(Self)
    }
}

#[derive(Clone, Copy, Debug)]
struct GoalName(Goal);

impl FromStr for GoalName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let loss =
            || text.trim_end_matches('%').parse::<f64>().ok().filter(|loss| (0.0..100.0).contains(loss));
        Ok(Self(match text {
            "ndr" => Goal::NDR,
            "pdr" => Goal::PDR,
            "rfc2544" => Goal::RFC2544,
            _ => match loss() {
                Some(loss) => Goal { loss_ratio: loss / 100.0, ..Goal::NDR },
                None => return Err("expected ndr, pdr, rfc2544, or a loss in percent from 0 to 100"),
            },
        }))
    }
}

impl GoalName {
    /// The goal with trials of this length, and as many of them.
    fn goal(self, trial: Option<Duration>, width: f64) -> Goal {
        let goal = self.0;
        let scale = trial.map_or(1.0, |trial| trial.as_secs_f64().max(1e-3) / goal.final_trial);
        Goal {
            initial_trial: (goal.initial_trial * scale).min(goal.final_trial * scale),
            final_trial: goal.final_trial * scale,
            duration_sum: goal.duration_sum * scale,
            width,
            ..goal
        }
    }
}

impl Rfc2544Arguments {
    pub(super) fn run(&self, signals: &Signals, socket: ControlSocket) -> anyhow::Result<()> {
        let asked = |test| self.tests.is_empty() || self.tests.contains(&test);
        let latency = asked(Rfc2544Test::Latency);
        let tests = [
            (Test::Throughput, latency || asked(Rfc2544Test::Throughput)),
            (Test::Latency, latency),
            (Test::FrameLoss, asked(Rfc2544Test::FrameLoss)),
            (Test::BackToBack, asked(Rfc2544Test::BackToBack)),
        ];
        let tests: Vec<Test> = tests.into_iter().filter(|(_, asked)| *asked).map(|(test, _)| test).collect();
        if self.repetitions.is_some() && !tests.contains(&Test::Latency) && !tests.contains(&Test::BackToBack)
        {
            bail!("--repetitions is about latency and back-to-back: add one of them to --test");
        }
        if self.step.is_some() && !tests.contains(&Test::FrameLoss) {
            bail!("--step is about frame-loss: add it to --test");
        }
        let usual = SuiteConfig::default();
        self.method.run((signals, socket), true, |config| SuiteConfig {
            tests,
            latency_trials: self.repetitions.unwrap_or(usual.latency_trials),
            loss_step: self.step.unwrap_or(usual.loss_step),
            bursts: self.repetitions.unwrap_or(usual.bursts),
            ..config
        })
    }
}

impl MlrsearchArguments {
    pub(super) fn run(&self, signals: &Signals, socket: ControlSocket) -> anyhow::Result<()> {
        let goals = |width| self.goals.iter().map(|goal| goal.goal(self.method.duration, width)).collect();
        self.method.run((signals, socket), false, |config| SuiteConfig {
            tests: vec![Test::Mlrsearch],
            goals: goals(config.width),
            ..config
        })
    }
}

impl MethodFlags {
    /// Runs what `complete` makes of the flags that both methods have.
    fn run(
        &self,
        (signals, socket): (&Signals, ControlSocket),
        has_sizes: bool,
        complete: impl FnOnce(SuiteConfig) -> SuiteConfig,
    ) -> anyhow::Result<()> {
        let Config { profile, rate, pattern } = self.traffic.read(true)?;
        if rate.is_some() {
            bail!(
                "the streams' file says a rate, and a method chooses rates itself: leave `rate` out, or use `gen run`"
            );
        }
        let usual = SuiteConfig::default();
        let trial = |usual: Duration| self.duration.unwrap_or(usual);
        let config = complete(SuiteConfig {
            sizes: self.sizes(&profile, has_sizes),
            line: self.line,
            maximum: self.maximum,
            throughput_trial: trial(usual.throughput_trial),
            width: self.width.unwrap_or(usual.width),
            latency_trial: trial(usual.latency_trial),
            loss_trial: trial(usual.loss_trial),
            burst: trial(usual.burst).min(usual.burst),
            ..usual
        });
        let plans = suite::plans(&profile, &config.sizes)?;
        let longest = plans.iter().map(|(_, plan)| plan).max_by_key(|plan| plan.longest());
        let longest = Arc::clone(longest.context("no frame size to test")?);
        let pattern = self.pattern.or(pattern).unwrap_or(PatternName::Constant);
        let mut base = self.trial.trial(longest, pattern);
        base.settle = self.settle;
        let mut ports = signals.while_opening(|| ports::open(&self.ports.clone().into(), &base.plan))?;
        let mut tester = Tester::start(ports.transmit, ports.receive, &ports.pool, &ports.cpus)?;
        let _service = super::serve(socket, &tester, &ports.events, &ports.pool)?;
        let (progress, shown) = (self.result.output.progress(), self.result.output.shows_progress());
        let events = &mut ports.events;
        let mut watch = Live { progress, signals, shown, at_work: String::new(), events };
        let result = suite::run(&mut tester, &profile, &base, &config, &mut watch)?;
        drop(tester);
        let tables = tables::of(&result, &config);
        self.result.write_page(|| page::suite(&result, &tables))?;
        self.result.output.deliver(&result, || tables::text(&tables))?;
        match result.failure() {
            Some(why) => bail!("{why}"),
            None => Ok(()),
        }
    }

    /// Frame sizes to test; none are the streams' own.
    fn sizes(&self, profile: &Profile, has_sizes: bool) -> Vec<u16> {
        if let Some(FrameSizes(sizes)) = &self.frame_sizes {
            return sizes.clone();
        }
        if !has_sizes || self.traffic.says_size() {
            return Vec::new();
        }
        let fits = |size: &u16| profile.with_size(*size).plan().is_ok();
        let (sizes, small): (Vec<u16>, Vec<u16>) = rfc2544::FRAME_SIZES.iter().copied().partition(fits);
        if !small.is_empty() {
            messages::note(format_args!(
                "the packets don't fit into frames of {small:?} bytes, so these are left out"
            ));
        }
        sizes
    }
}

/// Tells a person how far it is.
struct Live<'a> {
    progress: Progress,
    signals: &'a Signals,
    shown: bool,
    at_work: String,
    events: &'a mut PortEvents,
}

impl Watch for Live<'_> {
    fn goes(&mut self, _: &Request, sample: &Sample) -> bool {
        messages::tell_events(self.events);
        self.progress.show(sample) && !self.signals.is_stopped()
    }

    fn ended(&mut self, request: &Request, result: &TrialResult) {
        self.progress.end();
        if !self.shown {
            return;
        }
        let rate = if request.packets_per_second > 0.0 {
            format!("{:.0} pps", request.packets_per_second)
        } else {
            "as many as possible".to_owned()
        };
        let what = match (&result.void, &result.received) {
            (Some(why), _) => format!("void: {why}"),
            (None, Some(received)) => {
                let lost = received.lost + received.corrupted;
                format!("{} sent, {lost} lost ({:.4} %)", result.sent, received.loss_ratio * 100.0)
            }
            (None, None) => format!("{} sent", result.sent),
        };
        messages::line(format_args!("{}: {rate}, {:.3} s: {what}", self.at_work, result.seconds));
    }
}

impl SuiteWatch for Live<'_> {
    fn begins(&mut self, size: Option<u16>, test: Test) {
        let size = size.map_or_else(|| "streams' own sizes".to_owned(), |size| format!("{size} bytes"));
        self.at_work = format!("{}, {size}", test.name());
    }
}
