//! One page with all that the lab found out on a machine.

use crate::bench::Machine;
use crate::experiment::{Cell, Column, Record, three_digits};
use crate::page;
use crate::plot::PlotError;
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

/// A line of `cargo xtask compare --json`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Comparison {
    /// What was compared.
    pub name: String,
    /// In which unit; fewer are better.
    pub unit: String,
    /// Our rounds.
    pub ours: Spread,
    /// The best peer.
    pub peer_name: String,
    /// Its rounds.
    pub peer: Option<Spread>,
    /// How many times better ours is.
    pub ratio: Option<f64>,
    /// The ratio that was promised.
    pub promise: f64,
    /// What physics allows.
    pub bound: String,
    /// Rounds that count.
    pub rounds: usize,
    /// Why the result doesn't count.
    pub void: Option<String>,
}

/// The middle and the ends of a side's rounds.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Spread {
    /// Half of the rounds were faster.
    pub median: f64,
    /// The fastest round.
    pub min: f64,
    /// The slowest round.
    pub max: f64,
}

/// A line that is no comparison.
#[derive(Debug, thiserror::Error)]
#[error("line {line} is no result of a comparison: {source}")]
pub struct NoComparison {
    line: usize,
    source: serde_json::Error,
}

impl Comparison {
    /// Reads one comparison a line; empty lines are skipped.
    ///
    /// # Errors
    /// [`NoComparison`] with the first line that is none.
    pub fn read_lines(text: &str) -> Result<Vec<Self>, NoComparison> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        lines
            .map(|(number, line)| {
                serde_json::from_str(line).map_err(|source| NoComparison { line: number + 1, source })
            })
            .collect()
    }

    /// The verdict in a word, and as a class of the page's style.
    fn verdict(&self) -> (&'static str, &'static str) {
        match (&self.void, self.ratio) {
            (None, Some(ratio)) if ratio >= self.promise => ("kept", "kept"),
            (None, Some(_)) => ("not kept", "not-kept"),
            _ => ("void", "void"),
        }
    }
}

/// The page. `skipped` are experiments that could not be done here, and why.
///
/// # Errors
/// [`PlotError`].
pub fn page(
    comparisons: &[Comparison],
    records: &[Record],
    skipped: &[(&str, String)],
) -> Result<String, PlotError> {
    let sections = records.iter().map(section).collect::<Result<Vec<_>, _>>()?;
    let body = html! {
        p { "Measured on " (Machine::this()) ". Cycles are those of the time-stamp counter." }
        nav { @for record in records { a href={ "#" (record.name) } { (record.name) } } }
        @if !comparisons.is_empty() { (compared(comparisons)) }
        @for section in &sections { (section) }
        @if !skipped.is_empty() {
            section {
                h2 { "Not done here" }
                dl { @for (name, reason) in skipped { dt { (name) } dd { (reason) } } }
            }
        }
    };
    let data = serde_json::json!({ "comparisons": comparisons, "experiments": records });
    Ok(page::document("Warmlane on this machine", &body, &data.to_string()))
}

fn compared(comparisons: &[Comparison]) -> Markup {
    html! {
        section {
            h2 { "Against peers" }
            p { "Medians of rounds that took turns on the same CPUs of this machine; a ratio above 1 is better than the peer." }
            div.scroll { table {
                thead { tr {
                    th.text { "comparison" } th.text { "peer" } th.text { "unit" } th { "ours" } th { "peer" } th { "ratio" }
                    th { "promised" } th.text { "verdict" }
                } }
                tbody { @for comparison in comparisons {
                    @let (verdict, class) = comparison.verdict();
                    tr {
                        td.text { (comparison.name) } td.text { (comparison.peer_name) } td.text { (comparison.unit) }
                        td { (three_digits(comparison.ours.median)) }
                        td { (Cell::from(comparison.peer.map(|peer| peer.median))) }
                        td { (comparison.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))) }
                        td { (format!("{:.2}", comparison.promise)) }
                        td.text { span class=(class) { (verdict) } @if let Some(reason) = &comparison.void { ": " (reason) } }
                    }
                } }
            } }
            h3 { "Bounds" }
            dl { @for comparison in comparisons { dt { (comparison.name) } dd { (comparison.bound) } } }
        }
    }
}

fn section(record: &Record) -> Result<Markup, PlotError> {
    let heads: Vec<String> = record.columns.iter().map(Column::head).collect();
    let rows: Vec<Vec<String>> =
        record.rows.iter().map(|row| row.iter().map(Cell::to_string).collect()).collect();
    let plot = record.plot()?;
    Ok(html! {
        section id=(record.name) {
            h2 { (record.name) }
            p { strong { (record.question) } }
            dl {
                @if let Some(claim) = &record.claim { dt { "Claimed" } dd { (claim.says) " (" (claim.source) ")" } }
                dt { "Method" } dd { (record.method) }
                dt { "Verdict" } dd { (record.verdict) }
            }
            (page::picture(&plot))
            (page::table(&heads, &rows, |column| record.is_text(column)))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Axis, Figure, Marks, Series};

    const LINE: &str = r#"{"name":"ring-spsc","unit":"cycles/element","ours":{"median":4.0,"min":3.5,"max":5.0},"peer_name":"rte_ring","peer":{"median":8.0,"min":7.0,"max":9.0},"ratio":2.0,"promise":1.5,"bound":"lines","rounds":15,"void":null}"#;

    fn record() -> Record {
        let axis = |label| Axis::linear(label);
        let series = Series { name: "depot".to_owned(), points: vec![(1.0, 2.0), (2.0, 3.0)] };
        Record {
            name: "pool-order",
            question: "Which pool keeps buffers warm?",
            claim: None,
            method: "Two lanes.",
            columns: vec![Column::plain("pool"), Column::figures("cost", "cycles")],
            rows: vec![vec!["depot".into(), 12.34.into()]],
            verdict: "The depot <wins>.".to_owned(),
            machine: Machine::this(),
            figures: vec![Figure {
                title: "Pools".to_owned(),
                x: axis("buffers"),
                y: axis("cycles"),
                marks: Marks::Lines(vec![series]),
            }],
        }
    }

    #[test]
    fn the_page_has_all_figures_and_needs_nothing_else() {
        let comparisons = Comparison::read_lines(&format!("{LINE}\n\n")).unwrap();
        let skipped = [("rings", "it needs a second CPU".to_owned())];
        let page = page(&comparisons, &[record()], &skipped).unwrap();
        for text in
            ["ring-spsc", "2.00", "kept", "12.3", "The depot &lt;wins&gt;.", "<svg", "it needs a second CPU"]
        {
            assert!(page.contains(text), "{text}");
        }
        // SVG names its own vocabulary; nothing is fetched.
        assert!(!page.replace("http://www.w3.org/2000/svg", "").contains("http"));
        let data = page.split_once(r#"id="data">"#).unwrap().1.split_once("</script>").unwrap().0;
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["experiments"][0]["rows"][0][1], 12.34);
        assert_eq!(data["comparisons"][0]["ratio"], 2.0);
    }

    #[test]
    fn what_is_no_comparison_is_told_by_line() {
        let error = Comparison::read_lines(&format!("{LINE}\nnonsense\n")).unwrap_err().to_string();
        assert!(error.starts_with("line 2 is no result of a comparison"), "{error}");
    }
}
