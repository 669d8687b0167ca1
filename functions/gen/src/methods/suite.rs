//! Several tests over several frame sizes, as a report of RFC 2544 has them.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::mlrsearch::{self, Goal, Search};
use super::rfc2544::{self, BackToBack, LatencyTest, LossPoint, Throughput, ThroughputConfig};
use super::{MethodError, Request, Trials, Watch};
use crate::control::rate::WIRE_OVERHEAD;
use crate::control::{Profile, Rate};
use crate::datapath::Pattern;
use crate::trial::{Tester, TrialConfig};

/// One kind of test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// RFC 2544 section 26.1.
    Throughput,
    /// Section 26.2, at the throughput.
    Latency,
    /// Section 26.3.
    FrameLoss,
    /// Section 26.4.
    BackToBack,
    /// MLRsearch for several loss goals.
    Mlrsearch,
}

impl Test {
    /// RFC 2544's.
    pub const RFC2544: [Self; 4] = [Self::Throughput, Self::Latency, Self::FrameLoss, Self::BackToBack];

    /// Its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::FrameLoss => "frame loss rate",
            Self::BackToBack => "back-to-back",
            Self::Mlrsearch => "MLRsearch",
        }
    }
}

/// Which tests, and how.
#[derive(Clone, Debug)]
pub struct SuiteConfig {
    /// In this order. Latency is measured at the throughput, which is searched first if it must be.
    pub tests: Vec<Test>,
    /// Frame sizes; with none, frames are as the profile has them.
    pub sizes: Vec<u16>,
    /// Bits a second of the line, if known.
    pub line: Option<f64>,
    /// The highest rate to try; if not given the line's, and without a line what the generator can.
    pub maximum: Option<Rate>,
    /// The goals of MLRsearch.
    pub goals: Vec<Goal>,
    /// How long a trial of the throughput search lasts (section 24 wants 60 seconds).
    pub throughput_trial: Duration,
    /// Where the throughput search ends: the bounds' distance as a part of the upper one.
    pub width: f64,
    /// How long a trial of latency lasts (section 26.2 wants 120 seconds).
    pub latency_trial: Duration,
    /// How many there are (section 26.2 wants 20).
    pub latency_trials: u32,
    /// How long a trial of frame loss lasts.
    pub loss_trial: Duration,
    /// Percent of the maximum from one to the next (section 26.3 wants at most 10).
    pub loss_step: f64,
    /// How long the longest burst is (section 26.4 wants at least 2 seconds).
    pub burst: Duration,
    /// How many searches for the longest burst there are (section 26.4 wants 50).
    pub bursts: u32,
}

impl Default for SuiteConfig {
    /// What RFC 2544 wants.
    fn default() -> Self {
        Self {
            tests: Test::RFC2544.to_vec(),
            sizes: rfc2544::FRAME_SIZES.to_vec(),
            line: None,
            maximum: None,
            goals: vec![Goal::NDR, Goal::PDR],
            throughput_trial: Duration::from_secs(60),
            width: 0.005,
            latency_trial: Duration::from_secs(120),
            latency_trials: 20,
            loss_trial: Duration::from_secs(60),
            loss_step: 10.0,
            burst: Duration::from_secs(2),
            bursts: 50,
        }
    }
}

/// Where the highest rate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MaximumFrom {
    /// It was asked for.
    Asked,
    /// The line's.
    Line,
    /// Most of what the generator sent when it was let go.
    Generator,
}

/// What the tests came to with one frame size.
#[derive(Clone, Debug, Serialize)]
pub struct SizeResult {
    /// Bytes of a frame with its check sequence; `None` if there is a mix.
    pub size: Option<u16>,
    /// Mean bytes of a frame.
    pub mean_size: f64,
    /// The highest rate that was tried, in packets a second.
    pub maximum: f64,
    /// Where that comes from.
    pub maximum_from: MaximumFrom,
    /// What the line carries, if it is known, in packets a second.
    pub line: Option<f64>,
    /// RFC 2544 section 26.1.
    pub throughput: Option<Throughput>,
    /// Section 26.2.
    pub latency: Option<LatencyTest>,
    /// Section 26.3.
    pub frame_loss: Option<Vec<LossPoint>>,
    /// Section 26.4.
    pub back_to_back: Option<BackToBack>,
    /// MLRsearch.
    pub mlrsearch: Option<Search>,
    /// Tests without a result, and why.
    pub failures: Vec<Failure>,
}

/// A test without a result.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// Which.
    pub test: Test,
    /// Why.
    pub why: String,
}

/// What all tests came to.
#[derive(Clone, Debug, Serialize)]
pub struct SuiteResult {
    /// The tests that were asked for.
    pub tests: Vec<Test>,
    /// By frame size.
    pub sizes: Vec<SizeResult>,
    /// Why it ended before its end, if it did.
    pub ended: Option<String>,
}

impl SuiteResult {
    /// The first thing that has no result, for an exit status.
    pub fn failure(&self) -> Option<String> {
        let of = |size: &SizeResult| {
            let failure = size.failures.first()?;
            let size = size.size.map_or_else(String::new, |size| format!("{size} bytes, "));
            Some(format!("{size}{}: {}", failure.test.name(), failure.why))
        };
        self.ended.clone().or_else(|| self.sizes.iter().find_map(of))
    }
}

/// Who looks on; also told what is at work.
pub trait SuiteWatch: Watch {
    /// A test begins, with frames of this size.
    fn begins(&mut self, size: Option<u16>, test: Test);
}

/// Runs the tests with frames of each size. `base` says how each trial goes; its plan is made here.
///
/// # Errors
/// [`MethodError`], if not even the first trial can be made of this. What goes wrong later is in the result.
pub fn run(
    tester: &mut Tester,
    profile: &Profile,
    base: &TrialConfig,
    config: &SuiteConfig,
    watch: &mut dyn SuiteWatch,
) -> Result<SuiteResult, MethodError> {
    let mut result = SuiteResult { tests: config.tests.clone(), sizes: Vec::new(), ended: None };
    let plans = plans(profile, &config.sizes)?;
    for (size, base) in plans.into_iter().map(|(size, plan)| (size, TrialConfig { plan, ..base.clone() })) {
        let mut at_work = AtWork { tester, base, config, watch, size };
        match at_work.run() {
            Err(error) if result.sizes.is_empty() => return Err(error),
            Err(error) => result.ended = Some(error.to_string()),
            Ok((size, end)) => {
                result.sizes.push(size);
                result.ended = end;
            }
        }
        if result.ended.is_some() {
            break;
        }
    }
    Ok(result)
}

/// What lanes work from, by size.
type Plans = Vec<(Option<u16>, Arc<crate::datapath::Plan>)>;

/// The plans for all sizes.
///
/// # Errors
/// [`MethodError`], if one can't be made, or carries no signature.
pub fn plans(profile: &Profile, sizes: &[u16]) -> Result<Plans, MethodError> {
    let make = |size: Option<u16>| {
        let sized = size.map_or_else(|| profile.clone(), |size| profile.with_size(size));
        let plan = sized.plan().map_err(|error| MethodError::Size {
            size: size.unwrap_or_default(),
            problem: error.to_string(),
        })?;
        if plan.is_signed() { Ok((size, Arc::new(plan))) } else { Err(MethodError::Unsigned) }
    };
    if sizes.is_empty() {
        Ok(vec![make(None)?])
    } else {
        sizes.iter().map(|&size| make(Some(size))).collect()
    }
}

/// How long the generator is let go to find out what it can.
const PROBE: Duration = Duration::from_secs(1);

/// The part of that which it is then asked for: what it can once it can't always.
const SURE: f64 = 0.8;

/// The lowest rate that MLRsearch tries, as a part of the highest.
const LOWEST: f64 = 1e-4;

struct AtWork<'a> {
    tester: &'a mut Tester,
    base: TrialConfig,
    config: &'a SuiteConfig,
    watch: &'a mut dyn SuiteWatch,
    size: Option<u16>,
}

impl AtWork<'_> {
    /// All tests, and why the rest needs not be tried, if so.
    fn run(&mut self) -> Result<(SizeResult, Option<String>), MethodError> {
        let mean_size = self.base.plan.mean_size();
        let line = self.config.line.map(|line| line / ((mean_size + WIRE_OVERHEAD) * 8.0));
        let (maximum, maximum_from) = self.maximum(mean_size, line)?;
        let mut result = SizeResult {
            size: self.size,
            mean_size,
            maximum,
            maximum_from,
            line,
            throughput: None,
            latency: None,
            frame_loss: None,
            back_to_back: None,
            mlrsearch: None,
            failures: Vec::new(),
        };
        for &test in &self.config.tests {
            let Err(error) = self.test(test, &mut result) else { continue };
            let ends = !matches!(error, MethodError::Void { .. } | MethodError::Unstable { .. });
            result.failures.push(Failure { test, why: error.to_string() });
            if ends {
                return Ok((result, Some(error.to_string())));
            }
        }
        Ok((result, None))
    }

    fn trials(&mut self) -> Trials<'_> {
        Trials { tester: self.tester, config: self.base.clone(), watch: &mut *self.watch }
    }

    fn maximum(&mut self, size: f64, line: Option<f64>) -> Result<(f64, MaximumFrom), MethodError> {
        let asked = self.config.maximum.filter(|rate| *rate != Rate::Unpaced);
        if let Some(rate) = asked {
            let packets = rate.packets_per_second(size, self.config.line);
            let packets = packets.map_err(|error| MethodError::Size {
                size: self.size.unwrap_or_default(),
                problem: error.to_string(),
            })?;
            return Ok((packets.unwrap_or_default(), MaximumFrom::Asked));
        }
        if let Some(line) = line {
            return Ok((line, MaximumFrom::Line));
        }
        let request = Request { packets_per_second: 0.0, duration: PROBE, count: None };
        let config =
            TrialConfig { pattern: Pattern::Unpaced, duration: PROBE, count: None, ..self.base.clone() };
        let result = self.trials().run(&request, &config)?;
        match result.void {
            Some(why) => {
                Err(MethodError::Void { packets_per_second: result.sent_packets_per_second, tries: 1, why })
            }
            None => Ok((result.sent_packets_per_second * SURE, MaximumFrom::Generator)),
        }
    }

    fn test(&mut self, test: Test, result: &mut SizeResult) -> Result<(), MethodError> {
        self.watch.begins(self.size, test);
        let (config, maximum) = (self.config, result.maximum);
        match test {
            Test::Throughput => result.throughput = Some(self.throughput(maximum)?),
            Test::Latency => {
                if result.throughput.is_none() {
                    self.watch.begins(self.size, Test::Throughput);
                    result.throughput = Some(self.throughput(maximum)?);
                    self.watch.begins(self.size, Test::Latency);
                }
                let rate = result.throughput.as_ref().and_then(|found| found.packets_per_second);
                let rate = rate.ok_or(MethodError::NoRate)?;
                result.latency = Some(rfc2544::latency(
                    &mut self.trials(),
                    rate,
                    config.latency_trial,
                    config.latency_trials,
                )?);
            }
            Test::FrameLoss => {
                result.frame_loss = Some(rfc2544::frame_loss(
                    &mut self.trials(),
                    maximum,
                    config.loss_trial,
                    config.loss_step,
                )?);
            }
            Test::BackToBack => {
                result.back_to_back = Some(rfc2544::back_to_back(
                    &mut self.trials(),
                    maximum,
                    config.burst.as_secs_f64(),
                    config.bursts,
                )?);
            }
            Test::Mlrsearch => {
                result.mlrsearch =
                    Some(mlrsearch::search(&mut self.trials(), &config.goals, maximum * LOWEST, maximum)?);
            }
        }
        Ok(())
    }

    fn throughput(&mut self, maximum: f64) -> Result<Throughput, MethodError> {
        let config =
            ThroughputConfig { maximum, duration: self.config.throughput_trial, width: self.config.width };
        rfc2544::throughput(&mut self.trials(), &config)
    }
}
