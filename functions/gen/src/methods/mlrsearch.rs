//! MLRsearch (draft-ietf-bmwg-mlrsearch): rates for several loss goals at once, from many short trials.
//!
//! A goal says how much loss a trial may have and how large a part of the trial time may exceed that. All trials at a load
//! together make it a lower bound of the goal, an upper bound, or leave it undecided; a goal is reached when a lower and
//! an upper bound are near enough. Classification and conditional throughput are the draft's; the choice of loads, which
//! it leaves open, is ours: coarse targets with short trials first, each of which halves the width.

use std::time::Duration;

use serde::Serialize;

use super::{Measure, Measured, MethodError, Request, valid};

/// A search goal, by the draft's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// Seconds of the longest trials.
    pub final_trial: f64,
    /// Seconds of trials that a load is decided by.
    pub duration_sum: f64,
    /// The part of packets that a good trial may lose.
    pub loss_ratio: f64,
    /// The part of the trial time that may be bad.
    pub exceed_ratio: f64,
    /// The most by which the bounds may be apart, as a part of the upper one.
    pub width: f64,
    /// Seconds of the shortest trials.
    pub initial_trial: f64,
}

impl Goal {
    /// FD.io CSIT's for the rate without loss.
    pub const NDR: Self = Self {
        final_trial: 1.0,
        duration_sum: 21.0,
        loss_ratio: 0.0,
        exceed_ratio: 0.5,
        width: 0.005,
        initial_trial: 1.0,
    };

    /// The same with a loss of 0.5 %.
    pub const PDR: Self = Self { loss_ratio: 0.005, ..Self::NDR };

    /// A goal whose result is RFC 2544's throughput: one trial of a minute without loss.
    pub const RFC2544: Self = Self { final_trial: 60.0, duration_sum: 60.0, exceed_ratio: 0.0, ..Self::NDR };
}

/// What a load is to a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum LoadClass {
    /// It keeps the goal.
    Lower,
    /// It fails the goal.
    Upper,
    /// More trials are needed.
    Undecided,
}

/// The trials at one load, as they count for a goal.
#[derive(Clone, Debug, Default)]
struct LoadStatistics {
    good_long: f64,
    bad_long: f64,
    good_short: f64,
    bad_short: f64,
    /// Loss ratios of long trials with their seconds.
    long_losses: Vec<(f64, f64)>,
}

impl LoadStatistics {
    fn of<'a>(trials: impl Iterator<Item = &'a Measured>, target: &Goal) -> Self {
        let mut sums = Self::default();
        for trial in trials {
            let (loss, seconds) = (trial.loss_ratio(), trial.seconds);
            let is_long = seconds >= target.final_trial;
            let sum = match (is_long, loss > target.loss_ratio) {
                (true, false) => &mut sums.good_long,
                (true, true) => &mut sums.bad_long,
                (false, false) => &mut sums.good_short,
                (false, true) => &mut sums.bad_short,
            };
            *sum += seconds;
            if is_long {
                sums.long_losses.push((loss, seconds));
            }
        }
        sums.long_losses.sort_by(|a, b| a.0.total_cmp(&b.0));
        sums
    }

    /// The draft's load classification: what it would be if all trials to come were good, and if all were bad.
    fn class(&self, target: &Goal) -> LoadClass {
        // Good short trials make up for bad short ones, in the ratio that the goal allows.
        let balancing = self.good_short * target.exceed_ratio / (1.0 - target.exceed_ratio);
        let bad = self.bad_long + (self.bad_short - balancing).max(0.0);
        let whole = (self.good_long + bad).max(target.duration_sum);
        let allowed = whole * target.exceed_ratio;
        match (bad <= allowed, whole - self.good_long <= allowed) {
            (true, true) => LoadClass::Lower,
            (false, false) => LoadClass::Upper,
            _ => LoadClass::Undecided,
        }
    }

    /// The loss ratio that the goal's part of the trial time keeps, missing trials counted as lost.
    fn quantile_loss(&self, target: &Goal) -> f64 {
        let whole = target.duration_sum.max(self.good_long + self.bad_long);
        let mut left = whole * (1.0 - target.exceed_ratio);
        let mut found = None;
        for &(loss, seconds) in &self.long_losses {
            if found.is_some() && left <= 0.0 {
                return found.unwrap_or(1.0);
            }
            found = Some(loss);
            left -= seconds;
        }
        if left > 0.0 { 1.0 } else { found.unwrap_or(1.0) }
    }
}

/// What these trials make of their loads, for a goal: each load with its class, and with the conditional throughput if
/// it is a lower bound. Loads are in rising order.
pub fn classify(trials: &[Measured], goal: &Goal) -> Vec<(f64, LoadClass, Option<f64>)> {
    loads(trials)
        .into_iter()
        .map(|load| {
            let statistics = statistics(trials, load, goal);
            let class = statistics.class(goal);
            let throughput = load * (1.0 - statistics.quantile_loss(goal));
            (load, class, (class == LoadClass::Lower).then_some(throughput))
        })
        .collect()
}

fn loads(trials: &[Measured]) -> Vec<f64> {
    let mut loads: Vec<f64> = trials.iter().map(|trial| trial.packets_per_second).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup_by(|a, b| a.to_bits() == b.to_bits());
    loads
}

fn statistics(trials: &[Measured], load: f64, target: &Goal) -> LoadStatistics {
    let here = |trial: &&Measured| trial.packets_per_second.to_bits() == load.to_bits();
    LoadStatistics::of(trials.iter().filter(here), target)
}

/// The draft's relevant bounds: the lowest upper bound, and the highest lower bound below it.
fn bounds(trials: &[Measured], target: &Goal) -> (Option<f64>, Option<f64>) {
    let mut lower = None;
    for (load, class, _) in classify(trials, target) {
        match class {
            LoadClass::Lower => lower = Some(load),
            LoadClass::Upper => return (lower, Some(load)),
            LoadClass::Undecided => {}
        }
    }
    (lower, None)
}

/// A goal's result.
#[derive(Clone, Debug, Serialize)]
pub struct GoalResult {
    /// The goal.
    pub goal: Goal,
    /// The relevant lower bound; `None` if even the minimum fails.
    pub lower: Option<f64>,
    /// The relevant upper bound; `None` if even the maximum keeps the goal.
    pub upper: Option<f64>,
    /// Conditional throughput at the lower bound in packets a second.
    pub throughput: Option<f64>,
}

/// A search's result.
#[derive(Clone, Debug, Serialize)]
pub struct Search {
    /// By goal.
    pub goals: Vec<GoalResult>,
    /// All trials, in order.
    pub trials: Vec<Measured>,
}

/// Targets before the final one: each has half the width, and longer sums, than the one before.
const PRECEDING: u32 = 2;

/// Trials after which a search gives up.
const MAXIMUM_TRIALS: usize = 2_000;

/// Searches for all goals, earlier ones first, with rates from `minimum` to `maximum` packets a second.
///
/// # Errors
/// [`MethodError`]: also if nothing arrives at the maximum.
pub fn search(
    measure: &mut dyn Measure,
    goals: &[Goal],
    minimum: f64,
    maximum: f64,
) -> Result<Search, MethodError> {
    if !(minimum > 0.0 && minimum < maximum) {
        return Err(MethodError::Range { minimum, maximum });
    }
    let mut search = Searching { measure, trials: Vec::new(), minimum, maximum };
    let shortest = goals.iter().map(|goal| goal.initial_trial).fold(f64::INFINITY, f64::min);
    if shortest.is_finite() {
        search.begin(shortest)?;
    }
    for goal in goals {
        for target in targets(goal) {
            search.reach(&target)?;
        }
    }
    let trials = search.trials;
    let result = |goal: &Goal| {
        let (lower, upper) = bounds(&trials, goal);
        let throughput = lower.map(|load| load * (1.0 - statistics(&trials, load, goal).quantile_loss(goal)));
        GoalResult { goal: *goal, lower, upper, throughput }
    };
    let goals = goals.iter().map(result).collect();
    Ok(Search { goals, trials })
}

/// A goal's targets, the goal itself last.
fn targets(goal: &Goal) -> Vec<Goal> {
    let ratio = goal.initial_trial / goal.duration_sum;
    (0..=PRECEDING)
        .rev()
        .map(|before| {
            let sum = goal.duration_sum * ratio.powf(f64::from(before) / f64::from(PRECEDING));
            Goal {
                duration_sum: sum,
                final_trial: goal.final_trial.min(sum),
                width: goal.width * f64::from(1 << before),
                ..*goal
            }
        })
        .collect()
}

struct Searching<'a> {
    measure: &'a mut dyn Measure,
    trials: Vec<Measured>,
    minimum: f64,
    maximum: f64,
}

impl Searching<'_> {
    fn run(&mut self, packets_per_second: f64, seconds: f64) -> Result<Measured, MethodError> {
        if self.trials.len() >= MAXIMUM_TRIALS {
            return Err(MethodError::Unstable { trials: self.trials.len() });
        }
        let duration = Duration::from_secs_f64(seconds);
        let measured = valid(self.measure, &Request { packets_per_second, duration, count: None })?;
        let measured = Measured { packets_per_second, seconds, ..measured };
        self.trials.push(measured.clone());
        Ok(measured)
    }

    /// First trials at the maximum, and at what arrived of it: near what the device carries. A device that the maximum
    /// overwhelms may carry the minimum; if that does not arrive either, it is dead.
    fn begin(&mut self, seconds: f64) -> Result<(), MethodError> {
        let mut rate = self.maximum;
        for _ in 0..2 {
            let measured = self.run(rate, seconds)?;
            if measured.received == 0 && self.run(self.minimum, seconds)?.received == 0 {
                return Err(MethodError::Silence { packets_per_second: rate });
            }
            let forwarded = rate * (1.0 - measured.loss_ratio());
            if measured.is_lossless() || forwarded <= self.minimum {
                return Ok(());
            }
            rate = forwarded;
        }
        Ok(())
    }

    /// Measures until the target has bounds that are near enough, or none can be had.
    fn reach(&mut self, target: &Goal) -> Result<(), MethodError> {
        let mut stride = target.width;
        loop {
            let (lower, upper) = bounds(&self.trials, target);
            let candidate = match (lower, upper) {
                (Some(lower), Some(upper)) if upper - lower <= target.width * upper => return Ok(()),
                // In the middle by ratio, as the width is one.
                (Some(lower), Some(upper)) => (lower * upper).sqrt(),
                (Some(lower), None) if lower >= self.maximum => return Ok(()),
                (None, Some(upper)) if upper <= self.minimum => return Ok(()),
                (Some(lower), None) => {
                    stride *= 2.0;
                    self.near(lower * (1.0 + stride), |load| load > lower)
                }
                (None, Some(upper)) => {
                    stride *= 2.0;
                    self.near(upper * (1.0 - stride.min(0.9)), |load| load < upper)
                }
                (None, None) => self.hint(),
            };
            self.decide(candidate.clamp(self.minimum, self.maximum), target)?;
        }
    }

    /// The load that trials so far speak for: the highest one that arrived whole or nearly so.
    fn hint(&self) -> f64 {
        let best = self.trials.iter().map(|trial| trial.packets_per_second * (1.0 - trial.loss_ratio()));
        let best = best.fold(self.minimum, f64::max);
        self.near(best, |_| true)
    }

    /// A load that was measured already within a thousandth of `wanted`, else `wanted`: trials at one load add up.
    fn near(&self, wanted: f64, fits: impl Fn(f64) -> bool) -> f64 {
        let distance = |load: f64| (load / wanted - 1.0).abs();
        let known = loads(&self.trials).into_iter().filter(|&load| fits(load) && distance(load) < 0.001);
        known.min_by(|a, b| distance(*a).total_cmp(&distance(*b))).unwrap_or(wanted)
    }

    /// Repeats trials at a load until it is classified.
    fn decide(&mut self, load: f64, target: &Goal) -> Result<(), MethodError> {
        while statistics(&self.trials, load, target).class(target) == LoadClass::Undecided {
            self.run(load, target.final_trial)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::cast_sign_loss, reason = "counts are not negative")]
mod tests {
    use super::*;

    fn trial(packets_per_second: f64, seconds: f64, loss: f64) -> Measured {
        let sent = (packets_per_second * seconds) as u64;
        let received = sent - (sent as f64 * loss) as u64;
        Measured {
            packets_per_second,
            sent_packets_per_second: packets_per_second,
            seconds,
            sent,
            received,
            void: None,
            latency: None,
        }
    }

    #[test]
    fn a_load_is_decided_when_nothing_can_change_it() {
        let goal = Goal { duration_sum: 4.0, ..Goal::NDR };
        let class = |losses: &[f64]| {
            let trials: Vec<Measured> = losses.iter().map(|&loss| trial(1_000.0, 1.0, loss)).collect();
            classify(&trials, &goal)[0].1
        };
        assert_eq!(class(&[0.0]), LoadClass::Undecided);
        assert_eq!(class(&[0.0, 0.0]), LoadClass::Lower, "half of the time is good already");
        assert_eq!(class(&[0.1, 0.1]), LoadClass::Undecided, "half may be bad");
        assert_eq!(class(&[0.1, 0.1, 0.1]), LoadClass::Upper);
        assert_eq!(class(&[0.1, 0.0, 0.1, 0.0]), LoadClass::Lower);
    }

    #[test]
    fn rates_of_a_known_device_are_found() {
        // Loses what exceeds 700,000 packets a second.
        let mut device = |request: &Request| {
            let rate = request.packets_per_second;
            let loss = (1.0 - 700_000.0 / rate).max(0.0);
            Ok(trial(rate, request.duration.as_secs_f64(), loss))
        };
        let found = search(&mut device, &[Goal::NDR, Goal::PDR], 1e3, 2e6).unwrap();
        let [ndr, pdr] = &*found.goals else { panic!("two goals") };
        let (lower, upper) = (ndr.lower.unwrap(), ndr.upper.unwrap());
        assert!(lower <= 700_001.0 && upper >= 700_000.0 && upper - lower <= 0.005 * upper, "{ndr:?}");
        let (lower, upper) = (pdr.lower.unwrap(), pdr.upper.unwrap());
        let limit = 700_000.0 / 0.995;
        assert!(lower <= limit + 1.0 && upper >= limit && upper - lower <= 0.005 * upper, "{pdr:?}");
        assert!((pdr.throughput.unwrap() - 700_000.0).abs() < 3_600.0, "{pdr:?}");
        let seconds: f64 = found.trials.iter().map(|trial| trial.seconds).sum();
        assert!(seconds < 250.0, "{seconds} seconds of trials");
    }

    #[test]
    fn a_device_faster_than_the_generator_and_one_that_carries_nothing() {
        let mut perfect =
            |request: &Request| Ok(trial(request.packets_per_second, request.duration.as_secs_f64(), 0.0));
        let found = search(&mut perfect, &[Goal::NDR], 1e3, 1e6).unwrap();
        assert_eq!((found.goals[0].lower, found.goals[0].upper), (Some(1e6), None));
        let mut livelock = |request: &Request| {
            let rate = request.packets_per_second;
            let loss = if rate < 300_000.0 { 0.0 } else { 1.0 };
            Ok(trial(rate, request.duration.as_secs_f64(), loss))
        };
        let found = search(&mut livelock, &[Goal::NDR], 1e3, 1e6).unwrap();
        assert!((found.goals[0].throughput.unwrap() - 3e5).abs() < 3_000.0, "{:?}", found.goals);
        let mut dead =
            |request: &Request| Ok(trial(request.packets_per_second, request.duration.as_secs_f64(), 1.0));
        assert!(matches!(search(&mut dead, &[Goal::NDR], 1e3, 1e6), Err(MethodError::Silence { .. })));
        assert!(matches!(search(&mut dead, &[Goal::NDR], 2e6, 1e6), Err(MethodError::Range { .. })));
    }
}
