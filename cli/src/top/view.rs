//! What two looks at an instance's counters say: rates and shares.

use super::model::Event;
use super::timed::Timed;
use crate::changes::Changes;
use std::collections::BTreeMap;
use std::time::Duration;
use warmlane::control::Value;
use warmlane::sys::clock::Clock;

/// Packets and bits a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Traffic {
    pub(super) packets: f64,
    /// `None` where bytes aren't counted.
    pub(super) bits: Option<f64>,
}

/// What packets a port carries.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Port {
    pub(super) name: String,
    pub(super) received: Traffic,
    pub(super) sent: Traffic,
}

/// What a lane does with its cycles.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Lane {
    pub(super) name: String,
    /// Packets a second.
    pub(super) packets: f64,
    /// The share of cycles in polls that moved packets; `None` without cycles.
    pub(super) busy: Option<f64>,
    /// The share of cycles in which it left its CPU.
    pub(super) asleep: Option<f64>,
    /// Cycles for each packet in polls that moved any; `None` without packets.
    pub(super) cycles: Option<f64>,
}

/// What a stage, or a step of one, gets and takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Stage {
    pub(super) name: String,
    /// Packets a second that it was given.
    pub(super) packets: f64,
    /// Packets a second that it made.
    pub(super) made: Option<f64>,
    /// Cycles for each packet, given or made, where the instance measures them: of a stage when it was last timed.
    pub(super) cycles: Option<f64>,
    /// The share of these cycles in the busy ones of its lane, at most 1.
    pub(super) share: Option<f64>,
}

/// What is dropped.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Dropped {
    pub(super) reason: String,
    pub(super) severity: String,
    /// What counts it.
    pub(super) place: String,
    /// Packets a second.
    pub(super) rate: f64,
    /// Packets since the instance began.
    pub(super) total: u64,
}

/// How full a pool is, in buffers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pool {
    pub(super) name: String,
    pub(super) buffers: u64,
    pub(super) outstanding: u64,
    /// The most that ever were in packets or in the reserves of lanes at once.
    pub(super) most: u64,
    /// Packets a second that it had no buffer for.
    pub(super) refused: f64,
}

/// How long something takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Latency {
    pub(super) name: String,
    /// Packets a second that were timed.
    pub(super) packets: f64,
    /// The mean of these, in nanoseconds; `None` without any.
    pub(super) mean: Option<f64>,
    /// What 99 % of these are below, where there is a histogram.
    pub(super) most: Option<String>,
    /// The longest ever, in nanoseconds.
    pub(super) longest: Option<u64>,
}

/// All that is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct View {
    /// How old the instance is.
    pub(super) age: Duration,
    /// Between the two looks; zero before the second, and then there are no rates.
    pub(super) between: Duration,
    pub(super) ports: Vec<Port>,
    pub(super) lanes: Vec<Lane>,
    pub(super) stages: Vec<Stage>,
    pub(super) drops: Vec<Dropped>,
    pub(super) pools: Vec<Pool>,
    pub(super) latencies: Vec<Latency>,
    /// The last first.
    pub(super) events: Vec<Event>,
}

/// Counters that belong together.
struct Set<'a> {
    labels: &'a BTreeMap<String, String>,
    name: &'a str,
    values: BTreeMap<&'a str, &'a Value>,
    changes: &'a Changes<'a>,
}

impl Set<'_> {
    /// By how much a value has grown; 0 if there is none.
    fn change(&self, name: &str) -> u64 {
        self.values.get(name).map_or(0, |value| self.changes.of(value))
    }

    fn rate(&self, name: &str) -> f64 {
        self.changes.rate(self.change(name))
    }

    /// A gauge.
    fn now(&self, name: &str) -> u64 {
        self.values.get(name).map_or(0, |value| value.value)
    }

    fn label(&self, name: &str) -> String {
        self.labels.get(name).cloned().unwrap_or_default()
    }

    fn unit(&self, name: &str) -> Option<&str> {
        Some(self.changes.now.descriptions.get(self.name)?.get(name)?.unit.as_str())
    }
}

/// What labels say, in a word or two.
fn place(labels: &BTreeMap<String, String>, without: &[&str]) -> String {
    let labels = labels.iter().filter(|(name, _)| !without.contains(&name.as_str()));
    labels.map(|(_, label)| label.as_str()).collect::<Vec<_>>().join(" ")
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl View {
    pub(super) fn new(changes: &Changes<'_>, timed: &Timed, events: Vec<Event>) -> Self {
        // Sets in the order in which the instance names them.
        let mut sets: Vec<Set<'_>> = Vec::new();
        for value in changes.now.values.iter().filter(|value| value.reason.is_none()) {
            let is_same = |set: &&mut Set<'_>| set.name == value.set && *set.labels == value.labels;
            if let Some(set) = sets.last_mut().filter(is_same) {
                set.values.insert(&value.name, value);
            } else {
                let values = [(value.name.as_str(), value)].into();
                sets.push(Set { labels: &value.labels, name: &value.set, values, changes });
            }
        }
        let of = |name: &'static str| sets.iter().filter(move |set| set.name == name);
        Self {
            age: Duration::from_nanos(changes.now.age_ns),
            between: Duration::from_secs_f64(changes.seconds.unwrap_or(0.0)),
            ports: ports(&sets),
            lanes: of("lane").map(lane).collect(),
            stages: stages(&sets, timed),
            drops: drops(changes),
            pools: of("pool").map(pool).collect(),
            latencies: sets
                .iter()
                .filter_map(|set| latency(set).or_else(|| histogram(set)).or_else(|| in_stage(set)))
                .collect(),
            events,
        }
    }
}

/// Ports; where lanes have none, their inputs and outputs, and a downstream's channels.
fn ports(sets: &[Set<'_>]) -> Vec<Port> {
    let mut all: BTreeMap<String, Port> = BTreeMap::new();
    let has_queues = sets.iter().any(|set| set.name == "queue");
    for set in sets {
        let (name, is_received, packets) = match set.name {
            "queue" => {
                let name = place(set.labels, &["direction", "queue", "driver"]);
                (name, set.label("direction") == "receive", "packets")
            }
            "channel" => (place(set.labels, &["function"]), false, "packets"),
            "input" if !has_queues => (set.label("input"), true, "received"),
            "output" if !has_queues => (set.label("output"), false, "sent"),
            _ => continue,
        };
        let port = all.entry(name.clone()).or_insert_with(|| Port { name, ..Port::default() });
        let traffic = if is_received { &mut port.received } else { &mut port.sent };
        traffic.packets += set.rate(packets);
        if set.values.contains_key("bytes") {
            *traffic.bits.get_or_insert(0.0) += 8.0 * set.rate("bytes");
        }
    }
    all.into_values().collect()
}

fn lane(set: &Set<'_>) -> Lane {
    let (busy, idle, packets) = (set.change("busy-cycles"), set.change("idle-cycles"), set.change("packets"));
    let all = busy.saturating_add(idle);
    Lane {
        name: place(set.labels, &[]),
        packets: set.rate("packets"),
        busy: share(busy, all),
        asleep: share(set.change("asleep-cycles"), all),
        cycles: share(busy, packets),
    }
}

/// Stages, and the steps of which some measure the cycles.
fn stages(sets: &[Set<'_>], timed: &Timed) -> Vec<Stage> {
    // Two downstreams have lanes of the same names.
    let owner = |set: &Set<'_>| place(set.labels, &["stage"]);
    let busy: BTreeMap<String, u64> = sets
        .iter()
        .filter(|set| set.name == "lane")
        .map(|set| (owner(set), set.change("busy-cycles")))
        .collect();
    let mut all = Vec::new();
    for set in sets {
        if set.name == "stage" {
            let cycles = timed.cycles(set.labels);
            let packets = set.change("processed").saturating_add(set.change("made"));
            let taken = cycles.map(|cycles| cycles * packets as f64);
            let busy = busy.get(&owner(set)).filter(|busy| **busy > 0);
            all.push(Stage {
                name: place(set.labels, &[]),
                packets: set.rate("processed"),
                made: Some(set.rate("made")),
                cycles,
                // If the lane was interrupted in one of the few bursts that were timed, they seem to take more than there is.
                share: taken.zip(busy).map(|(taken, busy)| (taken / *busy as f64).min(1.0)),
            });
        }
        for step in set.values.keys().filter_map(|name| name.strip_suffix("-cycles")) {
            let counted = format!("{step}-packets");
            if !set.values.contains_key(counted.as_str()) {
                continue;
            }
            let lane = owner(set);
            let cycles = set.change(&format!("{step}-cycles"));
            all.push(Stage {
                packets: set.rate(&counted),
                made: None,
                cycles: share(cycles, set.change(&counted)),
                share: share(cycles, busy.get(&lane).copied().unwrap_or(0)),
                name: format!("{lane} {step}"),
            });
        }
    }
    all
}

fn drops(changes: &Changes<'_>) -> Vec<Dropped> {
    let drop = |value: &Value| {
        let reason = value.reason.clone().filter(|_| value.value > 0)?;
        let described = changes.now.reasons.get(&reason);
        Some(Dropped {
            severity: described.map_or_else(String::new, |described| described.severity.clone()),
            place: place(&value.labels, &["driver", "direction"]),
            rate: changes.rate(changes.of(value)),
            total: value.value,
            reason,
        })
    };
    changes.now.values.iter().filter_map(drop).collect()
}

fn pool(set: &Set<'_>) -> Pool {
    Pool {
        name: place(set.labels, &[]),
        buffers: set.now("buffers"),
        outstanding: set.now("outstanding"),
        most: set.now("buffers").saturating_sub(set.now("lowest")),
        refused: set.rate("refused"),
    }
}

/// Of sets that add latencies up.
fn latency(set: &Set<'_>) -> Option<Latency> {
    let nanoseconds = |name: &str, value: f64| match set.unit(name)? {
        "nanoseconds" => Some(value),
        // The instance is on this machine, and has the same clock.
        "cycles" => Some(value / Clock::calibrated().cycles_per_second() as f64 * 1e9),
        _ => None,
    };
    let together = nanoseconds("latency", set.change("latency") as f64)?;
    let packets = if set.values.contains_key("timed") { "timed" } else { "packets" };
    let count = set.change(packets);
    Some(Latency {
        name: place(set.labels, &["function"]),
        packets: set.rate(packets),
        mean: (count > 0).then(|| together / count as f64),
        most: None,
        longest: set.values.get("longest").map(|longest| longest.value),
    })
}

/// Of sets that count how many times lie in which range.
fn histogram(set: &Set<'_>) -> Option<Latency> {
    if set.unit("sum")? != "nanoseconds" {
        return None;
    }
    let (count, most) = ranges(set, microseconds)?;
    Some(Latency {
        name: format!("{} {}", place(set.labels, &["function"]), set.name),
        packets: set.changes.rate(count),
        mean: share(set.change("sum"), count),
        most,
        longest: None,
    })
}

/// What packets took in a stage while it was timed.
fn in_stage(set: &Set<'_>) -> Option<Latency> {
    if set.name != "stage-timed" || set.now("packets") == 0 {
        return None;
    }
    let (_, most) = ranges(set, |bound| bound.parse().ok())?;
    let mean = share(set.change("cycles"), set.change("packets"));
    Some(Latency {
        name: place(set.labels, &[]),
        packets: set.rate("packets"),
        mean: mean.map(|cycles| cycles / Clock::calibrated().cycles_per_second() as f64 * 1e9),
        most: most.map(|most| format!("{most} cycles")),
        longest: None,
    })
}

/// How many times a set has counted in ranges, of which each goes from the one before to what `bound` reads in its name, and the range below which 99 % of
/// these are, or above. `None` if it has no ranges.
fn ranges(set: &Set<'_>, bound: impl Fn(&str) -> Option<u64>) -> Option<(u64, Option<String>)> {
    let mut ranges: Vec<(u64, &str, u64)> = set
        .values
        .keys()
        .filter_map(|name| {
            let text = name.strip_prefix("below-")?;
            Some((bound(text)?, text, set.change(name)))
        })
        .collect();
    ranges.sort_unstable();
    let (_, last, _) = ranges.last()?;
    let count = ranges.iter().fold(set.change("longer"), |all, (_, _, times)| all.saturating_add(*times));
    let mut below = 0_u64;
    let most = ranges.iter().find(|(_, _, times)| {
        below = below.saturating_add(*times);
        below as f64 >= 0.99 * count as f64
    });
    let most = most.map_or_else(|| format!("> {last}"), |(_, bound, _)| format!("< {bound}"));
    Some((count, (count > 0).then_some(most)))
}

/// What a bound such as `64us` says.
fn microseconds(bound: &str) -> Option<u64> {
    let units = [("us", 1), ("ms", 1_000), ("s", 1_000_000)];
    units.iter().find_map(|(unit, times)| bound.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(*times))
}

#[cfg(test)]
mod tests;
