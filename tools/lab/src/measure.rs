//! Work that is measured in rounds.

use crate::counters;
use serde::Serialize;
use std::time::Duration;
use warmlane_sys::clock::{self, Clock};

/// One measurement that is ready to run.
pub trait Measure {
    /// Does some work, at least a burst, at most about a millisecond, and says how many units it was.
    fn work(&mut self) -> u64;

    /// Comes before a round, outside the time that counts: a second lane starts here.
    fn begin(&mut self) {}

    /// Comes after a round, outside the time that counts. From here to `begin`, nothing of this may run: a peer is
    /// measured in between.
    fn end(&mut self) {}

    /// The cycles since `begin` that count, for work that keeps its own account of them; else all do.
    fn counted_cycles(&self) -> Option<u64> {
        None
    }

    /// How many units since `begin` went all the way, for work that can lose some on it: all must, or the cycles are those
    /// of something else.
    fn forwarded(&self) -> Option<u64> {
        None
    }
}

impl<F: FnMut() -> u64> Measure for F {
    fn work(&mut self) -> u64 {
        self()
    }
}

/// One round.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Round {
    /// Its number, from 0.
    pub round: u64,
    /// Units done.
    pub packets: u64,
    /// Time-stamp-counter cycles that they took.
    pub cycles: u64,
    /// The same in seconds.
    pub seconds: f64,
    /// How many of the units went all the way, where the bench knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarded: Option<u64>,
}

impl Round {
    /// Infinite, if nothing was done.
    fn cycles_per_unit(&self) -> f64 {
        self.cycles as f64 / self.packets as f64
    }
}

/// One round of `length`; gives the cycles per unit.
pub(crate) fn measure_once(measure: &mut dyn Measure, length: Duration) -> f64 {
    measure_round(measure, 0, length).cycles_per_unit()
}

/// One round of `length`, with this number.
pub(crate) fn measure_round(measure: &mut dyn Measure, round: u64, length: Duration) -> Round {
    let clock = Clock::calibrated();
    let wanted = clock.cycles_for(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX));
    measure.begin();
    counters::start();
    let begin = clock::cycles_ordered();
    let mut packets = 0;
    loop {
        packets += measure.work();
        let cycles = clock::cycles_ordered().saturating_sub(begin);
        if cycles >= wanted {
            counters::stop(packets);
            measure.end();
            let seconds = cycles as f64 / clock.cycles_per_second() as f64;
            let cycles = measure.counted_cycles().unwrap_or(cycles);
            return Round { round, packets, cycles: cycles.max(1), seconds, forwarded: measure.forwarded() };
        }
    }
}
