//! What is asked and answered: version 1 of the protocol.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use warmlane_counters::{Kind, Registry, Severity};

/// The version that this crate speaks.
pub const VERSION: u32 = 1;

/// Longest request, in bytes, without its newline.
pub const LONGEST_REQUEST: usize = 4096;

/// What every instance can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// What it is: an [`Instance`].
    Instance {},
    /// What it has counted so far: [`Stats`].
    Stats {},
    /// What leads where in it: [`Graphs`](crate::Graphs).
    Graph {},
    /// How its packet buffers lie over the sets of a cache: [`Layout`](crate::Layout).
    Layout {},
}

impl Request {
    /// The words for `ask` that are understood here.
    const WORDS: [&'static str; 4] = ["instance", "stats", "graph", "layout"];

    /// Reads a request; `None` if it is not one of these, so that it may be one that this instance alone knows.
    ///
    /// # Errors
    /// A sentence that says what is wrong with one of these.
    pub fn parse(line: &[u8]) -> Option<Result<Self, String>> {
        let word = word(line)?;
        Self::WORDS.contains(&word.as_str()).then(|| {
            serde_json::from_slice(line)
                .map_err(|error| format!("that is not how \"{word}\" is asked: {error}"))
        })
    }
}

/// What a request asks for, if it is one.
fn word(line: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Word {
        ask: String,
    }
    // Serde takes a list of a struct's fields for one, too.
    let is_object = line.trim_ascii_start().starts_with(b"{");
    let word: Word = is_object.then(|| serde_json::from_slice(line).ok())??;
    Some(word.ask)
}

/// Whether a line is a request for this: an object whose field `ask` says so.
pub fn asks_for(line: &[u8], what: &str) -> bool {
    word(line).is_some_and(|word| word == what)
}

/// An answer that says why there is no other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// A sentence.
    pub error: String,
}

/// What an instance is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// The version of the protocol that it speaks.
    pub protocol: u32,
    /// The command that runs: `demo`, `forward`, `router`, `gen`, `docsis`.
    pub kind: String,
    /// What it is called: its socket's file name without `.sock`.
    pub name: String,
    /// The number of its process.
    pub pid: u32,
    /// When it began, in seconds since 1970 (UTC).
    pub since: u64,
    /// Which Warmlane it is.
    pub version: String,
}

/// What an instance has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Nanoseconds since the instance began, by a clock that is never set.
    pub age_ns: u64,
    /// All values, in the order in which their sources were added.
    pub values: Vec<Value>,
    /// What the values mean: by set, then by name.
    pub descriptions: BTreeMap<String, BTreeMap<String, Described>>,
    /// What the reasons of drops mean, by name.
    pub reasons: BTreeMap<String, DescribedReason>,
}

/// A value as it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// What it belongs to: such as `port`, `direction`, `queue`, `lane`, `stage`, `pool`.
    pub labels: BTreeMap<String, String>,
    /// The set of counters that it is of.
    pub set: String,
    /// Its name there.
    pub name: String,
    /// Of drops: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How much.
    pub value: u64,
}

/// What a value means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// What is counted: packets, bytes, cycles.
    pub unit: String,
    /// A sentence or more.
    pub help: String,
    /// `counter` if it only grows (and wraps at 2⁶⁴), `gauge` if it goes up and down.
    pub kind: String,
}

/// What a reason to drop means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescribedReason {
    /// How much it should worry: `notice`, `warning` or `loss`.
    pub severity: String,
    /// A sentence.
    pub help: String,
}

impl Stats {
    /// Reads everything in a registry.
    pub fn read(registry: &Registry, age_ns: u64) -> Self {
        let mut stats = Self { age_ns, ..Self::default() };
        registry.read(|labels, entry| {
            let description = entry.description;
            let set = stats.descriptions.entry(description.set.to_owned()).or_default();
            set.entry(description.name.to_owned()).or_insert_with(|| Described {
                unit: description.unit.to_owned(),
                help: description.help.to_owned(),
                kind: match description.kind() {
                    Kind::Counter => "counter",
                    Kind::Gauge => "gauge",
                }
                .to_owned(),
            });
            if let Some(reason) = entry.reason {
                stats.reasons.entry(reason.name.to_owned()).or_insert_with(|| DescribedReason {
                    severity: match reason.severity {
                        Severity::Notice => "notice",
                        Severity::Warning => "warning",
                        Severity::Loss => "loss",
                    }
                    .to_owned(),
                    help: reason.sentence.to_owned(),
                });
            }
            stats.values.push(Value {
                labels: labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
                set: description.set.to_owned(),
                name: description.name.to_owned(),
                reason: entry.reason.map(|reason| reason.name.to_owned()),
                value: entry.value,
            });
        });
        stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_counters::{Labels, counters, drop_reasons};

    drop_reasons! {
        /// Why the tests drop.
        enum Why {
            /// It is too long.
            Long: "too-long", Warning;
        }
    }

    counters! {
        /// A queue's.
        struct QueueCounters => QueueCountersView, drops by Why {
            /// Frames received.
            packets: In, "packets";
        }
    }

    #[test]
    fn common_requests_are_read_and_others_left_to_the_instance() {
        assert_eq!(Request::parse(br#"{"ask":"stats"}"#), Some(Ok(Request::Stats {})));
        assert_eq!(Request::parse(br#"{"ask":"instance"}"#), Some(Ok(Request::Instance {})));
        assert_eq!(Request::parse(br#"{"ask":"graph"}"#), Some(Ok(Request::Graph {})));
        assert_eq!(Request::parse(br#"{"ask":"layout"}"#), Some(Ok(Request::Layout {})));
        for others in
            [&br#"{"ask":"routes","limit":3}"#[..], b"", b"{}", b"\xff", b"[\"stats\"]", b" [\"stats\"]"]
        {
            assert_eq!(Request::parse(others), None);
        }
        let wrong = Request::parse(br#"{"ask":"stats","of":"eth0"}"#).unwrap().unwrap_err();
        assert!(wrong.contains("\"stats\"") && wrong.contains("`of`"), "{wrong}");
        for word in Request::WORDS {
            let line = serde_json::json!({ "ask": word }).to_string();
            assert!(matches!(Request::parse(line.as_bytes()), Some(Ok(_))), "{word}");
        }
    }

    #[test]
    fn stats_are_all_values_with_what_they_mean_and_survive_the_wire() {
        let (registry, set) = (Registry::new(), QueueCounters::new());
        registry.add(Labels::new().with("port", "west").with("queue", 0), set.view());
        set.packets().add(u64::MAX);
        set.drops().count(Why::Long, 2);
        let stats = Stats::read(&registry, 7);
        let line = serde_json::to_string(&stats).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Stats>(&line).unwrap(), stats);
        let [packets, drops] = &stats.values[..] else { panic!("{stats:?}") };
        assert_eq!((packets.name.as_str(), packets.value, &packets.reason), ("packets", u64::MAX, &None));
        assert_eq!((drops.reason.as_deref(), drops.value), (Some("too-long"), 2));
        assert_eq!(packets.labels["port"], "west");
        let described = &stats.descriptions["queue"]["packets"];
        assert_eq!((described.unit.as_str(), described.kind.as_str()), ("packets", "counter"));
        assert_eq!(stats.reasons["too-long"].severity, "warning");
        assert_eq!(stats.reasons["too-long"].help, "It is too long.");
    }
}
