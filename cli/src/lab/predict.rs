//! `warmlane lab predict`: what a configuration will ask of caches and memory.

mod read;

use crate::docsis::PoolSetting;
use anyhow::{Context as _, ensure};
use std::io::Write as _;
use std::path::PathBuf;
use warmlane_lab::memory_traffic::machines::Model;
use warmlane_lab::predict::{Asked, Forecast, Function, Load};

/// Predict what a configuration will ask of a machine's caches and memory, and what would change that.
///
/// Reads a file of `warmlane forward`, `router` or `docsis`, and replays its packets in a model of the machine's caches: which level
/// buffers, rings and tables live in, what a packet misses, how much memory is read and written at a rate, and advice that was
/// tried in the model. Opens no port and needs no privilege. How it works, and what it takes for granted: docs/memory-traffic.md.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The configuration: what --config of `warmlane forward`, `router` or `docsis` takes.
    config: PathBuf,
    /// The machine: xeon-gold-6148, epyc-zen4, epyc-zen5, granite-rapids, `here`, or a file that ends with .toml.
    #[arg(long, value_name = "NAME|FILE", default_value = "here")]
    machine: String,
    /// What comes by all ports: Gbit/s of frames as a number, or with a unit, as in 2.5Mpps.
    #[arg(long, value_name = "RATE", default_value = "10")]
    rate: String,
    /// The frames' size in bytes, or a mix as for `warmlane gen` [default: imix; cable for a downstream].
    #[arg(long, value_name = "SIZES")]
    frames: Option<String>,
    /// How many such run side by side, each at that rate.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    instances: u16,
    /// Entries of the rings of a router's or a downstream's interfaces, whose files don't say it [default: as the router chooses].
    #[arg(long, value_name = "ENTRIES", value_parser = clap::value_parser!(u32).range(64..=32_768))]
    ring: Option<u32>,
    /// The kind of pool of a downstream, whose file doesn't say it [default: depot].
    #[arg(long, value_enum)]
    pool: Option<PoolSetting>,
    /// A router has the full Internet table; without this, a default route.
    #[arg(long)]
    full_table: bool,
    /// Print one JSON object, and nothing else.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  warmlane lab predict forward.toml
  warmlane lab predict forward.toml --rate 14.88Mpps --frames 64
  warmlane lab predict router.toml --full-table --machine epyc-zen5
  warmlane lab predict group.toml --rate 5 --instances 8 \\
    --machine xeon-gold-6148 --json";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let forecast = forecast(arguments)?;
    let mut output = std::io::stdout().lock();
    if arguments.json {
        writeln!(output, "{}", serde_json::to_string(&forecast)?)?;
    } else {
        write!(output, "{forecast}")?;
    }
    Ok(())
}

fn forecast(arguments: &Arguments) -> anyhow::Result<Forecast> {
    let model = Model::find(&arguments.machine)?;
    let text = std::fs::read_to_string(&arguments.config)
        .with_context(|| format!("cannot read {}", arguments.config.display()))?;
    let Arguments { ring, full_table, pool, .. } = *arguments;
    let unsaid = read::Unsaid { ring, full_table, pool: pool.unwrap_or_default().kind() };
    let mut configuration = read::configuration(&arguments.config, &text, unsaid)?;
    ensure!(
        configuration.function == Function::Router || !arguments.full_table,
        "--full-table is for a router, which has the kernel's routes: {} says its own",
        arguments.config.display()
    );
    ensure!(
        configuration.function == Function::Docsis || pool.is_none(),
        "--pool is for a downstream: {} says its own pool, or has a depot",
        arguments.config.display()
    );
    configuration.instances = usize::from(arguments.instances);
    let usual = if configuration.function == Function::Docsis { "cable" } else { "imix" };
    let frames = arguments.frames.as_deref().unwrap_or(usual);
    let load = Load::new(&arguments.rate, frames, configuration.ports.len())
        .with_context(|| format!("--rate {} --frames {frames}", arguments.rate))?;
    Ok(Forecast::of(&Asked::new(model, load)?, &configuration)?)
}
