//! What an experiment of the lab depends on, read from its source: the crates that it names, and the lab's own modules, with those that they name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Where the lab's modules are.
const LAB: &str = "tools/lab/src";
/// Modules that say what was found, or how anything is measured: `MEASURING` has those of the latter that count.
const NOT_MEASURED: &[&str] = &[
    "agreement",
    "bench",
    "counters",
    "error",
    "experiment",
    "experiments",
    "machine",
    "measure",
    "modelled",
    "plot",
    "record",
    "setting",
    "statistics",
    "subject",
    "table",
    "turns",
    "verdict",
];
/// The module of those who measure the whole program, and the crate that is all of it.
const OWN_PROGRAM: (&str, &str) = ("own_program", "warmlane-cli");

/// Crates by their names, and paths of sources.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Found {
    pub(super) crates: BTreeSet<String>,
    pub(super) paths: BTreeSet<String>,
}

impl Found {
    /// What the experiment with this name depends on, by the sources in `root`.
    pub(super) fn of(root: &Path, experiment: &str) -> anyhow::Result<Self> {
        let mut found = Self::default();
        let mut left = found.add(root, Path::new(LAB), &["experiments", &experiment.replace('-', "_")]);
        while let Some(file) = left.pop() {
            let text = fs::read_to_string(root.join(&file))
                .with_context(|| format!("reading {}", file.display()))?;
            let crates = names_after(&text, "warmlane_").map(|name| format!("warmlane-{}", name[0]));
            found.crates.extend(crates.map(|name| name.replace('_', "-")));
            let beside = file.parent().unwrap_or(Path::new(LAB));
            for (mark, folder) in [("crate::", Path::new(LAB)), ("super::", beside)] {
                for module in names_after(&text, mark) {
                    if folder == Path::new(LAB) && NOT_MEASURED.contains(&module[0]) {
                        continue;
                    }
                    if module[0] == OWN_PROGRAM.0 {
                        found.crates.insert(OWN_PROGRAM.1.to_owned());
                    }
                    left.extend(found.add(root, folder, &module));
                }
            }
        }
        Ok(found)
    }

    /// Adds the files of a module, whose path may end in names of other things. Gives those that are new.
    fn add(&mut self, root: &Path, folder: &Path, module: &[&str]) -> Vec<PathBuf> {
        let mut folder = folder.to_owned();
        let mut files = Vec::new();
        // Those in front of the last are lists of modules.
        for name in module {
            let file = folder.join(format!("{name}.rs"));
            if !root.join(&file).is_file() {
                break;
            }
            folder.push(name);
            files = vec![file];
        }
        // All below the last one, as it may use them by their bare names.
        if !files.is_empty() {
            files_below(root, &folder, &mut files);
        }
        files.retain(|file| self.paths.insert(file.display().to_string()));
        files
    }
}

/// Each path of modules that follows such a mark.
fn names_after<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = Vec<&'a str>> {
    let is_name = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    text.match_indices(mark).filter_map(move |(at, _)| {
        let rest = &text[at + mark.len()..];
        let end = rest.find(|letter| !is_name(letter) && letter != ':').unwrap_or(rest.len());
        let names: Vec<_> = rest[..end].split("::").filter(|name| !name.is_empty()).collect();
        (!names.is_empty()).then_some(names)
    })
}

fn files_below(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(root.join(folder)) else { return };
    for entry in entries.flatten() {
        let path = folder.join(entry.file_name());
        if entry.path().is_dir() {
            files_below(root, &path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    fn of(experiment: &str) -> Found {
        Found::of(&workspace::metadata(None).unwrap().root, experiment).unwrap()
    }

    #[test]
    fn experiments_depend_on_what_they_name() {
        let layout = of("layout");
        assert!(layout.crates.contains("warmlane-forward"), "{layout:?}");
        assert!(!layout.paths.iter().any(|path| path.ends_with("plot.rs")), "{layout:?}");
        let observe = of("observe");
        assert!(observe.crates.contains("warmlane-cli"), "{observe:?}");
        let packed = of("packed-look");
        for path in
            ["experiments/scalar_and_vector.rs", "experiments/packed_look.rs", "benches/packed_look.rs"]
        {
            assert!(packed.paths.contains(&format!("{LAB}/{path}")), "{path}: {packed:?}");
        }
        assert!(!packed.paths.contains(&format!("{LAB}/benches/exact.rs")), "{packed:?}");
        let vector = of("vector-rx");
        assert!(vector.paths.contains(&format!("{LAB}/experiments/vector_rx/forward.rs")), "{vector:?}");
        let pools = of("pool-order");
        assert!(pools.paths.contains(&format!("{LAB}/two_lanes.rs")), "{pools:?}");
        assert!(pools.crates.contains("warmlane-mem"), "{pools:?}");
    }

    #[test]
    fn each_experiment_has_a_file_of_its_name() {
        for experiment in warmlane_lab::experiment::list() {
            let found = of(experiment.name);
            assert!(!found.paths.is_empty(), "{}", experiment.name);
        }
    }
}
