//! Commits, each in a folder of its own, built.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::workspace::{self, MEASURED_BUILD, run_quietly};

/// The folders of the commits that were needed. They are removed when this is dropped; what cargo built stays for the next time.
pub(super) struct Checkouts {
    root: PathBuf,
    /// Holds a folder for each commit, and the one that cargo builds in.
    folder: PathBuf,
    build: String,
    program: String,
}

/// What became of a commit.
pub(super) enum Built {
    /// The program, kept where no other commit's build replaces it.
    Program(PathBuf),
    /// It does not build.
    Failed,
}

impl Checkouts {
    pub(super) fn new(root: &Path, folder: &Path, build: &str, program: &str) -> anyhow::Result<Self> {
        let checkouts = Self {
            root: root.to_owned(),
            folder: folder.to_owned(),
            build: build.to_owned(),
            program: program.to_owned(),
        };
        let changed = checkouts.git(&["status", "--porcelain", "--untracked-files=no"])?;
        if !changed.is_empty() {
            bail!(
                "files have changed since the last commit, and would not be measured; commit or stash them:\n{changed}"
            );
        }
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(checkouts)
    }

    fn git(&self, arguments: &[&str]) -> anyhow::Result<String> {
        workspace::git(&self.root, arguments)
    }

    /// A revision's commit.
    pub(super) fn resolve(&self, revision: &str) -> anyhow::Result<String> {
        self.git(&["rev-parse", "--verify", "--end-of-options", &format!("{revision}^{{commit}}")])
    }

    /// The commits after `good` up to `bad`, the oldest first, along first parents.
    pub(super) fn commits(&self, good: &str, bad: &str) -> anyhow::Result<Vec<String>> {
        let (good, bad) = (self.resolve(good)?, self.resolve(bad)?);
        let list = self.git(&["rev-list", "--first-parent", "--reverse", &format!("{good}..{bad}")])?;
        let commits: Vec<String> = list.lines().map(str::to_owned).collect();
        if commits.is_empty() {
            bail!("{bad} does not come after {good}: there is nothing in between to look for");
        }
        Ok(commits)
    }

    /// The short name and subject.
    pub(super) fn describe(&self, commit: &str) -> anyhow::Result<String> {
        self.git(&["log", "-1", "--format=%h %s", commit])
    }

    /// Builds a commit.
    pub(super) fn build(&self, commit: &str) -> anyhow::Result<Built> {
        let tree = self.folder.join(commit);
        let kept = tree.join("bisected-program");
        if kept.exists() {
            return Ok(Built::Program(kept));
        }
        if !tree.exists() {
            let folder = tree.to_str().context("the target directory's path must be UTF-8")?;
            self.git(&["worktree", "add", "--force", "--detach", folder, commit])?;
        }
        let target = self.folder.join("target");
        let mut build = Command::new("sh");
        let (name, value) = MEASURED_BUILD;
        build.args(["-c", &self.build]).current_dir(&tree).env("CARGO_TARGET_DIR", &target).env(name, value);
        if !run_quietly(&mut build)?.success() {
            eprintln!("xtask: {} does not build", self.describe(commit)?);
            return Ok(Built::Failed);
        }
        let built =
            [&target, &tree].map(|folder| folder.join(&self.program)).into_iter().find(|file| file.is_file());
        let built = built.with_context(|| format!("the build of {commit} has left no '{}'", self.program))?;
        fs::copy(&built, &kept).with_context(|| format!("cannot copy {}", built.display()))?;
        Ok(Built::Program(kept))
    }
}

impl Drop for Checkouts {
    fn drop(&mut self) {
        let list = self.git(&["worktree", "list", "--porcelain"]).unwrap_or_default();
        let ours = list.lines().filter_map(|line| line.strip_prefix("worktree "));
        for tree in ours.filter(|tree| Path::new(tree).starts_with(&self.folder)) {
            if let Err(error) = self.git(&["worktree", "remove", "--force", tree]) {
                eprintln!("xtask: {error}");
            }
        }
    }
}
