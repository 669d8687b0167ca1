//! `warmlane lab memory-traffic`: how much memory traffic a downstream causes, predicted.

use crate::messages;
use anyhow::{Context as _, bail};
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use warmlane_lab::memory_traffic::forward_touches::{self, Forwarding};
use warmlane_lab::memory_traffic::machines::Model;
use warmlane_lab::memory_traffic::mix::Mix;
use warmlane_lab::memory_traffic::orders::Kind;
use warmlane_lab::memory_traffic::own_pools::{self, OwnPools};
use warmlane_lab::memory_traffic::parameters::Parameters;
use warmlane_lab::memory_traffic::peak::{self, Course};
use warmlane_lab::memory_traffic::pool_touches::{self, RecordedPools};
use warmlane_lab::memory_traffic::published::{INSTANCES, TESTS, Test};
use warmlane_lab::memory_traffic::question::{BUFFERS, Load, Question, pools};
use warmlane_lab::memory_traffic::result::Prediction;
use warmlane_lab::memory_traffic::touches::{LENGTHS, Touches};
use warmlane_lab::memory_traffic::{forward_workload, trace, workload};
use warmlane_lab::plot::PlotError;

/// Whose figures were published.
const PUBLISHED_MACHINE: &str = "xeon-gold-6148";

/// What a peak is shown for: DPDK's own pools aren't asked for one.
const PEAK_POOLS: [&str; 3] = ["ring", "stack", "depot"];
const PEAK_GBPS: f64 = 5.0;

/// Be the DOCSIS downstream, or the forwarder, whose accesses are recorded.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct WorkloadArguments {
    /// Bytes of a frame, with its CRC.
    #[arg(long, default_value_t = 64)]
    bytes: u32,
    /// Two lanes with a pool of this kind and nothing else.
    #[arg(long, requires = "magazine", conflicts_with_all = ["bytes", "crc", "forward"])]
    pool: Option<String>,
    /// The magazines of that pool.
    #[arg(long)]
    magazine: Option<u32>,
    /// Frames get a CRC.
    #[arg(long)]
    crc: bool,
    /// The forwarder.
    #[arg(long, conflicts_with = "crc")]
    forward: bool,
    /// Packets are IPv6.
    #[arg(long, requires = "forward")]
    ipv6: bool,
    /// Packets go to many routes.
    #[arg(long, requires = "forward")]
    many: bool,
}

pub(crate) fn run_workload(arguments: &WorkloadArguments) -> anyhow::Result<()> {
    let &WorkloadArguments { bytes, crc, forward, ipv6, many, .. } = arguments;
    if let Some((kind, magazine)) = arguments.pool.as_ref().zip(arguments.magazine) {
        return Ok(own_pools::run(kind, magazine, std::io::stdout())?);
    }
    if forward {
        return Ok(forward_workload::run(bytes, ipv6, many, std::io::stdout())?);
    }
    Ok(workload::run(bytes, crc, std::io::stdout())?)
}

/// Predict the memory traffic of DOCSIS downstreams for each kind of pool.
///
/// Replays which lines of memory the downstream touches, and in which order pools hand out their buffers, in a model of a machine's caches. On
/// the Xeon Gold 6148 it goes through the four tests of Intel's paper on ring and stack pools and holds each of its figures against the model's.
/// With --rate, or for another machine, it tells the traffic only.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Arguments {
    /// The machine: xeon-gold-6148, epyc-zen4, epyc-zen5, granite-rapids, `here`, or a file that ends with .toml.
    #[arg(long, value_name = "NAME|FILE", default_value = PUBLISHED_MACHINE)]
    machine: String,
    /// The pools to compare: a ring first, then a stack. `dpdk-ring` and `dpdk-stack` are DPDK's own (`make -C peers`). [default: DPDK's if they
    /// are built, else ours, and a depot].
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pools: Vec<String>,
    /// Buffers in the cache of a lane, for rings and depots; a stack has none.
    #[arg(long, value_name = "BUFFERS", default_value_t = 256)]
    lane_cache: u32,
    /// Buffers that a depot keeps going round [default: what the planner chooses for an instance's share of the caches].
    #[arg(long, value_name = "BUFFERS")]
    hot_set: Option<u32>,
    /// Gbit/s of each instance, instead of the published tests.
    #[arg(long, value_name = "GBIT/S")]
    rate: Option<f64>,
    /// The frames' lengths: cable, or 68, 932 and 1520 with weights, as in 68:1,1520:3; with --rate.
    #[arg(long, value_name = "SIZES", requires = "rate")]
    mix: Option<String>,
    /// Frames get a CRC; with --rate.
    #[arg(long, requires = "rate")]
    crc: bool,
    /// Instances side by side.
    #[arg(long, value_name = "COUNT", value_delimiter = ',', default_values_t = INSTANCES)]
    instances: Vec<usize>,
    /// Tests of the paper, 1 to 4.
    #[arg(long, value_name = "NUMBER", value_delimiter = ',', conflicts_with = "rate", value_parser = clap::value_parser!(u8).range(1..=4))]
    tests: Vec<u8>,
    /// Frames that each instance is counted for.
    #[arg(long, value_name = "COUNT", default_value_t = 2_048)]
    frames: usize,
    /// Times that this is done, each with other pages of memory; what is told is the average. --peak does it once.
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    placements: u64,
    /// Ways of the shared level that the instances have [default: 3 of 11, as fitted].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=64))]
    ways: Option<u32>,
    /// Buffers in the card's rings and between the lanes.
    #[arg(long, value_name = "COUNT", default_value_t = Parameters::FITTED.under_way)]
    under_way: usize,
    /// Lines of state that a frame writes and that no cache keeps.
    #[arg(long, value_name = "COUNT", default_value_t = Parameters::FITTED.cold_lines)]
    cold_lines: u64,
    /// Say what changes if each of the three parameters is a fifth smaller or larger: a table, in --json as `sensitivity`.
    #[arg(long, conflicts_with = "rate")]
    sensitivity: bool,
    /// Find the three parameters anew, by the first test alone.
    #[arg(long, conflicts_with_all = ["rate", "tests", "sensitivity"])]
    fit: bool,
    /// Show what a peak does, over time: 20,000 frames more wait between the lanes for a while. Of ring, stack and depot, at --rate or 5 Gbit/s.
    #[arg(long, conflicts_with_all = ["tests", "sensitivity", "fit"])]
    peak: bool,
    /// Draw the traffic into this file, as SVG.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print one JSON object, and nothing else.
    #[arg(long)]
    json: bool,
    /// Record anew which lines frames touch, by valgrind, and write that to this file.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Record anew which lines a forwarded packet touches, for `lab predict`, and write that to this file.
    #[arg(long, value_name = "FILE")]
    record_forward: Option<PathBuf>,
    /// Record anew what DPDK's pools touch of their own (`make -C peers`), and write that to this file.
    #[arg(long, value_name = "FILE")]
    record_pools: Option<PathBuf>,
    /// Record anew what lanes of our own pools take from each other, and write that to this file.
    #[arg(long, value_name = "FILE")]
    record_own_pools: Option<PathBuf>,
}

const EXAMPLES: &str = "Examples:
  warmlane lab memory-traffic
  warmlane lab memory-traffic --tests 1 --plot traffic.svg
  warmlane lab memory-traffic --peak --instances 1,12 --plot peak.svg
  warmlane lab memory-traffic --machine epyc-zen5 --rate 9 --crc --instances 8
  warmlane lab memory-traffic --machine here --rate 5 --mix 68:1,1520:3
  warmlane lab memory-traffic --sensitivity";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    if let Some(path) = &arguments.record {
        let text = record()?.to_text()?;
        return std::fs::write(path, text).with_context(|| format!("--record {}", path.display()));
    }
    if let Some(path) = &arguments.record_forward {
        return record_forward(path);
    }
    if let Some(path) = &arguments.record_pools {
        let pool = pool_touches::KINDS.map(|(kind, cache)| pool_touches::record(kind, cache));
        let text = RecordedPools { pool: pool.into_iter().collect::<Result<_, _>>()? }.to_text()?;
        return std::fs::write(path, text).with_context(|| format!("--record-pools {}", path.display()));
    }
    if let Some(path) = &arguments.record_own_pools {
        let text = record_own_pools()?.to_text()?;
        return std::fs::write(path, text).with_context(|| format!("--record-own-pools {}", path.display()));
    }
    let live = std::io::stderr().is_terminal();
    let progress = |step: &str| {
        if live {
            messages::raw(format_args!("\r\x1b[Kmemory-traffic: {step}"));
        }
    };
    let is_drawn = arguments.plot.is_some();
    let answer = if arguments.peak {
        peak(arguments, &progress).and_then(|course| Answer::of(&course, is_drawn.then(|| course.plot())))
    } else {
        predict(arguments, &progress).and_then(|found| Answer::of(&found, is_drawn.then(|| found.plot())))
    };
    if live {
        messages::raw("\r\x1b[K");
    }
    let Answer { text, json, picture } = answer?;
    if let (Some(path), Some(picture)) = (&arguments.plot, picture) {
        std::fs::write(path, picture).with_context(|| format!("--plot {}", path.display()))?;
    }
    if arguments.json {
        writeln!(output, "{json}")?;
    } else {
        write!(output, "{text}")?;
    }
    Ok(())
}

/// What was found out, in all forms.
struct Answer {
    text: String,
    json: String,
    picture: Option<String>,
}

impl Answer {
    fn of<T: serde::Serialize + std::fmt::Display>(
        found: &T,
        picture: Option<Result<String, PlotError>>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            text: found.to_string(),
            json: serde_json::to_string(found)?,
            picture: picture.transpose()?,
        })
    }
}

fn question(arguments: &Arguments, pools: Vec<(String, Kind)>) -> anyhow::Result<Question> {
    let Arguments { machine, ways, under_way, cold_lines, mix, .. } = arguments;
    let model = Model::find(machine)?;
    let ways = ways.unwrap_or(Parameters::FITTED.for_machine(&model).ways);
    let parameters = Parameters { ways, under_way: *under_way, cold_lines: *cold_lines };
    let mix = mix.as_deref().map_or(Ok(Mix::cable()), Mix::parse).context("--mix")?;
    let Arguments { frames, placements, .. } = *arguments;
    Ok(Question { model, pools, buffers: BUFFERS, frames, placements, mix, parameters })
}

fn loads(arguments: &Arguments, gbps: f64) -> Vec<Load> {
    let load = |&instances: &usize| Load { gbps, crc: arguments.crc, instances };
    arguments.instances.iter().map(load).collect()
}

fn peak(arguments: &Arguments, progress: &(dyn Fn(&str) + Sync)) -> anyhow::Result<Course> {
    let names =
        if arguments.pools.is_empty() { &PEAK_POOLS.map(str::to_owned)[..] } else { &arguments.pools };
    let question = question(arguments, pools(names, arguments.lane_cache, arguments.hot_set)?)?;
    let loads = loads(arguments, arguments.rate.unwrap_or(PEAK_GBPS));
    Ok(Course::of(&question, &loads, peak::FRAMES, &Touches::recorded()?, progress)?)
}

fn predict(arguments: &Arguments, progress: &(dyn Fn(&str) + Sync)) -> anyhow::Result<Prediction> {
    let Arguments { machine, rate, instances, .. } = arguments;
    if rate.is_none() && machine != PUBLISHED_MACHINE {
        bail!(
            "the published tests are those of {PUBLISHED_MACHINE}: for another machine give a rate, such as --rate 5"
        );
    }
    let mut question =
        question(arguments, pools(&arguments.pools, arguments.lane_cache, arguments.hot_set)?)?;
    let touches = Touches::recorded()?;
    if arguments.fit {
        question.parameters = question.fit(&touches, progress)?;
    }
    if let Some(gbps) = *rate {
        return Ok(Prediction::of_loads(&question, &loads(arguments, gbps), &touches, progress)?);
    }
    let is_wanted = |test: &Test| {
        arguments.tests.is_empty() || arguments.tests.iter().any(|number| usize::from(*number) == test.number)
    };
    let tests: Vec<_> = TESTS.into_iter().filter(is_wanted).collect();
    let mut prediction = Prediction::of_tests(&question, &tests, instances, &touches, progress)?;
    if arguments.sensitivity {
        prediction.add_sensitivity(&question, &tests, instances, &touches, progress)?;
    }
    Ok(prediction)
}

/// Records the frames' ways; the program that is watched is this one.
fn record() -> anyhow::Result<Touches> {
    let program = std::env::current_exe()?;
    let mut touches = Touches::default();
    for crc in [false, true] {
        for bytes in LENGTHS {
            let mut words = vec!["lab".to_owned(), "memory-workload".to_owned(), format!("--bytes={bytes}")];
            words.extend(crc.then(|| "--crc".to_owned()));
            touches.frame.push(trace::record(&program, &words)?.downstream(bytes, crc));
        }
    }
    Ok(touches)
}

/// The same of the forwarder's packets; what there is, is written each time, as one recording may take minutes.
fn record_forward(path: &Path) -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    let mut touches = Forwarding::default();
    for [ipv6, many] in [[false, false], [false, true], [true, false], [true, true]] {
        let mut words = vec!["lab".to_owned(), "memory-workload".to_owned(), "--forward".to_owned()];
        words.push(format!("--bytes={}", forward_touches::BYTES));
        words.extend(ipv6.then(|| "--ipv6".to_owned()));
        words.extend(many.then(|| "--many".to_owned()));
        touches.packet.push(trace::record(&program, &words)?.forwarded(forward_touches::BYTES, ipv6, many));
        std::fs::write(path, touches.to_text()?)
            .with_context(|| format!("--record-forward {}", path.display()))?;
    }
    Ok(())
}

/// What lanes of our pools take from each other.
fn record_own_pools() -> anyhow::Result<OwnPools> {
    let program = std::env::current_exe()?;
    let pool = own_pools::RECORDS.map(|(kind, magazine)| {
        let words = ["lab", "memory-workload", &format!("--pool={kind}"), &format!("--magazine={magazine}")];
        own_pools::record(&program, &words.map(str::to_owned), kind, magazine)
    });
    Ok(OwnPools { pool: pool.into_iter().collect::<Result<_, _>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::parse;

    fn error(line: &str) -> String {
        let arguments = parse(line).unwrap();
        format!("{:#}", predict(&arguments, &|_| ()).unwrap_err())
    }

    #[test]
    fn what_cannot_be_predicted_is_named() {
        assert!(error("t --machine epyc-zen4").contains("give a rate, such as --rate 5"));
        assert!(error("t --machine vax --rate 5").starts_with("no machine 'vax'"));
        assert!(error("t --pools ring,heap").contains("no pool 'heap': known are ring, stack, depot"));
        assert!(error("t --rate 0 --pools ring").contains("0 Gbit/s an instance"));
        let many = error("t --machine epyc-zen5 --rate 5 --pools ring --instances 9");
        assert!(many.contains("9 instances: epyc-zen5 has 8 cores"), "{many}");
        let mix = error("t --rate 5 --mix imix --pools ring");
        assert!(mix.starts_with("--mix: ") && mix.contains("frames 'imix' for a downstream"), "{mix}");
        assert!(error("t --pools ring,stack --instances 3").contains("1, 2, 4, 8 and 12 instances"));
        assert!(error("t --pools ring,stack --frames 3").contains("3 frames"));
        let arguments = parse("t --peak --instances 21").unwrap();
        let error = peak(&arguments, &|_| ()).unwrap_err().to_string();
        assert!(error.contains("21 instances: xeon-gold-6148 has 20 cores"), "{error}");
        for line in [
            "t --crc",
            "t --peak --tests 1",
            "t --rate 5 --tests 1",
            "t --tests 5",
            "t --rate 5 --sensitivity",
            "t --mix 68",
        ] {
            assert!(parse::<Arguments>(line).is_err(), "{line}");
        }
    }
}
