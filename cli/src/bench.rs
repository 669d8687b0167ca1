//! `warmlane bench`: pieces of the data path, measured.

use crate::measuring::{self, Defaults, Flags};
use anyhow::{Context as _, bail};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use warmlane::assembly::ports::{DriverSettings, Opener, PortSettings};
use warmlane::mem::BURST_CAPACITY;
use warmlane_lab::bench::{self, Bench, Summary};
use warmlane_lab::machine::Machine;
use warmlane_lab::setting::PortSource;
use warmlane_lab::table::{Columns, three_digits};

/// Measure pieces of the data path, in cycles per unit.
///
/// Each bench runs one round to warm up and then --rounds rounds that count; the table shows the fastest, the median and
/// the slowest. The fastest is what the code can do, the distance to the slowest is the machine's noise: if it is large,
/// `warmlane doctor` may say why. A round that lost time to other programs is repeated; if too many do, the result is void.
/// Cycles are those of the time-stamp counter, which runs at one rate whatever the clock does.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The benches to run, in this order; all of them if none is named (--list shows them).
    names: Vec<String>,
    /// List the benches and what they measure.
    #[arg(long, conflicts_with_all = ["names", "serve"])]
    list: bool,
    #[command(flatten)]
    flags: Flags,
    /// Packets per burst, 1 to 256, instead of the bench's own choice.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=BURST_CAPACITY as i64))]
    burst: Option<u16>,
    /// A capture file whose frames to use instead of generated ones; for benches that move frames.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// The port that port-send sends to and port-receive receives from, which waits for the other side if it is told to.
    #[arg(long, value_name = "DRIVER:KEY=VALUE,...")]
    port: Option<DriverSettings>,
    /// Bytes of each frame that port-send sends, without frame check sequence [default: 60].
    #[arg(long, value_name = "BYTES")]
    frame_bytes: Option<usize>,
    /// Flows in the table of exact, or routes in that of lpm4 or lpm6, evenly chosen [default: 1000000 flows, all routes].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1000..=10_000_000))]
    entries: Option<u32>,
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

const EXAMPLES: &str = "Examples:
  warmlane bench --list
  warmlane bench l3-forward pool-two-lanes
  warmlane bench ring-spsc --burst 8 --cpu 1 --second-cpu 0 --json
  warmlane bench replay-drop --pcap capture.pcap --rounds 31
  warmlane bench port-receive --port memif:/run/a.sock,role=server,wait=60";

const DEFAULTS: Defaults = Defaults { rounds: 15, seconds: 0.05 };

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
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
    let mut setting = arguments.flags.bind(DEFAULTS)?;
    setting.burst = arguments.burst.map(usize::from);
    if let Some(path) = &arguments.pcap {
        let frames =
            warmlane::drivers::pcap::load(path).with_context(|| format!("--pcap {}", path.display()))?;
        if frames.is_empty() {
            bail!("--pcap {}: the capture has no frames", path.display());
        }
        setting.frames = Some(Arc::new(frames));
    }
    setting.frame_bytes = arguments.frame_bytes;
    setting.entries = arguments.entries.map(|entries| entries as usize);
    setting.port = arguments.port.clone().map(|driver| {
        let port = PortSettings { name: "bench".to_owned(), driver };
        PortSource::new(move |pool| {
            // With what is behind it: the port's error says only which one it is.
            Opener::new(pool, 1).open(&port, None).map_err(|error| format!("{:#}", anyhow::Error::new(error)))
        })
    });
    let name = |bench: &Bench| format!("bench '{}'", bench.name);
    if arguments.serve {
        return benches[0].serve(&setting, std::io::stdin().lock(), output).with_context(|| name(benches[0]));
    }
    if let Some(pieces) = arguments.pieces {
        let units = benches[0].count(&setting, pieces).with_context(|| name(benches[0]))?;
        return Ok(writeln!(output, "{units}")?);
    }
    let table = table(&benches);
    if !arguments.json {
        writeln!(output, "{}\n{}", Machine::this(), table.line(&HEADS.map(str::to_owned)))?;
    }
    // Each line as soon as it is known: a bench may take a while to set up.
    for bench in benches {
        let summary = bench.run(&setting).with_context(|| name(bench))?;
        if arguments.json {
            writeln!(output, "{}", serde_json::to_string(&summary)?)?;
        } else {
            writeln!(output, "{}", table.line(&row(&summary, bench.unit)))?;
            if let Some(reason) = &summary.void {
                writeln!(output, "  void: {reason}")?;
            }
        }
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
    if !json {
        return Ok(measuring::list(bench::list()));
    }
    let line = |Bench { name, unit, sentence, .. }: &Bench| {
        let line = serde_json::json!({ "name": name, "unit": unit, "sentence": sentence });
        Ok(serde_json::to_string(&line)? + "\n")
    };
    bench::list().map(line).collect()
}

const HEADS: [&str; 6] = ["bench", "unit", "min", "median", "max", "per second"];

/// Names and units as wide as the longest; figures as wide as they become.
fn table(benches: &[&Bench]) -> Columns {
    let widest =
        |text: fn(&Bench) -> String| benches.iter().map(|bench| text(bench).len()).max().unwrap_or(0);
    let (name, unit) = (widest(|bench| bench.name.to_owned()), widest(|bench| unit(bench.unit)));
    Columns::new(vec![name.max(HEADS[0].len()), unit, 9, 9, 9, 12], |column| column < 2)
}

fn unit(unit: &str) -> String {
    format!("cycles/{unit}")
}

fn row(summary: &Summary, of: &str) -> [String; 6] {
    [
        summary.name.to_owned(),
        unit(of),
        three_digits(summary.minimum),
        three_digits(summary.median),
        three_digits(summary.maximum),
        rate(summary.per_second),
    ]
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
