//! Static probe points of the program: those that it has are those that the documentation lists, each with its arguments.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use warmlane_system_tests::SHORT;
use warmlane_testkit::process::{Process, warmlane};
use warmlane_testkit::requirements;

/// Names, and how many arguments each has, by the notes in the program's file.
fn noted(program: &Path) -> BTreeMap<String, usize> {
    let finished = Process::run(Command::new("readelf").arg("--notes").arg(program), SHORT);
    let (mut found, mut provider, mut name) = (BTreeMap::new(), "", "");
    for line in finished.expect_success("readelf").lines() {
        match line.trim().split_once(": ") {
            Some(("Provider", text)) => provider = text.trim(),
            Some(("Name", text)) => name = text.trim(),
            Some(("Arguments", text)) if provider == "warmlane" => {
                let before = found.insert(name.to_owned(), text.split_whitespace().count());
                // Where it was compiled into several places, all of them have the same.
                assert!(before.is_none_or(|before| before == text.split_whitespace().count()), "{line}");
            }
            _ => {}
        }
    }
    found
}

/// The same by docs/operate.md: rows such as "| `lane_end` | `name`, `length`, `cut_short` | ... |".
fn documented() -> BTreeMap<String, usize> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operate.md");
    let page = fs::read_to_string(page).expect("the page");
    let section = page.split("## Static probes").nth(1).expect("a section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix("| `")?.split(" | ").collect();
        Some((cells.first()?.trim_end_matches('`').to_owned(), cells.get(1)?.matches('`').count() / 2))
    };
    section.lines().filter_map(row).collect()
}

#[test]
fn those_that_are_documented_are_in_the_program() {
    if !requirements::programs(&["readelf"]) {
        return;
    }
    let noted = noted(warmlane());
    assert!(noted.len() >= 8, "{noted:?}");
    assert_eq!(noted, documented());
}
