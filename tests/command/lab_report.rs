//! The lab's page in a browser: it renders, without an error, with the figures of its own JSON, on screen and on paper.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use warmlane_system_tests::SHORT;
use warmlane_system_tests::browser::{BROWSER, once};
use warmlane_testkit::process::{Finished, Process, warmlane};
use warmlane_testkit::requirements;

const EXPERIMENTS: [&str; 2] = ["mac-swap", "vector-rx"];
const COMPARISON: &str = r#"{"name":"ring-spsc","unit":"cycles/element","ours":{"median":4.126,"min":3.5,"max":5.0},"peer_name":"rte_ring <SP/SC>","peer":{"median":8.25,"min":7.0,"max":9.0},"ratio":1.9995,"interval":{"low":1.84,"high":2.1},"promise":1.5,"bound":"lines","rounds":15,"void":null}"#;

fn browse(folder: &Path, arguments: &[&str], page: &Path) -> Finished {
    let mut command = once(folder);
    command.args(["--enable-logging=stderr", "--log-level=0", "--window-size=1280,1600"]);
    command.args(arguments).arg(format!("file://{}", page.display()));
    let finished = Process::run(&mut command, SHORT);
    finished.expect_success(BROWSER);
    finished
}

/// What the page's script said to the browser's console, errors of loading included.
fn console(finished: &Finished) -> Vec<String> {
    finished.errors.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect()
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap_or_else(|| panic!("no {start}"));
    rest.split_once(end).unwrap_or_else(|| panic!("no {end} after {start}")).0
}

/// The cells of the first table in a piece of the page, row by row.
fn cells(piece: &str) -> Vec<Vec<String>> {
    let body = between(piece, "<tbody>", "</tbody>");
    let rows = body.split("<tr>").skip(1);
    let cell = |cell: &str| {
        let text = cell.split_once('>').unwrap().1.split_once("</td>").unwrap().0;
        let plain: String =
            text.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text)).collect();
        plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    };
    rows.map(|row| row.split("<td").skip(1).map(cell).collect()).collect()
}

/// A figure as the page must show it, in about three digits.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        Value::Number(number) if number.is_u64() => number.to_string(),
        _ => {
            let figure = value.as_f64().unwrap();
            let decimals = if figure < 10.0 { 2 } else { usize::from(figure < 100.0) };
            format!("{figure:.decimals$}")
        }
    }
}

#[test]
fn the_page_renders_without_errors_and_shows_its_json() {
    if !requirements::programs(&[BROWSER]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (page, comparisons) = (folder.path().join("page.html"), folder.path().join("comparisons.json"));
    std::fs::write(&comparisons, COMPARISON).unwrap();
    let made = Command::new(warmlane())
        .args(["lab", "report"])
        .args(EXPERIMENTS)
        .args(["--rounds", "1", "--seconds", "0.001", "--comparisons"])
        .arg(&comparisons)
        .arg("--output")
        .arg(&page)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));

    let browsed = browse(folder.path(), &["--dump-dom"], &page);
    assert_eq!(console(&browsed), Vec::<String>::new());
    let document = &browsed.output;
    let data = between(document, r#"id="data">"#, "</script>");
    let data: Value = serde_json::from_str(data).unwrap();

    let compared = cells(document);
    assert_eq!(compared.len(), 1);
    let ratio = ["2.00", "1.84 to 2.10", "1.50", "kept", ""];
    let wanted = [&["ring-spsc", "rte_ring <SP/SC>", "cycles/element", "4.13", "8.25"][..], &ratio].concat();
    assert_eq!(compared[0], wanted);
    let records = data["experiments"].as_array().unwrap();
    assert_eq!(records.len(), EXPERIMENTS.len());
    for (name, record) in EXPERIMENTS.iter().zip(records) {
        assert_eq!(record["name"], *name);
        let section = between(document, &format!(r#"<section id="{name}">"#), "</section>");
        assert!(section.contains("<svg") && section.contains("Claimed") && section.contains("Verdict"));
        assert!(section.contains("Hardware counters"), "{name} says nothing about counters");
        let rows = record["rows"].as_array().unwrap();
        let wanted: Vec<Vec<String>> =
            rows.iter().map(|row| row.as_array().unwrap().iter().map(shown).collect()).collect();
        assert_eq!(cells(section), wanted, "{name}");
    }

    let picture = folder.path().join("page.png");
    browse(folder.path(), &[&format!("--screenshot={}", picture.display())], &page);
    let picture = std::fs::read(&picture).unwrap();
    assert!(picture.starts_with(b"\x89PNG") && picture.len() > 20_000, "{} bytes", picture.len());
    let paper = folder.path().join("page.pdf");
    browse(folder.path(), &[&format!("--print-to-pdf={}", paper.display())], &page);
    let paper = std::fs::read(&paper).unwrap();
    // One for the comparisons, and a new one for each experiment.
    let pages = paper.windows(11).filter(|bytes| bytes == b"/Type /Page").count();
    assert!(paper.starts_with(b"%PDF") && pages > EXPERIMENTS.len(), "{pages} pages");
}

#[test]
fn a_page_with_an_error_would_be_noticed() {
    if !requirements::programs(&[BROWSER]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    std::fs::write(
        &page,
        "<!DOCTYPE html><title>x</title><script>nonsense()</script><img src='missing.png'>",
    )
    .unwrap();
    let said = console(&browse(folder.path(), &["--dump-dom"], &page));
    assert!(said.iter().any(|line| line.contains("nonsense is not defined")), "{said:?}");
}
