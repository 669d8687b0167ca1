//! `warmlane lab`: experiments.

mod memory_traffic;
mod predict;

use crate::measuring::{self, Defaults, Flags};
use crate::messages;
use anyhow::{Context as _, bail};
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use warmlane_lab::experiment::{self, Experiment};
use warmlane_lab::memory_traffic::machines::Model;
use warmlane_lab::modelled;
use warmlane_lab::record::Record;
use warmlane_lab::report::{self, Comparison};
use warmlane_lab::setting::Setting;
use warmlane_lab::subject;

/// Find out by experiment what a choice costs on this machine: pools, layouts, rings, locks, tables.
///
/// Each experiment asks one question, says what others claimed, measures the alternatives in alternation, and ends with a
/// table, a verdict and, with --plot, a picture. Cycles are those of the time-stamp counter. Over two lanes the cost of
/// moving a cache line between the CPUs is measured along with them, and rounds in which it differs are not mixed.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    after_help = EXAMPLES
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The experiments to do, in this order (--list shows them).
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
    /// Do only the steps with this in their names, such as "4096, mix" of pool-order; a wrong one lists them. For
    /// experiments whose steps can be done alone.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Also report, for each variant, the cache misses of its buffers in a model of this machine's caches. Only for
    /// burst-depth, header, hot-set, layout, pool-order and tx-free.
    #[arg(long)]
    misses: bool,
    #[command(flatten)]
    flags: Flags,
}

const EXAMPLES: &str = "Examples:
  warmlane lab --list
  warmlane lab locks rcu
  warmlane lab pool-order --only '4096, mix' --plot pools.svg
  warmlane lab pool-order --only '131072, mix, whole' --misses
  warmlane lab tables --json --rounds 15 --cpu 1 --second-cpu 0
  warmlane lab report";

#[derive(Debug, clap::Subcommand)]
enum Command {
    Report(ReportArguments),
    MemoryTraffic(memory_traffic::Arguments),
    Predict(predict::Arguments),
    #[command(hide = true)]
    MemoryWorkload(memory_traffic::WorkloadArguments),
}

/// Make one self-contained HTML page of experiments.
///
/// Does the experiments that are named and adds those measured before (--records). Without either it does all. An
/// experiment that this machine does not allow is listed on the page with the reason.
#[derive(Debug, clap::Args)]
#[command(after_help = REPORT_EXAMPLES)]
struct ReportArguments {
    /// The experiments to do, in this order.
    names: Vec<String>,
    /// Where to write the page.
    #[arg(long, value_name = "FILE", default_value = "warmlane-report.html")]
    output: PathBuf,
    /// Show these comparisons with peers: lines that `cargo xtask compare --json` printed, or files of
    /// `cargo xtask record`.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    comparisons: Vec<PathBuf>,
    /// Show these experiments, measured before: lines that `lab --json` printed, or files of `cargo xtask record`.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    records: Vec<PathBuf>,
    #[command(flatten)]
    flags: Flags,
}

const REPORT_EXAMPLES: &str = "Examples:
  warmlane lab report --output machine.html
  warmlane lab report locks rcu --rounds 15
  warmlane lab report --records lab/*.json --comparisons compare/*.json";

const DEFAULTS: Defaults = Defaults { rounds: 9, seconds: 0.1 };

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Some(Command::Report(arguments)) => return write_report(arguments),
        Some(Command::MemoryTraffic(arguments)) => return memory_traffic::run(arguments),
        Some(Command::Predict(arguments)) => return predict::run(arguments),
        Some(Command::MemoryWorkload(arguments)) => return memory_traffic::run_workload(arguments),
        None => {}
    }
    let mut output = std::io::stdout().lock();
    if arguments.list {
        return Ok(output.write_all(list(arguments.json)?.as_bytes())?);
    }
    if arguments.names.is_empty() {
        bail!(
            "name the experiments to do: `warmlane lab --list` shows them, and `warmlane lab report` does all"
        );
    }
    let experiments = chosen(&arguments.names)?;
    if arguments.plot.is_some() && experiments.len() != 1 {
        bail!("--plot draws one experiment into its file: name one");
    }
    let setting = Setting {
        only: arguments.only.clone(),
        model: arguments.misses.then(|| model_for(&experiments)).transpose()?,
        ..arguments.flags.bind(DEFAULTS)?
    };
    for experiment in experiments {
        let record = run_one(experiment, &setting)?;
        if let Some(path) = &arguments.plot {
            std::fs::write(path, record.plot()?).with_context(|| format!("--plot {}", path.display()))?;
        }
        if arguments.json {
            writeln!(output, "{}", serde_json::to_string(&record)?)?;
        } else {
            writeln!(output, "{record}")?;
        }
        output.flush()?;
    }
    Ok(())
}

/// This machine's caches, if all of the experiments have workloads that are modelled.
fn model_for(experiments: &[&Experiment]) -> anyhow::Result<Model> {
    if let Some(other) = experiments.iter().find(|one| !modelled::EXPERIMENTS.contains(&one.name)) {
        let known = modelled::EXPERIMENTS.join(", ");
        bail!("--misses: there is no cache model for '{}', only for {known}", other.name);
    }
    Ok(Model::find("here")?)
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Experiment>> {
    if names.iter().any(|name| name == "report") {
        bail!(
            "the page is a command of its own, whose flags and names come behind it: `warmlane lab report ...`"
        );
    }
    names.iter().map(|name| Ok(experiment::find(name)?)).collect()
}

/// Does one experiment and tells a person at a terminal how far it is.
fn run_one(experiment: &Experiment, setting: &Setting) -> anyhow::Result<Record> {
    let live = std::io::stderr().is_terminal();
    // One line that is written over.
    let mut progress = |step: &str| {
        if live {
            messages::raw(format_args!("\r\x1b[K{}: {step}", experiment.name));
        }
    };
    let record = subject::run(experiment, setting, &mut progress);
    if live {
        messages::raw("\r\x1b[K");
    }
    record.with_context(|| format!("experiment '{}'", experiment.name))
}

/// Does the experiments that this machine allows, and writes the page.
fn write_report(arguments: &ReportArguments) -> anyhow::Result<()> {
    let experiments = if arguments.names.is_empty() && arguments.records.is_empty() {
        experiment::list().collect()
    } else {
        chosen(&arguments.names)?
    };
    let comparisons = read("--comparisons", &arguments.comparisons, Comparison::read)?;
    let mut records = read("--records", &arguments.records, report::read_records)?;
    let mut skipped = Vec::new();
    let setting = arguments.flags.bind(DEFAULTS)?;
    for experiment in experiments {
        match run_one(experiment, &setting) {
            Ok(record) => records.push(record),
            Err(error) => {
                messages::note(format_args!("{error:#}; the page says so"));
                skipped.push((experiment.name, format!("{error:#}")));
            }
        }
    }
    let page = report::page(&comparisons, &records, &skipped)?;
    std::fs::write(&arguments.output, page)
        .with_context(|| format!("--output {}", arguments.output.display()))?;
    Ok(writeln!(std::io::stdout(), "{}", arguments.output.display())?)
}

/// The results in some files.
fn read<T>(
    flag: &str,
    files: &[PathBuf],
    parse: fn(&str) -> Result<Vec<T>, report::NoResult>,
) -> anyhow::Result<Vec<T>> {
    let of_one = |file: &Path| anyhow::Ok(parse(&std::fs::read_to_string(file)?)?);
    let mut all = Vec::new();
    for file in files {
        all.extend(of_one(file).with_context(|| format!("{flag} {}", file.display()))?);
    }
    Ok(all)
}

fn list(json: bool) -> anyhow::Result<String> {
    if !json {
        return Ok(measuring::list(experiment::list()));
    }
    let line = |Experiment { name, question, method, claim, .. }: &Experiment| {
        let line = serde_json::json!({
            "name": name, "question": question, "method": method, "claim": claim, "predictions": claim.predictions,
        });
        Ok(serde_json::to_string(&line)? + "\n")
    };
    experiment::list().map(line).collect()
}

/// The arguments in a line that begins with the program's name.
#[cfg(test)]
fn parse<A: clap::Args>(line: &str) -> Result<A, clap::Error> {
    let command = A::augment_args(clap::Command::new("test"));
    A::from_arg_matches(&command.try_get_matches_from(line.split_whitespace())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_a_command_and_no_experiment() {
        assert!(experiment::find("report").is_err());
        let arguments: Arguments = parse("lab report locks --records a.json b.json --rounds 3").unwrap();
        let Some(Command::Report(report)) = arguments.command else { panic!("no report") };
        assert_eq!((report.names.len(), report.records.len()), (1, 2));
        let arguments: Arguments = parse("lab locks rcu --json").unwrap();
        assert!(arguments.command.is_none() && arguments.names == ["locks", "rcu"]);
        let arguments: Arguments = parse("lab --json report").unwrap();
        assert!(run(&arguments).unwrap_err().to_string().contains("`warmlane lab report ...`"));
        // What belongs to the page is refused elsewhere, and the other way round.
        for line in ["lab locks --records a.json", "lab report --plot a.svg"] {
            assert!(parse::<Arguments>(line).is_err(), "{line}");
        }
        let nothing = run(&parse("lab").unwrap()).unwrap_err().to_string();
        assert!(nothing.contains("`warmlane lab --list` shows them"), "{nothing}");
    }
}
