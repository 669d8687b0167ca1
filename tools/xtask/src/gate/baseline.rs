//! What the hot paths took when somebody last agreed to it: `perf/instructions.json`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::callgrind::Counts;

/// A figure may rise by so much before the gate closes: 2 %.
const TOLERATED: f64 = 0.02;
/// The same for misses of the modelled caches, which depend a little on where memory happens to lie, as a share and in
/// misses per unit.
const TOLERATED_MISSES: (f64, f64) = (0.10, 0.02);
/// Functions with a smaller share of a path are not listed.
const SMALLEST_SHARE: f64 = 0.005;

/// The file.
#[derive(Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Baseline {
    /// The compiler that the paths were built with: another one may take other instructions.
    pub(crate) rustc: String,
    pub(crate) paths: BTreeMap<String, Cost>,
}

/// What one path takes for each unit.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Cost {
    pub(crate) unit: String,
    pub(crate) instructions: f64,
    /// Misses of data in the modelled first level and last level.
    pub(crate) first_level_misses: f64,
    pub(crate) last_level_misses: f64,
    /// Why the figures were last accepted.
    pub(crate) reason: String,
    /// Instructions by function, its callees excepted.
    pub(crate) functions: BTreeMap<String, f64>,
}

impl Cost {
    /// Of counts over so many units; fails if there are none, which would pass every gate.
    pub(crate) fn new(counts: &Counts, units: u64, unit: &str) -> anyhow::Result<Self> {
        anyhow::ensure!(units > 0, "no {unit} was done, so that there is nothing to count");
        anyhow::ensure!(
            counts.instructions > 0,
            "callgrind counted no instruction of {units} units: is the work's function collected?"
        );
        // Three decimals: finer differences are none.
        let per_unit = |count: u64| (count as f64 / units as f64 * 1e3).round() / 1e3;
        let least = counts.instructions as f64 * SMALLEST_SHARE;
        let functions = counts.functions.iter().filter(|(_, count)| **count as f64 >= least);
        Ok(Self {
            unit: unit.to_owned(),
            instructions: per_unit(counts.instructions),
            first_level_misses: per_unit(counts.first_level_misses),
            last_level_misses: per_unit(counts.last_level_misses),
            reason: String::new(),
            functions: functions.map(|(name, count)| (name.clone(), per_unit(*count))).collect(),
        })
    }

    /// Why a path may not take `self` where it took `before`, if so. What takes less is to be accepted, too: else it could
    /// rise again unseen.
    pub(crate) fn complaint(&self, before: &Self) -> Option<String> {
        let mut complaint = String::new();
        let (rose, fell) = (self.rose(before), self.instructions < before.instructions * (1.0 - TOLERATED));
        if rose || fell {
            let _ = write!(
                complaint,
                "{:.2} instructions per {} instead of {:.2}, {:+.1} %",
                self.instructions,
                self.unit,
                before.instructions,
                self.percent_above(before)
            );
        }
        if rose {
            for (name, now, then) in self.risen(before).into_iter().take(5) {
                let _ = write!(complaint, "\n    {name}: {now:.2} instead of {then:.2}");
            }
        }
        for (level, now, then) in self.risen_misses(before) {
            let comma = if complaint.is_empty() { "" } else { "\n  " };
            let _ = write!(
                complaint,
                "{comma}{now:.3} misses of the modelled {level} level per {} instead of {then:.3}",
                self.unit
            );
        }
        (!complaint.is_empty()).then_some(complaint)
    }

    /// The modelled levels with more misses than there may be: name, misses now, misses before.
    fn risen_misses(&self, before: &Self) -> impl Iterator<Item = (&'static str, f64, f64)> {
        let levels = [
            ("first", self.first_level_misses, before.first_level_misses),
            ("last", self.last_level_misses, before.last_level_misses),
        ];
        let (share, least) = TOLERATED_MISSES;
        levels.into_iter().filter(move |(_, now, then)| *now > then * (1.0 + share) + least)
    }

    /// Whether a modelled level has more misses than it may.
    pub(crate) fn misses_rose(&self, before: &Self) -> bool {
        self.risen_misses(before).next().is_some()
    }

    /// How many percent more instructions than before.
    pub(crate) fn percent_above(&self, before: &Self) -> f64 {
        100.0 * (self.instructions / before.instructions - 1.0)
    }

    /// Whether it takes more instructions than it may.
    pub(crate) fn rose(&self, before: &Self) -> bool {
        self.instructions > before.instructions * (1.0 + TOLERATED)
    }

    /// The functions that take more than before, the largest rise first.
    pub(crate) fn risen<'a>(&'a self, before: &Self) -> Vec<(&'a str, f64, f64)> {
        let then = |name: &str| before.functions.get(name).copied().unwrap_or(0.0);
        let mut risen: Vec<(&str, f64, f64)> = self
            .functions
            .iter()
            .map(|(name, now)| (name.as_str(), *now, then(name)))
            .filter(|(_, now, then)| now > then)
            .collect();
        risen.sort_by(|a, b| (b.1 - b.2).total_cmp(&(a.1 - a.2)));
        risen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(functions: &[(&str, u64)], misses: u64) -> Cost {
        let counts = Counts {
            instructions: functions.iter().map(|(_, count)| count).sum(),
            first_level_misses: misses,
            last_level_misses: 0,
            functions: functions.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
        };
        Cost::new(&counts, 100, "packet").unwrap()
    }

    #[test]
    fn figures_are_per_unit_and_small_functions_left_out() {
        let cost = cost(&[("take", 995), ("start", 4)], 50);
        assert!((cost.instructions - 9.99).abs() < 1e-9 && (cost.first_level_misses - 0.5).abs() < 1e-9);
        assert_eq!(cost.functions.keys().collect::<Vec<_>>(), ["take"]);
    }

    #[test]
    fn a_rise_of_more_than_a_fiftieth_is_told_with_its_function() {
        let before = cost(&[("take", 500), ("free", 500)], 50);
        assert_eq!(cost(&[("take", 519), ("free", 500)], 50).complaint(&before), None);
        let complaint = cost(&[("take", 490), ("free", 531)], 50).complaint(&before).unwrap();
        assert_eq!(
            complaint,
            "10.21 instructions per packet instead of 10.00, +2.1 %\n    free: 5.31 instead of 5.00"
        );
        assert_eq!(cost(&[("take", 500), ("free", 481)], 50).complaint(&before), None);
        let better = cost(&[("take", 500), ("free", 470)], 50).complaint(&before).unwrap();
        assert_eq!(better, "9.70 instructions per packet instead of 10.00, -3.0 %");
        assert!(cost(&[("take", 500)], 0).complaint(&Cost::default()).is_some(), "a baseline of nothing");
    }

    #[test]
    fn nothing_is_no_figure() {
        let counts = |instructions| Counts { instructions, ..Counts::default() };
        let error =
            |instructions, units| Cost::new(&counts(instructions), units, "packet").unwrap_err().to_string();
        assert!(error(0, 5).contains("counted no instruction of 5 units"));
        assert!(error(5, 0).contains("no packet was done"));
    }

    #[test]
    fn misses_have_some_play() {
        let before = cost(&[("take", 500)], 50);
        assert_eq!(cost(&[("take", 500)], 56).complaint(&before), None);
        let complaint = cost(&[("take", 500)], 58).complaint(&before).unwrap();
        assert_eq!(complaint, "0.580 misses of the modelled first level per packet instead of 0.500");
    }
}
