//! `cargo xtask compare`: ours and peers' programs for the same job, on the same CPUs of one machine, taking turns.
//!
//! Turns cancel what drifts (clock, temperature, neighbours on the same host); a round that lost time to others is
//! repeated, and a result that still depends on chance is marked void instead of being printed as a figure to rely on.

pub(crate) mod catalogue;
pub(crate) mod dpdk;
mod huge_pages;
mod outcome;
mod setting;
mod side;
mod traffic;
mod turns;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, bail};
use warmlane_lab::machine::Machine;
use warmlane_lab::statistics::median;
use warmlane_lab::turns::any_seed;
use warmlane_sys::affinity;

use crate::gate;
use crate::workspace;
use catalogue::Comparison;
pub(crate) use catalogue::Lanes;
use outcome::Outcome;
pub(crate) use setting::Setting;
use setting::{FINALISTS, Sides};
pub(crate) use side::Side;
pub(crate) use turns::{Taken, take as take_turns};

/// Fewer rounds than this say nothing about noise.
const FEWEST_ROUNDS: u64 = 9;

/// What is measured unless something else is asked for, and always for records: the same for all comparisons of a kind. Shorter rounds
/// on two lanes, of 0.1 s, went for the most part on getting the caches back from the sides before. Where packets go through the kernel,
/// each round begins with seconds for its start.
pub(crate) fn usual(lanes: Lanes) -> (u64, f64) {
    match lanes {
        Lanes::One | Lanes::Two { .. } => (15, 0.5),
        Lanes::Fed => (9, 1.0),
    }
}

/// Rounds of each peer to find out which few of many are the fastest.
const TRIALS: usize = 3;

/// The exit status of `--check` where a promise is not kept; 1 and 2 are errors.
const NOT_KEPT: u8 = 3;
/// The same where all that count are kept, and some don't count.
const VOID: u8 = 4;

/// Options of the task.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// What to compare, such as l3-forward; all that there is if nothing is named
    names: Vec<String>,
    /// Print one JSON object a line on standard output, and nothing else there
    #[arg(long)]
    json: bool,
    /// End with exit status 3 if a promise is not kept, else with 4 if a result does not count
    #[arg(long)]
    check: bool,
    /// Undisturbed rounds of each side; 15 if not given, 9 for the router
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(FEWEST_ROUNDS..=10_000))]
    rounds: Option<u64>,
    /// Length of a round in seconds; 0.5 if not given, 1 for the router
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Draws the order in which the sides take turns; another one each time if not given
    #[arg(long, value_name = "N")]
    seed: Option<u32>,
    /// Build the peers on the DPDK that was installed with this prefix, instead of the distribution's
    #[arg(long, value_name = "PREFIX")]
    dpdk: Option<PathBuf>,
    /// The CPU that all sides run on, one at a time; the last one that this process may use if not given
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// The CPU of the second lane, where there is one; the first other one that this process may use if not given
    #[arg(long, value_name = "N")]
    second_cpu: Option<usize>,
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.01..=600.0).contains(seconds))
        .ok_or_else(|| "a round takes 0.01 to 600 seconds".to_owned())
}

/// Runs the comparisons asked for.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let comparisons: Vec<&Comparison> = if arguments.names.is_empty() {
        catalogue::all().collect()
    } else {
        arguments.names.iter().map(|name| catalogue::find(name)).collect::<anyhow::Result<_>>()?
    };
    let mut setting = Setting::of(workspace::metadata(None)?)?;
    if let Some(prefix) = &arguments.dpdk {
        setting.use_dpdk(prefix)?;
    }
    let (mut outcomes, mut skipped) = (Vec::new(), Vec::new());
    for comparison in comparisons {
        match one(comparison, &mut setting, arguments) {
            Ok(outcome) => {
                if arguments.json {
                    println!("{}", serde_json::to_string(&outcome)?);
                } else {
                    print!("{}", outcome.table());
                }
                outcomes.push(outcome);
            }
            // What nobody asked for by name may be impossible here; the others are not.
            Err(error) => {
                eprintln!("xtask: {}: skipped, {error:#}", comparison.name);
                skipped.push((comparison.name, format!("{error:#}")));
            }
        }
    }
    if !arguments.json && outcomes.len() + skipped.len() > 1 {
        print!("\n{}", outcome::summary(&outcomes, &skipped));
    }
    if !arguments.names.is_empty() && !skipped.is_empty() {
        bail!("{} of {} comparisons could not be made", skipped.len(), arguments.names.len());
    }
    let kept: Vec<_> = outcomes.iter().map(Outcome::kept).collect();
    Ok(if arguments.check { status(&kept) } else { 0 }.into())
}

/// What `--check` ends with.
fn status(kept: &[Option<bool>]) -> u8 {
    if kept.contains(&Some(false)) {
        NOT_KEPT
    } else if kept.contains(&None) {
        VOID
    } else {
        0
    }
}

/// Makes one comparison as for a record, with nothing but the usual.
pub(crate) fn measure(name: &str, setting: &mut Setting) -> anyhow::Result<serde_json::Value> {
    let outcome = one(catalogue::find(name)?, setting, &Arguments::default())?;
    Ok(serde_json::to_value(outcome)?)
}

/// Makes one comparison.
fn one(
    comparison: &'static Comparison,
    setting: &mut Setting,
    arguments: &Arguments,
) -> anyhow::Result<Outcome> {
    setting.cpus = cpus(comparison.lanes, arguments)?;
    // With the huge pages as they are before some are added for the comparison.
    let machine = Machine::measuring(&setting.cpus);
    let one_lane = comparison.lanes == Lanes::One;
    let (rounds, seconds) = usual(comparison.lanes);
    let plan = Plan {
        rounds: arguments.rounds.unwrap_or(rounds) as usize,
        length: Duration::from_secs_f64(arguments.seconds.unwrap_or(seconds)),
        seed: arguments.seed.map_or_else(any_seed, u64::from),
    };
    let sides = (comparison.prepare)(setting)?;
    let outcome = compare(comparison, sides, &setting.cpus, plan, machine)?;
    let instructions = if one_lane { gate::instructions(&setting.root, comparison.name) } else { Ok(None) };
    Ok(outcome.beside_instructions(instructions))
}

/// The CPUs for a comparison, the first lane's first.
fn cpus(lanes: Lanes, arguments: &Arguments) -> anyhow::Result<Vec<usize>> {
    let allowed = affinity::allowed_cpus()?;
    let first =
        arguments.cpu.or_else(|| allowed.last().copied()).context("this process may use no CPU at all")?;
    if lanes == Lanes::One {
        return Ok(vec![first]);
    }
    let second = arguments.second_cpu.or_else(|| allowed.iter().copied().find(|&cpu| cpu != first));
    let second =
        second.context("a comparison with two lanes needs two CPUs, and this process may use one only")?;
    if first == second {
        bail!("CPU {first} can't be both lanes': two lanes on one CPU would wait for each other");
    }
    Ok(vec![first, second])
}

/// How turns are taken.
#[derive(Clone, Copy)]
struct Plan {
    rounds: usize,
    length: Duration,
    seed: u64,
}

fn compare(
    comparison: &'static Comparison,
    sides: Sides,
    cpus: &[usize],
    plan: Plan,
    machine: Machine,
) -> anyhow::Result<Outcome> {
    let (names, commands): (Vec<_>, Vec<_>) = fastest(sides.peers, cpus, plan.length)?.into_iter().unzip();
    let mut ours = Side::start("ours", &sides.ours, cpus)?;
    let mut peers = names
        .iter()
        .zip(&commands)
        .map(|(name, command)| Side::start(name, command, cpus))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let Plan { rounds, length, seed } = plan;
    let taken = turns::take(&mut ours, &mut peers, cpus, rounds, length, seed)?;
    let missing = sides.missing.or_else(|| sides.pages.unfair.clone());
    let outcome = Outcome::new(comparison, &names, taken, length, missing, machine)?;
    Ok(Outcome { dpdk: sides.dpdk, ..outcome })
}

/// Of many peers the fastest few, by some rounds of each alone: those that take turns with ours after that, so that what was luck here
/// is none there.
fn fastest(
    peers: Vec<(String, Command)>,
    cpus: &[usize],
    length: Duration,
) -> anyhow::Result<Vec<(String, Command)>> {
    if peers.len() <= FINALISTS {
        return Ok(peers);
    }
    let mut timed = Vec::new();
    for (name, command) in peers {
        let mut side = Side::start(&name, &command, cpus)?;
        let rounds: Vec<f64> =
            (0..TRIALS).map(|_| Ok(side.measure(length)?.cycles_per_unit)).collect::<anyhow::Result<_>>()?;
        timed.push((median(&rounds), (name, command)));
    }
    timed.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    timed.truncate(FINALISTS);
    Ok(timed.into_iter().map(|(_, peer)| peer).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use huge_pages::Pages;

    pub(super) static EXAMPLE: Comparison = Comparison {
        name: "example",
        unit: "cycles/packet",
        promise: 2.0,
        bound: "the speed of light",
        lanes: Lanes::One,
        prepare: |_| bail!("not to be run"),
    };

    #[test]
    fn of_many_peers_the_fastest_few_take_turns() {
        let cpus = [affinity::allowed_cpus().unwrap()[0]];
        let chosen = |cycles: &[&str]| {
            let peers = cycles.iter().map(|cycles| ((*cycles).to_owned(), program(cycles))).collect();
            let chosen = fastest(peers, &cpus, Duration::from_millis(1)).unwrap();
            chosen.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        let few = ["900", "500", "700", "600", "800", "400"];
        assert_eq!(chosen(&few), few);
        let many = ["900", "500", "700", "600", "800", "400", "300", "1000"];
        assert_eq!(chosen(&many), ["300", "400", "500", "600", "700", "800"]);
    }

    #[test]
    fn check_tells_what_is_not_kept_from_what_does_not_count() {
        assert_eq!([status(&[]), status(&[Some(true)])], [0, 0]);
        assert_eq!(status(&[Some(true), None]), VOID);
        assert_eq!(status(&[None, Some(false), Some(true)]), NOT_KEPT);
    }

    /// A program whose rounds take this many cycles for ten packets.
    fn program(cycles: &str) -> Command {
        let mut command = Command::new("sh");
        let text = format!(
            "echo ready; while read go seconds; do echo '{{\"packets\":10,\"cycles\":{cycles},\"seconds\":1}}'; done"
        );
        command.args(["-c", &text]);
        command
    }

    #[test]
    fn the_best_of_several_peers_is_the_measure() {
        let peers = [("slow", "900"), ("fast", "500")];
        let sides = Sides {
            ours: program("200"),
            peers: peers.iter().map(|(name, cycles)| ((*name).to_owned(), program(cycles))).collect(),
            missing: None,
            pages: Pages::provide(0),
            dpdk: None,
        };
        let cpu = affinity::allowed_cpus().unwrap()[0];
        // These programs answer at once, so hardly any time can be lost of what is allowed for a minute.
        let plan = Plan { rounds: 9, length: Duration::from_secs(60), seed: 1 };
        let outcome = compare(&EXAMPLE, sides, &[cpu], plan, Machine::default()).unwrap();
        assert_eq!((outcome.peer_name.as_str(), outcome.ratio, outcome.void), ("fast", Some(2.5), None));
        assert_eq!(outcome.others.len(), 1);
    }
}
