//! `warmlane stats`

use crate::changes::Changes;
use crate::instances::InstanceFlags;
use crate::messages;
use std::fmt::Write as _;
use std::time::Duration;
use warmlane::control::{Request, Stats, Value};

/// Show what a running instance has counted.
///
/// Everything in its registry of counters, with unit and meaning: ports and their queues, lanes and their stages, drops by reason, pools.
/// Reasons for which nothing was dropped are left out, but not in JSON.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    instance: InstanceFlags,
    /// Print one JSON object on a line (docs/operate.md).
    #[arg(long)]
    json: bool,
    /// Show it again and again, with the change a second, every INTERVAL seconds; 1 if not given.
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = interval)]
    watch: Option<Duration>,
    /// Only values whose labels and name, as they are shown, contain this, such as drops or port=west.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  Of the only instance that runs:
    warmlane stats

  What is dropped by the router, and how fast, every five seconds:
    warmlane stats router --only drops --watch=5

  All that was received, for a script:
    warmlane stats router --json | jq '[.values[]
      | select(.set == \"queue\" and .labels.direction == \"receive\"
          and .name == \"packets\") | .value] | add'";

/// A time between two looks.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.01..=86_400.0).contains(seconds));
    let seconds = seconds.ok_or("give a number of seconds from 0.01 to 86400, as in 2.5")?;
    Ok(Duration::from_secs_f64(seconds))
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut client = arguments.instance.connect()?;
    let mut before: Option<Stats> = None;
    loop {
        let mut stats: Stats = client.ask(&Request::Stats {})?;
        if let Some(only) = &arguments.only {
            stats.values.retain(|value| contains(value, only));
        }
        if arguments.json {
            messages::print(format_args!("{}\n", serde_json::to_string(&stats)?))?;
        } else {
            messages::print(text(&stats, before.as_ref()))?;
        }
        let Some(interval) = arguments.watch else { return Ok(()) };
        before = Some(stats);
        std::thread::sleep(interval);
    }
}

fn contains(value: &Value, text: &str) -> bool {
    format!("{} {}", labels(value), name(value)).contains(text)
}

/// What it is called in the table.
fn name(Value { set, name, reason, .. }: &Value) -> String {
    match reason {
        Some(reason) => format!("{set} {name} {reason}"),
        None => format!("{set} {name}"),
    }
}

/// The line above all values of what it belongs to.
fn labels(value: &Value) -> String {
    let labels = value.labels.iter().map(|(name, label)| format!("{name}={label}"));
    labels.collect::<Vec<_>>().join(" ")
}

/// Values below the labels of what they belong to; with earlier ones their change a second, too.
fn text(stats: &Stats, before: Option<&Stats>) -> String {
    let mut text = String::new();
    let changes = Changes::new(stats, before);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "after {:.1} s", Duration::from_nanos(stats.age_ns).as_secs_f64());
    let mut shown = None;
    for value in stats.values.iter().filter(|value| value.reason.is_none() || value.value > 0) {
        if shown != Some(&value.labels) {
            let _ = writeln!(text, "\n{}", labels(value));
            shown = Some(&value.labels);
        }
        let described = stats.descriptions.get(&value.set).and_then(|set| set.get(&value.name));
        let name = name(value);
        let help = match &value.reason {
            Some(reason) => stats.reasons.get(reason).map(|reason| reason.help.as_str()),
            None => described.map(|described| described.help.as_str()),
        };
        let _ = write!(text, "  {name:<34} {:>16} ", value.value);
        let is_counter = described.is_none_or(|described| described.kind == "counter");
        match changes.seconds {
            Some(_) if is_counter => {
                let _ = write!(text, "{:>14.1}/s ", changes.rate(changes.of(value)));
            }
            Some(_) => {
                let _ = write!(text, "{:>17}", "");
            }
            None => {}
        }
        let unit = described.map_or("", |described| described.unit.as_str());
        let _ = writeln!(text, "{unit:<8} {}", help.unwrap_or_default());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane::control::{Described, DescribedReason};

    fn stats(age_ns: u64, packets: u64, dropped: u64) -> Stats {
        let value = |name: &str, reason: Option<&str>, value| Value {
            labels: [("port".to_owned(), "west".to_owned())].into(),
            set: "queue".to_owned(),
            name: name.to_owned(),
            reason: reason.map(str::to_owned),
            value,
        };
        let described = |kind: &str| Described {
            unit: "packets".to_owned(),
            help: "They came.".to_owned(),
            kind: kind.to_owned(),
        };
        let set = [("packets", "counter"), ("inside", "gauge"), ("drops", "counter")];
        let set = set.map(|(name, kind)| (name.to_owned(), described(kind))).into();
        let why = DescribedReason { severity: "loss".to_owned(), help: "It was full.".to_owned() };
        Stats {
            age_ns,
            values: vec![
                value("packets", None, packets),
                value("inside", None, 3),
                value("drops", Some("full"), dropped),
            ],
            descriptions: [("queue".to_owned(), set)].into(),
            reasons: [("full".to_owned(), why)].into(),
        }
    }

    #[test]
    fn values_are_shown_with_unit_and_meaning_and_no_drops_are_not() {
        let shown = text(&stats(1_500_000_000, 70, 0), None);
        assert!(shown.starts_with("after 1.5 s\n\nport=west\n"), "{shown}");
        let lines: Vec<Vec<&str>> =
            shown.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["queue", "packets", "70", "packets", "They", "came."]);
        assert_eq!(lines.len(), 2, "{shown}");
    }

    #[test]
    fn counters_have_a_change_a_second_also_past_the_end_and_gauges_have_none() {
        let (before, now) = (stats(1_000_000_000, u64::MAX, 0), stats(3_000_000_000, 19, 4));
        let shown = text(&now, Some(&before));
        assert!(
            shown.contains("10.0/s") && shown.contains("2.0/s") && shown.contains("It was full."),
            "{shown}"
        );
        assert_eq!(shown.matches("/s").count(), 2, "{shown}");
    }

    #[test]
    fn values_are_chosen_by_what_is_shown_of_them() {
        let all = stats(0, 1, 1).values;
        let chosen = |text| all.iter().filter(|value| contains(value, text)).count();
        for (text, count) in [("queue", 3), ("west", 3), ("full", 1), ("insi", 1), ("nothing", 0)] {
            assert_eq!(chosen(text), count, "{text}");
        }
        for (text, count) in [
            ("port=west", 3),
            ("port=w", 3),
            ("queue drops full", 1),
            ("port=west queue p", 1),
            ("port=east", 0),
        ] {
            assert_eq!(chosen(text), count, "{text}");
        }
    }

    #[test]
    fn an_interval_is_neither_nothing_nor_endless() {
        assert_eq!(interval("2.5"), Ok(Duration::from_millis(2500)));
        for wrong in ["0", "-1", "nan", "inf", "x", "1e9"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
