use super::*;
use crate::record::OTHER_DPDK;
use serde_json::json;

const ROW: &str = "compare/lpm4";
const LEGEND: &str = "\n† The code has changed since.\n";

/// A repository with a source, five runs of it, a document that quotes them, and all of it committed.
struct Fixture {
    folder: tempfile::TempDir,
    scratch: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let fixture = Self { folder: tempfile::tempdir().unwrap(), scratch: tempfile::tempdir().unwrap() };
        fixture.git(&["init", "--quiet"]);
        fixture.git(&["config", "user.name", "nobody"]);
        fixture.git(&["config", "user.email", "nobody@example.org"]);
        fixture.write("core/table/src/lib.rs", "// tables\n");
        fixture.write("peers/lpm.c", "// a peer\n");
        fixture.write("docs/figures.md", "[2.00](../perf/figures/box/compare/lpm4.json#ratio) times\n");
        fixture.commit();
        fixture.series(&[2.0, 1.5, 2.5, 1.75, 3.0]);
        fixture.refill();
        fixture.commit();
        assert_eq!(fixture.complaint(), None);
        fixture
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    fn git(&self, arguments: &[&str]) {
        workspace::git(self.root(), arguments).unwrap();
    }

    fn commit(&self) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message=x"]);
    }

    fn write(&self, file: &str, text: &str) {
        let file = self.root().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.root().join(file)).unwrap()
    }

    fn log(&self) -> PathBuf {
        self.root().join(FOLDER).join("box").join(ROW).with_extension(log::SUFFIX)
    }

    fn workspace(&self) -> Metadata {
        Metadata { target_directory: self.scratch.path().to_owned(), ..workspace::metadata(None).unwrap() }
    }

    /// Announces these runs, and makes them of the code that is there.
    fn series(&self, ratios: &[f64]) {
        self.series_by("x", "box", ratios);
    }

    /// The same on another machine, or by another command.
    fn series_by(&self, command: &str, machine: &str, ratios: &[f64]) {
        let file = self.root().join(FOLDER).join(machine).join(ROW).with_extension(log::SUFFIX);
        let sources = Today::of(self.root(), self.workspace()).unwrap().of_row(ROW).unwrap();
        let mut log = Log::read(&file).unwrap();
        let (runs, date) = (ratios.len(), "2026-11-23".to_owned());
        let series = log::Series {
            runs,
            at_most: 2 * runs,
            date: date.clone(),
            command: command.to_owned(),
            note: None,
        };
        log.announce(&file, series).unwrap();
        for ratio in ratios {
            let number = log.runs().len() + 1;
            let spread = json!({"median": 1.0, "min": 1.0, "max": 1.0});
            let result = json!({
                "name": "lpm4", "unit": "cycles/lookup", "ours": spread, "peer_name": "rte_fib", "peer": spread, "ratio": ratio,
                "promise": 1.4, "bound": "lines", "rounds": 15, "void": null,
            });
            let (sources, date) = (sources.clone(), date.clone());
            let run = log::Run { number, date, took: None, sources, void: None, result: Some(result) };
            log.append_run(&file, run).unwrap();
        }
    }

    /// What `cargo xtask figures --refill` does, whatever remains to be complained about.
    fn refill(&self) {
        let _ = check(self.root(), self.workspace(), true);
    }

    /// What `cargo xtask figures` fails with.
    fn complaint(&self) -> Option<String> {
        check(self.root(), self.workspace(), false).err().map(|error| error.to_string())
    }

    /// Changes the log and whatever follows from it, commits that, and says what the check finds.
    fn after_planting(&self, change: impl Fn(Vec<String>) -> Vec<String>) -> String {
        let lines = fs::read_to_string(self.log()).unwrap().lines().map(str::to_owned).collect();
        fs::write(self.log(), change(lines).join("\n") + "\n").unwrap();
        self.refill();
        let complaint = self.complaint().unwrap();
        assert!(complaint.contains("a change that is in no commit"), "{complaint}");
        self.commit();
        self.complaint().unwrap()
    }
}

#[test]
fn a_better_run_in_the_place_of_a_worse_one_is_found() {
    let planted = Fixture::new().after_planting(|mut lines| {
        lines[2] = lines[2].replace(r#""ratio":1.5"#, r#""ratio":2.9"#);
        lines
    });
    assert!(planted.contains("lpm4.log: 1 of its lines were removed or changed by"), "{planted}");
}

#[test]
fn a_line_that_was_removed_is_found() {
    let last = Fixture::new().after_planting(|mut lines| {
        lines.pop();
        lines
    });
    assert!(last.contains("lpm4.log: 1 runs that were announced are missing"), "{last}");
    assert!(last.contains("lpm4.log: 1 of its lines were removed or changed by"), "{last}");
    let middle = Fixture::new().after_planting(|mut lines| {
        lines.remove(2);
        lines
    });
    assert!(middle.contains("lpm4.log: line 3: run 3 stands where run 2 should"), "{middle}");
    // Announced and numbered as if there had been no more.
    let renumbered = Fixture::new().after_planting(|mut lines| {
        lines[0] = lines[0].replace(r#""runs":5"#, r#""runs":4"#);
        lines.pop();
        lines
    });
    assert!(renumbered.contains("lpm4.log: 2 of its lines were removed or changed by"), "{renumbered}");
}

#[test]
fn a_log_that_was_begun_anew_is_found() {
    let fixture = Fixture::new();
    fs::remove_file(fixture.log()).unwrap();
    fixture.series(&[9.0; 5]);
    fixture.refill();
    fixture.commit();
    let complaint = fixture.complaint().unwrap();
    assert!(complaint.contains("were removed or changed by"), "{complaint}");
}

#[test]
fn a_record_that_is_not_its_log_s_is_found() {
    let fixture = Fixture::new();
    let file = "perf/figures/box/compare/lpm4.json";
    fixture.write(file, &fixture.read(file).replace(r#""ratio": 2.0"#, r#""ratio": 2.9"#));
    let complaint = fixture.complaint().unwrap();
    assert!(complaint.contains("lpm4.json: the log gives another record"), "{complaint}");
    fs::remove_file(fixture.log()).unwrap();
    let complaint = fixture.complaint().unwrap();
    assert!(complaint.contains("lpm4.json: there is no log of its runs"), "{complaint}");
}

#[test]
fn a_changed_source_makes_figures_older() {
    let fixture = Fixture::new();
    fixture.write("core/table/src/lib.rs", "// better tables\n");
    let complaint = fixture.complaint().unwrap();
    assert!(complaint.contains("docs/figures.md:1: a figure of older code is not marked"), "{complaint}");
    fixture.refill();
    assert!(fixture.complaint().unwrap().contains("no line that begins with '† '"));
    let document = fixture.read("docs/figures.md");
    assert_eq!(document, "[2.00](../perf/figures/box/compare/lpm4.json#ratio)† times\n");
    fixture.write("docs/figures.md", &(document + LEGEND));
    assert_eq!(fixture.complaint(), None);
    assert!(fixture.read("docs/report-box.html").contains("older code"));
    // Runs of the new code are not pooled with the old ones, and need no mark.
    fixture.commit();
    fixture.series(&[4.0; 5]);
    fixture.refill();
    assert_eq!(fixture.complaint(), None);
    assert!(
        fixture
            .read("docs/figures.md")
            .starts_with("[4.00](../perf/figures/box/compare/lpm4.json#ratio) times")
    );
    // Nor does what the row doesn't depend on matter.
    fixture.write("functions/router/src/lib.rs", "// another router\n");
    fixture.commit();
    assert_eq!(fixture.complaint(), None);
}

#[test]
fn what_does_not_count_is_not_quoted() {
    let fixture = Fixture::new();
    let log = fs::read_to_string(fixture.log()).unwrap();
    fs::write(fixture.log(), log.replace(r#""void":null"#, r#""void":"a storm passed""#)).unwrap();
    fixture.refill();
    let complaint = fixture.complaint().unwrap();
    assert!(complaint.contains("what does not count is quoted: none of 5 runs counts"), "{complaint}");
}

#[test]
fn a_later_series_of_the_same_code_is_pooled() {
    let fixture = Fixture::new();
    fixture.series(&[9.0; 5]);
    assert!(fixture.complaint().unwrap().contains("lpm4.json: the log gives another record"));
    fixture.refill();
    assert_eq!(fixture.complaint(), None);
    assert!(fixture.read("docs/figures.md").starts_with("[6.00]("));
}

#[test]
fn the_table_of_promises_is_what_the_records_say() {
    let fixture = Fixture::new();
    let text = |rows: &str| {
        format!(
            "# Figures\n\n<!-- promises: cargo xtask figures --refill -->\n{rows}<!-- end of promises -->\n{LEGEND}"
        )
    };
    for file in ["README.md", "docs/performance.md"] {
        fixture.write(file, &text("| by hand |\n"));
        assert!(
            fixture
                .complaint()
                .unwrap()
                .contains(&format!("{file}: the records give another table of promises"))
        );
        fixture.refill();
        assert_eq!(fixture.complaint(), None);
        let table = fixture.read(file);
        let row = table.lines().find(|line| line.contains("compare/lpm4.json")).unwrap();
        // The median of five runs, whose lowest is above the promise.
        for part in ["| 1.4 | [2.00](", "(1.50 to 3.00) | **kept** | rte_fib | [box](", "| 2026-11-23 |"] {
            assert!(row.contains(part), "{part}: {row}");
        }
        assert!(table.contains("| not measured |"), "{table}");
        assert_eq!(table.contains("the same without vectors"), file != "README.md");
    }
    fixture.series_by(&format!("x{OTHER_DPDK}"), "another", &[9.0; 5]);
    fixture.refill();
    assert!(!fixture.read("README.md").contains("another/"), "made on another DPDK");
    fixture.write("README.md", "<!-- promises: cargo xtask figures --refill -->\n");
    assert!(fixture.complaint().unwrap().contains("has no end"));
}
