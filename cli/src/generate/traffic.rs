//! Traffic from the command line: a file, or one stream from flags.

use anyhow::Context as _;
use clap::ValueEnum;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;
use warmlane::functions::generator::control::config::{
    CableSettings, EthernetSettings, Ipv4Settings, Ipv6Settings, PacketSettings, StreamSettings, TcpSettings,
    UdpSettings, VarySettings, VlanSettings,
};
use warmlane::functions::generator::control::{Config, Payload, Sizes, TrafficSettings};
use warmlane::settings::Located;
use warmlane::wire::MacAddress;

/// What to send.
#[derive(clap::Args, Debug, Default, PartialEq)]
pub(super) struct TrafficFlags {
    /// A TOML file with streams (see docs/gen.md); without one, these flags describe one stream.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cable", "size", "from", "to", "from_mac", "to_mac", "protocol",
        "ports", "vlan", "payload", "vary"])]
    config: Option<PathBuf>,
    /// The profile of a cable operator's downstream: this many modems, each with its own addresses.
    #[arg(long, value_name = "MODEMS", num_args = 0..=1, default_missing_value = "300",
        conflicts_with_all = ["from", "to", "from_mac", "to_mac", "protocol", "ports", "vlan", "payload", "vary"])]
    cable: Option<i64>,
    /// Frame size in bytes with frame check sequence, or a mix: `imix`, `imix-v4`, `cable`, `genome:aaafg`, `64:7,594:4`.
    #[arg(long, value_name = "SIZE")]
    size: Option<Sizes>,
    /// Source address, IPv4 or IPv6.
    #[arg(long, value_name = "ADDRESS")]
    from: Option<IpAddr>,
    /// Destination address.
    #[arg(long, value_name = "ADDRESS")]
    to: Option<IpAddr>,
    /// Source Ethernet address.
    #[arg(long, value_name = "MAC")]
    from_mac: Option<MacAddress>,
    /// Destination Ethernet address: the device under test's.
    #[arg(long, value_name = "MAC")]
    to_mac: Option<MacAddress>,
    /// What is in the packets.
    #[arg(long, value_enum, value_name = "PROTOCOL", default_value_t)]
    protocol: Protocol,
    /// Source and destination port: `1024,9`.
    #[arg(long, value_name = "SOURCE,DESTINATION")]
    ports: Option<Ports>,
    /// VLAN tags, the outer one first: `100` or `7,100`.
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    vlan: Vec<i64>,
    /// `zeros`, `ones`, `counting`, `random`, `text:...` or `hex:...`.
    #[arg(long, value_name = "PAYLOAD")]
    payload: Option<Payload>,
    /// A field that differs from packet to packet: `FIELD=count:N`, `FIELD=random:N` or `FIELD=zipf:N`.
    #[arg(long, value_name = "FIELD=ORDER:COUNT")]
    vary: Vec<Vary>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
enum Protocol {
    #[default]
    Udp,
    Tcp,
    Icmp,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Ports {
    source: u16,
    destination: u16,
}

impl FromStr for Ports {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let pair = text.split_once(',').and_then(|(source, destination)| {
            Some(Self { source: source.trim().parse().ok()?, destination: destination.trim().parse().ok()? })
        });
        pair.ok_or("expected two numbers from 0 to 65535, as in 1024,9")
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Vary {
    text: String,
    field: String,
    order: String,
    count: i64,
}

impl FromStr for Vary {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('=').and_then(|(field, values)| {
            let (order, count) = values.split_once(':')?;
            let (field, order) = (field.to_owned(), order.to_owned());
            Some(Self { text: text.to_owned(), field, order, count: count.parse().ok()? })
        });
        parts.ok_or("expected FIELD=ORDER:COUNT, as in ipv4.source=random:65536")
    }
}

impl TrafficFlags {
    /// Whether no flag was given.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the flags say how long frames are.
    pub(super) const fn says_size(&self) -> bool {
        self.size.is_some() || self.cable.is_some()
    }

    /// What a test of lookups sends: smallest packets from everywhere.
    pub(super) fn random_source() -> anyhow::Result<Config> {
        let vary = vec!["ipv4.source=random:65536".parse().map_err(anyhow::Error::msg)?];
        let from = Some(Ipv4Addr::new(198, 18, 0, 0).into());
        Self { size: Some("64".parse()?), from, vary, ..Self::default() }.read(true)
    }

    /// The traffic; packets carry signatures if they are `signed`, as far as a file doesn't say otherwise.
    pub(super) fn read(&self, signed: bool) -> anyhow::Result<Config> {
        let Some(path) = &self.config else {
            self.check()?;
            return self.settings(signed).check().map_err(|fault| fault.in_text("").into());
        };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the streams {}", path.display()))?;
        Config::from_toml(&text).with_context(|| format!("streams {}", path.display()))
    }

    /// The settings that the flags stand for.
    fn settings(&self, signed: bool) -> TrafficSettings {
        let size = self.size.clone().map(Located::from);
        if let Some(modems) = self.cable {
            let modems = Some(Located::flag("--cable", &modems.to_string(), modems));
            let cable = Some(CableSettings { modems, size }.into());
            return TrafficSettings { cable, ..TrafficSettings::default() };
        }
        let vary = |vary: &Vary| {
            let settings = VarySettings {
                field: vary.field.clone(),
                order: Some(Located::flag("--vary", &vary.text, vary.order.clone())),
                count: Some(Located::flag("--vary", &vary.text, vary.count)),
                ..VarySettings::default()
            };
            Located::flag("--vary", &vary.text, settings)
        };
        let stream = StreamSettings {
            size,
            payload: self.payload.clone().map(Located::from),
            signature: Some(signed),
            packet: self.packet(),
            vary: self.vary.iter().map(vary).collect(),
            ..StreamSettings::default()
        };
        TrafficSettings { streams: vec![stream.into()], ..TrafficSettings::default() }
    }

    fn packet(&self) -> PacketSettings {
        let tag = |&id: &i64| VlanSettings {
            id: Located::flag("--vlan", &id.to_string(), id),
            ..VlanSettings::default()
        };
        let (source, destination) = match self.ports {
            Some(ports) => (Some(i64::from(ports.source).into()), Some(i64::from(ports.destination).into())),
            None => (None, None),
        };
        let mut packet = PacketSettings {
            ethernet: EthernetSettings {
                source: self.from_mac.map(Located::from),
                destination: self.to_mac.map(Located::from),
                ethertype: None,
            },
            vlan: self.vlan.iter().map(tag).collect(),
            ..PacketSettings::default()
        };
        match self.protocol {
            Protocol::Udp => packet.udp = Some(UdpSettings { source, destination }.into()),
            Protocol::Tcp => {
                packet.tcp = Some(TcpSettings { source, destination, ..TcpSettings::default() }.into());
            }
            Protocol::Icmp => packet.icmp = Some(Located::default()),
        }
        // RFC 2544 appendix C.2.2 and RFC 5180 section 8: addresses for benchmarks.
        let benchmark = |last| Ipv6Addr::new(0x2001, 2, 0, last, 0, 0, 0, 1);
        match (self.from, self.to) {
            (Some(IpAddr::V6(_)), _) | (_, Some(IpAddr::V6(_))) => {
                packet.ipv6 = Some(
                    Ipv6Settings {
                        source: ipv6(self.from, benchmark(0)).into(),
                        destination: ipv6(self.to, benchmark(0x8000)).into(),
                        dscp: None,
                        hop_limit: None,
                        flow_label: None,
                    }
                    .into(),
                );
            }
            _ => {
                packet.ipv4 = Some(
                    Ipv4Settings {
                        source: ipv4(self.from, Ipv4Addr::new(198, 18, 0, 1)).into(),
                        destination: ipv4(self.to, Ipv4Addr::new(198, 19, 0, 1)).into(),
                        dscp: None,
                        ttl: None,
                        identification: None,
                        dont_fragment: false,
                    }
                    .into(),
                );
            }
        }
        packet
    }

    /// Refuses what clap can't: flags that don't go together by their values.
    fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.ports.is_none() || self.protocol != Protocol::Icmp,
            "--ports does not go with --protocol icmp, which has none: leave one of them out"
        );
        let families = [self.from, self.to].into_iter().flatten().map(|address| address.is_ipv6());
        let families: Vec<bool> = families.collect();
        anyhow::ensure!(
            families != [true, false] && families != [false, true],
            "--from and --to are addresses of different families: give two of IPv4 or two of IPv6"
        );
        Ok(())
    }
}

fn ipv4(given: Option<IpAddr>, usual: Ipv4Addr) -> Ipv4Addr {
    match given {
        Some(IpAddr::V4(address)) => address,
        _ => usual,
    }
}

fn ipv6(given: Option<IpAddr>, usual: Ipv6Addr) -> Ipv6Addr {
    match given {
        Some(IpAddr::V6(address)) => address,
        _ => usual,
    }
}
