//! A pointer chase: loads of which each has to wait for the one before it, through the lines of a working set in an order that no prefetcher guesses.

use crate::cache_model::{LINE_BYTES, Level};
use crate::error::LabError;
use crate::line_transfer;
use crate::measure::{Measure, measure_once};
use crate::memory_traffic::machines::Model;
use crate::random::Xorshift;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use warmlane_sys::pages::TableMemory;

/// Loads in a unit of work: well below a millisecond, even if each waits for memory.
const LOADS: usize = 2_048;

/// Words of a line, of which the first says which line is next.
type Line = [u32; 16];

/// Lines, in one circle.
pub(crate) struct Chase {
    lines: TableMemory<Line>,
    at: u32,
}

impl Chase {
    /// A working set of so many bytes, in huge pages where the kernel grants them, so that it is the caches that are seen.
    pub(crate) fn new(bytes: u64) -> Result<Self, LabError> {
        let count = (bytes / LINE_BYTES).max(2) as usize;
        let mut lines = TableMemory::<Line>::zeroed(count).map_err(LabError::setup)?;
        // Sattolo's shuffle, which makes one circle of all (Information Processing Letters 22, 1986).
        let mut next: Vec<u32> = (0..count as u32).collect();
        let mut random = Xorshift(Xorshift::SEED);
        for last in (1..count).rev() {
            next.swap(last, random.below(last));
        }
        for (line, next) in lines.iter_mut().zip(next) {
            line[0] = next;
        }
        Ok(Self { lines, at: 0 })
    }

    fn walk(&mut self, loads: usize) {
        let mut at = self.at;
        for _ in 0..loads {
            at = self.lines[at as usize][0];
        }
        self.at = std::hint::black_box(at);
    }

    /// Which part of all loads each level answers, once all lines were loaded, in a model of a machine's caches.
    pub(crate) fn answered(&self, model: &Model) -> Result<Answered, LabError> {
        let mut levels = model.hierarchy(1, model.shared.ways).map_err(LabError::setup)?;
        let mut counts = [0_u64; 4];
        let mut at = 0;
        for load in 0..3 * self.lines.len() {
            let place = match levels.access(0, u64::from(at), false) {
                Level::First => 0,
                Level::Second => 1,
                Level::Shared | Level::OtherCore => 2,
                Level::Memory => 3,
            };
            // The first two rounds fill the levels.
            counts[place] += u64::from(load >= 2 * self.lines.len());
            at = self.lines[at as usize][0];
        }
        Ok(counts.map(|count| count as f64 / self.lines.len() as f64))
    }
}

/// Parts of all loads that the first, second and shared level and memory answer.
pub(crate) type Answered = [f64; 4];

impl Measure for Chase {
    fn work(&mut self) -> u64 {
        self.walk(LOADS);
        LOADS as u64
    }

    /// What others have pushed out comes back.
    fn begin(&mut self) {
        self.walk(self.lines.len());
    }
}

/// Cycles of the time-stamp counter for a load, by who answers it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Latencies {
    /// The first, second and shared level, and memory.
    pub levels: [f64; 4],
    /// The other core.
    pub other_core: f64,
}

/// How long each chase lasts.
const LENGTH: Duration = Duration::from_millis(20);

impl Latencies {
    /// Measured here, in working sets that fill a level by half at most, and one that none holds; between these CPUs.
    pub(crate) fn measure(model: &Model, [first, second]: [usize; 2]) -> Result<Self, LabError> {
        let bytes = |kib: u64| (kib << 10).max(2 * LINE_BYTES);
        let sets = [
            bytes(model.first.kib) / 2,
            bytes(model.second.kib) / 2,
            // Twice the private levels at least, and no more of what is shared with others than has to be.
            (bytes(model.shared.kib) / 4).max(2 * bytes(model.second.kib)),
            3 * (bytes(model.shared.kib) + bytes(model.second.kib)),
        ];
        let mut levels = [0.0; 4];
        for (level, bytes) in levels.iter_mut().zip(sets) {
            *level = measure_once(&mut Chase::new(bytes)?, LENGTH);
        }
        let other_core = line_transfer::measure(first, second).map_err(LabError::setup)?;
        Ok(Self { levels, other_core })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chase_goes_through_all_lines_before_it_comes_to_one_again() {
        for bytes in [128, 64 * 7, 64 * 1_000] {
            let mut chase = Chase::new(bytes).unwrap();
            let lines = chase.lines.len();
            let mut seen = vec![false; lines];
            for _ in 0..lines {
                chase.walk(1);
                assert!(!std::mem::replace(&mut seen[chase.at as usize], true), "{bytes}");
            }
            assert!(seen.iter().all(|seen| *seen), "{bytes}");
        }
    }

    #[test]
    fn each_level_answers_what_it_holds() {
        let model = Model::find("xeon-gold-6148").unwrap();
        let answered = |kib: u64| Chase::new(kib << 10).unwrap().answered(&model).unwrap();
        assert!((answered(16)[0] - 1.0).abs() < 1e-9, "{:?}", answered(16));
        assert!((answered(256)[1] - 1.0).abs() < 0.1, "{:?}", answered(256));
        assert!((answered(4_096)[2] - 1.0).abs() < 0.2, "{:?}", answered(4_096));
        assert!(answered(64 << 10)[3] > 0.9, "{:?}", answered(64 << 10));
    }
}
