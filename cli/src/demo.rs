//! `warmlane demo`

use crate::control_socket::ControlSocketFlags;
use crate::messages;
use crate::run::{self, RunFlags};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use warmlane::assembly::{Assembly, LaneSettings, Signals};
use warmlane::drivers::memory::{null, replay};
use warmlane::functions::forward::control::Config;
use warmlane::functions::forward::control::config::{
    DEFAULT_MTU, InterfaceAddress, NeighbourConfig, PortConfig,
};
use warmlane::lane::IdlePolicy;
use warmlane::mem::Pool;
use warmlane::port::Port;
use warmlane::wire::MacAddress;
use warmlane_lab::traffic::{self, Mix};

/// Forward generated traffic through a full Internet routing table, in memory.
///
/// Two links, "west" and "east", bring frames of mixed lengths and families, some of them bad. They are checked,
/// routed by 901,899 IPv4 and 160,147 IPv6 prefixes, rewritten for the next hop and sent out of the other link, where
/// they are dropped. Needs no privilege, no huge pages and no network card.
#[derive(clap::Args, Debug, Default)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    run: RunFlags,
    /// How many lanes (pinned threads) to use.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    lanes: usize,
    /// Send only the shortest IPv4 frames, all of them good: the most packets a second.
    #[arg(long)]
    shortest: bool,
    #[command(flatten)]
    control: ControlSocketFlags,
}

const EXAMPLES: &str = "\
Examples:
  Run for ten minutes, and look into it from another terminal:
    warmlane demo --duration 600
    warmlane top
    warmlane trace --count 5

  As many packets a second as two lanes forward, as one JSON object:
    warmlane demo --shortest --lanes 2 --json";

/// How long to run if nothing is said.
const DURATION: Duration = Duration::from_secs(10);
/// Frames that each link has; they go round.
const FRAMES: usize = 8_192;
/// Neighbours behind each link.
const NEIGHBOURS: u8 = 16;

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let signals = Signals::catch()?;
    let socket = arguments.control.open("demo")?;
    let lanes = arguments.lanes.max(1);
    messages::line("warmlane demo: loading 901,899 IPv4 and 160,147 IPv6 prefixes");
    let config = configuration(lanes);
    let pool = Pool::new(&config.pool.pool_config("packets"))?;
    let ports = ["west", "east"]
        .into_iter()
        .enumerate()
        .map(|(number, name)| link(name, number as u16, lanes, arguments.shortest, &pool))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let settings = LaneSettings { lanes, idle: IdlePolicy::Spin, ..LaneSettings::default() };
    let assembly = Assembly::forward(config, pool, ports, &settings)?;
    let _service = socket.serve_assembly(&assembly)?;
    run::print_notes(&assembly);
    let flags = RunFlags { duration: arguments.run.duration.or(Some(DURATION)), ..arguments.run.clone() };
    messages::line(format_args!(
        "forwarding for {:?}; Ctrl-C ends it earlier",
        flags.duration.unwrap_or(DURATION)
    ));
    run::to_the_end(assembly, &flags, &signals)
}

/// Two links; the routes of the table are spread over the neighbours of both.
fn configuration(lanes: usize) -> Config {
    let mut config = Config { lanes, ..Config::default() };
    for (port, name) in ["west", "east"].into_iter().enumerate() {
        let link = port as u16;
        let ipv4 = |host| IpAddr::from(Ipv4Addr::new(10, 0, port as u8, host));
        let ipv6 = |host: u8| IpAddr::from(Ipv6Addr::new(0xfd00, link, 0, 0, 0, 0, 0, host.into()));
        let addresses = [(ipv4(1), 24), (ipv6(1), 64)];
        config.ports.push(PortConfig {
            name: name.to_owned(),
            addresses: addresses.map(|(address, length)| InterfaceAddress { address, length }).to_vec(),
            mtu: DEFAULT_MTU,
            mac: Some(MacAddress([2, 0, 0, 0, 0, 1])),
            gro: false,
            rss: None,
            rules: Vec::new(),
        });
        for host in 2..2 + NEIGHBOURS {
            let mac = MacAddress([2, 0, 0, 0, port as u8, host]);
            for (address, spread) in
                [(ipv4(host), &mut config.full_table.ipv4), (ipv6(host), &mut config.full_table.ipv6)]
            {
                spread.push(config.neighbours.len());
                config.neighbours.push(NeighbourConfig { address, mac, port, vlan: None });
            }
        }
    }
    config
}

/// A link that brings generated frames and swallows what is sent to it.
fn link(name: &str, number: u16, lanes: usize, shortest: bool, pool: &Pool) -> anyhow::Result<Port> {
    let mix = if shortest { Mix::shortest(FRAMES) } else { Mix::internet(FRAMES) };
    let frames = traffic::generate(&Mix { seed: u64::from(number) + 1, ..mix })?;
    let config = replay::ReplayConfig { rounds: None, queues: lanes };
    let source = replay::open(name, &Arc::new(frames), pool, config)?;
    Ok(Port { transmit: null::sink(name, lanes).transmit, driver: "memory", ..source })
}
