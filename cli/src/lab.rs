//! `warmlane lab`: experiments.

use crate::cpus;
use anyhow::{Context as _, bail};
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;
use warmlane_lab::experiment::{self, Cell, Column, Experiment, Record, Setting};
use warmlane_lab::report::{self, Comparison};

/// Find out by experiment what a choice costs on this machine: pools, layouts, rings, locks, tables.
///
/// Each experiment asks one question, says what others claimed, measures the alternatives in turns, and ends with a
/// table, a verdict and, with --plot, a picture. Cycles are those of the time-stamp counter. Over two lanes the cost of
/// moving a cache line between the CPUs is measured along with them, and rounds in which it differs are not mixed.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The experiments to do, in this order (--list shows them); or "report" for a page of them all.
    #[arg(required_unless_present = "list")]
    names: Vec<String>,
    /// List the experiments and their questions.
    #[arg(long, conflicts_with = "names")]
    list: bool,
    /// Print one JSON object a line for each experiment, with the machine it ran on, and nothing else.
    #[arg(long)]
    json: bool,
    /// Draw the results into this file, as SVG; for one experiment.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Where "report" writes its page, one HTML file that needs nothing else.
    #[arg(long, value_name = "FILE", default_value = "warmlane-report.html")]
    output: PathBuf,
    /// Show these comparisons with peers on the page: lines that `cargo xtask compare --json` printed, or files of
    /// `cargo xtask record`.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    comparisons: Vec<PathBuf>,
    /// Show these experiments, measured before, on the page: lines that `lab --json` printed, or files of
    /// `cargo xtask record`. Of those that are not named, no others are done.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    records: Vec<PathBuf>,
    /// How many rounds count for each figure.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// How long a round takes, in seconds.
    #[arg(long, value_name = "S", default_value_t = 0.02, value_parser = crate::bench::seconds)]
    seconds: f64,
    /// Do only the steps with this in their names, such as "4096, mix" of pool-order; a wrong one lists them. For
    /// experiments whose steps can be done alone.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// The CPU of the first lane; the last one that this process may use if not given.
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// The CPU of the second lane; the first other one that this process may use if not given.
    #[arg(long, value_name = "N")]
    second_cpu: Option<usize>,
}

/// The word that asks for a page instead of an experiment.
const REPORT: &str = "report";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    if arguments.list {
        return Ok(output.write_all(list(arguments.json)?.as_bytes())?);
    }
    let reports = arguments.names.first().is_some_and(|name| name == REPORT);
    let named = &arguments.names[usize::from(reports)..];
    let read = arguments.records.len() + arguments.comparisons.len();
    if !reports && read > 0 {
        bail!("--records and --comparisons are for the page: `warmlane lab report`");
    }
    let experiments: Vec<&Experiment> = if reports && named.is_empty() && arguments.records.is_empty() {
        experiment::list().collect()
    } else {
        named.iter().map(|name| Ok(experiment::find(name)?)).collect::<anyhow::Result<_>>()?
    };
    if arguments.plot.is_some() && experiments.len() != 1 {
        bail!("--plot draws one experiment into its file: name one");
    }
    let (cpu, second_cpu) = cpus::bind(arguments.cpu, arguments.second_cpu)?;
    let setting = Setting {
        cpu,
        second_cpu,
        length: Duration::from_secs_f64(arguments.seconds),
        rounds: arguments.rounds as usize,
        only: arguments.only.clone(),
        ..Setting::default()
    };
    if reports {
        return write_report(arguments, &experiments, &setting);
    }
    for experiment in experiments {
        let record = run_one(experiment, &setting)?;
        if let Some(path) = &arguments.plot {
            std::fs::write(path, record.plot()?).with_context(|| format!("--plot {}", path.display()))?;
        }
        if arguments.json {
            writeln!(output, "{}", serde_json::to_string(&record)?)?;
        } else {
            output.write_all(text(&record)?.as_bytes())?;
        }
        output.flush()?;
    }
    Ok(())
}

/// Does one experiment and tells a person at a terminal how far it is.
fn run_one(experiment: &Experiment, setting: &Setting) -> anyhow::Result<Record> {
    let live = std::io::stderr().is_terminal();
    // One line that is written over.
    let mut progress = |step: &str| {
        if live {
            eprint!("\r\x1b[K{}: {step}", experiment.name);
        }
    };
    let record = experiment.run(setting, &mut progress);
    if live {
        eprint!("\r\x1b[K");
    }
    record.context(experiment.name)
}

/// Does the experiments that this machine allows, and writes the page.
fn write_report(arguments: &Arguments, experiments: &[&Experiment], setting: &Setting) -> anyhow::Result<()> {
    let (mut comparisons, mut records) = (Vec::new(), Vec::new());
    let read = |flag: &str, path: &PathBuf| {
        std::fs::read_to_string(path).with_context(|| format!("{flag} {}", path.display()))
    };
    for path in &arguments.comparisons {
        let text = read("--comparisons", path)?;
        let more = Comparison::read(&text).with_context(|| format!("--comparisons {}", path.display()))?;
        comparisons.extend(more);
    }
    for path in &arguments.records {
        let text = read("--records", path)?;
        records.extend(report::read_records(&text).with_context(|| format!("--records {}", path.display()))?);
    }
    let mut skipped = Vec::new();
    for experiment in experiments {
        match run_one(experiment, setting) {
            Ok(record) => records.push(record),
            Err(error) => {
                eprintln!("note: {error:#}; the page says so");
                skipped.push((experiment.name, format!("{error:#}")));
            }
        }
    }
    let page = report::page(&comparisons, &records, &skipped)?;
    std::fs::write(&arguments.output, page)
        .with_context(|| format!("--output {}", arguments.output.display()))?;
    Ok(writeln!(std::io::stdout(), "{}", arguments.output.display())?)
}

fn list(json: bool) -> anyhow::Result<String> {
    let mut text = String::new();
    let width = experiment::list().map(|experiment| experiment.name.len()).max().unwrap_or(0);
    for Experiment { name, question, method, .. } in experiment::list() {
        if json {
            writeln!(
                text,
                "{}",
                serde_json::json!({ "name": name, "question": question, "method": method })
            )?;
        } else {
            writeln!(text, "{name:<width$}  {question}")?;
        }
    }
    Ok(text)
}

/// The record for people.
fn text(record: &Record) -> anyhow::Result<String> {
    let mut text = format!("{}: {}\n", record.name, record.question);
    if let Some(claim) = &record.claim {
        writeln!(text, "claimed: {} ({})", claim.says, claim.source)?;
    }
    writeln!(text, "method: {}\n", record.method)?;
    let mut lines: Vec<Vec<String>> = vec![record.columns.iter().map(Column::head).collect()];
    lines.extend(record.rows.iter().map(|row| row.iter().map(Cell::to_string).collect()));
    let width =
        |column: usize| lines.iter().filter_map(|line| line.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..record.columns.len()).map(width).collect();
    for line in &lines {
        let cells = line.iter().enumerate().map(|(column, cell)| {
            let width = widths.get(column).copied().unwrap_or(0);
            if record.is_text(column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    writeln!(text, "\n{}\n", record.verdict)?;
    Ok(text)
}
