use super::*;
use crate::workspace::Metadata;
use log::Sources;
use serde_json::json;

fn series(runs: usize) -> Series {
    let (date, command) = ("2026-11-23".to_owned(), "cargo xtask compare lpm4 --json".to_owned());
    Series { runs, at_most: RUNS_EACH * runs, date, command, note: None }
}

/// A log in a folder of its own.
struct Fixture {
    _folder: tempfile::TempDir,
    file: PathBuf,
    log: Log,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { file: folder.path().join("lpm4.log"), _folder: folder, log: Log::default() }
    }

    fn announce(&mut self, runs: usize) {
        self.log.announce(&self.file, series(runs)).unwrap();
    }

    fn add(&mut self, code: &str, result: Value) -> anyhow::Result<()> {
        let sources: Sources = [("core/table/src".to_owned(), code.to_owned())].into();
        let void = result.get("void").and_then(Value::as_str).map(str::to_owned);
        let (number, date) = (self.log.runs().len() + 1, "2026-11-23".to_owned());
        self.log.append_run(&self.file, Run { number, date, took: None, sources, void, result: Some(result) })
    }

    fn add_ratios(&mut self, code: &str, ratios: &[f64]) {
        for &ratio in ratios {
            self.add(code, compared(ratio)).unwrap();
        }
    }

    fn record(&self, promise: f64) -> Value {
        summary::record(&self.log, Some(promise)).unwrap()
    }
}

fn compared(ratio: f64) -> Value {
    json!({
        "name": "lpm4", "ratio": ratio, "void": null, "turns": if ratio > 1.0 { 17 } else { 15 }, "seed": 7,
        "ours": {"median": ratio, "min": ratio - 0.5, "max": ratio + 0.5}, "bound": format!("ours takes {ratio}"),
    })
}

fn void(reason: &str) -> Value {
    json!({"name": "lpm4", "ratio": null, "void": reason})
}

#[test]
fn runs_against_another_dpdk_are_no_part_of_a_series() {
    let row_after = |dpdk: Value| {
        let mut fixture = Fixture::new();
        fixture.announce(1);
        fixture.add("a", json!({"name": "lpm4", "ratio": 1.0, "void": null, "dpdk": dpdk})).unwrap();
        Row { name: "compare/lpm4".to_owned(), file: fixture.file.clone(), log: fixture.log }
    };
    let ours = "26.07.0 (/opt/dpdk; -march=native)";
    let installed = row_after(json!("22.11.11 (installed; -march=corei7)"));
    assert!(installed.check_dpdk(None).is_ok());
    assert!(installed.check_dpdk(Some(ours)).unwrap_err().to_string().contains("than 26.07.0 (/opt/dpdk;"));
    let other = row_after(json!(ours));
    assert!(other.check_dpdk(Some(ours)).is_ok());
    assert!(other.check_dpdk(Some("26.11.0 (/opt/dpdk; -march=native)")).is_err());
    assert!(other.check_dpdk(None).unwrap_err().to_string().contains("than the distribution's: give"));
    assert!(row_after(Value::Null).check_dpdk(Some(ours)).is_ok(), "a row without DPDK");
}

#[test]
fn rows_are_comparisons_and_experiments() {
    assert!(row("compare/lpm4").is_ok() && row("lab/locks").is_ok());
    assert!(row("compare/warp").unwrap_err().to_string().contains("known are"));
    assert!(row("lpm4").unwrap_err().to_string().contains("compare/NAME or lab/NAME"));
    assert!(name("zen5").is_ok() && name("../zen5").is_err() && name("").is_err());
}

#[test]
fn runs_are_announced_before_they_are_made() {
    let mut fixture = Fixture::new();
    let unannounced = fixture.add("a", compared(1.0)).unwrap_err().to_string();
    assert!(unannounced.contains("run 1 was not announced"), "{unannounced}");
    fixture.announce(2);
    fixture.add("a", compared(1.0)).unwrap();
    fixture.add("a", void("a storm passed")).unwrap();
    assert_eq!(fixture.log.left(), (2, 1));
    fixture.add("a", compared(3.0)).unwrap();
    assert_eq!(fixture.log.left(), (0, 0));
    assert!(fixture.add("a", compared(9.0)).is_err(), "one run more than was announced");
    // What is read is what was written.
    let read = Log::read(&fixture.file).unwrap();
    assert_eq!((read.runs(), read.series()), (fixture.log.runs(), fixture.log.series()));
}

#[test]
fn a_series_ends_when_too_many_runs_do_not_count() {
    let mut fixture = Fixture::new();
    fixture.announce(2);
    for _ in 0..4 {
        fixture.add("a", void("a storm passed")).unwrap();
    }
    assert_eq!(fixture.log.left(), (0, 2));
    let record = fixture.record(1.0);
    assert_eq!(record["void"], "none of 4 runs counts; of the last one: a storm passed");
    assert_eq!((&record["kept"], &record["measured"]["void_runs"]), (&json!("not known"), &json!(4)));
}

#[test]
fn a_log_with_a_line_less_is_none() {
    let mut fixture = Fixture::new();
    fixture.announce(3);
    fixture.add_ratios("a", &[1.0, 2.0, 3.0]);
    let lines: Vec<String> = fs::read_to_string(&fixture.file).unwrap().lines().map(str::to_owned).collect();
    let complaint = |without: usize| {
        let mut lines = lines.clone();
        lines.remove(without);
        fs::write(&fixture.file, lines.join("\n")).unwrap();
        Log::read(&fixture.file).map(|log| log.left()).map_err(|error| format!("{error:#}"))
    };
    assert_eq!(
        complaint(0),
        Err("line 1: run 1 was not announced: the series before it had all its runs".to_owned())
    );
    assert_eq!(complaint(2), Err("line 3: run 3 stands where run 2 should".to_owned()));
    assert_eq!(complaint(3), Ok((4, 1)), "the last run is missing from what was announced");
}

#[test]
fn a_record_is_the_middle_of_its_runs() {
    let mut fixture = Fixture::new();
    fixture.announce(4);
    fixture.add_ratios("a", &[5.0, 1.0, 2.0]);
    fixture.add("a", void("a storm passed")).unwrap();
    let record = fixture.record(1.0);
    assert_eq!((&record["ratio"], &record["turns"]), (&json!(2.0), &json!(17)));
    assert_eq!(record["ours"], json!({"median": 2.0, "min": 0.5, "max": 5.5}));
    assert_eq!((&record["bound"], record.get("seed")), (&json!("ours takes 2"), None));
    assert_eq!((&record["measured"]["runs"], &record["measured"]["void_runs"]), (&json!(3), &json!(1)));
    fixture.add_ratios("a", &[3.0]);
    assert_eq!((&fixture.record(1.0)["ratio"], &fixture.record(1.0)["turns"]), (&json!(2.5), &json!(17)));
}

#[test]
fn tables_are_the_middle_cell_by_cell() {
    let mut fixture = Fixture::new();
    let table =
        |cost: Value| json!({"name": "locks", "columns": [], "rows": [["ticket", 2, cost], ["MCS", 2, 1.0]]});
    fixture.announce(3);
    for cost in [json!(9.0), Value::Null, json!(4.0)] {
        fixture.add("a", table(cost)).unwrap();
    }
    assert_eq!(fixture.record(1.0)["rows"], json!([["ticket", 2, 6.5], ["MCS", 2, 1.0]]));
    assert_eq!(fixture.record(1.0).get("kept"), None, "an experiment promises nothing");
}

#[test]
fn a_promise_is_kept_by_the_whole_interval_of_five_runs_or_more() {
    let mut fixture = Fixture::new();
    fixture.announce(5);
    fixture.add_ratios("a", &[1.6, 1.7, 1.5, 1.8]);
    assert_eq!(
        (&fixture.record(1.0)["kept"], &fixture.record(1.0)["interval"]),
        (&json!("not known"), &Value::Null)
    );
    fixture.add_ratios("a", &[1.4]);
    let record = fixture.record(1.4);
    assert_eq!(record["interval"], json!({"low": 1.4, "high": 1.8}));
    assert_eq!(
        (&record["kept"], &record["ratio"], &record["promise"]),
        (&json!("kept"), &json!(1.6), &json!(1.4))
    );
    assert_eq!(fixture.record(1.5)["kept"], "not kept", "its middle is not enough");
}

#[test]
fn runs_of_the_same_code_pool_and_other_code_begins_anew() {
    let mut fixture = Fixture::new();
    fixture.announce(1);
    fixture.add_ratios("a", &[1.0]);
    fixture.announce(1);
    fixture.add_ratios("a", &[2.0]);
    assert_eq!(fixture.record(1.0)["ratio"], 1.5, "a later series does not replace an earlier one");
    fixture.announce(1);
    fixture.add_ratios("b", &[9.0]);
    assert_eq!(fixture.record(1.0)["ratio"], 9.0);
    fixture.announce(1);
    fixture.add_ratios("a", &[6.0]);
    assert_eq!(fixture.record(1.0)["ratio"], 2.0, "code that comes back has all its runs");
}

#[test]
fn what_would_be_measured_is_listed() {
    let rows = BTreeSet::from(["compare/lpm4", "lab/locks"].map(str::to_owned));
    let folder = tempfile::tempdir().unwrap();
    let text = plan(folder.path(), None, &rows, 5).unwrap();
    assert!(text.starts_with("compare/lpm4                         5 runs of "), "{text}");
    assert!(text.contains("2 rows: ") && text.contains("and 1 of unknown length"), "{text}");
    let file = folder.path().join(FOLDER).join("box/compare/lpm4.log");
    let mut log = Log::default();
    log.announce(&file, series(1)).unwrap();
    let (date, sources) = (String::new(), Sources::new());
    let run = Run { number: 1, date, took: Some(720.0), sources, void: None, result: Some(compared(1.0)) };
    log.append_run(&file, run).unwrap();
    let text = plan(folder.path(), Some("box"), &rows, 5).unwrap();
    assert!(
        text.contains("5 runs of   720 s, as the runs before") && text.contains("2 rows: 1.0 hours"),
        "{text}"
    );
}

#[test]
fn sources_are_what_git_calls_them() {
    let scratch = tempfile::tempdir().unwrap();
    let workspace = workspace::metadata(None).unwrap();
    let root = workspace.root.clone();
    let today =
        Today::of(&root, Metadata { target_directory: scratch.path().to_owned(), ..workspace }).unwrap();
    let sources = today.of_row("compare/lpm4").unwrap();
    for path in ["core/table/src", "base/sync/src", "peers/lpm.c", "tools/xtask/src/compare/catalogue/lpm.rs"]
    {
        assert!(sources.contains_key(path), "{path}: {sources:?}");
    }
    assert!(!sources.keys().any(|path| path.starts_with("functions/")), "{sources:?}");
    assert!(sources["Cargo.toml [profile.release]"].contains("lto"), "{sources:?}");
    let file = workspace::git(&root, &["hash-object", "peers/lpm.c"]).unwrap();
    assert_eq!(sources["peers/lpm.c"], file);
    assert!(today.of_row("lab/locks").unwrap().contains_key("tools/lab/src/experiments/locks.rs"));
    assert!(today.of_row("compare/router-kernel").unwrap().contains_key("functions/router/bpf"));
    assert_eq!(today.of_row("compare/warp"), None);
}
