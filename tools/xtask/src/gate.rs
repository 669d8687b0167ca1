//! `cargo xtask gate`: the hot paths take no more instructions than they did.
//!
//! Instructions are counted under valgrind, which runs the same code in the same way on every machine, whatever else
//! that does: so a needless load per packet shows, where a clock would see noise. Misses of a modelled cache are counted
//! too. What a path may take is in `perf/instructions.json`; raising that is a change of its own, with its reason.

mod baseline;
mod callgrind;
mod planted;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, bail};
use warmlane_sys::affinity;
use warmlane_sys::simd::Level;

use crate::parallel::in_parallel;
use crate::workspace::{self, Metadata};
use baseline::{Baseline, Cost};

/// The file with the baseline, below the repository's root.
const FILE: &str = "perf/instructions.json";

/// What callgrind collects: the work of a bench, without its preparation.
const COLLECTED: &str = "--toggle-collect=*Measure>::work*";
/// The bench says where its preparation ends; until then, nothing is observed, which is fast.
const OBSERVED: &str = "--instr-atstart=no";
/// First-level caches to model: those of a common server core. Given, so that results don't depend on the machine.
const FIRST_LEVEL: [&str; 2] = ["--I1=32768,8,64", "--D1=32768,8,64"];

/// A hot path: a bench, and with which vector instructions (valgrind 3.19 knows no AVX-512).
struct HotPath {
    bench: &'static str,
    unit: &'static str,
    level: &'static str,
    /// Pieces of work to do, so that what is done only once is lost in them.
    pieces: u64,
    behind: Behind,
}

/// What is modelled behind the first level. Valgrind models two levels, and calls the second the last.
#[derive(Clone, Copy)]
enum Behind {
    /// A shared cache of 32 MiB: what misses that comes from memory.
    Shared,
    /// A core's own second level of 1 MiB, where it matters whether thousands of buffers stay in it.
    SecondLevel,
}

impl Behind {
    const fn option(self) -> &'static str {
        match self {
            Self::Shared => "--LL=33554432,16,64",
            Self::SecondLevel => "--LL=1048576,16,64",
        }
    }
}

impl HotPath {
    fn name(&self) -> String {
        format!("{} {}", self.bench, self.level)
    }
}

const fn path(bench: &'static str, unit: &'static str, level: &'static str, pieces: u64) -> HotPath {
    HotPath { bench, unit, level, pieces, behind: Behind::Shared }
}

const PATHS: &[HotPath] = &[
    path("pool-one-lane", "packet", "avx2", 20),
    path("pool-one-lane", "packet", "portable", 20),
    path("tx-null", "packet", "avx2", 20),
    HotPath { behind: Behind::SecondLevel, ..path("tx-held", "packet", "avx2", 100) },
    path("ring-pair", "packet", "avx2", 20),
    path("ring-spsc-one-lane", "element", "avx2", 20),
    path("ring-mpsc-one-lane", "element", "avx2", 20),
    path("ring-mpmc-one-lane", "element", "avx2", 20),
    path("lock-spin", "lock", "avx2", 20),
    path("lock-ticket", "lock", "avx2", 20),
    path("lock-mcs", "lock", "avx2", 20),
    path("rcu", "report", "avx2", 20),
    path("copy", "copy", "avx2", 20),
    path("copy", "copy", "portable", 20),
    path("replay-drop", "packet", "avx2", 20),
    path("steer-drop", "packet", "avx2", 20),
    path("gen-null", "packet", "avx2", 20),
    path("gen-null-counted", "packet", "avx2", 20),
    path("pcap-read", "packet", "avx2", 20),
    path("pcap-write", "packet", "avx2", 20),
    path("lpm4", "lookup", "avx2", 20),
    path("lpm4", "lookup", "portable", 20),
    path("lpm6", "lookup", "avx2", 20),
    path("lpm6", "lookup", "portable", 20),
    path("exact", "lookup", "avx2", 20),
    path("exact", "lookup", "portable", 20),
    path("exact-insert", "insertion", "avx2", 20),
    path("exact-insert-burst", "insertion", "avx2", 20),
    path("docsis-crypto", "frame", "avx2", 20),
    path("docsis-crypto-64", "frame", "avx2", 20),
    path("docsis-downstream", "packet", "avx2", 20),
    path("l3-forward", "packet", "avx2", 20),
    path("l3-forward", "packet", "portable", 20),
    path("l3-forward-lane", "packet", "avx2", 20),
    path("l3-forward-captured", "packet", "avx2", 20),
    path("l3-forward-tagged", "packet", "avx2", 20),
    path("flows-forward", "packet", "avx2", 20),
    path("vxlan", "packet", "avx2", 20),
    path("vxlan-decapsulate", "packet", "avx2", 20),
    path("gso", "segment", "avx2", 20),
    path("gro", "segment", "avx2", 20),
    path("packed-look", "descriptor", "avx2", 20),
    path("packed-look", "descriptor", "portable", 20),
    path("card-echo", "packet", "avx2", 20),
    path("card-echo", "packet", "portable", 20),
    path("virtio-echo", "packet", "avx2", 20),
    path("virtio-echo", "packet", "portable", 20),
    path("virtio-echo-packed", "packet", "avx2", 20),
    path("vhost-split", "packet", "avx2", 20),
    path("vhost-packed", "packet", "avx2", 20),
    path("memif", "packet", "avx2", 20),
];

/// Paths whose cycles are a geometric mean over many sizes: instructions, of which all are counted together, can't stand beside
/// them.
const MIXED: &[&str] = &["copy"];

/// Options of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The paths to count, by their bench's name; all of them if none is named
    names: Vec<String>,
    /// Make what the paths take now the new baseline where they differ from it by more than is tolerated, or are named, for this
    /// reason
    #[arg(long, value_name = "REASON")]
    accept: Option<String>,
    /// Count while a busy loop runs on every CPU: the figures must be the same
    #[arg(long, conflicts_with_all = ["accept", "planted"])]
    under_load: bool,
    /// Show that the gate closes: add one needless load per packet to a copy of the sources, and count that
    #[arg(long, conflicts_with_all = ["accept", "names"])]
    planted: bool,
}

/// Instructions that a unit of a bench takes by the baseline, with AVX2; `None` if it is no hot path, or its cycles are
/// something else.
///
/// Fails if the baseline can't be read.
pub(crate) fn instructions(root: &Path, bench: &str) -> anyhow::Result<Option<f64>> {
    if MIXED.contains(&bench) {
        return Ok(None);
    }
    let baseline = read(&root.join(FILE))?;
    Ok(baseline.paths.get(&format!("{bench} avx2")).map(|cost| cost.instructions))
}

/// Counts, compares, and fails if a path takes more than it may.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Metadata { root, target_directory: target, .. } = workspace::metadata(None)?;
    let chosen = chosen(&arguments.names)?;
    if Command::new("valgrind").arg("--version").output().is_err() {
        let planted = || vec!["the planted load".to_owned()];
        let named = || chosen.iter().map(|path| path.name()).collect();
        bail!("{}", without_valgrind(&if arguments.planted { planted() } else { named() }));
    }
    if arguments.planted {
        return planted::run(&root, &target);
    }
    let program = build(&root, &target)?;
    let file = root.join(FILE);
    let mut baseline = read(&file)?;
    let rustc = compiler()?;
    let chosen = runnable(chosen, Level::available());
    let load = arguments.under_load.then(Load::start).transpose()?;
    let accept =
        arguments.accept.as_deref().map(|reason| Acceptance { reason, named: !arguments.names.is_empty() });
    let mut complaints = count_all(&program, &target, &chosen, &mut baseline, accept)?;
    drop(load);
    for name in gone(&baseline) {
        println!("{name}: has a baseline, and is no hot path any more");
        complaints += 1;
        if arguments.accept.is_some() {
            baseline.paths.remove(&name);
        }
    }
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
            "{complaints} hot paths are not as {FILE} says; if that is as it should be: cargo xtask gate --accept REASON"
        );
    }
    Ok(())
}

/// The paths of these benches; all of them if none is named.
fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static HotPath>> {
    if let Some(name) = names.iter().find(|name| PATHS.iter().all(|path| path.bench != **name)) {
        let mut known: Vec<_> = PATHS.iter().map(|path| path.bench).collect();
        known.dedup();
        bail!("there is no hot path '{name}': known are {}", known.join(", "));
    }
    let named = |path: &&HotPath| names.is_empty() || names.iter().any(|name| name == path.bench);
    Ok(PATHS.iter().filter(named).collect())
}

/// Baselines of paths that are counted no more.
fn gone(baseline: &Baseline) -> Vec<String> {
    let counted = |name: &&String| PATHS.iter().any(|path| path.name() == **name);
    baseline.paths.keys().filter(|name| !counted(name)).cloned().collect()
}

/// The paths that this processor has the instructions for; the others are listed as skipped.
fn runnable<'a>(paths: Vec<&'a HotPath>, available: &[Level]) -> Vec<&'a HotPath> {
    let (runnable, lacking): (Vec<_>, Vec<_>) =
        paths.into_iter().partition(|path| available.iter().any(|level| level.name() == path.level));
    for path in lacking {
        println!("{} {}: skipped, since this processor has no {}", path.bench, path.level, path.level);
    }
    runnable
}

/// Busy loops, one for each CPU, until this is dropped.
struct Load(Vec<Child>);

impl Load {
    fn start() -> anyhow::Result<Self> {
        let mut load = Self(Vec::new());
        for _ in 0..affinity::allowed_cpus()?.len() {
            let busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn();
            load.0.push(busy.context("sh does not start")?);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for busy in &mut self.0 {
            let _ = busy.kill();
            let _ = busy.wait();
        }
    }
}

/// What is left undone, so that nobody takes silence for success.
fn without_valgrind(skipped: &[String]) -> String {
    let lines: Vec<String> = skipped.iter().map(|name| format!("  {name}: skipped")).collect();
    format!(
        "valgrind is not installed, and nothing was counted: `apt-get install valgrind`\n{}",
        lines.join("\n")
    )
}

/// That what paths take becomes the baseline.
#[derive(Clone, Copy)]
struct Acceptance<'a> {
    reason: &'a str,
    /// The paths were named, so that it is so of those, too, that differ by less than is tolerated.
    named: bool,
}

/// Counts each path and prints what it takes; returns how many differ from their baseline. If that is accepted, these
/// become the baseline, and the others stay as they are.
fn count_all(
    program: &Path,
    target: &Path,
    paths: &[&HotPath],
    baseline: &mut Baseline,
    accept: Option<Acceptance<'_>>,
) -> anyhow::Result<usize> {
    let mut complaints = 0;
    let before = baseline.paths.clone();
    in_parallel(
        paths,
        |path| count_anywhere(program, target, path, before.get(&path.name())),
        |path, now| {
            let (name, now) = (path.name(), now?);
            let before = baseline.paths.get(&name);
            let complaint = match before {
                Some(before) => now.complaint(before),
                None => Some("it has no baseline yet".to_owned()),
            };
            let is_named = accept.is_some_and(|accept| accept.named);
            let complaint = complaint.or_else(|| is_named.then(|| "it was named".to_owned()));
            let figures = format!(
                "{name:<26} {:>8.2} instructions{} {:>7.3} + {:.3} misses per {}",
                now.instructions,
                before.map_or_else(String::new, |before| format!(" ({:+.2} %)", now.percent_above(before))),
                now.first_level_misses,
                now.last_level_misses,
                now.unit
            );
            let Some(complaint) = complaint else {
                println!("{figures}  ok");
                return Ok(());
            };
            complaints += 1;
            println!(
                "{figures}  {}\n  {complaint}",
                if accept.is_some() { "accepted" } else { "NOT AS BEFORE" }
            );
            if let Some(Acceptance { reason, .. }) = accept {
                baseline.paths.insert(name, Cost { reason: reason.to_owned(), ..now });
            }
            Ok(())
        },
    )?;
    Ok(complaints)
}

/// Bytes by which the stack is put elsewhere; pages have no multiple of them.
const LOWER: usize = 1_100;

/// What a path takes. Where its stack begins depends on how long its environment and arguments are, and by chance it meets other lines in the
/// first level's sets there: more misses than `before` are none of the path's if there is a place of the stack where it has no more.
fn count_anywhere(
    program: &Path,
    target: &Path,
    path: &HotPath,
    before: Option<&Cost>,
) -> anyhow::Result<Cost> {
    let first = count(program, target, path, 0)?;
    let Some(before) = before.filter(|before| first.misses_rose(before)) else { return Ok(first) };
    for lower in [LOWER, 2 * LOWER, 3 * LOWER] {
        let now = count(program, target, path, lower)?;
        if !now.misses_rose(before) {
            return Ok(now);
        }
    }
    Ok(first)
}

/// Counts a path whose stack begins so many bytes lower than it would.
fn count(program: &Path, target: &Path, path: &HotPath, lower: usize) -> anyhow::Result<Cost> {
    let output = target.join(format!("gate-{}-{}.callgrind", path.bench, path.level));
    let result = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind", "--cache-sim=yes", "--collect-atstart=no", COLLECTED, OBSERVED])
        .args(FIRST_LEVEL)
        .arg(path.behind.option())
        .arg(format!("--callgrind-out-file={}", output.display()))
        .arg(program)
        .args(["bench", path.bench, "--pieces", &path.pieces.to_string()])
        .env("WARMLANE_SIMD", path.level)
        .env("WARMLANE_GATE_LOWER", "x".repeat(lower))
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
    Cost::new(&callgrind::parse(&text)?, units, path.unit).with_context(|| path.name())
}

/// Builds the command and says where it is.
fn build(root: &Path, target: &Path) -> anyhow::Result<PathBuf> {
    let mut build = workspace::command_build(root);
    build.arg("--quiet").env("CARGO_TARGET_DIR", target);
    let status = workspace::run_quietly(&mut build)?;
    if !status.success() {
        bail!("warmlane does not build ({status}); what cargo said is above");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_counted_without_valgrind_is_listed_as_skipped() {
        let text = without_valgrind(&["lpm4 avx2", "lpm4 portable"].map(str::to_owned));
        assert!(text.starts_with("valgrind is not installed, and nothing was counted"), "{text}");
        assert!(text.ends_with("valgrind`\n  lpm4 avx2: skipped\n  lpm4 portable: skipped"), "{text}");
    }

    #[test]
    fn paths_are_chosen_by_their_bench_and_unknown_ones_told() {
        assert_eq!(chosen(&[]).unwrap().len(), PATHS.len());
        let names: Vec<String> =
            chosen(&["lpm4".to_owned()]).unwrap().iter().map(|path| path.name()).collect();
        assert_eq!(names, ["lpm4 avx2", "lpm4 portable"]);
        let error = chosen(&["lpm4".to_owned(), "warp".to_owned()]).err().unwrap().to_string();
        assert!(
            error.starts_with("there is no hot path 'warp': known are pool-one-lane, tx-null,"),
            "{error}"
        );
    }

    #[test]
    fn paths_without_their_instructions_are_left_out() {
        let left = runnable(PATHS.iter().collect(), &[Level::Portable]);
        assert!(!left.is_empty() && left.iter().all(|path| path.level == "portable"));
        assert_eq!(runnable(PATHS.iter().collect(), &[Level::Portable, Level::Avx2]).len(), PATHS.len());
    }

    #[test]
    fn paths_are_benches_of_the_lab() {
        for path in PATHS {
            let bench = warmlane_lab::bench::find(path.bench).unwrap();
            assert_eq!(bench.unit, path.unit, "{}", path.bench);
        }
    }

    #[test]
    fn instructions_stand_beside_cycles_of_the_same_kind_only() {
        let root = workspace::metadata(None).unwrap().root;
        let of = |bench| instructions(&root, bench).unwrap();
        assert!(of("rcu").is_some_and(|count| count > 0.0));
        assert_eq!([of("copy"), of("alchemy")], [None, None]);
    }

    #[test]
    fn each_path_has_an_accepted_figure_with_its_reason() {
        let root = workspace::metadata(None).unwrap().root;
        let baseline = read(&root.join(FILE)).unwrap();
        for path in PATHS {
            let name = path.name();
            let cost = baseline.paths.get(&name).unwrap_or_else(|| panic!("{name} has no baseline"));
            assert!(!cost.reason.is_empty() && !cost.functions.is_empty(), "{name}");
        }
        assert_eq!(gone(&baseline), Vec::<String>::new());
        let mut more = baseline;
        more.paths.insert("warp-drive avx2".to_owned(), Cost::default());
        assert_eq!(gone(&more), ["warp-drive avx2"]);
    }
}
