//! What the registry has, as a report's parts.

use warmlane_counters::{DropView, Entry, Labels, Registry, Source as _, view_as};
use warmlane_forward::datapath::ForwardCountersView;
use warmlane_lane::{LaneCountersView, LaneView, StageCountersView};
use warmlane_mem::Pool;
use warmlane_port::QueueCountersView;
use warmlane_router::paths::{PathReport, PathView};

use crate::machine::CacheCounters;

use super::{Drops, ForwardReport, LaneReport, PoolReport, PortReport, Sets, StageReport};

pub(super) fn ports(registry: &Registry) -> Vec<PortReport> {
    let mut ports: Vec<PortReport> = Vec::new();
    registry.each(|labels, source| {
        let Some(name) = labels.get("port") else { return };
        let port = of_this_name(&mut ports, name, |port| &mut port.name);
        if let (true, Some(driver)) = (port.driver.is_empty(), labels.get("driver")) {
            driver.clone_into(&mut port.driver);
        }
        let traffic = match labels.get("direction") {
            Some("receive") => &mut port.received,
            _ => &mut port.transmitted,
        };
        if let Some(queue) = view_as::<QueueCountersView>(source) {
            traffic.packets += queue.packets();
            traffic.bytes += queue.bytes();
            add_drops(&mut traffic.drops, queue.drops());
        } else {
            source.read(&mut |entry| add_entry(&mut port.counters, &mut traffic.drops, &entry));
        }
    });
    ports
}

/// Of interfaces whose packets are forwarded inside the kernel.
pub(super) fn paths(registry: &Registry) -> Vec<PathReport> {
    registry.views::<PathView>().iter().map(|(_, path)| path.report()).collect()
}

/// `None` without forwarders.
pub(super) fn forward(registry: &Registry) -> Option<ForwardReport> {
    let forwarders = registry.views::<ForwardCountersView>();
    if forwarders.is_empty() {
        return None;
    }
    let mut forward = ForwardReport::default();
    for (_, counters) in forwarders {
        forward.received += counters.received();
        forward.forwarded += counters.forwarded();
        forward.answered += counters.answered();
        forward.punted += counters.punted();
        forward.held += counters.held().saturating_sub(counters.resumed());
        forward.dropped += counters.drops().total();
        forward.icmp_errors += counters.errors_sent();
        forward.icmp_errors_limited += counters.errors_limited();
        forward.icmp_errors_unsent += counters.errors_unsent();
        forward.flow_hits += counters.flow_hits();
        forward.flow_misses += counters.flow_misses();
        forward.fragmented += counters.fragmented();
        forward.fragments += counters.fragmented() + counters.extra_fragments();
        add_drops(&mut forward.drops, counters.drops());
    }
    forward.unsent = lane_drops(registry).map(|(_, drops)| drops.total()).sum();
    Some(forward)
}

/// What lanes themselves had to drop.
fn lane_drops(registry: &Registry) -> impl Iterator<Item = (Labels, DropView)> {
    let all = registry.views::<DropView>().into_iter();
    all.filter(|(labels, _)| labels.get("lane").is_some() && labels.get("stage").is_none())
}

pub(super) fn stages(registry: &Registry) -> Vec<StageReport> {
    let mut stages: Vec<StageReport> = Vec::new();
    registry.each(|labels, source| {
        let Some(name) = labels.get("stage") else { return };
        let stage = of_this_name(&mut stages, name, |stage| &mut stage.name);
        if let Some(counters) = view_as::<StageCountersView>(source) {
            stage.packets += counters.processed();
            stage.made += counters.made();
        } else if view_as::<ForwardCountersView>(source).is_some() {
            stage.is_forwarder = true;
        } else {
            source.read(&mut |entry| add_entry(&mut stage.counters, &mut stage.drops, &entry));
        }
    });
    stages
}

pub(super) fn functions(registry: &Registry) -> Sets {
    let (mut sets, mut drops) = (Sets::new(), Drops::new());
    registry.each(|labels, source| {
        if labels.get("function").is_some() {
            source.read(&mut |entry| add_entry(&mut sets, &mut drops, &entry));
        }
    });
    if !drops.is_empty() {
        sets.insert(
            "drops".to_owned(),
            drops.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
        );
    }
    sets
}

pub(super) fn lanes(registry: &Registry, views: &[LaneView]) -> Vec<LaneReport> {
    let mut lanes = Vec::new();
    for (labels, counters) in registry.views::<LaneCountersView>() {
        let name = labels.get("lane").unwrap_or_default().to_owned();
        let (busy, idle) = (counters.busy_cycles(), counters.idle_cycles());
        let percent = |cycles: u64| 100.0 * cycles as f64 / (busy + idle).max(1) as f64;
        let mut lane = LaneReport {
            cpu: views.iter().find(|view| view.name == name).and_then(|view| view.cpu),
            name,
            packets: counters.packets(),
            cycles_per_packet: counters.cycles_per_packet(),
            packets_per_poll: counters.packets_per_poll(),
            busy_percent: percent(busy),
            asleep_percent: percent(counters.asleep_cycles()),
            naps: counters.naps(),
            sleeps: counters.sleeps(),
            counters: Sets::new(),
            drops: Drops::new(),
        };
        for (labels, cache) in registry.views::<CacheCounters>() {
            if labels.get("lane") == Some(&lane.name) {
                cache.read(&mut |entry| add_entry(&mut lane.counters, &mut lane.drops, &entry));
            }
        }
        for (labels, drops) in lane_drops(registry) {
            if labels.get("lane") == Some(&lane.name) {
                add_drops(&mut lane.drops, &drops);
            }
        }
        lanes.push(lane);
    }
    lanes
}

pub(super) fn pools(registry: &Registry) -> Vec<PoolReport> {
    registry.views::<Pool>().iter().map(|(_, made)| pool(made)).collect()
}

pub(super) fn pool(pool: &Pool) -> PoolReport {
    let (ledger, occupancy) = (pool.ledger(), pool.occupancy());
    PoolReport {
        name: pool.name().to_owned(),
        buffers: ledger.buffers,
        taken: ledger.taken,
        freed: ledger.freed,
        outstanding: ledger.outstanding(),
        available: occupancy.available,
        lowest: occupancy.lowest,
        refused: occupancy.refused,
        pages: pool.page_size().to_string(),
    }
}

/// The one of this name, which is new if there was none.
fn of_this_name<'a, T: Default>(
    all: &'a mut Vec<T>,
    name: &str,
    name_of: impl Fn(&mut T) -> &mut String,
) -> &'a mut T {
    let index = all.iter_mut().position(|one| name_of(one) == name).unwrap_or_else(|| {
        let mut new = T::default();
        name.clone_into(name_of(&mut new));
        all.push(new);
        all.len() - 1
    });
    &mut all[index]
}

fn add_entry(sets: &mut Sets, drops: &mut Drops, entry: &Entry) {
    match entry.reason {
        Some(reason) if entry.value > 0 => *drops.entry(reason.name).or_default() += entry.value,
        Some(_) => {}
        None => {
            let name = |text: &str| text.replace('-', "_");
            let set = sets.entry(name(entry.description.set)).or_default();
            let sum = set.entry(name(entry.description.name)).or_default();
            *sum = entry.together(*sum);
        }
    }
}

/// Adds what is not zero.
fn add_drops(sums: &mut Drops, drops: &DropView) {
    for (reason, count) in drops.iter().filter(|&(_, count)| count > 0) {
        *sums.entry(reason.name).or_default() += count;
    }
}
