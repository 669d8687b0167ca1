//! `cargo xtask compare`: ours and peers' programs for the same job, on the same CPUs of one machine, taking turns.
//!
//! Turns cancel what drifts (clock, temperature, neighbours on the same host); a round that lost time to others is
//! repeated, and a result that still depends on chance is marked void instead of being printed as a figure to rely on.

mod catalogue;
mod dpdk;
mod huge_pages;
mod outcome;
mod setting;
mod side;
mod traffic;
mod turns;

use std::fs;
use std::time::Duration;

use anyhow::{Context, bail};
use warmlane_lab::machine::Machine;
use warmlane_sys::affinity;

use crate::gate;
use crate::workspace::{self, Metadata};
use catalogue::{Comparison, Lanes};
use outcome::Outcome;
use setting::{Setting, Sides};
pub(crate) use side::Side;
pub(crate) use turns::{Taken, take as take_turns};

/// Fewer rounds than this say nothing about noise.
const FEWEST_ROUNDS: u64 = 9;
/// The length of a round on one lane, in seconds.
const ONE_LANE: f64 = 0.5;
/// The same on two: short, since the cost of moving a line may change at any time.
const TWO_LANES: f64 = 0.1;
/// The same where packets go through the kernel, beside seconds for the start of each round.
const FED: f64 = 2.0;

/// Options of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What to compare, such as l3-forward; all that there is if nothing is named
    names: Vec<String>,
    /// Print one JSON object a line on standard output, and nothing else there
    #[arg(long)]
    json: bool,
    /// Undisturbed rounds of each side
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(FEWEST_ROUNDS..=10_000))]
    rounds: u64,
    /// Length of a round in seconds; 0.5 if not given, or 0.1 with two lanes, 2 for the router
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
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
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let comparisons: Vec<&Comparison> = if arguments.names.is_empty() {
        catalogue::all().collect()
    } else {
        arguments.names.iter().map(|name| catalogue::find(name)).collect::<anyhow::Result<_>>()?
    };
    let Metadata { root, target_directory: target, .. } = workspace::metadata(None)?;
    let directory = target.join("compare");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let mut setting = Setting::new(root, target, directory);
    let (mut outcomes, mut skipped) = (Vec::new(), Vec::new());
    for comparison in comparisons {
        match one(comparison, &mut setting, arguments) {
            Ok(outcome) if arguments.json => println!("{}", serde_json::to_string(&outcome)?),
            Ok(outcome) => {
                print!("{}", outcome.table());
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
    Ok(())
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
    let usual = match comparison.lanes {
        Lanes::One => ONE_LANE,
        Lanes::Two { .. } => TWO_LANES,
        Lanes::Fed => FED,
    };
    let length = Duration::from_secs_f64(arguments.seconds.unwrap_or(usual));
    let sides = (comparison.prepare)(setting)?;
    let outcome = compare(comparison, sides, &setting.cpus, arguments.rounds as usize, length, machine)?;
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

fn compare(
    comparison: &'static Comparison,
    sides: Sides,
    cpus: &[usize],
    rounds: usize,
    length: Duration,
    machine: Machine,
) -> anyhow::Result<Outcome> {
    let mut ours = Side::start("ours", &sides.ours, cpus)?;
    let (names, commands): (Vec<_>, Vec<_>) = sides.peers.into_iter().unzip();
    let mut peers = names
        .iter()
        .zip(&commands)
        .map(|(name, command)| Side::start(name, command, cpus))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let taken = turns::take(&mut ours, &mut peers, cpus, rounds, length)?;
    Outcome::new(comparison, &names, taken, sides.missing.or_else(|| sides.pages.unfair.clone()), machine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use huge_pages::Pages;
    use std::process::Command;

    pub(super) static EXAMPLE: Comparison = Comparison {
        name: "example",
        unit: "cycles/packet",
        promise: 2.0,
        bound: "the speed of light",
        lanes: Lanes::One,
        prepare: |_| bail!("not to be run"),
    };

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
        };
        let cpu = affinity::allowed_cpus().unwrap()[0];
        // These programs answer at once, so hardly any time can be lost of what is allowed for a minute.
        let outcome =
            compare(&EXAMPLE, sides, &[cpu], 9, Duration::from_secs(60), Machine::default()).unwrap();
        assert_eq!((outcome.peer_name.as_str(), outcome.ratio, outcome.void), ("fast", Some(2.5), None));
        assert_eq!(outcome.others.len(), 1);
    }
}
