//! Which sources a row depends on, and which versions of them there are today.
//!
//! A row depends on the crates that it measures and all of ours that these depend on, on the bench or experiment, the peers'
//! programs, the settings they are given, how it is measured, and how it is built. Of each, git's name for its content is kept,
//! which `git rev-parse COMMIT:PATH` gives, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use super::experiment_sources::Found;
use super::log::Sources;
use crate::compare::catalogue;
use crate::workspace::{self, Metadata, Package};

/// How all rows are measured.
const MEASURING: &[&str] = &[
    "tools/lab/src/disturbance.rs",
    "tools/lab/src/measure.rs",
    "tools/lab/src/statistics.rs",
    "tools/lab/src/turns.rs",
];
/// What all peers have in common.
const PEERS: &[&str] = &["peers/Makefile", "peers/pool_options.h", "peers/serve.h"];
/// The part of Cargo.toml that says how to build.
const PROFILE: &str = "[profile.release]";

/// All sources as they are in the working copy, committed or not.
pub(crate) struct Today {
    names: BTreeMap<String, String>,
    profile: String,
    root: PathBuf,
    packages: Vec<Package>,
}

impl Today {
    /// Those in `root`. What the crates are called is `workspace`'s affair.
    pub(crate) fn of(root: &Path, workspace: Metadata) -> anyhow::Result<Self> {
        fs::create_dir_all(&workspace.target_directory)?;
        // An index of its own, so that nothing is staged that is not meant to be.
        let index = workspace.target_directory.join(format!("figures-index-{}", std::process::id()));
        let names = names(root, &index);
        let _ = fs::remove_file(&index);
        let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
        let profile = manifest.split_once(PROFILE).map_or("", |(_, rest)| rest);
        let profile = profile.split("\n[").next().unwrap_or_default();
        Ok(Self {
            names: names?,
            profile: profile
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
                .collect::<Vec<_>>()
                .join(", "),
            root: workspace.root,
            packages: workspace.packages,
        })
    }

    /// Those of a row, such as `compare/lpm4`; `None` if there is no such row any more.
    pub(crate) fn of_row(&self, row: &str) -> Option<Sources> {
        let paths = self.paths(row)?;
        let versions = paths.into_iter().filter_map(|path| {
            let name = self.names.get(&path)?.clone();
            Some((path, name))
        });
        let profile = (format!("Cargo.toml {PROFILE}"), self.profile.clone());
        Some(versions.chain([profile]).collect())
    }

    /// The paths that a row depends on.
    fn paths(&self, row: &str) -> Option<BTreeSet<String>> {
        let (kind, name) = row.split_once('/')?;
        let (crates, mut paths): (BTreeSet<String>, BTreeSet<String>) = match kind {
            "compare" => {
                let subject = catalogue::subject(name)?;
                let files = subject.files.iter().chain(PEERS).map(|&file| file.to_owned());
                let settings = format!("tools/xtask/src/compare/catalogue/{}.rs", subject.name);
                let crates = subject.crates.iter().map(|&name| name.to_owned());
                (crates.collect(), files.chain([settings]).collect())
            }
            "lab" => {
                warmlane_lab::experiment::find(name).ok()?;
                let Found { crates, paths } = Found::of(&self.root, name).ok()?;
                (crates, paths)
            }
            _ => return None,
        };
        paths.extend(MEASURING.iter().map(|&file| file.to_owned()));
        paths.extend(
            self.with_dependencies(&crates)
                .iter()
                .flat_map(|folder| ["src", "bpf", "include"].map(|part| format!("{folder}/{part}"))),
        );
        Some(paths)
    }

    /// The folders of these crates and of all of ours that they depend on.
    fn with_dependencies(&self, crates: &BTreeSet<String>) -> BTreeSet<String> {
        let mut left: Vec<&str> = crates.iter().map(String::as_str).collect();
        let mut folders = BTreeSet::new();
        while let Some(name) = left.pop() {
            let Some(package) = self.packages.iter().find(|package| package.name == name) else { continue };
            let folder =
                package.manifest_path.parent().and_then(|folder| folder.strip_prefix(&self.root).ok());
            if folders.insert(folder.unwrap_or(Path::new("")).display().to_string()) {
                let ours = package.dependencies.iter().filter(|one| one.kind.is_none() && one.path.is_some());
                left.extend(ours.map(|dependency| dependency.name.as_str()));
            }
        }
        folders
    }
}

/// What git calls each file and folder of the working copy.
fn names(root: &Path, index: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        workspace::output(command.arg("-C").arg(root).args(arguments).env("GIT_INDEX_FILE", index))
    };
    git(&["read-tree", "HEAD"])?;
    git(&["add", "--all", ":/"])?;
    let tree = git(&["write-tree"])?;
    let listed = git(&["ls-tree", "-r", "-t", "-z", "--full-tree", tree.trim()])?;
    let entry = |line: &str| {
        let (facts, path) = line.split_once('\t').context("git ls-tree printed something unexpected")?;
        let name = facts.rsplit(' ').next().unwrap_or_default();
        Ok((path.to_owned(), name.to_owned()))
    };
    listed.split_terminator('\0').map(entry).collect()
}
