//! `cargo xtask record`: what rows of the documents rest on, measured in so many runs as were announced, each of which is kept.
//!
//! Beside each record in `perf/figures/MACHINE` lies the log of its runs ([`log`]), of which the record is made ([`summary`]). The rules
//! are in CONTRIBUTING.md.

mod experiment_sources;
pub(crate) mod log;
pub(crate) mod sources;
pub(crate) mod summary;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};
use serde_json::Value;
use warmlane_lab::machine::Machine;
use warmlane_lab::statistics::median;

use crate::compare::{self, Lanes, Setting, catalogue, dpdk};
use crate::workspace;
use log::{Log, Run, Series};
use sources::Today;

/// The folder of the records, below the repository's root: in it one for each machine.
pub(crate) const FOLDER: &str = "perf/figures";
/// How the command of a series ends that is against another DPDK than the distribution's.
pub(crate) const OTHER_DPDK: &str = " --dpdk PREFIX";
/// How many runs there may be for each that shall count.
const RUNS_EACH: usize = 2;

/// Options of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What this machine is called: the folder of its records below perf/figures, such as zen5
    #[arg(long, value_name = "NAME", value_parser = name, required_unless_present = "dry_run")]
    machine: Option<String>,
    /// What to measure: comparisons, such as compare/lpm4, and experiments, such as lab/locks
    #[arg(required_unless_present = "all", value_name = "ROW", value_parser = row)]
    rows: Vec<String>,
    /// All comparisons that the documents lead with, in one go, from a commit without changes
    #[arg(long)]
    all: bool,
    /// Build the peers on the DPDK that was installed with this prefix, instead of the distribution's; such records have a folder of their own
    #[arg(long, value_name = "PREFIX")]
    dpdk: Option<PathBuf>,
    /// How many runs shall count, announced in the log before the first
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=99))]
    runs: u8,
    /// Only list what would be measured, and how long it takes
    #[arg(long)]
    dry_run: bool,
}

/// A name of a file or folder, which needs no quoting in documents.
fn name(name: &str) -> anyhow::Result<String> {
    if name.is_empty() || name.contains(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-') {
        bail!("'{name}' can't be a file's name");
    }
    Ok(name.to_owned())
}

fn row(row: &str) -> anyhow::Result<String> {
    match row.split_once('/') {
        Some(("compare", name)) => catalogue::find(name).map(|_| ())?,
        Some(("lab", name)) => warmlane_lab::experiment::find(name).map(|_| ())?,
        _ => bail!("a row is compare/NAME or lab/NAME"),
    }
    Ok(row.to_owned())
}

/// Measures the rows in turns, one run of each after the other, so that those of one row are at different times.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let workspace = workspace::metadata(None)?;
    let headlines = catalogue::HEADLINES.iter().filter(|_| arguments.all);
    let headlines = headlines.map(|headline| format!("compare/{}", headline.name));
    let rows: BTreeSet<String> = arguments.rows.iter().cloned().chain(headlines).collect();
    let root = workspace.root.clone();
    if arguments.dry_run {
        print!("{}", plan(&root, arguments.machine.as_deref(), &rows, usize::from(arguments.runs))?);
        return Ok(());
    }
    if arguments.all {
        let changed = workspace::git(
            &root,
            &["status", "--porcelain", "--", ":/", &format!(":(exclude,top){FOLDER}")],
        )?;
        if !changed.is_empty() {
            bail!("what is in no commit can't be measured with --all: commit or remove it\n{changed}");
        }
    }
    let folder = root.join(FOLDER).join(arguments.machine.as_deref().context("--machine NAME is missing")?);
    let mut rows = rows.into_iter().map(|row| Row::open(&folder, row)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut setting = Setting::of(workspace)?;
    let dpdk = arguments.dpdk.as_deref().map(|prefix| setting.use_dpdk(prefix)).transpose()?;
    rows.iter().try_for_each(|row| row.check_dpdk(dpdk.as_deref()))?;
    for row in &mut rows {
        let today = Today::of(&root, workspace::metadata(None)?)?;
        row.announce(&today, usize::from(arguments.runs), dpdk.is_some())?;
    }
    let mut failures = Vec::new();
    while let Some(most) = rows.iter().map(|row| row.log.left().0).max().filter(|&most| most > 0) {
        // Those that have had more of their runs wait for the others.
        for row in rows.iter_mut().filter(|row| row.log.left().0 == most) {
            let before = Today::of(&root, workspace::metadata(None)?)?;
            if let Err(error) = row.measure(&before, &mut setting) {
                failures.push(format!("{}: {error:#}", row.name));
            }
        }
        if !failures.is_empty() {
            bail!("{}\nthe same command goes on where it has ended", failures.join("\n"));
        }
    }
    Ok(())
}

/// A row, with the log of its runs.
struct Row {
    name: String,
    /// Its log's file.
    file: PathBuf,
    log: Log,
}

impl Row {
    fn open(folder: &Path, name: String) -> anyhow::Result<Self> {
        let file = folder.join(&name).with_extension(log::SUFFIX);
        let log = Log::read(&file).with_context(|| file.display().to_string())?;
        let machine = |value: &Value| serde_json::from_value::<Machine>(value.get("machine")?.clone()).ok();
        let last = log.runs().iter().rev().find_map(|run| machine(run.result.as_ref()?));
        let same =
            |a: &Machine, b: &Machine| (&a.cpu, &a.microcode, a.cpus) == (&b.cpu, &b.microcode, b.cpus);
        if let Some(last) = last.filter(|last| !same(last, &Machine::this())) {
            bail!("{} is of another machine ({last}): give this one a name of its own", file.display());
        }
        Ok(Self { name, file, log })
    }

    /// Runs against another DPDK than the distribution's are no part of a series against that one, nor of one against a third. Says so
    /// if the last one's isn't `now`'s, which is `None` for the distribution's.
    fn check_dpdk(&self, now: Option<&str>) -> anyhow::Result<()> {
        let last = self.log.runs().iter().rev().find_map(|run| run.result.as_ref()?.get("dpdk")?.as_str());
        let Some(last) = last else { return Ok(()) };
        let is_same = match now {
            Some(now) => last == now,
            None => last.contains(dpdk::OF_THE_DISTRIBUTION),
        };
        if !is_same {
            let now = now.unwrap_or("the distribution's");
            bail!(
                "{} is against another DPDK ({last}) than {now}: give this one a name of its own",
                self.file.display()
            );
        }
        Ok(())
    }

    /// Says how many runs are to come, unless such a series is to be finished first.
    fn announce(&mut self, today: &Today, runs: usize, other_dpdk: bool) -> anyhow::Result<()> {
        let same_code =
            self.log.runs().last().is_none_or(|run| today.of_row(&self.name).as_ref() == Some(&run.sources));
        let left = self.log.left().0;
        if left > 0 && same_code {
            eprintln!("xtask: {} has announced runs that are still to be made, {left} at most", self.name);
            return Ok(());
        }
        let command = if let Some(("lab", name)) = self.name.split_once('/') {
            format!("cargo run --release -- lab {name} --json")
        } else {
            let name = self.name.trim_start_matches("compare/");
            format!("cargo xtask compare {name} --json{}", if other_dpdk { OTHER_DPDK } else { "" })
        };
        let series = Series { runs, at_most: RUNS_EACH * runs, date: date()?, command, note: None };
        self.log.announce(&self.file, series)
    }

    /// Makes one run, and the record anew.
    fn measure(&mut self, today: &Today, setting: &mut Setting) -> anyhow::Result<()> {
        let sources = today.of_row(&self.name).context("there is no such row")?;
        let started = Instant::now();
        let result = match self.name.split_once('/') {
            Some(("lab", name)) => experiment(name, setting),
            _ => compare::measure(self.name.trim_start_matches("compare/"), setting),
        };
        let void = |result: &Value| result.get("void").and_then(Value::as_str).map(str::to_owned);
        let void = match &result {
            Ok(result) => void(result),
            Err(error) => Some(format!("it failed: {error:#}")),
        };
        let number = self.log.runs().len() + 1;
        eprintln!("xtask: {} {}, run {number}: {}", date()?, self.name, void.as_deref().unwrap_or("counts"));
        let (result, failure) = match result {
            Ok(result) => (Some(result), None),
            Err(error) => (None, Some(error)),
        };
        let took = Some(started.elapsed().as_secs_f64().round());
        self.log.append_run(&self.file, Run { number, date: date()?, took, sources, void, result })?;
        if let Some(text) = text(&self.log, &self.name)? {
            fs::write(self.file.with_extension("json"), text)?;
        }
        failure.map_or(Ok(()), Err)
    }
}

/// The text of the record of this row's log; `None` if no run has a result.
pub(crate) fn text(log: &Log, row: &str) -> anyhow::Result<Option<String>> {
    let promise = row.strip_prefix("compare/").and_then(|name| Some(catalogue::find(name).ok()?.promise));
    let record = summary::record(log, promise);
    record.map(|record| Ok(serde_json::to_string_pretty(&record)? + "\n")).transpose()
}

/// One experiment, by the program that users have.
fn experiment(name: &str, setting: &Setting) -> anyhow::Result<Value> {
    let mut command = Command::new(setting.ours()?);
    let text = workspace::output(command.args(["lab", name, "--json"]).stdin(Stdio::null()))?;
    serde_json::from_str(&text).context("the experiment printed something else than its result")
}

/// Now, to the minute.
pub(crate) fn date() -> anyhow::Result<String> {
    Ok(workspace::output(Command::new("date").args(["--utc", "+%FT%RZ"]))?.trim().to_owned())
}

/// What would be measured, and how long it takes.
fn plan(root: &Path, machine: Option<&str>, rows: &BTreeSet<String>, runs: usize) -> anyhow::Result<String> {
    let mut lines = Vec::new();
    let (mut total, mut unknown) = (0.0, 0);
    for row in rows {
        let log = machine
            .map(|machine| Log::read(&root.join(FOLDER).join(machine).join(row).with_extension(log::SUFFIX)));
        let took: Vec<f64> =
            log.transpose()?.iter().flat_map(|log| log.runs().iter().filter_map(|run| run.took)).collect();
        let (seconds, how) = match estimate(row) {
            _ if !took.is_empty() => (Some(median(&took)), "as the runs before"),
            estimate => (estimate, "estimated"),
        };
        total += seconds.unwrap_or(0.0) * runs as f64;
        unknown += usize::from(seconds.is_none());
        lines.push(seconds.map_or_else(
            || format!("{row:<36} {runs} runs, how long is not known"),
            |seconds| format!("{row:<36} {runs} runs of {seconds:>5.0} s, {how}"),
        ));
    }
    let unknown = if unknown > 0 { format!(" and {unknown} of unknown length") } else { String::new() };
    lines.push(format!(
        "{} rows: {:.1} hours{unknown}, {RUNS_EACH} times as long at most if runs don't count",
        rows.len(),
        total / 3_600.0
    ));
    Ok(lines.join("\n") + "\n")
}

/// About how many seconds a run takes that nobody has made yet: rounds, what comes between them, and the start of each side.
fn estimate(row: &str) -> Option<f64> {
    let comparison = catalogue::find(row.strip_prefix("compare/")?).ok()?;
    let headline = catalogue::HEADLINES.iter().find(|headline| headline.name == comparison.name);
    let sides = headline.map_or(3, |headline| headline.sides);
    let (rounds, seconds) = compare::usual(comparison.lanes);
    let between = if comparison.lanes == Lanes::Fed { 4.0 } else { 0.1 };
    // Where one side would follow itself, a round of another comes between: once in as many turns as there are sides.
    Some(
        (f64::from(sides) + 1.0 / f64::from(sides)) * rounds as f64 * (seconds + between)
            + 5.0 * f64::from(sides),
    )
}

#[cfg(test)]
mod tests;
