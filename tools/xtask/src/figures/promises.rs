//! The table of promises: which are kept, against what, on which machine, as the records say.
//!
//! It stands between two lines of its own in a document. `docs/performance.md` has all headlines; other documents have those that lead.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use super::{machines, read};
use crate::compare::catalogue::{self, HEADLINES, Headline};
use crate::record::sources::Today;
use crate::record::{FOLDER, OTHER_DPDK};

const BEGIN: &str = "<!-- promises: cargo xtask figures --refill -->\n";
const END: &str = "<!-- end of promises -->\n";
/// The document that has all rows, in the folder of its pages.
const ALL: &str = "docs";

/// The text of a document in `folder`, with the table that the records give; `None` if it has none.
pub(super) fn written(
    root: &Path,
    folder: &Path,
    text: &str,
    today: &Today,
) -> anyhow::Result<Option<String>> {
    let Some((before, rest)) = text.split_once(BEGIN) else { return Ok(None) };
    let Some((_, after)) = rest.split_once(END) else {
        anyhow::bail!("a table of promises begins and has no end: {}", END.trim());
    };
    let has_all = folder.ends_with(ALL);
    let rows = HEADLINES.iter().filter(|headline| has_all || headline.leads);
    let (pages, up) = if has_all { ("", "../") } else { ("docs/", "") };
    let mut table = String::from(
        "<!-- no record: rows that are not measured -->\n\n| what | promised | measured | kept | against | on | when |\n|---|---|---|---|---|---|---|\n",
    );
    for headline in rows {
        row(&mut table, root, headline, pages, up, today)?;
    }
    table.push('\n');
    Ok(Some([before, BEGIN, &table, END, after].concat()))
}

/// One headline, by the newest of its records that counts.
fn row(
    table: &mut String,
    root: &Path,
    headline: &Headline,
    pages: &str,
    up: &str,
    today: &Today,
) -> anyhow::Result<()> {
    let Headline { name, what, .. } = headline;
    let comparison = catalogue::find(name)?;
    let page = catalogue::subject(name).map_or("performance.md", |subject| subject.page);
    let mut newest: Option<(String, String, super::Quoted)> = None;
    let mut is_void = false;
    for machine in machines(root)? {
        let file = machine.join("compare").join(format!("{name}.json"));
        if !file.exists() {
            continue;
        }
        let quoted = read(&file, today)?;
        // The promises are held against the DPDK that a newcomer can install. Documents quote records against another one in their text.
        if quoted.record["measured"]["command"].as_str().is_some_and(|command| command.ends_with(OTHER_DPDK))
        {
            continue;
        }
        if quoted.record.get("void").is_some_and(Value::is_string) {
            is_void = true;
            continue;
        }
        let date = quoted.record["measured"]["date"].as_str().unwrap_or_default();
        let date: String = date.chars().take(DAY).collect();
        if newest.as_ref().is_none_or(|(other, ..)| *other < date) {
            let machine = machine.file_name().unwrap_or_default().to_string_lossy().into_owned();
            newest = Some((date, machine, quoted));
        }
    }
    write!(table, "| [{what}]({pages}{page}) | {} | ", comparison.promise)?;
    let Some((date, machine, quoted)) = newest else {
        let why = if is_void { "no run counts" } else { "not measured" };
        writeln!(table, "{why} | | | | |")?;
        return Ok(());
    };
    let record = &quoted.record;
    let ratio = record["ratio"].as_f64().unwrap_or(f64::NAN);
    let older = if quoted.older { "\u{2020}" } else { "" };
    write!(table, "[{ratio:.2}]({up}{FOLDER}/{machine}/compare/{name}.json#ratio){older}")?;
    let end = |end: &str| record["interval"][end].as_f64();
    if let (Some(low), Some(high)) = (end("low"), end("high")) {
        write!(table, " ({low:.2} to {high:.2})")?;
    }
    let kept = match record["kept"].as_str() {
        Some("kept") => "**kept**",
        Some("not kept") => "**not kept**",
        // An interval needs five runs.
        _ => "not known",
    };
    // The settings of the best peer are on the page.
    let peer = record["peer_name"].as_str().unwrap_or_default().split(" (").next().unwrap_or_default();
    writeln!(table, " | {kept} | {peer} | [{machine}]({pages}report-{machine}.html) | {date} |")?;
    Ok(())
}

/// Letters of a date.
const DAY: usize = "2026-11-27".len();
