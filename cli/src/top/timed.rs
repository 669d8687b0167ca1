//! What packets took in stages when bursts were last timed.

use crate::changes::Changes;
use std::collections::BTreeMap;

/// Cycles for each packet, by the labels of a stage. With little traffic, no burst is timed between most looks.
#[derive(Debug, Default)]
pub(super) struct Timed(BTreeMap<BTreeMap<String, String>, f64>);

impl Timed {
    /// Takes in what was timed between two looks, and forgets stages that are gone.
    pub(super) fn take(&mut self, changes: &Changes<'_>) {
        let mut grown: BTreeMap<&BTreeMap<String, String>, (u64, u64)> = BTreeMap::new();
        for value in changes.now.values.iter().filter(|value| value.set == "stage-timed") {
            let (packets, cycles) = grown.entry(&value.labels).or_default();
            match value.name.as_str() {
                "packets" => *packets = changes.of(value),
                "cycles" => *cycles = changes.of(value),
                _ => {}
            }
        }
        self.0.retain(|labels, _| grown.contains_key(labels));
        for (labels, (packets, cycles)) in grown {
            if packets > 0 {
                self.0.insert(labels.clone(), cycles as f64 / packets as f64);
            }
        }
    }

    /// Of the stage with these labels; `None` until a burst of it was timed.
    pub(super) fn cycles(&self, labels: &BTreeMap<String, String>) -> Option<f64> {
        self.0.get(labels).copied()
    }
}
