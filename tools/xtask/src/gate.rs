//! `cargo xtask gate`: the hot paths take no more instructions than they did.
//!
//! Instructions are counted under valgrind, which runs the same code in the same way on every machine, whatever else
//! that does: so a needless load per packet shows, where a clock would see noise. Misses of a modelled cache are counted
//! too. What a path may take stands in `perf/instructions.json`; raising that is a change of its own, with its reason.

mod baseline;
mod callgrind;
mod planted;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::workspace::{self, Metadata};
use baseline::{Baseline, Cost};

/// The file with the baseline, below the repository's root.
const FILE: &str = "perf/instructions.json";

/// What callgrind collects: the work of a bench, without its preparation.
const COLLECTED: &str = "--toggle-collect=*Measure>::work*";
/// Caches to model: those of a common server core. Given, so that results don't depend on the machine.
const CACHES: [&str; 3] = ["--I1=32768,8,64", "--D1=32768,8,64", "--LL=33554432,16,64"];

/// A hot path: a bench, and with which vector instructions (valgrind 3.19 knows no AVX-512).
struct HotPath {
    bench: &'static str,
    unit: &'static str,
    level: &'static str,
    /// Pieces of work to do, so that what is done only once is lost in them.
    pieces: u64,
}

const fn path(bench: &'static str, unit: &'static str, level: &'static str, pieces: u64) -> HotPath {
    HotPath { bench, unit, level, pieces }
}

const PATHS: &[HotPath] = &[
    path("pool-one-lane", "packet", "avx2", 20),
    path("pool-one-lane", "packet", "portable", 20),
    path("ring-pair", "packet", "avx2", 20),
    path("ring-spsc-one-lane", "element", "avx2", 20),
    path("replay-drop", "packet", "avx2", 20),
    path("lpm4", "lookup", "avx2", 20),
    path("lpm4", "lookup", "portable", 20),
    path("lpm6", "lookup", "avx2", 20),
    path("exact", "lookup", "avx2", 20),
    path("l3-forward", "packet", "avx2", 20),
    path("l3-forward", "packet", "portable", 20),
];

/// Options of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The paths to count, by their bench's name; all of them if none is named
    names: Vec<String>,
    /// Make what the paths take now the new baseline, for this reason
    #[arg(long, value_name = "REASON")]
    accept: Option<String>,
    /// Show that the gate closes: add one needless load per packet to a copy of the sources, and count that
    #[arg(long, conflicts_with_all = ["accept", "names"])]
    planted: bool,
}

/// Counts, compares, and fails if a path takes more than it may.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Metadata { root, target_directory: target, .. } = workspace::metadata(None)?;
    if Command::new("valgrind").arg("--version").output().is_err() {
        bail!("valgrind is not installed, and nothing was counted: `apt-get install valgrind`");
    }
    if arguments.planted {
        return planted::run(&root, &target);
    }
    let chosen: Vec<&HotPath> = PATHS
        .iter()
        .filter(|path| arguments.names.is_empty() || arguments.names.iter().any(|name| name == path.bench))
        .collect();
    if let Some(name) = arguments.names.iter().find(|name| PATHS.iter().all(|path| path.bench != **name)) {
        let known: Vec<_> = PATHS.iter().map(|path| path.bench).collect();
        bail!("there is no hot path '{name}': known are {}", known.join(", "));
    }
    let program = build(&root, &target)?;
    let file = root.join(FILE);
    let mut baseline = read(&file)?;
    let rustc = compiler()?;
    let complaints = count_all(&program, &target, &chosen, &mut baseline, arguments.accept.as_deref())?;
    if arguments.accept.is_some() {
        baseline.rustc = rustc;
        let text = serde_json::to_string_pretty(&baseline)?;
        fs::write(&file, text + "\n").with_context(|| format!("cannot write {}", file.display()))?;
        println!("{FILE} is written; commit it with the reason");
        return Ok(());
    }
    if baseline.rustc != rustc {
        println!("note: the baseline was counted with {}, this is {rustc}", baseline.rustc);
    }
    if complaints > 0 {
        bail!(
            "{complaints} hot paths take more than {FILE} allows; if that is worth it: cargo xtask gate --accept REASON"
        );
    }
    Ok(())
}

/// Counts each path and prints what it takes; returns how many take too much.
fn count_all(
    program: &Path,
    target: &Path,
    paths: &[&HotPath],
    baseline: &mut Baseline,
    accept: Option<&str>,
) -> anyhow::Result<usize> {
    let mut complaints = 0;
    for path in paths {
        let name = format!("{} {}", path.bench, path.level);
        let now = count(program, target, path)?;
        let before = baseline.paths.get(&name);
        let complaint = match before {
            Some(before) => now.complaint(before),
            None => Some("it has no baseline yet".to_owned()),
        };
        let figures = format!(
            "{name:<26} {:>8.2} instructions {:>7.3} + {:.3} misses per {}",
            now.instructions, now.first_level_misses, now.last_level_misses, now.unit
        );
        match complaint {
            _ if accept.is_some() => println!("{figures}"),
            None if before.is_some_and(|before| now.is_better(before)) => {
                println!("{figures}  better than the baseline: accept it");
            }
            None => println!("{figures}  ok"),
            Some(complaint) => {
                println!("{figures}  TOO MUCH\n  {complaint}");
                complaints += 1;
            }
        }
        if let Some(reason) = accept {
            baseline.paths.insert(name, Cost { reason: reason.to_owned(), ..now });
        }
    }
    Ok(complaints)
}

fn count(program: &Path, target: &Path, path: &HotPath) -> anyhow::Result<Cost> {
    let output = target.join("gate.callgrind");
    let result = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind", "--cache-sim=yes", "--collect-atstart=no", COLLECTED])
        .args(CACHES)
        .arg(format!("--callgrind-out-file={}", output.display()))
        .arg(program)
        .args(["bench", path.bench, "--pieces", &path.pieces.to_string()])
        .env("WARMLANE_SIMD", path.level)
        .output()
        .context("valgrind does not start")?;
    if !result.status.success() {
        bail!(
            "{} fails under valgrind ({}):\n{}",
            path.bench,
            result.status,
            String::from_utf8_lossy(&result.stderr)
        );
    }
    let units =
        String::from_utf8_lossy(&result.stdout).trim().parse().context("no number of units was printed")?;
    let text = fs::read_to_string(&output).context("callgrind wrote nothing")?;
    Ok(Cost::new(&callgrind::parse(&text)?, units, path.unit))
}

/// Builds the command and says where it is.
fn build(root: &Path, target: &Path) -> anyhow::Result<PathBuf> {
    let mut cargo = workspace::cargo();
    cargo.current_dir(root).arg("--quiet").env("CARGO_TARGET_DIR", target);
    cargo.args(["build", "--release", "--package", "warmlane-cli"]);
    let status = workspace::run_quietly(&mut cargo)?;
    if !status.success() {
        bail!("warmlane does not build ({status}); what cargo said stands above");
    }
    Ok(target.join("release/warmlane"))
}

fn read(file: &Path) -> anyhow::Result<Baseline> {
    match fs::read_to_string(file) {
        Ok(text) => serde_json::from_str(&text).with_context(|| format!("{} is no baseline", file.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Baseline::default()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

fn compiler() -> anyhow::Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output().context("rustc does not start")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
