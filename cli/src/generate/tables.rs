//! The tables of a method's result, for text and for pages.

use std::fmt::Write as _;
use warmlane::functions::generator::methods::mlrsearch::{Goal, GoalResult};
use warmlane::functions::generator::methods::suite::{
    MaximumFrom, SizeResult, SuiteConfig, SuiteResult, Test,
};

/// A table with a sentence above it.
pub(super) struct Table {
    pub(super) title: String,
    pub(super) about: String,
    pub(super) heads: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    /// Whether a column holds words, which stand at its left.
    pub(super) fn is_text(&self, column: usize) -> bool {
        self.heads.get(column).is_some_and(|head| ["goal", "test", "why"].contains(&head.as_str()))
    }
}

/// As they are printed.
pub(super) fn text(tables: &[Table]) -> String {
    let mut text = String::new();
    for table in tables {
        let widths: Vec<usize> = (0..table.heads.len())
            .map(|column| {
                let cells = table.rows.iter().filter_map(|row| row.get(column));
                cells.chain([&table.heads[column]]).map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}\n{}\n", table.title, table.about);
        for row in std::iter::once(&table.heads).chain(&table.rows) {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let _ = if table.is_text(column) {
                    write!(line, "  {cell:<width$}")
                } else {
                    write!(line, "  {cell:>width$}")
                };
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text.push('\n');
    }
    text
}

/// The tables of all tests that were asked for.
pub(super) fn of(result: &SuiteResult, config: &SuiteConfig) -> Vec<Table> {
    let table = |test: &Test| match test {
        Test::Throughput => throughput(result, config),
        Test::Latency => latency(result, config),
        Test::FrameLoss => frame_loss(result, config),
        Test::BackToBack => back_to_back(result, config),
        Test::Mlrsearch => mlrsearch(result, config),
    };
    let mut tables: Vec<Table> =
        result.tests.iter().map(table).filter(|table| !table.rows.is_empty()).collect();
    tables.extend(failures(result));
    tables
}

fn heads(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

pub(super) fn size(result: &SizeResult) -> String {
    result.size.map_or_else(|| format!("own, mean {:.1}", result.mean_size), |size| size.to_string())
}

/// Bits on the wire, with preamble and gap, in units of 10^6.
fn megabits(result: &SizeResult, packets_per_second: f64) -> String {
    format!("{:.2}", packets_per_second * (result.mean_size + 20.0) * 8.0 / 1e6)
}

fn percent_of_line(result: &SizeResult, packets_per_second: f64) -> String {
    result.line.map_or_else(|| "-".to_owned(), |line| format!("{:.2}", packets_per_second / line * 100.0))
}

/// A time with three or four digits.
fn microseconds(nanoseconds: f64) -> String {
    let digits = if nanoseconds < 100_000.0 { 2 } else { 0 };
    format!("{:.digits$}", nanoseconds / 1e3)
}

fn maxima(result: &SuiteResult) -> &'static str {
    match result.sizes.first().map(|size| size.maximum_from) {
        Some(MaximumFrom::Line) => "Rates up to the line's.",
        Some(MaximumFrom::Asked) => "Rates up to the maximum that was asked for.",
        Some(MaximumFrom::Generator) | None => {
            "Rates up to 80 % of what the generator sent when it was let go."
        }
    }
}

fn throughput(result: &SuiteResult, config: &SuiteConfig) -> Table {
    let row = |of: &SizeResult| {
        let found = of.throughput.as_ref()?;
        let rate = found.packets_per_second;
        let cell = |text: &dyn Fn(f64) -> String| rate.map_or_else(|| "none".to_owned(), text);
        Some(vec![
            size(of),
            cell(&|rate| format!("{rate:.0}")),
            cell(&|rate| megabits(of, rate)),
            cell(&|rate| percent_of_line(of, rate)),
            found.lossy_packets_per_second.map_or_else(|| "none".to_owned(), |rate| format!("{rate:.0}")),
            format!("{:.0}", of.maximum),
            found.trials.len().to_string(),
        ])
    };
    Table {
        title: "Throughput (RFC 2544, section 26.1)".to_owned(),
        about: format!(
            "The highest rate without loss in a trial of {} s, found to within {} % by binary search. {}",
            config.throughput_trial.as_secs_f64(),
            config.width * 100.0,
            maxima(result)
        ),
        heads: heads(&[
            "bytes",
            "pps",
            "Mbit/s on the wire",
            "% of line",
            "lost packets at pps",
            "maximum pps",
            "trials",
        ]),
        rows: result.sizes.iter().filter_map(row).collect(),
    }
}

fn latency(result: &SuiteResult, config: &SuiteConfig) -> Table {
    let row = |of: &SizeResult| {
        let found = of.latency.as_ref()?;
        let time = |nanoseconds: u64| microseconds(nanoseconds as f64);
        let all = &found.all;
        let mut row = vec![size(of), format!("{:.0}", found.packets_per_second), microseconds(found.mean)];
        row.extend(
            [all.minimum, all.median, all.p99, all.p99_9, all.p99_99, all.maximum, all.jitter].map(time),
        );
        Some(row)
    };
    Table {
        title: "Latency in microseconds (RFC 2544, section 26.2)".to_owned(),
        about: format!(
            "At the throughput, {} trials of {} s: mean of the trials' means, then all packets together. From building a \
             packet to receiving it.",
            config.latency_trials,
            config.latency_trial.as_secs_f64()
        ),
        heads: heads(&[
            "bytes", "pps", "mean", "minimum", "median", "99 %", "99.9 %", "99.99 %", "maximum", "jitter",
        ]),
        rows: result.sizes.iter().filter_map(row).collect(),
    }
}

fn frame_loss(result: &SuiteResult, config: &SuiteConfig) -> Table {
    let curves = || result.sizes.iter().filter_map(|of| Some((of, of.frame_loss.as_ref()?)));
    let mut percents: Vec<f64> =
        curves().flat_map(|(_, points)| points.iter().map(|point| point.percent)).collect();
    percents.sort_by(|a, b| b.total_cmp(a));
    percents.dedup_by(|a, b| (*a - *b).abs() < 1e-6);
    let row = |(of, points): (&SizeResult, &Vec<_>)| {
        let cell = |percent: &f64| {
            let points: &Vec<warmlane::functions::generator::methods::rfc2544::LossPoint> = points;
            let found = points.iter().find(|point| (point.percent - percent).abs() < 1e-6);
            found.map_or_else(|| "-".to_owned(), |point| format!("{:.4}", point.loss_percent))
        };
        [size(of), format!("{:.0}", of.maximum)].into_iter().chain(percents.iter().map(cell)).collect()
    };
    let columns = percents.iter().map(|percent| format!("{percent:.1} %"));
    Table {
        title: "Frame loss rate in percent (RFC 2544, section 26.3)".to_owned(),
        about: format!(
            "At parts of the maximum rate, trials of {} s, until two in a row lose nothing. {}",
            config.loss_trial.as_secs_f64(),
            maxima(result)
        ),
        heads: heads(&["bytes", "100 % is pps"]).into_iter().chain(columns).collect(),
        rows: curves().map(row).collect(),
    }
}

fn back_to_back(result: &SuiteResult, config: &SuiteConfig) -> Table {
    let row = |of: &SizeResult| {
        let found = of.back_to_back.as_ref()?;
        let (least, most) = (found.lengths.iter().min()?, found.lengths.iter().max()?);
        let whole = found.lengths.iter().all(|length| *length >= found.longest_tried);
        Some(vec![
            size(of),
            format!("{}{:.1}", if whole { ">= " } else { "" }, found.mean),
            format!("{:.3}", found.mean / of.maximum * 1e3),
            least.to_string(),
            most.to_string(),
            format!("{:.0}", of.maximum),
            found.lengths.len().to_string(),
        ])
    };
    Table {
        title: "Back-to-back frames (RFC 2544, section 26.4; RFC 9004)".to_owned(),
        about: format!(
            "The longest burst at the maximum rate without loss; bursts of up to {} s. {}",
            config.burst.as_secs_f64(),
            maxima(result)
        ),
        heads: heads(&["bytes", "frames", "milliseconds", "least", "most", "pps", "searches"]),
        rows: result.sizes.iter().filter_map(row).collect(),
    }
}

pub(super) fn goal_name(goal: &Goal) -> String {
    if goal.loss_ratio == 0.0 && goal.exceed_ratio > 0.0 {
        "no loss (NDR)".to_owned()
    } else if goal.loss_ratio == 0.0 {
        "no loss, ever".to_owned()
    } else {
        format!("loss of {} % (PDR)", goal.loss_ratio * 100.0)
    }
}

fn mlrsearch(result: &SuiteResult, config: &SuiteConfig) -> Table {
    let rate = |rate: Option<f64>| rate.map_or_else(|| "none".to_owned(), |rate| format!("{rate:.0}"));
    let row = |of: &SizeResult, goal: &GoalResult, trials: usize| {
        vec![
            size(of),
            goal_name(&goal.goal),
            rate(goal.throughput),
            goal.throughput.map_or_else(|| "none".to_owned(), |rate| megabits(of, rate)),
            goal.throughput.map_or_else(|| "none".to_owned(), |rate| percent_of_line(of, rate)),
            rate(goal.lower),
            rate(goal.upper),
            format!("{:.0}", of.maximum),
            trials.to_string(),
        ]
    };
    let rows = result.sizes.iter().filter_map(|of| Some((of, of.mlrsearch.as_ref()?)));
    let goals: Vec<String> = config
        .goals
        .iter()
        .map(|goal| {
            format!(
                "{}: {} s in trials of {} s, {} % of them may exceed it",
                goal_name(goal),
                goal.duration_sum,
                goal.final_trial,
                goal.exceed_ratio * 100.0
            )
        })
        .collect();
    Table {
        title: "Rates by MLRsearch (draft-ietf-bmwg-mlrsearch)".to_owned(),
        about: format!(
            "Conditional throughput, and bounds at most {} % apart. {}. {}",
            config.width * 100.0,
            goals.join("; "),
            maxima(result)
        ),
        heads: heads(&[
            "bytes",
            "goal",
            "pps",
            "Mbit/s on the wire",
            "% of line",
            "lower bound",
            "upper bound",
            "maximum pps",
            "trials",
        ]),
        rows: rows
            .flat_map(|(of, search)| search.goals.iter().map(move |goal| row(of, goal, search.trials.len())))
            .collect(),
    }
}

fn failures(result: &SuiteResult) -> Option<Table> {
    let rows: Vec<Vec<String>> = result
        .sizes
        .iter()
        .flat_map(|of| {
            of.failures
                .iter()
                .map(|failure| vec![size(of), failure.test.name().to_owned(), failure.why.clone()])
        })
        .chain(result.ended.iter().map(|why| vec!["all".to_owned(), "what was left".to_owned(), why.clone()]))
        .collect();
    (!rows.is_empty()).then(|| Table {
        title: "Without a result".to_owned(),
        about: "These tests came to no result; what stands above is without them.".to_owned(),
        heads: heads(&["bytes", "test", "why"]),
        rows,
    })
}
