//! `warmlane router`

mod ask;
mod punt;
mod reload;
mod settings;

use crate::assembly::{self, Assembly};
use crate::run::{self, RunFlags, Signals};
use anyhow::bail;
use settings::Mode;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use warmlane::drivers::xdp::{self, Steering, Umem, XdpConfig, XdpMode, XdpPort};
use warmlane::functions::forward::ForwardTask;
use warmlane::functions::forward::datapath::Forwarder;
use warmlane::functions::router::control::{Follower, Host as _, Server};
use warmlane::lane::{IdlePolicy, LaneConfig, Lanes, place};
use warmlane::mem::{Pool, PoolConfig};
use warmlane::port::Port;

/// Take over forwarding from the kernel, by the kernel's own routes.
///
/// Packets between the given interfaces are forwarded by warm lanes. The kernel stays the control plane: addresses, routes,
/// neighbours, VLANs and VRFs are its own and are followed as they change, so FRR, BIRD and `ip route` work as before, and
/// everything that is for the box itself goes on: SSH, ping, ARP, neighbour discovery, BGP, OSPF. No driver is changed.
/// When this ends, however it does, the kernel forwards again.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    question: Option<ask::Question>,
    /// Where a running router is asked: a Unix socket that only its owner can open.
    #[arg(long, value_name = "PATH", global = true, default_value = "/run/warmlane/router.sock")]
    socket: PathBuf,
    /// A TOML file with `interfaces`, `lanes`, `mode`, `buffers`, `icmp-rate`, `urpf`,
    /// `spin`, `busy-poll`, `pass-expiring`; flags count more. It is read
    /// again on SIGHUP and by `warmlane router reload`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: settings::Settings,
    #[command(flatten)]
    run: RunFlags,
}

const EXAMPLES: &str = "\
Examples:
  Forward between two interfaces (as root), by the kernel's routes, until Ctrl-C:
    warmlane router eth0 eth1

  Ask a running router:
    warmlane router status
    warmlane router routes 203.0.113.7
    warmlane router verify

  Drop packets whose sources are not reached by the interface that they come in by (RFC 3704), but on eth1 only those that
  are not reached at all:
    warmlane router eth0 eth1 --urpf strict --urpf eth1=loose

  See what it follows:
    ip route; ip neighbour; birdc show protocols; vtysh -c 'show bgp summary'";

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.question {
        Some(question) => ask::run(question, &arguments.socket, arguments.run.json),
        None => route(arguments),
    }
}

fn route(arguments: &Arguments) -> anyhow::Result<()> {
    let asked = arguments.settings.with_file(arguments.config.as_deref())?;
    let lane_count = asked.lane_count();
    let settings = asked.changeable()?;
    let signals = Signals::catch()?;
    if arguments.config.is_some() {
        signals.catch_reload()?;
    }
    let port = |name: &String| XdpConfig {
        interface: name.clone(),
        queues: u32::try_from(lane_count).unwrap_or(u32::MAX),
        pass_expiring: asked.pass_expiring,
        busy_poll: asked.busy_poll,
        mode: match asked.mode.unwrap_or_default() {
            Mode::Best => XdpMode::Best,
            Mode::ZeroCopy => XdpMode::ZeroCopy,
            Mode::Copy => XdpMode::Copy,
            Mode::Generic => XdpMode::Generic,
        },
        steering: Steering::Router,
        ..XdpConfig::default()
    };
    let configs: Vec<XdpConfig> = asked.interfaces.iter().map(port).collect();
    for (number, config) in configs.iter().enumerate() {
        if configs[..number].contains(config) {
            bail!("interface '{}' is there twice: name each once", config.interface);
        }
        xdp::check(config)?;
    }
    check_forwarding()?;

    let cpus = place(lane_count)?;
    let mut pool = PoolConfig { name: "packets".to_owned(), ..PoolConfig::default() };
    pool.buffers = asked.buffers.unwrap_or(pool.buffers);
    let pool = Pool::new(&pool)?;
    if let Some(fallback) = pool.fallback() {
        eprintln!("note: packet memory: {fallback}");
    }
    let mut follower = Follower::start(&asked.interfaces, lane_count, hash_seed(), &settings)?;
    reload::check_names(&follower, &settings)?;
    let mut server = Server::new(&arguments.socket)?;
    let punts = punt::open(configs.len(), lane_count, &pool)?;
    let (ipv4, ipv6) = follower.fib().route_counts();
    eprintln!("note: {ipv4} IPv4 and {ipv6} IPv6 routes taken over from the kernel");

    // The tables are full: from here on packets come.
    let umem = Umem::new(&pool)?;
    let ports: Vec<XdpPort> =
        configs.iter().map(|config| Ok(xdp::open(config, &umem)?)).collect::<anyhow::Result<_>>()?;
    let punt_views = punts.iter().map(punt::PuntInterface::view).collect();
    let (punts, _reentries) = punt::connect(punts, &ports, lane_count);
    let ports: Vec<Port> = ports.into_iter().map(|port| port.port).collect();
    for port in &ports {
        for note in &port.capabilities.notes {
            eprintln!("note: interface '{}': {note}", port.name);
        }
    }
    let views = ports.iter().map(assembly::view).collect();
    let shares = assembly::share_out(ports, lane_count)?;
    let mut lanes = Lanes::new();
    let (mut forwarders, mut notes) = (Vec::new(), Vec::new());
    let idle = if asked.spin { IdlePolicy::Spin } else { IdlePolicy::Ramp };
    for (number, ((share, cpu), punts)) in shares.into_iter().zip(cpus).zip(punts).enumerate() {
        let name = format!("lane{number}");
        let (routes, exceptions) = follower.lane(&name, punts)?;
        let forwarder = Forwarder::new(routes, pool.clone(), settings.icmp);
        forwarders.push(Arc::clone(forwarder.counters()));
        let task = ForwardTask::with_exceptions(forwarder, share, BURST, exceptions);
        notes.push(Arc::clone(task.notes()));
        lanes.spawn(LaneConfig { name, cpu: Some(cpu), idle, pools: vec![pool.clone()] }, task)?;
    }
    let assembly = Assembly { pool, ports: views, punts: punt_views, forwarders, notes, lanes };
    eprintln!("note: forwarding between {}", asked.interfaces.join(", "));
    for warning in follower.warnings() {
        eprintln!("note: {warning}");
    }
    let mut running = reload::Running { arguments, now: asked, begin: Instant::now() };
    run::to_the_end_with(assembly, &arguments.run, &signals, |assembly, patience| {
        follower.turn(patience, &server.descriptors());
        let mut host = running.with(assembly);
        if signals.take_reload() {
            match host.reload(&mut follower) {
                Ok(changed) if changed.is_empty() => eprintln!("note: read again, nothing is different"),
                Ok(changed) => changed.iter().for_each(|change| eprintln!("note: read again, {change}")),
                Err(sentence) => eprintln!("warmlane: {sentence}"),
            }
        }
        server.serve(&mut follower, &mut host);
        for remark in follower.take_remarks() {
            eprintln!("warmlane: {remark}");
        }
    })
}

/// Packets that a lane gathers at once.
const BURST: usize = 64;

/// Flows are spread differently by each router, or routers in a row would all choose alike.
fn hash_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 ^ (u64::from(std::process::id()) << 32)
}

/// The kernel must be a router, or nothing would be forwarded when Warmlane ends.
fn check_forwarding() -> anyhow::Result<()> {
    let is_on = |path: &str| fs::read_to_string(path).is_ok_and(|text| text.trim() == "1");
    let ipv4 = is_on("/proc/sys/net/ipv4/ip_forward");
    let ipv6 = is_on("/proc/sys/net/ipv6/conf/all/forwarding");
    if !ipv4 && !ipv6 {
        bail!(
            "the kernel here is no router, so there is nothing to take over: `sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1`"
        );
    }
    Ok(())
}
