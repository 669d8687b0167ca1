//! Opens ports by the name of their driver: the one place that knows all of them.

use anyhow::{Context as _, bail};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use warmlane::drivers::kernel::packet::{self, PacketConfig};
use warmlane::drivers::kernel::tap::{self, TapConfig};
use warmlane::drivers::memory::{null, replay};
use warmlane::drivers::pcap::{self, Format, LinkType, PcapConfig, Reader};
use warmlane::functions::forward::control::config::PortConfig;
use warmlane::mem::Pool;
use warmlane::port::Port;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PcapOptions {
    read: Option<PathBuf>,
    write: Option<PathBuf>,
    format: Option<PcapFormat>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PcapFormat {
    Pcap,
    Pcapng,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplayOptions {
    file: PathBuf,
    rounds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NullOptions {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TapOptions {
    interface: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PacketOptions {
    interface: String,
}

/// Opens the port numbered `number` with one queue pair for each of `lanes` lanes, as far as its driver has them.
pub(crate) fn open(config: &PortConfig, lanes: usize, pool: &Pool) -> anyhow::Result<Port> {
    let named = || format!("port '{}' ({})", config.name, config.driver);
    let mut port = open_driver(config, lanes, pool).with_context(named)?;
    port.name.clone_from(&config.name);
    Ok(port)
}

fn open_driver(config: &PortConfig, lanes: usize, pool: &Pool) -> anyhow::Result<Port> {
    let name = config.name.as_str();
    match config.driver.as_str() {
        "pcap" => {
            let options: PcapOptions = options(config)?;
            if options.read.is_none() && options.write.is_none() {
                bail!("nothing to do: give it a file with read = or write =");
            }
            let format = options.format.map(|format| match format {
                PcapFormat::Pcap => Format::Pcap,
                PcapFormat::Pcapng => Format::Pcapng,
            });
            let pcap = PcapConfig {
                receive: options.read,
                transmit: options.write,
                format,
                ..PcapConfig::default()
            };
            Ok(pcap::open(&pcap, name, pool)?)
        }
        "replay" => {
            let options: ReplayOptions = options(config)?;
            let frames = Arc::new(load(&options.file)?);
            let replay = replay::ReplayConfig { rounds: options.rounds, queues: lanes };
            let source = replay::open(name, &frames, pool, replay)?;
            Ok(Port { transmit: null::sink(name, lanes).transmit, ..source })
        }
        "null" => {
            let NullOptions {} = options(config)?;
            Ok(null::sink(name, lanes))
        }
        "tap" => {
            let options: TapOptions = options(config)?;
            let tap = TapConfig {
                name: options.interface,
                mtu: Some(u32::from(config.mtu)),
                up: true,
                queues: u16::try_from(lanes).unwrap_or(u16::MAX),
                ..TapConfig::default()
            };
            Ok(tap::open(&tap, pool)?)
        }
        "packet" => {
            let options: PacketOptions = options(config)?;
            let packet = PacketConfig { interface: options.interface, ..PacketConfig::default() };
            Ok(packet::open(&packet, pool)?)
        }
        other => bail!("unknown driver '{other}': known are pcap, replay, null, tap, packet"),
    }
}

fn options<T: for<'de> Deserialize<'de>>(config: &PortConfig) -> anyhow::Result<T> {
    Ok(config.options.clone().try_into()?)
}

/// Reads a capture for replay.
pub(crate) fn load(path: &Path) -> anyhow::Result<replay::Frames> {
    let mut reader = Reader::open(path)?;
    let mut frames = replay::Frames::new();
    while let Some(frame) = reader.next_frame()? {
        if frame.link_type != LinkType::ETHERNET {
            bail!(
                "{}: frame {} is no Ethernet frame: record on an Ethernet interface",
                path.display(),
                frames.len()
            );
        }
        if frame.is_snapped() {
            bail!(
                "{}: frame {} is cut off by the snap length of the capture: record whole frames (tcpdump -s 0)",
                path.display(),
                frames.len()
            );
        }
        frames.push(frame.without_fcs())?;
    }
    Ok(frames)
}
