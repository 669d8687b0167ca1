//! What is shown as lines of text, for a screen of any size or for a pipe.

use super::model::Event;
use super::view::{Dropped, Lane, Latency, Pool, Port, Stage, Traffic, View};
use std::cmp::Ordering;
use std::time::Duration;

/// How a line is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Title,
    /// The title, if nothing is heard.
    Alarm,
    Head,
    Row,
    /// Worth a look.
    Warning,
    /// Packets are lost.
    Loss,
    /// Of little weight.
    Dim,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) style: Style,
    pub(super) text: String,
}

/// A part of the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Section {
    /// The beginning of each.
    #[default]
    All,
    Ports,
    Lanes,
    Stages,
    Drops,
    Pools,
    Latencies,
    Events,
}

impl Section {
    /// All, in the order of the keys 0 to 7.
    pub(super) const ORDER: [Self; 8] = [
        Self::All,
        Self::Ports,
        Self::Lanes,
        Self::Stages,
        Self::Drops,
        Self::Pools,
        Self::Latencies,
        Self::Events,
    ];

    /// What it is called.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Ports => "ports",
            Self::Lanes => "lanes",
            Self::Stages => "stages",
            Self::Drops => "drops",
            Self::Pools => "pools",
            Self::Latencies => "latency",
            Self::Events => "events",
        }
    }
}

/// What comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// What moves most.
    #[default]
    ByRate,
    /// As the instance lists it.
    AsListed,
}

/// What is to be seen of a view.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Choice {
    pub(super) section: Section,
    pub(super) order: Order,
    /// Rows of one section that are left out at its beginning.
    pub(super) skipped: usize,
}

/// A section as lines.
struct Table {
    section: Section,
    head: String,
    rows: Vec<Line>,
}

impl View {
    /// As so many lines at most.
    pub(super) fn lines(&self, choice: Choice, height: usize) -> Vec<Line> {
        let mut tables = self.tables(choice.order);
        if choice.section == Section::All {
            tables.retain(|table| !table.rows.is_empty());
            return together(&tables, height);
        }
        tables.retain(|table| table.section == choice.section);
        let mut lines: Vec<Line> = tables.iter().map(heading).collect();
        let rows: Vec<Line> = tables.into_iter().flat_map(|table| table.rows).collect();
        // There may have been more when it was scrolled.
        let skipped = choice.skipped.min(rows.len().saturating_sub(1));
        lines.extend(rows.into_iter().skip(skipped).take(height.saturating_sub(1)));
        if lines.len() == 1 {
            lines.push(Line { style: Style::Dim, text: "  nothing".to_owned() });
        }
        lines
    }

    fn tables(&self, order: Order) -> Vec<Table> {
        let by_rate = order == Order::ByRate;
        let table = |section, head: String, rows| Table { section, head, rows };
        vec![
            table(Section::Ports, columns("port", ["received/s", "bits/s", "sent/s", "bits/s"]), {
                let packets = |port: &Port| port.received.packets + port.sent.packets;
                sorted(&self.ports, by_rate.then_some(packets), Port::line)
            }),
            table(Section::Lanes, columns("lane", ["packets/s", "busy", "asleep", "cycles/packet"]), {
                sorted(&self.lanes, by_rate.then_some(|lane: &Lane| lane.packets), Lane::line)
            }),
            table(Section::Drops, drop_columns("drops", ["packets/s", "all"], "severity", "by"), {
                sorted(&self.drops, by_rate.then_some(|drop: &Dropped| drop.rate), Dropped::line)
            }),
            table(Section::Pools, columns("pool", ["in packets", "most taken", "buffers", "refused/s"]), {
                sorted(&self.pools, by_rate.then_some(|pool: &Pool| pool.outstanding as f64), Pool::line)
            }),
            table(Section::Stages, columns("stage", ["packets/s", "made/s", "cycles/packet", "share"]), {
                let weight = |stage: &Stage| stage.packets + stage.made.unwrap_or(0.0);
                sorted(&self.stages, by_rate.then_some(weight), Stage::line)
            }),
            table(Section::Latencies, columns("latency", ["packets/s", "mean", "99 %", "longest"]), {
                let mean = |one: &Latency| one.mean.unwrap_or(0.0);
                sorted(&self.latencies, by_rate.then_some(mean), Latency::line)
            }),
            table(Section::Events, "event".to_owned(), self.events.iter().map(Event::line).collect()),
        ]
    }
}

/// Each table gets its share of the lines: those that need less leave the rest to others. There are empty lines between them if
/// nothing has to give way to these.
fn together(tables: &[Table], height: usize) -> Vec<Line> {
    let rows: usize = tables.iter().map(|table| table.rows.len()).sum();
    let is_roomy = rows + (2 * tables.len()).saturating_sub(1) <= height;
    let mut shares = vec![0; tables.len()];
    let mut left = height.saturating_sub(tables.len());
    while left > 0 {
        let before = left;
        for (share, table) in shares.iter_mut().zip(tables) {
            if *share < table.rows.len() && left > 0 {
                *share += 1;
                left -= 1;
            }
        }
        if before == left {
            break;
        }
    }
    let mut lines = Vec::new();
    for (share, table) in shares.into_iter().zip(tables) {
        if is_roomy && !lines.is_empty() {
            lines.push(Line { style: Style::Row, text: String::new() });
        }
        let mut head = heading(table);
        if share < table.rows.len() {
            let name = table.head.split(' ').next().unwrap_or_default();
            let more = format!("{name} (+{}, key {})", table.rows.len() - share, key_of(table.section));
            let rest = table.head.get(22..).unwrap_or_default();
            head.text = if rest.is_empty() { more } else { format!("{more:<22}{rest}") };
        }
        lines.push(head);
        lines.extend(table.rows.iter().take(share).cloned());
    }
    lines.truncate(height);
    lines
}

/// The key that shows a section.
fn key_of(section: Section) -> usize {
    Section::ORDER.iter().position(|other| *other == section).unwrap_or(0)
}

fn heading(table: &Table) -> Line {
    Line { style: Style::Head, text: table.head.clone() }
}

/// A name and four columns to its right: with 78 columns in all, they fit a terminal of 80.
fn columns<T: AsRef<str>>(name: &str, values: [T; 4]) -> String {
    let mut text = format!("{:<22}", cut(name, 22));
    for value in values {
        text = format!("{text} {:>13}", value.as_ref());
    }
    text.trim_end().to_owned()
}

/// A name in so many columns: the end of it, which tells more.
fn cut(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let rest = text.chars().skip(length - width + 1);
    std::iter::once('…').chain(rest).collect()
}

/// Rows, those with most first, or as they are.
fn sorted<T>(all: &[T], by: Option<fn(&T) -> f64>, line: fn(&T) -> Line) -> Vec<Line> {
    let mut all: Vec<&T> = all.iter().collect();
    if let Some(by) = by {
        all.sort_by(|one, other| by(other).partial_cmp(&by(one)).unwrap_or(Ordering::Equal));
    }
    all.into_iter().map(line).collect()
}

/// A number with three digits and a letter for thousands.
pub(super) fn short(number: f64) -> String {
    let mut number = number;
    for letter in ["", "k", "M", "G"] {
        if number < 999.5 {
            return match letter {
                "" if number >= 10.0 || number == 0.0 => format!("{number:.0}"),
                "" => format!("{number:.1}"),
                _ if number < 9.995 => format!("{number:.2}{letter}"),
                _ if number < 99.95 => format!("{number:.1}{letter}"),
                _ => format!("{number:.0}{letter}"),
            };
        }
        number /= 1000.0;
    }
    format!("{number:.1}T")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn one_digit(number: f64) -> String {
    format!("{number:.1}")
}

fn time(nanoseconds: f64) -> String {
    match nanoseconds {
        short if short < 1e3 => format!("{short:.0} ns"),
        short if short < 1e6 => format!("{:.1} us", short / 1e3),
        short if short < 1e9 => format!("{:.1} ms", short / 1e6),
        long => format!("{:.1} s", long / 1e9),
    }
}

/// What isn't known is a dash.
fn known<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

fn row(text: String) -> Line {
    Line { style: Style::Row, text }
}

impl Port {
    fn line(&self) -> Line {
        let way = |traffic: Traffic| [short(traffic.packets), known(traffic.bits, short)];
        let ([received, bits_received], [sent, bits_sent]) = (way(self.received), way(self.sent));
        row(columns(&self.name, [received, bits_received, sent, bits_sent]))
    }
}

impl Lane {
    fn line(&self) -> Line {
        let (busy, asleep) = (known(self.busy, percent), known(self.asleep, percent));
        row(columns(&self.name, [short(self.packets), busy, asleep, known(self.cycles, one_digit)]))
    }
}

impl Stage {
    fn line(&self) -> Line {
        let (cycles, share) = (known(self.cycles, one_digit), known(self.share, percent));
        row(columns(&self.name, [short(self.packets), known(self.made, short), cycles, share]))
    }
}

/// As [`columns`], with more space for the place.
fn drop_columns(reason: &str, [rate, total]: [&str; 2], severity: &str, place: &str) -> String {
    format!("{:<22} {rate:>13} {total:>13}  {severity:<8}  {}", cut(reason, 22), cut(place, 16))
}

impl Dropped {
    fn line(&self) -> Line {
        let style = match self.severity.as_str() {
            _ if self.rate <= 0.0 => Style::Row,
            "loss" => Style::Loss,
            "warning" => Style::Warning,
            _ => Style::Row,
        };
        let counts = [short(self.rate), self.total.to_string()];
        let text =
            drop_columns(&self.reason, counts.each_ref().map(String::as_str), &self.severity, &self.place);
        Line { style, text }
    }
}

impl Pool {
    fn line(&self) -> Line {
        let fill = if self.buffers > 0 { self.outstanding as f64 / self.buffers as f64 } else { 0.0 };
        let style = if self.refused > 0.0 { Style::Loss } else { Style::Row };
        let held = format!("{} {:>7}", self.outstanding, percent(fill));
        let values = [held, self.most.to_string(), self.buffers.to_string(), short(self.refused)];
        Line { style, text: columns(&self.name, values) }
    }
}

impl Latency {
    fn line(&self) -> Line {
        let longest = known(self.longest, |longest| time(longest as f64));
        let most = known(self.most.clone(), |most| most);
        row(columns(&self.name, [short(self.packets), known(self.mean, time), most, longest]))
    }
}

impl Event {
    fn line(&self) -> Line {
        let style = if self.is_bad { Style::Warning } else { Style::Row };
        Line { style, text: format!("{:>9}  {}", age(self.age), self.text) }
    }
}

/// How old something is.
pub(super) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{:.1} s", age.as_secs_f64()),
        60..3600 => format!("{}:{:02}", seconds / 60, seconds % 60),
        _ => format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests;
