//! Benchmarks of RFC 2544 section 26: throughput, latency, frame loss rate, back-to-back frames.

use std::time::Duration;

use serde::Serialize;

use super::{Measure, Measured, MethodError, Request, valid};
use crate::result::Latency;

/// Frame sizes for Ethernet (section 9.1).
pub const FRAME_SIZES: [u16; 7] = [64, 128, 256, 512, 1024, 1280, 1518];

/// How to search for the throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThroughputConfig {
    /// The highest rate to try, in packets a second: the line's, or what the generator can.
    pub maximum: f64,
    /// How long each trial sends; section 24 wants 60 seconds.
    pub duration: Duration,
    /// The search ends when the lowest rate with loss is above the highest one without by at most this part of itself: the
    /// rates that were asked for. What was sent, and is reported, may differ from them by the trials' tolerance.
    pub width: f64,
}

/// A throughput.
#[derive(Clone, Debug, Serialize)]
pub struct Throughput {
    /// Packets a second that all arrived, in a trial of the whole duration; `None` if even the lowest rate lost some.
    pub packets_per_second: Option<f64>,
    /// The lowest rate that lost packets; `None` if none did.
    pub lossy_packets_per_second: Option<f64>,
    /// All trials, in order.
    pub trials: Vec<Measured>,
}

/// The fastest rate at which no packet is lost (section 26.1), by binary search.
///
/// # Errors
/// [`MethodError`]: also if nothing arrives at all.
pub fn throughput(measure: &mut dyn Measure, config: &ThroughputConfig) -> Result<Throughput, MethodError> {
    let mut lossless: Option<f64> = None;
    let mut lossy: Option<f64> = None;
    let mut trials: Vec<Measured> = Vec::new();
    let mut rate = config.maximum;
    let lowest = config.maximum * config.width.max(1e-6);
    loop {
        let request = Request { packets_per_second: rate, duration: config.duration, count: None };
        let measured = valid(measure, &request)?;
        if measured.is_lossless() {
            lossless = Some(rate);
        } else {
            lossy = Some(rate);
        }
        trials.push(measured);
        let Some(upper) = lossy else { break };
        let lower = lossless.unwrap_or(0.0);
        if upper - lower <= config.width * upper || upper <= lowest {
            break;
        }
        rate = f64::midpoint(lower, upper);
    }
    // A device that a fast trial overwhelms may carry something at a slow one; only when none gets through is it dead.
    heard(trials.iter())?;
    // Rates are asked for only once but where a void trial was repeated, and that one is not here.
    let sent = |asked: Option<f64>| {
        let trial = trials.iter().find(|trial| Some(trial.packets_per_second) == asked);
        trial.map(Measured::rate)
    };
    let (packets_per_second, lossy_packets_per_second) = (sent(lossless), sent(lossy));
    Ok(Throughput { packets_per_second, lossy_packets_per_second, trials })
}

/// Refuses trials of which none has received anything.
fn heard<'a>(mut trials: impl Iterator<Item = &'a Measured>) -> Result<(), MethodError> {
    let Some(first) = trials.next() else { return Ok(()) };
    if first.received > 0 || trials.any(|trial| trial.received > 0) {
        return Ok(());
    }
    Err(MethodError::Silence { packets_per_second: first.packets_per_second })
}

/// Latency at a rate, over several trials (section 26.2 wants 20 of 120 seconds at the throughput).
#[derive(Clone, Debug, Serialize)]
pub struct LatencyTest {
    /// The rate in packets a second.
    pub packets_per_second: f64,
    /// Mean over the trials of the mean latency in nanoseconds: what section 26.2 reports.
    pub mean: f64,
    /// All packets of all trials together.
    pub all: Latency,
    /// Each trial's mean in nanoseconds.
    pub trials: Vec<f64>,
}

/// Measures latency at a rate, which should be the throughput.
///
/// # Errors
/// [`MethodError`]: also if nothing arrives, or packets are unsigned so that no latency is known.
pub fn latency(
    measure: &mut dyn Measure,
    packets_per_second: f64,
    duration: Duration,
    trials: u32,
) -> Result<LatencyTest, MethodError> {
    let mut results = Vec::new();
    for _ in 0..trials.max(1) {
        let measured = valid(measure, &Request { packets_per_second, duration, count: None })?;
        results.push(measured.latency.ok_or(MethodError::Silence { packets_per_second })?);
    }
    let trials: Vec<f64> = results.iter().map(|latency| latency.mean).collect();
    let mean = trials.iter().sum::<f64>() / trials.len() as f64;
    let all = Latency::merged(&results).ok_or(MethodError::Silence { packets_per_second })?;
    Ok(LatencyTest { packets_per_second, mean, all, trials })
}

/// A point of the loss curve.
#[derive(Clone, Debug, Serialize)]
pub struct LossPoint {
    /// Percent of the maximum rate.
    pub percent: f64,
    /// The trial.
    pub trial: Measured,
    /// Percent of its packets that were lost.
    pub loss_percent: f64,
}

/// The frame loss rate from the maximum rate down in steps of `step` percent (at most 10) until two trials in a row lose
/// nothing (section 26.3).
///
/// # Errors
/// [`MethodError`]: also if nothing arrives at any rate.
pub fn frame_loss(
    measure: &mut dyn Measure,
    maximum: f64,
    duration: Duration,
    step: f64,
) -> Result<Vec<LossPoint>, MethodError> {
    let step = step.clamp(0.1, 10.0);
    let mut points: Vec<LossPoint> = Vec::new();
    let mut percent = 100.0;
    while percent > step / 2.0 {
        let packets_per_second = maximum * percent / 100.0;
        let trial = valid(measure, &Request { packets_per_second, duration, count: None })?;
        points.push(LossPoint { percent, loss_percent: trial.loss_ratio() * 100.0, trial });
        if let [.., one, two] = &*points
            && one.trial.is_lossless()
            && two.trial.is_lossless()
        {
            break;
        }
        percent -= step;
    }
    heard(points.iter().map(|point| &point.trial))?;
    Ok(points)
}

/// The longest burst without loss.
#[derive(Clone, Debug, Serialize)]
pub struct BackToBack {
    /// Mean length in packets over the repetitions.
    pub mean: f64,
    /// Length of each.
    pub lengths: Vec<u64>,
    /// Bursts longer than this were not tried; a length that reaches it is a lower bound.
    pub longest_tried: u64,
}

/// The longest burst at the maximum rate without loss (section 26.4, with the search and the mean of RFC 9004 section
/// 5): bursts of up to `seconds` of traffic, `repetitions` times.
///
/// # Errors
/// [`MethodError`]: also if nothing arrives of the longest burst.
#[expect(clippy::cast_sign_loss, reason = "rates and times are not negative")]
pub fn back_to_back(
    measure: &mut dyn Measure,
    maximum: f64,
    seconds: f64,
    repetitions: u32,
) -> Result<BackToBack, MethodError> {
    let longest = ((maximum * seconds) as u64).max(1);
    let mut lengths = Vec::new();
    for _ in 0..repetitions.max(1) {
        let (mut good, mut bad) = (0, longest + 1);
        let mut length = longest;
        // Lengths are searched to the packet.
        while bad - good > 1 {
            let duration = Duration::from_secs_f64(length as f64 / maximum + 1.0);
            let request = Request { packets_per_second: maximum, duration, count: Some(length) };
            let measured = valid(measure, &request)?;
            if length == longest && measured.received == 0 {
                return Err(MethodError::Silence { packets_per_second: maximum });
            }
            if measured.is_lossless() {
                good = length;
            } else {
                bad = length;
            }
            length = u64::midpoint(good, bad);
        }
        lengths.push(good);
    }
    let mean = lengths.iter().sum::<u64>() as f64 / lengths.len() as f64;
    Ok(BackToBack { mean, lengths, longest_tried: longest })
}

#[cfg(test)]
#[expect(clippy::cast_sign_loss, reason = "counts are not negative")]
mod tests {
    use super::*;

    /// A device that carries so many packets a second, and has a buffer of so many.
    fn device(capacity: f64, buffer: f64) -> impl FnMut(&Request) -> Result<Measured, MethodError> {
        move |request| {
            let seconds = request
                .count
                .map_or(request.duration.as_secs_f64(), |count| count as f64 / request.packets_per_second);
            let sent = (request.packets_per_second * seconds).round() as u64;
            let carried = (capacity * seconds + buffer).floor() as u64;
            Ok(Measured {
                packets_per_second: request.packets_per_second,
                sent_packets_per_second: request.packets_per_second,
                seconds,
                sent,
                received: sent.min(carried),
                void: None,
                latency: None,
            })
        }
    }

    #[test]
    fn throughput_is_found_within_its_width() {
        for capacity in [1_000.0, 123_456.0, 999_999.0] {
            let config = ThroughputConfig { maximum: 1e6, duration: Duration::from_secs(60), width: 0.001 };
            let found = throughput(&mut device(capacity, 0.0), &config).unwrap();
            let (lower, upper) = (found.packets_per_second.unwrap(), found.lossy_packets_per_second.unwrap());
            assert!(lower <= capacity + 1.0 && upper >= capacity, "{lower} {capacity} {upper}");
            assert!(upper - lower <= 0.001 * upper, "{lower} {upper}");
            assert!(found.trials.len() < 25);
        }
        let config = ThroughputConfig { maximum: 1e6, duration: Duration::from_secs(60), width: 0.001 };
        let found = throughput(&mut device(2e6, 0.0), &config).unwrap();
        assert_eq!((found.packets_per_second, found.lossy_packets_per_second), (Some(1e6), None));
        assert_eq!(found.trials.len(), 1);
    }

    #[test]
    fn silence_and_void_trials_are_no_result() {
        let config = ThroughputConfig { maximum: 1e6, duration: Duration::from_secs(1), width: 0.001 };
        let error = throughput(&mut device(0.0, 0.0), &config).unwrap_err();
        assert!(matches!(error, MethodError::Silence { .. }), "{error}");
        let error = frame_loss(&mut device(0.0, 0.0), 1e6, Duration::from_secs(1), 10.0).unwrap_err();
        assert!(matches!(error, MethodError::Silence { .. }), "{error}");
        let error = back_to_back(&mut device(0.0, 0.0), 1e6, 2.0, 1).unwrap_err();
        assert!(matches!(error, MethodError::Silence { .. }), "{error}");
        let mut runs = 0;
        let mut void = |request: &Request| {
            runs += 1;
            let mut measured = device(1e9, 0.0)(request)?;
            measured.void = Some("too slow".to_owned());
            Ok(measured)
        };
        let error = throughput(&mut void, &config).unwrap_err().to_string();
        assert!(error.contains("too slow") && error.contains("lower maximum"), "{error}");
        assert_eq!(runs, 3);
    }

    #[test]
    fn a_device_that_much_traffic_silences_still_has_a_throughput() {
        let mut livelock = |request: &Request| match request.packets_per_second {
            0.0..300_000.0 => device(2e5, 0.0)(request),
            _ => device(0.0, 0.0)(request),
        };
        let config = ThroughputConfig { maximum: 1e6, duration: Duration::from_secs(60), width: 0.001 };
        let found = throughput(&mut livelock, &config).unwrap();
        assert!((found.packets_per_second.unwrap() - 2e5).abs() < 400.0, "{found:?}");
        let points = frame_loss(&mut livelock, 1e6, Duration::from_secs(10), 10.0).unwrap();
        assert!((points[0].loss_percent - 100.0).abs() < 1e-9 && points[9].trial.is_lossless());
    }

    #[test]
    fn the_rate_is_what_was_sent_and_not_what_was_asked_for() {
        let mut slow = |request: &Request| {
            let mut measured = device(1e9, 0.0)(request)?;
            measured.sent_packets_per_second = 0.9995 * request.packets_per_second;
            Ok(measured)
        };
        let config = ThroughputConfig { maximum: 1e6, duration: Duration::from_secs(1), width: 0.001 };
        let found = throughput(&mut slow, &config).unwrap();
        assert!((found.packets_per_second.unwrap() - 999_500.0).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn the_loss_curve_ends_after_two_clean_trials() {
        let points = frame_loss(&mut device(750_000.0, 0.0), 1e6, Duration::from_secs(10), 10.0).unwrap();
        let losses: Vec<f64> = points.iter().map(|point| point.loss_percent).collect();
        assert_eq!(losses.len(), 5, "{losses:?}");
        assert!((losses[0] - 25.0).abs() < 0.01 && (losses[2] - 6.25).abs() < 0.01, "{losses:?}");
        assert_eq!((losses[3], losses[4]), (0.0, 0.0));
    }

    #[test]
    fn the_longest_burst_is_what_the_buffer_holds() {
        // While a burst of n arrives at 1e6, half of it leaves: n <= n / 2 + 500.
        let found = back_to_back(&mut device(5e5, 500.0), 1e6, 2.0, 3).unwrap();
        assert_eq!((found.lengths, found.longest_tried), (vec![1_000; 3], 2_000_000));
    }
}
