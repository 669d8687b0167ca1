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
    /// The search ends when the lowest rate with loss is above the highest one without by at most this part of itself.
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
    let mut trials = Vec::new();
    let mut rate = config.maximum;
    let lowest = config.maximum * config.width.max(1e-6);
    loop {
        let request = Request { packets_per_second: rate, duration: config.duration, count: None };
        let measured = valid(measure, &request)?;
        if measured.received == 0 {
            return Err(MethodError::Silence { packets_per_second: rate });
        }
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
    Ok(Throughput { packets_per_second: lossless, lossy_packets_per_second: lossy, trials })
}

/// Latency at a rate, over several trials (section 26.2 wants 20 of 120 seconds at the throughput).
#[derive(Clone, Debug, Serialize)]
pub struct LatencyTest {
    /// The rate in packets a second.
    pub packets_per_second: f64,
    /// Mean over the trials of the mean latency in nanoseconds.
    pub mean: f64,
    /// Each trial's.
    pub trials: Vec<Latency>,
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
    let mean = results.iter().map(|latency| latency.mean).sum::<f64>() / results.len() as f64;
    Ok(LatencyTest { packets_per_second, mean, trials: results })
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
/// [`MethodError`].
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
/// [`MethodError`].
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
            if valid(measure, &request)?.is_lossless() {
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
            let offered = (request.packets_per_second * seconds).round() as u64;
            let carried = (capacity * seconds + buffer).floor() as u64;
            Ok(Measured {
                packets_per_second: request.packets_per_second,
                seconds,
                offered,
                received: offered.min(carried),
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
