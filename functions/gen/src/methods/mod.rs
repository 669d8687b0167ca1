//! Methods: which trials to run to find out how much a device carries.
//!
//! They know nothing of ports: what runs a trial is a [`Measure`], which may as well read recorded ones.

pub mod mlrsearch;
pub mod rfc2544;
pub mod suite;
mod trials;

pub use trials::{Trials, Watch};

use std::time::Duration;

use serde::Serialize;
use thiserror::Error;

use crate::result::Latency;

/// A trial that a method wants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// Packets a second.
    pub packets_per_second: f64,
    /// How long to send.
    pub duration: Duration,
    /// Packets after which to end, if that comes first.
    pub count: Option<u64>,
}

/// What a trial came to.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Packets a second that were asked for.
    pub packets_per_second: f64,
    /// Packets a second that left, by the clock; a trial that is not void may be a little slower than asked.
    pub sent_packets_per_second: f64,
    /// Seconds of sending.
    pub seconds: f64,
    /// Packets that left. Those that fell due and did not are the generator's failure and no loss of the device: too
    /// many of them make the trial void.
    pub sent: u64,
    /// Packets that arrived intact, each counted once.
    pub received: u64,
    /// Why the trial does not count, if it doesn't.
    pub void: Option<String>,
    /// How long packets took.
    #[serde(skip)]
    pub latency: Option<Latency>,
}

impl Measured {
    /// The rate that the trial stands for: what was asked for, unless that was not reached.
    pub const fn rate(&self) -> f64 {
        self.packets_per_second.min(self.sent_packets_per_second)
    }

    /// The part of the sent packets that did not arrive.
    pub fn loss_ratio(&self) -> f64 {
        self.sent.saturating_sub(self.received) as f64 / self.sent.max(1) as f64
    }

    /// Whether every packet arrived.
    pub const fn is_lossless(&self) -> bool {
        self.received >= self.sent
    }
}

/// Runs trials.
pub trait Measure {
    /// Runs one.
    ///
    /// # Errors
    /// [`MethodError::Trial`], if it can't be run at all. A trial that the generator spoilt comes back void.
    fn measure(&mut self, request: &Request) -> Result<Measured, MethodError>;
}

impl<F: FnMut(&Request) -> Result<Measured, MethodError>> Measure for F {
    fn measure(&mut self, request: &Request) -> Result<Measured, MethodError> {
        self(request)
    }
}

/// Why a method has no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MethodError {
    /// A trial can't be run.
    #[error("a trial at {packets_per_second:.0} packets a second: {problem}")]
    Trial {
        /// The rate.
        packets_per_second: f64,
        /// What is wrong.
        problem: String,
    },
    /// The generator spoilt every try.
    #[error(
        "{tries} trials at {packets_per_second:.0} packets a second were void: {why}; set a lower maximum"
    )]
    Void {
        /// The rate.
        packets_per_second: f64,
        /// How many were tried.
        tries: u32,
        /// What was wrong with the last one.
        why: String,
    },
    /// Nothing comes back.
    #[error(
        "the receiver got nothing at {packets_per_second:.0} packets a second: is the device under test up, does it know the way, and are the destination addresses right?"
    )]
    Silence {
        /// The rate.
        packets_per_second: f64,
    },
    /// An empty range.
    #[error(
        "rates from {minimum} to {maximum} packets a second are no range: expected 0 < minimum < maximum"
    )]
    Range {
        /// The least.
        minimum: f64,
        /// The most.
        maximum: f64,
    },
    /// A description that gives no packets of this size.
    #[error("frames of {size} bytes: {problem}")]
    Size {
        /// The size.
        size: u16,
        /// What is wrong.
        problem: String,
    },
    /// Packets that can't be told from others.
    #[error(
        "packets without a signature can't be told from others, and a method has to: leave the signature on"
    )]
    Unsigned,
    /// No rate to measure latency at.
    #[error("even the lowest rate lost packets, so there is no throughput to measure latency at")]
    NoRate,
    /// The user wants to stop.
    #[error("stopped before there was a result")]
    Stopped,
    /// The device changes its mind so often that no bounds hold.
    #[error("{trials} trials gave no stable bounds: the device's loss varies too much for this goal")]
    Unstable {
        /// How many were run.
        trials: usize,
    },
}

/// How often a void trial is repeated.
const TRIES: u32 = 3;

/// Runs a trial, again if it is void.
pub(crate) fn valid(measure: &mut dyn Measure, request: &Request) -> Result<Measured, MethodError> {
    let mut why = String::new();
    for _ in 0..TRIES {
        let measured = measure.measure(request)?;
        match measured.void {
            None => return Ok(measured),
            Some(reason) => why = reason,
        }
    }
    Err(MethodError::Void { packets_per_second: request.packets_per_second, tries: TRIES, why })
}
