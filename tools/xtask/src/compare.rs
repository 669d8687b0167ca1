//! `cargo xtask compare`: ours and a peer's program for the same job, on one CPU of one machine, taking turns.
//!
//! Turns cancel what drifts (clock, temperature, neighbours on the same host); a round that lost time to others is
//! repeated, and a result that still depends on chance is marked void instead of being printed as a figure to rely on.

mod disturbance;
mod dpdk;
mod huge_pages;
mod machine;
mod side;
mod statistics;
mod traffic;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use serde::Serialize;
use warmlane_sys::affinity;

use crate::workspace::{self, Metadata};
use dpdk::Dpdk;
use huge_pages::Pages;
use side::Side;
use statistics::Spread;

/// Fewer rounds than this say nothing about noise.
const FEWEST_ROUNDS: u64 = 9;
/// Huge-page memory that our own side may take, in MiB.
const OUR_MEMORY: u64 = 256;

/// Options of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What to compare, such as l3-forward
    #[arg(required = true)]
    names: Vec<String>,
    /// Print one JSON object a line on standard output, and nothing else there
    #[arg(long)]
    json: bool,
    /// Undisturbed rounds of each side
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(FEWEST_ROUNDS..=10_000))]
    rounds: u64,
    /// Length of a round in seconds
    #[arg(long, value_name = "S", default_value_t = 0.5, value_parser = seconds)]
    seconds: f64,
    /// The CPU that both sides run on, one at a time; the last one that this process may use if not given
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.01..=600.0).contains(seconds))
        .ok_or_else(|| "a round takes 0.01 to 600 seconds".to_owned())
}

/// Something that we promise to do better than a peer.
struct Comparison {
    name: &'static str,
    unit: &'static str,
    /// The ratio that we promise.
    promise: f64,
    /// What physics allows at best, in words.
    bound: &'static str,
    prepare: fn(&Setting) -> anyhow::Result<Sides>,
}

const COMPARISONS: &[Comparison] = &[Comparison {
    name: "l3-forward",
    unit: "cycles/packet",
    promise: 2.0,
    bound: "per packet one random line of a table larger than L2, and three lines streamed through L1 and L2 (capture, \
            buffer header, frame); where the table stays in L3, instructions over issue width, not lines over bandwidth",
    prepare: l3_forward,
}];

/// Where a comparison takes place.
struct Setting {
    root: PathBuf,
    target: PathBuf,
    /// Holds the files that both sides read.
    directory: PathBuf,
    cpu: usize,
}

/// The two programs.
struct Sides {
    ours: Command,
    peer_name: String,
    /// The peer's, or why there is none.
    peer: Result<Command, String>,
    pages: Pages,
}

/// One line of the result. Names and order of the fields are a contract with those who read it.
#[derive(Debug, Serialize)]
struct Outcome {
    name: &'static str,
    unit: &'static str,
    ours: Spread,
    peer_name: String,
    peer: Option<Spread>,
    /// How many times better ours is.
    ratio: Option<f64>,
    promise: f64,
    bound: &'static str,
    rounds: usize,
    /// Why the result doesn't count.
    void: Option<String>,
}

/// Runs the comparisons asked for.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let comparisons = arguments.names.iter().map(|name| find(name)).collect::<anyhow::Result<Vec<_>>>()?;
    let cpu = match arguments.cpu {
        Some(cpu) => cpu,
        None => *affinity::allowed_cpus()?.last().context("this process may use no CPU at all")?,
    };
    let Metadata { root, target_directory: target, .. } = workspace::metadata(None)?;
    let directory = target.join("compare");
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let setting = Setting { root, target, directory, cpu };
    let length = Duration::from_secs_f64(arguments.seconds);
    for comparison in comparisons {
        let sides = (comparison.prepare)(&setting)?;
        // Now, since preparing may have added huge pages.
        let machine = serde_json::to_string_pretty(&machine::fingerprint(&setting.root, cpu))?;
        fs::write(setting.directory.join("machine.json"), machine + "\n")
            .context("cannot write machine.json")?;
        let outcome = compare(comparison, &sides, cpu, arguments.rounds as usize, length)?;
        if arguments.json {
            println!("{}", serde_json::to_string(&outcome)?);
        } else {
            print!("{}", table(&outcome));
        }
    }
    Ok(())
}

fn find(name: &str) -> anyhow::Result<&'static Comparison> {
    let known = || COMPARISONS.iter().map(|comparison| comparison.name).collect::<Vec<_>>().join(", ");
    COMPARISONS
        .iter()
        .find(|comparison| comparison.name == name)
        .with_context(|| format!("there is no comparison '{name}': known are {}", known()))
}

fn l3_forward(setting: &Setting) -> anyhow::Result<Sides> {
    let capture = setting.directory.join("l3-forward.pcap");
    let routes = setting.directory.join("l3-forward.routes");
    traffic::write_capture(&capture)?;
    traffic::write_routes(&routes)?;
    let mut ours = Command::new(build_ours(&setting.target)?);
    ours.args(["bench", "l3-forward", "--serve", "--cpu", &setting.cpu.to_string(), "--pcap"]).arg(&capture);
    let pages = Pages::provide((dpdk::MEMORY + OUR_MEMORY) << 20);
    let (peer_name, peer) = match Dpdk::installed() {
        Some(dpdk) => {
            let peers = Dpdk::build_peers(&setting.root, &setting.target)?;
            let (name, command) = dpdk.l3_forward(&peers, &capture, &routes, setting.cpu, &pages)?;
            (name, Ok(command))
        }
        None => (
            "DPDK l3_forward".to_owned(),
            Err("libdpdk is not installed: `apt-get install libdpdk-dev dpdk-dev pkg-config`".to_owned()),
        ),
    };
    Ok(Sides { ours, peer_name, peer, pages })
}

/// Builds the `warmlane` command and says where it is.
fn build_ours(target: &Path) -> anyhow::Result<PathBuf> {
    let status =
        workspace::run_quietly(workspace::cargo().args(["build", "--release", "--package", "warmlane-cli"]))?;
    if !status.success() {
        bail!("warmlane does not build ({status}); what cargo said stands above");
    }
    Ok(target.join("release/warmlane"))
}

/// The cycles per packet of each side, and how often a round had to be repeated.
#[derive(Debug, Default)]
struct Rounds {
    ours: Vec<f64>,
    peer: Vec<f64>,
    /// Of pairs of rounds that don't count.
    disturbed: Vec<String>,
}

fn compare(
    comparison: &'static Comparison,
    sides: &Sides,
    cpu: usize,
    rounds: usize,
    length: Duration,
) -> anyhow::Result<Outcome> {
    let mut ours = Side::start("ours", &sides.ours, cpu)?;
    let mut peer = match &sides.peer {
        Ok(command) => Some(Side::start("the peer", command, cpu)?),
        Err(_) => None,
    };
    let measured = take_turns(&mut ours, peer.as_mut(), rounds, length)?;
    let void = sides.peer.as_ref().err().cloned();
    let void = void.or_else(|| sides.pages.unfair.clone()).or_else(|| why_void(&measured, rounds));
    outcome(comparison, sides.peer_name.clone(), &measured, void)
}

/// Measures one side after the other until there are enough pairs of undisturbed rounds, or as many disturbed ones.
fn take_turns(
    ours: &mut Side,
    mut peer: Option<&mut Side>,
    rounds: usize,
    length: Duration,
) -> anyhow::Result<Rounds> {
    let mut good = Rounds::default();
    let mut all = Rounds::default();
    while good.ours.len() < rounds && good.disturbed.len() < rounds {
        let our_round = ours.measure(length)?;
        let peer_round = peer.as_mut().map(|peer| peer.measure(length)).transpose()?;
        let cycles = peer_round.as_ref().map(|round| round.cycles_per_packet);
        let disturbed = our_round.disturbed.or(peer_round.and_then(|round| round.disturbed));
        all.ours.push(our_round.cycles_per_packet);
        all.peer.extend(cycles);
        if let Some(reason) = disturbed {
            good.disturbed.push(reason);
        } else {
            good.ours.push(our_round.cycles_per_packet);
            good.peer.extend(cycles);
        }
    }
    // Without enough good rounds there is no result, but figures that show what happened.
    Ok(if good.ours.len() < rounds { Rounds { disturbed: good.disturbed, ..all } } else { good })
}

fn why_void(measured: &Rounds, wanted: usize) -> Option<String> {
    let last = measured.disturbed.last().filter(|_| measured.disturbed.len() >= wanted);
    if let Some(reason) = last {
        return Some(format!(
            "{} rounds of {} were disturbed; in the last one, {reason}",
            measured.disturbed.len(),
            measured.ours.len()
        ));
    }
    statistics::unsteady("ours", &measured.ours).or_else(|| statistics::unsteady("the peer", &measured.peer))
}

fn outcome(
    comparison: &'static Comparison,
    peer_name: String,
    measured: &Rounds,
    void: Option<String>,
) -> anyhow::Result<Outcome> {
    let ours = Spread::of(&measured.ours).context("there was no round")?;
    let peer = Spread::of(&measured.peer);
    Ok(Outcome {
        name: comparison.name,
        unit: comparison.unit,
        ours,
        peer_name,
        peer,
        // Fewer cycles are better.
        ratio: peer.map(|peer| peer.median / ours.median),
        promise: comparison.promise,
        bound: comparison.bound,
        rounds: measured.ours.len(),
        void,
    })
}

fn table(outcome: &Outcome) -> String {
    let row = |who: &str, spread: Option<Spread>| {
        let figures = spread.map_or_else(
            || "not measured".to_owned(),
            |spread| format!("{:>9.1} {:>9.1} {:>9.1}", spread.min, spread.median, spread.max),
        );
        format!("  {who:<10} {figures}\n")
    };
    let verdict = match (&outcome.void, outcome.ratio) {
        (Some(reason), _) => format!("void: {reason}"),
        (None, Some(ratio)) if ratio >= outcome.promise => {
            format!("{ratio:.2} times better, promised {:.2}: kept", outcome.promise)
        }
        (None, Some(ratio)) => format!("{ratio:.2} times better, promised {:.2}: NOT kept", outcome.promise),
        (None, None) => "no ratio".to_owned(),
    };
    format!(
        "{} against {}, {} rounds\n  {:<10} {:>9} {:>9} {:>9}\n{}{}  {verdict}\n  bound: {}\n",
        outcome.name,
        outcome.peer_name,
        outcome.rounds,
        outcome.unit.split('/').next().unwrap_or(outcome.unit),
        "min",
        "median",
        "max",
        row("ours", Some(outcome.ours)),
        row("peer", outcome.peer),
        outcome.bound,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    static EXAMPLE: Comparison = Comparison {
        name: "example",
        unit: "cycles/packet",
        promise: 2.0,
        bound: "the speed of light",
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

    fn sides(peer: Result<Command, String>) -> Sides {
        let pages = Pages::provide(0);
        Sides { ours: program("200"), peer_name: "a peer".into(), peer, pages }
    }

    fn compared(peer: Result<Command, String>) -> Outcome {
        let cpu = affinity::allowed_cpus().unwrap()[0];
        // These programs answer at once, so hardly any time can be lost of what is allowed for a minute.
        compare(&EXAMPLE, &sides(peer), cpu, 9, Duration::from_secs(60)).unwrap()
    }

    #[test]
    fn the_object_has_the_promised_shape() {
        let outcome = compared(Ok(program("500")));
        assert_eq!(
            serde_json::to_string(&outcome).unwrap(),
            r#"{"name":"example","unit":"cycles/packet","ours":{"median":20.0,"min":20.0,"max":20.0},"peer_name":"a peer","peer":{"median":50.0,"min":50.0,"max":50.0},"ratio":2.5,"promise":2.0,"bound":"the speed of light","rounds":9,"void":null}"#
        );
    }

    #[test]
    fn a_missing_peer_makes_it_void() {
        let outcome = compared(Err("it is not installed".into()));
        let value: Value = serde_json::to_value(&outcome).unwrap();
        assert_eq!(value["void"], json!("it is not installed"));
        assert_eq!((&value["peer"], &value["ratio"]), (&Value::Null, &Value::Null));
        assert_eq!(value["ours"]["median"], json!(20.0));
    }

    #[test]
    fn void_says_why() {
        let void = |ours: &[f64], disturbed: usize| {
            let disturbed = vec!["a storm passed".to_owned(); disturbed];
            why_void(&Rounds { ours: ours.to_vec(), peer: vec![5.0; 9], disturbed }, 9)
        };
        assert_eq!(void(&[1.0; 9], 0), None);
        assert_eq!(void(&[1.0; 9], 8), None);
        let storm = void(&[1.0; 12], 9).unwrap();
        assert_eq!(storm, "9 rounds of 12 were disturbed; in the last one, a storm passed");
        let mut wide = [1.0; 9];
        wide[4] = 2.0;
        assert!(void(&wide, 0).unwrap().starts_with("ours varies from 1.0 to 2.0"));
    }

    #[test]
    fn unknown_names_are_told_what_is_known() {
        let error = find("warp-drive").err().unwrap().to_string();
        assert_eq!(error, "there is no comparison 'warp-drive': known are l3-forward");
        assert!(find("l3-forward").is_ok());
    }

    #[test]
    fn the_table_gives_the_verdict() {
        let spread = |median| Spread { median, min: median, max: median };
        let mut outcome = Outcome {
            name: "example",
            unit: "cycles/packet",
            ours: spread(20.0),
            peer_name: "a peer".into(),
            peer: Some(spread(50.0)),
            ratio: Some(2.5),
            promise: 2.0,
            bound: "the speed of light",
            rounds: 9,
            void: None,
        };
        assert!(table(&outcome).contains("2.50 times better, promised 2.00: kept"));
        outcome.ratio = Some(1.5);
        assert!(table(&outcome).contains("1.50 times better, promised 2.00: NOT kept"));
        outcome.void = Some("a storm passed".into());
        assert!(table(&outcome).contains("void: a storm passed"));
    }
}
