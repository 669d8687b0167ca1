//! Opens the ports of a generator.

use super::Arguments;
use crate::drivers;
use crate::flags;
use anyhow::{Context as _, bail};
use warmlane::drivers::memory::ring_pair;
use warmlane::functions::forward::control::config::PortConfig;
use warmlane::functions::generator::control::Rate;
use warmlane::functions::generator::datapath::Plan;
use warmlane::lane::place;
use warmlane::mem::{LINE_BYTES, Pool, PoolConfig};
use warmlane::port::{Port, ReceiveQueue, TransmitQueue, rate_limit};
use warmlane::sys::affinity;

/// What a tester is started with.
pub(super) struct Ports {
    pub(super) transmit: Box<dyn TransmitQueue>,
    pub(super) receive: Vec<Box<dyn ReceiveQueue>>,
    pub(super) pool: Pool,
    pub(super) cpus: Vec<usize>,
}

/// Opens what the flags name, and a pool whose buffers hold the plan's frames.
pub(super) fn open(arguments: &Arguments, plan: &Plan) -> anyhow::Result<Ports> {
    let pool = pool(plan)?;
    if let Some(options) = arguments.both.as_deref().and_then(loop_options) {
        return open_loop(options, pool);
    }
    let transmit = arguments.both.as_ref().or(arguments.transmit.as_ref());
    let mut transmit = config("transmit", transmit.context("no port to send to: name one with --transmit")?)?;
    if arguments.transmit.is_some() && transmit.driver == "xdp" {
        transmit.options.entry("ring").or_insert_with(|| XDP_RING.into());
    }
    let receive = arguments.receive.as_ref().map(|text| config("receive", text)).transpose()?;
    let configs: Vec<PortConfig> = std::iter::once(transmit.clone()).chain(receive.clone()).collect();
    drivers::check_captures(&configs)?;
    let mut opener = drivers::Opener::new(&pool, 1);
    let mut sender = opener.open(&transmit)?;
    tell(&sender);
    if let Some(maximum) = usize::try_from(sender.capabilities.maximum_frame).ok()
        && maximum < plan.longest()
    {
        bail!(
            "frames of {} bytes (without frame check sequence) are too long for port '{}', which sends up to {maximum}: send smaller ones, or raise its MTU",
            plan.longest(),
            transmit.driver
        );
    }
    if sender.transmit.is_empty() {
        bail!("port '{}' can't send: name another with --transmit", transmit.driver);
    }
    let receivers = match receive {
        Some(config) => {
            let port = opener.open(&config)?;
            tell(&port);
            if port.receive.is_empty() {
                bail!("port '{}' can't receive: name another with --receive", config.driver);
            }
            port.receive
        }
        None if arguments.both.is_some() => std::mem::take(&mut sender.receive),
        None => Vec::new(),
    };
    let cpus = cpus(if receivers.is_empty() { 1 } else { 2 })?;
    Ok(Ports { transmit: sender.transmit.swap_remove(0), receive: receivers, pool, cpus })
}

/// Packets that an XDP port that only sends gives to the kernel at once: those that wait in a longer ring leave the caches
/// before they are sent.
const XDP_RING: i64 = 256;

/// What follows `loop:`, if that is the port.
fn loop_options(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("loop")?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix(':') }
}

/// Packets that the cable in memory holds: more than fall due while the receiving lane is held up for a moment.
pub(super) const CABLE: usize = 8_192;

/// A cable in memory, from us to us: `rate=2Mpps` makes it a device of known capacity, which drops what comes faster, but
/// for `buffer` packets.
fn open_loop(options: &str, pool: Pool) -> anyhow::Result<Ports> {
    let (mut rate, mut buffer) = (None, 64);
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("rate", text)) => match text.parse().context("port 'loop', rate")? {
                Rate::Packets(packets) => rate = Some(packets),
                _ => bail!("port 'loop': rate '{text}' is not in packets a second, as in 2Mpps"),
            },
            Some(("buffer", text)) => {
                buffer = text.parse().ok().filter(|packets| *packets > 0).with_context(|| {
                    format!("port 'loop': buffer '{text}' is no number of packets from 1 on")
                })?;
            }
            _ => bail!("port 'loop': '{option}' is unknown: expected rate=2Mpps or buffer=64"),
        }
    }
    let [mut sender, mut receiver] = ring_pair::open(["sender", "receiver"], CABLE)?;
    let receive = std::mem::take(&mut receiver.receive);
    let receive = match rate {
        Some(rate) => receive.into_iter().map(|queue| rate_limit::wrap(queue, rate, buffer)).collect(),
        None => receive,
    };
    Ok(Ports { transmit: sender.transmit.swap_remove(0), receive, pool, cpus: cpus(2)? })
}

/// A pool whose buffers hold the plan's frames, whole lines of them.
pub(super) fn pool(plan: &Plan) -> anyhow::Result<Pool> {
    let default = PoolConfig::default();
    let room = plan.longest().next_multiple_of(LINE_BYTES).max(default.room);
    let pool = Pool::new(&PoolConfig { room, ..default })?;
    if let Some(fallback) = pool.fallback() {
        eprintln!("note: packet memory: {fallback}");
    }
    Ok(pool)
}

/// As many CPUs as there are, up to `wanted`.
pub(super) fn cpus(wanted: usize) -> anyhow::Result<Vec<usize>> {
    let available = affinity::allowed_cpus()?.len();
    Ok(place(wanted.min(available))?)
}

fn config(name: &str, text: &str) -> anyhow::Result<PortConfig> {
    let table = flags::port(&format!("{name}={text}"))
        .with_context(|| format!("--{name} '{text}' is not of the form DRIVER or DRIVER:KEY=VALUE,..."))?;
    let text_of = |key: &str| table.get(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    Ok(PortConfig {
        name: text_of("name"),
        driver: text_of("driver"),
        options: table.get("options").and_then(|options| options.as_table()).cloned().unwrap_or_default(),
        addresses: Vec::new(),
        mtu: warmlane::functions::forward::control::config::DEFAULT_MTU,
        mac: None,
    })
}

fn tell(port: &Port) {
    for note in &port.capabilities.notes {
        eprintln!("note: port '{}': {note}", port.name);
    }
}
