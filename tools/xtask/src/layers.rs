//! `cargo xtask layers`: which crate may depend on which, which may be unsafe, and which files are too long.
//!
//! Top-level folders are layers. A crate depends on crates in earlier layers, and on those listed before it in its own;
//! drivers share `drivers/common` and don't know each other (but `drivers/pci` uses others), functions don't know drivers, `assembly` joins both. Tests
//! may also use `tools/testkit`.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::file_lengths;
use crate::workspace::{self, Metadata};

/// The layers from the bottom up, each with its rooms in their order.
const LAYERS: &[(&str, Rooms)] = &[
    (
        "base",
        Rooms::Ordered(&[
            "sync", "counters", "sys", "settings", "wire", "crypto", "bpf", "control", "metrics",
        ]),
    ),
    ("core", Rooms::Ordered(&["mem", "table", "port", "lane"])),
    ("drivers", Rooms::Independent { shared: "common", user: "pci" }),
    ("functions", Rooms::Ordered(&["forward", "vxlan", "router", "gen", "docsis"])),
    ("assembly", Rooms::One),
    ("tools", Rooms::Ordered(&["testkit", "doctor", "lab", "xtask"])),
    ("warmlane", Rooms::One),
    ("cli", Rooms::One),
    ("tests", Rooms::One),
];

/// Rooms whose work can't be done without unsafe code: memory, atomics, processor instructions, the kernel's interfaces,
/// hardware. All others forbid it, so that a reviewer knows where to look.
const UNSAFE_ROOMS: &[&str] = &[
    "base/bpf",
    "base/crypto",
    "base/sync",
    "base/sys",
    "core/mem",
    "core/table",
    "drivers/common",
    "drivers/kernel",
    "drivers/memif",
    "drivers/pci",
    "drivers/virtio",
    "drivers/xdp",
];

const FORBIDS_UNSAFE: &str = "#![forbid(unsafe_code)]";
const TEST_FIXTURES: &str = "tools/testkit";

#[derive(Clone, Copy)]
enum Rooms {
    /// Each may use those before it.
    Ordered(&'static [&'static str]),
    /// Any number, none of which may use another; all may use the shared one, and one may use all: its devices speak the languages of others.
    Independent { shared: &'static str, user: &'static str },
    /// The layer is one crate.
    One,
}

/// A rule broken by a crate.
#[derive(Debug, PartialEq, Eq)]
struct Violation {
    package: String,
    room: String,
    complaint: Complaint,
}

#[derive(Debug, PartialEq, Eq)]
enum Complaint {
    UnknownRoom,
    Dependency { on: String, at: String, rule: &'static str },
    MayBeUnsafe { file: PathBuf },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { package, room, complaint } = self;
        write!(f, "{package} ({room}) ")?;
        match complaint {
            Complaint::UnknownRoom => {
                write!(f, "is in no known folder: add it to LAYERS in tools/xtask/src/layers.rs")
            }
            Complaint::Dependency { on, at, rule } => {
                write!(f, "must not depend on {on} ({at}): {rule}")
            }
            Complaint::MayBeUnsafe { file } => {
                write!(
                    f,
                    "needs the line {FORBIDS_UNSAFE} in {}: this crate holds no unsafe code",
                    file.display()
                )
            }
        }
    }
}

/// Checks this workspace and prints what breaks a rule.
pub(crate) fn run() -> anyhow::Result<()> {
    let metadata = workspace::metadata(None)?;
    let violations = check(&metadata, |file| std::fs::read_to_string(file))?;
    for violation in &violations {
        println!("{violation}");
    }
    let long = file_lengths::check(&metadata.root)?;
    for file_lengths::Long { file, lines, is_refused } in &long {
        let must = if *is_refused { ": split it, or say why not in" } else { ", soon too many; see" };
        println!("{file} has {lines} lines{must} tools/xtask/src/file_lengths.rs");
    }
    match violations.len() + long.iter().filter(|file| file.is_refused).count() {
        0 => {
            println!("{} crates keep to their layers", metadata.packages.len());
            Ok(())
        }
        count => bail!("{count} rules are broken"),
    }
}

/// Where a crate is: the index of its layer, and of its room in it (if rooms have an order).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    layer: usize,
    room: Option<usize>,
}

/// Finds the position of a folder, given relative to the root: "core/mem", "cli".
fn position(folder: &str) -> Option<Position> {
    let (layer_name, room_name) = match folder.split_once('/') {
        Some((layer, room)) => (layer, Some(room)),
        None => (folder, None),
    };
    let layer = LAYERS.iter().position(|(name, _)| *name == layer_name)?;
    let room = match (LAYERS[layer].1, room_name) {
        (Rooms::Ordered(rooms), Some(name)) => Some(rooms.iter().position(|room| *room == name)?),
        // All but the shared one come behind it, in no order, and the one that uses them behind all.
        (Rooms::Independent { shared, user }, Some(name)) => {
            Some(usize::from(name != shared) + usize::from(name == user))
        }
        (Rooms::One, None) => None,
        _ => return None,
    };
    Some(Position { layer, room })
}

fn check(
    metadata: &Metadata,
    read: impl Fn(&Path) -> std::io::Result<String>,
) -> anyhow::Result<Vec<Violation>> {
    let relative =
        |path: &Path| path.strip_prefix(&metadata.root).unwrap_or(path).to_string_lossy().into_owned();
    let mut violations = Vec::new();
    for package in &metadata.packages {
        let room = relative(package.manifest_path.parent().unwrap_or(Path::new("")));
        let mut complain = |complaint| {
            violations.push(Violation { package: package.name.clone(), room: room.clone(), complaint });
        };
        let Some(user) = position(&room) else {
            complain(Complaint::UnknownRoom);
            continue;
        };
        for dependency in &package.dependencies {
            let Some(path) = &dependency.path else { continue };
            let at = relative(path);
            if dependency.kind.as_deref() == Some("dev") && at == TEST_FIXTURES {
                continue;
            }
            if let Some(rule) = broken_rule(user, position(&at)) {
                complain(Complaint::Dependency { on: dependency.name.clone(), at, rule });
            }
        }
        if UNSAFE_ROOMS.contains(&room.as_str()) {
            continue;
        }
        let roots = package.targets.iter().filter(|target| {
            target.kind.iter().any(|kind| matches!(kind.as_str(), "lib" | "rlib" | "proc-macro" | "bin"))
        });
        for root in roots {
            let text =
                read(&root.src_path).with_context(|| format!("cannot read {}", root.src_path.display()))?;
            if !text.lines().any(|line| line.trim() == FORBIDS_UNSAFE) {
                complain(Complaint::MayBeUnsafe { file: relative(&root.src_path).into() });
            }
        }
    }
    Ok(violations)
}

/// The rule that a dependency breaks, if any.
fn broken_rule(user: Position, used: Option<Position>) -> Option<&'static str> {
    let Some(used) = used else {
        return Some("it is in no known folder");
    };
    let (user_layer, used_layer) = (LAYERS[user.layer].0, LAYERS[used.layer].0);
    if user_layer == "functions" && used_layer == "drivers" {
        return Some("functions know no drivers");
    }
    if user.layer != used.layer {
        return (used.layer > user.layer).then_some("its layer is above");
    }
    match (user.room, used.room) {
        (Some(1), Some(1)) if user_layer == "drivers" => Some("drivers don't know each other"),
        (Some(user), Some(used)) if used > user => Some("it comes later in the same layer"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn package(folder: &str, dependencies: &[Value]) -> Value {
        json!({
            "name": format!("warmlane-{}", folder.rsplit('/').next().unwrap()),
            "manifest_path": format!("/repository/{folder}/Cargo.toml"),
            "dependencies": dependencies,
            "targets": [
                {"kind": ["lib"], "src_path": format!("/repository/{folder}/src/lib.rs")},
                {"kind": ["test"], "src_path": format!("/repository/{folder}/tests/unsafe.rs")},
            ],
        })
    }

    fn dependency(folder: &str, kind: Option<&str>) -> Value {
        json!({"name": folder, "kind": kind, "path": format!("/repository/{folder}")})
    }

    fn complaints_with(packages: &[Value], root: &str) -> Vec<String> {
        let metadata = json!({"packages": packages, "workspace_root": "/repository"});
        let metadata: Metadata = serde_json::from_value(metadata).unwrap();
        let read = |file: &Path| {
            assert!(file.ends_with("src/lib.rs"), "only crate roots are read");
            Ok(root.to_owned())
        };
        check(&metadata, read).unwrap().iter().map(ToString::to_string).collect()
    }

    fn complaints(packages: &[Value]) -> Vec<String> {
        complaints_with(packages, "//! Docs.\n#![forbid(unsafe_code)]\n")
    }

    /// What the crate at `user` hears when it depends on the one at `used`.
    fn complaint(user: &str, used: &str, kind: Option<&str>) -> Option<String> {
        let mut found = complaints(&[package(user, &[dependency(used, kind)])]);
        assert!(found.len() <= 1);
        found.pop()
    }

    #[test]
    fn downwards_is_fine() {
        for (user, used) in [
            ("base/sys", "base/sync"),
            ("core/mem", "base/wire"),
            ("core/lane", "core/port"),
            ("drivers/kernel", "core/mem"),
            ("drivers/kernel", "drivers/common"),
            ("drivers/pci", "drivers/virtio"),
            ("functions/forward", "core/lane"),
            ("functions/router", "functions/forward"),
            ("assembly", "drivers/memory"),
            ("assembly", "functions/forward"),
            ("tools/lab", "drivers/memory"),
            ("tools/lab", "assembly"),
            ("tools/lab", "tools/doctor"),
            ("tools/xtask", "tools/lab"),
            ("warmlane", "functions/forward"),
            ("cli", "tools/lab"),
            ("tests", "cli"),
        ] {
            for kind in [None, Some("build"), Some("dev")] {
                assert_eq!(complaint(user, used, kind), None);
            }
        }
    }

    #[test]
    fn upwards_is_not() {
        for (user, used) in [
            ("base/wire", "core/mem"),
            ("core/lane", "drivers/memory"),
            ("drivers/pcap", "functions/forward"),
            ("functions/forward", "assembly"),
            ("functions/forward", "tools/lab"),
            ("warmlane", "cli"),
        ] {
            for kind in [None, Some("build"), Some("dev")] {
                let message = complaint(user, used, kind).unwrap();
                assert!(message.contains(&format!("({user}) must not depend on {used}")), "{message}");
                assert!(message.ends_with("its layer is above"), "{message}");
            }
        }
    }

    #[test]
    fn each_rule_has_its_sentence() {
        let says = |user, used, words| {
            let message = complaint(user, used, None).unwrap();
            assert!(message.ends_with(words), "{message}");
        };
        says("base/sync", "base/wire", "it comes later in the same layer");
        says("core/table", "core/lane", "it comes later in the same layer");
        says("drivers/pcap", "drivers/memory", "drivers don't know each other");
        says("drivers/common", "drivers/memory", "it comes later in the same layer");
        says("drivers/virtio", "drivers/pci", "it comes later in the same layer");
        says("functions/forward", "drivers/memory", "functions know no drivers");
        says("core/port", "somewhere/else", "it is in no known folder");
    }

    #[test]
    fn tests_may_use_the_fixtures_and_nothing_else_above() {
        assert_eq!(complaint("drivers/kernel", "tools/testkit", Some("dev")), None);
        assert!(complaint("drivers/kernel", "tools/testkit", None).is_some());
        assert!(complaint("drivers/kernel", "tools/testkit", Some("build")).is_some());
        assert!(complaint("drivers/kernel", "tools/lab", Some("dev")).is_some());
    }

    #[test]
    fn foreign_crates_are_not_asked() {
        let serde = json!({"name": "serde", "kind": null, "path": null});
        assert!(complaints(&[package("base/sync", &[serde])]).is_empty());
    }

    #[test]
    fn every_crate_has_a_room() {
        for folder in ["base/extra", "core", "extra", "cli/part", "functions/firewall", ""] {
            let found = complaints(&[package(folder, &[])]);
            assert!(found[0].contains("is in no known folder"), "{found:?}");
        }
        assert!(complaints(&[package("drivers/new", &[])]).is_empty());
    }

    #[test]
    fn unsafe_code_is_forbidden_where_it_has_no_business() {
        for root in ["//! Docs.\n", "// #![forbid(unsafe_code)]\n", "#![deny(unsafe_code)]\n"] {
            let found = complaints_with(&[package("base/wire", &[])], root);
            assert_eq!(found.len(), 1);
            assert!(found[0].contains("needs the line #![forbid(unsafe_code)] in base/wire/src/lib.rs"));
        }
        assert!(complaints_with(&[package("base/sync", &[])], "").is_empty());
        assert!(complaints_with(&[package("drivers/kernel", &[])], "").is_empty());
    }

    #[test]
    fn rooms_that_are_listed_are_there() {
        let root = workspace::metadata(None).unwrap().root;
        let rooms = LAYERS.iter().flat_map(|(layer, rooms)| match rooms {
            Rooms::Ordered(rooms) => rooms.iter().map(|room| format!("{layer}/{room}")).collect(),
            Rooms::Independent { shared, user } => {
                vec![format!("{layer}/{shared}"), format!("{layer}/{user}")]
            }
            Rooms::One => vec![(*layer).to_owned()],
        });
        for room in rooms.chain(UNSAFE_ROOMS.iter().map(|&room| room.to_owned())) {
            assert!(root.join(&room).is_dir(), "{room}");
        }
    }
}
