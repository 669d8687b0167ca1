//! Made-up counters, for tests.

use warmlane::control::{Described, DescribedReason, Stats, Value};

/// A counter of something.
pub(super) fn value(labels: &[(&str, &str)], set: &str, name: &str, value: u64) -> Value {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Value { labels, set: set.to_owned(), name: name.to_owned(), reason: None, value }
}

/// Drops of a lane's forwarder.
pub(super) fn dropped(lane: &str, reason: &str, count: u64) -> Value {
    Value {
        reason: Some(reason.to_owned()),
        ..value(&[("lane", lane), ("stage", "forwarder")], "forward", "drops", count)
    }
}

/// Counters of an instance that is so many seconds old.
pub(super) fn stats(seconds: u64, values: Vec<Value>) -> Stats {
    let reason = |name: &str, severity: &str| {
        (name.to_owned(), DescribedReason { severity: severity.to_owned(), help: "Why.".to_owned() })
    };
    let in_unit = |name: &str, unit: &str| {
        (
            name.to_owned(),
            Described { unit: unit.to_owned(), help: String::new(), kind: "counter".to_owned() },
        )
    };
    let descriptions = [
        ("flow-delay", in_unit("latency", "nanoseconds")),
        ("latency", in_unit("sum", "nanoseconds")),
        ("receive", in_unit("latency", "cycles")),
    ];
    Stats {
        age_ns: seconds * 1_000_000_000,
        values,
        descriptions: descriptions.map(|(set, value)| (set.to_owned(), [value].into())).into(),
        reasons: [reason("no-route", "warning"), reason("no-buffer", "loss"), reason("policy", "notice")]
            .into(),
    }
}
