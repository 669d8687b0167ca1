//! One page with all that the lab found out on a machine.

use crate::counters::{self, Counted, Report};
use crate::machine::Machine;
use crate::modelled;
use crate::page;
use crate::plot::{self, PlotError};
use crate::record::Record;
use crate::setting::Steadiness;
use crate::statistics::Interval;
use crate::table::{Cell, Column};
use crate::verdict::{self, Tested, Verdict};
use maud::{Markup, html};
use std::collections::BTreeSet;

mod promises;
mod results;
mod sizes;

pub use results::{Comparison, NoResult, read_records};

/// The page. `skipped` are experiments that could not be done here, and why.
///
/// # Errors
/// [`PlotError`].
pub fn page(
    comparisons: &[Comparison],
    records: &[Record],
    skipped: &[(&str, String)],
) -> Result<String, PlotError> {
    let mut machines: Vec<&Machine> = Vec::new();
    let all = records.iter().map(|record| &record.machine);
    for machine in all.chain(comparisons.iter().filter_map(|comparison| comparison.machine.as_ref())) {
        if machines.iter().all(|known| known.to_string() != machine.to_string()) {
            machines.push(machine);
        }
    }
    let names: Vec<String> = machines.iter().map(ToString::to_string).collect();
    let mixed = names.len() > 1;
    let sections = records.iter().map(|record| section(record, mixed)).collect::<Result<Vec<_>, _>>()?;
    // Of several machines a line would be none.
    let sizes = sizes::figure(comparisons).filter(|_| !mixed);
    let sizes = sizes.map(|figure| plot::figures(&[figure], None)).transpose()?;
    let body = html! {
        p {
            @if !names.is_empty() { "Measured on " (names.join("; and on ")) ". " }
            @if mixed { strong { "Figures of one machine can't be set beside those of another." } " " }
            "Cycles are those of the time-stamp counter."
        }
        nav { @for record in records { a href={ "#" (record.name) } { (record.name) } } }
        @if !comparisons.is_empty() { (compared(comparisons, mixed)) }
        @if let Some(sizes) = &sizes { (page::picture(sizes)) }
        (claims(records))
        @for machine in &machines { (facts(machine, comparisons, records)) }
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

/// A machine, in full; the sources and days of what was measured on it, where that is known.
fn facts(machine: &Machine, comparisons: &[Comparison], records: &[Record]) -> Markup {
    let unknown = || "not told".to_owned();
    let mut facts = vec![
        ("processor", machine.cpu.clone().unwrap_or_else(unknown)),
        ("CPUs", machine.cpus.map_or_else(unknown, |cpus| cpus.to_string())),
        ("microcode", machine.microcode.clone().unwrap_or_else(unknown)),
        ("kernel", machine.kernel.clone().unwrap_or_else(unknown)),
        ("hypervisor", machine.hypervisor.clone().unwrap_or_else(|| "none".to_owned())),
        ("frequency governor", machine.governor.clone().unwrap_or_else(unknown)),
        ("huge pages", huge_pages(machine)),
        ("cycle counter", format!("{:.3} GHz", machine.cycles_per_second as f64 / 1e9)),
    ];
    let here = |other: &Machine| other.to_string() == machine.to_string();
    let records = records.iter().map(|record| (Some(&record.machine), &record.measured));
    let comparisons =
        comparisons.iter().map(|comparison| (comparison.machine.as_ref(), &comparison.measured));
    let (mut days, mut commits) = (BTreeSet::new(), BTreeSet::new());
    for (machine, measured) in records.chain(comparisons) {
        if let Some(machine) = machine.filter(|machine| here(machine)) {
            commits.extend(machine.sources());
            days.extend(measured.as_ref().map(|measured| measured.date.clone()));
        }
    }
    for (name, values) in [("measured on", days), ("commits", commits)] {
        if !values.is_empty() {
            facts.push((name, values.into_iter().collect::<Vec<_>>().join(", ")));
        }
    }
    html! {
        div.part {
            h2.part { "The machine" }
            dl { @for (name, value) in &facts { dt { (name) } dd { (value) } } }
        }
    }
}

fn huge_pages(machine: &Machine) -> String {
    let reserved = machine.huge_pages.iter().filter(|pool| pool.total > 0);
    let reserved = reserved.map(|pool| format!("{} of {} MiB", pool.total, pool.page_bytes >> 20));
    let reserved: Vec<String> = reserved.collect();
    let reserved = if reserved.is_empty() { "none set aside".to_owned() } else { reserved.join(", ") };
    match &machine.transparent_huge_pages {
        Some(when) => format!("{reserved}; transparent ones: {when}"),
        None => reserved,
    }
}

fn compared(comparisons: &[Comparison], mixed: bool) -> Markup {
    html! {
        div.part {
            h2.part { "Against peers" }
            p {
                "Medians of rounds that took turns on the same CPUs of this machine; a ratio above 1 is better than the peer. Each end of \
                 the interval holds with 95 %, and a promise is kept if all of the interval is; of fewer than five runs that is not known."
            }
            (promises::picture(comparisons))
            div.scroll { table {
                thead { tr {
                    th.text { "comparison" } th.text { "peer" } th.text { "unit" } th { "ours" } th { "peer" } th { "ratio" }
                    th { "interval" } th { "promised" } th.text { "verdict" } th.text { "measured" }
                } }
                tbody { @for comparison in comparisons {
                    @let (verdict, class) = comparison.verdict();
                    tr {
                        td.text { (comparison.name) } td.text { (comparison.peer_name) } td.text { (comparison.unit) }
                        @let counts = comparison.void.is_none();
                        td { (Cell::from(counts.then_some(comparison.ours.median))) }
                        td { (Cell::from(comparison.peer.filter(|_| counts).map(|peer| peer.median))) }
                        td { (comparison.ratio.filter(|_| counts).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))) }
                        td { (comparison.interval.filter(|_| counts).map_or_else(|| "-".to_owned(), |Interval { low, high }| format!("{low:.2} to {high:.2}"))) }
                        td { (format!("{:.2}", comparison.promise)) }
                        td.text { span class=(class) { (verdict) } @if let Some(reason) = &comparison.void { ": " (reason) } }
                        td.text { @if let Some(measured) = &comparison.measured { (measured) } }
                    }
                } }
            } }
            h3 { "Bounds" }
            dl { @for comparison in comparisons { dt { (comparison.name) } dd { (comparison.bound) } } }
            @if mixed {
                h3 { "Machines" }
                dl { @for comparison in comparisons {
                    dt { (comparison.name) } dd { (comparison.machine.as_ref().map_or_else(|| "not told".to_owned(), Machine::to_string)) }
                } }
            }
        }
    }
}

fn section(record: &Record, mixed: bool) -> Result<Markup, PlotError> {
    let heads: Vec<String> = record.columns.iter().map(Column::head).collect();
    let rows: Vec<Vec<String>> =
        record.rows.iter().map(|row| row.iter().map(Cell::to_string).collect()).collect();
    let plot = record.plot()?;
    Ok(html! {
        // Each on a line of its own, for who compares pages.
        "\n"
        section id=(record.name) {
            h2 { (record.name) }
            p { strong { (record.question) } }
            dl {
                @if let Some(claim) = &record.claim { dt { "Claimed" } dd { (claim.says) " (" (claim.source) ")" } }
                dt { "Method" } dd { (record.method) }
                @if let Some(reason) = &record.void { dt { "Void" } dd { strong { "This does not count: " } (reason) } }
                @if let Some(outcome) = &record.outcome { dt { "Verdict" } dd { (judged(outcome)) } }
                // Before verdicts were computed, this was called one.
                dt { @if record.outcome.is_some() { "Conclusion" } @else { "Verdict" } } dd { (record.conclusion) }
                @if let Some(sentence) = steadiness(&record.steadiness) { dt { "Steadiness" } dd { (sentence) } }
                @if mixed { dt { "Machine" } dd { (record.machine) } }
                @if let Some(measured) = &record.measured {
                    dt { "Measured" } dd {
                        (measured) ", by " code { (measured.command) }
                        @if let Some(commit) = record.machine.sources() { ", commit " (commit) }
                    }
                }
            }
            @if !record.figures.is_empty() { (page::picture(&plot)) }
            (page::table(&heads, &rows, |column| record.is_text(column)))
            (predictions(&record.tested))
            (counted(&record.counters))
        }
    })
}

/// A verdict, with its reason.
fn judged(verdict: &Verdict) -> Markup {
    let class = match verdict {
        Verdict::Reproduced => "kept",
        Verdict::NotReproduced(_) => "not-kept",
        Verdict::CannotTell(_) => "void",
    };
    html! { span class=(class) { (verdict.word()) } @if let Some(why) = verdict.why() { ": " (why) } }
}

/// The claim's predictions, and what became of each.
fn predictions(tested: &[Tested]) -> Markup {
    let heads = verdict::HEADS.into_iter().chain(["refuted by"]).map(str::to_owned).collect::<Vec<_>>();
    let rows = tested
        .iter()
        .map(|tested| tested.cells().into_iter().chain([tested.prediction.refuted_by.to_owned()]).collect());
    html! { @if !tested.is_empty() { (page::table(&heads, &rows.collect::<Vec<_>>(), |column| column != 2)) } }
}

/// Which claims were reproduced here, all in one table.
fn claims(records: &[Record]) -> Markup {
    let outcomes = || records.iter().filter_map(|record| Some((record, record.outcome.as_ref()?)));
    html! {
        @if outcomes().next().is_some() {
            div.part {
                h2.part { "Claims" }
                p { "What others say, and whether it was measured here. Each verdict follows from figures and ranges that were declared before." }
                div.scroll { table {
                    thead { tr { th.text { "experiment" } th.text { "claim" } th.text { "verdict" } } }
                    tbody { @for (record, outcome) in outcomes() { tr {
                        td.text { a href={ "#" (record.name) } { (record.name) } }
                        td.text { @if let Some(claim) = &record.claim { (claim.says) } }
                        td.text { (judged(outcome)) }
                    } } }
                } }
            }
        }
    }
}

/// How many turns figures come from, how far their rounds are apart, and which of them don't count; `None` if that was not noted.
fn steadiness(measurements: &[Steadiness]) -> Option<String> {
    let counting = || measurements.iter().filter(|measurement| measurement.counted > 0);
    let fewest = counting().map(|measurement| measurement.counted).min();
    let widest = counting().filter_map(|measurement| measurement.spread).reduce(f64::max);
    let mut sentences: Vec<String> = fewest
        .zip(widest)
        .map(|(fewest, widest)| {
            format!("Each figure is the middle of {fewest} turns or more; the slowest round of a variant took at most {widest:.2} times its fastest.")
        })
        .into_iter()
        .collect();
    let void = measurements.iter().flat_map(|measurement| {
        measurement.void.iter().map(|reason| format!("{}: {reason}", measurement.step))
    });
    let void: Vec<String> = void.collect();
    if !void.is_empty() {
        sentences.push(format!("{} figures do not count and are left out: {}.", void.len(), void.join("; ")));
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// What the hardware counted; where it counts nothing, one sentence that says so.
fn counted(report: &Report) -> Markup {
    let events = report.hardware_events();
    let table = |rows: &[Counted], events: &[&str]| {
        let mut rows = counters::table(rows, events);
        let heads = rows.remove(0);
        page::table(&heads, &rows, |column| column == 0)
    };
    html! {
        @if !events.is_empty() {
            h3 { "Hardware counters, for each unit" }
            (table(&report.counted, &events))
        }
        @if let Some(sentence) = report.sentence() { p.note { "Hardware counters. " (sentence) } }
        @if !report.modelled.is_empty() {
            h3 { "Modelled caches, for each unit" }
            (table(&report.modelled, &modelled::EVENTS))
        }
        @if let Some(agreement) = &report.agreement {
            @for line in agreement.to_string().lines() { p.note { (line) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agreement::Agreement;
    use crate::counters::{Absent, Counted};
    use crate::plot::{Axis, Figure, Marks, Series};
    use crate::record::Measured;

    const LINE: &str = r#"{"name":"ring-spsc","unit":"cycles/element","ours":{"median":4.0,"min":3.5,"max":5.0},"peer_name":"rte_ring","peer":{"median":8.0,"min":7.0,"max":9.0},"ratio":2.0,"interval":{"low":1.5,"high":2.25},"promise":1.5,"bound":"lines","rounds":15,"void":null}"#;

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
            tested: Vec::new(),
            outcome: None,
            conclusion: "The depot <wins>.".to_owned(),
            steadiness: Vec::new(),
            void: None,
            counters: Report {
                counted: Vec::new(),
                modelled: Vec::new(),
                agreement: None,
                absent: vec![Absent { name: "cycles".to_owned(), reason: "a virtual machine".to_owned() }],
            },
            measured: None,
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
        let comparisons = Comparison::read(&format!("{LINE}\n\n")).unwrap();
        let skipped = [("rings", "it needs a second CPU".to_owned())];
        let page = page(&comparisons, &[record()], &skipped).unwrap();
        for text in [
            "ring-spsc",
            "2.00",
            "1.50 to 2.25",
            ">kept<",
            "12.3",
            "The depot &lt;wins&gt;.",
            "<svg",
            "it needs a second CPU",
        ] {
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
    fn what_is_no_result_is_told_with_its_place() {
        let error = Comparison::read(&format!("{LINE}\nnonsense\n")).unwrap_err().to_string();
        assert!(
            error.starts_with("a comparison, as `cargo xtask compare --json` prints it, was expected"),
            "{error}"
        );
        assert!(error.contains("line 2"), "{error}");
        assert!(read_records(LINE).unwrap_err().to_string().starts_with("an experiment's record"));
    }

    #[test]
    fn a_record_that_was_written_makes_the_same_page() {
        let mut first = record();
        first.figures[0].marks = Marks::HeatMap {
            columns: vec!["a".to_owned()],
            rows: vec!["b".to_owned(), "c".to_owned()],
            values: vec![vec![1.5], vec![f64::NAN]],
        };
        let text = serde_json::to_string_pretty(&first).unwrap();
        let again = read_records(&format!("{text}\n{text}")).unwrap();
        assert_eq!(again.len(), 2);
        assert_eq!(page(&[], &again[..1], &[]).unwrap(), page(&[], &[first], &[]).unwrap());
    }

    #[test]
    fn counters_are_a_table_or_a_sentence() {
        let absent = page(&[], &[record()], &[]).unwrap();
        assert!(absent.contains("Not counted on this machine: cycles (a virtual machine)."));
        assert!(!absent.contains("for each unit"));
        let mut counting = record();
        let per_unit = [("cycles".to_owned(), 3.25)].into();
        counting.counters = Report {
            counted: vec![Counted { step: "64 flows".to_owned(), variant: 1, units: 9, per_unit }],
            absent: vec![],
            modelled: vec![],
            agreement: Some(Agreement::example()),
        };
        let page = page(&[], &[counting], &[]).unwrap();
        assert!(page.contains("order of variants against the measured one: not reproduced"), "{page}");
        assert!(
            page.contains("Hardware counters, for each unit") && page.contains("<td>3.25</td>"),
            "{page}"
        );
        assert!(!page.contains("Not counted"));
    }

    #[test]
    fn the_first_page_has_the_machine_and_when_it_was_measured() {
        let mut record = record();
        record.measured = Some(Measured {
            command: "a < b".to_owned(),
            date: "2026-01-02".to_owned(),
            runs: Some(5),
            void_runs: Some(1),
            note: None,
            older_code: true,
        });
        (record.machine.commit, record.machine.changed_since_commit) =
            (Some("0123456789abcdef".to_owned()), Some(true));
        record.machine.huge_pages = vec![crate::machine::HugePages { page_bytes: 2 << 20, total: 512 }];
        record.machine.transparent_huge_pages = Some("madvise".to_owned());
        let page = page(&[], &[record], &[]).unwrap();
        for text in [
            "<dd>2026-01-02</dd>",
            "<dd>2026-01-02, 5 runs that count, 1 that don't, older code, by ",
            "0123456789ab and changes",
            "512 of 2 MiB; transparent ones: madvise",
            "<code>a &lt; b</code>",
        ] {
            assert!(page.contains(text), "{text}");
        }
    }

    #[test]
    fn the_whole_interval_has_to_keep_the_promise() {
        let verdict = |line: &str| Comparison::read(line).unwrap()[0].verdict().0;
        assert_eq!(verdict(LINE), "kept");
        assert_eq!(verdict(&LINE.replace(r#""low":1.5"#, r#""low":1.49"#)), "not kept");
        assert_eq!(verdict(&LINE.replace(r#"{"low":1.5,"high":2.25}"#, "null")), "not known");
    }

    #[test]
    fn what_is_void_has_no_figures() {
        let void = LINE.replace(r#""void":null"#, r#""void":"ours has two modes""#);
        let mut record = record();
        let measurement = |step: &str, counted, void: &[&str]| Steadiness {
            step: step.to_owned(),
            variants: 2,
            turns: 12,
            counted,
            seed: None,
            spread: Some(1.25),
            void: void.iter().map(|&reason| reason.to_owned()).collect(),
        };
        record.steadiness = vec![measurement("one", 9, &[]), measurement("two", 0, &["a storm passed"])];
        record.void = Some("1 of 4 figures do not count".to_owned());
        let page = page(&Comparison::read(&void).unwrap(), &[record], &[]).unwrap();
        assert!(page.contains("<td>-</td><td>-</td><td>-</td><td>-</td><td>1.50</td>"), "{page}");
        for text in [
            ": ours has two modes",
            "This does not count: </strong>1 of 4 figures",
            "the middle of 9 turns or more; the slowest round of a variant took at most 1.25 times",
            "1 figures do not count and are left out: two: a storm passed.",
        ] {
            assert!(page.contains(text), "{text}");
        }
    }

    #[test]
    fn verdicts_are_in_a_table_in_the_section_and_above_the_picture() {
        use crate::verdict::{Prediction, overall, test};
        const GAIN: Prediction =
            Prediction::effect("gain of a stack", "%", 74.0, "a stack that saves nothing");
        let mut record = record();
        assert!(!page(&[], std::slice::from_ref(&record), &[]).unwrap().contains("Claims"));
        record.tested = test(&[GAIN], &[(-3.0).into()], None);
        record.outcome = overall(&record.tested);
        let text = serde_json::to_string(&record).unwrap();
        let page = page(&[], &[record], &[]).unwrap();
        let told =
            "<span class=\"not-kept\">not reproduced</span>: gain of a stack: −3.00 % is less than 37.0 %";
        assert_eq!(page.matches(told).count(), 2, "{page}");
        assert!(page.contains("<td class=\"text\">a stack that saves nothing</td>"), "{page}");
        assert!(page.contains("pool-order: not reproduced: gain of a stack"), "{page}");
        let again = read_records(&text).unwrap();
        assert_eq!(again[0].outcome.as_ref().unwrap().word(), "not reproduced");
        assert_eq!(again[0].tested[0].measured, Some(-3.0));
    }

    #[test]
    fn older_records_have_a_conclusion_and_no_verdict() {
        let old = serde_json::to_value(record()).unwrap();
        assert!(old.get("tested").is_none() && old.get("outcome").is_none());
        assert_eq!(old["verdict"], "The depot <wins>.");
        let again = read_records(&old.to_string()).unwrap();
        assert_eq!((again[0].conclusion.as_str(), &again[0].outcome), ("The depot <wins>.", &None));
    }

    #[test]
    fn machines_are_not_mixed_silently() {
        let (first, mut second) = (record(), record());
        second.machine.cpu = Some("Another CPU".to_owned());
        let mixed = page(&[], &[first, second], &[]).unwrap();
        assert!(
            mixed.contains("can't be set beside")
                && mixed.matches("<h2 class=\"part\">The machine").count() == 2
        );
        assert!(mixed.contains("<dt>Machine</dt><dd>Another CPU"));
        assert!(!page(&[], &[record(), record()], &[]).unwrap().contains("can't be set beside"));
    }
}
