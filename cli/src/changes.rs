//! What has changed between two looks at an instance's counters.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use warmlane::control::{Stats, Value};

/// What tells a value from all others.
type Key<'a> = (&'a BTreeMap<String, String>, &'a str, &'a str, Option<&'a str>);

fn key(value: &Value) -> Key<'_> {
    (&value.labels, &value.set, &value.name, value.reason.as_deref())
}

/// The last look, and what the one before it has to be compared with.
pub(crate) struct Changes<'a> {
    pub(crate) now: &'a Stats,
    old: HashMap<Key<'a>, u64>,
    /// Between the looks; `None` if there was only one.
    pub(crate) seconds: Option<f64>,
}

impl<'a> Changes<'a> {
    pub(crate) fn new(now: &'a Stats, before: Option<&'a Stats>) -> Self {
        let old = before.iter().flat_map(|before| &before.values);
        let seconds = before
            .map(|before| Duration::from_nanos(now.age_ns.saturating_sub(before.age_ns)).as_secs_f64())
            .filter(|seconds| *seconds > 0.0);
        Self { now, old: old.map(|value| (key(value), value.value)).collect(), seconds }
    }

    /// By how much a counter has grown, also past the end; one that is new had been zero. 0 after only one look.
    pub(crate) fn of(&self, value: &Value) -> u64 {
        let grown = |_| value.value.wrapping_sub(self.old.get(&key(value)).copied().unwrap_or(0));
        self.seconds.map_or(0, grown)
    }

    /// So many a second; 0 after only one look.
    pub(crate) fn rate(&self, change: u64) -> f64 {
        self.seconds.map_or(0.0, |seconds| change as f64 / seconds)
    }
}
