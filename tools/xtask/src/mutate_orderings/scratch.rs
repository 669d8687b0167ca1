//! A copy of the crate with all mutants in it, away from the working tree.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Deserialize;

use super::mutant::VARIABLE;
use crate::workspace;

/// A crate whose orderings are tested.
#[derive(Debug)]
pub(super) struct Subject {
    /// Its name on the command line.
    pub(super) name: &'static str,
    /// Its folder in the workspace.
    pub(super) folder: &'static str,
    /// The workspace's other crates that it needs.
    needs: &'static [&'static str],
    /// The files that are weakened unless others are asked for; none: all.
    pub(super) files: &'static [&'static str],
    /// Its models and its stress tests, where they are not those of its folder `tests` that use a file's module.
    tests: Option<[Test; 2]>,
}

impl Subject {
    /// Whether a file, named from the repository's root, is among those that are weakened.
    #[cfg(test)]
    pub(super) fn weakens(&self, path: &str) -> bool {
        let file = path.strip_prefix(self.folder).and_then(|rest| rest.strip_prefix("/src/"));
        file.is_some_and(|file| self.files.is_empty() || self.files.contains(&file))
    }
}

/// A test program: what cargo builds it for, its target's name, and which of its tests to run.
#[derive(Clone, Copy, Debug)]
struct Test {
    build: &'static [&'static str],
    target: &'static str,
    filter: &'static [&'static str],
}

/// The crates that can be tested.
pub(super) const SUBJECTS: &[Subject] = &[
    Subject { name: "sync", folder: "base/sync", needs: &[], files: &[], tests: None },
    Subject {
        name: "mem",
        folder: "core/mem",
        needs: &["base/sync", "base/counters", "base/sys"],
        files: &["magazine_queue.rs"],
        tests: Some([
            // The models of the depot are those of its queue; the crate's other unit tests are not for loom.
            Test { build: &["--lib"], target: "warmlane_mem", filter: &["depot"] },
            Test { build: &["--test", "pools"], target: "pools", filter: &["lanes::"] },
        ]),
    },
    Subject {
        name: "table",
        folder: "core/table",
        needs: &["base/sync", "base/sys"],
        files: &["exact/bucket.rs"],
        tests: Some([
            Test { build: &["--lib"], target: "warmlane_table", filter: &["exact"] },
            Test { build: &["--test", "tables"], target: "tables", filter: &["exact_concurrent"] },
        ]),
    },
];

/// The crate in a workspace of its own, and its test programs.
pub(super) struct Scratch {
    subject: &'static Subject,
    root: PathBuf,
    target: PathBuf,
    limit: Duration,
    /// Name of the test target and program, of those that loom runs and of the others.
    programs: Vec<(Kind, String, PathBuf)>,
}

/// What kind of test.
pub(super) type Kind = &'static str;
const LOOM: Kind = "loom";
const STRESS: Kind = "stress";

/// What came of the tests.
#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    Passed,
    Failed(Kind),
    TookTooLong(Kind),
}

impl Scratch {
    /// Copies the crate of the workspace at `root` into `directory`.
    pub(super) fn copy(
        subject: &'static Subject,
        root: &Path,
        directory: &Path,
        limit: Duration,
    ) -> anyhow::Result<Self> {
        let target = directory.to_owned();
        let scratch =
            Self { subject, root: directory.join("workspace"), target, limit, programs: Vec::new() };
        let crates: Vec<&str> = subject.needs.iter().copied().chain([subject.folder]).collect();
        for name in &crates {
            let copy = scratch.root.join(name);
            for folder in ["src", "tests"] {
                // What is no longer in the tree must not stay in the copy.
                if copy.join(folder).exists() {
                    fs::remove_dir_all(copy.join(folder))?;
                }
                if root.join(name).join(folder).exists() {
                    copy_folder(&root.join(name).join(folder), &copy.join(folder))?;
                }
            }
            fs::copy(root.join(name).join("Cargo.toml"), copy.join("Cargo.toml"))?;
        }
        let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
        fs::write(scratch.root.join("Cargo.toml"), alone(&manifest, &crates)?)?;
        fs::copy(root.join("Cargo.lock"), scratch.root.join("Cargo.lock"))?;
        Ok(scratch)
    }

    /// Writes a file of the copy.
    pub(super) fn write(&self, path: &Path, text: &str) -> anyhow::Result<()> {
        let path = self.root.join(self.subject.folder).join(path);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Adds to a file of the copy.
    pub(super) fn append(&self, path: &Path, text: &str) -> anyhow::Result<()> {
        let old = fs::read_to_string(self.root.join(self.subject.folder).join(path))?;
        self.write(path, &(old + text))
    }

    /// Builds the tests in both ways.
    pub(super) fn build(&mut self) -> anyhow::Result<()> {
        for (index, kind) in [LOOM, STRESS].into_iter().enumerate() {
            let mut build = workspace::cargo();
            build.args(["test", "--release", "--no-run", "--message-format=json", "--quiet"]);
            build.args(self.subject.tests.map_or(&["--test", "*"][..], |tests| tests[index].build));
            build
                .current_dir(self.root.join(self.subject.folder))
                .env("CARGO_TARGET_DIR", self.target.join(kind));
            build.env("RUSTFLAGS", if kind == LOOM { "--cfg loom" } else { "" });
            build.env_remove("CARGO_ENCODED_RUSTFLAGS");
            let output = build.stderr(Stdio::piped()).output().context("cargo does not start")?;
            if !output.status.success() {
                bail!("the changed crate does not build:\n{}", String::from_utf8_lossy(&output.stderr));
            }
            self.programs.extend(programs(&output.stdout).map(|(name, program)| (kind, name, program)));
        }
        Ok(())
    }

    /// Runs the tests that use what is in `file`, the models first, with this mutant chosen.
    pub(super) fn test(&self, file: &str, mutant: Option<usize>) -> anyhow::Result<Outcome> {
        for (index, kind) in [LOOM, STRESS].into_iter().enumerate() {
            let named = self.subject.tests.map(|tests| tests[index]);
            let targets = match named {
                Some(test) => BTreeSet::from([test.target.to_owned()]),
                None => self.targets(kind == LOOM, file)?,
            };
            let chosen =
                |&&(of, ref name, _): &&(Kind, String, PathBuf)| of == kind && targets.contains(name);
            for (_, _, program) in self.programs.iter().filter(chosen) {
                let mut command = Command::new(program);
                command.args(named.map_or(&[][..], |test| test.filter));
                command.env("RUST_BACKTRACE", "0").env_remove(VARIABLE);
                command.envs(mutant.map(|number| (VARIABLE, number.to_string())));
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                let mut child = command.spawn().context("a test does not start")?;
                match wait(&mut child, self.limit)? {
                    Some(true) => {}
                    Some(false) => return Ok(Outcome::Failed(kind)),
                    None => return Ok(Outcome::TookTooLong(kind)),
                }
            }
        }
        Ok(Outcome::Passed)
    }

    /// The test targets that use the module of `file`, or all if none names it, since what they use may use it.
    fn targets(&self, loom: bool, file: &str) -> anyhow::Result<BTreeSet<String>> {
        let folder = self.root.join(self.subject.folder).join("tests");
        // What is in `extra` has modules of its own that the tests name.
        let module = file.strip_prefix("extra/").unwrap_or(file);
        let module = module.split(['/', '.']).next().unwrap_or(module);
        let (mut all, mut naming) = (BTreeSet::new(), BTreeSet::new());
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if !path.is_file() || name.starts_with("loom") != loom {
                continue;
            }
            if uses(&fs::read_to_string(&path)?, module) {
                naming.insert(name.clone());
            }
            all.insert(name);
        }
        Ok(if naming.is_empty() { all } else { naming })
    }
}

/// Whether a test's source imports the module.
fn uses(text: &str, module: &str) -> bool {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("use warmlane_sync::"))
        .any(|path| path.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == module))
}

/// A workspace's manifest with these crates as the only members.
fn alone(manifest: &str, crates: &[&str]) -> anyhow::Result<String> {
    let mut text = String::new();
    let mut skipping = false;
    for line in manifest.lines() {
        if line.starts_with("members = [") || line.starts_with("default-members = [") {
            skipping = true;
        }
        if !skipping {
            text.push_str(line);
            text.push('\n');
        }
        if skipping && line.ends_with(']') {
            skipping = false;
        }
    }
    if !text.contains("[workspace]\n") {
        bail!("the workspace's manifest has no [workspace]");
    }
    Ok(text.replacen("[workspace]\n", &format!("[workspace]\nmembers = {crates:?}\n"), 1))
}

/// The test programs in what cargo says, with the names of their targets.
fn programs(messages: &[u8]) -> impl Iterator<Item = (String, PathBuf)> {
    #[derive(Deserialize)]
    struct Message {
        target: Target,
        executable: PathBuf,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
    }
    let lines = messages.split(|&byte| byte == b'\n');
    lines
        .filter_map(|line| serde_json::from_slice::<Message>(line).ok())
        .map(|message| (message.target.name, message.executable))
}

/// Whether it ended well; `None` if it did not end in time and was ended.
fn wait(child: &mut Child, limit: Duration) -> anyhow::Result<Option<bool>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let path = entry?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy_folder(&path, &target)?;
        } else {
            fs::copy(&path, &target).with_context(|| format!("cannot copy {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_keeps_everything_but_the_other_members() {
        let manifest = "[workspace]\nresolver = \"3\"\nmembers = [\n    \"a\",\n]\n# Why.\ndefault-members = [\"a\"]\n\
                        exclude = [\"fuzz\"]\n\n[workspace.dependencies]\nloom = \"0.7\"\n";
        let expected = "[workspace]\nmembers = [\"base/sync\"]\nresolver = \"3\"\n# Why.\nexclude = [\"fuzz\"]\n\n\
                        [workspace.dependencies]\nloom = \"0.7\"\n";
        assert_eq!(alone(manifest, &["base/sync"]).unwrap(), expected);
        assert!(alone("[package]\n", &["base/sync"]).is_err());
    }

    #[test]
    fn a_test_uses_what_it_imports() {
        let text = "use warmlane_sync::rcu::{Domain, Reader};\nuse warmlane_sync::{mcs, spin::SpinLock};\n";
        assert!(uses(text, "rcu") && uses(text, "mcs") && uses(text, "spin"));
        assert!(!uses(text, "ticket") && !uses(text, "sync"));
    }

    #[test]
    fn programs_are_read_from_messages() {
        let messages = b"{\"reason\":\"x\"}\n{\"target\":{\"name\":\"lib\"},\"executable\":null}\nnoise\n\
                         {\"target\":{\"name\":\"loom\"},\"executable\":\"/t/loom-1\"}\n";
        let found: Vec<_> = programs(messages).collect();
        assert_eq!(found, [("loom".to_owned(), PathBuf::from("/t/loom-1"))]);
    }

    #[test]
    fn what_takes_too_long_is_ended() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(wait(&mut child, Duration::from_millis(30)).unwrap(), None);
        let mut child = Command::new("false").spawn().unwrap();
        assert_eq!(wait(&mut child, Duration::from_secs(20)).unwrap(), Some(false));
    }
}
