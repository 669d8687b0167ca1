//! A trial's result as text.

use std::fmt::Write as _;
use warmlane::functions::generator::{Latency, TrialResult};

/// As tables.
pub(super) fn text(result: &TrialResult) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(result, &mut text);
    text
}

/// Intervals of a soak that are listed.
const INTERVALS: usize = 60;

/// The same, with what happened when.
pub(super) fn soak(result: &TrialResult) -> String {
    let mut text = self::text(result);
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "\n  {:>12} {:>14} {:>14} {:>24} {:>14} {:>14}",
        "until second", "sent pps", "received pps", "not yet arrived, or lost", "mean latency", "worst"
    );
    for part in result.intervals(INTERVALS) {
        let rate = |count: u64| count as f64 / part.length;
        let latency = |known: Option<u64>| known.map_or_else(|| "-".to_owned(), time);
        let _ = writeln!(
            text,
            "  {:>12.1} {:>14.0} {:>14.0} {:>24} {:>14} {:>14}",
            part.seconds,
            rate(part.sent),
            rate(part.received),
            part.missing,
            latency(part.mean_latency),
            latency(part.worst_latency)
        );
    }
    text
}

/// Streams that are listed one by one.
const LISTED: usize = 20;

fn write(result: &TrialResult, text: &mut String) -> std::fmt::Result {
    if let Some(why) = &result.void {
        writeln!(text, "VOID, no result: {why}\n")?;
    }
    let asked = result
        .asked_packets_per_second
        .map_or_else(|| "as many as possible".to_owned(), |rate| format!("{rate:.0} pps"));
    writeln!(
        text,
        "asked {asked}; sent {:.0} pps, {:.3} Gbit/s in frames, {:.3} Gbit/s on the wire, for {:.3} s\n",
        result.sent_packets_per_second,
        result.sent_bits_per_second_l2 / 1e9,
        result.sent_bits_per_second_l1 / 1e9,
        result.seconds
    )?;
    let unsent = result.unsent;
    line(text, "offered", result.offered)?;
    line(text, "= sent", result.sent)?;
    line(text, "+ unsent", unsent.total)?;
    for (name, count) in [
        ("lane held up", unsent.late),
        ("refused by port", unsent.refused),
        ("dropped by port", unsent.dropped),
    ] {
        detail(text, name, count)?;
    }
    if let Some(received) = &result.received {
        writeln!(text)?;
        line(text, "sent", result.sent)?;
        line(text, "= received", received.packets)?;
        line(text, "+ corrupted", received.corrupted)?;
        line(text, "+ lost", received.lost)?;
        writeln!(text, "  loss ratio                       {:>13.6} %", received.loss_ratio * 100.0)?;
        for (name, count) in [
            ("duplicated", received.disorder.duplicated),
            ("reordered", received.disorder.reordered),
            ("by up to", received.disorder.reorder_extent),
            ("late", received.late),
            ("order unknown", received.disorder.unjudged),
            ("of another trial", received.stale),
            ("foreign", received.foreign),
        ] {
            detail(text, name, count)?;
        }
        if let Some(latency) = &received.latency {
            writeln!(
                text,
                "\n  latency            minimum     median         99       99.9      99.99    maximum     jitter"
            )?;
            self::latency(text, "all", latency)?;
        }
    }
    streams(result, text)?;
    let departures = &result.departures;
    writeln!(
        text,
        "\ngaps between departures: median {} ns, 99 % {} ns, 99.9 % {} ns, longest {} ns{}; {:.1} % of packets left together with the one before",
        departures.median,
        departures.p99,
        departures.p99_9,
        departures.maximum,
        departures.ideal.map_or_else(String::new, |ideal| format!(" (ideal {ideal:.0} ns)")),
        departures.together * 100.0
    )?;
    for note in &result.notes {
        writeln!(text, "note: {note}")?;
    }
    Ok(())
}

fn line(text: &mut String, name: &str, count: u64) -> std::fmt::Result {
    writeln!(text, "  {name:<32} {count:>14}")
}

/// Shown if there is something.
fn detail(text: &mut String, name: &str, count: u64) -> std::fmt::Result {
    if count > 0 { writeln!(text, "      {name:<28} {count:>14}") } else { Ok(()) }
}

fn latency(text: &mut String, name: &str, latency: &Latency) -> std::fmt::Result {
    write!(text, "  {name:<14}")?;
    for time in [
        latency.minimum,
        latency.median,
        latency.p99,
        latency.p99_9,
        latency.p99_99,
        latency.maximum,
        latency.jitter,
    ] {
        write!(text, " {:>10}", self::time(time))?;
    }
    writeln!(text)
}

fn time(nanoseconds: u64) -> String {
    match nanoseconds {
        0..10_000 => format!("{nanoseconds} ns"),
        10_000..10_000_000 => format!("{:.1} us", nanoseconds as f64 / 1e3),
        _ => format!("{:.1} ms", nanoseconds as f64 / 1e6),
    }
}

fn streams(result: &TrialResult, text: &mut String) -> std::fmt::Result {
    if result.streams.len() < 2 || result.received.is_none() {
        return Ok(());
    }
    writeln!(
        text,
        "\n  {:<14} {:>12} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "stream", "sent", "received", "lost", "twice", "reordered", "median", "99 %"
    )?;
    for stream in result.streams.iter().take(LISTED) {
        let quantile = |pick: fn(&Latency) -> u64| {
            stream.latency.as_ref().map_or_else(|| "-".to_owned(), |latency| time(pick(latency)))
        };
        writeln!(
            text,
            "  {:<14} {:>12} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10}",
            stream.name,
            stream.sent,
            stream.received,
            stream.lost,
            stream.duplicated,
            stream.reordered,
            quantile(|latency| latency.median),
            quantile(|latency| latency.p99)
        )?;
    }
    if let Some(more) = result.streams.len().checked_sub(LISTED).filter(|more| *more > 0) {
        writeln!(text, "  and {more} more, all in the JSON result")?;
    }
    Ok(())
}
