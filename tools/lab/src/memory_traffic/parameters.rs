//! What the paper doesn't say, and the model has to know.

use super::machines::Model;
use serde::Serialize;

/// What the paper doesn't say and the model has to know. These three were fitted to the five drops of the first test, and to nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Parameters {
    /// Ways of the shared level that the instances have: other code and other devices' writes have the rest.
    pub ways: u32,
    /// Buffers under way at 5 Gbit/s, in the card's rings and between the lanes.
    pub under_way: usize,
    /// Lines of state that a frame writes and that no cache keeps: their downstream's tables are larger than ours.
    pub cold_lines: u64,
}

impl Parameters {
    /// As fitted, by `warmlane lab memory-traffic --fit`.
    pub const FITTED: Self = Self { ways: 3, under_way: 672, cold_lines: 1 };

    /// The same for another machine: the same part of its shared level.
    #[must_use]
    pub fn for_machine(self, model: &Model) -> Self {
        let most = model.shared.ways;
        Self { ways: ((self.ways * most + FITTED_WAYS / 2) / FITTED_WAYS).clamp(1, most.max(1)), ..self }
    }

    /// Those one step away in one of them.
    pub(super) fn steps(self, most_ways: u32) -> Vec<Self> {
        let Self { ways, under_way, cold_lines } = self;
        // With more ways as many more buffers fill them.
        let scaled = |ways: u32| {
            let under_way = under_way * ways as usize / self.ways as usize;
            Self { ways, under_way: under_way.next_multiple_of(UNDER_WAY_STEP), ..self }
        };
        vec![
            scaled((ways - 1).max(1)),
            scaled((ways + 1).min(most_ways)),
            Self { under_way: under_way.saturating_sub(UNDER_WAY_STEP).max(QUEUED), ..self },
            Self { under_way: under_way + UNDER_WAY_STEP, ..self },
            Self { cold_lines: cold_lines.saturating_sub(1), ..self },
            Self { cold_lines: cold_lines + 1, ..self },
        ]
    }

    /// Each a fifth smaller and larger, at least one step, with what was changed.
    pub fn a_fifth_off(self) -> Vec<(String, Self)> {
        let fifth = |value: u64| ((value + 2) / 5).max(1);
        let mut all = Vec::new();
        for sign in [-1_i64, 1] {
            let off = |value: u64| value.saturating_add_signed(sign * fifth(value).cast_signed());
            let ways = off(u64::from(self.ways)).max(1) as u32;
            all.push((format!("ways of the shared level: {ways}"), Self { ways, ..self }));
            let under_way = off(self.under_way as u64) as usize;
            all.push((format!("buffers under way: {under_way}"), Self { under_way, ..self }));
            let cold_lines = off(self.cold_lines);
            all.push((format!("lines of cold state: {cold_lines}"), Self { cold_lines, ..self }));
        }
        all
    }
}

/// Ways of the shared level of the machine that the parameters were fitted for.
const FITTED_WAYS: u32 = 11;

/// By so many buffers under way a fit goes.
const UNDER_WAY_STEP: usize = 32;

/// Frames between the lanes at the rate at which [`Parameters::under_way`] holds. With more frames a second more are there, in the time that one needs.
pub(super) const QUEUED: usize = 64;
