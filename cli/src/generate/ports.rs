//! Opens the ports of a generator.

use crate::messages;
use anyhow::bail;
use clap::ArgGroup;
use serde::de::{Deserialize, Deserializer, Error as _};
use std::str::FromStr;
use warmlane::assembly::ports::{
    Direction, DriverSettings, Opener, ParsePortError, PortEvents, PortSettings, check_captures,
};
use warmlane::drivers::common::options;
use warmlane::drivers::memory::ring_pair;
use warmlane::functions::generator::control::Rate;
use warmlane::functions::generator::datapath::Plan;
use warmlane::lane::place;
use warmlane::mem::{LINE_BYTES, Pool, PoolConfig};
use warmlane::port::{Port, ReceiveQueue, TransmitQueue, rate_limit};
use warmlane::sys::affinity;

/// Where to send, and perhaps where to receive.
#[derive(clap::Args, Clone, Debug)]
#[command(group(ArgGroup::new("sending").required(true).args(["transmit", "both"])))]
pub(super) struct PortFlags {
    /// Where to send: `DRIVER` or `DRIVER:KEY=VALUE,...`, drivers as for `warmlane forward`.
    #[arg(long, value_name = "PORT")]
    transmit: Option<DriverSettings>,
    /// Where to receive.
    #[arg(long, value_name = "PORT")]
    receive: Option<DriverSettings>,
    /// One port to send to and to receive from.
    ///
    /// `loop` is a cable in memory, which needs no privilege; `loop:rate=2Mpps,buffer=64` a device of known capacity on it.
    #[arg(long, value_name = "PORT", conflicts_with = "receive")]
    both: Option<Both>,
}

/// Where to send and where to receive, for tests that are about what arrives.
#[derive(clap::Args, Clone, Debug)]
#[command(group(ArgGroup::new("sending").required(true).args(["transmit", "both"])))]
pub(super) struct MeasuredPorts {
    /// Where to send: `DRIVER` or `DRIVER:KEY=VALUE,...`, drivers as for `warmlane forward`.
    #[arg(long, value_name = "PORT", requires = "receive")]
    transmit: Option<DriverSettings>,
    /// Where to receive.
    #[arg(long, value_name = "PORT", requires = "transmit")]
    receive: Option<DriverSettings>,
    /// One port to send to and to receive from.
    ///
    /// `loop` is a cable in memory, which needs no privilege; `loop:rate=2Mpps,buffer=64` a device of known capacity on it.
    #[arg(long, value_name = "PORT", conflicts_with = "receive")]
    both: Option<Both>,
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
    /// Those of the ports.
    pub(super) events: PortEvents,
}

/// What `--both` names.
#[derive(Clone, Debug)]
enum Both {
    /// A cable in memory, from us to us.
    Loop(LoopSettings),
    /// A port.
    Port(DriverSettings),
}

impl FromStr for Both {
    type Err = ParsePortError;

    fn from_str(text: &str) -> Result<Self, ParsePortError> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        if name != "loop" {
            return text.parse().map(Self::Port);
        }
        options::parse(settings, None).map(Self::Loop).map_err(|problem| ParsePortError::Option {
            driver: "loop",
            problem,
            hint: "as in loop:rate=2Mpps,buffer=64".to_owned(),
        })
    }
}

/// What follows `loop:`.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
struct LoopSettings {
    /// Packets a second; with it the cable is a device of known capacity, which drops what comes faster.
    #[serde(deserialize_with = "packets_per_second")]
    rate: Option<f64>,
    /// Packets that such a device holds.
    #[serde(deserialize_with = "at_least_one")]
    buffer: u32,
}

impl Default for LoopSettings {
    fn default() -> Self {
        Self { rate: None, buffer: 64 }
    }
}

fn packets_per_second<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.parse() {
        Ok(Rate::Packets(rate)) => Ok(Some(rate)),
        Ok(_) => Err(D::Error::custom(format!("'{text}' is not in packets a second, as in 2Mpps"))),
        Err(error) => Err(D::Error::custom(error)),
    }
}

fn at_least_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        0 => Err(D::Error::custom("0 is too few packets: use 1 or more")),
        count => Ok(count),
    }
}

/// Opens what the flags name, and a pool whose buffers hold the plan's frames.
pub(super) fn open(flags: &PortFlags, plan: &Plan) -> anyhow::Result<Ports> {
    let pool = pool(plan)?;
    let (transmit, direction) = match (&flags.both, &flags.transmit) {
        (Some(Both::Loop(settings)), _) => return open_loop(settings, pool),
        (Some(Both::Port(driver)), _) => (driver, Direction::Both),
        (None, Some(driver)) => (driver, Direction::Transmit),
        (None, None) => bail!("no port to send to: name one with --transmit"),
    };
    let named =
        |name: &str, driver: &DriverSettings| PortSettings { name: name.to_owned(), driver: driver.clone() };
    let transmit = named("transmit", transmit);
    let receive = flags.receive.as_ref().map(|driver| named("receive", driver));
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
    let events = opener.take_events();
    Ok(Ports { transmit: sender.take_transmit()?, receive: receivers, pool, cpus, events })
}

/// Packets that the cable in memory holds: more than fall due while the receiving lane is held up for a moment.
pub(super) const CABLE: usize = 8_192;

fn open_loop(settings: &LoopSettings, pool: Pool) -> anyhow::Result<Ports> {
    let [mut sender, mut receiver] = ring_pair::open(["sender", "receiver"], CABLE)?;
    let mut receive = std::mem::take(&mut receiver.receive);
    if let Some(rate) = settings.rate {
        let limit = |queue| rate_limit::wrap(queue, rate, settings.buffer);
        receive = receive.into_iter().map(limit).collect();
    }
    let events = PortEvents::default();
    Ok(Ports { transmit: sender.take_transmit()?, receive, pool, cpus: cpus(2)?, events })
}

/// A pool whose buffers hold the plan's frames, whole lines of them.
pub(super) fn pool(plan: &Plan) -> anyhow::Result<Pool> {
    let default = PoolConfig::default();
    let data_size = plan.longest().next_multiple_of(LINE_BYTES).max(default.data_size);
    let pool = Pool::new(&PoolConfig { data_size, ..default })?;
    if let Some(fallback) = pool.fallback() {
        messages::note(format_args!("packet memory: {fallback}"));
    }
    Ok(pool)
}

/// As many CPUs as there are, up to `wanted`.
pub(super) fn cpus(wanted: usize) -> anyhow::Result<Vec<usize>> {
    let available = affinity::allowed_cpus()?.len();
    Ok(place(wanted.min(available))?)
}

fn tell(port: &Port) {
    for note in &port.capabilities.notes {
        messages::note_of(&port.name, format_args!("port '{}': {note}", port.name));
    }
}
