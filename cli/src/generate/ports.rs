//! Opens the ports of a generator.

use anyhow::{Context as _, bail};
use warmlane::assembly::ports::{Direction, Opener, PortSettings, check_captures};
use warmlane::drivers::memory::ring_pair;
use warmlane::functions::generator::control::Rate;
use warmlane::functions::generator::datapath::Plan;
use warmlane::lane::place;
use warmlane::mem::{LINE_BYTES, Pool, PoolConfig};
use warmlane::port::{Port, ReceiveQueue, TransmitQueue, rate_limit};
use warmlane::sys::affinity;

/// Where to send, and perhaps where to receive.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct PortFlags {
    /// Where to send: `DRIVER` or `DRIVER:KEY=VALUE,...`, drivers as for `warmlane forward`.
    #[arg(long, value_name = "PORT", required_unless_present = "both")]
    transmit: Option<String>,
    /// Where to receive.
    #[arg(long, value_name = "PORT")]
    receive: Option<String>,
    /// One port to send to and to receive from.
    ///
    /// `loop` is a cable in memory, which needs no privilege; `loop:rate=2Mpps,buffer=64` a device of known capacity on it.
    #[arg(long, value_name = "PORT", conflicts_with_all = ["transmit", "receive"])]
    both: Option<String>,
}

/// Where to send and where to receive, for tests that are about what arrives.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct MeasuredPorts {
    /// Where to send: `DRIVER` or `DRIVER:KEY=VALUE,...`, drivers as for `warmlane forward`.
    #[arg(long, value_name = "PORT", required_unless_present = "both", requires = "receive")]
    transmit: Option<String>,
    /// Where to receive.
    #[arg(long, value_name = "PORT", required_unless_present = "both")]
    receive: Option<String>,
    /// One port to send to and to receive from.
    ///
    /// `loop` is a cable in memory, which needs no privilege; `loop:rate=2Mpps,buffer=64` a device of known capacity on it.
    #[arg(long, value_name = "PORT", conflicts_with_all = ["transmit", "receive"])]
    both: Option<String>,
}

impl From<MeasuredPorts> for PortFlags {
    fn from(MeasuredPorts { transmit, receive, both }: MeasuredPorts) -> Self {
        Self { transmit, receive, both }
    }
}

/// What a tester is started with.
pub(super) struct Ports {
    pub(super) transmit: Box<dyn TransmitQueue>,
    pub(super) receive: Vec<Box<dyn ReceiveQueue>>,
    pub(super) pool: Pool,
    pub(super) cpus: Vec<usize>,
}

/// Opens what the flags name, and a pool whose buffers hold the plan's frames.
pub(super) fn open(flags: &PortFlags, plan: &Plan) -> anyhow::Result<Ports> {
    let pool = pool(plan)?;
    if let Some(options) = flags.both.as_deref().and_then(loop_options) {
        return open_loop(options, pool);
    }
    let transmit = flags.both.as_ref().or(flags.transmit.as_ref());
    let transmit = settings("transmit", transmit.context("no port to send to: name one with --transmit")?)?;
    let direction = if flags.both.is_some() { Direction::Both } else { Direction::Transmit };
    let receive = flags.receive.as_ref().map(|text| settings("receive", text)).transpose()?;
    check_captures(std::iter::once(&transmit).chain(&receive))?;
    let mut opener = Opener::new(&pool, 1);
    let mut sender = opener.open_for(&transmit, None, direction)?;
    tell(&sender);
    if let Some(maximum) = usize::try_from(sender.capabilities.maximum_frame).ok()
        && maximum < plan.longest()
    {
        bail!(
            "frames of {} bytes (without frame check sequence) are too long for port '{}', which sends up to {maximum}: send smaller ones, or raise its MTU",
            plan.longest(),
            transmit.driver.name()
        );
    }
    if sender.transmit.is_empty() {
        bail!("port '{}' can't send: name another with --transmit", transmit.driver.name());
    }
    let receivers = match receive {
        Some(config) => {
            let port = opener.open_for(&config, None, Direction::Receive)?;
            tell(&port);
            if port.receive.is_empty() {
                bail!("port '{}' can't receive: name another with --receive", config.driver.name());
            }
            port.receive
        }
        None if flags.both.is_some() => std::mem::take(&mut sender.receive),
        None => Vec::new(),
    };
    let cpus = cpus(if receivers.is_empty() { 1 } else { 2 })?;
    Ok(Ports { transmit: sender.take_transmit()?, receive: receivers, pool, cpus })
}

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
    Ok(Ports { transmit: sender.take_transmit()?, receive, pool, cpus: cpus(2)? })
}

/// A pool whose buffers hold the plan's frames, whole lines of them.
pub(super) fn pool(plan: &Plan) -> anyhow::Result<Pool> {
    let default = PoolConfig::default();
    let data_size = plan.longest().next_multiple_of(LINE_BYTES).max(default.data_size);
    let pool = Pool::new(&PoolConfig { data_size, ..default })?;
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

fn settings(name: &str, text: &str) -> anyhow::Result<PortSettings> {
    let driver = text.parse().with_context(|| format!("--{name} '{text}'"))?;
    Ok(PortSettings { name: name.to_owned(), driver })
}

fn tell(port: &Port) {
    for note in &port.capabilities.notes {
        eprintln!("note: port '{}': {note}", port.name);
    }
}
