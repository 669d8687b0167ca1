//! `cargo xtask bisect`: which commit made a bench slower.
//!
//! Between a fast and a slow commit, the middle one is measured in turns with both, until the one commit is found that is
//! slow while its parent is fast. Turns cancel what drifts, ranks withstand single disturbed rounds, and no commit is judged
//! until it stands on one side or the other.

mod checkout;
mod ranks;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use warmlane_sys::affinity;

use crate::compare::{Side, Spread, Taken, take_turns};
use crate::workspace::{self, Metadata};
use checkout::{Built, Checkouts};

/// The chance below which a difference is believed.
const CHANCE: f64 = 0.001;
/// How often a commit is measured anew when it stands between the two sides, each time with more rounds.
const ATTEMPTS: usize = 4;

/// Options of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The bench that became slower, as `warmlane bench --list` names it
    #[arg(long, value_name = "NAME")]
    bench: String,
    /// A commit at which it was fast
    #[arg(long, value_name = "REV")]
    good: String,
    /// A commit at which it is slow
    #[arg(long, value_name = "REV", default_value = "HEAD")]
    bad: String,
    /// The smallest slowdown worth looking for, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0)]
    least: f64,
    /// Rounds of each side
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(9..=10_000))]
    rounds: u64,
    /// Length of a round in seconds
    #[arg(long, value_name = "S", default_value_t = 0.2)]
    seconds: f64,
    /// The CPU to measure on; the last one that this process may use if not given
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// What builds a commit, run by `sh` in its folder
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "cargo build --release --quiet --package warmlane-cli"
    )]
    build: String,
    /// What was built, below the folder that cargo builds in, or below the commit's folder
    #[arg(long, value_name = "FILE", default_value = "release/warmlane")]
    program: String,
}

/// Finds the commit and prints it.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Metadata { root, target_directory: target, .. } = workspace::metadata(None)?;
    let checkouts = Checkouts::new(&root, &target.join("bisect"), &arguments.build, &arguments.program)?;
    println!("{}", find(arguments, &checkouts)?);
    Ok(())
}

/// Measures the ends, then the middle of what is left, until nothing is left.
fn find(arguments: &Arguments, checkouts: &Checkouts) -> anyhow::Result<String> {
    let mut commits = checkouts.commits(&arguments.good, &arguments.bad)?;
    let measuring = Measuring::new(arguments)?;
    let good = program(checkouts.build(&checkouts.resolve(&arguments.good)?)?, &arguments.good)?;
    let mut bad = program(checkouts.build(&checkouts.resolve(&arguments.bad)?)?, &arguments.bad)?;
    let ends = measuring.turns(measuring.rounds, &bad, &[&good])?;
    let total = slowdown(&ends.peers[0], &ends.ours);
    let (bench, Arguments { good: from, bad: to, .. }) = (&arguments.bench, arguments);
    if total.chance > CHANCE || total.ratio < 1.0 + arguments.least / 100.0 {
        bail!("{bench} is not slower at {to} than at {from}: {total}");
    }
    eprintln!("xtask: {bench} is slower at {to} than at {from}: {total}");
    // Those before `low` are fast, the one at `high` and those after it slow.
    let (mut low, mut high) = (0, commits.len() - 1);
    let mut parent = good.clone();
    let mut skipped = Vec::new();
    while low < high {
        let middle = usize::midpoint(low, high);
        let Built::Program(candidate) = checkouts.build(&commits[middle])? else {
            // It can't be judged; its neighbours may.
            skipped.push(checkouts.describe(&commits.remove(middle))?);
            high -= 1;
            continue;
        };
        let slow = measuring.is_slow(&candidate, &good, &bad)?;
        eprintln!(
            "xtask: {} is {}",
            checkouts.describe(&commits[middle])?,
            if slow { "slow" } else { "fast" }
        );
        if slow {
            (high, bad) = (middle, candidate);
        } else {
            (low, parent) = (middle + 1, candidate);
        }
    }
    let step = measuring.turns(measuring.rounds, &bad, &[&parent])?;
    let step = slowdown(&step.peers[0], &step.ours);
    let mut answer =
        format!("first slow commit: {}\nagainst the one before: {step}", checkouts.describe(&commits[high])?);
    if step.ratio < total.ratio.sqrt() {
        let _ = write!(answer, "\nonly a part of the slowdown ({total}): other commits have a share in it");
    }
    if !skipped.is_empty() {
        let _ = write!(answer, "\nskipped, since they do not build: {}", skipped.join("; "));
    }
    Ok(answer)
}

fn program(built: Built, which: &str) -> anyhow::Result<PathBuf> {
    match built {
        Built::Program(file) => Ok(file),
        Built::Failed => bail!("{which} does not build, so that there is nothing to measure"),
    }
}

/// How many times slower one sample is, and the chance that it isn't.
struct Slowdown {
    ratio: f64,
    chance: f64,
}

impl std::fmt::Display for Slowdown {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "{:+.1} % (chance that it is none: {:.1e})",
            100.0 * (self.ratio - 1.0),
            self.chance
        )
    }
}

fn slowdown(before: &[f64], after: &[f64]) -> Slowdown {
    let median = |rounds| Spread::of(rounds).map_or(f64::NAN, |spread| spread.median);
    Slowdown { ratio: median(after) / median(before), chance: ranks::chance_that_slower(before, after) }
}

/// How programs are measured.
struct Measuring {
    bench: String,
    cpu: usize,
    rounds: usize,
    length: Duration,
}

impl Measuring {
    fn new(arguments: &Arguments) -> anyhow::Result<Self> {
        let allowed = affinity::allowed_cpus()?;
        let cpu = arguments.cpu.or_else(|| allowed.last().copied());
        Ok(Self {
            bench: arguments.bench.clone(),
            cpu: cpu.context("this process may use no CPU at all")?,
            rounds: arguments.rounds as usize,
            length: Duration::try_from_secs_f64(arguments.seconds).context("--seconds")?,
        })
    }

    /// Rounds of `first` and the others in turns.
    fn turns(&self, rounds: usize, first: &Path, others: &[&Path]) -> anyhow::Result<Taken> {
        let cpus = [self.cpu];
        let start = |file: &Path| {
            let mut command = Command::new(file);
            command.args(["bench", &self.bench, "--serve", "--cpu", &self.cpu.to_string()]);
            Side::start(&file.display().to_string(), &command, &cpus)
        };
        let mut first = start(first)?;
        let mut others = others.iter().map(|file| start(file)).collect::<anyhow::Result<Vec<_>>>()?;
        let taken = take_turns(&mut first, &mut others, &cpus, rounds, self.length)?;
        if let Some(reason) = &taken.void {
            eprintln!("xtask: note: {reason}");
        }
        Ok(taken)
    }

    /// Whether a program is as slow as `bad` rather than as fast as `good`.
    fn is_slow(&self, candidate: &Path, good: &Path, bad: &Path) -> anyhow::Result<bool> {
        let mut slow = false;
        for attempt in 0..ATTEMPTS {
            let taken = self.turns(self.rounds << attempt, candidate, &[good, bad])?;
            let (from_good, to_bad) =
                (slowdown(&taken.peers[0], &taken.ours), slowdown(&taken.ours, &taken.peers[1]));
            slow = from_good.ratio > to_bad.ratio;
            // One of the two differences is believed, and the other one is much smaller: it stands on that side.
            let (far, near) = if slow { (&from_good, &to_bad) } else { (&to_bad, &from_good) };
            if far.chance < CHANCE && (near.ratio - 1.0) < (far.ratio - 1.0) / 2.0 {
                break;
            }
        }
        Ok(slow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A repository of commits whose benches take so many cycles, or don't build.
    fn repository(costs: &[Option<f64>]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str]| {
            let status = Command::new("git")
                .arg("-C")
                .arg(folder.path())
                .args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"])
                .args(arguments)
                .output()
                .unwrap();
            assert!(status.status.success(), "{arguments:?}");
        };
        git(&["init", "--quiet"]);
        for (number, cost) in costs.iter().enumerate() {
            let text = cost.map_or_else(String::new, bench);
            fs::write(folder.path().join("bench.py"), format!("{text}# {number}\n")).unwrap();
            git(&["add", "."]);
            git(&["commit", "--quiet", "--message", &format!("change {number}")]);
        }
        folder
    }

    /// A program that answers rounds at once with a cost that has noise of 3 % in it, now and then more.
    fn bench(cost: f64) -> String {
        format!(
            "#!/usr/bin/env python3\nimport random, sys\nprint('ready', flush=True)\nfor line in sys.stdin:\n    \
             noise = random.gauss(1, 0.03) * (1.2 if random.random() < 0.05 else 1)\n    \
             print('{{\"packets\":1000,\"cycles\":%d}}' % ({cost} * 1000 * noise), flush=True)\n"
        )
    }

    fn arguments(good: &str, bad: &str) -> Arguments {
        Arguments {
            bench: "example".to_owned(),
            good: good.to_owned(),
            bad: bad.to_owned(),
            least: 2.0,
            rounds: 25,
            // These programs answer at once, so hardly any time can be lost of what is allowed for a minute.
            seconds: 60.0,
            cpu: None,
            build: "grep -q python bench.py && chmod +x bench.py".to_owned(),
            program: "bench.py".to_owned(),
        }
    }

    fn bisect(costs: &[Option<f64>], arguments: &Arguments) -> anyhow::Result<String> {
        let repository = repository(costs);
        let folder = tempfile::tempdir().unwrap();
        let checkouts =
            Checkouts::new(repository.path(), folder.path(), &arguments.build, &arguments.program)?;
        find(arguments, &checkouts)
    }

    #[test]
    fn a_planted_slowdown_of_a_twentieth_is_found() {
        let costs: Vec<_> = (0..12).map(|number| Some(if number < 8 { 100.0 } else { 105.0 })).collect();
        let answer = bisect(&costs, &arguments("HEAD~11", "HEAD")).unwrap();
        assert!(answer.contains("change 8\n"), "{answer}");
        assert!(!answer.contains("only a part"), "{answer}");
    }

    #[test]
    fn commits_that_do_not_build_are_skipped_and_told() {
        let mut costs: Vec<_> = (0..9).map(|number| Some(if number < 6 { 100.0 } else { 120.0 })).collect();
        (costs[4], costs[5]) = (None, None);
        let answer = bisect(&costs, &arguments("HEAD~8", "HEAD")).unwrap();
        assert!(answer.contains("first slow commit") && answer.contains("change 6\n"), "{answer}");
        assert!(
            answer.contains("skipped, since they do not build") && answer.contains("change 4"),
            "{answer}"
        );
    }

    #[test]
    fn what_can_t_be_looked_for_is_told() {
        let same = [Some(100.0), Some(100.0)];
        let error = |good: &str, bad: &str| bisect(&same, &arguments(good, bad)).unwrap_err().to_string();
        assert!(error("HEAD~1", "HEAD").contains("example is not slower at HEAD than at HEAD~1"));
        assert!(error("HEAD", "HEAD").contains("nothing in between"));
        assert!(error("nonsense", "HEAD").contains("git rev-parse"));
        let broken = bisect(&[None, Some(1.0)], &arguments("HEAD~1", "HEAD")).unwrap_err().to_string();
        assert!(broken.starts_with("HEAD~1 does not build"), "{broken}");
        let repository = repository(&same);
        fs::write(repository.path().join("bench.py"), "changed").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let dirty = Checkouts::new(repository.path(), folder.path(), "true", "bench.py").err().unwrap();
        assert!(dirty.to_string().contains("commit or stash them"), "{dirty}");
    }
}
