//! Opens ports by the name of their driver: the one place that knows all of them.

use anyhow::{Context as _, anyhow, bail};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use warmlane::drivers::kernel::packet::{self, PacketConfig};
use warmlane::drivers::kernel::tap::{self, TapConfig};
use warmlane::drivers::memory::{null, replay};
use warmlane::drivers::pcap::{self, Format, LinkType, PcapConfig, Reader};
use warmlane::drivers::xdp::{self, Steering, Umem, XdpConfig, XdpMode};
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct XdpOptions {
    interface: String,
    #[serde(default)]
    mode: XdpModeName,
    #[serde(default)]
    steering: SteeringName,
    #[serde(default)]
    take_all: bool,
    #[serde(default)]
    busy_poll: bool,
    ring: Option<u32>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum XdpModeName {
    #[default]
    Best,
    ZeroCopy,
    Copy,
    Generic,
}

/// A forwarder has addresses of its own on its ports, and answers for them.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SteeringName {
    #[default]
    All,
    Router,
}

impl XdpOptions {
    fn config(self, lanes: usize) -> XdpConfig {
        let usual = XdpConfig::default();
        XdpConfig {
            interface: self.interface,
            queues: u32::try_from(lanes).unwrap_or(u32::MAX),
            entries: self.ring.unwrap_or(usual.entries),
            mode: match self.mode {
                XdpModeName::Best => XdpMode::Best,
                XdpModeName::ZeroCopy => XdpMode::ZeroCopy,
                XdpModeName::Copy => XdpMode::Copy,
                XdpModeName::Generic => XdpMode::Generic,
            },
            steering: match self.steering {
                SteeringName::All => Steering::All,
                SteeringName::Router => Steering::Router,
            },
            take_all: self.take_all,
            busy_poll: self.busy_poll,
            ..usual
        }
    }
}

/// What the ports of one program are opened with.
pub(crate) struct Opener<'a> {
    pool: &'a Pool,
    lanes: usize,
    /// The pool's memory as XDP ports share it, once there is one.
    umem: Option<Umem>,
}

/// Refuses configurations that lose a capture: a file that is written is replaced when the run ends.
pub(crate) fn check_captures(ports: &[PortConfig]) -> anyhow::Result<()> {
    let paths = |keys: &'static [&'static str]| {
        ports.iter().flat_map(move |port| {
            let paths = keys.iter().filter_map(|&key| port.options.get(key)?.as_str());
            paths.filter_map(move |path| Some((port.name.as_str(), place(Path::new(path))?)))
        })
    };
    let mut written: Vec<(&str, PathBuf)> = Vec::new();
    for (port, path) in paths(&["write"]) {
        let clash =
            paths(&["read", "file"]).find(|(_, other)| *other == path).map(|found| ("reads", found.0));
        let other = written.iter().find(|(_, other)| *other == path).map(|found| ("writes", found.0));
        if let Some((does, other)) = clash.or(other) {
            bail!(
                "port '{port}' would overwrite {}, which port '{other}' {does}: name another file",
                path.display()
            );
        }
        written.push((port, path));
    }
    Ok(())
}

/// One name for each regular file, there or yet to be made; none for pipes and devices.
fn place(path: &Path) -> Option<PathBuf> {
    if path.exists() {
        return path.canonicalize().ok().filter(|path| path.is_file());
    }
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    Some(directory.unwrap_or(Path::new(".")).canonicalize().ok()?.join(path.file_name()?))
}

impl<'a> Opener<'a> {
    pub(crate) fn new(pool: &'a Pool, lanes: usize) -> Self {
        Self { pool, lanes, umem: None }
    }

    /// Opens a port with one queue pair for each lane, as far as its driver has them.
    pub(crate) fn open(&mut self, config: &PortConfig) -> anyhow::Result<Port> {
        let named = || format!("port '{}' ({})", config.name, config.driver);
        let mut port = self.open_driver(config).with_context(named)?;
        port.name.clone_from(&config.name);
        Ok(port)
    }

    fn open_driver(&mut self, config: &PortConfig) -> anyhow::Result<Port> {
        let (name, lanes, pool) = (config.name.as_str(), self.lanes, self.pool);
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
            "xdp" => {
                let options: XdpOptions = options(config)?;
                let umem = match &mut self.umem {
                    Some(umem) => umem,
                    none => none.insert(Umem::new(pool)?),
                };
                Ok(xdp::open(&options.config(lanes), umem)?.port)
            }
            other => bail!("unknown driver '{other}': known are pcap, replay, null, tap, packet, xdp"),
        }
    }
}

fn options<T: for<'de> Deserialize<'de>>(config: &PortConfig) -> anyhow::Result<T> {
    // Only the sentence: there is no text that a place could be shown in.
    config.options.clone().try_into().map_err(|error: toml::de::Error| anyhow!(error.message().to_owned()))
}

/// Reads a capture for replay.
pub(crate) fn load(path: &Path) -> anyhow::Result<replay::Frames> {
    let mut frames = replay::Frames::new();
    read_frames(path, |_, frame| Ok(frames.push(frame)?))?;
    Ok(frames)
}

/// Gives each frame of a capture, with nanoseconds since the epoch and without check sequence, to `take`.
pub(crate) fn read_frames(
    path: &Path,
    mut take: impl FnMut(u64, &[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut reader = Reader::open(path)?;
    let mut number = 0_u64;
    while let Some(frame) = reader.next_frame()? {
        if frame.link_type != LinkType::ETHERNET {
            bail!("{}: frame {number} is no Ethernet frame: record on an Ethernet interface", path.display());
        }
        if frame.is_snapped() {
            bail!(
                "{}: frame {number} is cut off by the snap length of the capture: record whole frames (tcpdump -s 0)",
                path.display()
            );
        }
        take(frame.timestamp_nanoseconds, frame.without_fcs())?;
        number += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmlane::functions::forward::control::config::Config;

    fn check(ports: &[&str]) -> anyhow::Result<()> {
        let port = |(number, options): (usize, &&str)| {
            format!("[[port]]\nname = \"p{number}\"\ndriver = \"pcap\"\noptions = {{ {options} }}\n")
        };
        let text: String = ports.iter().enumerate().map(port).collect();
        check_captures(&Config::from_toml(&text)?.ports)
    }

    #[test]
    fn a_capture_that_would_be_lost_is_named() {
        // Cargo.toml is a file that is there.
        for clash in [
            &["read = 'Cargo.toml', write = './Cargo.toml'"][..],
            &["write = 'Cargo.toml'", "file = 'src/../Cargo.toml'"],
            &["write = 'new.pcap'", "write = 'src/../new.pcap'"],
        ] {
            let error = check(clash).unwrap_err().to_string();
            assert!(error.contains("would overwrite") && error.contains("port 'p"), "{error}");
        }
        check(&["read = 'Cargo.toml', write = 'new.pcap'", "read = 'Cargo.toml'"]).unwrap();
        check(&["write = '/dev/null'", "write = '/dev/null'"]).unwrap();
    }
}
