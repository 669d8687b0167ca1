//! What the registry has of each modem, service flow and channel.

use serde::Serialize;
use std::collections::BTreeMap;
use warmlane::counters::{Registry, Source};
use warmlane::functions::docsis::upper::{FlowCountersView, SubscriberCountersView};

/// A set of counters with its labels.
#[derive(Serialize)]
pub(super) struct Figure {
    /// What it is of: a modem, a flow, a channel.
    labels: BTreeMap<&'static str, String>,
    /// The set's name.
    set: &'static str,
    /// What is not zero.
    values: BTreeMap<&'static str, u64>,
}

impl Figure {
    /// All sets that have counted something.
    pub(super) fn all(registry: &Registry) -> Vec<Self> {
        let mut figures = Vec::new();
        registry.each(|labels, source| {
            let (mut set, mut values) = ("", BTreeMap::new());
            source.read(&mut |entry| {
                set = entry.description.set;
                if entry.value > 0 {
                    values.insert(entry.description.name, entry.value);
                }
            });
            if !values.is_empty() {
                let labels = labels.iter().filter(|(name, _)| *name != "function");
                let labels = labels.map(|(name, value)| (name, value.to_owned())).collect();
                figures.push(Self { labels, set, values });
            }
        });
        figures
    }
}

/// Packets of each of a kind.
#[derive(Serialize)]
pub(super) struct Each {
    /// What kind.
    pub(super) name: &'static str,
    /// How many there are.
    pub(super) count: usize,
    /// The least, the median and the most packets that one of them had.
    pub(super) packets: [u64; 3],
}

impl Each {
    /// Of modems what came for them, of service flows what was sent.
    pub(super) fn of(registry: &Registry) -> Vec<Self> {
        let modems = counts::<SubscriberCountersView>(registry, SubscriberCountersView::received);
        let flows = counts::<FlowCountersView>(registry, FlowCountersView::sent);
        [("modem", modems), ("service flow", flows)]
            .into_iter()
            .filter_map(|(name, mut packets)| {
                packets.sort_unstable();
                let median = *packets.get(packets.len() / 2)?;
                Some(Self {
                    name,
                    count: packets.len(),
                    packets: [*packets.first()?, median, *packets.last()?],
                })
            })
            .collect()
    }
}

fn counts<V: Source + Clone>(registry: &Registry, packets: impl Fn(&V) -> u64) -> Vec<u64> {
    registry.views::<V>().iter().map(|(_, view)| packets(view)).collect()
}
