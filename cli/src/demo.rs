//! `warmlane demo`

use crate::assembly;
use crate::run::{self, RunFlags, Signals};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use warmlane::drivers::memory::{null, replay};
use warmlane::functions::forward::control::Config;
use warmlane::lane::IdlePolicy;
use warmlane::mem::Pool;
use warmlane::port::Port;
use warmlane_lab::traffic::{self, Mix};

/// Forward generated traffic through a full Internet routing table, in memory.
///
/// Two links, "west" and "east", bring frames of mixed lengths and families, some of them bad. They are checked,
/// routed by 901,899 IPv4 and 160,147 IPv6 prefixes, rewritten for the next hop and sent out of the other link, where
/// they are dropped. Needs no privilege, no huge pages and no network card.
#[derive(clap::Args, Debug, Default)]
pub(crate) struct Arguments {
    #[command(flatten)]
    run: RunFlags,
    /// How many lanes (pinned threads) to use.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    lanes: usize,
    /// Send only the shortest IPv4 frames, all of them good: the most packets a second.
    #[arg(long)]
    shortest: bool,
}

/// How long to run if nothing is said.
const DURATION: Duration = Duration::from_secs(10);
/// Frames that each link has; they go round.
const FRAMES: usize = 8_192;
/// Neighbours behind each link.
const NEIGHBOURS: usize = 16;

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let signals = Signals::catch()?;
    let lanes = arguments.lanes.max(1);
    eprintln!("warmlane demo: loading 901,899 IPv4 and 160,147 IPv6 prefixes");
    let config = Config::from_toml(&configuration(lanes))?;
    let pool = Pool::new(&config.pool.pool_config("packets"))?;
    let ports = ["west", "east"]
        .into_iter()
        .enumerate()
        .map(|(number, name)| link(name, number as u16, lanes, arguments.shortest, &pool))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let assembly = assembly::start(config, pool, ports, IdlePolicy::Spin)?;
    let flags = RunFlags { duration: arguments.run.duration.or(Some(DURATION)), ..arguments.run.clone() };
    eprintln!("forwarding for {:?}; Ctrl-C ends it earlier", flags.duration.unwrap_or(DURATION));
    run::to_the_end(assembly, &flags, &signals)
}

/// The routes of the table are spread over the neighbours of both links.
fn configuration(lanes: usize) -> String {
    let mut text = format!("lanes = {lanes}\n");
    let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
    let mut neighbours = String::new();
    for (link, name) in ["west", "east"].into_iter().enumerate() {
        for host in 2..2 + NEIGHBOURS {
            let addresses = [format!("10.0.{link}.{host}"), format!("fd00:{link}::{host}")];
            for address in &addresses {
                let mac = format!("02:00:00:00:{link:02x}:{host:02x}");
                // Writing to a string cannot fail.
                let _ = writeln!(
                    neighbours,
                    "[[neighbour]]\naddress = \"{address}\"\nmac = \"{mac}\"\nport = \"{name}\""
                );
            }
            let [four, six] = addresses;
            ipv4.push(four);
            ipv6.push(six);
        }
    }
    let _ = writeln!(text, "[full_table]\nipv4 = {ipv4:?}\nipv6 = {ipv6:?}");
    for (link, name) in ["west", "east"].into_iter().enumerate() {
        let _ = writeln!(
            text,
            "[[port]]\nname = \"{name}\"\ndriver = \"memory\"\nmac = \"02:00:00:00:00:01\"\naddresses = [\"10.0.{link}.1/24\", \"fd00:{link}::1/64\"]"
        );
    }
    text + &neighbours
}

/// A link that brings generated frames and swallows what is sent to it.
fn link(name: &str, number: u16, lanes: usize, shortest: bool, pool: &Pool) -> anyhow::Result<Port> {
    let mix = if shortest { Mix::shortest(FRAMES) } else { Mix::internet(FRAMES) };
    let frames = traffic::generate(&Mix { seed: u64::from(number) + 1, ..mix })?;
    let config = replay::ReplayConfig { rounds: None, queues: lanes };
    let source = replay::open(name, &Arc::new(frames), pool, config)?;
    Ok(Port { transmit: null::sink(name, lanes).transmit, driver: "memory", ..source })
}
