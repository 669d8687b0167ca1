//! `cargo xtask fuzz`: builds the fuzz targets with a stable compiler and runs them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, bail};

use crate::parallel::in_parallel;
use crate::workspace;

/// What makes a stable compiler count covered edges and compared values where libFuzzer finds them (LLVM's
/// SanitizerCoverage). Branches stay branches, so that each is counted, and comparisons of several bytes stay calls of
/// memcmp, which libFuzzer looks into: without that it takes minutes to guess five bytes in a row.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0 \
    -Cllvm-args=-max-loads-per-memcmp=0 \
    -Ccodegen-units=1";

/// Seconds that one input may take.
const INPUT_TIMEOUT: u32 = 10;
const MEMORY_LIMIT_MEGABYTES: u32 = 2_048;

/// Options of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Targets to run, all of them if none is named
    targets: Vec<String>,
    /// How long each target runs
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
}

/// Builds, then runs as many targets at once as there are CPUs. A failure ends it once those that run have ended.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let workspace = workspace::metadata(None)?;
    let folder = workspace.root.join("fuzz");
    let known = targets(&workspace::metadata(Some(&folder.join("Cargo.toml")))?);
    let chosen = choose(&known, &arguments.targets)?;
    let host = host()?;
    let directory = workspace.target_directory.join("fuzz");

    let mut build = workspace::cargo();
    build.args(["build", "--release", "--locked", "--target", &host, "--manifest-path"]);
    build.arg(folder.join("Cargo.toml")).arg("--target-dir").arg(&directory);
    // With a target named, the flags don't reach build scripts, which have no fuzzer to count for.
    build.env("RUSTFLAGS", COVERAGE).env_remove("CARGO_ENCODED_RUSTFLAGS");
    for target in &chosen {
        build.args(["--bin", target]);
    }
    let status = workspace::run_quietly(&mut build)?;
    if !status.success() {
        bail!("the fuzz targets do not build ({status}); what cargo said is above");
    }
    let programs = directory.join(host).join("release");
    in_parallel(
        &chosen,
        |target| fuzz(&programs.join(target), &folder, target, arguments.seconds),
        |target, outcome| {
            let Outcome { said, result } = outcome?;
            eprint!("{said}");
            result?;
            println!("{target}: nothing found in {} seconds", arguments.seconds);
            Ok(())
        },
    )
}

/// What came of a target's run.
struct Outcome {
    /// All that its fuzzer printed, in one piece, since others print meanwhile.
    said: String,
    /// What it found, as an error.
    result: anyhow::Result<()>,
}

/// The names of a package's programs.
fn targets(metadata: &workspace::Metadata) -> Vec<String> {
    let targets = metadata.packages.iter().flat_map(|package| &package.targets);
    targets
        .filter(|target| target.kind.iter().any(|kind| kind == "bin"))
        .map(|target| target.name.clone())
        .collect()
}

fn choose<'a>(known: &'a [String], wanted: &'a [String]) -> anyhow::Result<Vec<&'a str>> {
    if let Some(stranger) = wanted.iter().find(|name| !known.contains(name)) {
        bail!("there is no fuzz target '{stranger}': known are {}", known.join(", "));
    }
    Ok(if wanted.is_empty() { known } else { wanted }.iter().map(String::as_str).collect())
}

/// The triple of the machine that the compiler runs on.
fn host() -> anyhow::Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().context("rustc does not start")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

/// Runs a target. Fails if that can't be.
fn fuzz(program: &Path, folder: &Path, target: &str, seconds: u32) -> anyhow::Result<Outcome> {
    let corpus = folder.join("corpus").join(target);
    let artifacts = folder.join("artifacts").join(target);
    for directory in [&corpus, &artifacts] {
        fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let before = files(&artifacts)?;
    let mut command = Command::new(program);
    // The first folder takes new inputs, the others are read only.
    command.arg(&corpus).arg(folder.join("seeds").join(target));
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    command.arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-timeout={INPUT_TIMEOUT}"));
    command.arg(format!("-rss_limit_mb={MEMORY_LIMIT_MEGABYTES}"));
    command.args(["-verbosity=0", "-print_final_stats=1"]);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{target} does not start"))?;
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    let found: Vec<PathBuf> = files(&artifacts)?.difference(&before).cloned().collect();
    let result = match found.first() {
        Some(input) => Err(anyhow!(
            "{target} fails on {}; again with\n    {} {}",
            input.display(),
            program.display(),
            input.display()
        )),
        None if !output.status.success() => {
            Err(anyhow!("{target} ended with {}; what it said is above", output.status))
        }
        None => Ok(()),
    };
    Ok(Outcome { said, result })
}

fn files(directory: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn targets_are_chosen_by_name() {
        let known = ["one".to_owned(), "two".to_owned()];
        assert_eq!(choose(&known, &[]).unwrap(), ["one", "two"]);
        assert_eq!(choose(&known, &["two".to_owned()]).unwrap(), ["two"]);
        let error = choose(&known, &["two".to_owned(), "three".to_owned()]).unwrap_err().to_string();
        assert_eq!(error, "there is no fuzz target 'three': known are one, two");
    }

    #[test]
    fn the_host_is_a_triple() {
        assert!(host().unwrap().split('-').count() >= 3);
    }

    /// Runs a made-up target; gives the complaint, if any. `$prefix` is where it leaves what it found.
    fn outcome(script: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        let text = format!(
            "#!/bin/sh\nfor word; do case $word in -artifact_prefix=*) prefix=${{word#*=}};; esac; done\n{script}\n"
        );
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all(folder.path().join("artifacts/made_up")).unwrap();
        fs::write(folder.path().join("artifacts/made_up/crash-old"), "").unwrap();
        fuzz(&program, folder.path(), "made_up", 1).unwrap().result.err().map(|error| error.to_string())
    }

    #[test]
    fn a_crash_is_a_failure_with_its_input() {
        assert_eq!(outcome("test -d \"$1\""), None);
        let crash = outcome("touch ${prefix}crash-new; exit 77").unwrap();
        assert!(crash.contains("made_up fails on") && crash.contains("/crash-new"), "{crash}");
        assert!(!crash.contains("crash-old"), "{crash}");
        assert!(outcome("touch ${prefix}timeout-new").unwrap().contains("/timeout-new"));
        assert!(outcome("exit 3").unwrap().contains("ended with exit status: 3"));
    }
}
