//! The examples run to their end, and are as short as the guide says.

use std::path::Path;
use std::process::Command;

/// Each with the lines that it may have, those of the module `common` included if it needs that.
const EXAMPLES: [(&str, usize); 7] = [
    ("around_forwarder", 119),
    ("custom_port", 59),
    ("forwarder", 59),
    ("load_balancer", 99),
    ("reflector", 79),
    ("tap", 89),
    ("two_lanes", 129),
];

#[test]
fn they_run() {
    // Tests are in `deps`; `cargo test` builds examples beside it.
    let test = std::env::current_exe().expect("a test has a path");
    let built = test.ancestors().nth(2).expect("deps is in a folder").join("examples");
    for (name, _) in EXAMPLES {
        let program = built.join(name);
        assert!(
            program.exists(),
            "{} is not built: run the whole `cargo test -p warmlane`",
            program.display()
        );
        let output = Command::new(&program).output().expect("it can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {}\n{said}", output.status);
        assert!(!output.stdout.is_empty(), "{name} says nothing");
    }
}

#[test]
fn they_are_short() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    for (name, most) in EXAMPLES {
        let read = |file: String| std::fs::read_to_string(folder.join(file)).expect("it is there");
        let mut text = read(format!("{name}.rs"));
        if text.contains("mod common;") {
            text += &read("common/mod.rs".to_owned());
        }
        let lines = text.lines().count();
        assert!(lines <= most, "{name} has {lines} lines, and the guide promises at most {most}");
    }
}
