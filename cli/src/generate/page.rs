//! Results as a self-contained HTML page, with plots.

use super::report;
use super::tables::{self, Table};
use maud::{Markup, html};
use serde::Serialize;
use warmlane::functions::generator::methods::Measured;
use warmlane::functions::generator::methods::suite::{SizeResult, SuiteResult};
use warmlane::functions::generator::{Interval, Latency, TrialResult};
use warmlane_lab::machine::Machine;
use warmlane_lab::page;
use warmlane_lab::plot::{Axis, Figure, Marks, Series, figures};

/// The page of a trial or a soak.
pub(super) fn trial(result: &TrialResult) -> anyhow::Result<String> {
    let per_second = |count: fn(&Interval) -> u64| {
        let intervals = result.intervals(500);
        intervals.iter().map(|part| (part.seconds, count(part) as f64 / part.length)).collect()
    };
    let mut rates = vec![Series { name: "sent".to_owned(), points: per_second(|part| part.sent) }];
    let mut pictures = Vec::new();
    if let Some(received) = &result.received {
        rates.push(Series { name: "received".to_owned(), points: per_second(|part| part.received) });
        if let Some(latency) = &received.latency {
            pictures.push(latencies(vec![curve("all streams", latency)]));
        }
    }
    pictures.insert(
        0,
        Figure {
            title: "Rate over time".to_owned(),
            x: Axis::linear("seconds"),
            y: Axis::linear("packets a second"),
            marks: Marks::Lines(rates),
        },
    );
    let latency = |pick: fn(&Interval) -> Option<u64>| -> Points {
        let known = |part: &Interval| Some((part.seconds, pick(part)?.max(1) as f64 / 1e3));
        result.intervals(500).iter().filter_map(known).collect()
    };
    let mean = latency(|part| part.mean_latency);
    if mean.len() > 1 {
        let worst = latency(|part| part.worst_latency);
        pictures.push(Figure {
            title: "Latency over time".to_owned(),
            x: Axis::linear("seconds"),
            y: Axis::logarithmic("microseconds"),
            marks: Marks::Lines(vec![
                Series { name: "mean".to_owned(), points: mean },
                Series { name: "worst".to_owned(), points: worst },
            ]),
        });
    }
    let departures = result.departures.histogram.iter().filter(|(gap, _)| *gap > 0);
    pictures.push(Figure {
        title: "Gaps between departures".to_owned(),
        x: Axis::logarithmic("nanoseconds"),
        y: Axis::linear("packets"),
        marks: Marks::Lines(vec![Series {
            name: result
                .departures
                .ideal
                .map_or_else(|| "gaps".to_owned(), |ideal| format!("ideal {ideal:.0} ns")),
            points: departures.map(|&(gap, count)| (gap as f64, count as f64)).collect(),
        }]),
    });
    let body = html! {
        (head())
        @if let Some(why) = &result.void { p.not-kept { "Void, no result: " (why) } }
        pre { (report::text(result)) }
        (page::picture(&figures(&pictures, None)?))
    };
    finish("A trial by warmlane gen", &body, result)
}

/// The page of a method's tests.
pub(super) fn suite(result: &SuiteResult, tables: &[Table]) -> anyhow::Result<String> {
    let pictures = pictures(result);
    let body = html! {
        (head())
        @for table in tables {
            section {
                h2 { (table.title) }
                p { (table.about) }
                (page::table(&table.heads, &table.rows, |column| table.is_text(column)))
            }
        }
        @if !pictures.is_empty() {
            section { h2 { "Pictures" } (page::picture(&figures(&pictures, None)?)) }
        }
    };
    finish("Tests by warmlane gen", &body, result)
}

fn head() -> Markup {
    let command: Vec<String> = std::env::args().collect();
    html! {
        dl {
            dt { "Command" } dd { code { (command.join(" ")) } }
            dt { "Version" } dd { (env!("CARGO_PKG_VERSION")) }
            dt { "Machine" } dd { (Machine::this()) }
        }
    }
}

fn finish(title: &str, body: &Markup, data: &impl Serialize) -> anyhow::Result<String> {
    Ok(page::document(title, body, &serde_json::to_string(data)?))
}

/// Points in a picture.
type Points = Vec<(f64, f64)>;

fn pictures(result: &SuiteResult) -> Vec<Figure> {
    let lines = |points: &dyn Fn(&SizeResult) -> Option<Points>| -> Vec<Series> {
        let named = |of: &SizeResult| {
            Some(Series { name: format!("{} bytes", tables::size(of)), points: points(of)? })
        };
        result.sizes.iter().filter_map(named).collect()
    };
    let mut pictures = Vec::new();
    let found: Vec<&SizeResult> = result.sizes.iter().filter(|of| of.throughput.is_some()).collect();
    if !found.is_empty() {
        let rate = |of: &&SizeResult| of.throughput.as_ref().and_then(|found| found.packets_per_second);
        let mut series = vec![(
            "throughput".to_owned(),
            found.iter().map(|of| rate(of).unwrap_or(f64::NAN)).collect::<Vec<f64>>(),
        )];
        if found.iter().all(|of| of.line.is_some()) {
            series.push(("line".to_owned(), found.iter().map(|of| of.line.unwrap_or(f64::NAN)).collect()));
        }
        pictures.push(Figure {
            title: "Throughput".to_owned(),
            x: Axis::linear("bytes"),
            y: Axis::linear("packets a second"),
            marks: Marks::Bars { groups: found.iter().map(|of| tables::size(of)).collect(), series },
        });
    }
    let latency: Vec<Series> = result
        .sizes
        .iter()
        .filter_map(|of| Some(curve(&format!("{} bytes", tables::size(of)), &of.latency.as_ref()?.all)))
        .collect();
    if !latency.is_empty() {
        pictures.push(latencies(latency));
    }
    let loss = lines(&|of| {
        let points = of.frame_loss.as_ref()?;
        Some(points.iter().rev().map(|point| (point.percent, point.loss_percent)).collect())
    });
    if !loss.is_empty() {
        pictures.push(Figure {
            title: "Frame loss rate".to_owned(),
            x: Axis::linear("percent of the maximum rate"),
            y: Axis::linear("percent lost"),
            marks: Marks::Lines(loss),
        });
    }
    for (name, pick) in TRIALS {
        let trials = lines(&|of| {
            let mut points: Vec<(f64, f64)> = pick(of)?
                .iter()
                .map(|trial| (trial.packets_per_second, trial.loss_ratio() * 100.0))
                .collect();
            points.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
            Some(points)
        });
        if !trials.is_empty() {
            pictures.push(Figure {
                title: format!("Loss in the trials of the {name} search"),
                x: Axis::linear("packets a second asked for"),
                y: Axis::linear("percent lost"),
                marks: Marks::Lines(trials),
            });
        }
    }
    pictures
}

/// A search, and its trials with frames of one size.
type Search = (&'static str, fn(&SizeResult) -> Option<&[Measured]>);

const TRIALS: [Search; 2] = [
    ("throughput", |of| Some(&of.throughput.as_ref()?.trials)),
    ("MLRsearch", |of| Some(&of.mlrsearch.as_ref()?.trials)),
];

fn latencies(series: Vec<Series>) -> Figure {
    Figure {
        title: "Latency by percentile".to_owned(),
        x: Axis::logarithmic("one packet in so many took longer"),
        y: Axis::logarithmic("microseconds"),
        marks: Marks::Lines(series),
    }
}

/// For each bucket of the histogram the part of the packets that took longer, as "one in so many".
fn curve(name: &str, latency: &Latency) -> Series {
    let total: u64 = latency.histogram.iter().map(|(_, count)| count).sum();
    let mut above = total;
    let mut points = Vec::new();
    for &(upper, count) in &latency.histogram {
        points.push((total as f64 / above as f64, upper.max(1) as f64 / 1e3));
        above -= count;
    }
    Series { name: name.to_owned(), points }
}
