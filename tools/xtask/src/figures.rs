//! `cargo xtask figures`: figures quoted in documents are those of the records that they come from.
//!
//! A quoted figure is a link whose target is its record and where in it the figure is, so that readers can follow it too:
//! `[2.14](../perf/figures/zen5/compare/l3-forward.json#ratio)`. The check fails on any that differs from its record at the
//! precision that is shown, on tables of figures without a record in those documents that readers start with, and if a
//! machine's report is another one than its records give; `--refill` writes what the records say. `cargo xtask record` makes
//! records.

mod quotation;
mod record;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use warmlane_lab::report;

use crate::workspace::{self, Metadata};
pub(crate) use record::{Arguments as RecordArguments, run as record};

/// Documents whose tables quote records.
const WITH_TABLES: [&str; 2] = ["README.md", "docs/performance.md"];
/// The folder of the pages of all records, one for each machine.
const REPORTS: &str = "docs";

/// Options of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Write into the documents what the records say, instead of failing where they differ
    #[arg(long)]
    refill: bool,
}

/// Checks or refills all documents.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Metadata { root, .. } = workspace::metadata(None)?;
    let documents = documents(&root)?;
    let (mut quoted, mut complaints) = (0, Vec::new());
    for document in &documents {
        let shown = document.strip_prefix(&root).unwrap_or(document).display().to_string();
        let text = fs::read_to_string(document).with_context(|| format!("cannot read {shown}"))?;
        let folder = document.parent().unwrap_or(&root);
        let checked = quotation::check(&text, |file| record::read(&folder.join(file)));
        quoted += checked.quoted;
        let bare = if WITH_TABLES.contains(&&*shown) { quotation::unquoted(&text) } else { Vec::new() };
        complaints
            .extend(checked.complaints.iter().chain(&bare).map(|complaint| format!("{shown}:{complaint}")));
        if arguments.refill && checked.refilled != text {
            fs::write(document, checked.refilled).with_context(|| format!("cannot write {shown}"))?;
            println!("{shown}: refilled");
        }
    }
    for machine in machines(&root)? {
        let page = page(&machine)?;
        let name = machine.file_name().unwrap_or_default().to_string_lossy();
        let shown = format!("{REPORTS}/report-{name}.html");
        let report = root.join(&shown);
        if fs::read_to_string(&report).ok().as_ref() != Some(&page) {
            complaints.push(format!("{shown}: {} another page", quotation::DIFFERS));
            if arguments.refill {
                fs::write(&report, page).with_context(|| format!("cannot write {shown}"))?;
                println!("{shown}: made anew");
            }
        }
    }
    // What refilling can't repair stays a complaint.
    complaints.retain(|complaint| !arguments.refill || !complaint.contains(quotation::DIFFERS));
    if !complaints.is_empty() {
        bail!(
            "{}\n{} complaints about {quoted} quoted figures, tables and reports; if the records are right: \
             cargo xtask figures --refill",
            complaints.join("\n"),
            complaints.len()
        );
    }
    println!("{quoted} figures in {} documents are those of their records", documents.len());
    Ok(())
}

/// The folders of machines that there are records of.
fn machines(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    entries(&root.join(record::FOLDER))
}

fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut entries = fs::read_dir(folder)
        .with_context(|| format!("cannot read {}", folder.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<Vec<_>>>()?;
    entries.sort();
    Ok(entries)
}

/// What `warmlane lab report --records lab/*.json --comparisons compare/*.json` writes of a machine's records.
fn page(machine: &Path) -> anyhow::Result<String> {
    let texts = |kind: &str| {
        let folder = machine.join(kind);
        let files = if folder.exists() { entries(&folder)? } else { Vec::new() };
        files.iter().map(|file| Ok(fs::read_to_string(file)?)).collect::<anyhow::Result<String>>()
    };
    let comparisons = report::Comparison::read(&texts("compare")?)?;
    let records = report::read_records(&texts("lab")?)?;
    Ok(report::page(&comparisons, &records, &[])?)
}

/// The Markdown files that git knows of, or would.
fn documents(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let listed = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.md"])
        .output()
        .context("git does not start")?;
    if !listed.status.success() {
        bail!("git does not list the documents: {}", String::from_utf8_lossy(&listed.stderr));
    }
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    Ok(names.split_terminator('\0').map(|name| root.join(name)).filter(|file| file.is_file()).collect())
}
