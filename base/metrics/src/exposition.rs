//! A registry as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use warmlane_counters::{Entry, Kind, Labels, Registry, Severity};

use crate::name::{Name, word};

/// How the text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Prometheus's own of before, version 0.0.4.
    Text,
}

impl Format {
    /// Its media type.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// What is said of the instance itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The command that runs: `demo`, `forward`, `router`, `gen`, `docsis`.
    pub kind: String,
    /// Which Warmlane it is.
    pub version: String,
    /// When it began, in seconds since 1970 (UTC).
    pub since: u64,
}

impl Identity {
    /// Of this process, which begins now.
    pub fn new(kind: &str) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { kind: kind.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), since }
    }
}

/// A metric and its samples by their labels, as those are written.
struct Family {
    name: Name,
    help: &'static str,
    samples: BTreeMap<String, Entry>,
}

/// Everything that a registry has, and who counted it.
///
/// Values that have name and labels in common are one sample, as the formats want it: their sum, of peaks the highest.
pub fn expose(registry: &Registry, identity: &Identity, format: Format) -> String {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    registry.read(|labels, entry| {
        let name = Name::of(&entry.description);
        let family = families.entry(name.family.clone()).or_insert_with(|| Family {
            name,
            help: entry.description.help,
            samples: BTreeMap::new(),
        });
        let samples = &mut family.samples;
        samples
            .entry(written(labels, &entry))
            .and_modify(|other| other.value = other.together(entry.value))
            .or_insert(entry);
    });
    let mut text = String::new();
    describe_instance(&mut text, identity, format);
    for Family { name, help, samples } in families.values() {
        let kind = match name.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let sample = name.sample();
        let described = if format == Format::OpenMetrics { &name.family } else { &sample };
        describe(&mut text, described, kind, name.unit.word(), help, format);
        for (labels, entry) in samples {
            line(&mut text, &sample, labels, &name.unit.value(entry.value));
        }
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn describe_instance(text: &mut String, identity: &Identity, format: Format) {
    let (name, kind) = match format {
        Format::OpenMetrics => ("warmlane_build", "info"),
        Format::Text => ("warmlane_build_info", "gauge"),
    };
    describe(text, name, kind, "", "Which Warmlane this is, and which of its commands.", format);
    let mut labels = String::new();
    label(&mut labels, "kind", &identity.kind);
    label(&mut labels, "version", &identity.version);
    line(text, "warmlane_build_info", &labels, "1");
    let began = "process_start_time_seconds";
    describe(text, began, "gauge", "seconds", "When the instance began, since 1970 (UTC).", format);
    line(text, began, "", &identity.since.to_string());
}

fn describe(text: &mut String, name: &str, kind: &str, unit: &str, help: &str, format: Format) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# TYPE {name} {kind}");
    if format == Format::OpenMetrics && !unit.is_empty() {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
    let _ = write!(text, "# HELP {name} ");
    escape(text, help, format == Format::OpenMetrics);
    text.push('\n');
}

fn line(text: &mut String, name: &str, labels: &str, value: &str) {
    let _ = match labels {
        "" => writeln!(text, "{name} {value}"),
        _ => writeln!(text, "{name}{{{labels}}} {value}"),
    };
}

/// The labels of a value. Drops have their reason among them, and how much it should worry.
fn written(labels: &Labels, entry: &Entry) -> String {
    let mut text = String::new();
    for (name, value) in labels.iter() {
        label(&mut text, &word(name), value);
    }
    if let Some(reason) = entry.reason {
        let severity = match reason.severity {
            Severity::Notice => "notice",
            Severity::Warning => "warning",
            Severity::Loss => "loss",
        };
        label(&mut text, "reason", reason.name);
        label(&mut text, "severity", severity);
    }
    text
}

fn label(text: &mut String, name: &str, value: &str) {
    if !text.is_empty() {
        text.push(',');
    }
    let _ = write!(text, "{name}=\"");
    escape(text, value, true);
    text.push('"');
}

/// Appends a text in which backslashes and ends of lines are escaped, and quotation marks where asked.
fn escape(text: &mut String, raw: &str, quotes: bool) {
    for letter in raw.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if quotes => text.push_str("\\\""),
            other => text.push(other),
        }
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
            /// There was no space.
            Full: "full", Loss;
        }
    }

    counters! {
        /// A queue's.
        struct QueueCounters => QueueCountersView, drops by Why {
            /// Frames received, "as they were".
            packets: In, "packets";
            /// The longest wait.
            longest: Peak, "nanoseconds";
        }
    }

    fn registry() -> (Registry, QueueCounters, QueueCounters) {
        let (registry, one, two) = (Registry::new(), QueueCounters::new(), QueueCounters::new());
        registry.add(Labels::new().with("port", "we\"st\\\n").with("queue", 0), one.view());
        registry.add(Labels::new().with("port", "east"), two.view());
        one.packets().add(u64::MAX);
        one.drops().count(Why::Full, 2);
        two.packets().add(3);
        two.longest().raise(1_500_000_000);
        (registry, one, two)
    }

    fn identity() -> Identity {
        Identity { kind: "forward".to_owned(), version: "1.2.3".to_owned(), since: 1_700_000_000 }
    }

    #[test]
    fn openmetrics_has_types_units_help_and_an_end() {
        let (registry, ..) = registry();
        let text = expose(&registry, &identity(), Format::OpenMetrics);
        let expected = "\
# TYPE warmlane_build info
# HELP warmlane_build Which Warmlane this is, and which of its commands.
warmlane_build_info{kind=\"forward\",version=\"1.2.3\"} 1
# TYPE process_start_time_seconds gauge
# UNIT process_start_time_seconds seconds
# HELP process_start_time_seconds When the instance began, since 1970 (UTC).
process_start_time_seconds 1700000000
# TYPE warmlane_queue_drops_packets counter
# UNIT warmlane_queue_drops_packets packets
# HELP warmlane_queue_drops_packets Drops, by reason.
warmlane_queue_drops_packets_total{port=\"east\",reason=\"full\",severity=\"loss\"} 0
warmlane_queue_drops_packets_total{port=\"east\",reason=\"too-long\",severity=\"warning\"} 0
warmlane_queue_drops_packets_total{port=\"we\\\"st\\\\\\n\",queue=\"0\",reason=\"full\",severity=\"loss\"} 2
warmlane_queue_drops_packets_total{port=\"we\\\"st\\\\\\n\",queue=\"0\",reason=\"too-long\",severity=\"warning\"} 0
# TYPE warmlane_queue_longest_seconds gauge
# UNIT warmlane_queue_longest_seconds seconds
# HELP warmlane_queue_longest_seconds The longest wait.
warmlane_queue_longest_seconds{port=\"east\"} 1.500000000
warmlane_queue_longest_seconds{port=\"we\\\"st\\\\\\n\",queue=\"0\"} 0.000000000
# TYPE warmlane_queue_packets counter
# UNIT warmlane_queue_packets packets
# HELP warmlane_queue_packets Frames received, \\\"as they were\\\".
warmlane_queue_packets_total{port=\"east\"} 3
warmlane_queue_packets_total{port=\"we\\\"st\\\\\\n\",queue=\"0\"} 18446744073709551615
# EOF
";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_older_format_describes_samples_and_has_no_units() {
        let (registry, ..) = registry();
        let text = expose(&registry, &identity(), Format::Text);
        assert!(text.contains("# TYPE warmlane_queue_packets_total counter\n"), "{text}");
        assert!(
            text.contains("# HELP warmlane_queue_packets_total Frames received, \"as they were\".\n"),
            "{text}"
        );
        assert!(text.contains("# TYPE warmlane_build_info gauge\n"), "{text}");
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
        let samples = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        assert_eq!(samples(&text), samples(&expose(&registry, &identity(), Format::OpenMetrics)));
    }

    #[test]
    fn what_has_name_and_labels_in_common_is_one_sample() {
        let (registry, one, two) = (Registry::new(), QueueCounters::new(), QueueCounters::new());
        for set in [&one, &two] {
            registry.add(Labels::new().with("port", "a"), set.view());
            set.packets().add(2);
        }
        one.longest().raise(2_000_000_000);
        two.longest().raise(1_000_000_000);
        let text = expose(&registry, &identity(), Format::Text);
        assert!(text.contains("\nwarmlane_queue_packets_total{port=\"a\"} 4\n"), "{text}");
        assert!(text.contains("\nwarmlane_queue_longest_seconds{port=\"a\"} 2.000000000\n"), "{text}");
        assert_eq!(text.matches("\nwarmlane_queue_packets_total{").count(), 1);
    }
}
