//! A plan for people at a terminal.

use super::{CacheReport, Compared, Report, histogram};
use warmlane::mem::LINE_BYTES;
use warmlane::mem::plan::Plan;
use warmlane_lab::table::aligned;

/// As wide as the help texts.
pub(super) const WIDTH: usize = 100;

/// The plan in words, pictures and a table.
pub(super) fn text(report: &Report, plan: &Plan) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    for sentence in report.explanation.lines() {
        text.push_str(&wrapped(sentence));
    }
    if report.stride != report.planned_stride {
        text.push_str(&wrapped(&format!("The planner would have chosen {} bytes.", report.planned_stride)));
    }
    let pages = &report.pages;
    let outcome = match pages.only_available_bytes {
        Some(available) => {
            format!("This machine would refuse: {:.1} MiB are available.", mebibytes(available as usize))
        }
        None => format!("On this machine they would get {}, {} of them.", pages.pages, pages.page_count),
    };
    let memory = mebibytes(report.memory_bytes);
    text.push_str(&wrapped(&format!("{} buffers take {memory:.1} MiB. {outcome}", report.buffers)));
    if let Some(remedy) = &pages.remedy {
        text.push_str(&wrapped(&format!("For pages that stay huge: {remedy}.")));
    }
    for spread in &plan.spreads {
        text.push('\n');
        histogram::draw(&mut text, spread)?;
    }
    if report.compared.len() > 1 {
        text.push('\n');
        text.push_str(&compared(report));
    }
    Ok(text)
}

/// The strides that were compared, side by side.
fn compared(report: &Report) -> String {
    let heads = |cache: &CacheReport| [format!("L{} kept", cache.level), "unused sets".to_owned()];
    let mut lines = vec![["stride", "lines"].map(str::to_owned).to_vec()];
    lines[0].extend(report.caches.iter().flat_map(heads));
    lines[0].push("memory".to_owned());
    for row in &report.compared {
        let mut line = vec![row.stride.to_string(), (row.stride / LINE_BYTES).to_string()];
        for cache in &row.caches {
            line.extend([format!("{:.1} %", cache.kept * 100.0), cache.unused_sets.to_string()]);
        }
        line.push(format!("{:.1} MiB", mebibytes(row.memory_bytes)));
        line.push(match row {
            row if row.stride == report.planned_stride => "planned".to_owned(),
            Compared { fits: false, .. } => format!("too small (needs {})", report.needed),
            _ => String::new(),
        });
        lines.push(line);
    }
    let note = 3 + 2 * report.caches.len();
    aligned(&lines, |column| column == note)
}

fn mebibytes(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// A paragraph, broken between words.
fn wrapped(words: &str) -> String {
    textwrap::fill(words, textwrap::Options::new(WIDTH).break_words(false)) + "\n"
}
