//! `cargo xtask bisect`: which commit made a bench slower.
//!
//! Between a fast and a slow commit, the middle one is measured in turns with both, until the one commit is found that is
//! slow while its parent is fast. Turns cancel what drifts, ranks withstand single disturbed rounds, and no commit is judged
//! until it is on one side or the other.

mod checkout;
mod ranks;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use warmlane_lab::bench;
use warmlane_lab::statistics::median;
use warmlane_sys::affinity;

use crate::compare::{self, Side, Taken, take_turns};
use crate::workspace::{self, Metadata};
use checkout::{Built, Checkouts};

/// What the order of sides is drawn from: always the same, so that equal costs give an equal answer.
const ORDER_SEED: u64 = 1;

/// The chance below which a difference is believed.
const CHANCE: f64 = 0.001;
/// How often the ends are measured anew while their difference may be chance, and a commit while it is between the two
/// sides, each time with more rounds.
const ATTEMPTS: usize = 4;

/// What is measured unless something else is asked for.
const PROGRAM: &str = "release/warmlane";

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
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = percent)]
    least: f64,
    /// Rounds of each side
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(9..=10_000))]
    rounds: u64,
    /// Length of a round in seconds
    #[arg(long, value_name = "S", default_value_t = 0.2, value_parser = compare::seconds)]
    seconds: f64,
    /// The CPU to measure on; the last one that this process may use if not given
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// What builds a commit, run by `sh` in its folder
    #[arg(long, value_name = "COMMAND", default_value = "cargo build --release --quiet --bin warmlane")]
    build: String,
    /// What was built, below the folder that cargo builds in, or below the commit's folder
    #[arg(long, value_name = "FILE", default_value = PROGRAM)]
    program: String,
}

fn percent(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|percent| (0.1..=1_000.0).contains(percent))
        .ok_or_else(|| "a slowdown worth looking for is 0.1 to 1000 percent".to_owned())
}

/// Finds the commit and prints it.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Metadata { root, target_directory: target, .. } = workspace::metadata(None)?;
    // Before minutes go into builds; benches of another program are its own affair.
    if arguments.program == PROGRAM {
        bench::find(&arguments.bench)?;
    }
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
    let (bench, Arguments { good: from, bad: to, .. }) = (&arguments.bench, arguments);
    let mut total = Slowdown { ratio: f64::NAN, chance: 1.0 };
    for attempt in 0..ATTEMPTS {
        let ends = measuring.turns(measuring.rounds << attempt, &bad, &[&good])?;
        if let Some(reason) = ends.void {
            bail!("the two ends could not be measured: {reason}");
        }
        total = slowdown(&ends.peers[0], &ends.ours);
        if total.chance < CHANCE {
            break;
        }
    }
    if total.chance > CHANCE || total.ratio < 1.0 + arguments.least / 100.0 {
        bail!("{bench} is not slower at {to} than at {from}: {total}");
    }
    eprintln!("xtask: {bench} is slower at {to} than at {from}: {total}");
    // Those before `low` are fast, the one at `high` and those after it slow.
    let (mut low, mut high) = (0, commits.len() - 1);
    let mut parent = good.clone();
    // What can't be judged, with the index that it had: before the commit that now has this number.
    let mut skipped: Vec<(usize, String)> = Vec::new();
    while low < high {
        let middle = usize::midpoint(low, high);
        let description = checkouts.describe(&commits[middle])?;
        let judged = match checkouts.build(&commits[middle])? {
            Built::Program(candidate) => {
                measuring.is_slow(&candidate, &good, &bad)?.map(|slow| (slow, candidate))
            }
            Built::Failed => Err("it does not build".to_owned()),
        };
        match judged {
            Ok((slow, candidate)) => {
                eprintln!("xtask: {description} is {}", if slow { "slow" } else { "fast" });
                if slow {
                    (high, bad) = (middle, candidate);
                } else {
                    (low, parent) = (middle + 1, candidate);
                }
            }
            // Its neighbours may be judged.
            Err(reason) => {
                eprintln!("xtask: {description} could not be judged: {reason}");
                commits.remove(middle);
                skipped.iter_mut().filter(|(index, _)| *index > middle).for_each(|(index, _)| *index -= 1);
                skipped.push((middle, format!("{description} ({reason})")));
                high -= 1;
            }
        }
    }
    let step = measuring.turns(measuring.rounds, &bad, &[&parent])?;
    let void = step.void.as_ref().map(|reason| format!("\nthat last figure does not count: {reason}"));
    let step = slowdown(&step.peers[0], &step.ours);
    let mut answer =
        format!("first slow commit: {}\nagainst the one before: {step}", checkouts.describe(&commits[high])?);
    answer += &void.unwrap_or_default();
    if step.ratio < total.ratio.sqrt() {
        let _ = write!(answer, "\nonly a part of the slowdown ({total}): other commits have a share in it");
    }
    // Those between the last fast commit and the first slow one may be it as well.
    let (suspects, others): (Vec<_>, Vec<_>) = skipped.into_iter().partition(|(index, _)| *index == high);
    let list = |skipped: Vec<(usize, String)>| {
        skipped.into_iter().map(|(_, description)| description).collect::<Vec<_>>().join("; ")
    };
    if !suspects.is_empty() {
        let _ =
            write!(answer, "\nor one of those right before it that could not be judged: {}", list(suspects));
    }
    if !others.is_empty() {
        let _ = write!(answer, "\nnot judged: {}", list(others));
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
            Side::start(&file.display().to_string(), &command, &cpus).with_context(|| {
                format!("the bench '{}' does not run there; does that commit have it?", self.bench)
            })
        };
        let mut first = start(first)?;
        let mut others = others.iter().map(|file| start(file)).collect::<anyhow::Result<Vec<_>>>()?;
        let taken = take_turns(&mut first, &mut others, &cpus, rounds, self.length, ORDER_SEED)?;
        Ok(taken)
    }

    /// Whether a program is as slow as `bad` rather than as fast as `good`, or why that can't be told.
    fn is_slow(&self, candidate: &Path, good: &Path, bad: &Path) -> anyhow::Result<Result<bool, String>> {
        let mut doubt = String::new();
        for attempt in 0..ATTEMPTS {
            let taken = self.turns(self.rounds << attempt, candidate, &[good, bad])?;
            if let Some(reason) = taken.void {
                doubt = reason;
                continue;
            }
            match is_on_slow_side(&taken) {
                Some(slow) => return Ok(Ok(slow)),
                None => doubt = String::from("it is between the fast and the slow side"),
            }
        }
        Ok(Err(doubt))
    }
}

/// Whether what was measured against the fast and the slow side is on the slow one; `None` between them.
fn is_on_slow_side(taken: &Taken) -> Option<bool> {
    let (from_good, to_bad) =
        (slowdown(&taken.peers[0], &taken.ours), slowdown(&taken.ours, &taken.peers[1]));
    let slow = from_good.ratio > to_bad.ratio;
    // One of the two differences is believed, and the other one is much smaller: it is on that side.
    let (far, near) = if slow { (&from_good, &to_bad) } else { (&to_bad, &from_good) };
    (far.chance < CHANCE && (near.ratio - 1.0) < (far.ratio - 1.0) / 2.0).then_some(slow)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A repository of commits whose benches take so many cycles, or don't build.
    fn repository(costs: &[Option<f64>], seed: u64) -> tempfile::TempDir {
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
            let text = cost.map_or_else(String::new, |cost| bench(cost, seed));
            fs::write(folder.path().join("bench.py"), format!("{text}# {number}\n")).unwrap();
            git(&["add", "."]);
            git(&["commit", "--quiet", "--message", &format!("change {number}")]);
        }
        folder
    }

    /// A program that answers rounds at once with a cost that has noise of 3 % in it, now and then more; the same noise on every
    /// run for the same cost and seed.
    fn bench(cost: f64, seed: u64) -> String {
        format!(
            "#!/usr/bin/env python3\nimport random, sys\nrandom.seed('{cost} {seed}')\nprint('ready', flush=True)\nfor line in sys.stdin:\n    \
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
        bisect_seeded(costs, arguments, 0)
    }

    fn bisect_seeded(costs: &[Option<f64>], arguments: &Arguments, seed: u64) -> anyhow::Result<String> {
        let repository = repository(costs, seed);
        let folder = tempfile::tempdir().unwrap();
        let checkouts =
            Checkouts::new(repository.path(), folder.path(), &arguments.build, &arguments.program)?;
        // Where others disturb the machine it says so, and nothing else: that is to be tried again.
        let is_disturbed = |answer: &anyhow::Result<String>| {
            answer.as_ref().is_err_and(|error| error.to_string().contains("could not be measured"))
        };
        let mut answer = find(arguments, &checkouts);
        for _ in 0..9 {
            if !is_disturbed(&answer) {
                break;
            }
            answer = find(arguments, &checkouts);
        }
        answer
    }

    #[test]
    fn a_planted_slowdown_of_a_twentieth_is_found() {
        let costs: Vec<_> = (0..12).map(|number| Some(if number < 8 { 100.0 } else { 105.0 })).collect();
        let answer = bisect(&costs, &arguments("HEAD~11", "HEAD")).unwrap();
        assert!(answer.contains("change 8\n"), "{answer}");
        assert!(!answer.contains("only a part"), "{answer}");
    }

    /// The promise in full, each time with other noise and another commit.
    #[test]
    fn the_planted_commit_is_named_in_nineteen_of_twenty_tries() {
        let tries = 20;
        let mut found = 0;
        for number in 0..tries {
            let planted = 1 + number % 11;
            let costs: Vec<_> =
                (0..12).map(|commit| Some(if commit < planted { 100.0 } else { 105.0 })).collect();
            let answer = bisect_seeded(&costs, &arguments("HEAD~11", "HEAD"), number);
            let right = answer.as_ref().is_ok_and(|answer| answer.contains(&format!("change {planted}\n")));
            found += usize::from(right);
            println!("try {number}: planted at {planted}, {}", if right { "found" } else { "NOT found" });
            if !right {
                println!("{answer:?}");
            }
        }
        println!("found in {found} of {tries}");
        assert!(found >= 19, "{found} of {tries}");
    }

    #[test]
    fn commits_that_do_not_build_are_skipped_and_told() {
        let mut costs: Vec<_> = (0..9).map(|number| Some(if number < 6 { 100.0 } else { 120.0 })).collect();
        (costs[4], costs[5]) = (None, None);
        let answer = bisect(&costs, &arguments("HEAD~8", "HEAD")).unwrap();
        assert!(answer.contains("first slow commit") && answer.contains("change 6\n"), "{answer}");
        let (_, suspects) =
            answer.split_once("or one of those right before it that could not be judged: ").unwrap();
        assert!(
            suspects.contains("change 4 (it does not build)") && suspects.contains("change 5"),
            "{answer}"
        );
        // Far from the slow one, they are no suspects.
        let mut costs: Vec<_> = (0..9).map(|number| Some(if number < 6 { 100.0 } else { 120.0 })).collect();
        costs[4] = None;
        let answer = bisect(&costs, &arguments("HEAD~8", "HEAD")).unwrap();
        assert!(!answer.contains("or one of") && answer.contains("change 6\n"), "{answer}");
    }

    #[test]
    fn what_stands_between_the_sides_is_not_guessed() {
        let rounds = |cost: f64| (0..15).map(|round| cost + 0.01 * f64::from(round)).collect::<Vec<_>>();
        let taken = |cost| Taken {
            ours: rounds(cost),
            peers: vec![rounds(100.0), rounds(110.0)],
            ..Taken::default()
        };
        assert_eq!(
            [100.0, 105.0, 110.0].map(|cost| is_on_slow_side(&taken(cost))),
            [Some(false), None, Some(true)]
        );
        let costs: Vec<_> = [100.0, 100.0, 150.0, 220.0, 220.0].map(Some).into();
        let answer = bisect(&costs, &Arguments { rounds: 9, ..arguments("HEAD~4", "HEAD") }).unwrap();
        assert!(answer.contains("first slow commit") && answer.contains("change 3\n"), "{answer}");
        assert!(answer.contains("change 2 (it is between the fast and the slow side)"), "{answer}");
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        assert_eq!(percent("2"), Ok(2.0));
        assert!(["0", "-2", "nan", "x"].iter().all(|text| percent(text).is_err()));
    }

    #[test]
    fn what_can_t_be_looked_for_is_told() {
        let same = [Some(100.0), Some(100.0)];
        let error = |good: &str, bad: &str| bisect(&same, &arguments(good, bad)).unwrap_err().to_string();
        assert!(error("HEAD~1", "HEAD").contains("example is not slower at HEAD than at HEAD~1"));
        assert!(error("HEAD", "HEAD").contains("nothing in between"));
        assert!(error("nonsense", "HEAD").contains("git rev-parse"));
        // A program that knows no such bench ends before it is ready, and says so itself.
        let unknown = Arguments {
            build: "printf '#!/bin/sh\necho no such bench >&2; exit 1' > bench.py; chmod +x bench.py"
                .to_owned(),
            ..arguments("HEAD~1", "HEAD")
        };
        let unknown = bisect(&same, &unknown).unwrap_err().to_string();
        assert!(unknown.contains("example") && unknown.contains("does not run"), "{unknown}");
        let broken = bisect(&[None, Some(1.0)], &arguments("HEAD~1", "HEAD")).unwrap_err().to_string();
        assert!(broken.starts_with("HEAD~1 does not build"), "{broken}");
        let repository = repository(&same, 0);
        fs::write(repository.path().join("bench.py"), "changed").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let dirty = Checkouts::new(repository.path(), folder.path(), "true", "bench.py").err().unwrap();
        assert!(dirty.to_string().ends_with("commit or stash them:\n M bench.py"), "{dirty}");
    }
}
