//! `warmlane gen --method`: which tests, and who looks on.

use super::progress::Progress;
use super::{Arguments, page, ports, tables};
use crate::run::Signals;
use anyhow::{Context as _, bail};
use clap::ValueEnum;
use std::sync::Arc;
use std::time::Duration;
use warmlane::functions::generator::control::{Profile, Rate, rate};
use warmlane::functions::generator::methods::mlrsearch::Goal;
use warmlane::functions::generator::methods::suite::{self, SuiteConfig, SuiteWatch, Test};
use warmlane::functions::generator::methods::{Request, Watch, rfc2544};
use warmlane::functions::generator::{Sample, Tester, TrialResult};

/// What to find out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Method {
    /// Send at --rate once, and report.
    #[default]
    Trial,
    /// The same for an hour (or --duration), with counts of each interval.
    Soak,
    /// RFC 2544: the highest rate without loss.
    Throughput,
    /// RFC 2544: latency at the throughput.
    Latency,
    /// RFC 2544: the loss at 100 %, 90 %, ... of the maximum.
    FrameLoss,
    /// RFC 2544: the longest burst without loss.
    BackToBack,
    /// RFC 2544: these four.
    Rfc2544,
    /// MLRsearch: the rates with no loss (NDR) and with little (PDR), from many short trials.
    Mlrsearch,
}

#[derive(clap::Args, Debug)]
pub(super) struct MethodFlags {
    /// What to find out.
    #[arg(long, value_enum, value_name = "METHOD", default_value_t)]
    pub(super) method: Method,
    /// Frame sizes to test, with frame check sequence: `64,512,1518`, or `own` for what the streams have.
    ///
    /// If not given, RFC 2544's for its tests (those that the headers fit into) unless --size or --cable says something
    /// else, and the streams' own for MLRsearch.
    #[arg(long, value_name = "BYTES,...")]
    frame_sizes: Option<String>,
    /// The highest rate to try, as for --rate; the line's if not given, or what the generator can.
    #[arg(long, value_name = "RATE")]
    maximum: Option<String>,
    /// Goals of MLRsearch: `ndr`, `pdr` (0.5 % loss), `rfc2544`, or a loss in percent; `ndr,pdr` if not given.
    #[arg(long, value_name = "GOAL,...", value_delimiter = ',')]
    goals: Vec<String>,
    /// Percent by which a rate's bounds may be apart; 0.5 if not given.
    #[arg(long, value_name = "PERCENT", value_parser = width)]
    width: Option<f64>,
    /// Trials of latency, and searches for the longest burst; 20 and 50 if not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repetitions: Option<u32>,
    /// Percent from one point of the loss curve to the next; 10 if not given.
    #[arg(long, value_name = "PERCENT", value_parser = step)]
    step: Option<f64>,
}

impl MethodFlags {
    /// A flag that was given and that the method has no use for.
    pub(super) fn stray(&self) -> Option<&'static str> {
        let tests = self.method.tests();
        let has = |test| tests.contains(&test);
        let searches = has(Test::Throughput) || has(Test::Mlrsearch);
        let flags = [
            ("frame-sizes", self.frame_sizes.is_some(), !self.method.is_one_trial()),
            ("maximum", self.maximum.is_some(), !self.method.is_one_trial()),
            ("goals", !self.goals.is_empty(), has(Test::Mlrsearch)),
            ("width", self.width.is_some(), searches),
            ("repetitions", self.repetitions.is_some(), has(Test::Latency) || has(Test::BackToBack)),
            ("step", self.step.is_some(), has(Test::FrameLoss)),
        ];
        flags.iter().find(|(_, is_given, has_use)| *is_given && !has_use).map(|(name, ..)| *name)
    }
}

fn width(text: &str) -> Result<f64, String> {
    let percent = text.parse::<f64>().ok().filter(|percent| (0.001..=50.0).contains(percent));
    percent.map(|percent| percent / 100.0).ok_or_else(|| "give a number from 0.001 to 50".to_owned())
}

fn step(text: &str) -> Result<f64, String> {
    let percent = text.parse::<f64>().ok().filter(|percent| (0.1..=10.0).contains(percent));
    percent.ok_or_else(|| "give a number from 0.1 to 10, the largest step that RFC 2544 allows".to_owned())
}

impl Method {
    /// Whether it runs one trial as the flags say, and chooses nothing itself.
    pub(super) const fn is_one_trial(self) -> bool {
        matches!(self, Self::Trial | Self::Soak)
    }

    fn tests(self) -> Vec<Test> {
        match self {
            Self::Trial | Self::Soak => Vec::new(),
            Self::Throughput => vec![Test::Throughput],
            Self::Latency => vec![Test::Throughput, Test::Latency],
            Self::FrameLoss => vec![Test::FrameLoss],
            Self::BackToBack => vec![Test::BackToBack],
            Self::Rfc2544 => Test::RFC2544.to_vec(),
            Self::Mlrsearch => vec![Test::Mlrsearch],
        }
    }
}

pub(super) fn run(arguments: &Arguments, signals: &Signals) -> anyhow::Result<()> {
    if arguments.recording.is_given() {
        bail!("a recording carries no signature, and a method needs one: use --method trial");
    }
    let traffic = arguments.traffic.read()?;
    if arguments.trial.rate.is_some() || arguments.trial.count.is_some() {
        bail!("--rate and --count are a trial's: a method chooses rates itself, up to --maximum");
    }
    if traffic.rate.is_some() {
        bail!("the rate of the streams' file is a trial's: a method chooses rates itself, up to --maximum");
    }
    if arguments.receive.is_none() && arguments.both.is_none() {
        bail!("a method needs a port to receive from: name one with --receive, or use --both");
    }
    let config = config(arguments, &traffic.profile)?;
    let plans = suite::plans(&traffic.profile, &config.sizes)?;
    let longest = plans.iter().map(|(_, plan)| plan).max_by_key(|plan| plan.longest());
    let longest = Arc::clone(longest.context("no frame size to test")?);
    let base = arguments.trial.base(longest, traffic.pattern)?;
    let ports = ports::open(arguments, &base.plan)?;
    let mut tester = Tester::start(ports.transmit, ports.receive, &ports.pool, &ports.cpus)?;
    let mut watch = Live {
        progress: Progress::new(!arguments.quiet && !arguments.json),
        signals,
        shown: !arguments.quiet && !arguments.json,
        at_work: String::new(),
    };
    let result = suite::run(&mut tester, &traffic.profile, &base, &config, &mut watch)?;
    drop(tester);
    let tables = tables::of(&result, &config);
    arguments.report_page(|| page::suite(&result, &tables))?;
    arguments.deliver(&result, || tables::text(&tables))?;
    match result.failure() {
        Some(why) => bail!("{why}"),
        None => Ok(()),
    }
}

fn config(arguments: &Arguments, profile: &Profile) -> anyhow::Result<SuiteConfig> {
    let flags = &arguments.method;
    let usual = SuiteConfig::default();
    let trial = |usual: Duration| arguments.trial.duration.unwrap_or(usual);
    let width = flags.width.unwrap_or(usual.width);
    let goals: Vec<&str> = flags.goals.iter().map(String::as_str).collect();
    let goals = if goals.is_empty() { &["ndr", "pdr"][..] } else { &goals };
    let goals = goals.iter().map(|goal| self::goal(goal, arguments.trial.duration, width));
    Ok(SuiteConfig {
        tests: flags.method.tests(),
        sizes: sizes(arguments, profile)?,
        line: arguments.trial.line.as_deref().map(rate::line).transpose().context("--line")?,
        maximum: flags.maximum.as_deref().map(str::parse::<Rate>).transpose().context("--maximum")?,
        goals: goals.collect::<anyhow::Result<_>>()?,
        throughput_trial: trial(usual.throughput_trial),
        width,
        latency_trial: trial(usual.latency_trial),
        latency_trials: flags.repetitions.unwrap_or(usual.latency_trials),
        loss_trial: trial(usual.loss_trial),
        loss_step: flags.step.unwrap_or(usual.loss_step),
        burst: trial(usual.burst).min(usual.burst),
        bursts: flags.repetitions.unwrap_or(usual.bursts),
    })
}

fn goal(text: &str, trial: Option<Duration>, width: f64) -> anyhow::Result<Goal> {
    let loss = |text: &str| {
        text.trim_end_matches('%').parse::<f64>().ok().filter(|loss| (0.0..100.0).contains(loss))
    };
    let goal = match text {
        "ndr" => Goal::NDR,
        "pdr" => Goal::PDR,
        "rfc2544" => Goal::RFC2544,
        _ => Goal {
            loss_ratio: loss(text).with_context(|| {
                format!("--goals '{text}': expected ndr, pdr, rfc2544, or a loss in percent from 0 to 100")
            })? / 100.0,
            ..Goal::NDR
        },
    };
    // Longer trials, and as many of them.
    let scale = trial.map_or(1.0, |trial| trial.as_secs_f64().max(1e-3) / goal.final_trial);
    Ok(Goal {
        initial_trial: (goal.initial_trial * scale).min(goal.final_trial * scale),
        final_trial: goal.final_trial * scale,
        duration_sum: goal.duration_sum * scale,
        width,
        ..goal
    })
}

fn sizes(arguments: &Arguments, profile: &Profile) -> anyhow::Result<Vec<u16>> {
    let flags = &arguments.method;
    match flags.frame_sizes.as_deref() {
        Some("own") => Ok(Vec::new()),
        Some(text) => text
            .split(',')
            .map(|size| {
                size.trim().parse().map_err(|_| {
                    anyhow::anyhow!(
                        "--frame-sizes '{text}': '{size}' is no number of bytes, as in 64,512,1518, or own"
                    )
                })
            })
            .collect(),
        None if flags.method == Method::Mlrsearch || arguments.traffic.says_size() => Ok(Vec::new()),
        None => {
            let fits = |size: &u16| profile.with_size(*size).plan().is_ok();
            let (sizes, small): (Vec<u16>, Vec<u16>) = rfc2544::FRAME_SIZES.iter().copied().partition(fits);
            if !small.is_empty() {
                eprintln!(
                    "note: the packets don't fit into frames of {small:?} bytes, so these are left out"
                );
            }
            Ok(sizes)
        }
    }
}

/// Tells a person how far it is.
struct Live<'a> {
    progress: Progress,
    signals: &'a Signals,
    shown: bool,
    at_work: String,
}

impl Watch for Live<'_> {
    fn goes(&mut self, _: &Request, sample: &Sample) -> bool {
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
        eprintln!("{}: {rate}, {:.3} s: {what}", self.at_work, result.seconds);
    }
}

impl SuiteWatch for Live<'_> {
    fn begins(&mut self, size: Option<u16>, test: Test) {
        let size = size.map_or_else(|| "streams' own sizes".to_owned(), |size| format!("{size} bytes"));
        self.at_work = format!("{}, {size}", test.name());
    }
}
