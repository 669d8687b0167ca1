//! `cargo xtask mutants`: breaks the code in small ways and sees whether a test of the same crate notices.
//!
//! What is broken and how is decided by `cargo-mutants`, which also runs the tests, in a copy of the workspace. There are thousands
//! of such mutants; so a sample is drawn from each crate, by a seed that is recorded with the score: every so many'th, from a random
//! one on. Neighbours are often changes of the same expression, and this takes one of them. One that makes the tests run
//! into the time limit isn't caught: somebody who waits for a test learns nothing from it.

mod equivalent;
mod score;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde::Deserialize;
use warmlane_sys::random::{Random, system_seed};

use self::equivalent::EQUIVALENT;
use self::score::Score;
use crate::record;
use crate::workspace::{self, Metadata, Package};

/// The scores, by crate.
const SCORES: &str = "perf/mutants.json";

/// Folders of the crates that tests are to hold, if no crate is named.
const USUAL: [&str; 4] = ["base/wire", "core/", "drivers/", "functions/"];

/// The part of a function's crate that sees each packet.
const DATA_PATH: &str = "src/datapath";

/// Tests are not to be broken: those in modules for some kinds of tests only are not known as such.
const NO_TESTS: [&str; 6] =
    ["--exclude-re", r"\b(\w+_)?tests::", "--exclude", "**/tests.rs", "--exclude", "**/*_tests.rs"];

/// Options of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Whose code to break, such as `warmlane-mem`; if none is named, base/wire and all of core, drivers and functions
    #[arg(long = "package", value_name = "NAME")]
    packages: Vec<String>,
    /// How many mutants of each crate
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    sample: u32,
    /// Which ones: the same number draws the same from the same code
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Seconds for the tests of a crate
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
    /// Only say what would be broken
    #[arg(long)]
    list: bool,
    /// Write the scores to perf/mutants.json; there must be no changes that aren't committed
    #[arg(long)]
    record: bool,
}

/// Draws and tests a sample of each crate; fails if too few mutants are caught.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let workspace = workspace::metadata(None)?;
    let packages = choose(&workspace, &arguments.packages)?;
    if arguments.record && !workspace::git(&workspace.root, &["status", "--porcelain"])?.is_empty() {
        bail!("there are changes that aren't committed: a score belongs to a commit");
    }
    let seed = arguments.seed.unwrap_or_else(|| system_seed() % 1_000_000);
    let output = workspace.target_directory.join("mutants");
    let mut scores = BTreeMap::new();
    for package in packages {
        let all = list(cargo_mutants(&workspace.root, package))?;
        let shard = Shard::draw(all.len(), arguments.sample as usize, seed);
        let mutants = list(shard.of(cargo_mutants(&workspace.root, package)))?;
        eprintln!("xtask: {}: {} of {} mutants, seed {seed}", package.name, mutants.len(), all.len());
        if arguments.list {
            for mutant in mutants {
                println!("{mutant}");
            }
            continue;
        }
        if mutants.is_empty() {
            continue;
        }
        let command = shard.of(cargo_mutants(&workspace.root, package));
        let outcomes = test(command, arguments.timeout, &output.join(&package.name))?;
        if outcomes.mutants()?.len() != mutants.len() {
            bail!("cargo mutants ended before it had tested all mutants");
        }
        let commit = workspace::git(&workspace.root, &["rev-parse", "--short=12", "HEAD"])?;
        let mut score =
            Score { sample: mutants.len(), seed, date: record::date()?, commit, ..Score::default() };
        for (mutant, summary) in &outcomes.mutants()? {
            let known = EQUIVALENT.iter().find(|known| known.is(mutant));
            match (score.count(summary, known)?, known) {
                (word @ "equivalent", Some(known)) => println!("{word:<11} {mutant}: {}", known.reason),
                (word, _) => println!("{word:<11} {mutant}"),
            }
        }
        scores.insert(package.name.clone(), score);
        if arguments.record {
            score::write(&workspace.root.join(SCORES), &scores)?;
        }
    }
    print!("{}", score::table(&scores));
    score::judge(&scores)
}

/// The packages of these names, or those that are tested usually.
fn choose<'a>(workspace: &'a Metadata, names: &[String]) -> anyhow::Result<Vec<&'a Package>> {
    let known: BTreeSet<&str> = workspace.packages.iter().map(|package| package.name.as_str()).collect();
    if let Some(stranger) = names.iter().find(|name| !known.contains(name.as_str())) {
        bail!("there is no package {stranger:?}: known are {}", Vec::from_iter(known).join(", "));
    }
    let is_wanted = |package: &&Package| {
        let folder = folder(&workspace.root, package);
        let is_usual = || {
            USUAL.iter().any(|usual| folder == *usual || usual.ends_with('/') && folder.starts_with(usual))
        };
        if names.is_empty() { is_usual() } else { names.contains(&package.name) }
    };
    Ok(workspace.packages.iter().filter(is_wanted).collect())
}

/// Where a package is, from the workspace's root.
fn folder(root: &Path, package: &Package) -> String {
    let folder = package.manifest_path.parent().unwrap_or(root);
    folder.strip_prefix(root).unwrap_or(folder).display().to_string()
}

/// A call of `cargo mutants` for one package.
fn cargo_mutants(root: &Path, package: &Package) -> Command {
    let mut command = workspace::cargo();
    command.current_dir(root).args(["mutants", "--no-shuffle", "--colors=never", "--package", &package.name]);
    command.args(NO_TESTS);
    let folder = folder(root, package);
    // What a function decides once is another matter than what it does with each packet.
    if folder.starts_with("functions/") && root.join(&folder).join(DATA_PATH).is_dir() {
        command.args(["--file", &format!("{folder}/{DATA_PATH}/**")]);
    }
    command
}

/// The names of the mutants that a call would test, where each is and what it changes:
/// `base/wire/src/vlan.rs:12:9: replace + with - in VlanTag::id`.
fn list(mut command: Command) -> anyhow::Result<Vec<String>> {
    let output = command.arg("--list").output().context("cargo does not start")?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        if told.contains("no such command") {
            bail!("cargo-mutants is missing: install it by `cargo install --locked cargo-mutants`");
        }
        bail!("cargo mutants --list failed:\n{}", told.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// A sample: of all mutants the first'th and every `step`th behind it.
#[derive(Debug, PartialEq)]
struct Shard {
    first: usize,
    step: usize,
}

impl Shard {
    /// One of about `sample` of `all` mutants, in which each is as likely to be as any other.
    fn draw(all: usize, sample: usize, seed: u64) -> Self {
        let step = all.div_ceil(sample).max(1);
        Self { first: Random::new(seed).below(step), step }
    }

    /// The same call for this sample only.
    fn of(&self, mut command: Command) -> Command {
        command.args(["--sharding=round-robin", "--shard", &format!("{}/{}", self.first, self.step)]);
        command
    }
}

/// What `cargo-mutants` leaves in `outcomes.json`, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Outcomes {
    outcomes: Vec<Outcome>,
}

#[derive(Debug, Deserialize)]
struct Outcome {
    scenario: Scenario,
    summary: String,
}

/// A mutant, as `cargo-mutants` tells it.
#[derive(Debug, Deserialize)]
struct Mutant {
    name: String,
}

#[derive(Debug, Deserialize)]
enum Scenario {
    /// The tests without a mutant.
    Baseline,
    Mutant(Mutant),
}

impl Outcomes {
    /// The mutants that were tested, and what became of them.
    fn mutants(&self) -> anyhow::Result<Vec<(&str, &str)>> {
        let mut mutants = Vec::new();
        for Outcome { scenario, summary } in &self.outcomes {
            match scenario {
                Scenario::Mutant(mutant) => mutants.push((mutant.name.as_str(), summary.as_str())),
                Scenario::Baseline if summary == "Success" => {}
                Scenario::Baseline => bail!("the tests fail without a change, or need a longer --timeout"),
            }
        }
        Ok(mutants)
    }
}

/// Runs the package's tests with each of the mutants of a call.
fn test(mut command: Command, timeout: u32, output: &Path) -> anyhow::Result<Outcomes> {
    fs::create_dir_all(output).with_context(|| format!("cannot make {}", output.display()))?;
    let outcomes = output.join("mutants.out/outcomes.json");
    match fs::remove_file(&outcomes) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", outcomes.display()));
        }
        _ => {}
    }
    command.args(["--timeout", &timeout.to_string(), "--output"]).arg(output);
    // Crates that nobody breaks are built once for all runs.
    command.env("CARGO_TARGET_DIR", output.with_file_name("build"));
    // It ends with a status of its own if mutants were missed; what it did is in the file.
    let status = workspace::run_quietly(&mut command)?;
    let text = fs::read(&outcomes).with_context(|| format!("cargo mutants left no outcomes ({status})"))?;
    serde_json::from_slice(&text).context("outcomes of an unknown form")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_the_same_for_its_seed_and_fair_over_seeds() {
        assert_eq!(Shard::draw(1_000, 10, 7), Shard::draw(1_000, 10, 7));
        assert_eq!(Shard::draw(3, 10, 7), Shard { first: 0, step: 1 });
        assert_eq!(Shard::draw(0, 10, 7), Shard { first: 0, step: 1 });
        assert_eq!(Shard::draw(1_001, 10, 7).step, 101);
        let mut counts = [0; 20];
        (0..10_000).for_each(|seed| counts[Shard::draw(200, 10, seed).first] += 1);
        // 500 each; the standard deviation is 22.
        assert!(counts.iter().all(|count| (370..630).contains(count)), "{counts:?}");
    }

    #[test]
    fn outcomes_are_those_of_mutants_if_the_tests_pass_without() {
        let text = |baseline: &str| {
            format!(
                r#"{{"outcomes": [{{"scenario": "Baseline", "summary": "{baseline}", "log_path": "x"}},
                {{"scenario": {{"Mutant": {{"name": "a.rs:1:1: replace f with ()", "genre": "FnValue"}}}}, "summary": "MissedMutant"}}],
                "total_mutants": 1}}"#
            )
        };
        let read = |baseline| serde_json::from_str::<Outcomes>(&text(baseline)).unwrap();
        assert_eq!(read("Success").mutants().unwrap(), [("a.rs:1:1: replace f with ()", "MissedMutant")]);
        assert!(read("Failure").mutants().unwrap_err().to_string().contains("without a change"));
    }

    #[test]
    fn packages_are_known_and_the_usual_ones_are_those_that_see_packets() {
        let workspace = workspace::metadata(None).unwrap();
        let names = |wanted: &[&str]| {
            let wanted: Vec<_> = wanted.iter().map(|&name| name.to_owned()).collect();
            let chosen = choose(&workspace, &wanted)?;
            anyhow::Ok(chosen.iter().map(|package| package.name.clone()).collect::<BTreeSet<_>>())
        };
        let usual = names(&[]).unwrap();
        for name in ["warmlane-wire", "warmlane-mem", "warmlane-xdp", "warmlane-forward"] {
            assert!(usual.contains(name), "{name}");
        }
        assert!(!usual.contains("warmlane-settings") && !usual.contains("xtask"));
        assert_eq!(names(&["xtask"]).unwrap(), BTreeSet::from(["xtask".to_owned()]));
        assert!(names(&["x"]).unwrap_err().to_string().starts_with("there is no package \"x\""));
    }

    /// Entries that nothing matches any more would excuse something else one day.
    #[test]
    fn what_is_known_as_equivalent_is_still_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for known in EQUIVALENT {
            let text = fs::read_to_string(root.join(known.file)).unwrap();
            let function = known.function.rsplit("::").next().unwrap_or_default();
            assert!(text.contains(&format!("fn {function}")), "{} {}", known.file, known.function);
        }
    }
}
