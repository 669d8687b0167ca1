//! Numbers with units on the command line.

use std::time::Duration;
use warmlane::functions::generator::control::rate;

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .filter(|duration| *duration <= Duration::from_secs(86_400 * 365))
        .ok_or_else(|| "expected a number of seconds from 0 to a year, as in 2.5".to_owned())
}

pub(super) fn milliseconds(text: &str) -> Result<Duration, String> {
    seconds(text)
        .map(|duration| duration / 1_000)
        .map_err(|_| "expected a number of milliseconds, 0 or more, as in 0.5".to_owned())
}

/// A part of one, from percent.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    Ok(within(text, 0.0, 100.0)? / 100.0)
}

/// How far apart a rate's bounds may be, as a part of one.
pub(super) fn width(text: &str) -> Result<f64, String> {
    Ok(within(text, 0.001, 50.0)? / 100.0)
}

/// The distance of two points of the loss curve in percent: at most as far as RFC 2544 section 26.3 allows.
pub(super) fn step(text: &str) -> Result<f64, String> {
    within(text, 0.1, 10.0)
}

/// How many times as fast as recorded.
pub(super) fn speed(text: &str) -> Result<f64, String> {
    within(text, 1e-6, 1e6)
}

/// Bits a second of a line.
pub(super) fn line(text: &str) -> Result<f64, String> {
    rate::line(text).map_err(|error| error.to_string())
}

fn within(text: &str, minimum: f64, maximum: f64) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (minimum..=maximum).contains(number));
    number.ok_or_else(|| format!("expected a number from {minimum} to {maximum}"))
}
