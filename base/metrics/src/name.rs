//! What a value is called.

use warmlane_counters::{Description, Kind};

/// In what a metric is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// In nothing: how often something happened.
    None,
    /// In what the registry has.
    Same(&'static str),
    /// In seconds, where the registry has nanoseconds: Prometheus wants base units.
    Seconds,
}

impl Unit {
    /// The unit as a word in names; empty if there is none.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::None => "",
            Self::Same(unit) => unit,
            Self::Seconds => "seconds",
        }
    }

    /// A value of the registry as text.
    pub fn value(&self, value: u64) -> String {
        const NANOSECONDS: u64 = 1_000_000_000;
        match self {
            // All digits: a quotient in floating point would lose some.
            Self::Seconds => format!("{}.{:09}", value / NANOSECONDS, value % NANOSECONDS),
            Self::None | Self::Same(_) => value.to_string(),
        }
    }
}

/// The name of a metric, made of its set's, its own and its unit: `warmlane_queue_packets`. As those are stable, so is this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The family's name, without the `_total` of counters.
    pub family: String,
    /// In what it is measured.
    pub unit: Unit,
    /// Whether it only grows.
    pub kind: Kind,
}

impl Name {
    /// Of a value of the registry.
    pub fn of(description: &Description) -> Self {
        let unit = match description.unit {
            "times" => Unit::None,
            "nanoseconds" => Unit::Seconds,
            unit => Unit::Same(unit),
        };
        let parts = ["warmlane", description.set, description.name];
        let parts: Vec<String> =
            parts.iter().filter(|part| !part.is_empty()).map(|part| word(part)).collect();
        let mut family = parts.join("_");
        let ends_with_unit =
            family.strip_suffix(unit.word()).is_some_and(|rest| rest.is_empty() || rest.ends_with('_'));
        if unit != Unit::None && !ends_with_unit {
            family = format!("{family}_{}", unit.word());
        }
        Self { family, unit, kind: description.kind() }
    }

    /// The name of its samples.
    pub fn sample(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.family),
            Kind::Gauge => self.family.clone(),
        }
    }
}

/// A word of the registry as part of a name: of lower-case letters, digits and underscores.
pub(crate) fn word(text: &str) -> String {
    let letter =
        |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '_' };
    text.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane_counters::Role;

    fn name(set: &'static str, name: &'static str, unit: &'static str, role: Role) -> String {
        Name::of(&Description { set, name, unit, help: "", role }).sample()
    }

    #[test]
    fn names_say_set_value_unit_and_that_counters_are_totals() {
        assert_eq!(name("queue", "packets", "packets", Role::Note), "warmlane_queue_packets_total");
        assert_eq!(
            name("forward", "received", "packets", Role::In),
            "warmlane_forward_received_packets_total"
        );
        assert_eq!(name("lane", "busy-polls", "polls", Role::Note), "warmlane_lane_busy_polls_total");
        assert_eq!(name("lane", "wake-ups", "times", Role::Note), "warmlane_lane_wake_ups_total");
        assert_eq!(name("pool", "available", "buffers", Role::Gauge), "warmlane_pool_available_buffers");
        assert_eq!(name("", "drops", "packets", Role::Note), "warmlane_drops_packets_total");
        assert_eq!(name("gap", "longest", "nanoseconds", Role::Peak), "warmlane_gap_longest_seconds");
        assert_eq!(name("a", "kilobytes", "bytes", Role::Gauge), "warmlane_a_kilobytes_bytes");
    }

    #[test]
    fn seconds_keep_all_digits_of_nanoseconds() {
        assert_eq!(Unit::Seconds.value(1_000_000_007), "1.000000007");
        assert_eq!(Unit::Seconds.value(u64::MAX), "18446744073.709551615");
        assert_eq!(Unit::Same("bytes").value(u64::MAX), u64::MAX.to_string());
    }
}
