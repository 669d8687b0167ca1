//! `warmlane bench`: pieces of the data path, measured.

use crate::{cpus, drivers};
use anyhow::{Context as _, bail};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use warmlane::mem::BURST_CAPACITY;
use warmlane_lab::bench::{self, Bench, Machine, Options, Summary};
use warmlane_lab::experiment::three_digits;

/// Measure pieces of the data path, in cycles per unit.
///
/// Each bench runs one round to warm up and then --rounds rounds; the table shows the fastest, the middle and the
/// slowest. The fastest is what the code can do, the distance to the slowest is the machine's noise: if it is large,
/// `warmlane doctor` may say why. Cycles are those of the time-stamp counter, which runs at one rate whatever the
/// clock does.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The benches to run, in this order; all of them if none is named (--list shows them).
    names: Vec<String>,
    /// List the benches and what they measure.
    #[arg(long, conflicts_with_all = ["names", "serve"])]
    list: bool,
    /// How many rounds count.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// How long a round takes, in seconds.
    #[arg(long, value_name = "S", default_value_t = 0.05, value_parser = seconds)]
    seconds: f64,
    /// Packets per burst, 1 to 256, instead of the bench's own choice.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=BURST_CAPACITY as i64))]
    burst: Option<u16>,
    /// A capture file whose frames to use instead of generated ones; for benches that move frames.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// The CPU to run on; the last one that this process may use if not given (the first serves most interrupts).
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// The CPU of the second lane, for benches of two; the first other one that this process may use if not given.
    #[arg(long, value_name = "N")]
    second_cpu: Option<usize>,
    /// Do N pieces of work of one bench without looking at a clock, and print how many units they were: for tools that
    /// count instructions, such as `valgrind --tool=callgrind --toggle-collect='*Measure>::work*'`.
    #[arg(long, value_name = "N", conflicts_with_all = ["serve", "json", "list"], value_parser = clap::value_parser!(u64).range(1..))]
    pieces: Option<u64>,
    /// Print one JSON object a line for each bench, with the machine it ran on, and nothing else.
    #[arg(long, conflicts_with = "serve")]
    json: bool,
    /// Run rounds of one bench on request: prints "ready", then for each line "go SECONDS" on standard input one
    /// round as a line of JSON. So another program can alternate between this bench and a peer.
    #[arg(long)]
    serve: bool,
}

/// The longest round that makes sense; a day would be a mistyped number.
const LONGEST_SECONDS: f64 = 3_600.0;

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds <= LONGEST_SECONDS).ok_or_else(|| {
        format!("a round takes more than 0 and at most {LONGEST_SECONDS} seconds, such as 0.05")
    })
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    if arguments.list {
        return Ok(output.write_all(list(arguments.json)?.as_bytes())?);
    }
    let benches = chosen(&arguments.names)?;
    if (arguments.serve || arguments.pieces.is_some()) && benches.len() != 1 {
        bail!(
            "--serve and --pieces run one bench: name one, such as `warmlane bench --serve l3-forward`; --list shows them"
        );
    }
    let (_, second_cpu) = cpus::bind(arguments.cpu, arguments.second_cpu)?;
    let frames = match &arguments.pcap {
        Some(path) => {
            let frames = drivers::load(path).with_context(|| format!("--pcap {}", path.display()))?;
            if frames.is_empty() {
                bail!("--pcap {}: the capture has no frames", path.display());
            }
            Some(Arc::new(frames))
        }
        None => None,
    };
    let options =
        Options { pcap: arguments.pcap, frames, burst: arguments.burst.map(usize::from), second_cpu };
    if arguments.serve {
        return Ok(benches[0].serve(&options, std::io::stdin().lock(), output)?);
    }
    if let Some(pieces) = arguments.pieces {
        return Ok(writeln!(output, "{}", benches[0].count(&options, pieces)?)?);
    }
    let length = Duration::from_secs_f64(arguments.seconds);
    if !arguments.json {
        writeln!(output, "{}\n{}", Machine::this(), header())?;
    }
    // Each line as soon as it is known: a bench may take a while to set up.
    for bench in benches {
        let summary = bench.run(&options, arguments.rounds as usize, length)?;
        let line = if arguments.json { serde_json::to_string(&summary)? } else { row(&summary, bench.unit) };
        writeln!(output, "{line}")?;
        output.flush()?;
    }
    Ok(())
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Bench>> {
    if names.is_empty() {
        return Ok(bench::list().collect());
    }
    names.iter().map(|name| Ok(bench::find(name)?)).collect()
}

fn list(json: bool) -> anyhow::Result<String> {
    let mut text = String::new();
    let width = bench::list().map(|bench| bench.name.len()).max().unwrap_or(0);
    for bench in bench::list() {
        if json {
            let (name, unit, sentence) = (bench.name, bench.unit, bench.sentence);
            let line = serde_json::json!({ "name": name, "unit": unit, "sentence": sentence });
            writeln!(text, "{line}")?;
        } else {
            writeln!(text, "{:<width$}  {}; cycles per {}", bench.name, bench.sentence, bench.unit)?;
        }
    }
    Ok(text)
}

fn header() -> String {
    format!("{:<24} {:<22} {:>9} {:>9} {:>9} {:>12}", "bench", "unit", "min", "median", "max", "per second")
}

fn row(summary: &Summary, unit: &str) -> String {
    format!(
        "{:<24} {:<22} {:>9} {:>9} {:>9} {:>12}",
        summary.name,
        format!("cycles/{unit}"),
        three_digits(summary.minimum),
        three_digits(summary.median),
        three_digits(summary.maximum),
        rate(summary.per_second),
    )
}

fn rate(per_second: f64) -> String {
    let steps = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let step = steps.iter().find(|(size, _)| per_second >= *size);
    step.map_or_else(
        || three_digits(per_second),
        |(size, letter)| format!("{} {letter}", three_digits(per_second / size)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits_and_a_letter() {
        assert_eq!([120.0, 59e6, 2.6e9].map(rate), ["120", "59.0 M", "2.60 G"]);
    }

    #[test]
    fn lengths_of_rounds() {
        assert_eq!(seconds("0.05"), Ok(0.05));
        for bad in ["0", "-1", "nan", "inf", "1e9", "x"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn benches_are_chosen_by_name() {
        assert_eq!(chosen(&[]).unwrap().len(), bench::list().count());
        let names = ["replay-drop".to_owned(), "pool-one-lane".to_owned()];
        let order: Vec<_> = chosen(&names).unwrap().iter().map(|bench| bench.name).collect();
        assert_eq!(order, ["replay-drop", "pool-one-lane"]);
        let error = chosen(&["nonsense".to_owned()]).err().unwrap().to_string();
        assert!(error.contains("'nonsense'") && error.contains("replay-drop"), "{error}");
    }

    #[test]
    fn the_list_is_readable_by_people_and_programs() {
        assert!(list(false).unwrap().lines().any(|line| line.starts_with("pool-one-lane ")));
        for line in list(true).unwrap().lines() {
            let bench: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(bench["name"].is_string() && bench["unit"].is_string());
        }
    }
}
