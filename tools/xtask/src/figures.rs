//! `cargo xtask figures`: figures quoted in documents are those of the records that they come from.
//!
//! A quoted figure is a link whose target is its record and where in it the figure is, so that readers can follow it too:
//! `[2.14](../perf/figures/zen5/compare/l3-forward.json#ratio)`. The check fails if
//!
//! - a figure differs from its record at the precision that is shown,
//! - it is of older code and not marked as such,
//! - a document that readers start with has a table of figures without a record,
//! - a record is another one than its log gives, or a log lost a line,
//! - a machine's report is another one than its records give,
//! - the table of promises in `docs/performance.md`, or its head in `README.md`, is another one than the records give.
//!
//! `--refill` writes what the logs say. `cargo xtask record` makes logs and records.

mod history;
mod promises;
mod quotation;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;
use warmlane_lab::report;

use crate::record::log::{self, Log};
use crate::record::sources::Today;
use crate::record::{self, FOLDER};
use crate::workspace::{self, Metadata};
use quotation::Quoted;

/// Documents whose tables quote records begin so.
const WITH_TABLES: [&str; 2] = ["README.md", "docs/performance"];
/// The folder of the pages of all records, one for each machine.
const REPORTS: &str = "docs";
/// The kinds of records, each in a folder of its machine's.
const KINDS: [&str; 2] = ["compare", "lab"];

/// Options of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Write into records, documents and reports what the logs say, instead of failing where they differ
    #[arg(long)]
    refill: bool,
}

/// Checks or refills all documents.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let workspace = workspace::metadata(None)?;
    println!("{}", check(&workspace.root.clone(), workspace, arguments.refill)?);
    Ok(())
}

/// The same in the repository at `root`, whose crates are those of `workspace`; gives what to print.
fn check(root: &Path, workspace: Metadata, refill: bool) -> anyhow::Result<String> {
    let today = Today::of(root, workspace)?;
    let mut found = Found { refill, ..Found::default() };
    found.complaints.extend(history::check(root)?);
    for machine in machines(root)? {
        for kind in KINDS {
            records(root, &machine.join(kind), &mut found)?;
        }
    }
    let documents = documents(root)?;
    let mut quoted = 0;
    for document in &documents {
        let shown = shown(root, document);
        let text = fs::read_to_string(document).with_context(|| format!("cannot read {shown}"))?;
        let folder = document.parent().unwrap_or(root);
        let text = if let Some(right) = promises::written(root, folder, &text, &today)? {
            let complaint = format!("{shown}: the records give another table of promises");
            found.differ(document, &shown, (right != text).then(|| right.clone()), vec![complaint])?;
            right
        } else {
            text
        };
        let checked = quotation::check(&text, |file| {
            let quoted = read(&folder.join(file), &today)?;
            match quoted.record.get("void").and_then(Value::as_str) {
                Some(reason) => bail!("what does not count is quoted: {reason}"),
                None => Ok(quoted),
            }
        });
        quoted += checked.quoted;
        let bare = if WITH_TABLES.iter().any(|begin| shown.starts_with(begin)) {
            quotation::unquoted(&text)
        } else {
            Vec::new()
        };
        let of_document = |complaint: &String| format!("{shown}:{complaint}");
        found.complaints.extend(checked.complaints.iter().chain(&bare).map(of_document));
        let differing = checked.differing.iter().map(of_document).collect();
        found.differ(document, &shown, (checked.refilled != text).then_some(checked.refilled), differing)?;
    }
    for machine in machines(root)? {
        let page = page(&machine, &today)?;
        let name = machine.file_name().unwrap_or_default().to_string_lossy();
        let report = root.join(REPORTS).join(format!("report-{name}.html"));
        let differs = fs::read_to_string(&report).ok().as_ref() != Some(&page);
        let shown = shown(root, &report);
        let complaint = format!("{shown}: the records give another page");
        found.differ(&report, &shown, differs.then_some(page), vec![complaint])?;
    }
    if !found.complaints.is_empty() {
        bail!(
            "{}\n{} complaints about logs, records, {quoted} quoted figures, tables and reports; if the logs are right: \
             cargo xtask figures --refill",
            found.complaints.join("\n"),
            found.complaints.len()
        );
    }
    Ok(format!(
        "{}{quoted} figures in {} documents are those of their records",
        found.written.concat(),
        documents.len()
    ))
}

/// What was found so far.
#[derive(Default)]
struct Found {
    refill: bool,
    complaints: Vec<String>,
    /// What refilling has written, a line each.
    written: Vec<String>,
}

impl Found {
    /// A file that should have another text, if any is given, for these reasons: writes it or complains.
    fn differ(
        &mut self,
        file: &Path,
        shown: &str,
        right: Option<String>,
        complaints: Vec<String>,
    ) -> anyhow::Result<()> {
        let Some(right) = right else { return Ok(()) };
        if self.refill {
            fs::write(file, right).with_context(|| format!("cannot write {shown}"))?;
            self.written.push(format!("{shown}: refilled\n"));
        } else {
            self.complaints.extend(complaints);
        }
        Ok(())
    }
}

/// A path as people know it.
fn shown(root: &Path, file: &Path) -> String {
    file.strip_prefix(root).unwrap_or(file).display().to_string()
}

/// Checks the records in a folder by their logs.
fn records(root: &Path, folder: &Path, found: &mut Found) -> anyhow::Result<()> {
    let files = entries(folder)?;
    let is = |file: &Path, suffix: &str| file.extension().is_some_and(|this| this == suffix);
    for record in files.iter().filter(|file| is(file, "json")) {
        if !record.with_extension(log::SUFFIX).exists() {
            found.complaints.push(format!("{}: there is no log of its runs", shown(root, record)));
        }
    }
    for file in files.iter().filter(|file| is(file, log::SUFFIX)) {
        let name = shown(root, file);
        let log = match Log::read(file) {
            Ok(log) => log,
            Err(error) => {
                found.complaints.push(format!("{name}: {error:#}"));
                continue;
            }
        };
        let (at_most, wanted) = log.left();
        if at_most > 0 {
            found.complaints.push(format!(
                "{name}: {wanted} runs that were announced are missing; cargo xtask record makes them"
            ));
        }
        let record = file.with_extension("json");
        let right = record::text(&log, &row(file))?;
        let differs = right != fs::read_to_string(&record).ok();
        let shown = shown(root, &record);
        let complaint = format!("{shown}: the log gives another record");
        found.differ(&record, &shown, right.filter(|_| differs), vec![complaint])?;
    }
    Ok(())
}

/// The row that a record or log is of, such as `compare/lpm4`.
fn row(file: &Path) -> String {
    let kind = file.parent().and_then(Path::file_name).unwrap_or_default();
    Path::new(kind).join(file.file_stem().unwrap_or_default()).display().to_string()
}

/// Reads a record.
fn read(file: &Path, today: &Today) -> anyhow::Result<Quoted> {
    let text = fs::read_to_string(file).context("there is no such record: cargo xtask record makes it")?;
    let record: Value = serde_json::from_str(&text).context("the record is no JSON")?;
    let measured = record.get("measured").context("the file is no record of `cargo xtask record`")?;
    let sources = measured.get("sources").and_then(|sources| serde_json::from_value(sources.clone()).ok());
    Ok(Quoted { older: sources.is_none() || today.of_row(&row(file)) != sources, record })
}

/// The folders of machines that there are records of.
fn machines(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    entries(&root.join(FOLDER))
}

/// What is in a folder, if it is there.
fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let mut entries = fs::read_dir(folder)
        .with_context(|| format!("cannot read {}", folder.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}

/// The page of a machine's records.
fn page(machine: &Path, today: &Today) -> anyhow::Result<String> {
    let texts = |kind: &str| {
        let files = entries(&machine.join(kind))?.into_iter();
        let records = files.filter(|file| file.extension().is_some_and(|suffix| suffix == "json"));
        let text = |file: PathBuf| {
            let Quoted { mut record, older } =
                read(&file, today).with_context(|| file.display().to_string())?;
            if older {
                record["measured"]["older_code"] = true.into();
            }
            Ok(record.to_string())
        };
        records.map(text).collect::<anyhow::Result<String>>()
    };
    let comparisons = report::Comparison::read(&texts("compare")?)?;
    let records = report::read_records(&texts("lab")?)?;
    Ok(report::page(&comparisons, &records, &[])?)
}

/// The Markdown files that git knows of, or would.
fn documents(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let names = workspace::git(
        root,
        &["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.md"],
    )?;
    Ok(names.split_terminator('\0').map(|name| root.join(name)).filter(|file| file.is_file()).collect())
}

#[cfg(test)]
mod tests;
