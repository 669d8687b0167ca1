//! `warmlane lab`: experiments.

use crate::cpus;
use anyhow::{Context as _, bail};
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;
use warmlane_lab::experiment::{self, Cell, Experiment, Record, Setting};

/// Find out by experiment what a choice costs on this machine: pools, layouts, rings, locks, tables.
///
/// Each experiment asks one question, says what others claimed, measures the alternatives in turns, and ends with a
/// table, a verdict and, with --plot, a picture. Cycles are those of the time-stamp counter. Over two lanes the cost of
/// moving a cache line between the CPUs is measured along with them, and rounds in which it differs are not mixed.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The experiments to do, in this order (--list shows them).
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
    /// How many rounds count for each figure.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// How long a round takes, in seconds.
    #[arg(long, value_name = "S", default_value_t = 0.02, value_parser = crate::bench::seconds)]
    seconds: f64,
    /// The CPU of the first lane; the last one that this process may use if not given.
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// The CPU of the second lane; the first other one that this process may use if not given.
    #[arg(long, value_name = "N")]
    second_cpu: Option<usize>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    if arguments.list {
        return Ok(output.write_all(list(arguments.json)?.as_bytes())?);
    }
    let experiments =
        arguments.names.iter().map(|name| Ok(experiment::find(name)?)).collect::<anyhow::Result<Vec<_>>>()?;
    if arguments.plot.is_some() && experiments.len() != 1 {
        bail!("--plot draws one experiment into its file: name one");
    }
    let (cpu, second_cpu) = cpus::bind(arguments.cpu, arguments.second_cpu)?;
    let setting = Setting {
        cpu,
        second_cpu,
        length: Duration::from_secs_f64(arguments.seconds),
        rounds: arguments.rounds as usize,
    };
    for experiment in experiments {
        // One line that is written over: for people only.
        let live = std::io::stderr().is_terminal();
        let mut progress = |step: &str| {
            if live {
                eprint!("\r\x1b[K{}: {step}", experiment.name);
            }
        };
        let record = experiment.run(&setting, &mut progress);
        if live {
            eprint!("\r\x1b[K");
        }
        let record = record.with_context(|| experiment.name)?;
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
    let heads = record.columns.iter().map(|column| match column.unit {
        "" => column.name.clone(),
        unit => format!("{} [{unit}]", column.name),
    });
    let mut lines: Vec<Vec<String>> = vec![heads.collect()];
    lines.extend(record.rows.iter().map(|row| row.iter().map(cell).collect()));
    let width =
        |column: usize| lines.iter().filter_map(|line| line.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..record.columns.len()).map(width).collect();
    let is_text =
        |column: usize| record.rows.iter().any(|row| matches!(row.get(column), Some(Cell::Text(_))));
    for line in &lines {
        let cells = line.iter().enumerate().map(|(column, cell)| {
            let width = widths.get(column).copied().unwrap_or(0);
            if is_text(column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    writeln!(text, "\n{}\n", record.verdict)?;
    Ok(text)
}

fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Count(count) => count.to_string(),
        Cell::Figure(figure) => crate::bench::three_digits(*figure),
        Cell::Missing => "-".to_owned(),
    }
}
