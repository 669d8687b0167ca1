//! A pointer chase: loads of which each has to wait for the one before it, through the lines of a working set in an order that no prefetcher guesses.

use crate::cache_model::{LINE_BYTES, Level};
use crate::error::LabError;
use crate::measure::Measure;
use crate::memory_traffic::machines::Model;
use crate::random::Xorshift;
use warmlane_sys::clock;
use warmlane_sys::pages::TableMemory;

/// Loads in a unit of work: well below a millisecond, even if each waits for memory.
const LOADS: usize = 2_048;

/// Words of a line, of which the first says which line is next.
type Line = [u32; 16];

/// Lines, in one circle.
pub(crate) struct Chase {
    lines: TableMemory<Line>,
    at: u32,
    /// How often [`LOADS`] were made in this round, and the cycles of the fastest: all parts of the circle are alike, so that what takes longer had
    /// to share its caches or its core with others of the host.
    walks: u64,
    fastest: u64,
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
        Ok(Self { lines, at: 0, walks: 0, fastest: u64::MAX })
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
        let begin = clock::cycles_ordered();
        self.walk(LOADS);
        self.fastest = self.fastest.min(clock::cycles_ordered().saturating_sub(begin));
        self.walks += 1;
        LOADS as u64
    }

    fn counted_cycles(&self) -> Option<u64> {
        Some(self.fastest.saturating_mul(self.walks))
    }

    /// What others have pushed out comes back.
    fn begin(&mut self) {
        self.walk(self.lines.len());
        (self.walks, self.fastest) = (0, u64::MAX);
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
    fn the_fastest_part_of_a_round_counts() {
        let mut chase = Chase::new(4_096).unwrap();
        chase.begin();
        assert_eq!(chase.work() + chase.work(), 2 * LOADS as u64);
        let seen = chase.counted_cycles().unwrap();
        assert_eq!((chase.walks, seen), (2, 2 * chase.fastest));
        // Somebody else had the core for a long time.
        chase.fastest += 1_000_000_000;
        chase.work();
        assert!(chase.counted_cycles().unwrap() < 1_000_000_000);
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
